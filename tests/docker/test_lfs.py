"""A project whose test reads a file of Git LFS: verified in a clean room, and again over the checkout of a task."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest
import trustme

from devtools.forges.lfs import serving_lfs, store_credential
from sandbox.models import RemarkKind
from sandbox.workbench import VerifyOptions, Workbench
from tests.docker.test_submodules import unmounted
from tests.unit.conftest import add_submodule, initialised

MODEL = bytes(range(256)) * 4096


@pytest.mark.usefixtures("build_image")
def test_checks_see_files_of_lfs_and_their_verdicts_are_not_those_of_pointers(tmp_path: Path) -> None:
    project, authority = initialised(tmp_path / "project"), trustme.CA()
    with (
        unmounted(tmp_path),
        serving_lfs(project.git_dir, authority) as host,
    ):
        store_credential(tmp_path / "home", host, authority)
        project.write(".gitattributes", b"*.bin filter=lfs -text\n")
        project.write("model.bin", host.rules.add(MODEL))
        project.write("note", b"x\n")
        digest = sha256(MODEL).hexdigest()
        project.write("Makefile", f"test:\n\t@echo '{digest}  model.bin' | sha256sum -c\n".encode())
        project.commit()
        with Workbench(tmp_path / "home", environ=os.environ) as workbench:
            repo_id = workbench.clone(host.url).repository.id
            workbench.set_repository(repo_id, {"lfs": True})
            first = workbench.run(host.url)
            assert first.verified, first.runs
            pointers = workbench.run(host.url, options=VerifyOptions(lfs=False))
            assert not pointers.verified  # control: with the pointer the test fails, whatever is known of the file
            assert RemarkKind.LFS in {remark.kind for remark in pointers.advice}

            task = workbench.create_task(repo_id, "work")
            assert task.worktree_path is not None
            (task.worktree_path / "note").write_bytes(b"edited\n")
            assert workbench.run_checks(task.id, ["test"])[0].verdict == "passed"
            workbench.commit(task.id, "edit a note")
            again = workbench.verify(task.id)  # a room over the checkout of the task's base
            assert again.verified, again.runs
            assert host.stand_in.count("GET", "/objects/.*") == 1
            assert {run.cached for run in workbench.run(host.url).runs} == {True}


@pytest.mark.usefixtures("build_image")
def test_the_verdict_of_a_tree_is_not_one_with_other_files_in_its_submodule(tmp_path: Path) -> None:
    """The submodule's own setting decides what its folder holds, and the tree of the project stays the same."""
    lib, project = (initialised(tmp_path / name) for name in ("lib", "project"))
    with unmounted(tmp_path), serving_lfs(lib.git_dir, authority := trustme.CA()) as host:
        store_credential(tmp_path / "home", host, authority)
        lib.write(".gitattributes", b"*.bin filter=lfs -text\n")
        lib.write("model.bin", host.rules.add(MODEL))
        digest = sha256(MODEL).hexdigest()
        project.write("Makefile", f"test:\n\t@echo '{digest}  lib/model.bin' | sha256sum -c\n".encode())
        project.commit()
        add_submodule(project, "lib", host.url, lib.commit())
        settings = {"remotes": {"allow_file": True}}
        with Workbench(tmp_path / "home", environ=os.environ, settings=settings, allow_file=True) as workbench:
            url = str(project.root)
            workbench.set_repository(workbench.clone(url).repository.id, {"submodules": True})
            lib_id = next(r.id for r in workbench.repositories() if r.remote_url == host.url)
            workbench.set_repository(lib_id, {"lfs": True})
            with_content = workbench.run(url)
            assert with_content.verified, with_content.runs
            assert workbench.run(url).runs[-1].cached  # control: the same files are answered from the cache

            workbench.set_repository(lib_id, {"lfs": False})
            with_pointer = workbench.run(url)
            assert (with_pointer.tree, with_pointer.verified) == (with_content.tree, False), with_pointer.runs
            workbench.set_repository(lib_id, {"lfs": True})
            assert workbench.run(url).runs[-1].cached
