"""Parse remote URLs: one identity for all spellings of a remote, and a URL that reaches it.

Theory. For https, and for hosts known as forges, one canonical URL serves all spellings. A plain ssh server is a file
system: `host:p.git` is below the user's home and `ssh://host/p.git` is below the root, `p` and `p.git` may both exist,
and not every server supports `/~/`. So git gets an ssh path of an unknown host as it was written, and only the identity
is canonical: `alice@host:p`, `ssh://alice@host/~/p` and `host:~alice/p.git` are all `~alice/p`. The user `git` serves
repositories on forges that we do not know; for this user a path below the home and below the root are the same.

This module does not use the network or the disk. Grammar: URL forms of git-clone(1), "GIT URLS"; only https, http,
ssh, git+ssh, scp-like and local paths are supported.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, unquote, urlsplit

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.models import Host

if TYPE_CHECKING:
    import idna
else:  # only names that are not ASCII need its tables (docs/adr/0080)
    idna = LazyModule("idna")

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOSTNAME = re.compile(rf"^(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*\Z")
_SEGMENT = re.compile(r"^[A-Za-z0-9_.~+][A-Za-z0-9_.~+-]{0,127}\Z")
_USER = re.compile(r"^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}\Z")
_SCP = re.compile(r"^(?:(?P<user>[^@/:]+)@)?(?P<host>\[[^\]]+\]|[^@/:\[\]]+):(?P<path>(?!//).+)\Z")
_DEFAULT_PORTS = {"https": 443, "http": 80, "ssh": 22}
_SCHEMES = {"https": "https", "http": "http", "ssh": "ssh", "git+ssh": "ssh", "ssh+git": "ssh", "file": "file"}
_REQUESTS = r"(?:pull|merge_requests)(?=/(?P<number>[0-9]{1,10})(?:/|\Z))"
_GITLAB_PAGE = re.compile(rf"(?:/[^/]+){{2,20}}?(?P<page>/-/(?:{_REQUESTS}|[a-z_]{{1,40}}))")
_PAGES_OF_COMMITS = ("tree", "blob", "blame", "raw", "commit", "commits")
_GITHUB_PAGES = "|".join(
    (
        "pulls?",
        "issues",
        "actions",
        "releases",
        "tags",
        "branches",
        "compare",
        "discussions",
        "wiki",
        *_PAGES_OF_COMMITS,
    )
)
_GITHUB_PAGE = re.compile(rf"(?:/+[^/]+){{2}}(?P<page>/(?:{_REQUESTS}|(?:{_GITHUB_PAGES})(?=/|\Z)))")
_HINT = "Use https://HOST/OWNER/NAME, ssh://[USER@]HOST/OWNER/NAME or USER@HOST:OWNER/NAME."


@dataclass(frozen=True)
class ForgeHosts:
    """The hosts of one kind of forge.

    `setting`: the key below `remotes` that names self-hosted servers; `server`: what such a server is called.
    `lfs`: further hosts that objects of Git LFS of `defaults` come from.
    """

    defaults: tuple[str, ...]
    setting: str
    server: str
    lfs: tuple[str, ...] = ()


FORGE_HOSTS: Mapping[Host, ForgeHosts] = {
    Host.GITHUB: ForgeHosts(
        defaults=("github.com",),
        setting="github_hosts",
        server="GitHub Enterprise",
        lfs=("github-cloud.githubusercontent.com", "github-cloud.s3.amazonaws.com"),
    ),
    Host.GITLAB: ForgeHosts(defaults=("gitlab.com",), setting="gitlab_hosts", server="GitLab"),
}
"""The pure half of the table of forges; the other half is `sandbox.forges.table`."""


def explain_unknown_host() -> str:
    """What to do about a host that is not known as a forge."""
    servers = " or ".join(hosts.server for hosts in FORGE_HOSTS.values())
    settings = " or ".join(f"remotes.{hosts.setting}" for hosts in FORGE_HOSTS.values())
    return f"If it is a {servers} server, add it to {settings} (docs/pull-requests.md)."


def map_hosts(configured: Mapping[str, Iterable[str]]) -> dict[str, Host]:
    """The kind of forge by host name. `configured`: self-hosted servers by their setting; they win over defaults."""
    kinds = {hostname: kind for kind, hosts in FORGE_HOSTS.items() for hostname in hosts.defaults}
    for kind, hosts in FORGE_HOSTS.items():
        kinds |= {hostname.lower(): kind for hostname in configured.get(hosts.setting, ())}
    return kinds


FORGES: Mapping[str, Host] = map_hosts({})


@dataclass(frozen=True)
class Remote:
    """A parsed remote. `url` is passed to git; `id` names it on disk and in commands. `owner`: path without name."""

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
        """`<host>-<owner>-<name>`, lower case, `[a-z0-9._-]` only; never a valid task id."""
        port = f"-{self.port}" if self.port else ""
        slug = _slug(f"{self.hostname}{port}-{self.owner}-{self.name}")
        return f"host-{slug}" if slug.startswith("task-") else slug


def parse_remote(
    text: str, *, allow_file: bool = False, allow_http: bool = False, forges: Mapping[str, Host] = FORGES
) -> Remote:
    """Parse any supported spelling of a remote. `forges`: hosts that are GitHub or GitLab, including self-hosted ones.

    Raises: `invalid_input` for a text that is not an allowed remote; a text that may hold a secret is not repeated.
    """
    _require_printable(text)
    if "://" in text:
        return _parse_url(text, allow_file=allow_file, allow_http=allow_http, forges=forges)
    if _looks_like_path(text):
        return _parse_path(text, allow_file=allow_file)
    match = _SCP.match(text)
    if match:
        return _build_network_remote(
            _WrittenRemote("ssh", match["host"], None, match["user"], match["path"], scp=True), forges
        )
    local = " A local path begins with /, ./, ../ or ~/." if allow_file else ""
    raise SandboxError(ErrorCode.INVALID_INPUT, "This is not the URL of a git repository", hint=f"{_HINT}{local}")


@dataclass(frozen=True)
class _WrittenRemote:
    """A network remote as it was written. `scp`: the path is below the user's home unless it starts with a slash."""

    protocol: str
    host: str
    port: int | None
    user: str | None
    path: str
    scp: bool = False


def _require_printable(text: str) -> None:
    if not text or text.startswith("-"):
        raise _invalid_url("A repository URL must not be empty or start with '-'")
    if len(text) > 2048:
        raise _invalid_url("This repository URL is longer than 2048 characters")
    plain = text.replace(" ", "_") if _looks_like_path(text) else text  # people's folders have spaces
    if any(ord(c) < 0x21 or ord(c) == 0x7F or 0xD800 <= ord(c) <= 0xDFFF for c in plain):
        raise _invalid_url("A repository URL must not contain spaces, control characters or bytes that are not text")


def _looks_like_path(text: str) -> bool:
    return text.startswith(("/", "./", "../", "~/")) or text in {".", ".."}


def _parse_url(text: str, *, allow_file: bool, allow_http: bool, forges: Mapping[str, Host]) -> Remote:
    parts = _split_url(text)
    protocol = _SCHEMES.get(parts.scheme.lower())
    if protocol is None:
        raise _scheme_error(parts.scheme.lower())
    if parts.password is not None or (protocol in {"https", "http"} and parts.username is not None):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "A repository URL must not contain a user name or password",
            hint="Remove them from the URL and store the credential for this host instead; see docs/credentials.md.",
        )
    if protocol in {"https", "http"}:
        _refuse_page(parts, forges)
    if "?" in text or "#" in text:
        advice = "Leave out what follows the `?` or `#`."
        raise _invalid_url("A repository URL must not have a query or fragment", advice)
    if protocol == "file":
        if parts.netloc not in {"", "localhost"} or not parts.path:
            raise _invalid_url("A file:// URL must have a path and no host")
        path = unquote(parts.path, errors="surrogateescape")
        _require_printable(path)
        return _parse_path(path, allow_file=allow_file)
    if protocol == "http" and not allow_http:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "Unencrypted http:// remotes are refused",
            hint="Use https://, or set remotes.allow_http = true in the configuration if you trust the network.",
        )
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    return _build_network_remote(_WrittenRemote(protocol, host, parts.port, parts.username, parts.path), forges)


def _refuse_page(parts: SplitResult, forges: Mapping[str, Host]) -> None:
    """Refuse the address of a page about a repository, which a browser shows, before a server is asked for it.

    GitLab's pages have `/-/` in their path, which no repository has. On other hosts than GitHub's a repository may be
    named as its pages are. Of what was given only the page's kind and a number are repeated.
    """
    on_github = forges.get((parts.hostname or "").lower()) is Host.GITHUB
    match = _GITLAB_PAGE.match(parts.path) or (_GITHUB_PAGE.match(parts.path) if on_github else None)
    if match is None:
        return
    page, number = match["page"], match["number"]
    advice = f"Leave out `{page}` and what follows it"
    if number:
        advice = f"Leave out `{page}/{number}` and what follows it, and add `--ref pr/{number}`"
    elif page.rpartition("/")[2] in _PAGES_OF_COMMITS:
        advice = f"{advice}; `--ref` takes a branch, tag or commit"
    raise _invalid_url("This is the address of a page about a repository, not of the repository", f"{advice}.")


def _split_url(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        if parts.port == 0:  # parsed lazily: raises ValueError on a bad port
            raise ValueError("port 0")
    except ValueError as error:
        raise _invalid_url("This repository URL cannot be parsed") from error
    return parts


def _build_network_remote(written: _WrittenRemote, forges: Mapping[str, Host]) -> Remote:
    hostname = _canonical_hostname(written.host)
    if written.user is not None and not _USER.match(written.user):
        raise _invalid_url("The user name in this repository URL is not valid")
    user = "git" if written.protocol == "ssh" and written.user is None else written.user
    port = None if written.port == _DEFAULT_PORTS[written.protocol] else written.port
    segments = _parse_segments(written)
    kind = forges.get(hostname, Host.UNKNOWN)
    if kind is not Host.UNKNOWN:  # forges fold case
        segments = [s.lower() for s in segments]
    path, suffix = "/".join(segments), ".git"
    if written.protocol == "ssh" and kind is Host.UNKNOWN:
        suffix = ".git" if written.path.rstrip("/").endswith(".git") else ""
        segments = _identity_segments(user or "", segments, below_home=_is_below_home(written))
    shown = (f"{user}@" if user else "") + (f"[{hostname}]" if ":" in hostname else hostname)
    url = f"{written.protocol}://{shown}{f':{port}' if port else ''}/{path}{suffix}"
    if kind is Host.UNKNOWN and _is_below_home(written):
        url = f"{shown}:{path}{suffix}"
    return Remote(written.protocol, hostname, port, user, "/".join(segments[:-1]), segments[-1], url, kind)


def _is_below_home(written: _WrittenRemote) -> bool:
    return written.scp and not written.path.startswith("/")


def _identity_segments(user: str, segments: list[str], *, below_home: bool) -> list[str]:
    """The path segments that identify a remote on a plain ssh server; see the theory of the module."""
    if segments[0] in {"~", f"~{user}"}:
        segments, below_home = segments[1:], True
    if not segments:
        raise _invalid_url("The path in this repository URL is not OWNER/NAME")
    return [f"~{user}", *segments] if below_home and user != "git" else segments


def _canonical_hostname(host: str) -> str:
    """The canonical spelling of a host: lower case, IPv6 compressed, international names as ASCII (RFC 5891)."""
    bare = host.lower()
    try:
        if bare.startswith("[") and bare.endswith("]") and "%" not in bare:
            return ipaddress.IPv6Address(bare[1:-1]).compressed
        if not bare.isascii():
            bare = idna.encode(bare, uts46=True).decode("ascii")
    except ValueError as error:  # idna's and ipaddress' errors are ValueErrors
        raise _invalid_url("The host name in this repository URL is not valid") from error
    if _HOSTNAME.match(bare):
        return bare
    raise _invalid_url("The host name in this repository URL is not valid")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parse_segments(written: _WrittenRemote) -> list[str]:
    path = written.path
    if not written.scp:  # git decodes URLs only
        if re.search("%(2[fF]|00)", path):
            raise _invalid_url("The path in this repository URL must not encode a separator")
        path = unquote(path, errors="surrogateescape")
    segments = path.strip("/").removesuffix(".git").split("/")
    if not all(_SEGMENT.match(s) and s not in {".", ".."} for s in segments) or len(segments) > 20:
        raise _invalid_url("The path in this repository URL is not OWNER/NAME")
    return segments


def _parse_path(text: str, *, allow_file: bool) -> Remote:
    if not allow_file:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "Local paths and file:// URLs are refused here",
            hint="Use a network URL, or set remotes.allow_file = true in the configuration: a running server reads "
            "it when it is started again.",
        )
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError as error:  # no HOME, and no such user
        raise _invalid_url("`~` cannot be resolved: give the absolute path") from error
    resolved = Path(*_resolve_dots(path.parts))
    digest = hashlib.sha256(str(resolved).encode()).hexdigest()[:8]
    name = resolved.name.removesuffix(".git") or "root"
    return Remote("file", "local", None, None, digest, name, f"file://{quote(str(resolved))}", Host.UNKNOWN)


def swap_protocol(remote: Remote) -> Remote | None:
    """The same repository over ssh instead of https, or the reverse; None unless a forge serves both. Pure."""
    if remote.host is Host.UNKNOWN or remote.port is not None or remote.user not in {None, "git"}:
        return None
    path = f"{remote.owner}/{remote.name}.git"
    if remote.protocol == "https":
        return replace(remote, protocol="ssh", user="git", url=f"ssh://git@{remote.hostname}/{path}")
    if remote.protocol == "ssh":
        return replace(remote, protocol="https", user=None, url=f"https://{remote.hostname}/{path}")
    return None


def lfs_endpoint(remote: Remote) -> str:
    """Where the server of a remote speaks the batch API of Git LFS: beside the repository, whatever the repository
    says. `remote`: over https or http. Pure. Source: git-lfs, docs/api/server-discovery.md.
    """
    return f"{remote.url.removesuffix('.git')}.git/info/lfs"


def lfs_hosts(remote: Remote) -> tuple[str, ...]:
    """The hosts that objects of Git LFS of a public forge come from, besides the remote's own. Pure."""
    kinds = (hosts for hosts in FORGE_HOSTS.values() if remote.hostname in hosts.defaults)
    return next((hosts.lfs for hosts in kinds), ())


def resolve_relative_url(parent: Remote, text: str) -> str:
    """The URL of a submodule: one that begins with `./` or `../` is relative to its parent's (gitsubmodules(7)). Pure.

    Raises: `invalid_input` for one that leaves the parent's host.
    """
    if not text.startswith(("./", "../")):
        return text
    match = re.match(r"[a-z]+://[^/]*/|[^/:]+:/?", parent.url)
    start = match[0] if match else ""
    path = parent.url[len(start) :].strip("/")
    segments = (path.removesuffix(".git") if parent.protocol.startswith("http") else path).split("/")  # `.git` is ours
    for step in text.split("/"):
        if step == ".." and not segments:
            raise _invalid_url("This relative repository URL leaves the host of its parent")
        if step == "..":
            segments.pop()
        elif step not in {"", "."}:
            segments.append(step)
    return start + "/".join(segments)


def _resolve_dots(parts: tuple[str, ...]) -> list[str]:
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


def _scheme_error(scheme: str) -> SandboxError:
    if scheme == "git":
        return SandboxError(
            ErrorCode.INVALID_INPUT,
            "git:// remotes are refused: the protocol is not encrypted and does not support pushes",
            hint="Most servers offer the same repository over https://; use that URL.",
        )
    return _invalid_url("This URL's scheme is not supported")


def _invalid_url(brief: str, advice: str = "") -> SandboxError:
    return SandboxError(ErrorCode.INVALID_INPUT, brief, hint=advice or _HINT)
