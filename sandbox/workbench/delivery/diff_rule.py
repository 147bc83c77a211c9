"""Why a person has to be asked about what a push sends, although the operator allows pushes without risky files.

Every fact is computed here from objects of the cache clone, never from what an agent or a guest says. What counts:

- each commit that no branch or tag of the remote has, branches of tasks aside, since the task's base may be the head of
  a stranger's request or of another task;
- the difference from the task's base, since a merge can bring files of an old commit back;
- CI files that are not those of the branch that the task is for, since a task may begin at an old commit.

A path counts with all names by which programs may reach it: folded as the most tolerant file system does
(`PathRule.covers`), and through every link of the tree. A link or a submodule that is sent is always a reason: what
it leads to is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sandbox.git import objects
from sandbox.git.blobs import read_blobs
from sandbox.git.cache_clones import find_target
from sandbox.git.diff import diff_trees
from sandbox.git.entries import GITLINK, SYMLINK, TreeEntry
from sandbox.git.log import list_unpublished_paths
from sandbox.git.process import Git
from sandbox.models import Task
from sandbox.policy.approvals import DiffRule
from sandbox.policy.paths import LOOK_ALIKE, RepoPath, fold_name, show_path
from sandbox.policy.writes import find_flags
from sandbox.text import escape_path
from sandbox.workbench.checks.gate import TreeGate
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery.sent_commits import find_published

MOST_LINKS = 2_000
"""Of a tree, to follow its links; with more a person is asked."""

_CI = "ci"
_MOST_NAMES = 64
_MOST_SHOWN = 20
_LINK_BYTES = 4096
_MOST_FOLLOWED = 40  # as the kernel (path_resolution(7))

Names = tuple[str, ...]
"""The folded components of a path."""


def find_reasons_to_ask(services: Services, task: Task, rule: DiffRule) -> tuple[str, ...]:
    """One line for each reason, at most `_MOST_SHOWN`; empty if the push needs no person. Raises: errors of git."""
    repository, git = services.repositories.open(task.repo_id)
    reasons = [] if not rule.verified else list(_find_unverified(services, task))
    entries = objects.list_tree(git, objects.tree_of(git, task.head_commit), sizes=False)
    unpublished = list_unpublished_paths(git, task.head_commit, find_published(git, task))
    paths = unpublished | _list_changed(git, task.base_commit, task.head_commit)
    links = {e.path: e for e in entries if e.mode in {SYMLINK, GITLINK}}
    reasons += [f"{_show(path)} is a link or a submodule" for path in sorted(paths & links.keys())]
    if len(links) > MOST_LINKS:
        return (*reasons[: _MOST_SHOWN - 1], f"the tree has {len(links)} links")
    targets = _read_targets(git, [entry for entry in links.values() if entry.mode == SYMLINK])
    flags = rule.rules | {LOOK_ALIKE}
    _, tip = find_target(git, task.base_branch, repository.default_branch)
    for path in sorted(paths):
        if found := sorted(flags & _find_flags(services, task, path, targets)):
            reasons.append(f"{_show(path)} ({', '.join(found)})")
    old = _list_changed(git, tip, task.head_commit) - paths if _CI in flags else frozenset()
    is_ci = (path for path in sorted(old) if _CI in _find_flags(services, task, path, targets))
    reasons += [f"{_show(path)} ({_CI}) is not that of {task.base_branch}" for path in is_ci]
    return tuple(reasons[:_MOST_SHOWN])


def _list_changed(git: Git, before: str, after: str) -> frozenset[bytes]:
    return frozenset(change.path for change in diff_trees(git, before, after))


def _find_unverified(services: Services, task: Task) -> Iterator[str]:
    """The tree is not verified, or that cannot be said without the engine."""
    tree_gate = TreeGate(services, task)
    if not tree_gate.profile.checks:
        yield f"the profile '{tree_gate.profile.name}' has no checks, so the tree is not verified"
        return
    known = tree_gate.try_verdicts()
    if not known.verified:
        yield f"the tree is not verified: {known.unknown or known.describe_missing()}"


def _find_flags(services: Services, task: Task, path: bytes, targets: Mapping[Names, Names]) -> set[str]:
    """The rules that cover a path, or another name of it."""
    others = list_other_names(_fold(path), targets)
    names = [RepoPath(show_path(path)), *(RepoPath("/".join(other)) for other in others)]
    found = {flag for name in names for flag in find_flags(name, services.policies.paths, task.repo_id)}
    return found | {LOOK_ALIKE} if len(others) >= _MOST_NAMES - 1 else found


def list_other_names(path: Names, targets: Mapping[Names, Names]) -> set[Names]:
    """The names that a path has through links; not all of them if there are `_MOST_NAMES` or more. `targets`: where
    each link leads. Pure.
    """
    found, left = {path}, [path]
    while left and len(found) < _MOST_NAMES:
        names = left.pop()
        for link, target in targets.items():
            other = (*link, *names[len(target) :])
            if names[: len(target)] == target and names[: len(link)] != link and other not in found:
                found.add(other)
                left.append(other)
    return found - {path}


def _read_targets(git: Git, links: Iterable[TreeEntry]) -> dict[Names, Names]:
    """Where the links of a tree lead, inside the tree. Others lead to nothing that a push changes."""
    listed = list(links)
    contents = read_blobs(git, [entry.oid for entry in listed], limit=_LINK_BYTES)
    return resolve_links({_fold(e.path): content for e, content in zip(listed, contents, strict=True)})


def resolve_links(contents: Mapping[Names, bytes]) -> dict[Names, Names]:
    """Where links lead, by their paths: a link within a target is followed before `..`, as the kernel does. Links that
    lead out of the tree, or in a circle, are left out. `contents`: of each link. Pure.
    """
    found = {link: _follow_link(link, contents) for link in contents}
    return {link: target for link, target in found.items() if target is not None}


def _follow_link(link: Names, contents: Mapping[Names, bytes]) -> Names | None:
    at, left, followed = link[:-1], _split_target(contents[link]), 1
    while left:
        if followed > _MOST_FOLLOWED or left[0] == b"/":
            return None
        name = left.pop(0)
        if name == b"..":
            if not at:
                return None
            at = at[:-1]
        elif (content := contents.get((*at, fold_name(name)))) is None:
            at = (*at, fold_name(name))
        else:
            followed += 1
            left = [*_split_target(content), *left]
    return at


def _split_target(target: bytes) -> list[bytes]:
    """The components of a link's target; the first of an absolute one is `/`."""
    names = [name for name in target.split(b"/") if name not in {b"", b"."}]
    return [b"/", *names] if target.startswith(b"/") else names


def _fold(path: bytes) -> Names:
    return tuple(fold_name(name) for name in path.split(b"/"))


def _show(path: bytes) -> str:
    return escape_path(show_path(path))
