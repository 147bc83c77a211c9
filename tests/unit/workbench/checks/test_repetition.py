"""Rounds of the checks of a task; the clean rooms are left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.cli.verification_view import show_verification
from sandbox.models import CheckRun, Verdict
from sandbox.workbench import VerifyOptions, Watch
from sandbox.workbench.checks import repetition
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk
from tests.unit.receipt_samples import made_run
from tests.unit.workbench.checks.test_verify import PROFILE

TWO = PROFILE + PROFILE[PROFILE.index("[[check]]") :].replace('"test"', '"lint"')


class Rooms:
    """Answers for the clean rooms: `rounds` says which checks of each round run, and how they end."""

    def __init__(self, *rounds: dict[str, Verdict], stop_after: int = 99) -> None:
        self.rounds, self.stop_after, self.ran = rounds, stop_after, 0

    def run(self, *_: object) -> tuple[CheckRun, ...]:
        self.ran += 1
        return tuple(made_run(name, verdict) for name, verdict in self.rounds[self.ran - 1].items())

    def cancelled(self) -> bool:
        return self.ran >= self.stop_after


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "home" / "profiles").mkdir(parents=True)
    (tmp_path / "home" / "profiles" / "own.toml").write_text(TWO)
    found = Desk(upstream, tmp_path / "home")
    yield found
    found.workbench.__exit__(None, None, None)


GOOD = {"test": Verdict.PASSED, "lint": Verdict.PASSED}
HALF = {"test": Verdict.PASSED}
BAD = {"test": Verdict.FAILED}


@pytest.mark.parametrize(
    ("rooms", "verified", "passed"),
    [
        pytest.param(Rooms(GOOD, GOOD, GOOD), True, None, id="all passed"),
        pytest.param(Rooms(GOOD, GOOD, GOOD, stop_after=3), True, None, id="stopped after the last"),
        pytest.param(Rooms(GOOD, GOOD, stop_after=2), False, 2, id="stopped between rounds"),
        pytest.param(Rooms(GOOD, HALF, stop_after=2), False, 1, id="stopped between checks"),
        pytest.param(Rooms(GOOD, BAD, GOOD), False, None, id="a round failed"),
    ],
)
def test_only_all_rounds_verify(
    desk: Desk, rooms: Rooms, verified: bool, passed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repetition, "run_in_rooms", rooms.run)
    found = desk.workbench.verify(desk.task.id, Watch(cancelled=rooms.cancelled), VerifyOptions(repeat=3))
    assert (found.verified, found.rounds_passed) == (verified, passed)


def test_a_stopped_request_says_how_many_rounds_had_passed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rooms = Rooms(GOOD, GOOD, stop_after=2)
    monkeypatch.setattr(repetition, "run_in_rooms", rooms.run)
    found = desk.workbench.verify(desk.task.id, Watch(cancelled=rooms.cancelled), VerifyOptions(repeat=3))
    show_verification(found, desk.repo_id)
    assert "not verified" in (said := capsys.readouterr().out)
    assert "stopped: 2 round(s) had passed" in said
