"""THREATS C11 to C13: submodules that the operator wants, of a repository that wants more.

The control of each: what plain git, or a careless writer, does with the same files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.git.entries import SYMLINK, TreeEntry
from sandbox.git.process import Git
from sandbox.workbench import Workbench
from sandbox.workspaces.added_trees import AddedTree, list_files
from sandbox.workspaces.pristine import ensure_pristine
from tests.unit.conftest import Upstream, add_submodule, initialised, refused, run

pytestmark = [pytest.mark.must]
ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def opened(home: Path, *, allow_file: bool) -> Workbench:
    settings = {"remotes": {"allow_file": allow_file}, "workspaces": {"disk": "watch"}}
    return Workbench(home, environ=ENVIRON, settings=settings, allow_file=True)


def plain_clone(repository: Upstream, target: Path) -> Path:
    """What plain git fetches."""
    words = ["git", "-c", "protocol.file.allow=always", "clone", "-q", "--recurse-submodules"]
    run([*words, str(repository.root), str(target)])
    return target


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return initialised(tmp_path / "upstream")


@pytest.fixture
def lib(tmp_path: Path) -> Upstream:
    lib = initialised(tmp_path / "lib")
    lib.write("lib.c", b"int lib;\n")
    lib.commit()
    return lib


@pytest.fixture
def secret(tmp_path: Path) -> Upstream:
    """A repository that the operator can read, and whose commit the attacker knows."""
    found = initialised(tmp_path / "secret")
    found.write("key", b"hunter2\n")
    found.commit()
    return found


@pytest.fixture
def project(upstream: Upstream, lib: Upstream) -> Upstream:
    upstream.write("f", b"x\n")
    upstream.commit()
    add_submodule(upstream, "lib", "../lib", lib.oid("HEAD"))
    return upstream


@pytest.fixture
def workbench(tmp_path: Path) -> Iterator[Workbench]:
    with opened(tmp_path / "home", allow_file=True) as found:
        yield found


@pytest.mark.parametrize("where", ["top", "nested"])
def test_c11_a_later_commit_cannot_name_another_remote(
    where: str, workbench: Workbench, project: Upstream, lib: Upstream, secret: Upstream, tmp_path: Path
) -> None:
    """The remote is even registered: its clone is here, and our credentials could fetch it."""
    repo_id = workbench.clone(str(project.root)).repository.id
    workbench.set_repository(repo_id, {"submodules": True})
    workbench.create_task(repo_id, "before")
    workbench.clone(str(secret.root))
    if where == "top":
        add_submodule(project, "grab", "../secret", secret.oid("HEAD"))
    else:
        pin = add_submodule(lib, "grab", "../secret", secret.oid("HEAD"))
        project.git("update-index", "--cacheinfo", f"160000,{pin},lib")
        project.git("commit", "--quiet", "-m", "a newer library")
    found = plain_clone(project, tmp_path / "plain")
    assert list(found.rglob("key")), "void: plain git fetches it"
    workbench.clone(str(project.root))
    with refused(ErrorCode.POLICY_VIOLATION):
        workbench.create_task(repo_id, "after")
    assert not list((tmp_path / "home").rglob("key"))


def test_c11_a_repository_cannot_choose_what_is_read_of_this_host(
    project: Upstream, secret: Upstream, tmp_path: Path
) -> None:
    add_submodule(project, "grab", f"file://{secret.root}", secret.oid("HEAD"))
    assert list(plain_clone(project, tmp_path / "plain").rglob("key")), "void: plain git fetches it"
    with opened(tmp_path / "home", allow_file=False) as workbench:
        repo_id = workbench.clone(str(project.root)).repository.id
        with refused(ErrorCode.INVALID_INPUT):
            workbench.set_repository(repo_id, {"submodules": True})
        assert workbench.repository(repo_id).settings.submodules == ()


def test_c12_files_of_a_submodule_stay_in_its_folder(upstream: Upstream, lib: Upstream, tmp_path: Path) -> None:
    """The parent's tree has a link at the submodule's path, as a forged tree may."""
    victim = tmp_path / "victim"
    victim.mkdir()
    upstream.write("target", str(victim).encode())
    upstream.commit()
    git, tree = Git(upstream.git_dir), lib.oid("HEAD^{tree}")
    link = TreeEntry(b"lib", SYMLINK, upstream.oid("HEAD:target"), len(str(victim)))
    added = (AddedTree(b"lib", Git(lib.git_dir), tree),)

    careless = tmp_path / "careless"
    careless.mkdir()
    (careless / "lib").symlink_to(victim)
    for path, _, chunks in list_files(added[0].git, added[0].entries()):
        assert not isinstance(chunks, bytes)
        (careless / os.fsdecode(path)).write_bytes(b"".join(chunks))
    assert (victim / "lib.c").exists(), "void: a careless writer follows the link"
    (victim / "lib.c").unlink()

    with refused(ErrorCode.UNSAFE_REPOSITORY):
        ensure_pristine(git, [link], tmp_path / "checkout", None, added)
    assert not list(victim.iterdir())
    assert not (tmp_path / "checkout").exists()


@pytest.mark.parametrize("path", ["../out", ".git/hooks", "a/../../out"])
def test_c12_a_path_that_leaves_the_tree_is_refused(
    path: str, workbench: Workbench, project: Upstream, lib: Upstream, tmp_path: Path
) -> None:
    root = tmp_path / "worktree"
    there = (root / path).resolve()
    assert not there.is_relative_to(root) or ".git" in there.parts, "void: joined carelessly it leads out"
    (project.root / ".gitmodules").write_text(f'[submodule "lib"]\n\tpath = {path}\n\turl = ../lib\n')
    project.git("commit", "--quiet", "-am", "elsewhere")
    repo_id = workbench.clone(str(project.root)).repository.id
    with refused(ErrorCode.UNSAFE_REPOSITORY):
        workbench.set_repository(repo_id, {"submodules": True})


def test_c13_submodules_within_submodules_come_to_an_end(
    workbench: Workbench, upstream: Upstream, tmp_path: Path
) -> None:
    """Each commit has the one before it as a submodule."""
    upstream.write("f", b"x\n")
    commit = add_submodule(upstream, "self", f"../{upstream.root.name}", upstream.commit())
    for _ in range(7):
        upstream.git("update-index", "--cacheinfo", f"160000,{commit},self")
        upstream.git("commit", "--quiet", "-m", "deeper")
        commit = upstream.oid("HEAD")
    deepest = plain_clone(upstream, tmp_path / "plain") / "/".join(["self"] * 8)
    assert (deepest / "f").exists(), "void: plain git follows all of them"
    repo_id = workbench.clone(str(upstream.root)).repository.id
    with refused(ErrorCode.QUOTA_EXCEEDED):
        workbench.set_repository(repo_id, {"submodules": True})
