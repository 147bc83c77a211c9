"""What every attack needs: a victim (home, remote, task, canary files), payloads that leave marks, an unhardened git.

A mark is a file outside of every worktree. A test first lets the attack hit an unhardened command (`fires`), which must
leave its mark, then the product (`harmless`), which must not: without the first half the second proves nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from devtools.newergit import version_of
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Task
from sandbox.workbench import Workbench

GIT = shutil.which("git") or "git"
FILES = {"README.md": b"# victim\n", "f.txt": b"one\ntwo\nthree\n", "g.txt": b"g1\ng2\n", "d/x": b"x\n"}
SECRET = b"TOP-SECRET-OF-THE-HOST\n"
_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "a"), ("EMAIL", "a@b"), ("DATE", "1700000000 +0000"))
}


@dataclass
class Arena:
    """One victim below `root`. `wb` and `task` are the product's; `wt` is the worktree a guest would write to."""

    root: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=lambda: FILES)
    git_program: str = GIT  # the controls' and the product's

    def __post_init__(self) -> None:
        self.home, self.outside, self.operator = self.root / "home", self.root / "outside", self.root / "operator"
        self._marks, self._scripts = self.root / "marks", self.root / "scripts"
        for folder in (self.outside, self.operator, self._marks, self._scripts):
            folder.mkdir()
        self._marks.chmod(0o777)
        (self.outside / "f").write_bytes(SECRET)
        (self.outside / "secret").write_bytes(SECRET)
        (self.operator / ".netrc").write_bytes(SECRET)
        self.remote = self.root / "remote.git"
        self.git("init", "-q", "--bare", "-b", "main", str(self.remote), cwd=self.root)
        seed(self, self.remote, self.files)
        self.wb = self.open()

    # --- the victim

    def open(self) -> Workbench:
        """A controller of its own, which reads files and settings anew."""
        return Workbench(self.home, environ=self.surroundings(), settings=self.settings, allow_file=True)

    def surroundings(self) -> dict[str, str]:
        """The product's environment. It finds the installed git by itself; any other is the operator's setting."""
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.operator), **self.environ}
        if "DOCKER_HOST" in os.environ:
            environ["DOCKER_HOST"] = os.environ["DOCKER_HOST"]
        if self.git_program != GIT:
            environ["SANDBOX_GIT_EXECUTABLE"] = self.git_program
        return environ

    @cached_property
    def git_version(self) -> tuple[int, int]:
        return version_of(Path(self.git_program))

    def new_task(self, base: str | None = None) -> Task:
        """Clone (again) and create a task; `self.task` and `self.wt` are the latest one's."""
        repository = self.wb.clone(str(self.remote)).repository
        self.repo_id = repository.id
        self.cache = self.home / "repositories" / "clones" / repository.id
        self.task = self.wb.create_task(repository.id, base_branch=base)
        self.wt = self.home / "repositories" / "worktrees" / repository.id / self.task.id
        return self.task

    def canary(self, *more: Path) -> dict[str, tuple[object, ...]]:
        """Every name, inode, mode, time and content that no attack may change."""
        seen: dict[str, tuple[object, ...]] = {}
        for top in (self.outside, self.operator, *more):
            for path in [top, *sorted(top.rglob("*"))]:
                info = path.lstat()
                content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(info.st_mode) else ""
                seen[str(path)] = (info.st_ino, info.st_mode, info.st_uid, info.st_size, info.st_mtime_ns, content)
        return seen

    def in_odb(self, content: bytes) -> bool:
        """Whether these bytes are an object of the cache clone."""
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        return self.git("cat-file", "-e", oid, cwd=self.root, git_dir=self.cache).returncode == 0

    # --- the attack

    def script(self, name: str, then: str = "exit 0") -> str:
        """An executable that leaves the mark `name`, whatever its arguments."""
        path = self._scripts / name
        path.write_text(f"#!/bin/sh\n: > '{self._marks}/{name}'\n{then}\n")
        path.chmod(0o755)
        return str(path)

    def marks(self) -> set[str]:
        return {p.name for p in self._marks.iterdir()}

    def forget(self) -> None:
        for path in self._marks.iterdir():
            path.unlink()

    def fires(self, name: str, control: Callable[[], object]) -> None:
        """The unhardened command must leave the mark, or the test is void."""
        control()
        assert name in self.marks(), f"void: the positive control of {name} did not fire"
        self.forget()

    def git(
        self, *args: str, cwd: Path, git_dir: Path | None = None, env: Mapping[str, str] | None = None,
        stdin: bytes = b"", seconds: float = 20,
    ) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
        """Plain git, as somebody would type it in a worktree (having set `safe.directory` as git advises)."""
        where = [f"--git-dir={git_dir}"] if git_dir else []
        argv = [self.git_program, "-c", "safe.directory=*", *where, *args]
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.root), "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
        return subprocess.run(
            argv, cwd=cwd, env={**environ, **_IDENTITY, **(env or {})}, input=stdin, capture_output=True,
            timeout=seconds, check=False,
        )  # fmt: skip

    def must(self, *args: str, cwd: Path, git_dir: Path | None = None, stdin: bytes = b"") -> str:
        """Plain git that has to work; its output."""
        done = self.git(*args, cwd=cwd, git_dir=git_dir, stdin=stdin)
        assert done.returncode == 0, (args, done.stderr)
        return done.stdout.decode(errors="replace").strip()

    def evil_git_dir(self, target: Path, config: str = "") -> Path:
        """A real repository's `.git` of the same content, with `config` appended: what a guest would fake."""
        away = self.root / f"evil-{len(list(self.root.iterdir()))}"
        self.must("clone", "-q", "--no-hardlinks", str(self.remote), str(away), cwd=self.root)
        shutil.move(away / ".git", target)
        shutil.rmtree(away)
        with (target / "config").open("a") as stream:
            stream.write(config)
        return target

    def replace_pointer(self, config: str = "") -> Path:
        """Replace the worktree's `.git` file by such a directory."""
        remove(self.wt / ".git")
        return self.evil_git_dir(self.wt / ".git", config)

    # --- the product

    def whole_life(self, *, run_checks: Callable[[], object] | None = None) -> list[ErrorCode]:
        """Every host operation on the task, to its end; refusals are answers, anything untyped is a failure."""
        hashed = {"g.txt": hash_of(FILES["g.txt"])}
        patch = b"--- a/g.txt\n+++ b/g.txt\n@@ -1,2 +1,3 @@\n g1\n+host\n g2\n"
        raised: list[SandboxError] = []
        steps: Sequence[Callable[[], object]] = (
            lambda: self.wb.status(self.task.id),
            lambda: self.wb.diff(self.task.id),
            lambda: self.wb.read_file(self.task.id, "f.txt"),
            lambda: self.wb.apply_patch(self.task.id, patch, hashed),
            run_checks or (lambda: None),
            lambda: self.wb.commit(self.task.id, "work"),
            lambda: self.wb.status(self.task.id),
            lambda: self.wb.diff(self.task.id, "head"),
            lambda: self.wb.push(self.task.id),
            lambda: self.wb.clone(str(self.remote)),
            lambda: self.wb.close_task(self.task.id, delete_worktree=True, discard=True),
        )
        for step in steps:
            try:
                step()
            except SandboxError as error:
                raised.append(error)
        assert not [(e.brief, e.details) for e in raised if e.code is ErrorCode.INTERNAL]
        return [e.code for e in raised]


def seed(arena: Arena, remote: Path, files: Mapping[str, bytes], branch: str = "main") -> str:
    """One more commit with exactly these files on a branch of a bare repository; its id."""
    work = arena.root / f"seed-{branch}-{len(list(arena.root.iterdir()))}"
    arena.must("init", "-q", "-b", branch, str(work), cwd=arena.root)
    for name, content in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(content)
    arena.must("add", "-A", "-f", cwd=work)
    arena.must("commit", "-q", "-m", "seed", cwd=work)
    arena.must("push", "-q", "-f", str(remote), f"HEAD:refs/heads/{branch}", cwd=work)
    oid = arena.must("rev-parse", "HEAD", cwd=work)
    shutil.rmtree(work)
    return oid


@dataclass(frozen=True)
class Plumbing:
    """Objects and refs that porcelain would refuse, written straight into a bare repository."""

    arena: Arena
    remote: Path

    def blob(self, content: bytes) -> str:
        return self.arena.must("hash-object", "-w", "--stdin", cwd=self.remote, git_dir=self.remote, stdin=content)

    def tree(self, *entries: tuple[str, bytes, str]) -> str:
        raw = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries)
        return self.arena.must(
            "hash-object", "-w", "-t", "tree", "--literally", "--stdin", cwd=self.remote, git_dir=self.remote, stdin=raw
        )

    def publish(self, tree: str, ref: str = "refs/heads/main") -> str:
        """A commit of the tree as the new tip of a ref; its id."""
        git = self.arena.must
        oid = git("commit-tree", tree, "-m", "hostile", cwd=self.remote, git_dir=self.remote)
        git("update-ref", "--no-deref", ref, oid, cwd=self.remote, git_dir=self.remote)
        return oid

    def nested(self, path: str, mode: str, oid: str) -> str:
        """A tree of trees that holds one leaf at `path`, names as they are."""
        tree = oid
        for name in reversed(path.encode("utf-8", "surrogateescape").split(b"/")):
            tree = self.tree((mode, name, tree))
            mode = "40000"
        return tree


def naive_checkout(arena: Arena, remote: Path, target: Path) -> None:
    """What a checkout without checks does: join the name and write."""
    target.mkdir()
    listing = arena.git("ls-tree", "-r", "-z", "main", cwd=remote, git_dir=remote).stdout
    for record in listing.split(b"\0")[:-1]:
        head, name = record.split(b"\t", 1)
        mode, _, oid = head.decode().split()
        content = arena.git("cat-file", "blob", oid, cwd=remote, git_dir=remote).stdout
        path = os.path.join(os.fsencode(target), name)  # noqa: PTH118 - bytes
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - bytes
        if mode == "120000":
            os.symlink(content, path)  # noqa: PTH211 - bytes
        else:
            Path(os.fsdecode(path)).write_bytes(content)


def hash_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def remove(path: Path) -> None:
    """Delete a name of whatever kind."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def refused(*codes: ErrorCode) -> Iterator[list[SandboxError]]:
    """The body must raise a typed error with one of these codes (any but `internal` when none is named)."""
    caught: list[SandboxError] = []
    try:
        yield caught
    except SandboxError as error:
        caught.append(error)
    assert caught, f"accepted, but {' or '.join(codes) or 'a refusal'} was expected"
    allowed = caught[0].code in codes if codes else caught[0].code is not ErrorCode.INTERNAL
    assert allowed, (caught[0].code, caught[0].brief, caught[0].details)


def outcome(step: Callable[[], object]) -> SandboxError | None:
    """The typed error that a step ended with, if any; everything else passes through."""
    try:
        step()
    except SandboxError as error:
        return error
    return None
