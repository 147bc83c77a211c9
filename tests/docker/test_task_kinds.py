"""A task of kind tree gets files at its first check, and verify needs none. Real engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.files.mount_points import unmount_below
from sandbox.models import TaskOptions, Verdict
from sandbox.workbench import Workbench
from tests.unit.conftest import initialised

PROFILE = """
label = "bench"
image = "base"
priority = 99
[[detect.any]]
file = "marker"
[[check]]
id = "test"
label = "test"
argv = ["grep", "-qx", "mended", "source"]
"""


@pytest.mark.parametrize("layout", ["overlay", "plain"])
def test_a_tree_is_verified_without_files_and_laid_out_at_its_first_check(tmp_path: Path, layout: str) -> None:
    (tmp_path / "home" / "profiles").mkdir(parents=True)
    (tmp_path / "home" / "profiles" / "bench.toml").write_text(PROFILE)
    upstream = initialised(tmp_path / "upstream")
    upstream.write("marker")
    upstream.write("source", b"broken\n")
    upstream.commit()
    settings = {"workspaces": {"worktree": layout}}
    with Workbench(tmp_path / "home", environ=dict(os.environ), allow_file=True, settings=settings) as workbench:
        repo_id = workbench.clone(str(upstream.root)).repository.id
        task = workbench.create_task(repo_id, options=TaskOptions(workspace_kind="tree"))
        workbench.write_file(task.id, "source", "mended\n", workbench.read_file(task.id, "source").sha256)
        workbench.commit(task.id, "mend")
        assert workbench.verify(task.id).verified
        worktree = tmp_path / "home" / "repositories" / "worktrees" / repo_id / task.id
        assert (worktree.exists(), workbench.task(task.id).worktree_path) == (False, None)
        workbench.write_file(task.id, "new", "uncommitted\n", None)
        assert [run.verdict for run in workbench.run_checks(task.id, ["test"])] == [Verdict.PASSED]
        assert (worktree / "new").read_text() == "uncommitted\n"
        assert workbench.task(task.id).worktree_path == worktree
        assert [change.path for change in workbench.status(task.id).changes] == ["new"]
        workbench.close_task(task.id, delete_worktree=True, discard=True)
        assert not worktree.exists()
    unmount_below(tmp_path)
