"""What an exploration says of runs whose results of tests are not all known. The clean rooms are left out."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Check, CheckRun, Exploration, Report, TestOutcome, TestResult, Verdict
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.store.result_files import save_test_results
from sandbox.workbench import ExploreOptions, Watch
from sandbox.workbench.checks import explore
from sandbox.workbench.checks.ranking import CheckOutcome, count_results
from sandbox.workbench.tasks import snapshots
from tests.unit.conftest import refused
from tests.unit.desk import Desk
from tests.unit.receipt_samples import made_run

RUN = "run-" + "0" * 31 + "1"
PATCH = b"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
RESULTS = [
    TestResult(test="a", outcome=TestOutcome.FAILED),
    TestResult(test="b", outcome=TestOutcome.PASSED),
]
NAMED = count_results(RESULTS)
REPORT = Report(tests=2, failures=1, errors=0, skipped=0, failed=())


def save(home: Home, owner: str, run: CheckRun, *, complete: bool = True, compared: bool = True) -> None:
    """A run with its results of tests, if it has a report."""
    home.logs(owner).mkdir(parents=True, exist_ok=True)
    save_run(home, owner, run)
    if run.report is not None:
        save_test_results(home.logs(owner), run.run_id, "junit", RESULTS, complete=complete, compared=compared)


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize(
    ("complete", "compared", "known"), [(True, True, True), (False, True, False), (False, False, True)]
)
def test_results_that_were_lost_are_not_all_that_a_check_said(
    tmp_path: Path, *, complete: bool, compared: bool, known: bool, is_lost: bool
) -> None:
    """As in a comparison: of names that are not compared, the file is never complete."""
    home = Home(tmp_path)
    run = made_run("test", Verdict.FAILED, run_id=RUN, report=REPORT, results_lost=is_lost)
    save(home, "task-1", run, complete=complete, compared=compared)
    assert explore.read_outcome(home, run) == CheckOutcome(Verdict.FAILED, NAMED, complete=known and not is_lost)


@pytest.mark.parametrize(
    ("report", "is_lost", "complete"),
    [(None, False, True), (None, True, False), (REPORT, False, False)],
    ids=["none", "lost", "pruned"],
)
def test_a_run_without_results_of_tests_had_none_or_they_are_gone(
    tmp_path: Path, report: Report | None, complete: bool, *, is_lost: bool
) -> None:
    home = Home(tmp_path)
    run = made_run("test", Verdict.FAILED, run_id=RUN, report=None, results_lost=is_lost)
    save(home, "task-1", run)
    found = explore.read_outcome(home, run.model_copy(update={"report": report}))
    assert found == CheckOutcome(Verdict.FAILED, None, complete=complete)


def explored(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, before: dict[str, Any], after: dict[str, Any],
    others: dict[str, bytes] | None = None,
) -> Exploration:  # fmt: skip
    """One way, with these fields of the run on the task's own state and of that on the way's; and other ways."""
    base = desk.workbench.snapshot(desk.task.id).tree

    def run_in_rooms(_services: object, source: Any, request: Any, *_: object) -> tuple[CheckRun, ...]:
        number, fields = (0, before) if source.tree == base else (1, after)
        run = made_run("test", **{"verdict": Verdict.FAILED, "report": REPORT, **fields}, run_id=f"run-{number:032x}")
        save(Home(desk.home), request.owner, run)
        return (run,)

    monkeypatch.setattr(explore, "run_in_rooms", run_in_rooms)
    return desk.workbench.explore(desk.task.id, {"way": PATCH, **(others or {})}, options=ExploreOptions(restore=False))


LOST: dict[str, Any] = {"results_lost": True}


@pytest.mark.parametrize(
    ("before", "after"),
    [(LOST, {}), ({}, LOST), (LOST | {"report": None}, LOST | {"report": None})],
    ids=["before", "after", "both, and all"],
)
def test_a_way_that_fails_does_not_win_by_failures_that_nobody_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, before: dict[str, Any], after: dict[str, Any]
) -> None:
    found = explored(desk, monkeypatch, before, after)
    assert (found.winner, found.ways[0].newly_failing) == (None, 1)
    assert found.ways[0].newly_failing_tests == ("test (not all of its tests are known)",)
    assert ("not all tests of test are known" in found.note) is bool(before)


@pytest.mark.parametrize("after", [{}, LOST | {"verdict": Verdict.PASSED}], ids=["all known", "passes"])
def test_a_way_that_fails_as_before_or_passes_wins(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, after: dict[str, Any]
) -> None:
    """Controls: the exit status says that a check passed, whatever was lost of its report."""
    assert explored(desk, monkeypatch, {}, after).winner == "way"


@pytest.mark.parametrize(
    ("error", "ends_others"),
    [(ZeroDivisionError(), True), (SandboxError(ErrorCode.TIMEOUT, "slow"), False)],
    ids=["defect", "control"],
)
def test_a_defect_in_one_way_ends_the_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, error: Exception, ends_others: bool
) -> None:
    """Its caller waits for all of them. Control: an error of ours is that way's, and the others go on."""
    base = desk.workbench.snapshot(desk.task.id).tree
    failed, others = threading.Event(), list[bool]()

    def run_in_rooms(_services: object, source: Any, _request: object, watch: Watch, *_: object) -> tuple[()]:
        if source.tree == base:
            return ()
        if not failed.is_set():
            failed.set()
            raise error
        others.append(watch.cancelled())
        return ()

    monkeypatch.setattr(explore, "run_in_rooms", run_in_rooms)
    options = ExploreOptions(restore=False, jobs=1)
    ways = {"a": PATCH, "b": PATCH.replace(b"three", b"four"), "c": PATCH.replace(b"three", b"five")}
    if ends_others:
        with pytest.raises(ZeroDivisionError):
            desk.workbench.explore(desk.task.id, ways, options=options)
        assert others == []
    else:
        desk.workbench.explore(desk.task.id, ways, options=options)
        assert others == [False, False]


def test_checks_of_several_ways_are_announced_one_at_a_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ways that meet: the second has to wait until the first has been announced."""
    together, running, seen = threading.Barrier(2, timeout=60), list[str](), list[int]()
    base = desk.workbench.snapshot(desk.task.id).tree

    def run_in_rooms(_services: object, source: Any, request: Any, watch: Watch, *_: object) -> tuple[()]:
        if source.tree != base:
            together.wait()
            watch.announce(request.checks[0], None)
        return ()

    def announce(check: Check, _run: CheckRun | None) -> None:
        running.append(check.id)
        meeting.wait(0.2)
        seen.append(len(running))
        running.remove(check.id)

    meeting = threading.Event()
    monkeypatch.setattr(explore, "run_in_rooms", run_in_rooms)
    ways = {"a": PATCH, "b": PATCH.replace(b"three", b"four")}
    desk.workbench.explore(
        desk.task.id, ways, watch=Watch(announce=announce), options=ExploreOptions(restore=False, jobs=2)
    )
    assert seen == [1, 1]


@pytest.mark.parametrize(
    ("hashes", "code", "named"),
    [
        ({}, ErrorCode.PATCH_REJECTED, "without an expected hash, or one that does not exist (f)"),
        ({"f": "sha256:" + "0" * 64}, ErrorCode.STALE_HASH, "f is not the version that you read"),
    ],
    ids=["none", "stale"],
)
def test_without_a_way_that_can_be_tried_no_check_is_run(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, hashes: dict[str, str], code: ErrorCode, named: str
) -> None:
    """Each way is named with its cause: it was said that no way leaves all tests as they are, after all checks ran."""
    monkeypatch.setattr(explore, "run_in_rooms", lambda *_: pytest.fail("a check was run"))
    with refused(code) as caught:
        desk.workbench.explore(desk.task.id, {"a": PATCH, "b": PATCH}, options=ExploreOptions(expected_hashes=hashes))
    lines = caught.value.details.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["a", "b"]
    assert all(named in line for line in lines)
    assert caught.value.hint
    with refused(code) as alone:
        desk.workbench.apply_patch(desk.task.id, PATCH, expected_hashes=hashes)
    assert (caught.value.reason, caught.value.data) == (alone.value.reason, alone.value.data)


def test_a_way_that_was_not_tried_is_named_beside_one_that_failed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    found = explored(desk, monkeypatch, {}, LOST, {"bad": b"no patch"})
    assert "not tried: bad; see `problem`" in found.note
    assert {way.name: bool(way.problem) for way in found.ways} == {"way": False, "bad": True}


@pytest.mark.parametrize("changed", [None, "task", "sibling"])
def test_an_exploration_of_another_state_is_another_run(
    desk: Desk, changed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run was returned, also for a state that it does not begin from. Control: of the same states it is the run."""
    begun, release = threading.Event(), threading.Event()
    sibling = desk.workbench.fork_task(desk.task.id)

    def run_in_rooms(*_: object) -> tuple[CheckRun, ...]:
        begun.set()
        assert release.wait(60)
        return (made_run("test", run_id=RUN),)

    monkeypatch.setattr(explore, "run_in_rooms", run_in_rooms)

    def start() -> str:
        ways = {"way": PATCH}
        return desk.workbench.start_exploration(desk.task.id, ways, [sibling.id], options=options).run_id

    options = ExploreOptions(restore=False)
    first = start()
    assert begun.wait(60)
    if changed is not None:
        owner = desk.task.id if changed == "task" else sibling.id
        desk.workbench.write_file(owner, "new", b"x\n", None)
    second = start()
    release.set()
    assert (second == first) is (changed is None)
    found = desk.workbench.wait_run(second, 60).exploration
    assert found is not None
    assert found.base_tree == desk.workbench.snapshot(desk.task.id).tree
    trees = {way.name: way.tree for way in found.ways}
    assert trees[sibling.id] == desk.workbench.snapshot(sibling.id).tree
    desk.workbench.wait_for_runs()


def test_an_exploration_begins_from_the_state_that_it_was_asked_about(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change between the question and the start of its thread."""
    real = snapshots.take_snapshot

    def change_and_take(services: Any, task_id: str, label: str) -> Any:
        desk.write("new", b"x\n")
        return real(services, task_id, label)

    monkeypatch.setattr(explore, "take_snapshot", change_and_take)
    monkeypatch.setattr(explore, "run_in_rooms", lambda *_: ())
    with refused(ErrorCode.CONFLICT):
        desk.workbench.wait_run(desk.workbench.start_exploration(desk.task.id, {"way": PATCH}).run_id, 60)
