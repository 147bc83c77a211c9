"""Workspaces of kind tree: kept by their refs, shared by one controller, fetched on demand, opened as file systems."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import fsspec
import pytest

from sandbox.errors import ErrorCode
from sandbox.models import WorkspaceRequest
from sandbox.store import journal
from sandbox.store.home import Home
from sandbox.workbench import Workbench
from sandbox.workbench.tasks.tree_workspaces import _Refs
from sandbox.workspaces.tree_workspace import TreeWorkspace
from tests.unit.conftest import Upstream, refused


@pytest.fixture
def upstream(upstream: Upstream) -> Upstream:
    upstream.git("config", "uploadpack.allowFilter", "true")
    upstream.git("config", "uploadpack.allowAnySHA1InWant", "true")
    upstream.write("README", b"read me\n")
    upstream.write("src/a.py", b"a = 1\n")
    upstream.commit()
    upstream.git("checkout", "--quiet", "-b", "topic")
    upstream.write("only/topic", b"topic\n")
    upstream.write("only/later", b"later\n")
    upstream.commit()
    upstream.git("checkout", "--quiet", "main")
    return upstream


def workbench(home: Path) -> Workbench:
    return Workbench(home, allow_file=True, environ={})


def acquire(bench: Workbench, hint: str, *, tenant: str = "", writable: bool = True) -> TreeWorkspace:
    found = bench.acquire_workspace("tree", WorkspaceRequest(hint=hint, tenant=tenant, writable=writable))
    assert isinstance(found, TreeWorkspace)
    return found


def test_a_tree_lives_as_long_as_its_refs(upstream: Upstream, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with workbench(home) as bench:
        repo = bench.clone(str(upstream.root)).repository.id
        one, same, other = acquire(bench, repo), acquire(bench, repo), acquire(bench, repo, tenant="b")
        one.write("src/b.py", b"b = 2\n")
        assert same.read("src/b.py") == b"b = 2\n"
        assert not other.exists("src/b.py")
        assert (one.id == same.id, one.id == other.id) == (True, False)
        snapshot = one.snapshot()
        one.write("README", b"changed\n")
        one.close()
        with refused(ErrorCode.CONFLICT):
            one.read("README")
        with refused(ErrorCode.DIRTY_WORKSPACE):
            bench.release_workspace(one.id)
    with workbench(home) as bench:
        again = acquire(bench, repo)
        assert again.read("README") == b"changed\n"
        again.restore(snapshot)
        assert [change.path for change in again.diff()] == ["src/b.py"]
        commit = again.commit("A change", author="A. Tester <a@example.invalid>")
        assert again.metadata["git.commit"] == commit
        with refused(ErrorCode.NOTHING_TO_COMMIT):
            again.commit("again")
        with refused(ErrorCode.POLICY_VIOLATION):
            acquire(bench, repo, writable=False).write("x", b"")
        with refused(ErrorCode.UNSAFE_PATH):  # the path policy of the repository
            again.write(".github/workflows/ci.yml", b"")
        again.close()
    with workbench(home) as bench:
        assert acquire(bench, repo).value.base_commit == commit
        bench.release_workspace(again.id)
        bench.release_workspace(again.id)
        assert [record.tenant for record in bench.list_workspaces("tree")] == ["b"]
        assert acquire(bench, repo).value.base_commit != commit


def test_what_another_process_kept_is_there_when_it_is_acquired_again(upstream: Upstream, tmp_path: Path) -> None:
    """Also after one that only read, and closed later: it undid what the other one had saved."""
    home = tmp_path / "home"
    with workbench(home) as long, workbench(home) as other:
        repo = long.clone(str(upstream.root)).repository.id
        idle = acquire(long, repo)
        writer = acquire(other, repo)
        writer.write("draft", b"hours of work\n")
        writer.close()
        idle.close()
        again = acquire(long, repo)
        assert again.read("draft") == b"hours of work\n"
        again.close()
        writer = acquire(other, repo)
        assert writer.read("draft") == b"hours of work\n"
        commit = writer.commit("The draft")
        again = acquire(long, repo)
        assert (again.metadata["git.commit"], list(again.diff())) == (commit, [])
        again.write("more", b"more\n")
        assert again.commit("More") != commit


def test_of_two_processes_that_write_neither_loses_anything(upstream: Upstream, tmp_path: Path) -> None:
    """The second one is refused, and what it wrote is a snapshot. Control: the first one is saved."""
    home = tmp_path / "home"
    with workbench(home) as first, workbench(home) as second:
        repo = first.clone(str(upstream.root)).repository.id
        one, two = acquire(first, repo), acquire(second, repo)
        one.write("one", b"1\n")
        two.write("two", b"2\n")
        one.close()
        with refused(ErrorCode.CONFLICT) as caught:
            two.commit("two")
        assert caught.value.reason == "overtaken"
        with refused(ErrorCode.CONFLICT) as caught:
            two.close()
        two = acquire(second, repo)
        assert (two.exists("one"), two.exists("two")) == (True, False)
        two.restore((caught.value.data or {})["snapshot"])
        assert (two.exists("one"), two.exists("two")) == (False, True)
        two.commit("two, by intent")


def test_what_another_process_saved_is_not_released_by_one_that_wrote_and_undid_it(
    upstream: Upstream, tmp_path: Path
) -> None:
    """Its content was that of the base again. Control: it is released once that is committed."""
    home = tmp_path / "home"
    with workbench(home) as first, workbench(home) as second:
        repo = first.clone(str(upstream.root)).repository.id
        tree = acquire(first, repo)
        tree.write("t", b"tried\n")
        tree.restore("pristine")
        other = acquire(second, repo)
        other.write("work", b"hours\n")
        other.close()
        with refused(ErrorCode.CONFLICT):
            first.release_workspace(tree.id)
        tree.close()
        tree = acquire(first, repo)
        assert tree.read("work") == b"hours\n"
        with refused(ErrorCode.DIRTY_WORKSPACE):
            first.release_workspace(tree.id)
        tree.commit("work")
        tree.close()
        first.release_workspace(tree.id)


def test_a_draft_of_a_process_that_was_killed_after_its_commit_is_not_put_over_it(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    with workbench(home) as bench:
        repo = bench.clone(str(upstream.root)).repository.id
        tree = acquire(bench, repo)
        tree.write("a", b"draft\n")
        tree.close()
    with workbench(home) as killed:
        monkeypatch.setattr(_Refs, "_drop_working", lambda *_: None)
        tree = acquire(killed, repo)
        tree.write("a", b"final\n")
        commit = tree.commit("final")
    monkeypatch.undo()
    with workbench(home) as bench:
        tree = acquire(bench, repo)
        assert (tree.read("a"), list(tree.diff()), tree.metadata["git.commit"]) == (b"final\n", [], commit)
        tree.write("a", b"next\n")
        tree.close()
    with workbench(home) as bench:
        assert acquire(bench, repo).read("a") == b"next\n"


def test_a_commit_that_only_a_later_draft_leads_to_is_an_only_copy(upstream: Upstream, tmp_path: Path) -> None:
    """`repo remove` forgot it when the draft had its files no more. Control: without a commit there is none."""
    for is_committed in (True, False):
        with workbench(tmp_path / str(is_committed)) as bench:
            repo = bench.clone(str(upstream.root)).repository.id
            tree = acquire(bench, repo)
            tree.write("work", b"w\n")
            if is_committed:
                tree.commit("never pushed")
            tree.remove("work")
            tree.close()
            with refused(ErrorCode.DIRTY_WORKSPACE) if is_committed else nullcontext():
                bench.remove_repository(repo)


def test_a_partial_clone_fetches_what_is_read_once_and_is_offline_by_type(upstream: Upstream, tmp_path: Path) -> None:
    with workbench(tmp_path / "home") as bench:
        repo = bench.clone(str(upstream.root), partial=True).repository.id
        tree = acquire(bench, f"{repo}@topic")
        assert tree.read("only/topic") == b"topic\n"
        hidden = upstream.root.rename(tmp_path / "gone")
        assert tree.read("only/topic") == b"topic\n"
        with refused(ErrorCode.REMOTE_NOT_FOUND, ErrorCode.INVALID_INPUT):
            tree.read("only/later")
        hidden.rename(upstream.root)
        assert [entry.size for entry in tree.list("only")] == [6, 6]


def test_trees_and_tasks_open_as_file_systems(upstream: Upstream, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    with workbench(tmp_path / "home") as bench:
        repo = bench.clone(str(upstream.root)).repository.id
        task = bench.create_task(repo, "a task").id
        with fsspec.open(f"sandbox+tree://{repo}@main/src/a.py", "rb", home=home) as file:
            assert file.read() == b"a = 1\n"
        with fsspec.open(f"sandbox+task://{task}/src/c.py", "wb", home=home) as file:
            file.write(b"c = 3\n")
        assert bench.read_file(task, "src/c.py").content == "c = 3\n"
        entries = journal.read_recent_entries(Home(tmp_path / "home"), task)
        assert "write" in {entry.operation for entry in entries}
