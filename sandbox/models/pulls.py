"""Pull requests (on GitLab merge requests) as the forge reports them."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from sandbox.models.ids import ObjectId
from sandbox.models.model import Model


class PullState(StrEnum):
    """State of a pull request at the forge."""

    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"


class PullRequest(Model):
    """A pull request. `head`, `base`: branches. `head_commit`: its head, as far as the forge knows at the moment.

    `created`: this call opened it; false: it existed already. `note`: that the same call was carried out before.
    """

    url: str
    number: int
    state: PullState
    draft: bool
    head: str
    base: str
    head_commit: ObjectId
    created: bool = False
    note: str = Field(default="", exclude_if=lambda value: not value)


class CiState(StrEnum):
    """State of a check at the forge. Skipped and neutral checks pass; an unknown state is pending."""

    PASS = "pass"  # noqa: S105 - a state of a check
    FAIL = "fail"
    PENDING = "pending"


class CiCheck(Model):
    """One check run, commit status or job at the forge. `said`: the forge's own word for its state.

    `excerpt`: the end of the log of a failed check, if the forge offers it. Foreign text: shown, never interpreted.
    """

    name: str
    state: CiState
    url: str | None
    said: str = ""
    excerpt: str = ""


class CiVerdict(StrEnum):
    """Verdict of all checks together. `none`: there are no checks."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    PENDING = "pending"
    NONE = "none"


class PullRequestStatus(Model):
    """A pull request and its checks. `head_commit`: the commit that was checked.

    `current`: it is the task's last commit; if not, the verdict is not about the task's current state. `unseen`: says
    what the verdict does not cover because our token may not read it; empty: it covers everything.
    """

    url: str
    number: int
    state: PullState
    draft: bool
    head_commit: ObjectId
    current: bool
    verdict: CiVerdict
    checks: tuple[CiCheck, ...]
    unseen: str = ""
