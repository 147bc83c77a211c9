"""One victim: a home, a remote, a task on it, secrets that an attacker wants, and payloads that leave marks.

A mark is a file outside every worktree. `inspect` looks for effects, independent of the product's answer: marks,
changes to the canary directories, the host's secret among the objects of the cache clone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox.attack.harness.attack_host import AttackHost
from sandbox.attack.harness.outcomes import GotThrough, Void
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.unhardened import UnhardenedResult, run_unhardened
from sandbox.models import Task
from sandbox.workbench import Workbench

FILES: Mapping[str, bytes] = {
    "README.md": b"# victim\n",
    "f.txt": b"one\ntwo\nthree\n",
    "g.txt": b"g1\ng2\n",
    "d/x": b"x\n",
}
SECRET = b"TOP-SECRET-OF-THE-HOST\n"
HOST_EDIT = b"--- a/g.txt\n+++ b/g.txt\n@@ -1,2 +1,3 @@\n g1\n+host\n g2\n"


Canary = dict[str, tuple[object, ...]]


@dataclass
class Scene:
    """One victim below `root`. `workbench`: the product's controller. `task`, `worktree`: its task."""

    root: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, bytes] = field(default_factory=lambda: FILES)
    git_program: str = "git"  # for the controls; the product finds git by the same settings
    policies: Path | None = None  # of the operator, as in `$SANDBOX_HOME/policies`
    template: Path | None = None  # a bare repository with `files` to copy instead of creating one

    def __post_init__(self) -> None:
        self.home, self.outside, self.operator = self.root / "home", self.root / "outside", self.root / "operator"
        self._marks, self._scripts = self.root / "marks", self.root / "scripts"
        for folder in (self.outside, self.operator, self._marks, self._scripts):
            folder.mkdir()
        self._marks.chmod(0o777)
        for path in (self.outside / "f", self.outside / "secret", self.operator / ".netrc"):
            path.write_bytes(SECRET)
        if self.policies is not None and self.policies.is_dir():
            shutil.copytree(self.policies, self.home / "policies")
        self.remote = self.root / "remote.git"
        if self.template is not None:
            shutil.copytree(self.template, self.remote, symlinks=True)
        else:
            self.require_git("init", "-q", "--bare", "--template=", "-b", "main", str(self.remote), cwd=self.root)
            for name in ("hooks", "info"):
                (self.remote / name).mkdir()
            self.seed(self.remote, self.files)
        self.workbench = self.open_workbench()
        self.state_before: Canary = {}
        self.host: AttackHost  # set by the run that made this scene

    # --- the victim

    def open_workbench(self) -> Workbench:
        """A new controller, which reads files and settings again."""
        return Workbench(self.home, environ=self.build_environment(), settings=self.settings, allow_file=True)

    def build_environment(self) -> dict[str, str]:
        """The product's environment: what it needs to find git and the engine, no variables of the user."""
        return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.operator), **self.environ}

    def new_task(self, base: str | None = None) -> Task:
        """Clone (again) and create a task; `task` and `wt` become those of the new task."""
        repository = self.workbench.clone(str(self.remote)).repository
        self.repo_id = repository.id
        self.cache = self.home / "repositories" / "clones" / repository.id
        self.task = self.workbench.create_task(repository.id, base_branch=base)
        self.worktree = self.home / "repositories" / "worktrees" / repository.id / self.task.id
        return self.task

    def close(self) -> None:
        """Close the controller."""
        self.workbench.__exit__(None, None, None)

    # --- the attack

    def script(self, name: str, then: str = "exit 0") -> str:
        """An executable that leaves the mark `name` for any arguments."""
        path = self._scripts / name
        path.write_text(f"#!/bin/sh\n: > '{self.mark(name)}'\n{then}\n")
        path.chmod(0o755)
        return str(path)

    def mark(self, name: str) -> Path:
        """The mark file of the payload `name`."""
        return self._marks / name

    def marks(self) -> set[str]:
        """The names of the payloads that ran."""
        return {p.name for p in self._marks.iterdir()}

    def delete_marks(self) -> None:
        """Delete the marks of a control."""
        for path in self._marks.iterdir():
            path.unlink()

    def require_mark(self, name: str, control: Callable[[], object]) -> None:
        """Run an unhardened command that must leave the mark. Raises: `Void` when it does not."""
        control()
        if name not in self.marks():
            raise Void(f"the payload {name} did not run")
        self.delete_marks()

    def git(
        self, *args: str, cwd: Path, git_dir: Path | None = None, env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> UnhardenedResult:  # fmt: skip
        """Plain git, as a user would type it in a worktree (with `safe.directory` set as git advises)."""
        where = [f"--git-dir={git_dir}"] if git_dir else []
        argv = [self.git_program, "-c", "safe.directory=*", *where, *args]
        return run_unhardened(argv, cwd=cwd, home=self.root, env=env, stdin=stdin)

    def require_git(self, *args: str, cwd: Path, git_dir: Path | None = None, stdin: bytes = b"") -> str:
        """Plain git that must succeed; its output. Raises: `Void`, because the attack could not be planted."""
        done = self.git(*args, cwd=cwd, git_dir=git_dir, stdin=stdin)
        if done.code != 0:
            raise Void(f"git {' '.join(args)}: {done.stderr.decode(errors='replace').strip()}")
        return done.text

    def seed(self, remote: Path, files: Mapping[str, bytes], branch: str = "main") -> str:
        """Add a commit with exactly these files to a branch of a bare repository, in place of what is there; its id."""
        ref = f"refs/heads/{branch}"
        stream = [b"commit %s\ncommitter v <v@example.invalid> 1700000000 +0000\ndata 4\nseed\n" % ref.encode()]
        stream += [
            b"M 100644 inline %s\ndata %d\n%s\n" % (_quote(name), len(data), data) for name, data in files.items()
        ]
        options = ("-c", "fastimport.unpackLimit=1", "fast-import", "--quiet", "--force", "--done")
        self.require_git(*options, cwd=remote, git_dir=remote, stdin=b"".join([*stream, b"done\n"]))
        return (remote / ref).read_text().strip()

    def evil_git_dir(self, target: Path, config: str) -> Path:
        """Create a real `.git` directory of the same content, with `config` appended, as a guest would fake it."""
        away = self.root / f"evil-{len(list(self.root.iterdir()))}"
        self.require_git("clone", "-q", "--no-hardlinks", str(self.remote), str(away), cwd=self.root)
        shutil.move(away / ".git", target)
        shutil.rmtree(away)
        with (target / "config").open("a") as stream:
            stream.write(config)
        return target

    def replace_pointer(self, config: str = "") -> Path:
        """Replace the worktree's `.git` file by a directory of `evil_git_dir`."""
        remove(self.worktree / ".git")
        return self.evil_git_dir(self.worktree / ".git", config)

    # --- the product

    def run_every_operation(self) -> list[SandboxError]:
        """Run every host operation on the task, to its end. Returns typed errors; untyped exceptions pass through."""
        raised: list[SandboxError] = []
        for step in self._steps():
            try:
                step()
            except SandboxError as error:
                raised.append(error)
        return raised

    def _steps(self) -> Iterator[Callable[[], object]]:
        wb, task = self.workbench, self.task.id
        yield lambda: wb.status(task)
        yield lambda: wb.diff(task)
        yield lambda: wb.read_file(task, "f.txt")
        yield lambda: wb.apply_patch(task, HOST_EDIT, {"g.txt": hash_of(self.files["g.txt"])})
        yield lambda: wb.commit(task, "work")
        yield lambda: wb.status(task)
        yield lambda: wb.diff(task, "head")
        yield lambda: wb.push(task)
        yield lambda: wb.clone(str(self.remote))
        yield lambda: wb.close_task(task, delete_worktree=True, discard=True)

    # --- the evidence

    def read_canaries(self, *more: Path) -> Canary:
        """Every name, inode, mode, owner, time and content that no attack may change."""
        seen: Canary = {}
        for top in (self.outside, self.operator, *more):
            for path in [top, *sorted(top.rglob("*"))]:
                info = path.lstat()
                content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(info.st_mode) else ""
                seen[str(path)] = (info.st_ino, info.st_mode, info.st_uid, info.st_size, info.st_mtime_ns, content)
        return seen

    def in_odb(self, content: bytes) -> bool:
        """Whether these bytes are an object of the cache clone."""
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        return self.git("cat-file", "-e", oid, cwd=self.root, git_dir=self.cache).code == 0

    def record_state(self) -> None:
        """Record the state before the attack: every later effect is caused by the product."""
        self.delete_marks()
        self.state_before = self.read_canaries()

    def require_no_effect(self) -> None:
        """Raises: `GotThrough` naming the first effect found."""
        if marks := self.marks():
            raise GotThrough(f"ran on the host: {', '.join(sorted(marks))}")
        after = self.read_canaries()
        if changed := sorted(
            path for path in {*self.state_before, *after} if self.state_before.get(path) != after.get(path)
        ):
            raise GotThrough(f"changed outside of the worktree: {', '.join(changed)}")
        if hasattr(self, "cache") and self.cache.exists() and self.in_odb(SECRET):
            raise GotThrough("the host's secret became an object of the repository")


def _quote(path: str) -> bytes:
    """A path as fast-import reads it."""
    return b'"%s"' % path.encode().replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")


def hash_of(content: bytes) -> str:
    """A hash in the form that the product uses."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def remove(path: Path) -> None:
    """Delete a file, link or directory."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def plain_clone(scene: Scene) -> Path:
    """A plain clone of the remote, for controls."""
    folder = scene.root / "plain"
    scene.require_git("clone", "-q", str(scene.remote), str(folder), cwd=scene.root)
    return folder


def require_refusal(step: Callable[[], object], *codes: ErrorCode) -> SandboxError:
    """The typed error that a step must raise (any except `internal` if no code is given).

    Raises: `GotThrough` when the step succeeds or raises another error.
    """
    try:
        step()
    except SandboxError as error:
        if error.code in codes or (not codes and error.code is not ErrorCode.INTERNAL):
            return error
        raise GotThrough(f"answered {error.code}: {error.brief}") from error
    raise GotThrough(f"accepted instead of refused{' as ' + codes[0] if codes else ''}")


def require_equal(answer: object, expected: object, what: str) -> None:
    """Raises: `GotThrough` when the product's answer is not the expected one."""
    if answer != expected:
        raise GotThrough(f"{what}: {answer!r} instead of {expected!r}")


def require_hit(happened: object, what: str) -> None:
    """Raises: `Void` when the careless command was not hit."""
    if not happened:
        raise Void(what)
