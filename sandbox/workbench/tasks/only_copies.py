"""Work in a cache clone that exists only here: commits that were never pushed, and snapshots of uncommitted files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.workbench.tasks.branch_names import PREFIX, read_owner

_BRANCHES = "--branches=space-agent/*"
_PUSHED = "--glob=refs/sandbox/*/pushed"
_IS_KNOWN = lazy_pattern(r"refs/remotes/.+|refs/sandbox/[^/]+/pushed")


@dataclass(frozen=True)
class OnlyCopy:
    """Work of one task that would be lost with the clone. `owner`: the task's id, or its beginning `task-45c2abc0`."""

    owner: str
    description: str

    def is_of(self, task_id: str) -> bool:
        """Whether it is work of this task."""
        return task_id.startswith(self.owner)


@dataclass(frozen=True)
class WorkRef:
    """A branch, a snapshot or another ref of a task, as it was read. `tree` and `parent`: of its commit."""

    name: str
    oid: str
    tree: str
    parent: str


def list_work_refs(git: Git, *places: str) -> tuple[WorkRef, ...]:
    """The refs of all tasks of a clone: their branches, and those below `refs/sandbox`. `places`: only these refs, and
    those below a name that ends with `/`.
    """
    shape = "--format=%(objectname) %(refname) %(tree) %(parent)"
    listed = git.run("for-each-ref", shape, *(places or (PREFIX, "refs/sandbox/"))).decode(
        "utf-8", errors="surrogateescape"
    )
    rows = (line.split(" ", 3) for line in listed.splitlines())
    return tuple(WorkRef(name, oid, tree, parent) for oid, name, tree, parent in rows)


def find_only_copies(git: Git) -> Iterator[OnlyCopy]:
    """All such work of a clone, none if the clone is missing. Raises: the errors of a damaged clone."""
    if (git.git_dir / "HEAD").is_file():
        yield from find_among(git, list_work_refs(git))


def find_among(git: Git, refs: Sequence[WorkRef]) -> Iterator[OnlyCopy]:
    """All such work that these refs of a clone lead to."""
    known = {ref.oid for ref in refs if _IS_KNOWN.fullmatch(ref.name)}
    branches = [ref for ref in refs if ref.name.startswith(PREFIX) and ref.oid not in known]
    if branches:
        yield from _find_unpushed(git, branches)
    snapshots = [ref for ref in refs if "/snapshots/" in ref.name or "/rescued-" in ref.name]
    yield from _find_snapshots(git, [ref for ref in snapshots if not ref.name.startswith(PREFIX)])


def _find_unpushed(git: Git, branches: Sequence[WorkRef]) -> Iterator[OnlyCopy]:
    """Branches of tasks with a commit that is on no remote branch, on no tag and in no push of ours."""
    known = ("--not", "--remotes", "--tags", _PUSHED)
    which = branches[0].name if len(branches) == 1 else _BRANCHES
    ours = set(git.run("rev-list", which, *known).decode().split())
    for branch in branches:
        if branch.oid in ours:
            name = branch.name.removeprefix("refs/heads/").encode(errors="surrogateescape").decode(errors="replace")
            yield OnlyCopy(read_owner(branch.name) or name, f"branch {name}: commits that were never pushed")


def _find_snapshots(git: Git, snapshots: Sequence[WorkRef]) -> Iterator[OnlyCopy]:
    """Snapshots and rescued worktrees with files that are not in their parent commit, nor in the tip of a branch. A
    parent to which only snapshots lead, such as a commit of a tree workspace, goes with them.
    """
    if not snapshots:
        return
    parents = {ref.parent for ref in snapshots}
    known = ("--not", "--remotes", "--tags", _BRANCHES, _PUSHED)
    parents -= set(git.run("rev-list", "--stdin", *known, stdin=_join_lines(parents)).decode().split())
    tips = ("rev-list", "--no-walk", "--no-commit-header", "--format=%T", _BRANCHES, _PUSHED, "--stdin")
    committed = set(git.run(*tips, stdin=_join_lines(parents)).decode().split())
    for ref in snapshots:
        if ref.tree not in committed:
            task_id, _, kept = ref.name.removeprefix("refs/sandbox/").partition("/")
            name = kept.removeprefix("snapshots/")
            yield OnlyCopy(task_id, f"snapshot {name} of {task_id}: files that were never committed")


def _join_lines(oids: Iterable[str]) -> bytes:
    return "".join(f"{oid}\n" for oid in oids).encode()
