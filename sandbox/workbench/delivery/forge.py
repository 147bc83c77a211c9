"""Which forge a repository lives on, how to talk to it, and where a person goes when nobody can."""

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
else:  # the clients cost a tenth of a second each
    github = Lazy("sandbox.forges.github")
    gitlab = Lazy("sandbox.forges.gitlab")

_COMPARE = {
    "bitbucket.org": "https://{host}/{path}/pull-requests/new?source={head}&dest={base}",
    "codeberg.org": "https://{host}/{path}/compare/{base}...{head}",
    "gitea.com": "https://{host}/{path}/compare/{base}...{head}",
}
"""Hosts that are no forge to us and show a page for a new pull request. One row each."""


_NAME_IT = (
    "A GitHub Enterprise or GitLab server is named in remotes.github_hosts or remotes.gitlab_hosts "
    "(docs/pull-requests.md)."
)


@contextmanager
def forge_of(remote: Remote, project: Project) -> Iterator[Forge]:
    """The way to a remote's project."""
    forge: Forge = github.GitHub(project) if remote.host is Host.GITHUB else gitlab.GitLab(project)
    try:
        yield forge
    finally:
        forge.close()


def require_forge(remote: Remote, head: str, base: str) -> None:
    """Raises: `forge_unsupported`, see `no_forge`."""
    if remote.host is Host.UNKNOWN:
        raise no_forge(remote, head, base)


def no_forge(remote: Remote, head: str, base: str, page: str | None = None) -> SandboxError:
    """With the page where a person opens the pull request, when one is known. `page`: the one that the server named."""
    page = page or compare_url(remote, head, base)
    return SandboxError(
        ErrorCode.FORGE_UNSUPPORTED,
        f"{_told(remote)} is no forge that pull requests can be opened on from here",
        details=f"branch {head}, into {base}",
        hint=f"Open it there: {page}" if page else _NAME_IT,
    )


def _told(remote: Remote) -> str:
    return remote.hostname if remote.protocol != "file" else "A local path"


def compare_url(remote: Remote, head: str, base: str) -> str | None:
    """The page for a new pull request on a host that is no forge to us, where it is known."""
    page = _COMPARE.get(remote.hostname)
    path = f"{remote.owner}/{remote.name}"
    names = {"head": quote(head, safe=""), "base": quote(base, safe="")}
    return page.format(host=remote.hostname, path=quote(path), **names) if page else None


def project_of(parts: Parts, remote: Remote) -> Project:
    """Where a remote's project is on its forge, and what opens it. Raises: `auth_failed` without a token."""
    credential = parts.token(remote)
    if credential is None:
        raise SandboxError(
            ErrorCode.AUTH_FAILED,
            f"There is no token for {remote.hostname}",
            hint=f"sandbox credentials set {remote.hostname} stores one (what it must be for: docs/pull-requests.md).",
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
    """The project as its forge names it: a GitLab below a path has this path in its https URLs, not in those of ssh."""
    path = f"{remote.owner}/{remote.name}"
    below = urlsplit(api_url).path.removesuffix("/api/v4").strip("/")
    if remote.host is Host.GITLAB and remote.protocol != "ssh" and below:
        return path.removeprefix(f"{below.lower()}/")
    return path


def _authority(remote: Remote) -> str:
    """Host, and port where it is one of https: that of ssh leads elsewhere."""
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
            hint="It is https://HOST/PATH, without a user name, query or fragment.",
        )
    return url


def _is_usable(url: str, *, allow_http: bool) -> bool:
    """The token goes there: unencrypted only to this machine, unless the operator allows it."""
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is none
        return False
    safe = parts.scheme == "https" or (parts.scheme == "http" and (allow_http or _is_loopback(parts.hostname or "")))
    return safe and named and not (parts.username or parts.query or parts.fragment)


def _is_loopback(hostname: str) -> bool:
    try:
        return ipaddress.ip_address(hostname).is_loopback
    except ValueError:
        return hostname == "localhost"
