"""THREATS S90 to S92: workspaces of every kind, for programs: what is planted in one leads neither out nor into git."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from sandbox import Workbench
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import WorkspaceRequest
from sandbox.testing.workspace_contract import each_path_operation, refused
from sandbox.workspaces.workspace import PRISTINE, Workspace

pytestmark = [pytest.mark.must, pytest.mark.one_git]
KINDS = ("local", "ephemeral", "worktree", "clone", "tree")
WITH_DIRECTORY = [kind for kind in KINDS if kind != "tree"]  # links in a tree can only be committed: a test below
SECRET = "of another project"
IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.invalid")


def git(folder: Path, *args: str) -> None:
    """A person's git, with the person's habits."""
    subprocess.run(["git", "-C", folder, *IDENTITY, *args], check=True, capture_output=True)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory that no workspace contains."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    return folder


@pytest.fixture
def workbench(tmp_path: Path) -> Iterator[Workbench]:
    """A controller with one repository."""
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "--quiet", "--initial-branch=main")
    (source / "a").write_text("a\n")
    git(source, "add", "a")
    git(source, "commit", "--quiet", "--message=a")
    with Workbench(tmp_path / "home", environ={}, allow_file=True) as found:
        found.clone(source.as_uri())
        yield found


@pytest.fixture(params=KINDS)
def workspace(request: pytest.FixtureRequest, workbench: Workbench, tmp_path: Path) -> Iterator[Workspace]:
    """One of each kind, with a file `a`."""
    (tmp_path / "own").mkdir()
    hint = {"local": str(tmp_path / "own"), "ephemeral": None}.get(request.param, workbench.repositories()[0].id)
    found = workbench.acquire_workspace(request.param, WorkspaceRequest(hint=hint, tenant="victim"))
    found.write("a", b"a\n")
    yield found
    if found.capabilities:
        found.restore(PRISTINE)
    workbench.release_workspace(found.id)


@pytest.mark.parametrize("workspace", WITH_DIRECTORY, indirect=True)
def test_s90_no_path_and_no_link_leads_out_of_a_workspace(workspace: Workspace, outside: Path) -> None:
    """Control: a program that joins the path to the root reads the secret, and writes beside it."""
    root = workspace.root
    assert root is not None
    (root / "way").symlink_to(outside)
    (root / "end").symlink_to(outside / "secret")
    up = "/".join([".."] * len(root.parts)) + str(outside / "secret")
    for path in ("way/secret", "end", up, str(outside / "secret")):
        assert (root / path).read_text() == SECRET
    (root / "way/control").write_text("written")
    (outside / "control").unlink()
    for name, act in each_path_operation(workspace).items():
        for path in ("way/secret", "way/new", up, str(outside / "secret"), "way/../../x"):
            with refused(ErrorCode.UNSAFE_PATH, what=f"{name} {path}"):
                act(path)
    for act in (workspace.read, lambda path: workspace.write(path, b"planted")):
        with refused(ErrorCode.UNSAFE_PATH):
            act("end")
    assert not {e.path for e in workspace.walk()} & {"way/secret", "way/control"}
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": SECRET}
    (root / "way").unlink()
    (root / "end").unlink()


@pytest.mark.parametrize("workspace", WITH_DIRECTORY, indirect=True)
def test_s90_removing_a_directory_removes_links_and_not_what_they_lead_to(workspace: Workspace, outside: Path) -> None:
    """Control: a program that empties each directory that it finds, links included, empties the one outside."""
    root = workspace.root
    assert root is not None
    (root / "folder/below").mkdir(parents=True)
    (root / "folder/below/way").symlink_to(outside)
    assert [path.name for folder in (root / "folder/below").iterdir() for path in folder.iterdir()] == ["secret"]
    if workspace.kind == "worktree":  # edits of a task take files only
        with refused(ErrorCode.UNSAFE_PATH):
            workspace.remove("folder", recursive=True)
        (root / "folder/below/way").unlink()
    else:
        workspace.remove("folder", recursive=True)
        assert not workspace.exists("folder")
    assert (outside / "secret").read_text() == SECRET


def test_s90_links_that_a_repository_commits_lead_out_of_no_tree(
    workbench: Workbench, outside: Path, tmp_path: Path
) -> None:
    """Control: in a person's checkout of the same commit the links lead to the secret."""
    source = tmp_path / "source"
    (source / "way").symlink_to(outside)
    (source / "end").symlink_to(outside / "secret")
    git(source, "add", "way", "end")
    git(source, "commit", "--quiet", "--message=links")
    assert (source / "way/secret").read_text() == (source / "end").read_text() == SECRET
    workbench.clone(source.as_uri())
    request = WorkspaceRequest(hint=workbench.repositories()[0].id, tenant="links")
    tree = workbench.acquire_workspace("tree", request)
    assert {"way", "end"} <= {entry.path for entry in tree.walk()}
    up = "/".join([".."] * 9) + str(outside / "secret")
    for name, act in each_path_operation(tree).items():
        for path in ("way/secret", "way/new", up, str(outside / "secret"), "way/../../x"):
            if name in {"exists", "stat", "list", "walk", "remove", "read"} and path in {"way/secret", "way/new"}:
                continue  # nothing is below a link: said as missing
            with refused(ErrorCode.UNSAFE_PATH, what=f"{name} {path}"):
                act(path)
    assert not tree.exists("way/secret")
    for act in (tree.read, lambda path: tree.write(path, b"planted")):
        with refused(ErrorCode.UNSAFE_PATH, ErrorCode.NOT_FOUND):
            act("end")
    tree.remove("way")
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret": SECRET}
    tree.restore(PRISTINE)
    workbench.release_workspace(tree.id)


def test_s91_files_of_a_clone_do_not_command_git(workbench: Workbench, tmp_path: Path) -> None:
    """Control: `git status` in the directory runs the command, and so does `git add` with the nested repository."""
    request = WorkspaceRequest(hint=workbench.repositories()[0].id, tenant="victim")
    workspace = workbench.acquire_workspace("clone", request)
    root, hit = workspace.root, tmp_path / "hit"
    assert root is not None
    payload = tmp_path / "payload"
    payload.write_text(f"#!/bin/sh\ntouch {hit}\ncat\n")
    payload.chmod(0o755)
    mask = (root / ".git").read_bytes()
    (root / ".git").unlink()
    for folder in (root, root / "nested"):
        folder.mkdir(exist_ok=True)
        git(folder, "init", "--quiet", "--initial-branch=main")
        with (folder / ".git/config").open("a") as config:
            config.write(f'[core]\n\tfsmonitor = {payload}\n[filter "x"]\n\tclean = {payload}\n\tsmudge = {payload}\n')
        (folder / ".gitattributes").write_text("* filter=x\n")
        (folder / "a").write_text("changed\n")
    subprocess.run(["git", "-C", root, "status"], check=False, capture_output=True)
    assert hit.exists()
    hit.unlink()
    assert workspace.diff()
    state = workspace.snapshot()
    workspace.restore(PRISTINE)
    workspace.restore(state)
    workspace.commit("what was planted")
    with refused(ErrorCode.UNSAFE_PATH):
        workspace.write("nested/.git/config", b"")
    workspace.remove("nested", recursive=True)
    workspace.restore(PRISTINE)
    workbench.release_workspace(workspace.id)
    assert not hit.exists()
    assert not root.exists()
    assert mask.startswith(b"gitdir: /nonexistent/")


def test_s92_a_tenant_gets_no_workspace_of_another(workspace: Workspace, workbench: Workbench) -> None:
    """Control: with the tenant's own name the same hint gives the same files."""
    (mine,) = [found for found in workbench.list_workspaces(workspace.kind) if found.id == workspace.id]
    same = workbench.acquire_workspace(workspace.kind, WorkspaceRequest(hint=mine.hint, tenant="victim"))
    assert (same.id, same.root) == (workspace.id, workspace.root)
    hints = [mine.hint, f"{mine.hint}/below", workspace.id, f"../{workspace.kind}/{workspace.id}"]
    for guess, hint in product(["", "../victim", 'victim"', "victim\x00"], hints):
        try:
            found = workbench.acquire_workspace(workspace.kind, WorkspaceRequest(hint=hint, tenant=guess))
        except SandboxError:
            continue
        assert found.id != workspace.id, guess
        assert found.root is None or found.root != workspace.root, guess
        workbench.release_workspace(found.id)
    assert workspace.read("a") == b"a\n"
