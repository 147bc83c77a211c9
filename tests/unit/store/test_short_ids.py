from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandbox.attack.harness.verdict_samples import make_run
from sandbox.errors import ErrorCode
from sandbox.models import Exploration, ExploredWay, Verdict
from sandbox.store.background_runs import BackgroundRunRecord, save_background_run
from sandbox.store.home import Home
from sandbox.store.records import save_run
from sandbox.store.runs import find_owner
from sandbox.store.short_ids import complete_owner_id, complete_run_id, complete_task_id
from sandbox.store.terminal_task import UNSEEN_LEADER_S, recall_task, remember_task
from tests.unit.conftest import refused

FIRST, SECOND = "task-45c2abc0-0000-4000-8000-000000000001", "task-45c2abcd-0000-4000-8000-000000000002"
RUN = "run-" + "ab12" * 8


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    for task in (FIRST, SECOND):
        home.task(task).parent.mkdir(parents=True, exist_ok=True)
        home.task(task).touch()
    home.logs(FIRST).mkdir(parents=True)
    (home.logs(FIRST) / f"{RUN}.stdout").touch()
    return home


@pytest.mark.parametrize("name", ["task-45c2abc0", "45c2abc0", "45c2abc0-0000", FIRST])
def test_the_beginning_of_an_id_is_enough(home: Home, name: str) -> None:
    assert complete_task_id(home, name) == complete_owner_id(home, name) == FIRST


def test_several_tasks_are_named(home: Home) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        complete_task_id(home, "45c2")
    assert caught.value.details == f"{FIRST}\n{SECOND}"


@pytest.mark.parametrize(
    "name", ["", "45c", "task-", "task-45c", "45C2abc0", "*", "45c2*", "../45c2", "beef", "45c2\n"]
)
def test_other_names_stay_as_they_are(home: Home, name: str) -> None:
    """Then the search for the task says that there is none."""
    assert complete_task_id(home, name) == name


def test_a_run_is_found_also_while_it_has_only_output(home: Home) -> None:
    assert complete_run_id(home, "run-ab12") == complete_owner_id(home, "run-ab12") == RUN
    assert complete_run_id(home, "ab12") == "ab12"


def test_runs_of_one_session_begin_alike_and_are_told_apart_by_their_end(home: Home) -> None:
    nonce = "0d12" * 3
    ids = [f"run-{nonce}{end * 5}" for end in ("7de1", "7de2")]
    for owner, run in zip((FIRST, SECOND), ids, strict=True):
        home.logs(owner).mkdir(parents=True, exist_ok=True)
        (home.logs(owner) / f"{run}.stdout").touch()
    for run in ids:
        assert complete_run_id(home, f"run-{run[-4:]}") == complete_owner_id(home, f"run-{run[-9:]}") == run
    save_run(home, SECOND, make_run(Verdict.FAILED).model_copy(update={"run_id": ids[1]}))
    with refused(ErrorCode.INVALID_INPUT) as caught:
        complete_run_id(home, "run-0d12")
    assert caught.value.details == f"{ids[0]}  {FIRST}  no result\n{ids[1]}  {SECOND}  test failed"
    assert complete_run_id(home, "run-e17d") == "run-e17d", "the middle is no name"


def test_a_run_in_the_background_is_found_by_its_end_and_described(home: Home) -> None:
    ids = [f"run-{digit * 28}1f4d" for digit in "ab"]
    home.background_runs.mkdir(parents=True)
    for run_id in ids:
        assert complete_run_id(home, "run-1f4d") == ("run-1f4d" if run_id == ids[0] else ids[0])
        save_background_run(home, background_run(run_id))
    assert complete_run_id(home, "run-aaaa") == ids[0]
    with refused(ErrorCode.INVALID_INPUT) as caught:
        complete_run_id(home, "run-1f4d")
    assert caught.value.details == f"{ids[0]}  {FIRST}  verify\n{ids[1]}  {FIRST}  verify"


def background_run(run_id: str, **fields: Any) -> BackgroundRunRecord:
    return BackgroundRunRecord(
        run_id=run_id, task_id=FIRST, operation="verify", started_at=datetime(2026, 1, 2, tzinfo=UTC), **fields
    )


def test_the_id_of_a_verify_that_is_given_for_a_run_of_a_check_is_explained(home: Home) -> None:
    home.background_runs.mkdir(parents=True)
    passed, request = make_run(Verdict.PASSED), f"run-{5:032x}"
    save_background_run(home, background_run(request, check_id="test", check_run_id=f"run-{6:032x}"))
    with refused(ErrorCode.NOT_FOUND) as caught:
        find_owner(home, request)
    assert caught.value.brief == f"{request} is a run of `verify` in the background, and not of one check"
    assert caught.value.details == f"The runs of its checks:\nrun-{6:032x}  test"
    assert caught.value.hint.endswith(f"`sandbox check wait {request}` has the result of all.")
    way = ExploredWay(name="b", runs={"test": passed.run_id})
    explored = Exploration(task_id=FIRST, base_tree="a" * 40, base_failing=0, ways=(way,))
    save_background_run(home, background_run(request, state="finished", exploration=explored))
    with refused(ErrorCode.NOT_FOUND) as caught:
        find_owner(home, request)
    assert caught.value.details == f"The runs of its checks:\n{passed.run_id}  b/test"
    save_background_run(home, background_run(request, state="failed"))
    with refused(ErrorCode.NOT_FOUND) as caught:
        find_owner(home, request)
    assert caught.value.details == "No check of it has a run."


def test_a_repository_is_never_taken_for_the_beginning_of_a_task(home: Home) -> None:
    home.clone("45c2abc0").mkdir(parents=True)
    assert complete_owner_id(home, "45c2abc0") == "45c2abc0"


def test_a_dash_is_the_task_of_this_terminal_only(home: Home) -> None:
    with refused(ErrorCode.NOT_FOUND):
        complete_task_id(home, "-")
    remember_task(home, SECOND)
    assert complete_owner_id(home, "-") == SECOND
    program = "import sys; from pathlib import Path; from sandbox.store.terminal_task import *\n"
    program += "from sandbox.store.home import Home; remember_task(Home(Path(sys.argv[1])), sys.argv[2])"
    argv = [sys.executable, "-c", program, str(home.root), FIRST]
    subprocess.run(argv, check=True, start_new_session=True, timeout=30)
    assert recall_task(home) == SECOND
    assert len(list(home.terminals.iterdir())) == 2
    remember_task(home, FIRST)
    assert len(list(home.terminals.iterdir())) == 1, "the terminal that is closed is forgotten"


def test_a_session_without_a_visible_leader_keeps_its_task(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Session 0 is that of a shell outside of our PID namespace, as in a CI job that leads no session."""
    monkeypatch.setattr(os, "getsid", lambda _pid: 0)
    remember_task(home, FIRST)
    kept = home.terminals / "0"
    monkeypatch.setattr(os, "getsid", lambda _pid: 1)
    remember_task(home, SECOND)
    assert kept.read_text() == f"{FIRST}\n"
    os.utime(kept, (0, kept.stat().st_mtime - UNSEEN_LEADER_S - 1))
    remember_task(home, SECOND)
    assert not kept.exists(), "after a day it is forgotten"
