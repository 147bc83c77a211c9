"""The protocol of a forge: what the workbench asks of GitHub, GitLab and their kind.

An instance serves one project with one credential, from one thread, and remembers answers to ask again politely. All
text that comes back is foreign. Every method raises `SandboxError`: `auth_failed`, `not_found`, `network_error`,
`timeout`, `forge_error`; what only reads is repeated a few times while the forge or the network fails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import StringConstraints

from sandbox.credentials import Credential
from sandbox.models import CiCheck, PullRequest

CALL_TIMEOUT_S = 60.0
"""Of one request, all of it. Reached: `timeout`."""

CONNECT_TIMEOUT_S = 10.0
"""Until there is a connection, TLS included. Reached: `timeout`."""

MAX_ANSWER_BYTES = 32 * 1024**2
MOST_PAGES = 20
"""Of 100 items each; what lies beyond is refused (`forge_error`), never left out."""

EXCERPT_BYTES = 4096
MOST_EXCERPTS = 5

_URL = r"^https?://[!-~]{1,2000}$"
WebUrl = Annotated[str, StringConstraints(pattern=_URL)]
"""An address to show: printable ASCII, nothing that a terminal obeys."""


def web_url(text: str | None) -> str | None:
    """The address, or None for what is none."""
    return text if text and re.fullmatch(_URL, text) else None


@dataclass(frozen=True)
class Project:
    """A repository on a forge. `path`: `owner/name`, with all groups; `api_url`: without a slash at the end."""

    hostname: str
    path: str
    api_url: str
    web_url: str
    credential: Credential


@dataclass(frozen=True)
class Proposal:
    """What a pull request is opened with. `head`, `base`: branches of the same project."""

    head: str
    base: str
    title: str
    body: str
    draft: bool


@dataclass(frozen=True)
class Found:
    """A pull request with its texts, which people may have edited."""

    pull: PullRequest
    title: str
    body: str


class Forge(Protocol):
    """One project on a forge."""

    def find(self, head: str) -> Found | None:
        """The pull request from this branch of this very project: the open one or else the newest, never a fork's."""

    def open(self, proposal: Proposal) -> Found:
        """Open one. The caller has asked `find` before; who comes second anyway gets the one that is there.

        Never repeated by itself. Raises: `conflict` when nothing differs between the branches, `not_found` for an
        unknown branch.
        """

    def describe(self, number: int, body: str) -> None:
        """Replace the body."""

    def make_ready(self, number: int) -> None:
        """Make a draft ready for review; nothing happens to one that is."""

    def checks(self, commit: str, number: int) -> Sequence[CiCheck]:
        """Everything that judges a commit, or the pull request at it: the latest of each name, sorted by name."""

    @property
    def unseen(self) -> str:
        """What the last `checks` could not see, in words for a person; empty: it saw everything."""

    def with_excerpts(self, checks: Sequence[CiCheck]) -> Sequence[CiCheck]:
        """The same, the first `MOST_EXCERPTS` failed ones with the end of their logs where the forge gives them."""

    def close(self) -> None:
        """Give back connections."""
