"""An operation that waits for a task says what it waits for, and names the check and its run when it gives up."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.agent.run_results import build_answer
from sandbox.agent.tools import TOOLS
from sandbox.errors import ErrorCode
from sandbox.models import Check, CheckRun
from sandbox.store.guest_times import mark_guest_running
from sandbox.workbench import Watch
from sandbox.workbench.checks import background
from sandbox.workbench.checks.stop import stoppable
from sandbox.workbench.tasks import busy_task, lifecycle
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

SLOW, RUN, CHECK_RUN = Check(id="slow", label="slow", argv=("true",)), f"run-{1:032x}", f"run-{2:032x}"
DEADLINE_S = 60.0


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(lifecycle, "_QUIET_WAIT_S", 0.05)
    monkeypatch.setattr(lifecycle, "EDIT_WAIT_S", 0.3)
    found = Desk(upstream, tmp_path / "sandbox-home")
    with found.workbench:
        yield found


@contextmanager
def running_check(desk: Desk, run_id: str | None = RUN) -> Iterator[None]:
    """A check that runs in the task, in another thread as in another process. `run_id`: of its background run."""
    home, began, over = desk.workbench._services.home, threading.Event(), threading.Event()

    def run() -> None:
        with (
            stoppable(home, desk.task.id, Watch(), run_id) as heard,
            home.locked(desk.task.id),
            mark_guest_running(home.guest_mark(desk.task.id), time.time_ns, CHECK_RUN),
        ):
            heard.starts(CHECK_RUN, SLOW)
            began.set()
            over.wait(DEADLINE_S)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert began.wait(DEADLINE_S)
    try:
        yield
    finally:
        over.set()
        thread.join(DEADLINE_S)


def hold(desk: Desk, said: list[str], wait_s: float = 0.2) -> None:
    services = desk.workbench._services
    services = replace(services, surface=replace(services.surface, progress=said.append), shared_from=services)
    with lifecycle.lock_task(services, desk.task.id, wait_s):
        pass


def test_a_conflict_names_the_check_and_its_background_run(desk: Desk) -> None:
    said = list[str]()
    with running_check(desk), refused(ErrorCode.CONFLICT) as caught:
        hold(desk, said)
    error = caught.value
    assert error.brief == f"Another operation on {desk.task.id} is still running"
    assert error.details == f"It is the check 'slow' ({RUN})."
    assert error.hint == f"Wait for it (`sandbox check wait {RUN}`), or run `sandbox check stop {RUN}`."
    assert (error.reason, error.data) == (
        busy_task.TASK_HELD,
        {"task_id": desk.task.id, "running": {"check_id": "slow", "check_run_id": CHECK_RUN, "run_id": RUN}},
    )
    assert said == [f"waiting for the check 'slow' ({RUN}) in {desk.task.id}", ""]


def test_a_check_of_a_command_has_no_background_run_to_wait_for(desk: Desk) -> None:
    with running_check(desk, run_id=None), refused(ErrorCode.CONFLICT) as caught:
        desk.workbench.write_file(desk.task.id, "new", "text", None)
    assert caught.value.details == f"It is the check 'slow' ({CHECK_RUN})."
    assert caught.value.hint == f"Wait for it, or run `sandbox check stop {desk.task.id}`."
    assert caught.value.data is not None
    assert caught.value.data["running"] == {"check_id": "slow", "check_run_id": CHECK_RUN}


def test_closing_names_the_check_too(desk: Desk) -> None:
    with running_check(desk), refused(ErrorCode.CONFLICT) as caught:
        lifecycle.close_task(desk.workbench._services, desk.task.id, delete=False, discard=False)
    assert "the check 'slow'" in caught.value.details


def test_another_operation_is_not_taken_for_a_check_in_a_clean_room(desk: Desk) -> None:
    home, said = desk.workbench._services.home, list[str]()
    with stoppable(home, desk.task.id, Watch(), RUN) as heard, home.locked(desk.task.id):
        heard.starts(CHECK_RUN, SLOW)  # in a clean room: no mark of a guest in the task
        with refused(ErrorCode.CONFLICT) as caught:
            hold(desk, said)
    assert (caught.value.details, caught.value.data) == ("", {"task_id": desk.task.id})
    assert said == [f"waiting for another operation on {desk.task.id}", ""]


def test_a_short_wait_says_no_word_and_one_that_succeeds_ends_its_line(desk: Desk) -> None:
    said = list[str]()
    hold(desk, said)
    assert said == []
    check = running_check(desk)
    check.__enter__()
    ends = threading.Timer(0.3, lambda: check.__exit__(None, None, None))
    ends.start()
    hold(desk, said, wait_s=DEADLINE_S)
    ends.join()
    assert said == [f"waiting for the check 'slow' ({RUN}) in {desk.task.id}", ""]


def test_a_run_that_waits_says_for_what_and_one_that_gave_up_says_so_ever_after(desk: Desk) -> None:
    services, run_id = desk.workbench._services, ""

    def work(watch: Watch, _run_id: str) -> tuple[CheckRun, ...]:
        with lifecycle.lock_task(services, desk.task.id, 2.0, watch.waiting):
            return ()

    with running_check(desk):
        question = background.Question("check", desk.task.id, ("test",))
        run_id = background.start(services, question, Watch(), work).run_id
        found = desk.workbench.wait_run(run_id, 0.0)
        ends_at = time.monotonic() + DEADLINE_S
        while found.state == "running" and found.waits_for is None and time.monotonic() < ends_at:
            found = desk.workbench.wait_run(run_id, 0.05)
        assert found.waits_for == f"the check 'slow' ({RUN}) in {desk.task.id}"
        answer = build_answer(found, TOOLS["space_repo_wait_run"].result_model).model_dump(mode="json")
        assert (answer["state"], answer["waits_for"]) == ("running", found.waits_for)
        with refused(ErrorCode.CONFLICT):
            desk.workbench.wait_run(run_id, DEADLINE_S)
    for ask in (desk.workbench.wait_run, desk.workbench.stop_run):
        with refused(ErrorCode.CONFLICT) as caught:
            ask(run_id)
        assert caught.value.brief == f"{run_id} did not start: another operation held {desk.task.id} then"
        assert caught.value.details == f"It was the check 'slow' ({RUN})."
        assert caught.value.hint == f"Start it again once that has ended: `sandbox check run {desk.task.id}`."


def test_an_unknown_run_has_no_hint_with_a_shell_command_for_agents(desk: Desk) -> None:
    with refused(ErrorCode.NOT_FOUND) as caught:
        desk.workbench.wait_run(f"run-{uuid.uuid4().hex}")
    assert "`sandbox check run`" in caught.value.hint
