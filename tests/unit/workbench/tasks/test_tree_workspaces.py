"""Workspaces of kind tree: kept by their refs, shared by one controller, fetched on demand, opened as file systems."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from sandbox.errors import ErrorCode
from sandbox.models import WorkspaceRequest
from sandbox.store import journal
from sandbox.store.home import Home
from sandbox.workbench import Workbench
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
