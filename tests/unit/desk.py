"""A workbench with one repository and one task on it, all real, for tests of use-cases that need no engine."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from devtools.copied_clones import copied_clones
from sandbox.models import Task
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream

BINARY = bytes(range(256)) * 3


class Desk:
    """`task` is the first task, `root` its worktree. The repository has files, a link, a mode, ignore rules."""

    def __init__(self, upstream: Upstream, home: Path) -> None:
        upstream.write("f", b"one\ntwo\n")
        upstream.write("run", b"#!/bin/sh\n", executable=True)
        upstream.write("d/e/x", b"x\n" * 50)
        upstream.write("d/y", BINARY)
        upstream.write(".gitignore", b"*.log\n/build/\n")
        (upstream.root / "link").symlink_to("f")
        upstream.commit()
        self.upstream, self.home = upstream, home
        environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
        self.workbench = Workbench(home, environ=environ, allow_file=True)
        with copied_clones():
            self.repo_id = self.workbench.clone(str(upstream.root)).repository.id
        self.task = self.workbench.create_task(self.repo_id, "work")
        self.root = self.worktree(self.task)

    def worktree(self, task: Task) -> Path:
        assert task.worktree_path is not None
        return task.worktree_path

    def write(self, path: str, content: bytes, *, executable: bool = False) -> Path:
        """Change a file as a guest would."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o755 if executable else 0o644)
        return target

    def git(self, *args: str) -> str:
        """Plain git on the cache clone."""
        clone = self.home / "repositories" / "clones" / self.repo_id
        argv = ["git", f"--git-dir={clone}", *args]
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout

    def refs(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()


def change_each_kind(desk: Desk) -> None:
    """Content, mode, a deletion and the target of a link."""
    desk.write("f", b"changed\n")
    desk.write("run", b"#!/bin/sh\n", executable=False)
    (desk.root / "d" / "y").unlink()
    (desk.root / "link").unlink()
    (desk.root / "link").symlink_to("d/e/x")


def on_disk(root: Path) -> dict[str, tuple[str, bytes]]:
    """Every leaf below a worktree: path to (kind and execute bit, bytes or link target)."""
    found = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            found[str(path.relative_to(root))] = ("link", os.fsencode(path.readlink()))
        elif stat.S_ISREG(mode):
            found[str(path.relative_to(root))] = ("run" if mode & 0o100 else "file", path.read_bytes())
        elif not stat.S_ISDIR(mode):
            found[str(path.relative_to(root))] = ("special", b"")
    return found
