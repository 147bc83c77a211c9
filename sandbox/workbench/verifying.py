"""Use-cases on checks in a clean room: verify a task's last commit, and the main job `run`."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.checks.execute import Place
from sandbox.files.mask import require_mask
from sandbox.git import objects
from sandbox.git.cache import resolve_commit
from sandbox.git.process import Git
from sandbox.models import Check, CheckRun, RunSummary, Verdict, Verification
from sandbox.profiles import Profile
from sandbox.store.home import GIT_MASK
from sandbox.store.records import find_task
from sandbox.workbench import running
from sandbox.workbench.bases import profile_of
from sandbox.workbench.parts import Parts
from sandbox.workbench.repositories import cache_of, named_profile, register, whole_tree
from sandbox.workbench.watch import Watch
from sandbox.workbench.worktrees import clean_room


def verify(parts: Parts, task_id: str, watch: Watch) -> Verification:
    """Run all checks of the profile in a clean room over the exact tree of the task's last commit."""
    task = find_task(parts.home, task_id)
    _, git = cache_of(parts, task.repo_id)
    profile = running.task_profile(parts, task)
    checks = running.in_order(profile, [c.id for c in profile.checks])
    tree, near = objects.tree_of(git, task.head_commit), objects.tree_of(git, task.base_commit)
    runs = _clean_room(parts, (task.repo_id, git, tree, near), (profile, checks, task.id), watch)
    return Verification(runs=runs, verified=_verified(runs, checks), tree=tree)


def run_url(
    parts: Parts, url: str, ref: str, wanted: Sequence[str], profile_name: str | None, watch: Watch
) -> RunSummary:
    """The main job: clone, check out, verify in the clean room."""
    chosen = named_profile(parts, profile_name) if profile_name else None
    found = register(parts, url)
    repository, git = found.repository, found.git
    commit = resolve_commit(git, ref, repository.default_branch)
    tree = whole_tree(parts, repository, git, commit)
    profile = chosen or profile_of(parts, repository.id, git, commit)
    checks = running.in_order(profile, wanted or [c.id for c in profile.checks])
    runs = _clean_room(parts, (repository.id, git, tree, tree), (profile, checks, repository.id), watch)
    return RunSummary(
        repository=repository,
        ref=ref,
        commit=commit,
        profile=profile.name,
        runs=runs,
        verified=_verified(runs, checks),
        tree=tree,
    )


def _clean_room(
    parts: Parts, source: tuple[str, Git, str, str], job: tuple[Profile, Sequence[Check], str], watch: Watch
) -> tuple[CheckRun, ...]:
    """A fresh checkout of `tree`, a fresh container a check; gone afterwards whatever happens."""
    repo_id, git, tree, near = source
    profile, checks, owner = job
    recorder = running.recorder(parts, profile, owner)
    runs: list[CheckRun] = []
    task_id = owner if owner.startswith("task-") else None
    with clean_room(parts, repo_id, git, tree, near) as room:
        for check in checks:
            require_mask(room, GIT_MASK)
            with running.report_folder(parts) as (run_id, report):
                place = Place(room, report, tree, clean_room=True, task_id=task_id)
                runs.append(running.run_one(parts, recorder, (run_id, check, place), watch, owner=owner))
            if runs[-1].verdict is not Verdict.PASSED:
                break
    return tuple(runs)


def _verified(runs: Sequence[CheckRun], checks: Sequence[Check]) -> bool:
    return len(runs) == len(checks) and all(r.verdict is Verdict.PASSED for r in runs)
