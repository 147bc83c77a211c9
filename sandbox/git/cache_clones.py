"""Cache clones: bare repositories. Only the controller writes their configuration."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.local.folders import open_folder
from sandbox.git.local.read_refs import read_values
from sandbox.git.memory_limits import LARGE, choose_history_memory
from sandbox.git.objects import is_object_id, peel, tree_of
from sandbox.git.process import Git
from sandbox.git.refs import require_ref_name, resolve_ref, resolve_ref_to_commit
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.lazy_pattern import lazy_pattern
from sandbox.private_folders import make_private

if TYPE_CHECKING:
    from sandbox import durable
    from sandbox.git import clone_lock, set_aside, shallow, stale_locks, transport
    from sandbox.git import partial as partial_clones
    from sandbox.git.transport import RemoteAccess, RemoteHead, RemoteRefs
    from sandbox.remotes import Remote
else:  # loaded at first use (docs/adr/0080)
    clone_lock = LazyModule("sandbox.git.clone_lock")
    durable = LazyModule("sandbox.durable")
    partial_clones = LazyModule("sandbox.git.partial")
    set_aside = LazyModule("sandbox.git.set_aside")
    shallow = LazyModule("sandbox.git.shallow")
    stale_locks = LazyModule("sandbox.git.stale_locks")
    transport = LazyModule("sandbox.git.transport")

_log = logging.getLogger(__name__)

DETACHED = "HEAD"
"""What stands for the default branch of a remote that has none, or only those of tasks: its HEAD, which the clone keeps
beside the branches."""

_ONLY_HEAD, _OTHER_HEAD = f"refs/remotes/origin/{DETACHED}", "refs/requests/HEAD"
"""Where a detached HEAD is kept: in place of a default branch, or as a pull request, which no branch leads to."""

_MARKER = "sandbox-fetched.json"
_CORRUPTION_CODES = {
    ErrorCode.INTERNAL,
    ErrorCode.UNSAFE_REPOSITORY,
    ErrorCode.REMOTE_BROKEN,
    ErrorCode.NOT_FOUND,
}
_LOOSE_REFS = 1000
_MAX_NAMES_SHOWN = 12
_SHA1, _SHA256 = 40, 64  # digits of an object id
_SHORT_ID = lazy_pattern(r"^[0-9a-f]{7,63}$")
_CONFIG = """\
[core]
\trepositoryformatversion = %d
\tfilemode = true
\tbare = true
\tlogAllRefUpdates = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[receive]
\tdenyCurrentBranch = refuse
"""
_UNBORN = "none"
_HEAD = f"ref: refs/heads/{_UNBORN}\n".encode()
_CONFIGS = {
    _SHA1: (_CONFIG % 0).encode(),
    _SHA256: f"{_CONFIG % 1}[extensions]\n\tobjectFormat = sha256\n".encode(),
}


def open_cache(path: Path, executable: str = "") -> Git:
    """Return `Git` for an existing cache clone. Raises: `not_found`."""
    if not (path / "HEAD").is_file():
        brief = f"The cache clone {path.name} is missing"
        raise SandboxError(ErrorCode.NOT_FOUND, brief, hint="Clone the repository again.")
    found = path.stat()
    return Git(path, executable, clone_id=(found.st_dev, found.st_ino))


def refresh(
    path: Path,
    access: RemoteAccess,
    requested_at: float | None = None,
    *,
    partial: bool = False,
    only_if_changed: bool = False,
) -> RemoteHead:
    """Create the cache clone if it is missing, and fetch into it. The caller holds the repository's lock.

    `requested_at`: when the caller asked, in seconds since the epoch. A fetch that another process began after this
    time is enough, so many callers that wait for one lock fetch once. One in the future is not: the clock was set back
    since. A corrupt clone is renamed and cloned again.
    `partial`: for a new clone (see `git.partial`); an existing clone stays as it is. `only_if_changed`: do not fetch if
    the branches and tags of an existing clone are those of the remote: one request instead of two.
    Raises: `origin_mismatch` if the clone is of another remote with the same repository id.
    """
    if not (path / "HEAD").is_file():
        return _create_clone(path, access, partial=partial)
    last = _read_last_fetch(path)
    _require_origin(path, last, access)
    if last is not None and requested_at is not None and requested_at <= last.began <= time.time():
        return last.head
    write_config(path, _find_oid_length(path, last))
    try:
        head = _fetch_and_record(Git(path, access.git), access, only_if_changed=only_if_changed)
    except SandboxError as error:
        if error.code not in _CORRUPTION_CODES or is_intact(Git(path, access.git), access.max_memory_bytes):
            raise
        _log.warning("the cache clone %s is corrupt; cloning it again", path.name)
        return replace_corrupt_clone(path, access)
    set_aside.note_in_place(path)
    return head


def _require_origin(path: Path, last: _FetchRecord | None, access: RemoteAccess) -> None:
    """Two remotes with the same repository id may be cloned at the same moment, before either is registered."""
    if last is not None and last.is_of_other_remote(access.remote):
        raise SandboxError(
            ErrorCode.ORIGIN_MISMATCH,
            f"The cache clone {path.name} is of another remote",
            details=f"it is of {last.remote}, but the request was for {_remote_identity(access.remote)}",
            hint="Repeat the command: the second remote then gets an id of its own.",
        )


def is_clone_of_other_remote(path: Path, remote: Remote) -> bool:
    """Whether there is a cache clone at `path` that was made from another remote."""
    last = _read_last_fetch(path)
    return last is not None and last.is_of_other_remote(remote)


def _remote_identity(remote: Remote) -> str:
    """Identify a remote without protocol and login."""
    return f"{remote.hostname}/{remote.owner}/{remote.name}"


def write_config(path: Path, oid_length: int) -> None:
    """Write the clone's configuration atomically: other processes may be reading this clone."""
    _write_own_file(path / "config", _CONFIGS[oid_length])


def _write_own_file(path: Path, content: bytes) -> None:
    beside = path.with_name(f"{path.name}.new")
    if _read_own_file(path) != content:
        beside.write_bytes(content)
        beside.chmod(0o644)
        beside.replace(path)


def _find_oid_length(path: Path, last: _FetchRecord | None) -> int:
    """Digits of the clone's object ids: from the record of the last fetch, else from a configuration we wrote."""
    if last is not None and len(last.head.commit) in _CONFIGS:
        return len(last.head.commit)
    return _SHA256 if _read_own_file(path / "config") == _CONFIGS[_SHA256] else _SHA1


def _read_own_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _create_clone(path: Path, access: RemoteAccess, *, partial: bool) -> RemoteHead:
    """Clone into a directory beside `path`, then rename it: a killed clone does not disturb the next one.

    Refs of tasks are copied into it before: from a damaged clone at `path`, which is then set aside, and from those
    that interrupted repairs set aside. Raises: as `refresh`; `internal` if refs of tasks cannot be read.
    """
    beside = path.with_name(f".{path.name}.incoming")
    if path.is_dir():
        set_aside.note_in_place(path)
    sources = [path] if path.is_dir() else set_aside.list_unfinished(path)
    for source in sources:
        set_aside.read_own_refs(source)
        write_config(source, _find_oid_length(source, _read_last_fetch(source)))
        _write_own_file(source / "HEAD", _HEAD)  # without these two git reads no clone, however complete it is
    shutil.rmtree(beside, ignore_errors=True)
    make_private(beside.parent)
    try:
        beside.mkdir(mode=0o700)  # git would use the umask
        git = Git(beside, access.git)
        git.run("init", "--quiet", "--bare", "--template=", f"--initial-branch={_UNBORN}", str(beside))
        write_config(beside, _SHA1)
        partial = partial or any(map(partial_clones.has_partial_mark, sources))
        if partial or transport.is_partial_source(git, access):
            partial_clones.mark_partial(beside)
        head = _fetch_and_record(git, access, is_new=True)
        fetched = set[str]()
        set_aside.fetch_needed_files(sources, git, access, fetched)
        with clone_lock.hold_for_replacement(path):
            set_aside.fetch_needed_files(sources, git, access, fetched)  # only for tasks that moved meanwhile
            _copy_refs_and_replace(path, git, access, sources)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    set_aside.note_in_place(path)
    return head


def _copy_refs_and_replace(path: Path, new: Git, access: RemoteAccess, sources: Sequence[Path]) -> None:
    failed: dict[Path, list[str]] = {}
    for source in sources:
        failed[source] = set_aside.copy_own_refs(source, new, access, set(chain(*failed.values())))
    with set_aside.translated_shortages():
        durable.make_durable(new.git_dir)
        for source, names in failed.items():
            set_aside.note_copied(source, names)
        set_aside.put_in_place(path, new.git_dir)


def is_intact(git: Git, memory_bytes: int = 0) -> bool:
    """Whether every object that the refs reach is present and readable, or promised by the remote.

    `memory_bytes`: that a fetch may use; 0 for the default. Raises: `quota_exceeded` if the history needs more.
    """
    git = git.with_memory(choose_history_memory(memory_bytes or transport.MAX_MEMORY_BYTES))
    question = ("fsck", "--connectivity-only", "--no-dangling", "--no-progress")
    env = partial_clones.make_environment(git)
    return git.attempt(*question, env=env, deadline_s=900).code == 0


def replace_corrupt_clone(path: Path, access: RemoteAccess) -> RemoteHead:
    """Clone again, with the refs of tasks that are still complete, in the place of a corrupt clone.

    The corrupt clone is kept beside the new one, for inspection. Until the new one is complete it stays in its place.
    """
    return _create_clone(path, access, partial=False)


def _fetch_and_record(
    git: Git, access: RemoteAccess, *, is_new: bool = False, only_if_changed: bool = False
) -> RemoteHead:
    began = time.time()
    if only_if_changed and (unchanged := _ask_folder(git, access)):
        return _record_fetch(git, access, began, unchanged)
    head, unchanged, head_ref = _ask_remote(git, access, compare=only_if_changed)
    if unchanged:
        return _record_fetch(git, access, began, unchanged)
    if is_new:
        write_config(git.git_dir, len(head.commit))
    said = transport.fetch(git, access, partial=partial_clones.is_partial(git), head_ref=head_ref)
    _pack_refs(git)
    if not head.branch:
        head = transport.RemoteHead(_find_branch_at(git, head.commit), head.commit)
    if partial_clones.is_filter_ignored(said):
        partial_clones.unmark_if_complete(git)
    if partial_clones.is_partial(git):
        partial_clones.fetch_missing_blobs(git, access, tree_of(git, resolve_commit(git, "HEAD", head.branch)))
    fetched = _read_fetched_refs(git).get(f"refs/heads/{head.branch}", "")
    return _record_fetch(git, access, began, replace(head, branch_commit=fetched))


def _ask_folder(git: Git, access: RemoteAccess) -> RemoteHead | None:
    """As `_find_unchanged_head`, of a remote in a folder of this host, without a process; None also for others."""
    local = transport.read_local_refs(git, access)
    return None if local is None else _find_unchanged_head(git, local)


class _RemoteAnswer(NamedTuple):
    """The remote's head; if it is unchanged, the head again; where to keep a HEAD that is detached, else ''."""

    head: RemoteHead
    unchanged: RemoteHead | None
    head_ref: str


def _ask_remote(git: Git, access: RemoteAccess, *, compare: bool) -> _RemoteAnswer:
    """With `compare` it has the answer of `_find_unchanged_head`. The list of refs may be large: it is not kept."""
    last = _read_last_fetch(git.git_dir)
    remote = transport.read_remote_refs(git, access, last.head.branch if last else "")
    unchanged = _find_unchanged_head(git, remote) if compare else None
    if remote.head.branch:
        return _RemoteAnswer(remote.head, unchanged, "")
    names = (name.removeprefix("refs/heads/") for name in remote.refs if name.startswith("refs/heads/"))
    has_branch = any(not name.startswith(transport.TASK_BRANCHES) for name in names)
    return _RemoteAnswer(remote.head, unchanged, _OTHER_HEAD if has_branch else _ONLY_HEAD)


def _find_unchanged_head(git: Git, remote: RemoteRefs) -> RemoteHead | None:
    """The remote's head if it names a branch, and the clone has exactly the branches and tags of the remote."""
    branch_commit = remote.refs.get(f"refs/heads/{remote.head.branch}")
    if branch_commit is None or shallow.is_shallow(git.git_dir) or _read_fetched_refs(git) != remote.refs:
        return None
    return replace(remote.head, branch_commit=branch_commit)


def _read_fetched_refs(git: Git) -> dict[str, str]:
    """The branches and tags of the remote that the clone has, by the names that they have there."""
    with open_folder(git.git_dir) as folder:
        ours = read_values(folder, transport.MAX_REFS, ("refs/remotes/origin", "refs/tags"))
    return {name.replace("refs/remotes/origin/", "refs/heads/", 1): oid for name, oid in ours.items()}


def _record_fetch(git: Git, access: RemoteAccess, began: float, head: RemoteHead) -> RemoteHead:
    """Write into the clone what was fetched when. Returns the head."""
    record = {
        "schema_version": 1,
        "began": began,
        "branch": head.branch,
        "commit": head.commit,
        "branch_commit": head.branch_commit,
        "remote": _remote_identity(access.remote),
    }
    marker = git.git_dir / _MARKER
    beside = marker.with_suffix(".new")
    beside.write_text(json.dumps(record))
    beside.chmod(0o644)
    beside.replace(marker)
    return head


def read_last_fetch_time(path: Path) -> float | None:
    """When the last fetch of a clone began, in seconds since the epoch; None if that is unknown."""
    last = _read_last_fetch(path)
    return None if last is None else last.began


@dataclass(frozen=True)
class _FetchRecord:
    """The record of a clone's last fetch. `remote`: '' if an older version of the program made the clone."""

    began: float
    head: RemoteHead
    remote: str

    def is_of_other_remote(self, remote: Remote) -> bool:
        return self.remote not in {"", _remote_identity(remote)}


def _read_last_fetch(path: Path) -> _FetchRecord | None:
    try:
        record = json.loads((path / _MARKER).read_bytes())
        branch, commit = require_ref_name(record["branch"]), str(record["commit"])
        head = transport.RemoteHead(branch, commit, str(record.get("branch_commit", "")))
        return _FetchRecord(float(record["began"]), head, str(record.get("remote", "")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SandboxError):
        return None


def _pack_refs(git: Git) -> None:
    """A fetch writes a file for each ref. Packing 20,000 refs makes one file of 1 MB out of 80 MB."""
    if sum(1 for _ in islice((git.git_dir / "refs").rglob("*"), _LOOSE_REFS)) == _LOOSE_REFS:
        large = git.with_memory(LARGE)
        pack = partial(large.run, "pack-refs", "--all", "--prune", deadline_s=stale_locks.PACK_REFS_DEADLINE_S)
        stale_locks.run_despite_stale_locks(git.git_dir, pack)


def _find_branch_at(git: Git, commit: str) -> str:
    """The default branch for a detached remote HEAD: a branch at that commit, else any; main and master first.

    Never a branch of a task. `DETACHED` if the remote has no other, as the checkouts of CI systems.
    """
    for at_commit in ([f"--points-at={commit}"], []):
        out = git.run("for-each-ref", "--format=%(refname:lstrip=3)", *at_commit, "refs/remotes/origin/")
        names = out.decode("utf-8", errors="replace").split()
        names = [name for name in names if name != DETACHED and not name.startswith(transport.TASK_BRANCHES)]
        for name in ("main", "master", *names):
            if name in names:
                return require_ref_name(name)
    return DETACHED


def resolve_commit(git: Git, ref: str, default_branch: str) -> str:
    """The commit of a branch, tag, commit id or `HEAD` (the default branch), as of the last fetch.

    An id may be short: at least seven digits that only one commit begins with. A branch or tag of that name goes first.
    Raises: `invalid_input` for a revision expression or an ambiguous id, `not_found` for an unknown name.
    """
    if ref == "HEAD":
        ref = default_branch
    if is_object_id(ref):
        candidates = [ref]
    else:
        name = require_ref_name(ref)
        candidates = [f"refs/remotes/origin/{name}", f"refs/tags/{name}"]
    for candidate in candidates:
        commit = peel(git, candidate, "commit") if is_object_id(candidate) else resolve_ref_to_commit(git, candidate)
        if commit:
            return commit
    if _SHORT_ID.fullmatch(ref) and (commit := _find_by_short_id(git, ref)):
        return commit
    raise SandboxError(
        ErrorCode.NOT_FOUND,
        f"The remote has no branch, tag or commit '{ref[:100]}'",
        details=f"Known: {', '.join(_list_recent_names(git))}",
        hint="A commit must be on a branch or tag. A pull request is named pr/NUMBER.",
    )


def find_target(git: Git, branch: str, default_branch: str) -> tuple[str, str]:
    """The branch of the remote with this name and its commit as of the last fetch; the default branch if there is none.

    `branch`: also as a full ref name. Raises: as `resolve_commit`.
    """
    name = branch.removeprefix("refs/heads/")
    if tip := resolve_ref(git, f"refs/remotes/origin/{name}"):
        return name, tip
    return default_branch, resolve_commit(git, "HEAD", default_branch)


def _find_by_short_id(git: Git, prefix: str) -> str | None:
    """The only commit with an id that begins with these digits. Raises: `invalid_input` if there are several."""
    listed = git.attempt("rev-parse", f"--disambiguate={prefix}").stdout.decode().split()
    commits = [oid for oid in listed if peel(git, oid, "commit") == oid]
    if len(commits) > 1:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{len(commits)} commits begin with {prefix}",
            details=", ".join(oid[: len(prefix) + 6] for oid in commits[:_MAX_NAMES_SHOWN]),
            hint="Give more digits.",
        )
    return commits[0] if commits else None


def _list_recent_names(git: Git) -> list[str]:
    """The branches and tags that changed last, a short list for people."""
    places = ("refs/remotes/origin/", "refs/tags/")
    listed = git.run(
        "for-each-ref", f"--count={_MAX_NAMES_SHOWN + 1}", "--sort=-creatordate", "--format=%(refname)", *places
    )
    names = [name.removeprefix(places[0]).removeprefix(places[1]) for name in listed.decode(errors="replace").split()]
    return [*names[:_MAX_NAMES_SHOWN], "..."] if len(names) > _MAX_NAMES_SHOWN else names
