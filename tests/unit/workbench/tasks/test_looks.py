"""Operations that only look at a task store no object; what others keep afterwards is complete. Ids: THREATS S07."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.files.overlay_mounts import find_overlay_obstacle
from sandbox.models import SearchQuery
from sandbox.workbench import Workbench
from sandbox.workbench.approvals.question import find_target
from sandbox.workbench.controller.services import build_services
from tests.unit.conftest import refused
from tests.unit.desk import Desk, on_disk
from tests.unit.git.test_sha256 import initialised_as

LOOKS: dict[str, Callable[[Workbench, str], object]] = {
    "status": lambda bench, task: bench.status(task),
    "diff": lambda bench, task: bench.diff(task, "head"),
    "diff from the base": lambda bench, task: bench.diff(task, "base"),
    "search": lambda bench, task: bench.search(task, SearchQuery(pattern="one")),
    "list": lambda bench, task: bench.search(task, SearchQuery(glob="**")),
}


@pytest.fixture(params=["overlay-sha1", "plain-sha1", "overlay-sha256"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    layout, kind = request.param.split("-")
    if layout == "overlay" and (reason := find_overlay_obstacle(tmp_path)):
        pytest.skip(f"no overlay mounts here: {reason}")
    home = tmp_path / "sandbox-home"
    home.mkdir()
    (home / "config.toml").write_text(f'[workspaces]\nworktree = "{layout}"\n')
    desk = Desk(initialised_as(tmp_path / "upstream", kind), home)
    with desk.workbench:
        yield desk


def stored(desk: Desk) -> dict[str, int]:
    """Each file of the cache clone and its size."""
    clone = desk.home / "repositories" / "clones" / desk.repo_id
    return {str(path): path.stat().st_size for path in clone.rglob("*") if path.is_file()}


def approvable_state(desk: Desk) -> str:
    """The tree that a person is asked about when an agent wants to commit."""
    with closing(build_services(desk.home, {"PATH": os.environ["PATH"]}, allow_file=True)) as services:
        return find_target(services, "space_repo_commit", {}, desk.task.id).state


def require_complete(desk: Desk) -> None:
    desk.git("fsck", "--connectivity-only", "--strict")


def test_s07_no_look_leaves_an_object(desk: Desk) -> None:
    """A commit of the task makes the diff from the base another one. Control: a commit leaves objects."""
    bench, task = desk.workbench, desk.task.id
    desk.write("committed", b"first\n")
    bench.commit(task, "a change")
    before = stored(desk)
    for turn in range(3):
        desk.write("f", b"one\n%d\n" % turn)
        desk.write(f"new/{turn}", os.urandom(1000))
        for name, look in LOOKS.items():
            look(bench, task)
            assert stored(desk) == before, name
        assert approvable_state(desk)
        assert stored(desk) == before
    bench.commit(task, "what was seen")
    assert stored(desk) != before, "void"
    require_complete(desk)


def test_s07_a_refused_operation_leaves_no_object(desk: Desk) -> None:
    bench, task = desk.workbench, desk.task.id
    desk.write("f", b"one\nmore\n")
    before = stored(desk)
    with refused(ErrorCode.CONFLICT):
        bench.commit(task, "m", expected_tree="0" * 40)
    with refused(ErrorCode.CONFLICT):
        bench.restore(task, "head", expected_tree="0" * 40)
    with refused(ErrorCode.CONFLICT):
        bench.close_task(task, delete_worktree=True, discard=True, expected_tree="0" * 40)
    assert stored(desk) == before


def test_a_commit_after_looks_is_complete_and_can_be_sent(desk: Desk) -> None:
    bench, task = desk.workbench, desk.task.id
    content = os.urandom(3000)
    desk.write("new/file", content)
    for look in LOOKS.values():
        look(bench, task)
    state = approvable_state(desk)
    made = bench.commit(task, "a change", expected_tree=state)
    assert made.tree == state.split(" ")[0]
    require_complete(desk)
    bench.push(task)
    assert desk.upstream.git("cat-file", "blob", f"{made.commit}:new/file") == content


def test_a_state_that_is_saved_again_is_the_same_snapshot_and_costs_no_object(desk: Desk) -> None:
    bench, task = desk.workbench, desk.task.id
    desk.write("f", b"one\nmore\n")
    bench.diff(task, "head")
    taken = bench.snapshot(task)
    require_complete(desk)
    before = stored(desk)
    assert bench.snapshot(task).id == taken.id
    assert stored(desk) == before
    desk.write("f", b"one\nless\n")
    other = bench.snapshot(task)
    assert other.tree != taken.tree
    require_complete(desk)


def test_a_fork_of_the_working_state_has_its_files_and_leaves_no_object(desk: Desk) -> None:
    """The fork needs the objects only to write its files. Its branch is at the task's commit."""
    bench, task = desk.workbench, desk.task.id
    desk.write("new/file", os.urandom(3000))
    desk.write("f", b"one\nmore\n")
    (desk.root / "d" / "y").unlink()
    before = stored(desk)
    fork = bench.fork_task(task)
    assert on_disk(desk.worktree(fork)) == on_disk(desk.root)
    added = {name for name in stored(desk).keys() - before.keys() if "/objects/" in name}
    assert added == set()
    assert bench.diff(fork.id, "head").text == bench.diff(task, "head").text
    bench.commit(fork.id, "continued")
    require_complete(desk)


def test_a_fork_of_a_snapshot_and_a_restore_work_after_looks(desk: Desk) -> None:
    bench, task = desk.workbench, desk.task.id
    desk.write("new/file", os.urandom(3000))
    bench.diff(task, "head")
    taken, before = bench.snapshot(task), on_disk(desk.root)
    (desk.root / "new" / "file").unlink()
    bench.diff(task, "head")
    assert on_disk(desk.worktree(bench.fork_task(task, taken.id))) == before
    bench.restore(task, taken.id)
    assert on_disk(desk.root) == before
    require_complete(desk)
