"""Pull requests, on GitLab merge requests, as their forge has them."""

from __future__ import annotations

from enum import StrEnum

from sandbox.models.ids import ObjectId
from sandbox.models.model import Model


class PullState(StrEnum):
    """Where a pull request stands upstream."""

    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"


class PullRequest(Model):
    """A pull request. `head`, `base`: branches. `head_commit`: where its head is, as far as the forge knows by now.

    `created`: this call opened it; false: it was there already and is kept.
    """

    url: str
    number: int
    state: PullState
    draft: bool
    head: str
    base: str
    head_commit: ObjectId
    created: bool = False


class CiState(StrEnum):
    """How far a check of the forge is. What was skipped or neutral passes; what nobody knows is pending."""

    PASS = "pass"  # noqa: S105 - a state of a check
    FAIL = "fail"
    PENDING = "pending"


class CiCheck(Model):
    """One check run, commit status or job upstream. `said`: the forge's own word for its state.

    `excerpt`: the end of its log, for what failed, where the forge offers it. Foreign text: shown, never interpreted.
    """

    name: str
    state: CiState
    url: str | None
    said: str = ""
    excerpt: str = ""


class CiVerdict(StrEnum):
    """All checks in one word. `none`: there are none."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    PENDING = "pending"
    NONE = "none"


class PullRequestStatus(Model):
    """A pull request and its checks. `head_commit`: the commit that the checks are of.

    `current`: that is the task's last commit; else the verdict says nothing about what the task has now. `unseen`: what
    the verdict leaves out because our token may not see it, in words; empty: nothing.
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
