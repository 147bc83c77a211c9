"""Partial clones: every commit and tree is here, a blob comes when we ask for it, and only then.

Theory. In a partial clone git fetches a missing blob by itself wherever it meets one, with whatever the configuration
says about the remote: an execution sink (THREATS B18). So our configuration never says that a clone is partial. The
promise that the remote keeps the rest is told to two commands only, each time anew: `fetch`, which then asks for
commits and trees, and `fsck`, which then forgives missing blobs. To all others an object that is not here is missing.
What a use-case needs, a tree's blobs, is brought by `complete` before it begins, in one request of ours.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.entries import GITLINK
from sandbox.git.objects import Budget, list_tree
from sandbox.git.process import Git
from sandbox.git.transport import PROMISE, Access, fetch_blobs

BATCH = 100_000
"""Objects asked for in one request of `materialize`: 4 MB of ids."""

PROMISED = {
    "GIT_CONFIG_COUNT": str(len(PROMISE)),
    **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(PROMISE)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(PROMISE.values())},
}
"""Environment of a command that has to know that blobs are promised."""

_MARKER = "sandbox-partial"
_IGNORED = "warning: filtering not recognized by server"


def is_partial(git: Git) -> bool:
    """Whether blobs may be missing from this clone without anything being wrong."""
    return (git.git_dir / _MARKER).exists()


def promise(git_dir: Path) -> None:
    """Make a clone partial, before its first fetch."""
    (git_dir / _MARKER).touch()


def filter_ignored(said: str) -> bool:
    """Whether git said in its fetch that the server sent everything all the same."""
    return any(line.startswith(_IGNORED) for line in said.splitlines())


def missing_blobs(git: Git, tree: str, budget: Budget | None = None) -> list[str]:
    """Blobs of this tree that have to be fetched. Raises: `quota_exceeded` for a tree of too many files."""
    leaves = list_tree(git, tree, budget, sizes=False)
    return _missing(git, list({e.oid: None for e in leaves if e.mode != GITLINK}))


def _missing(git: Git, oids: Sequence[str]) -> list[str]:
    """Which of these are not here."""
    out = git.run("cat-file", "--batch-check", stdin="".join(f"{oid}\n" for oid in oids).encode(), deadline_s=600)
    return [line.split()[0] for line in out.decode().splitlines() if line.endswith(" missing")]


def absent_objects(git: Git) -> Generator[str, None, None]:
    """All objects that our refs lead to and that are not here."""
    with git.stream("rev-list", "--objects", "--all", "--missing=print", deadline_s=900) as process:
        for line in process.stdout:
            if line.startswith(b"?"):
                yield line[1:].split()[0].decode()
    if process.code != 0:
        raise SandboxError(ErrorCode.INTERNAL, "The history cannot be walked", details=process.stderr[:2000])


def complete(git: Git, access: Access, tree: str) -> None:
    """Bring what a tree lacks, so that it can be listed with sizes, read and checked out.

    Servers do not tell sizes beforehand: `max_fetch_bytes` bounds what comes, `list_tree` what is then checked out.
    """
    if is_partial(git) and (oids := missing_blobs(git, tree)):
        fetch_blobs(git, access, oids)


def materialize(git: Git, access: Access) -> int:
    """Turn a partial clone whole; how many objects came. Safe to repeat, and to interrupt: it goes on from there."""
    oids = list(absent_objects(git)) if is_partial(git) else []
    for start in range(0, len(oids), BATCH):
        fetch_blobs(git, access, oids[start : start + BATCH])
    if not forget_promise(git):
        raise SandboxError(ErrorCode.NOT_FOUND, "The remote did not send all that was missing", hint="Try again.")
    return len(oids)


def forget_promise(git: Git) -> bool:
    """When nothing is missing, make the clone an ordinary one, in which a missing object is an error."""
    if not is_partial(git):
        return True
    with closing(absent_objects(git)) as absent:
        if next(absent, None) is not None:
            return False
    for path in (git.git_dir / "objects" / "pack").glob("*.promisor"):
        path.unlink(missing_ok=True)
    (git.git_dir / _MARKER).unlink(missing_ok=True)
    return True
