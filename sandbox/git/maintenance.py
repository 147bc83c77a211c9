"""Pack a cache clone again, and delete the objects that no ref has led to for a day (docs/adr/0048).

Theory. git deletes an unreachable object by the age of the file that holds it. In a clone that is no evidence: the pack
of a commit that a forced push removed a second ago may be a year old, and a check may be running on that commit. So
first every pack and loose object gets the time of now. git then moves the unreachable objects into a pack of their own,
a cruft pack, that remembers this time for each object. A later run that still finds them unreachable, a day after,
deletes them. So an object is deleted by the second run that saw no ref lead to it, at least a day after the first.

In a partial clone git cannot tell what is unreachable: all that was fetched counts as promised. So its many packs are
put into two, of what was fetched and of what was made here, and all are kept.

A fetch holds the repository's lock, as `repack` does. A commit or a snapshot does not: git's fast-import does not store
what a pack already holds, also what a cruft pack holds, and that pack may be gone before the ref is moved. So they hold
a shared lock from the first object until the ref (`store_objects`), and `repack` an exclusive one. Readers need none:
git looks for an object in the new packs when the old ones are gone.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.failures import OutOfMemory
from sandbox.git.memory_limits import GitMemory
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.memory import TRANSFER_BUDGET, TRANSFER_BYTES

if TYPE_CHECKING:
    from sandbox.git import clone_lock
    from sandbox.git import partial as partial_clones
else:  # loaded at first use (docs/adr/0080)
    clone_lock = LazyModule("sandbox.git.clone_lock")
    partial_clones = LazyModule("sandbox.git.partial")

DAY_S = 86_400.0
MANY_LOOSE, MANY_PACKS = 5_000, 50
"""With more of one of these a clone is packed at the next `gc`. git's own limits are 6,700 and 50."""

REPACK_DEADLINE_S = 3_600.0
STORE_WAIT_S = 600.0
_POLL_S = 0.05
_MARKER, _WANTED = "sandbox-repacked", "sandbox-repack-wanted"
_MEMORY_WAIT_S = 300.0
_OBJECT_BYTES = 280  # of `pack-objects`, measured: 250 (git 2.39.5)
_OTHER_BYTES = 64 * 1024**2  # window, caches, and files below the size that is streamed
_CONFIG = {"core.bigFileThreshold": "16m", "pack.deltaCacheSize": "16m"}
_OPTIONS = ("--quiet", "-d", "-n", "--no-write-bitmap-index", "--threads=1", "--window-memory=32m")


@dataclass(frozen=True)
class ObjectFiles:
    """The files of a clone's object store. `cruft`: packs of unreachable objects."""

    packs: tuple[Path, ...]
    cruft: tuple[Path, ...]
    loose: tuple[Path, ...]

    @classmethod
    def of(cls, git_dir: Path) -> ObjectFiles:
        """List them."""
        objects = git_dir / "objects"
        packs = sorted((objects / "pack").glob("pack-*.pack"))
        cruft = {path for path in packs if path.with_suffix(".mtimes").exists()}
        loose = tuple(objects.glob("[0-9a-f][0-9a-f]/[0-9a-f]*"))
        return cls(tuple(p for p in packs if p not in cruft), tuple(sorted(cruft)), loose)

    def count(self) -> int:
        """Objects: loose ones, and the last number of the table at the start of each index (gitformat-pack(5))."""
        counted = len(self.loose)
        for pack in (*self.packs, *self.cruft):
            with suppress(OSError), pack.with_suffix(".idx").open("rb") as index:
                index.seek(8 + 255 * 4)
                counted += int.from_bytes(index.read(4))
        return counted

    @property
    def bytes(self) -> int:
        """Size of all of them. A file that vanishes meanwhile counts as empty."""
        return sum(_stat_or_zero(path)[0] for path in (*self.packs, *self.cruft, *self.loose))


def is_repack_due(git_dir: Path, now: float, repack_s: float) -> bool:
    """Whether a clone should be packed: `request_repack` was called, it has many files, a cruft pack of yesterday, or
    changed and was not packed for `repack_s`. `now`: seconds since the epoch. `repack_s`: 0: age is no reason. For a
    partial clone only many files are a reason.
    """
    files = ObjectFiles.of(git_dir)
    has_many = len(files.loose) > MANY_LOOSE or len(files.packs) > MANY_PACKS
    if has_many or partial_clones.has_partial_mark(git_dir):
        return has_many
    if (git_dir / _WANTED).exists():
        return True
    age_s = now - _last_repack(git_dir)
    if files.cruft and age_s > DAY_S:
        return True
    return bool(repack_s) and age_s > repack_s and _has_changed(git_dir, files)


def request_repack(git_dir: Path) -> None:
    """Let the next `gc` pack a clone: objects that someone wants to be gone have lost their last ref."""
    (git_dir / _WANTED).touch(mode=0o600)


def _last_repack(git_dir: Path) -> float:
    """When the clone was packed last; if never, when it was made."""
    return _stat_or_zero(git_dir / _MARKER)[1] or _stat_or_zero(git_dir / "HEAD")[1]


def _has_changed(git_dir: Path, files: ObjectFiles) -> bool:
    """Whether anything was stored or any ref moved since the last packing."""
    refs = (git_dir / "packed-refs", *(path for path in (git_dir / "refs").rglob("*")))
    since = _stat_or_zero(git_dir / _MARKER)[1]
    return any(_stat_or_zero(path)[1] > since for path in (*files.loose, *files.packs, *refs))


def _stat_or_zero(path: Path) -> tuple[int, float]:
    """Size and modification time; zeros for a missing file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0.0
    return found.st_size, found.st_mtime


def repack(git: Git, memory_bytes: int = TRANSFER_BYTES, *, unreachable_s: float = DAY_S) -> int:
    """Put all objects into one pack, unreachable ones into a cruft pack; delete those that were put there by a run
    `unreachable_s` ago or longer. In a partial clone all are kept. Returns how many bytes smaller the clone is.

    `memory_bytes`: that git may use; it begins with what so many objects need. The caller holds the repository's lock.
    Raises: `conflict` while a commit is being stored; `quota_exceeded` for a history that needs more memory; `timeout`
    if others use the memory; git's errors. All leave the clone as it was.
    """
    enough = _OTHER_BYTES + _OBJECT_BYTES * ObjectFiles.of(git.git_dir).count()
    try:
        return _repack(git, min(enough, memory_bytes), unreachable_s)
    except OutOfMemory:
        if enough >= memory_bytes:
            raise
    return _repack(git, memory_bytes, unreachable_s)


def _repack(git: Git, memory_bytes: int, unreachable_s: float) -> int:
    """Waits for the memory before it locks the objects: commits wait for this lock."""
    with (
        TRANSFER_BUDGET.reserve(min(memory_bytes, TRANSFER_BYTES), _MEMORY_WAIT_S),
        _locked(git.git_dir, fcntl.LOCK_EX, 0.0),
    ):
        before = ObjectFiles.of(git.git_dir)
        size, wanted = before.bytes, _stat_or_zero(git.git_dir / _WANTED)
        bounded = git.with_memory(GitMemory(0, memory_bytes))  # reserved above
        is_partial = partial_clones.is_partial(git)
        options = ("-a", "--keep-unreachable") if is_partial else _expire(before, int(time.time() - unreachable_s))
        env = partial_clones.make_environment(git, _CONFIG)
        bounded.run("repack", *_OPTIONS, *options, env=env, deadline_s=REPACK_DEADLINE_S)
        (git.git_dir / _MARKER).touch(mode=0o600)
        if _stat_or_zero(git.git_dir / _WANTED) == wanted:  # else a ref was deleted meanwhile
            (git.git_dir / _WANTED).unlink(missing_ok=True)
        return size - ObjectFiles.of(git.git_dir).bytes


def _expire(files: ObjectFiles, before: int) -> tuple[str, ...]:
    """Note that all objects exist now. The options that delete those without a ref that were noted before."""
    for path in (*files.packs, *files.loose):
        with suppress(FileNotFoundError):
            os.utime(path)
    return "--cruft", f"--cruft-expiration={before}"


@contextmanager
def store_objects(git: Git) -> Iterator[None]:
    """Hold this while objects are stored in a clone and a ref is moved to them. Waits while the clone is packed, or
    repaired. The caller does not ask for the repository's lock meanwhile: a repair holds it while it waits for this.

    Raises: `conflict` after `STORE_WAIT_S`, or if the clone was replaced since it was opened.
    """
    with clone_lock.hold_clone(git.git_dir, git.clone_id), _locked(git.git_dir, fcntl.LOCK_SH, STORE_WAIT_S):
        yield


@contextmanager
def _locked(git_dir: Path, kind: int, wait_s: float) -> Iterator[None]:
    """Lock the object store; the kernel frees the lock at the end of the process."""
    fd = os.open(git_dir / "objects", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(fd, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= until:
                    raise _busy_error(git_dir) from error
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(fd)


def _busy_error(git_dir: Path) -> SandboxError:
    return SandboxError(
        ErrorCode.CONFLICT,
        f"The cache clone {git_dir.name} is in use",
        details="a commit is stored in it, or it is packed",
        hint="Try again later.",
    )
