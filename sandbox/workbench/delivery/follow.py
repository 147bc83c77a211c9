"""Follow a pull request until its checks have a verdict, and poll the forge at a moderate rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.models import CiState, CiVerdict, PullRequestStatus, PullState
from sandbox.store.records import find_repository, find_task
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery import pull_requests
from sandbox.workbench.delivery.forge import connect_forge, find_project, require_forge

if TYPE_CHECKING:
    from sandbox.forges import http_session
else:
    http_session = LazyModule("sandbox.forges.http_session")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0
"""Pause between two polls: it grows by half while the status is unchanged, and is reset by a change."""

LONGEST_S = 30 * 86_400.0
"""Longest timeout that is accepted."""

SETTLING_S = 90.0
"""How long a forge may need, without any other change, to notice a new head and to start its checks."""

MOST_FAILURES = 5
"""Number of polls that may fail in a row before the error is raised."""


def ignore_status(_status: PullRequestStatus) -> None:
    """Do not report statuses."""


@dataclass(frozen=True)
class FollowOptions:
    """`announce`: called with each status that differs from the previous one. `timeout_s`: when reached: `timeout`.

    `sleep`, `clock`: for tests.
    """

    announce: Callable[[PullRequestStatus], None] = ignore_status
    timeout_s: float = 3600.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


def follow(services: Services, task_id: str, options: FollowOptions) -> PullRequestStatus:
    """The status once it has a verdict: passed, failed, merged, closed, or no check at all after `SETTLING_S`.

    Raises: `invalid_input` for a timeout out of range; `timeout`; as `pull_requests.status`.
    """
    _require_timeout(options)
    task = find_task(services.home, task_id, allow_closed=True)
    remote = services.remotes.parse(find_repository(services.home, task.repo_id).remote_url)
    require_forge(remote, task.branch, task.base_branch)
    with connect_forge(remote, find_project(services.remotes, remote)) as forge:

        def look() -> PullRequestStatus:  # reads the task again: a repair may have pushed another commit
            return pull_requests.poll_status(services, forge, find_task(services.home, task_id, allow_closed=True))

        return poll_until_final(look, options)


def poll_until_final(poll: Callable[[], PullRequestStatus], options: FollowOptions) -> PullRequestStatus:
    """Poll until the status is final. Raises: `timeout`; `invalid_input` for a timeout out of range; the error of the
    last of `MOST_FAILURES` failed polls, or of one after which the forge requests a pause beyond the timeout.
    """
    _require_timeout(options)
    return _Polling(poll, options).run()


def transient_error(error: SandboxError) -> SandboxError:
    """The failure of a poll, after which the next one is waited for."""
    return http_session.TransientForgeError(error)


def _require_timeout(options: FollowOptions) -> None:
    if not 0 < options.timeout_s <= LONGEST_S:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"The timeout must be above 0 and at most {LONGEST_S:.0f} s")


@dataclass
class _Polling:
    """`failure`: of the last poll, if that failed, with the pause that the forge requested."""

    poll: Callable[[], PullRequestStatus]
    options: FollowOptions
    last_status: PullRequestStatus | None = None
    pause_s: float = FIRST_PAUSE_S
    failures: int = 0
    failure: http_session.TransientForgeError | None = None
    began: float = 0.0
    changed: float = 0.0

    def run(self) -> PullRequestStatus:
        self.began = self.changed = self.options.clock()
        while True:
            wait_s = self._poll_once()
            if self.last_status is not None and wait_s == 0.0:
                return self.last_status
            left_s = self.began + self.options.timeout_s - self.options.clock()
            if left_s <= 0.0:
                raise self._timeout_error()
            if self.failure is not None and self.failure.wait_s > left_s:
                raise self.failure  # it says which limit was reached, and until when
            self.options.sleep(min(wait_s, left_s))  # the last poll is at the deadline

    def _poll_once(self) -> float:
        """Poll once; return the seconds until the next poll, 0 when the status is final."""
        try:
            found = self.poll()
        except http_session.TransientForgeError as failure:
            self.failures += 1
            if self.failures >= MOST_FAILURES:
                raise
            self.failure = failure
            return max(self._next_pause_s(), failure.wait_s)
        self.failures, self.failure = 0, None
        if found == self.last_status:
            return 0.0 if self._is_final(found) else self._next_pause_s()
        fresh = self.last_status is not None
        self.options.announce(found)
        self.last_status, self.pause_s, self.changed = found, FIRST_PAUSE_S, self.options.clock()
        # Quick checks may have passed before the forge lists the slow ones: a new pass must be seen twice.
        passed_just_now = fresh and found.state is PullState.OPEN and found.verdict is CiVerdict.PASS
        return 0.0 if self._is_final(found) and not passed_just_now else self.pause_s

    def _next_pause_s(self) -> float:
        self.pause_s = min(LONGEST_PAUSE_S, self.pause_s * 1.5)
        return self.pause_s

    def _is_final(self, found: PullRequestStatus) -> bool:
        if found.state is not PullState.OPEN:
            return True
        settled = self.options.clock() - self.changed > SETTLING_S
        if not found.current or found.verdict is CiVerdict.NONE:
            return settled
        return found.verdict is not CiVerdict.PENDING

    def _timeout_error(self) -> SandboxError:
        last = self.last_status
        waiting = [check.name for check in last.checks if check.state is CiState.PENDING] if last else []
        return SandboxError(
            ErrorCode.TIMEOUT,
            f"The pull request has no verdict after {self.options.timeout_s:.0f} s",
            details="\n".join([last.url, *(f"pending: {name}" for name in waiting[:20])] if last else []),
            hint="Its checks continue upstream: watch again, or use a longer --timeout.",
        )
