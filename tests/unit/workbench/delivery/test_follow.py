"""When `pr status --watch` looks, how often, and when it ends: on a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.http_session import TransientForgeError
from sandbox.models import CiCheck, CiState, CiVerdict, PullRequestStatus, PullState
from sandbox.workbench.delivery import follow as following
from sandbox.workbench.delivery.follow import FollowOptions, poll_until_final

OID = "a" * 40


def status(verdict: CiVerdict, *, current: bool = True, state: PullState = PullState.OPEN) -> PullRequestStatus:
    states = {CiVerdict.NONE: (), CiVerdict.PENDING: (CiState.PENDING,), CiVerdict.PASS: (CiState.PASS,)}
    checks = tuple(CiCheck(name="unit", state=s, url=None) for s in states.get(verdict, (CiState.FAIL,)))
    return PullRequestStatus(
        url="https://github.example/o/n/pull/1", number=1, state=state, draft=True, head_commit=OID, current=current,
        verdict=verdict, checks=checks,
    )  # fmt: skip


PENDING, PASSED, FAILED, NONE = map(status, (CiVerdict.PENDING, CiVerdict.PASS, CiVerdict.FAIL, CiVerdict.NONE))


class Times:
    """A clock that only sleeping moves; `pauses`: how long each sleep was."""

    def __init__(self, looks: Sequence[PullRequestStatus | SandboxError]) -> None:
        self.now, self.pauses, self.heard = 0.0, list[float](), list[PullRequestStatus]()
        self._looks = list(looks)

    def look(self) -> PullRequestStatus:
        found = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if isinstance(found, SandboxError):
            raise found
        return found

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def follow(self, timeout_s: float = 3600.0) -> PullRequestStatus:
        clock: Callable[[], float] = lambda: self.now  # noqa: E731 - shorter than a method for it
        return poll_until_final(self.look, FollowOptions(self.heard.append, timeout_s, self.sleep, clock))


def failure(wait_s: float = 0.0) -> TransientForgeError:
    return TransientForgeError(SandboxError(ErrorCode.FORGE_ERROR, "it failed"), wait_s)


@pytest.mark.parametrize("verdict", [PASSED, FAILED], ids=["passed", "failed"])
def test_a_verdict_ends_it_at_once(verdict: PullRequestStatus) -> None:
    times = Times([verdict])
    assert times.follow() == verdict
    assert times.pauses == []


def test_it_looks_less_often_while_nothing_changes_and_more_often_when_something_did() -> None:
    times = Times([*[PENDING] * 9, status(CiVerdict.PENDING, current=False), PENDING, PASSED])
    assert times.follow() == PASSED
    assert times.pauses[0] == following.FIRST_PAUSE_S
    assert times.pauses[:9] == sorted(times.pauses[:9])
    assert max(times.pauses) == following.LONGEST_PAUSE_S
    assert times.pauses[9] == following.FIRST_PAUSE_S
    assert times.heard == [PENDING, status(CiVerdict.PENDING, current=False), PENDING, PASSED]


def test_a_pass_that_is_new_is_looked_at_once_more() -> None:
    times = Times([NONE, PASSED, PENDING, PASSED])
    assert times.follow() == PASSED
    assert times.heard == [NONE, PASSED, PENDING, PASSED]
    assert len(times.pauses) == 4


@pytest.mark.parametrize("state", [PullState.MERGED, PullState.CLOSED])
def test_its_end_ends_it_whatever_the_checks_say(state: PullState) -> None:
    ended = status(CiVerdict.PENDING, state=state)
    assert Times([ended]).follow() == ended


@pytest.mark.parametrize("unsettled", [NONE, status(CiVerdict.PASS, current=False)], ids=["no checks", "old head"])
def test_it_waits_for_checks_to_appear_and_for_the_head_to_move_but_not_for_ever(
    unsettled: PullRequestStatus,
) -> None:
    assert Times([unsettled, unsettled, PASSED]).follow() == PASSED
    times = Times([unsettled])
    assert times.follow() == unsettled
    assert following.SETTLING_S < times.now < following.SETTLING_S + following.LONGEST_PAUSE_S + 1


def test_it_ends_at_its_deadline_and_names_what_it_waited_for() -> None:
    times = Times([PENDING])
    with pytest.raises(SandboxError) as caught:
        times.follow(timeout_s=100)
    assert caught.value.code is ErrorCode.TIMEOUT
    assert "pending: unit" in caught.value.details
    assert times.now == 100


def test_the_last_look_is_at_the_deadline() -> None:
    times = Times([PENDING, FAILED])
    assert times.follow(timeout_s=3) == FAILED
    assert times.pauses == [3]


def test_the_pause_that_a_forge_asks_for_is_kept() -> None:
    times = Times([failure(wait_s=600), PASSED])
    assert times.follow() == PASSED
    assert times.pauses == [600]


def test_a_pause_longer_than_the_deadline_is_not_slept_and_no_timeout() -> None:
    """No time has passed, and the forge said why it is not asked again."""
    limited = failure(wait_s=600)
    times = Times([limited, PASSED])
    with pytest.raises(SandboxError) as caught:
        times.follow(timeout_s=100)
    assert caught.value is limited
    assert times.pauses == []


def test_failures_in_a_row_are_told_and_single_ones_are_not() -> None:
    few: list[PullRequestStatus | SandboxError] = [failure()] * (following.MOST_FAILURES - 1)
    assert Times([*few, PENDING, *few, PASSED]).follow() == PASSED
    with pytest.raises(TransientForgeError):
        Times([failure()]).follow()


def test_what_will_not_pass_is_told_at_once() -> None:
    times = Times([PENDING, SandboxError(ErrorCode.AUTH_FAILED, "no")])
    with pytest.raises(SandboxError) as caught:
        times.follow()
    assert caught.value.code is ErrorCode.AUTH_FAILED
    assert len(times.pauses) == 1
