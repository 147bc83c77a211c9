"""The tree of a directory as it is: the one that plain git would build of it, without git reading it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.git.objects import list_tree
from sandbox.models import ChosenSettings, UncommittedChanges
from sandbox.workbench import Workbench
from sandbox.workbench.checks.directory_tree import build_directory_tree
from sandbox.workbench.repositories.clone import update_cache
from sandbox.workspaces.changes import CHANGED_BYTES
from tests.unit.conftest import Upstream, refused


@pytest.fixture
def project(upstream: Upstream) -> Upstream:
    upstream.write("a.txt", b"one\n")
    upstream.write("run.sh", b"#!/bin/sh\n", executable=True)
    upstream.write("d/b.txt", b"two\n")
    upstream.write("tracked.log", b"kept although ignored\n")
    upstream.write(".gitignore", b"*.log\n/build/\n")
    (upstream.root / "link").symlink_to("a.txt")
    upstream.commit()
    return upstream


def build(source: Upstream, home: Path, ref: str = "HEAD") -> tuple[str, list[bytes], UncommittedChanges]:
    """Tree, paths and changes."""
    workbench = Workbench(home, environ={"PATH": os.environ["PATH"], "HOME": str(home)}, allow_file=True)
    services = workbench._services
    updated = update_cache(services, str(source.root))
    with build_directory_tree(services, updated, ref, updated.find_commit(ref), ChosenSettings()) as built:
        return built.tree, [entry.path for entry in list_tree(built.git, built.tree)], built.changes


def by_git(source: Upstream) -> str:
    """The tree of `git add -A`, in an index of its own."""
    env = {"GIT_INDEX_FILE": str(source.root.parent / "index")}
    source.git("read-tree", "HEAD", env=env)
    source.git("add", "-A", env=env)
    return source.git("write-tree", env=env).decode().strip()


def type_change(source: Upstream) -> None:
    (source.root / "d" / "b.txt").unlink()
    (source.root / "d" / "b.txt").symlink_to("../a.txt")
    (source.root / "link").unlink()
    source.write("link", b"a file now\n", executable=True)


def without_modes(source: Upstream) -> None:
    source.git("config", "core.fileMode", "false")
    (source.root / "a.txt").chmod(0o755)
    (source.root / "run.sh").write_bytes(b"#!/bin/sh\necho\n")
    (source.root / "run.sh").chmod(0o644)


def sparse(source: Upstream) -> None:
    source.git("update-index", "-q", "--refresh")  # what was copied has other times, and git would keep its files
    source.git("sparse-checkout", "set", "--no-cone", "/a.txt")
    assert not (source.root / "d").exists()
    source.write("a.txt", b"changed\n")


CASES: dict[str, Callable[[Upstream], object]] = {
    "nothing": lambda _: None,
    "modified": lambda s: s.write("a.txt", b"ONE\n"),
    "deleted": lambda s: (s.root / "d" / "b.txt").unlink(),
    "new": lambda s: (s.write("new/deep/x", b"x"), s.write("y", b"", executable=True)),
    "ignored": lambda s: (s.write("x.log", b""), s.write("build/out", b""), s.write("tracked.log", b"changed\n")),
    "excluded here": lambda s: (s.write(".git/info/exclude", b"/mine\n"), s.write("mine", b""), s.write("d/mine", b"")),
    "ignored since": lambda s: (s.write(".gitignore", b"/cache/\n"), s.write("cache/x", b""), s.write("y.log", b"")),
    "folders that ignore themselves": lambda s: [
        (s.write(f"{folder}/.gitignore", b"# by a tool\n*\n"), s.write(f"{folder}/lib/x", b""))
        for folder in (".venv", "d/.cache", "new/deep")
    ],
    "folders that ignore some": lambda s: (
        s.write("d/.gitignore", b"*.o\n/x/\n!z.log\n"),
        [s.write(f"d/{name}", b"") for name in ("a.o", "x/y", "deeper/x/y", "deeper/b.o", "z.log")],
    ),
    "executable": lambda s: (s.root / "a.txt").chmod(0o755),
    "types": type_change,
    "no modes": without_modes,
    "sparse": sparse,
}


@pytest.mark.parametrize("change", CASES.values(), ids=CASES)
def test_it_is_the_tree_that_git_would_build(
    project: Upstream, tmp_path: Path, change: Callable[[Upstream], object]
) -> None:
    change(project)
    tree, _, changes = build(project, tmp_path / "home")
    assert tree == by_git(project)
    named = project.git("diff-tree", "-r", "--name-only", "-z", "HEAD", tree).decode().split("\0")
    assert [found.path for found in changes.changes] == sorted(filter(None, named))
    assert (changes.complete, changes.included) == (True, True)


def test_what_no_tree_can_have_is_left_out_and_named(project: Upstream, tmp_path: Path) -> None:
    project.git("init", "-q", "vendor/lib")
    project.write("vendor/lib/file", b"x")
    os.mkfifo(project.root / "pipe")
    (project.root / "out").symlink_to("/etc/passwd")
    project.write("kept", b"")
    _, paths, changes = build(project, tmp_path / "home")
    assert [found.path for found in changes.changes] == ["kept"]
    assert set(changes.left_out) == {"out", "pipe", "vendor/lib/.git", "vendor/lib/file"}
    assert b"kept" in paths


@pytest.mark.parametrize("pointer", [True, False], ids=["of a submodule", "a repository"])
def test_a_git_directory_among_tracked_files_changes_nothing(
    project: Upstream, tmp_path: Path, *, pointer: bool
) -> None:
    if pointer:
        project.write("d/.git", b"gitdir: ../.git/modules/d\n")
    else:
        project.git("init", "-q", "d")
        project.write("d/new", b"x")
    expected = by_git(project)
    tree, _, changes = build(project, tmp_path / "home")
    assert (tree, changes.left_out) == (expected, ())


def test_its_objects_are_not_kept(project: Upstream, tmp_path: Path) -> None:
    project.write("large", os.urandom(100_000))
    tree, _, _ = build(project, tmp_path / "home")
    (clone,) = (tmp_path / "home" / "repositories" / "clones").iterdir()
    assert project.git("--git-dir", str(clone), "cat-file", "-e", tree, code=1) == b""


@pytest.mark.parametrize("ref", ["main", "other"])
def test_a_ref_has_no_uncommitted_changes(project: Upstream, tmp_path: Path, ref: str) -> None:
    project.git("branch", "other")
    with refused(ErrorCode.INVALID_INPUT):
        build(project, tmp_path / "home", ref)


def test_a_bare_repository_has_no_uncommitted_changes(project: Upstream, tmp_path: Path) -> None:
    project.git("clone", "-q", "--bare", ".", str(tmp_path / "bare"))
    with refused(ErrorCode.INVALID_INPUT):
        build(Upstream(tmp_path / "bare"), tmp_path / "home")


def test_a_file_that_is_too_large_is_named_with_the_limit_and_what_a_person_can_do(
    project: Upstream, tmp_path: Path
) -> None:
    with (project.root / "d" / "huge.bin").open("wb") as file:
        file.truncate(CHANGED_BYTES + 1)
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        build(project, tmp_path / "home")
    assert f"'d/huge.bin' has {CHANGED_BYTES + 1} bytes, and a file may have {CHANGED_BYTES}" in caught.value.brief
    assert ".gitignore" in caught.value.hint
    assert "sandbox task" not in caught.value.hint
