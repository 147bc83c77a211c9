"""Shallow histories: a checkout of a CI has the last commits only, and so has its cache clone.

Theory. `shallow` in a git directory names the commits that git treats as if they had no parents. A cache clone gets
such lines from local repositories only, by `fetch --update-shallow`. The lines are words of the source: while the clone
is deepened git believes them, also of a commit that the clone has with all its parents. This would hide commits that
are about to be pushed. So after a fetch such lines are removed (`keep_known_history`). What a shallow history cannot
tell is an error that names the command that completes it, never an answer (docs/adr/0180).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.failures import OutOfMemory
from sandbox.git.memory_limits import LARGE
from sandbox.git.objects import list_present_commits
from sandbox.git.process import Git

FILE = "shallow"
_KNOWN_FILE = "sandbox-known-history"
"""Commits of which the clone has the parents, while a fetch may say that it has not."""

CI_HINT = 'In CI: `fetch-depth: 0` of actions/checkout, or the variable `GIT_DEPTH: "0"` of GitLab.'
CUT_HINT = f"Fetch the whole history: `git fetch --unshallow` in the checkout, then repeat. {CI_HINT}"
_LINE = re.compile(r"^[0-9a-f]{40}(?:[0-9a-f]{24})?$")


def is_shallow(git_dir: Path) -> bool:
    """Whether the history in a git directory may end before its first commit."""
    return (git_dir / FILE).exists()


def read_boundary(git_dir: Path) -> frozenset[str]:
    """The commits where the history of a git directory of ours ends."""
    return _read_lines(git_dir / FILE)


def _read_lines(path: Path) -> frozenset[str]:
    try:
        lines = path.read_text(encoding="ascii").split("\n")
    except FileNotFoundError:
        return frozenset()
    return frozenset(filter(_LINE.match, lines))


@contextmanager
def keep_known_history(git: Git, offered: Iterable[str]) -> Iterator[None]:
    """While the body fetches from a repository with the boundary `offered`, no history that the clone has gets shorter.
    The caller holds the repository's lock. What is known is noted first: after a kill the next fetch finishes the work.
    """
    note = git.git_dir / _KNOWN_FILE
    _forget_boundary(git.git_dir, _read_lines(note))
    known = _find_reachable(git, sorted(frozenset(offered) - read_boundary(git.git_dir)))
    if known:
        _write_lines(note, known)
    try:
        yield
    finally:
        _forget_boundary(git.git_dir, known)
        note.unlink(missing_ok=True)


def _forget_boundary(git_dir: Path, known: frozenset[str]) -> None:
    boundary = read_boundary(git_dir)
    if not known & boundary:
        return
    if boundary <= known:
        (git_dir / FILE).unlink(missing_ok=True)
    else:
        _write_lines(git_dir / FILE, boundary - known)


def _find_reachable(git: Git, commits: Sequence[str]) -> frozenset[str]:
    """Those of `commits` that refs of the clone lead to."""
    here = list_present_commits(git, commits)
    if not here:
        return here
    try:
        return _find_in_history(git, here)
    except OutOfMemory:
        return _find_in_history(git.with_memory(LARGE), here)


def _find_in_history(git: Git, commits: frozenset[str]) -> frozenset[str]:
    with git.stream("rev-list", "--all", deadline_s=900) as process:
        reached = frozenset(oid for line in process.stdout if (oid := line.decode().rstrip()) in commits)
    if process.code != 0:
        raise SandboxError(ErrorCode.INTERNAL, "The history cannot be read", details=process.stderr[:2000])
    return reached


def _write_lines(path: Path, oids: Iterable[str]) -> None:
    beside = path.with_name(f"{path.name}.new")
    beside.write_text("".join(f"{oid}\n" for oid in sorted(oids)), encoding="ascii")
    beside.chmod(0o644)
    beside.replace(path)


def require_whole_history(git: Git, *revisions: str) -> None:
    """Require that the history does not end within these revisions: object ids, or `^` and one.

    Raises: `conflict`, with what to do.
    """
    if is_shallow(git.git_dir):
        require_not_cut(git, git.run("rev-list", *revisions, deadline_s=600).decode().split())


def require_not_cut(git: Git, commits: Iterable[str]) -> None:
    """Require that the parents of each commit are known. Raises: as `require_whole_history`."""
    if not read_boundary(git.git_dir).isdisjoint(commits):
        raise shallow_error("The checkout is shallow: it lacks commits that this needs")


def shallow_error(brief: str) -> SandboxError:
    """What to do about a history that is too short."""
    return SandboxError(ErrorCode.CONFLICT, brief, hint=CUT_HINT)
