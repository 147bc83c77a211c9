"""Which forge a repository is on, how to connect to it, and the web page for a person if we cannot."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import Forge, Project
from sandbox.models import Host
from sandbox.remotes import Remote
from sandbox.workbench.controller.lazy import Lazy
from sandbox.workbench.controller.services import Parts

if TYPE_CHECKING:
    from sandbox.forges import github, gitlab
else:  # each client takes 0.1 s to import
    github = Lazy("sandbox.forges.github")
    gitlab = Lazy("sandbox.forges.gitlab")

_COMPARE = {
    "bitbucket.org": "https://{host}/{path}/pull-requests/new?source={head}&dest={base}",
    "codeberg.org": "https://{host}/{path}/compare/{base}...{head}",
    "gitea.com": "https://{host}/{path}/compare/{base}...{head}",
}
"""Hosts without forge support here that have a web page for a new pull request. One row each."""


_NAME_IT = (
    "If it is a GitHub Enterprise or GitLab server, add it to remotes.github_hosts or remotes.gitlab_hosts "
    "(docs/pull-requests.md)."
)


@contextmanager
def forge_of(remote: Remote, project: Project) -> Iterator[Forge]:
    """Connect to the forge of a remote's project; the connection is closed at the end."""
    forge: Forge = github.GitHub(project) if remote.host is Host.GITHUB else gitlab.GitLab(project)
    try:
        yield forge
    finally:
        forge.close()


def require_forge(remote: Remote, head: str, base: str) -> None:
    """Raises: `forge_unsupported`, see `unsupported_forge`."""
    if remote.host is Host.UNKNOWN:
        raise no_forge(remote, head, base)


def no_forge(remote: Remote, head: str, base: str, page: str | None = None) -> SandboxError:
    """The error, with the page where a person can open the pull request if known. `page`: as named by the server."""
    page = page or compare_url(remote, head, base)
    return SandboxError(
        ErrorCode.FORGE_UNSUPPORTED,
        f"{_told(remote)} is not a supported forge, so no pull request can be opened",
        details=f"branch {head}, into {base}",
        hint=f"Open it in a browser: {page}" if page else _NAME_IT,
    )


def _told(remote: Remote) -> str:
    return remote.hostname if remote.protocol != "file" else "A local path"


def compare_url(remote: Remote, head: str, base: str) -> str | None:
    """The page for a new pull request on a host without forge support here; None if unknown."""
    page = _COMPARE.get(remote.hostname)
    path = f"{remote.owner}/{remote.name}"
    names = {"head": quote(head, safe=""), "base": quote(base, safe="")}
    return page.format(host=remote.hostname, path=quote(path), **names) if page else None


def project_of(parts: Parts, remote: Remote) -> Project:
    """The project of a remote on its forge, with its credential.

    Raises: `auth_failed` without a token; `invalid_input` for an unusable `remotes.api_urls`.
    """
    credential = parts.token(remote)
    if credential is None:
        raise SandboxError(
            ErrorCode.AUTH_FAILED,
            f"There is no token for {remote.hostname}",
            hint=f"Store one: sandbox credentials set {remote.hostname} (required scopes: docs/pull-requests.md).",
        )
    web = f"https://{_authority(remote)}"
    api_url = _api_url(parts, remote, web)
    return Project(
        hostname=remote.hostname,
        path=project_path(remote, api_url),
        api_url=api_url,
        web_url=web,
        credential=credential,
    )


def project_path(remote: Remote, api_url: str) -> str:
    """The project path on its forge. A GitLab below a URL path has this path in its https URLs, not in its ssh URLs."""
    path = f"{remote.owner}/{remote.name}"
    below = urlsplit(api_url).path.removesuffix("/api/v4").strip("/")
    if remote.host is Host.GITLAB and remote.protocol != "ssh" and below:
        return path.removeprefix(f"{below.lower()}/")
    return path


def _authority(remote: Remote) -> str:
    """Host, and the port of an https URL. The port of an ssh URL belongs to another service."""
    host = f"[{remote.hostname}]" if ":" in remote.hostname else remote.hostname
    return f"{host}:{remote.port}" if remote.port and remote.protocol == "https" else host


def _api_url(parts: Parts, remote: Remote, web: str) -> str:
    ours = parts.settings.remotes
    configured = {name.lower(): url for name, url in ours.api_urls.items()}.get(remote.hostname, "").rstrip("/")
    if configured:
        return _checked(configured, allow_http=ours.allow_http)
    if remote.host is Host.GITLAB:
        return f"{web}/api/v4"
    return "https://api.github.com" if remote.hostname == "github.com" else f"{web}/api/v3"


def _checked(url: str, *, allow_http: bool) -> str:
    if not _is_usable(url, allow_http=allow_http):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"remotes.api_urls: {url!r} cannot be used",
            hint="Use https://HOST/PATH, without a user name, query or fragment.",
        )
    return url


def _is_usable(url: str, *, allow_http: bool) -> bool:
    """The token is sent there: http only to this machine, unless the operator allows it."""
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:  # an unclosed bracket, an invalid port
        return False
    safe = parts.scheme == "https" or (parts.scheme == "http" and (allow_http or _is_loopback(parts.hostname or "")))
    return safe and named and not (parts.username or parts.query or parts.fragment)


def _is_loopback(hostname: str) -> bool:
    try:
        return ipaddress.ip_address(hostname).is_loopback
    except ValueError:
        return hostname == "localhost"
