"""Cache clones that a repair set aside: which there are, and copying the refs of tasks out of them.

Theory. A repair makes a new clone beside the damaged one, copies the refs of tasks into it, and only then puts it in
the place of the damaged one, which is set aside under another name. A kill between the two renames leaves no clone,
and the damaged one set aside: the next clone copies from there. Last, a note in the clone that was set aside names the
refs that could not be copied. One without such a note may hold refs that the new clone lacks, so they are copied by
the next fetch. While a note names a ref, that clone may hold the only copy of work.

The refs are read from their files: git leaves out those that it cannot read, and those of a damaged `packed-refs` all.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import partial as partial_clones
from sandbox.git import shallow, transport
from sandbox.git.failures import classify, scrub
from sandbox.git.local.folders import open_folder
from sandbox.git.local.read_refs import is_bad_name, read_texts
from sandbox.git.objects import is_object_id, peel, tree_of
from sandbox.git.process import LOCAL_DEADLINE_S, Git, NetworkAccess, ResourceLimits
from sandbox.memory import TRANSFER_BUDGET

if TYPE_CHECKING:
    from sandbox.git.transport import RemoteAccess

_log = logging.getLogger(__name__)

_NOTE = "sandbox-refs-copied.json"
_OWN_REFS = ("refs/heads/space-agent", "refs/sandbox")
_NOT_OF_THE_CLONE = {ErrorCode.QUOTA_EXCEEDED, ErrorCode.TIMEOUT, ErrorCode.CONFLICT}


class UncopiedRef(NamedTuple):
    """A ref of a task that only a clone which was set aside has."""

    clone: Path
    name: str

    @property
    def description(self) -> str:
        """For people."""
        return f"{scrub(self.name)} in {self.clone.name}, which a repair set aside"


def put_in_place(path: Path, new: Path) -> Path:
    """Rename a new clone to `path`. Returns where the clone is that it replaces; `path` if there was none."""
    if not path.is_dir():
        new.rename(path)
        return path
    aside = path.with_name(f".{path.name}.corrupt-{time.time_ns()}")
    path.rename(aside)
    try:
        new.rename(path)
    except BaseException:
        aside.rename(path)
        raise
    return aside


def list_set_aside(path: Path) -> list[Path]:
    """The clones that repairs of the clone at `path` set aside, the newest first."""
    return sorted(path.parent.glob(f".{path.name}.corrupt-*"), reverse=True)


def list_unfinished(path: Path) -> list[Path]:
    """Those of them that may hold refs of tasks which were not copied, because the repair was interrupted."""
    return [aside for aside in list_set_aside(path) if _read_note(aside) is None]


def find_uncopied_refs(path: Path) -> list[UncopiedRef]:
    """Refs of tasks that the clone at `path` lacks, and a clone that was set aside may have.

    Raises: `internal` if their names cannot be read.
    """
    present = read_own_refs(path)
    found = []
    for aside in list_set_aside(path):
        noted = _read_note(aside)
        names = noted if noted is not None else read_own_refs(aside)
        found += [UncopiedRef(aside, name) for name in names if name not in present]
    return found


def _read_note(aside: Path) -> list[str] | None:
    """The refs that could not be copied; None if copying was not finished."""
    try:
        return [str(name) for name in json.loads((aside / _NOTE).read_bytes())["not_copied"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def note_copied(aside: Path, failed: Iterable[str]) -> None:
    """Note that the refs of a clone were copied, but for those in `failed`."""
    beside = aside / f"{_NOTE}.new"
    beside.write_text(json.dumps({"schema_version": 1, "not_copied": sorted(failed)}))
    beside.replace(aside / _NOTE)


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


def copy_own_refs(source: Path, new: Git, access: RemoteAccess) -> list[str]:
    """Copy the refs of tasks that the new clone lacks, with their objects; returns those that are lost.

    Of a partial clone also the files that these tasks need are fetched. Raises: network errors, `quota_exceeded`,
    `timeout`; `internal` if the refs cannot be read.
    """
    present = read_own_refs(new.git_dir)
    refs = {name: text for name, text in read_own_refs(source).items() if name not in present}
    old = Git(source, new.executable)
    tips = [oid for oid in refs.values() if is_object_id(oid)]
    for commit in _list_fork_points(old, tips) if partial_clones.is_partial(new) else ():
        if peel(new, commit, "commit"):
            partial_clones.fetch_missing_blobs(new, access, tree_of(new, commit))
    failed = [name for name in refs if is_bad_name(name) or not _copy_ref(old, new, name)]
    for name in failed:
        _log.error("%s could not be copied to the new clone: it is damaged, or its objects are lost", scrub(name))
    return failed


def _list_fork_points(old: Git, tips: Sequence[str]) -> list[str]:
    """Commits of the remote that tasks are based on, and the tips: a task needs the files of both."""
    grown = old.attempt("rev-list", "--boundary", *tips, "--not", "--remotes=origin") if tips else None
    lines = grown.stdout.decode().splitlines() if grown else []
    return list({line.removeprefix("-"): None for line in (*tips, *lines)})


def _copy_ref(old: Git, new: Git, name: str) -> bool:
    """Returns whether it was copied. Raises: `quota_exceeded`, `timeout`, `conflict`: it may be copied later."""
    limits = ResourceLimits(transport.MAX_FETCH_BYTES, transport.MAX_MEMORY_BYTES)
    with TRANSFER_BUDGET.reserve(limits.memory_bytes, LOCAL_DEADLINE_S):
        moved = new.attempt(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
            *(("--update-shallow",) if shallow.is_shallow(old.git_dir) else ()), "--",
            f"file://{quote(str(old.git_dir))}", f"{name}:{name}", network=NetworkAccess("file", limits=limits),
        )  # fmt: skip
    if moved.code == 0:
        return True
    error = classify("fetch", moved.code, moved.stderr)
    if error.code in _NOT_OF_THE_CLONE:
        raise error
    return False
