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
_WHO = {"NAME": "Demo", "EMAIL": "demo@example.org", "DATE": "2024-01-01T00:00:00+00:00"}


@dataclass(frozen=True)
class Branches:
    """`folder`: a bare repository."""

    folder: Path

    def create(self, branch: str) -> None:
        """Make the repository, with one commit on `branch`."""
        self._git("init", "--quiet", "--bare", f"--initial-branch={branch}", str(self.folder), at=self.folder.parent)
        self.commit(branch, "first", start="")

    def all(self) -> Mapping[str, str]:
        """Branch to commit."""
        lines = self._git("for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads/").splitlines()
        return dict(line.rsplit(" ", 1) for line in lines)

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
        """Put an empty commit on a branch, as a push would; a new branch begins at `start`. Returns its id."""
        parent = self.all().get(branch) or start
        tree = self._git("hash-object", "-w", "-t", "tree", os.devnull)
        oid = self._git("commit-tree", tree, "-m", subject, *(["-p", parent] if parent else []))
        self._git("update-ref", f"refs/heads/{branch}", oid)
        return oid

    def push(self, branch: str, subject: str, base: str) -> str:
        """The same, a new branch beginning at another one."""
        return self.commit(branch, subject, start=self.all()[base])

    def delete(self, branch: str) -> None:
        self._git("update-ref", "-d", f"refs/heads/{branch}")

    def _git(self, *arguments: str, at: Path | None = None) -> str:
        done = subprocess.run(
            [_GIT, *arguments],
            cwd=at or self.folder,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=True,
        )
        return done.stdout.strip()


def _environment() -> Mapping[str, str]:
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in _WHO.items()}
    return {"PATH": os.defpath, "HOME": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8", **who}
