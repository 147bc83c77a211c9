"""Partial clones: the clone has every commit and tree; a blob is fetched only when we request it.

Theory. In a partial clone git itself fetches a missing blob whenever it meets one, with the remote that the
configuration names: an execution sink (THREATS B18). So our configuration never says that a clone is partial. Only
three commands get the promisor setting, each time as an argument: `fetch`, which then requests commits and trees only,
`fsck`, which then accepts missing blobs, and `repack`, which then leaves them out. For all other commands an absent
object is an error. A use-case needs a tree's blobs: `fetch_missing_blobs` fetches them before the use-case begins, in
one request.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.entries import GITLINK
from sandbox.git.memory_limits import choose_history_memory
from sandbox.git.objects import TreeBudget, list_tree
from sandbox.git.process import Git
from sandbox.git.transport import PROMISOR_CONFIG, RemoteAccess, fetch_blobs

BATCH_OBJECTS = 100_000
"""Objects in one request of `materialize`: 4 MB of ids."""

_MARKER = "sandbox-partial"
_IGNORED = "warning: filtering not recognized by server"


def make_environment(git: Git, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of a command with this configuration, as `git -c`. In a partial clone git also learns that the remote
    has the missing blobs, but no address, so that the command cannot fetch them.
    """
    config = {**(settings or {}), **(PROMISOR_CONFIG if is_partial(git) else {})}
    return {
        "GIT_CONFIG_COUNT": str(len(config)),
        **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(config)},
        **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(config.values())},
    }


def is_partial(git: Git) -> bool:
    """Whether blobs may be missing from this clone without an error."""
    return has_partial_mark(git.git_dir)


def has_partial_mark(git_dir: Path) -> bool:
    """As `is_partial`, for the directory of a clone."""
    return (git_dir / _MARKER).exists()


def mark_partial(git_dir: Path) -> None:
    """Mark a clone as partial, before its first fetch."""
    (git_dir / _MARKER).touch(mode=0o600)


def is_filter_ignored(said: str) -> bool:
    """Whether the fetch reported that the server ignored the filter and sent all objects."""
    return any(line.startswith(_IGNORED) for line in said.splitlines())


def list_missing_blobs(git: Git, tree: str, budget: TreeBudget | None = None) -> list[str]:
    """Blobs of this tree that must be fetched. Raises: `quota_exceeded` for a tree with too many files."""
    leaves = list_tree(git, tree, budget, sizes=False)
    return _select_missing(git, list({e.oid: None for e in leaves if e.mode != GITLINK}))


def _select_missing(git: Git, oids: Sequence[str]) -> list[str]:
    """Those of `oids` that the clone does not have."""
    out = git.run("cat-file", "--batch-check", stdin="".join(f"{oid}\n" for oid in oids).encode(), deadline_s=600)
    return [line.split()[0] for line in out.decode().splitlines() if line.endswith(" missing")]


def list_missing_objects(git: Git) -> Generator[str, None, None]:
    """All objects that are reachable from our refs and missing from the clone."""
    with git.stream("rev-list", "--objects", "--all", "--missing=print", deadline_s=900) as process:
        for line in process.stdout:
            if line.startswith(b"?"):
                yield line[1:].split()[0].decode()
    if process.code != 0:
        raise SandboxError(ErrorCode.INTERNAL, "The history cannot be read", details=process.stderr[:2000])


def fetch_missing_blobs(git: Git, access: RemoteAccess, tree: str) -> None:
    """Fetch the missing blobs of a tree, so that it can be listed with sizes, read and checked out.

    Servers do not send sizes in advance: `max_fetch_bytes` bounds the transfer, `list_tree` bounds the checkout.
    """
    if is_partial(git) and (oids := list_missing_blobs(git, tree)):
        fetch_blobs(git, access, oids)


def materialize(git: Git, access: RemoteAccess) -> int:
    """Fetch all missing objects of a partial clone; returns their number. Safe to interrupt: a repeat continues."""
    git = git.with_memory(choose_history_memory(access.max_memory_bytes))
    oids = list(list_missing_objects(git)) if is_partial(git) else []
    for start in range(0, len(oids), BATCH_OBJECTS):
        fetch_blobs(git, access, oids[start : start + BATCH_OBJECTS])
    if not unmark_if_complete(git):
        raise SandboxError(ErrorCode.NOT_FOUND, "The remote did not send all missing objects", hint="Try again.")
    return len(oids)


def unmark_if_complete(git: Git) -> bool:
    """If no object is missing, make the clone an ordinary one, in which a missing object is an error."""
    if not is_partial(git):
        return True
    with closing(list_missing_objects(git)) as absent:
        if next(absent, None) is not None:
            return False
    for path in (git.git_dir / "objects" / "pack").glob("*.promisor"):
        path.unlink(missing_ok=True)
    (git.git_dir / _MARKER).unlink(missing_ok=True)
    return True
