"""Parse remote URLs into one canonical form.

Two spellings of one remote give the same canonical URL and the same id. Nothing here touches the network or the disk.
Grammar: URL forms of git-clone(1), "GIT URLS"; only https, http, ssh, git+ssh, scp-like and local paths are known.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit

import idna

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Host

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOSTNAME = re.compile(rf"^(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*$")
_SEGMENT = re.compile(r"^[A-Za-z0-9_.~+][A-Za-z0-9_.~+-]{0,127}$")
_USER = re.compile(r"^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}$")
_SCP = re.compile(r"^(?:(?P<user>[^@/:]+)@)?(?P<host>\[[^\]]+\]|[^@/:\[\]]+):(?P<path>(?!//).+)$")
_DEFAULT_PORTS = {"https": 443, "http": 80, "ssh": 22}
FORGES: Mapping[str, Host] = {"github.com": Host.GITHUB, "gitlab.com": Host.GITLAB}
_SCHEMES = {"https": "https", "http": "http", "ssh": "ssh", "git+ssh": "ssh", "ssh+git": "ssh", "file": "file"}
_HINT = "Use https://HOST/OWNER/NAME, ssh://[USER@]HOST/OWNER/NAME or USER@HOST:OWNER/NAME; a local path as ./PATH."


@dataclass(frozen=True)
class Remote:
    """A parsed remote. `url` is what git is given; `id` names it on disk and in commands."""

    protocol: str
    hostname: str
    port: int | None
    user: str | None
    owner: str
    name: str
    url: str
    host: Host

    @property
    def id(self) -> str:
        """`<host>-<owner>-<name>`, lower case, `[a-z0-9._-]` only; never one that a task could have."""
        port = f"-{self.port}" if self.port else ""
        slug = _slug(f"{self.hostname}{port}-{self.owner}-{self.name}")
        return f"host-{slug}" if slug.startswith("task-") else slug


def parse_remote(
    text: str, *, allow_file: bool = False, allow_http: bool = False, forges: Mapping[str, Host] = FORGES
) -> Remote:
    """Parse any supported spelling of a remote. `forges`: which hosts are GitHub or GitLab, self-hosted ones too.

    Raises: `invalid_input` for everything that is not a remote we may use; the text is never echoed when it may
    hold a secret.
    """
    _refuse_unprintable(text)
    if "://" in text:
        return _on_forge(_from_url(text, allow_file=allow_file, allow_http=allow_http), forges)
    if _looks_like_path(text):
        return _from_path(text, allow_file=allow_file)
    match = _SCP.match(text)
    if match:
        return _on_forge(_network_remote("ssh", match["host"], None, match["user"], match["path"]), forges)
    raise _invalid("This is not the URL of a git repository")


def _on_forge(remote: Remote, forges: Mapping[str, Host]) -> Remote:
    """Forges fold case in owner and name, so different spellings are one repository there."""
    kind = forges.get(remote.hostname, Host.UNKNOWN) if remote.protocol != "file" else Host.UNKNOWN
    if kind is Host.UNKNOWN:
        return remote
    path = f"{remote.owner}/{remote.name}" if remote.owner else remote.name
    url = remote.url.removesuffix(f"{path}.git") + f"{path.lower()}.git"
    return replace(remote, host=kind, owner=remote.owner.lower(), name=remote.name.lower(), url=url)


def _refuse_unprintable(text: str) -> None:
    if not text or text.startswith("-"):
        raise _invalid("A repository URL may not be empty or begin with '-'")
    if len(text) > 2048:
        raise _invalid("This repository URL is longer than 2048 characters")
    if any(ord(c) < 0x21 or ord(c) == 0x7F or 0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise _invalid("A repository URL may not contain spaces, control characters or bytes that are no text")


def _looks_like_path(text: str) -> bool:
    return text.startswith(("/", "./", "../", "~/")) or text in {".", ".."}


def _from_url(text: str, *, allow_file: bool, allow_http: bool) -> Remote:
    parts = _split(text)
    protocol = _SCHEMES.get(parts.scheme.lower())
    if protocol is None:
        raise _invalid("This URL's scheme is not supported")
    if parts.password is not None or (protocol in {"https", "http"} and parts.username is not None):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "A repository URL may not carry a user name or password",
            hint="Remove them from the URL and store the credential for this host instead; see docs/credentials.md.",
        )
    if "?" in text or "#" in text:
        raise _invalid("A repository URL may not have a query or fragment")
    if protocol == "file":
        if parts.netloc not in {"", "localhost"} or not parts.path:
            raise _invalid("A file:// URL has a path and no host")
        path = unquote(parts.path, errors="surrogateescape")
        _refuse_unprintable(path)
        return _from_path(path, allow_file=allow_file)
    if protocol == "http" and not allow_http:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "Unencrypted http:// remotes are refused",
            hint="Use https://, or set remotes.allow_http = true in the configuration of a trusted network.",
        )
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return _network_remote(protocol, host, parts.port, parts.username, parts.path)


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        if parts.port == 0:  # parsed lazily: raises ValueError on a bad port
            raise ValueError("port 0")
    except ValueError as error:
        raise _invalid("This repository URL cannot be parsed") from error
    return parts


def _network_remote(protocol: str, host: str, port: int | None, user: str | None, path: str) -> Remote:
    hostname = _hostname(host)
    if user is not None and not _USER.match(user):
        raise _invalid("The user name in this repository URL is not usable")
    segments = _segments(path)
    if len(segments) < 2:
        segments = ["", *segments]
    owner, name = "/".join(s for s in segments[:-1] if s), segments[-1]
    if port == _DEFAULT_PORTS[protocol]:
        port = None
    if protocol == "ssh" and user is None:
        user = "git"
    login = f"{user}@" if user else ""
    shown = f"[{hostname}]" if ":" in hostname else hostname
    authority = f"{login}{shown}{f':{port}' if port else ''}"
    path_text = f"{owner}/{name}" if owner else name
    return Remote(
        protocol, hostname, port, user, owner, name, f"{protocol}://{authority}/{path_text}.git", Host.UNKNOWN
    )


def _hostname(host: str) -> str:
    """The one spelling of a host: lower case, IPv6 compressed, international names in their ASCII form (RFC 5891)."""
    bare = host.lower()
    try:
        if bare.startswith("[") and bare.endswith("]") and "%" not in bare:
            return ipaddress.IPv6Address(bare[1:-1]).compressed
        if not bare.isascii():
            bare = idna.encode(bare, uts46=True).decode("ascii")
    except ValueError as error:  # idna's and ipaddress' errors are ValueErrors
        raise _invalid("The host name in this repository URL is not valid") from error
    if _HOSTNAME.match(bare):
        return bare
    raise _invalid("The host name in this repository URL is not valid")


def _segments(path: str) -> list[str]:
    if re.search("%(2[fF]|00)", path):
        raise _invalid("The path in this repository URL may not encode a separator")
    trimmed = unquote(path, errors="surrogateescape").strip("/").removesuffix(".git")
    segments = trimmed.split("/")
    if not all(_SEGMENT.match(s) and s not in {".", ".."} for s in segments) or len(segments) > 20:
        raise _invalid("The path in this repository URL is not OWNER/NAME")
    return segments


def _from_path(text: str, *, allow_file: bool) -> Remote:
    if not allow_file:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "Local paths and file:// URLs are refused here",
            hint="Use a network URL, or set remotes.allow_file = true in the configuration.",
        )
    path = Path(text).expanduser().absolute()
    resolved = Path(*_collapse(path.parts))
    digest = hashlib.sha256(str(resolved).encode()).hexdigest()[:8]
    name = resolved.name.removesuffix(".git") or "root"
    return Remote("file", "local", None, None, digest, name, f"file://{quote(str(resolved))}", Host.UNKNOWN)


def _collapse(parts: tuple[str, ...]) -> list[str]:
    kept: list[str] = []
    for part in parts:
        if part == "..":
            kept = kept[:-1] if len(kept) > 1 else kept
        else:
            kept.append(part)
    return kept


def _slug(text: str) -> str:
    slug = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-.")
    return re.sub(r"\.{2,}", ".", slug)[:200] or "repository"


def _invalid(brief: str) -> SandboxError:
    return SandboxError(ErrorCode.INVALID_INPUT, brief, hint=_HINT)
