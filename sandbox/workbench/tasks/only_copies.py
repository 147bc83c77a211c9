"""Work in a cache clone that exists only here: commits that the remote does not have, and snapshots of uncommitted
files.

A push moves the remote-tracking branch, as git's own does, and a fetch deletes it with the remote's branch. So a commit
that was pushed is known to be there until a fetch says otherwise. Where the task has a pull request, the forge keeps
its head when the branch is deleted, as it is after a squash merge. Only the head that the forge named counts: a request
that is merged or closed does not follow its branch, so a later push is not kept with it (docs/adr/0206).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from sandbox.git.objects import list_present_commits
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import Task
from sandbox.workbench.tasks.branch_names import PREFIX, read_owner

_BRANCHES = "--branches=space-agent/*"
_REMOTE = "refs/remotes/"
_PUSHED = lazy_pattern(r"refs/sandbox/[^/]+/pushed")


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


def list_request_heads(tasks: Iterable[Task]) -> frozenset[str]:
    """The head commits of these tasks' pull requests, as the forge named them. They may be missing in the clone."""
    return frozenset(task.pr_head for task in tasks if task.pr_head)


def find_only_copies(git: Git, heads: Collection[str]) -> Iterator[OnlyCopy]:
    """All such work of a clone, none if the clone is missing. `heads`: of `list_request_heads`. Raises: the errors of a
    damaged clone.
    """
    if (git.git_dir / "HEAD").is_file():
        yield from find_among(git, list_work_refs(git), heads)


def find_among(git: Git, refs: Sequence[WorkRef], heads: Collection[str]) -> Iterator[OnlyCopy]:
    """All such work that these refs of a clone lead to. `heads`: of `list_request_heads`."""
    known = {ref.oid for ref in refs if ref.name.startswith(_REMOTE)}.union(heads)
    branches = [ref for ref in refs if ref.name.startswith(PREFIX) and ref.oid not in known]
    snapshots = [ref for ref in refs if "/snapshots/" in ref.name or "/rescued-" in ref.name]
    snapshots = [ref for ref in snapshots if not ref.name.startswith(PREFIX)]
    # Another person may have pushed the head of a request: then it is not here.
    kept = list_present_commits(git, heads) if branches or snapshots else frozenset()
    if branches:
        yield from _find_unpushed(git, branches, kept, {ref.oid for ref in refs if _PUSHED.fullmatch(ref.name)})
    yield from _find_snapshots(git, snapshots, kept)


def _find_unpushed(
    git: Git, branches: Sequence[WorkRef], kept: Collection[str], pushed: Collection[str]
) -> Iterator[OnlyCopy]:
    """Branches of tasks with a commit that is on no remote branch, on no tag and in no pull request of ours. `pushed`:
    what the remote had once.
    """
    which = branches[0].name if len(branches) == 1 else _BRANCHES
    hidden = _join_lines(f"^{oid}" for oid in kept)
    ours = set(git.run("rev-list", which, "--stdin", "--not", "--remotes", "--tags", stdin=hidden).decode().split())
    for branch in branches:
        if branch.oid in ours:
            name = branch.name.removeprefix("refs/heads/").encode(errors="surrogateescape").decode(errors="replace")
            why = "that the remote no longer has" if branch.oid in pushed else "that were never pushed"
            yield OnlyCopy(read_owner(branch.name) or name, f"branch {name}: commits {why}")


def _find_snapshots(git: Git, snapshots: Sequence[WorkRef], kept: Collection[str]) -> Iterator[OnlyCopy]:
    """Snapshots and rescued worktrees with files that are not in their parent commit, nor in the tip of a branch. A
    parent to which only snapshots lead, such as a commit of a tree workspace, goes with them.
    """
    if not snapshots:
        return
    parents = {ref.parent for ref in snapshots}
    known = ("--not", "--remotes", "--tags", _BRANCHES)
    asked = _join_lines([*parents, *(f"^{oid}" for oid in kept)])
    parents -= set(git.run("rev-list", "--stdin", *known, stdin=asked).decode().split())
    tips = ("rev-list", "--no-walk", "--no-commit-header", "--format=%T", _BRANCHES, "--stdin")
    committed = set(git.run(*tips, stdin=_join_lines({*parents, *kept})).decode().split())
    for ref in snapshots:
        if ref.tree not in committed:
            task_id, _, kept = ref.name.removeprefix("refs/sandbox/").partition("/")
            name = kept.removeprefix("snapshots/")
            yield OnlyCopy(task_id, f"snapshot {name} of {task_id}: files that were never committed")


def _join_lines(oids: Iterable[str]) -> bytes:
    return "".join(f"{oid}\n" for oid in oids).encode()
