"""Work in a cache clone that exists only here: commits that were never pushed, and snapshots of uncommitted files."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.workbench.tasks.branch_names import PREFIX, read_owner

_BRANCHES = "--branches=space-agent/*"
_PUSHED = "--glob=refs/sandbox/*/pushed"


@dataclass(frozen=True)
class OnlyCopy:
    """Work of one task that would be lost with the clone. `owner`: the task's id, or its beginning `task-45c2abc0`."""

    owner: str
    description: str

    def is_of(self, task_id: str) -> bool:
        """Whether it is work of this task."""
        return task_id.startswith(self.owner)


def find_only_copies(git: Git) -> Iterator[OnlyCopy]:
    """All such work of a clone, none if the clone is missing. Raises: the errors of a damaged clone."""
    if (git.git_dir / "HEAD").is_file():
        yield from _find_unpushed(git)
        yield from _find_snapshots(git)


def _find_unpushed(git: Git) -> Iterator[OnlyCopy]:
    """Branches of tasks with a commit that is on no remote branch, on no tag and in no push of ours."""
    known = ("--not", "--remotes", "--tags", _PUSHED)
    ours = set(git.run("rev-list", _BRANCHES, *known).decode().split())
    listed = git.run("for-each-ref", "--format=%(objectname) %(refname)", PREFIX)
    for line in listed.decode("utf-8", errors="replace").splitlines():
        tip, _, branch = line.partition(" ")
        if tip in ours:
            name = branch.removeprefix("refs/heads/")
            yield OnlyCopy(read_owner(branch) or name, f"branch {name}: commits that were never pushed")


def _find_snapshots(git: Git) -> Iterator[OnlyCopy]:
    """Snapshots and rescued worktrees with files that are not in their parent commit, nor in the tip of a branch."""
    listed = git.run("for-each-ref", "--format=%(refname:lstrip=2) %(tree) %(parent)", "refs/sandbox/")
    rows = [line.split() for line in listed.decode().splitlines() if "/snapshots/" in line or "/rescued-" in line]
    if not rows:
        return
    parents = "".join(f"{parent}\n" for _, _, parent in rows).encode()
    known = ("rev-list", "--no-walk", "--no-commit-header", "--format=%T", _BRANCHES, _PUSHED, "--stdin")
    committed = set(git.run(*known, stdin=parents).decode().split())
    for task_id, _, kept in (name.partition("/") for name, tree, _ in rows if tree not in committed):
        name = kept.removeprefix("snapshots/")
        yield OnlyCopy(task_id, f"snapshot {name} of {task_id}: files that were never committed")
