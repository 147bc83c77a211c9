"""The table of forges: one row per kind of host, with its adapter and its addresses. Pure; adapters load at first use.

docs/architecture.md lists the places of a new forge; tests/unit/forges/test_table.py names the missing ones. A kind
without a row is not supported.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import quote, urlsplit

from sandbox.forges.forge import Forge, Project
from sandbox.models import Host
from sandbox.remotes import Remote


@dataclass(frozen=True)
class ForgeRow:
    """One kind of forge. `adapter`: `module:class`, a string so that only the adapter in use is imported.

    `api_path`: the path of the API on a server; `api_urls`: API URLs of hosts that have it elsewhere.
    `below_path`: a server may be below a path, which is then part of its https URLs but not of its ssh URLs.
    """

    adapter: str
    api_path: str
    api_urls: Mapping[str, str] = field(default_factory=dict)
    below_path: bool = False

    def connect(self, project: Project) -> Forge:
        """The adapter for a project."""
        adapter = cast("Callable[[Project], Forge]", pkgutil.resolve_name(self.adapter))
        return adapter(project)

    def api_url(self, hostname: str, web_url: str) -> str:
        """The URL of the API if none is configured."""
        return self.api_urls.get(hostname, f"{web_url}{self.api_path}")

    def project_path(self, remote: Remote, api_url: str) -> str:
        """The path of the project as the forge's API names it."""
        path = f"{remote.owner}/{remote.name}"
        below = urlsplit(api_url).path.removesuffix(self.api_path).strip("/")
        if self.below_path and remote.protocol != "ssh" and below:
            return path.removeprefix(f"{below.lower()}/")
        return path


FORGE_ROWS: Mapping[Host, ForgeRow] = {
    Host.GITHUB: ForgeRow(
        adapter="sandbox.forges.github:GitHub",
        api_path="/api/v3",
        api_urls={"github.com": "https://api.github.com"},
    ),
    Host.GITLAB: ForgeRow(adapter="sandbox.forges.gitlab:GitLab", api_path="/api/v4", below_path=True),
}

_COMPARE_PAGES = {
    "bitbucket.org": "https://{host}/{path}/pull-requests/new?source={head}&dest={base}",
    "codeberg.org": "https://{host}/{path}/compare/{base}...{head}",
    "gitea.com": "https://{host}/{path}/compare/{base}...{head}",
}
"""Hosts without an adapter that have a page for a new pull request. One row each."""


def compare_url(remote: Remote, head: str, base: str) -> str | None:
    """The page for a new pull request on a host without an adapter; None if it is not known."""
    page = _COMPARE_PAGES.get(remote.hostname)
    path = f"{remote.owner}/{remote.name}"
    names = {"head": quote(head, safe=""), "base": quote(base, safe="")}
    return page.format(host=remote.hostname, path=quote(path), **names) if page else None
