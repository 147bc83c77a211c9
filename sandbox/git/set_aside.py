"""Cache clones that a repair set aside: which there are, and copying the refs of tasks out of them.

Theory. A repair makes a new clone beside the damaged one, copies the refs of tasks into it, and only then puts it in
the place of the damaged one, which is set aside under another name. Before the renames a note in the damaged clone
names the refs that could not be copied, and says that the new clone is not in place yet; afterwards, that it is. A kill
between the two renames leaves no clone, and the damaged one set aside: the next clone copies from there. If there is a
clone, all was copied before: it may have been deleted since, so it is not copied again. From a clone without a note,
which an older version set aside, no ref is copied either. While a note names a ref, that clone may hold the only copy
of work.

The refs are read from their files: git leaves out those that it cannot read, and those of a damaged `packed-refs` all.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from sandbox.errors import ErrorCode, SandboxError, translate_shortage
from sandbox.git import partial as partial_clones
from sandbox.git import shallow, transport
from sandbox.git.blobs import STREAM_SETTINGS
from sandbox.git.failures import classify, fetch_memory_error, may_need_more_memory, scrub
from sandbox.git.local.folders import open_folder
from sandbox.git.local.read_refs import is_bad_name, read_texts
from sandbox.git.memory_limits import LARGE, choose_history_memory
from sandbox.git.objects import is_object_id, peel, tree_of
from sandbox.git.process import LOCAL_DEADLINE_S, Git, GitResult, NetworkAccess, ResourceLimits, spool_input
from sandbox.memory import TRANSFER_BUDGET

if TYPE_CHECKING:
    from sandbox.git.transport import RemoteAccess

_log = logging.getLogger(__name__)

_NOTE = "sandbox-refs-copied.json"
_OWN_REFS = ("refs/heads/space-agent", "refs/sandbox")
_CHECK_DEADLINE_S = 600.0
_AT_ONCE = 500


class UncopiedRef(NamedTuple):
    """A ref of a task that only a clone which was set aside has."""

    clone: Path
    name: str

    @property
    def description(self) -> str:
        """For people."""
        return f"{scrub(self.name)} in {self.clone.name}, which a repair set aside"


def put_in_place(path: Path, new: Path) -> None:
    """Rename a new clone to `path`, after the one that it replaces was set aside."""
    if not path.is_dir():
        new.rename(path)
        return
    aside = path.with_name(f".{path.name}.corrupt-{time.time_ns()}")
    path.rename(aside)
    try:
        new.rename(path)
    except BaseException:
        aside.rename(path)
        raise


def list_set_aside(path: Path) -> list[Path]:
    """The clones that repairs of the clone at `path` set aside, the newest first."""
    start = f".{path.name}.corrupt-"
    found = (aside for aside in path.parent.glob(f"{start}*") if aside.name.removeprefix(start).isdecimal())
    return sorted(found, key=lambda aside: int(aside.name.removeprefix(start)), reverse=True)


def list_unfinished(path: Path) -> list[Path]:
    """Those of them that say that the new clone is not in place yet, because the repair was interrupted."""
    notes = ((aside, _read_note(aside)) for aside in list_set_aside(path))
    return [aside for aside, note in notes if note is not None and not note.is_in_place]


def find_uncopied_refs(path: Path) -> list[UncopiedRef]:
    """Refs of tasks that a clone which was set aside may have, and the one at `path` has not, or at another commit.

    Raises: `internal` if their names cannot be read.
    """
    present = read_own_refs(path)
    found = []
    for aside in list_set_aside(path):
        refs, note = read_own_refs(aside), _read_note(aside)
        is_copied = note is not None and (note.is_in_place or path.is_dir())
        names = note.not_copied if note is not None and is_copied else list(refs)
        found += [UncopiedRef(aside, name) for name in names if name not in present or present[name] != refs.get(name)]
    return found


class _Note(NamedTuple):
    """What a repair has noted in a clone. `not_copied`: the names of refs."""

    not_copied: list[str]
    is_in_place: bool


def _read_note(aside: Path) -> _Note | None:
    """None if there is none: an older version set the clone aside."""
    try:
        record = json.loads((aside / _NOTE).read_bytes())
        return _Note([str(name) for name in record["not_copied"]], bool(record.get("is_in_place", True)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def note_copied(source: Path, failed: Iterable[str], *, is_in_place: bool = False) -> None:
    """Note durably that the refs of a clone were copied to a new one, but for those in `failed`."""
    beside = source / f"{_NOTE}.new"
    record = {"schema_version": 1, "not_copied": sorted(failed), "is_in_place": is_in_place}
    beside.write_text(json.dumps(record))
    _sync(beside)
    beside.replace(source / _NOTE)
    _sync(source)


def note_in_place(path: Path) -> None:
    """Note that the clone at `path` is in the place of those that it was copied from."""
    with translated_shortages():
        for number, aside in enumerate(list_unfinished(path)):
            if number == 0:
                _sync(path.parent)  # the renames
            note = _read_note(aside)
            note_copied(aside, note.not_copied if note else (), is_in_place=True)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def translated_shortages() -> Iterator[None]:
    """The block writes files. Raises: `quota_exceeded` for a full disk."""
    try:
        yield
    except OSError as error:
        raise translate_shortage(error) or error from error


def read_own_refs(path: Path) -> dict[str, str]:
    """The refs of tasks by full name, with what their files say, also if that is no object id; empty if there is
    no clone. Raises: `internal` if they cannot be read.
    """
    if not path.is_dir():
        return {}
    try:
        with open_folder(path) as folder:
            return {n: text.strip() for n, text in read_texts(folder, transport.MAX_REFS, _OWN_REFS).items()}
    except SandboxError as error:
        raise SandboxError(
            ErrorCode.INTERNAL,
            f"The refs of the damaged cache clone {path.name} cannot be read, so it is not replaced",
            details=error.details or error.brief,
            hint=f"Its tasks would lose their branches. Repair the file in {path}: each line of `packed-refs` is an "
            "object id, a space and the name of a ref. Then clone the repository again.",
        ) from error


def fetch_needed_files(sources: Iterable[Path], new: Git, access: RemoteAccess, fetched: set[str]) -> None:
    """Fetch into a partial clone the files that the tasks of others need, but for those at the commits in `fetched`;
    adds to them. `sources`: as they are copied, the newest first. Called before the clone is locked, as writers wait
    for the lock. Raises: network errors.
    """
    seen = set[str]()
    for source in sources if partial_clones.is_partial(new) else ():
        refs = read_own_refs(source)
        tips = [oid for name, oid in refs.items() if name not in seen and is_object_id(oid)]
        seen |= refs.keys()
        for commit in _list_fork_points(Git(source, new.executable), tips):
            if commit not in fetched and peel(new, commit, "commit"):
                partial_clones.fetch_missing_blobs(new, access, tree_of(new, commit))
                fetched.add(commit)


def copy_own_refs(source: Path, new: Git, access: RemoteAccess, lost: Container[str] = ()) -> list[str]:
    """Copy the refs of tasks that the new clone lacks, with their objects; returns those that are not copied.

    `lost`: those that a newer clone has but that could not be copied from it. They are not copied: a branch would move
    back. Nothing is asked of the remote: see `fetch_needed_files`. Raises: `quota_exceeded`, `timeout`; `internal` if
    the refs cannot be read.
    """
    present = read_own_refs(new.git_dir)
    refs = {name: text for name, text in read_own_refs(source).items() if name not in present}
    old = Git(source, new.executable)
    copied = [name for name in refs if name not in lost and not is_bad_name(name)]
    for start in range(0, len(copied), _AT_ONCE):
        _try_copy_refs(old, new, copied[start : start + _AT_ONCE], access)
    present = read_own_refs(new.git_dir)  # one that is damaged fails the others of its group: they follow one by one
    failed = [name for name in refs if name not in copied or not (name in present or _copy_ref(old, new, name, access))]
    for name in failed:
        _log.error("%s could not be copied to the new clone: it is damaged, or its objects are lost", scrub(name))
    return failed


def _list_fork_points(old: Git, tips: Sequence[str]) -> list[str]:
    """Commits of the remote that tasks are based on, and the tips: a task needs the files of both."""
    grown = old.attempt("rev-list", "--boundary", *tips, "--not", "--remotes=origin") if tips else None
    lines = grown.stdout.decode().splitlines() if grown else []
    return list({line.removeprefix("-"): None for line in (*tips, *lines)})


def _try_copy_refs(old: Git, new: Git, names: Sequence[str], access: RemoteAccess) -> None:
    """Copy refs with one fetch, or some or none of them: those that are left are copied one by one."""
    try:
        if len(names) > 1:
            _fetch_refs(old, new, names, access)
    except SandboxError as error:
        if error.code is not ErrorCode.TIMEOUT:  # for each of them the time may be enough
            raise


def _fetch_refs(old: Git, new: Git, names: Sequence[str], access: RemoteAccess) -> GitResult:
    limits = ResourceLimits(access.max_fetch_bytes, access.max_memory_bytes)
    with TRANSFER_BUDGET.reserve(min(limits.memory_bytes, TRANSFER_BUDGET.total_bytes), LOCAL_DEADLINE_S):
        return new.attempt(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
            *(("--update-shallow",) if shallow.is_shallow(old.git_dir) else ()), "--",
            f"file://{quote(str(old.git_dir))}", *(f"{name}:{name}" for name in names),
            network=NetworkAccess("file", limits=limits),
        )  # fmt: skip


def _copy_ref(old: Git, new: Git, name: str, access: RemoteAccess) -> bool:
    """Returns whether it was copied; False only if the old clone proves to be damaged. Raises: as `copy_own_refs`."""
    moved = _fetch_refs(old, new, [name], access)
    if moved.code == 0:
        return True
    if "fsck error in" in moved.stderr or _is_damaged(old, name, access):
        return False
    if may_need_more_memory(moved.stderr):
        raise fetch_memory_error(moved.stderr)
    raise classify("fetch", moved.code, moved.stderr)


def _is_damaged(old: Git, name: str, access: RemoteAccess) -> bool:
    """Whether what a task added on top of the remote's history cannot all be read. Raises: `quota_exceeded`, `timeout`;
    then that is unknown.
    """
    checked = old.with_memory(choose_history_memory(access.max_memory_bytes))
    options = ("--objects", "--no-object-names")
    added = checked.attempt("rev-list", *options, name, "--not", "--remotes=origin", deadline_s=_CHECK_DEADLINE_S)
    if added.code != 0:
        return True
    with (
        spool_input(added.stdout) as ids,
        old.with_memory(LARGE).stream(
            "pack-objects", "--quiet", "--stdout", "--no-reuse-object", "--window=0", "--threads=1",
            stdin=ids, env=STREAM_SETTINGS, deadline_s=_CHECK_DEADLINE_S,
        ) as packing,
    ):  # fmt: skip
        pass  # what it prints is dropped
    return packing.code != 0
