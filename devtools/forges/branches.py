"""The branches of a real repository on disk, which a scripted forge follows: a push shows in its pull requests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_GIT = shutil.which("git") or "git"
_DEADLINE_S = 60.0
_WHO = "Demo <demo@example.org> 1704067200 +0000"


@dataclass(frozen=True)
class Branches:
    """`folder`: a bare repository."""

    folder: Path

    def create(self, branch: str) -> None:
        """Make the repository, with one commit on `branch`."""
        self.folder.mkdir()
        self._git("init", "--quiet", "--bare", "--template=", f"--initial-branch={branch}")
        self.commit(branch, "first")

    def all(self) -> Mapping[str, str]:
        """Branch to commit. Read from the files: a forge asks often, and a process takes longer than all the rest."""
        packed = self.folder / "packed-refs"
        lines = packed.read_text().splitlines() if packed.exists() else []
        rows = [line.split(" ", 1) for line in lines if line[0] not in "#^"]
        heads = self.folder / "refs" / "heads"
        loose = {path.relative_to(heads).as_posix(): path.read_text().strip() for path in heads.rglob("*")
                 if path.is_file() and path.suffix != ".lock"}  # fmt: skip
        return {name.removeprefix("refs/heads/"): oid for oid, name in rows if name.startswith("refs/heads/")} | loose

    def knows(self, oid: str) -> bool:
        try:
            self._git("cat-file", "-e", f"{oid}^{{commit}}")
        except subprocess.CalledProcessError:
            return False
        return True

    def ahead(self, base: str, head: str) -> int:
        """How many commits `head` has that `base` has not."""
        return int(self._git("rev-list", "--count", f"{base}..{head}"))

    def commit(self, branch: str, subject: str, *, start: str = "") -> str:
        """Put a commit without changes on a branch, as a push would; a new branch begins at `start`. Returns its id."""
        parent = f"refs/heads/{branch}^0" if branch in self.all() else start
        words = [f"data {len(subject.encode())}", subject, *([f"from {parent}"] if parent else [])]
        stream = [f"commit refs/heads/{branch}", "mark :1", f"committer {_WHO}", *words, "", "get-mark :1", ""]
        return self._git("fast-import", "--quiet", typed="\n".join(stream))

    def push(self, branch: str, subject: str, base: str) -> str:
        """The same, a new branch beginning at another one."""
        return self.commit(branch, subject, start=self.all()[base])

    def delete(self, branch: str) -> None:
        self._git("update-ref", "-d", f"refs/heads/{branch}")

    def _git(self, *arguments: str, typed: str = "") -> str:
        done = subprocess.run(
            [_GIT, *arguments],
            cwd=self.folder,
            env={"PATH": os.defpath, "HOME": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"},
            input=typed,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=True,
        )
        return done.stdout.strip()
