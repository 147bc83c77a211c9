"""Tasks of kind tree: every operation of a task without a file on disk, with the answers of a worktree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sandbox.cli.app import cli
from sandbox.cli.invocation import Invocation
from sandbox.errors import ErrorCode
from sandbox.models import SearchQuery, Task, TaskOptions, WorkspaceKind
from sandbox.workbench import Workbench
from sandbox.workbench.tasks import tree_tasks
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk, on_disk

TREE = TaskOptions(workspace_kind="tree")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    from tests.unit.conftest import initialised  # noqa: PLC0415 - only for this fixture

    found = Desk(initialised(tmp_path_factory.mktemp("tree") / "up"), tmp_path_factory.mktemp("home") / "home")
    with found.workbench:
        yield found


@pytest.fixture
def task(desk: Desk) -> Task:
    return desk.workbench.create_task(desk.repo_id, "tree", options=TREE)


def files_of(desk: Desk, task: Task) -> list[Path]:
    """All that a worktree of the task would have on disk."""
    places = (f"repositories/worktrees/{desk.repo_id}/{task.id}", f"repositories/layers/{desk.repo_id}/{task.id}")
    return [path for place in places if (path := desk.home / place).exists()]


def change(workbench: Workbench, task: Task) -> None:
    """Each kind of edit."""

    def read(path: str) -> str:
        return workbench.read_file(task.id, path).sha256

    workbench.edit_file(task.id, "f", "two", "TWO", read("f"))
    workbench.write_file(task.id, "new/deep", b"new\n", None, executable=True)
    workbench.delete_file(task.id, "d/y", read("d/y"))
    workbench.rename_file(task.id, "d/e/x", "d/z", read("d/e/x"))
    patch = b"--- a/run\n+++ b/run\n@@ -1 +1,2 @@\n #!/bin/sh\n+true\n"
    workbench.apply_patch(task.id, patch, {"run": read("run")})


def test_a_file_of_several_chunks_is_read_described_and_committed(desk: Desk, task: Task) -> None:
    """git gives a file in pieces of 256 KiB."""
    workbench, plain = desk.workbench, desk.workbench.create_task(desk.repo_id, "plain")
    text = b"".join(b"line %d\n" % number for number in range(60_000))
    for one in (task, plain):
        workbench.write_file(one.id, "large", text, None)
    assert workbench.read_file(task.id, "large") == workbench.read_file(plain.id, "large")
    assert workbench.diff(task.id) == workbench.diff(plain.id)
    commits = [workbench.commit(one.id, "a large file") for one in (task, plain)]
    assert commits[0].tree == commits[1].tree
    expected = workbench.base_hash(plain.id, "large")
    assert (workbench.base_hash(task.id, "large"), workbench.read_file(task.id, "large").sha256) == (expected, expected)


def test_every_operation_gives_the_answers_of_a_worktree_and_no_file(desk: Desk, task: Task) -> None:
    workbench, plain = desk.workbench, desk.workbench.create_task(desk.repo_id, "plain")
    assert (task.workspace_kind, task.worktree_path, files_of(desk, task)) == (WorkspaceKind.TREE, None, [])
    assert len(files_of(desk, plain)) == 2
    for one in (task, plain):
        change(workbench, one)
    assert workbench.status(task.id).changes == workbench.status(plain.id).changes
    for against in ("base", "head"):
        assert workbench.diff(task.id, against) == workbench.diff(plain.id, against)
    for query in (SearchQuery(pattern="T"), SearchQuery(glob="**"), SearchQuery(pattern="new", glob="new/*")):
        assert workbench.search(task.id, query) == workbench.search(plain.id, query)
    for path in ("f", "new/deep", "d/z"):
        assert workbench.read_file(task.id, path) == workbench.read_file(plain.id, path)
    assert workbench.impact(task.id).unclassified == workbench.impact(plain.id).unclassified
    kept = workbench.snapshot(task.id)
    assert kept.tree == workbench.snapshot(plain.id).tree
    commits = [workbench.commit(one.id, "edits") for one in (task, plain)]
    assert commits[0].tree == commits[1].tree
    assert (workbench.status(task.id).dirty, workbench.status(task.id).ahead) == (False, 1)
    assert workbench.restore(task.id, "base").changes == workbench.restore(plain.id, "base").changes
    workbench.restore(task.id, kept.id)
    assert not workbench.status(task.id).changes
    assert files_of(desk, task) == []
    assert [entry.operation for entry in workbench.log(task.id)].count("edit") == 1


def test_edits_are_gated_and_refused_as_in_a_worktree(desk: Desk, task: Task) -> None:
    acts: dict[str, tuple[Callable[[], object], ErrorCode]] = {
        "stale": (lambda: desk.workbench.write_file(task.id, "f", b"", "sha256:" + "0" * 64), ErrorCode.STALE_HASH),
        "exists": (lambda: desk.workbench.write_file(task.id, "f", b"", None), ErrorCode.STALE_HASH),
        "missing": (lambda: desk.workbench.read_file(task.id, "no"), ErrorCode.NOT_FOUND),
        "folder": (lambda: desk.workbench.read_file(task.id, "d"), ErrorCode.UNSAFE_PATH),
        "link": (lambda: desk.workbench.read_file(task.id, "link"), ErrorCode.UNSAFE_PATH),
        "onto a folder": (lambda: desk.workbench.write_file(task.id, "d", b"", None), ErrorCode.UNSAFE_PATH),
        "out": (lambda: desk.workbench.write_file(task.id, "../x", b"", None), ErrorCode.UNSAFE_PATH),
        "git": (lambda: desk.workbench.write_file(task.id, ".git/config", b"", None), ErrorCode.UNSAFE_PATH),
        "policy": (lambda: desk.workbench.write_file(task.id, ".github/workflows/x", b"", None), ErrorCode.UNSAFE_PATH),
        "nothing": (lambda: desk.workbench.commit(task.id, "x"), ErrorCode.NOTHING_TO_COMMIT),
    }
    for act, code in acts.values():
        with refused(code):
            act()
    assert not desk.workbench.status(task.id).changes


def test_the_working_state_outlives_its_controller_and_a_fork_shares_it(desk: Desk, task: Task) -> None:
    desk.workbench.write_file(task.id, "n", b"1", None)
    with Workbench(desk.home, environ={}) as other:
        fork = other.fork_task(task.id)
        assert (fork.workspace_kind, files_of(desk, fork)) == (WorkspaceKind.TREE, [])
        other.write_file(fork.id, "n", b"2", other.read_file(fork.id, "n").sha256)
        again = other.create_task(desk.repo_id, from_snapshot=other.snapshot(fork.id).id, options=TREE)
        assert other.read_file(again.id, "n").content == "2"
    assert desk.workbench.read_file(task.id, "n").content == "1"


def test_a_dirty_one_is_not_closed_without_a_word(desk: Desk, task: Task) -> None:
    desk.workbench.write_file(task.id, "n", b"1", None)
    with refused(ErrorCode.DIRTY_WORKSPACE):
        desk.workbench.close_task(task.id, delete_worktree=True)
    desk.workbench.close_task(task.id, delete_worktree=True, discard=True)
    assert not [ref for ref in desk.refs() if task.id in ref]


def test_files_are_laid_out_with_the_working_state_when_something_needs_them(desk: Desk, task: Task) -> None:
    """`task clean` needs no engine; a check is tests/docker/test_task_kinds.py."""
    plain = desk.workbench.create_task(desk.repo_id, "plain")
    for one in (task, plain):
        change(desk.workbench, one)
    desk.workbench.clean_task(task.id)
    laid_out = desk.workbench.task(task.id)
    assert laid_out.worktree_path is not None
    assert on_disk(laid_out.worktree_path) == on_disk(desk.worktree(plain))
    assert not [ref for ref in desk.refs() if f"{task.id}/snapshots/working" in ref]
    desk.workbench.write_file(task.id, "after", b"1", None)
    assert (laid_out.worktree_path / "after").read_bytes() == b"1"


def test_a_kill_between_commit_and_record_loses_nothing(
    desk: Desk, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.workbench.write_file(task.id, "n", b"1", None)
    monkeypatch.setattr(tree_tasks, "forget_working_tree", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        desk.workbench.clean_task(task.id)  # killed after the worktree was made
    monkeypatch.undo()
    assert desk.workbench.read_file(task.id, "n").content == "1"
    assert [c.path for c in desk.workbench.status(task.id).changes] == ["n"]


def test_gc_leaves_it_alone(desk: Desk, task: Task) -> None:
    desk.workbench.write_file(task.id, "n", b"1", None)
    assert task.id not in {leftover.name for leftover in desk.workbench.collect().leftovers}
    assert desk.workbench.read_file(task.id, "n").content == "1"
    with refused(ErrorCode.CONFLICT, ErrorCode.DIRTY_WORKSPACE):
        desk.workbench.remove_repository(desk.repo_id)


@pytest.mark.parametrize("kind", ["clone", "local", "ephemeral", "box", ""])
def test_other_kinds_are_refused_and_the_known_ones_named(desk: Desk, kind: str) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        desk.workbench.create_task(desk.repo_id, options=TaskOptions(workspace_kind=kind))
    assert "worktree, tree" in (caught.value.details or "")


def test_the_command_creates_the_kind_that_it_was_told(desk: Desk) -> None:
    run = CliRunner().invoke
    argv = ["--home", str(desk.home), "task", "create", desk.repo_id, "--offline", "--json", "--kind"]
    made = run(cli, [*argv, "tree"], obj=Invocation(json=True))
    assert '"workspace_kind": "tree"' in made.output.replace('":"', '": "')
    shown = run(cli, [*argv[:6], "--kind", "tree"], obj=Invocation())
    assert "worktree  none until its first check" in shown.output
    wrong = run(cli, [*argv, "box"], obj=Invocation(json=True))
    assert (wrong.exit_code, "'worktree', 'tree'" in wrong.output) == (2, True)


def test_in_a_partial_clone_it_needs_the_remote_only_when_it_is_created(tmp_path: Path, upstream: Upstream) -> None:
    upstream.git("config", "uploadpack.allowFilter", "true")
    upstream.git("config", "uploadpack.allowAnySHA1InWant", "true")
    upstream.commit()
    upstream.git("checkout", "--quiet", "-b", "topic")
    upstream.write("only/topic", b"topic\n")
    upstream.commit()
    upstream.git("checkout", "--quiet", "main")
    with Workbench(tmp_path / "home", environ={}, allow_file=True) as workbench:
        repo_id = workbench.clone(str(upstream.root), partial=True).repository.id
        task = workbench.create_task(repo_id, "", "topic", options=TREE)
        upstream.root.rename(tmp_path / "gone")
        assert workbench.read_file(task.id, "only/topic").content == "topic\n"
        workbench.write_file(task.id, "n", b"1", None)
        assert [file.path for file in workbench.diff(task.id).files] == ["n"]
        assert workbench.commit(task.id, "offline").commit
        with refused(ErrorCode.REMOTE_NOT_FOUND, ErrorCode.INVALID_INPUT):
            workbench.push(task.id)
