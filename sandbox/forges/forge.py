"""The protocol of a forge: the operations that the workbench needs from GitHub, GitLab and similar hosts.

An instance serves one project with one credential, from one thread. It caches answers to send conditional requests.
All text in an answer is untrusted. Every method raises `SandboxError`: `auth_failed`, `not_found`, `network_error`,
`timeout`, `forge_error`. Methods that only read are retried a few times when the forge or the network fails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import AfterValidator, Field, StringConstraints

from sandbox.credentials import Credential
from sandbox.models import CiCheck, PullRequest
from sandbox.models.ids import MAX_BRANCH_CHARS

CALL_TIMEOUT_S = 60.0
"""Limit for one whole request. Reached: `timeout`."""

READS_TIMEOUT_S = 120.0
"""Limit for all requests of one call that only read, such as the pages of a list. Reached: `timeout`."""

CONNECT_TIMEOUT_S = 10.0
"""Limit for connecting, TLS included. Reached: `timeout`."""

MAX_ANSWER_BYTES = 32 * 1024**2
MAX_READ_BYTES = 64 * 1024**2
"""Of all answers to one call that only reads."""

PAGE_ITEMS = 100
MAX_PAGES = 20
"""Pages have `PAGE_ITEMS` items. A longer list is refused (`forge_error`), never cut."""

EXCERPT_BYTES = 4096
MAX_EXCERPTS = 5

_URL = r"^https?://[!-~]{1,2000}$"
WebUrl = Annotated[str, StringConstraints(pattern=_URL)]
"""An address to show: printable ASCII only, so no terminal sequences."""


# git-check-ref-format(1); a name that begins with a dash is a valid one of a ref.
_NO_BRANCH = re.compile(r"[\x00- \x7f~^:?*\[\\]|\.\.|@\{|//|/\.|^[./]|^@$|[./]$|\.lock(?:/|$)")


def _require_branch(name: str) -> str:
    if _NO_BRANCH.search(name):
        raise ValueError("not the name of a branch")
    return name


BranchName = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_BRANCH_CHARS), AfterValidator(_require_branch)
]
"""A branch that a forge names: its records are kept and shown."""

ForgeId = Annotated[int, Field(ge=0, lt=2**63)]
"""A number or id that a forge gives: one that a data base can have."""


def web_url(text: str | None) -> str | None:
    """The text if it is a web address, else None."""
    return text if text and re.fullmatch(_URL, text) else None


@dataclass(frozen=True)
class Project:
    """A repository on a forge. `path`: `owner/name`, with all groups; `api_url`: without a slash at the end. `proxy`:
    see `build_session`.
    """

    hostname: str
    path: str
    api_url: str
    web_url: str
    credential: Credential
    proxy: str | None = None


@dataclass(frozen=True)
class Proposal:
    """A pull request to be opened. `head` and `base` are branches of the same project."""

    head: str
    base: str
    title: str
    body: str
    draft: bool


@dataclass(frozen=True)
class PullWithText:
    """A pull request with its title and body, which users may have edited."""

    pull: PullRequest
    title: str
    body: str


class Forge(Protocol):
    """One project on a forge."""

    def find(self, head: str) -> PullWithText | None:
        """Find the pull request for a branch of this project: the open one, else the newest. Forks are excluded."""

    def list_open(self, head: str) -> Sequence[PullRequest]:
        """All open pull requests for a branch of this project: into several branches, drafts or not. Forks are
        excluded.
        """

    def open(self, proposal: Proposal) -> PullWithText:
        """Open a pull request. Call `find` first; if one was opened meanwhile, that one is returned, not `created`: it
        may have another base or text.

        Never retried. Raises: `conflict` when the branches do not differ, `not_found` for an unknown branch.
        """

    def replace_body(self, number: int, body: str) -> None:
        """Replace the body."""

    def make_ready(self, number: int) -> None:
        """Mark a draft as ready for review. Does not change a pull request that is ready."""

    def checks(self, commit: str, number: int) -> Sequence[CiCheck]:
        """All CI checks of a commit, or of the pull request at it: the latest of each name, sorted by name."""

    @property
    def unseen(self) -> str:
        """What the last call of `checks` could not see, in words for users. Empty: it saw everything."""

    def add_excerpts(self, checks: Sequence[CiCheck]) -> Sequence[CiCheck]:
        """The same checks; the first `MAX_EXCERPTS` failed ones get the end of their log if the forge offers it."""

    def close(self) -> None:
        """Close the connections."""
