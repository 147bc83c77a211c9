"""Submodules: laid out where the operator wants them, pinned by the tree, from remotes that were chosen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import RemarkKind, SyncState
from sandbox.workbench import Workbench
from sandbox.workbench.repositories.repository_settings import AddedFiles
from sandbox.workbench.tasks.spare_tasks import digest_purpose
from sandbox.workbench.tasks.worktrees import clean_room
from tests.unit.conftest import Upstream, add_submodule, initialised, refused
from tests.unit.desk import on_disk

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


@pytest.fixture
def lib(tmp_path: Path) -> Upstream:
    """A library that has a submodule of its own."""
    inner = initialised(tmp_path / "inner")
    inner.write("deep.txt", b"deep\n")
    lib = initialised(tmp_path / "lib")
    lib.write("lib.c", b"int lib;\n")
    lib.write("run.sh", b"#!/bin/sh\n", executable=True)
    lib.commit()
    add_submodule(lib, "inner", "../inner", inner.commit())
    return lib


@pytest.fixture
def project(upstream: Upstream, lib: Upstream) -> Upstream:
    upstream.write("main.c", b"int main;\n")
    upstream.commit()
    add_submodule(upstream, "ext/lib", "../lib", lib.oid("HEAD"))
    return upstream


@pytest.fixture
def workbench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workbench]:
    """On overlays where the host has them, or in the layout of an indirect parameter."""
    layout = getattr(request, "param", "auto")
    settings = {"remotes": {"allow_file": True}, "workspaces": {"worktree": layout, "disk": "watch"}}
    with Workbench(tmp_path / "home", environ=ENVIRON, settings=settings, allow_file=True) as found:
        yield found


def chosen(workbench: Workbench, project: Upstream) -> str:
    repo_id = workbench.clone(str(project.root)).repository.id
    workbench.set_repository(repo_id, {"submodules": True})
    return repo_id


def files_of(workbench: Workbench, repo_id: str) -> tuple[str, dict[str, tuple[str, bytes]]]:
    task = workbench.create_task(repo_id, "work")
    assert task.worktree_path is not None
    return task.id, on_disk(task.worktree_path)


def test_submodules_are_left_out_until_the_operator_wants_them(workbench: Workbench, project: Upstream) -> None:
    cloned = workbench.clone(str(project.root))
    (remark,) = (r for r in cloned.advice if r.kind is RemarkKind.SUBMODULES)
    assert f"`sandbox repo set {cloned.repository.id} --submodules`" in remark.remedy
    _, files = files_of(workbench, cloned.repository.id)
    assert "ext/lib/lib.c" not in files


@pytest.mark.parametrize("workbench", ["auto", "plain"], indirect=True)
def test_a_task_has_the_files_of_its_submodules_and_of_theirs(
    workbench: Workbench, project: Upstream, lib: Upstream
) -> None:
    repo_id = chosen(workbench, project)
    assert len(workbench.repository(repo_id).settings.submodules) == 2
    task_id, files = files_of(workbench, repo_id)
    assert files["ext/lib/run.sh"] == ("run", b"#!/bin/sh\n")
    assert files["ext/lib/inner/deep.txt"] == ("file", b"deep\n")
    status = workbench.status(task_id)
    assert (status.changes, status.rejected) == ((), ())

    lib.write("lib.c", b"int moved;\n")
    lib.commit()  # the pin did not move
    assert files_of(workbench, repo_id)[1]["ext/lib/lib.c"] == ("file", b"int lib;\n")
    workbench.clean_task(task_id)
    root = workbench.task(task_id).worktree_path
    assert root is not None
    assert (root / "ext/lib/lib.c").read_bytes() == b"int lib;\n"


@pytest.mark.parametrize("workbench", ["auto", "plain"], indirect=True)
def test_a_change_in_a_submodule_is_in_no_commit(workbench: Workbench, project: Upstream) -> None:
    task_id, _ = files_of(workbench, chosen(workbench, project))
    root = workbench.task(task_id).worktree_path
    assert root is not None
    (root / "ext/lib/lib.c").write_bytes(b"changed\n")
    (root / "main.c").write_bytes(b"changed\n")
    assert [change.path for change in workbench.status(task_id).changes] == ["main.c"]


def test_a_remote_that_was_not_chosen_waits_for_the_operator(
    workbench: Workbench, project: Upstream, tmp_path: Path
) -> None:
    repo_id = chosen(workbench, project)
    other = initialised(tmp_path / "other")
    other.write("o", b"o\n")
    add_submodule(project, "other", "../other", other.commit())
    workbench.clone(str(project.root))
    with refused(ErrorCode.POLICY_VIOLATION) as caught:
        workbench.create_task(repo_id, "work")
    assert "--submodules" in caught.value.hint
    workbench.set_repository(repo_id, {"submodules": True})
    assert "other/o" in files_of(workbench, repo_id)[1]


def test_a_pin_that_the_remote_does_not_have_is_not_found(workbench: Workbench, project: Upstream) -> None:
    repo_id = chosen(workbench, project)
    project.git("update-index", "--cacheinfo", f"160000,{'ab' * 20},ext/lib")
    project.git("commit", "--quiet", "-m", "a pin that was not pushed")
    workbench.clone(str(project.root))
    with refused(ErrorCode.NOT_FOUND):
        workbench.create_task(repo_id, "work")


def test_the_choice_can_be_taken_back(workbench: Workbench, project: Upstream) -> None:
    repo_id = chosen(workbench, project)
    workbench.set_repository(repo_id, unset=["submodules"])
    assert "ext/lib/lib.c" not in files_of(workbench, repo_id)[1]


def test_a_task_does_not_move_to_other_submodules(workbench: Workbench, project: Upstream, lib: Upstream) -> None:
    """Their files are laid out with the worktree. Control: a base with the same ones is merged."""
    repo_id = chosen(workbench, project)
    task_id, _ = files_of(workbench, repo_id)
    project.write("main.c", b"int main, other;\n")
    project.git("commit", "--quiet", "-m", "other", "main.c")
    assert workbench.sync_task(task_id, fetch=True).state is SyncState.SYNCED
    lib.write("lib.c", b"int newer;\n")
    add_submodule(project, "ext/lib", "../lib", lib.commit())
    with refused(ErrorCode.CONFLICT) as caught:
        workbench.sync_task(task_id, fetch=True)
    assert caught.value.details.split(", ")[0] == "ext/lib"


def test_s206_a_room_holds_what_its_key_says_whatever_the_settings_say_now(
    workbench: Workbench, project: Upstream
) -> None:
    """Control: each of both settings gives the other room, and a new task follows the setting."""
    repo_id = chosen(workbench, project)
    services = workbench._services
    tree = project.git("rev-parse", "HEAD^{tree}").decode().strip()
    _, git = services.repositories.open(repo_id)
    wanted = AddedFiles(submodules=workbench.repository(repo_id).settings.submodules)
    for unset in ((), ("submodules",)):
        if unset:
            workbench.set_repository(repo_id, unset=unset)
        for added in (wanted, AddedFiles()):
            with clean_room(services, repo_id, git, (tree, tree), added) as room:
                assert (room.root / "ext/lib/lib.c").exists() is bool(added.submodules)
        assert ("ext/lib/lib.c" in files_of(workbench, repo_id)[1]) is not bool(unset)


def test_s206_a_spare_task_without_submodules_is_not_taken_over_when_they_are_wanted(
    workbench: Workbench, project: Upstream
) -> None:
    """Nor one with them after they were taken back. Control: the same settings have the same purpose."""
    repo_id = workbench.clone(str(project.root)).repository.id
    services, commit = workbench._services, project.oid("HEAD")
    _, git = services.repositories.open(repo_id)
    purposes = [digest_purpose(services, git, repo_id, commit)]
    for values, unset in (({"submodules": True}, ()), ({"lfs": True}, ()), ({}, ("submodules", "lfs"))):
        workbench.set_repository(repo_id, values, unset=unset)
        purposes.append(digest_purpose(services, git, repo_id, commit))
    assert purposes[0] == purposes[-1]
    assert len(set(purposes)) == 3
