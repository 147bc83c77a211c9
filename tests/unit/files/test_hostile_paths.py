"""A property: no path, whatever its text, leads out of a tree that was prepared for it. Ids: THREATS section H."""

from __future__ import annotations

import itertools
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox.errors import SandboxError
from sandbox.files.tree import WorktreeFiles
from sandbox.policy.paths import RepoPath, parse_repo_path

HOSTILE = [
    "f", "d", "d/f", "out", "abs", "in", "loop", "cwd", "fifo", ".git", ".GIT", "config", "secret", "..", ".", "", "~",
    "new", "%FF", "%2e%2e", "a\\b", "worktree", "outside", "OUTSIDE",
]  # fmt: skip
UP = 4
"""Most components of a path: as many directories lie between the tree and the test's own top."""
NAMES = st.text(st.characters(exclude_characters="/"), max_size=20)
WAYS_OUT = ["out/secret", "abs/secret", "cwd/secret", "d/out/secret", "../outside/secret", "OUTSIDE/secret"]
JOINED = st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=UP).map("/".join)
PATHS = JOINED.filter(lambda path: not path.startswith("/")) | NAMES


def hostile_tree(root: Path, outside: Path) -> None:
    """Links out and in, through a magic link and around in a circle, a FIFO, and git's own directory.

    What is attacked belongs to the test: were the protection gone, nothing else could be written or deleted.
    """
    for folder in (root / "d", root / ".git", outside):
        folder.mkdir(parents=True)
    for folder in (root / "d", root / ".git"):
        (folder / "config").write_bytes(b"[core]")
        (folder / "f").write_bytes(b"inside")
    (root / "f").write_bytes(b"inside")
    (outside / "secret").write_bytes(b"TOPSECRET")
    links = {"out": "../outside", "abs": str(outside), "in": "d", "loop": "loop", "cwd": "/proc/self/cwd"}
    for name, target in {**links, "d/out": "../../outside"}.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "fifo")


def snapshot(folder: Path, without: Path | None = None) -> dict[str, tuple[int, bytes]]:
    """Every name below a folder, but for what is below another, with inode and content."""
    names = (p for p in folder.rglob("*") if without is None or without not in p.parents)
    return {str(p): (p.lstat().st_ino, p.read_bytes() if p.is_file() else b"") for p in names}


def naive(root: Path, text: str) -> bytes | None:
    """What opening the joined path gives: without the file kinds that would block."""
    try:
        fd = os.open(os.path.join(root, text), os.O_RDONLY | os.O_NONBLOCK)  # noqa: PTH118 - the point
    except (OSError, ValueError):
        return None
    try:
        return os.read(fd, 100) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)


@pytest.mark.parametrize("checked", [True, False], ids=["grammar-and-kernel", "kernel-alone"])
@pytest.mark.slow
def test_h01_h04_no_path_whatever_leaves_the_root(
    checked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: joining and opening the same paths reads what is outside, by every way, and git's directory."""
    leaks: dict[str, bytes | None] = {}
    numbers = itertools.count()

    @settings(max_examples=150)
    @given(PATHS)
    def explore(text: str) -> None:
        top = tmp_path / str(next(numbers))
        root = top.joinpath(*"abcd"[:UP]) / "worktree"
        outside = root.parent / "outside"
        hostile_tree(root, outside)
        monkeypatch.chdir(outside)
        path = text.replace("OUTSIDE", str(outside))
        leaks[text] = naive(root, path)
        before, git = snapshot(top, root), snapshot(root / ".git")
        found = attempts(root, path, checked)
        assert set(found) <= {b"inside", b"new", b"[core]"}
        assert snapshot(top, root) == before
        if checked:
            assert snapshot(root / ".git") == git
            assert b"[core]" not in found or text == "d/config"
        monkeypatch.chdir("/")
        shutil.rmtree(top)

    for text in (*WAYS_OUT, ".git/config"):
        explore = example(text)(explore)
    explore()
    assert {leaks[way] for way in WAYS_OUT} == {b"TOPSECRET"}
    assert leaks[".git/config"] == b"[core]"


def attempts(root: Path, text: str, checked: bool) -> list[bytes]:
    """Everything that can be done with a path; returns what was read. Only typed errors may come out."""
    found: list[bytes] = []
    with WorktreeFiles(root) as files:
        acts: list[Callable[[RepoPath], object]] = [
            lambda p: found.append(files.read(p)),
            lambda p: found.append(b"".join(files.stream(p))),
            files.exists,
            files.require_directory,
            lambda p: files.write(p, b"new", executable=False, owner=None),
            lambda p: found.append(files.read(p)),
            files.remove,
        ]
        for act in acts:
            with suppress(SandboxError):
                act(parse_repo_path(text) if checked else RepoPath(text.replace("\0", "")))
    return found
