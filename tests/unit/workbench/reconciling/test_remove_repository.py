"""`repo remove`: what goes, what stays, what is refused, and a kill at every step."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from devtools.command import Command
from devtools.copied_clones import copied_clones
from devtools.home_files import copy_sparsely
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Task, TaskStatus
from sandbox.store import records
from sandbox.store.home import Home
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, refused

REMOVAL = importlib.import_module(
    "sandbox.workbench.reconciling.remove_repository"
)  # not the name that loads it at first use
PATCH = b"--- a/f.txt\n+++ b/f.txt\n@@ -1 +1,2 @@\n one\n+two\n"


@pytest.fixture
def workbench(tmp_path: Path) -> Iterator[Workbench]:
    with opened(tmp_path / "home") as made:
        yield made


def opened(home: Path) -> Workbench:
    return Workbench(home, environ={"PATH": os.environ["PATH"]}, allow_file=True)


@pytest.fixture
def repo_id(workbench: Workbench, upstream: Upstream) -> str:
    upstream.write("f.txt", b"one\n")
    upstream.commit()
    with copied_clones():
        return workbench.clone(str(upstream.root)).repository.id


def edited(workbench: Workbench, repo_id: str) -> Task:
    """An open task with an uncommitted change."""
    task = workbench.create_task(repo_id, "work")
    read = workbench.read_file(task.id, "f.txt")
    workbench.apply_patch(task.id, PATCH, {"f.txt": read.sha256})
    return task


def committed(workbench: Workbench, repo_id: str, message: str = "a change") -> Task:
    task = edited(workbench, repo_id)
    workbench.commit(task.id, message)
    return workbench.task(task.id)


def held(home: Path, repo_id: str) -> list[str]:
    """Every path of the home that names the repository, locks aside."""
    found = (p.relative_to(home) for p in home.rglob(f"*{repo_id}*"))
    return sorted(str(p) for p in found if "locks" not in p.parts)


def test_a_repository_goes_with_all_that_is_kept_of_it(
    workbench: Workbench, repo_id: str, upstream: Upstream, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    workbench.fetch(str(upstream.root))
    (Home(home).logs(repo_id)).mkdir()
    (Home(home).clone(repo_id).with_name(f".{repo_id}.corrupt-12")).mkdir()
    assert {Path(p).parts[1] for p in held(home, repo_id)} == {"clones", "pristine", "logs"}

    removed = workbench.remove_repository(repo_id)

    assert (removed.repo_id, removed.remote_url, removed.lost) == (repo_id, f"file://{upstream.root}", ())
    assert held(home, repo_id) == []
    assert workbench.repositories() == ()
    assert upstream.oid("main")  # the remote is not ours to remove
    with refused(ErrorCode.NOT_FOUND):
        workbench.remove_repository(repo_id)
    assert workbench.clone(str(upstream.root)).repository.id == repo_id


@pytest.mark.parametrize("note", ["", '{"not_copied": ["refs/heads/space-agent/x"]}'], ids=["unfinished", "lost"])
def test_work_that_only_a_clone_set_aside_has_is_not_removed_without_discard(
    note: str, workbench: Workbench, repo_id: str, tmp_path: Path
) -> None:
    clone = Home(tmp_path / "home").clone(repo_id)
    aside = clone.with_name(f".{repo_id}.corrupt-12")
    (aside / "refs/heads/space-agent").mkdir(parents=True)
    (aside / "refs/heads/space-agent/x").write_text(f"{'1' * 40}\n")
    if note:
        (aside / "sandbox-refs-copied.json").write_text(note)

    with refused(ErrorCode.DIRTY_WORKSPACE) as caught:
        workbench.remove_repository(repo_id)

    assert caught.value.details == f"refs/heads/space-agent/x in {aside.name}, which a repair set aside"
    assert aside.exists()
    (aside / "sandbox-refs-copied.json").write_text('{"not_copied": []}')  # control
    assert workbench.remove_repository(repo_id).lost == ()
    assert not aside.exists()


def test_neighbours_with_names_alike_stay(workbench: Workbench, repo_id: str, tmp_path: Path) -> None:
    clones = Home(tmp_path / "home").repositories / "clones"
    names = [f"{repo_id}2", f"{repo_id}.corrupt-1", f".{repo_id}.corrupt-1.incoming", f".{repo_id}-x.incoming"]
    for name in names:
        (clones / name).mkdir()

    workbench.remove_repository(repo_id)

    assert sorted(p.name for p in clones.iterdir()) == sorted(names)


@pytest.mark.parametrize("name", ["nobody", "", "..", "../clones", "/etc", ".", "a/b", "*"])
def test_a_name_that_is_no_repository_is_not_found_and_nothing_goes(
    name: str, workbench: Workbench, repo_id: str, tmp_path: Path
) -> None:
    before = held(tmp_path / "home", "")

    with refused(ErrorCode.NOT_FOUND):
        workbench.remove_repository(name, discard=True)

    assert held(tmp_path / "home", "") == before
    assert workbench.repository(repo_id)


@pytest.mark.parametrize("discard", [False, True])
def test_open_tasks_are_a_conflict_that_names_them(workbench: Workbench, repo_id: str, discard: bool) -> None:
    ids = [workbench.create_task(repo_id).id for _ in range(2)]

    with refused(ErrorCode.CONFLICT) as caught:
        workbench.remove_repository(repo_id, discard=discard)

    assert sorted(caught.value.details.split()) == sorted(ids)
    assert all(workbench.status(i).dirty is False for i in ids)


def test_a_pushed_and_closed_task_does_not_hold_it_and_its_record_stays(workbench: Workbench, repo_id: str) -> None:
    task = committed(workbench, repo_id)
    workbench.push(task.id)
    workbench.close_task(task.id)

    assert workbench.remove_repository(repo_id).lost == ()

    record = workbench.task(task.id)
    assert (record.status, record.worktree_path, record.head_commit) == (TaskStatus.CLOSED, None, task.head_commit)
    assert [t.id for t in workbench.tasks()] == [task.id]


def test_commits_that_were_never_pushed_hold_it_until_discarded(
    workbench: Workbench, repo_id: str, tmp_path: Path
) -> None:
    pushed, kept = committed(workbench, repo_id), committed(workbench, repo_id, "another")
    workbench.push(pushed.id)
    for task in (pushed, kept):
        workbench.close_task(task.id, delete_worktree=True)
    before = held(tmp_path / "home", "")

    with refused(ErrorCode.DIRTY_WORKSPACE) as caught:
        workbench.remove_repository(repo_id)

    assert caught.value.details == f"branch {kept.branch}: commits that were never pushed"
    assert held(tmp_path / "home", "") == before
    assert workbench.remove_repository(repo_id, discard=True).lost == (caught.value.details,)
    assert held(tmp_path / "home", repo_id) == []


def test_commits_that_reached_the_remote_another_way_are_not_lost(
    workbench: Workbench, repo_id: str, upstream: Upstream, tmp_path: Path
) -> None:
    task = committed(workbench, repo_id)
    workbench.close_task(task.id, delete_worktree=True)
    upstream.git("fetch", "--quiet", str(Home(tmp_path / "home").clone(repo_id)), f"{task.branch}:refs/heads/rescued")
    workbench.clone(str(upstream.root))

    assert workbench.remove_repository(repo_id).lost == ()


def test_uncommitted_changes_of_a_closed_task_hold_it_until_discarded(
    workbench: Workbench, repo_id: str, tmp_path: Path
) -> None:
    dirty, clean = edited(workbench, repo_id), workbench.create_task(repo_id)
    for task in (dirty, clean):
        workbench.close_task(task.id)

    with refused(ErrorCode.DIRTY_WORKSPACE) as caught:
        workbench.remove_repository(repo_id)

    assert caught.value.details == f"worktree of {dirty.id}: uncommitted changes"
    assert Home(tmp_path / "home").worktree(repo_id, clean.id).exists()
    assert workbench.remove_repository(repo_id, discard=True).lost
    assert held(tmp_path / "home", repo_id) == []


def test_snapshots_of_what_was_never_committed_hold_it(workbench: Workbench, repo_id: str) -> None:
    task = edited(workbench, repo_id)
    taken = workbench.snapshot(task.id, "good")
    workbench.close_task(task.id, delete_worktree=True, discard=True)

    with refused(ErrorCode.DIRTY_WORKSPACE) as caught:
        workbench.remove_repository(repo_id)

    assert caught.value.details == f"snapshot {taken.id} of {task.id}: files that were never committed"
    assert workbench.remove_repository(repo_id, discard=True).lost == (caught.value.details,)


def test_snapshots_of_what_was_pushed_do_not(workbench: Workbench, repo_id: str) -> None:
    task = edited(workbench, repo_id)
    workbench.snapshot(task.id)  # as committed next
    workbench.commit(task.id, "a change")
    workbench.snapshot(task.id)  # nothing changed since
    workbench.push(task.id)
    workbench.close_task(task.id, delete_worktree=True)

    assert workbench.remove_repository(repo_id).lost == ()


def test_a_worktree_without_a_record_is_work_too(workbench: Workbench, repo_id: str, tmp_path: Path) -> None:
    task = edited(workbench, repo_id)
    Home(tmp_path / "home").task(task.id).unlink()

    with refused(ErrorCode.DIRTY_WORKSPACE):
        workbench.remove_repository(repo_id)

    workbench.remove_repository(repo_id, discard=True)
    assert held(tmp_path / "home", repo_id) == []


@pytest.mark.parametrize("discard", [False, True])
def test_a_task_whose_record_is_damaged_may_be_open(
    workbench: Workbench, repo_id: str, tmp_path: Path, discard: bool
) -> None:
    task = edited(workbench, repo_id)
    Home(tmp_path / "home").task(task.id).write_text("{")

    with refused(ErrorCode.INTERNAL) as caught:
        workbench.remove_repository(repo_id, discard=discard)

    assert task.id in caught.value.brief
    assert Home(tmp_path / "home").worktree(repo_id, task.id).exists()


def test_a_corrupt_clone_is_removed_when_told_so(workbench: Workbench, repo_id: str, tmp_path: Path) -> None:
    task = committed(workbench, repo_id)
    workbench.close_task(task.id, delete_worktree=True)
    clone = Home(tmp_path / "home").clone(repo_id)
    for path in [*clone.glob("objects/pack/*"), *clone.glob("objects/??/*")]:
        path.unlink()

    with pytest.raises(SandboxError):
        workbench.remove_repository(repo_id)
    assert workbench.repository(repo_id)

    assert workbench.remove_repository(repo_id, discard=True).lost
    assert held(tmp_path / "home", repo_id) == []


def test_a_repository_without_its_clone_can_be_removed(workbench: Workbench, repo_id: str, tmp_path: Path) -> None:
    shutil.rmtree(Home(tmp_path / "home").clone(repo_id))

    workbench.remove_repository(repo_id)

    assert workbench.repositories() == ()


def test_it_waits_for_nobody_for_long(
    workbench: Workbench, repo_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(REMOVAL, "EDIT_WAIT_S", 0.05)
    held_by_fetch, over = threading.Event(), threading.Event()

    def fetching() -> None:
        with Home(tmp_path / "home").locked(f"repository-{repo_id}"):
            held_by_fetch.set()
            over.wait(30)

    thread = threading.Thread(target=fetching)
    thread.start()
    held_by_fetch.wait(30)
    with refused(ErrorCode.CONFLICT):
        workbench.remove_repository(repo_id)
    over.set()
    thread.join()
    assert workbench.repository(repo_id)


# --- broken off


@pytest.mark.parametrize("step", ["close_task", "delete_repository", "_delete", "remove_tree"])
def test_a_step_that_fails_leaves_what_the_next_removal_takes_up(
    step: str, workbench: Workbench, repo_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = workbench.create_task(repo_id)
    workbench.close_task(task.id)

    def fail(*_: Any, **__: Any) -> None:
        raise SandboxError(ErrorCode.INTERNAL, "broken here")

    with monkeypatch.context() as patched:
        patched.setattr(REMOVAL, step, fail)
        with refused(ErrorCode.INTERNAL):
            workbench.remove_repository(repo_id)
    assert held(tmp_path / "home", repo_id) or workbench.repositories()

    workbench.remove_repository(repo_id)

    assert (held(tmp_path / "home", repo_id), workbench.repositories()) == ([], ())


def killed_at(step: int, home: Path, repo_id: str) -> bool:
    """Remove in a child that dies by SIGKILL before its n-th change of the file system; whether it died."""
    child = os.fork()
    if child == 0:
        left = [step]

        def count(event: str, _: object) -> None:
            if event in {"os.rename", "os.remove", "os.rmdir", "os.mkdir"}:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(count)
            with opened(home) as workbench:
                workbench.remove_repository(repo_id)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert status in {0, signal.SIGKILL}
    return status != 0


@pytest.mark.parametrize(
    "afterwards", ["either", *(pytest.param(one, marks=pytest.mark.thorough) for one in ("remove", "clone"))]
)
def test_p03_a_kill_at_every_step_leaves_what_the_next_command_copes_with(
    afterwards: str, workbench: Workbench, repo_id: str, upstream: Upstream, tmp_path: Path
) -> None:
    workbench.fetch(str(upstream.root))
    workbench.close_task(workbench.create_task(repo_id).id)
    original, home = tmp_path / "original", tmp_path / "home"
    home.rename(original)
    step, deaths = 0, 0
    while True:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(original, home, symlinks=True, copy_function=copy_sparsely)
        if not killed_at(step, home, repo_id):
            break
        deaths += 1
        with opened(home) as again:
            if afterwards == "clone" or (afterwards == "either" and deaths % 2):
                assert again.clone(str(upstream.root)).repository.id == repo_id
                again.close_task(again.create_task(repo_id).id, delete_worktree=True)
            if held(home, repo_id) or again.repositories():
                again.remove_repository(repo_id)
            assert (held(home, repo_id), again.repositories()) == ([], ())
            assert all(t.status is TaskStatus.CLOSED for t in again.tasks())
        step += 1 if step < 12 else 7
    assert deaths > 10
    assert held(home, repo_id) == []


def test_no_task_is_made_in_a_repository_that_goes_meanwhile(
    workbench: Workbench, repo_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal runs where it hurts most: after the worktree is laid out, before the record is written."""
    saved = records.save_new_task

    def removed_first(home: Home, task: Task) -> Task:
        with opened(tmp_path / "home") as other:
            other.remove_repository(repo_id, discard=True)
        return saved(home, task)

    monkeypatch.setattr("sandbox.workbench.tasks.lifecycle.save_new_task", removed_first)
    with refused(ErrorCode.NOT_FOUND):
        workbench.create_task(repo_id)

    assert (workbench.tasks(), workbench.repositories(), held(tmp_path / "home", repo_id)) == ((), (), [])


def test_no_repository_goes_when_a_task_was_made_meanwhile(
    workbench: Workbench, repo_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain worktree: making an overlay waits for the lock of pristine checkouts, which the removal holds."""
    made: list[Task] = []
    settings = {"workspaces": {"worktree": "plain"}}
    other = Workbench(tmp_path / "home", environ={"PATH": os.environ["PATH"]}, settings=settings, allow_file=True)

    def created_first(*arguments: Any, **options: Any) -> tuple[str, ...]:
        made.append(other.create_task(repo_id))
        return ()

    monkeypatch.setattr(REMOVAL, "_find_only_copies", created_first)
    with refused(ErrorCode.CONFLICT):
        workbench.remove_repository(repo_id)

    assert workbench.status(made[0].id).dirty is False
    assert workbench.repository(repo_id)


def test_the_command_removes_and_tells_what_was_lost(repo_id: str, workbench: Workbench, tmp_path: Path) -> None:
    task = committed(workbench, repo_id)
    workbench.close_task(task.id, delete_worktree=True)

    remove = partial(Command(tmp_path / "home"), "repo", "remove", repo_id)
    refusal = remove()
    assert (refusal.code, refusal.stdout) == (4, "")
    assert task.branch in refusal.stderr
    done = remove("--discard")
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == f"removed {repo_id}"
    assert task.branch in done.stdout
