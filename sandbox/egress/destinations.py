"""Which hosts a fetch may reach: exact names with exact ports. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import SplitResult, urlsplit

from sandbox.lazy_module import LazyModule
from sandbox.lazy_pattern import lazy_pattern

if TYPE_CHECKING:
    import idna
else:  # only names that are not ASCII need its tables (docs/adr/0080)
    idna = LazyModule("idna")

_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = lazy_pattern(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")
_PORT = lazy_pattern(r"[1-9][0-9]{0,4}")
_DEFAULT_PORTS = {"https": 443, "http": 80}
_PATH = lazy_pattern(r"[!-~]*")  # printable ASCII without a space, which would end the target in a request line


@dataclass(frozen=True, order=True)
class Destination:
    """A host, in lower case, and a port. An IPv6 address has no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_address(self) -> bool:
        """Whether the host is an IP address, not a name."""
        return _is_address(self.host)


@dataclass(frozen=True)
class AllowedHost:
    """One entry of the list. `scheme`: `https` is reached by CONNECT only, `http` by plain requests only.

    `may_be_internal`: the operator named this host, so it may have a private or loopback address.
    """

    destination: Destination
    scheme: Literal["https", "http"] = "https"
    may_be_internal: bool = False


class AllowList:
    """The hosts of one fetch."""

    def __init__(self, hosts: Iterable[AllowedHost]) -> None:
        self._hosts = {(host.scheme, host.destination): host for host in hosts}

    def find(self, scheme: Literal["https", "http"], destination: Destination) -> AllowedHost | None:
        """The entry of this host and port for this kind of request, or None."""
        return self._hosts.get((scheme, destination))


def parse_authority(text: str) -> Destination:
    """Parse the target of a CONNECT: `HOST:PORT`, both required. Raises: `ValueError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65535:
        raise ValueError("no valid port")
    return Destination(_parse_host(host), int(port))


def parse_plain_target(text: str) -> tuple[Destination, str]:
    """Parse the target of a plain request, `http://HOST[:PORT]/PATH`: the host and the path with its query.

    Raises: `ValueError`, also for a user name, a fragment, or characters that a URL must encode.
    """
    if not text.lower().startswith("http://") or not _PATH.fullmatch(text):
        raise ValueError("not a plain URL")
    authority, _, path = text[len("http://") :].partition("/")
    if "#" in path or any(mark in authority for mark in "@?#\\"):
        raise ValueError("not a plain URL")
    return parse_authority(authority if re.search(r":\d+\Z", authority) else f"{authority}:80"), f"/{path}"


def parse_registry(url: str, *, may_be_internal: bool) -> AllowedHost:
    """The host of a registry's URL. Raises: `ValueError` with what is wrong with it, and no part of the URL."""
    try:
        parts = urlsplit(url)
        host, given = parts.hostname or "", parts.port
        host = host if host.isascii() else idna.encode(host, uts46=True).decode("ascii")  # as `sandbox.remotes`
    except ValueError:  # its text has a part of the URL: a `/` or `#` in a password makes the rest of it a port
        raise ValueError("has no host and port that can be read, or an unusual character in a password") from None
    if parts.scheme.startswith("git+"):
        raise ValueError("is the URL of a git repository, not of a sparse index")
    if parts.scheme not in _DEFAULT_PORTS or not host:
        raise ValueError("is not a URL that begins with https:// or http://")
    if _has_login(parts):
        raise ValueError("contains a user name or password; no secret enters a guest")
    port = given or _DEFAULT_PORTS[parts.scheme]
    destination = parse_authority(str(Destination(host.lower(), port)))
    return AllowedHost(destination, "https" if parts.scheme == "https" else "http", may_be_internal)


def _has_login(parts: SplitResult) -> bool:
    """Whether the host may be a part of a password: a `/`, `#` or `?` in it ends the host before the `@`. Only the
    first segment of a path counts, as feeds of Azure have an `@` in a later one.
    """
    segment = parts.path.lstrip("/").partition("/")[0]
    return "%40" in segment or "@" in f"{parts.netloc}{segment}{parts.query}{parts.fragment}"


def _parse_host(text: str) -> str:
    host = text.lower()
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if _is_address(bare):
        if (":" in bare) != (bare != host):
            raise ValueError("an IPv6 address needs brackets")
        return str(ipaddress.ip_address(bare))
    if not _NAME.fullmatch(host):
        raise ValueError("not a host name")
    return host


def _is_address(text: str) -> bool:
    try:
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return False
