"""Use-cases on checks: list, run in a task, verify in a clean room, and the main job `run`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sandbox.checks.execute import Place, Recorder
from sandbox.files.mask import require_mask
from sandbox.files.stamps import coarse_now_ns
from sandbox.git import objects
from sandbox.git.cache import resolve_commit
from sandbox.git.process import Git
from sandbox.models import Check, CheckRun, RunSummary, Task, Verdict, Verification
from sandbox.profiles import Profile
from sandbox.store.guests import guest_at_work
from sandbox.store.home import GIT_MASK
from sandbox.store.records import find_task
from sandbox.workbench import running
from sandbox.workbench.bases import profile_of
from sandbox.workbench.parts import Parts
from sandbox.workbench.repositories import cache_of, named_profile, register, whole_tree
from sandbox.workbench.tasks import editing, looking
from sandbox.workbench.watch import Watch
from sandbox.workbench.worktrees import clean_room, ready


def list_checks(parts: Parts, owner_id: str) -> tuple[Check, ...]:
    """Checks of a task (at its base commit) or of a repository (at its default branch)."""
    if owner_id.startswith("task-"):
        return running.task_profile(parts, find_task(parts.home, owner_id, allow_closed=True)).checks
    repository, git = cache_of(parts, owner_id)
    commit = resolve_commit(git, "HEAD", repository.default_branch)
    return profile_of(parts, owner_id, git, commit).checks


def run_checks(parts: Parts, task_id: str, wanted: Sequence[str], watch: Watch) -> tuple[CheckRun, ...]:
    """Run checks in the task's own worktree, required ones first; stops at the first that does not pass."""
    task = find_task(parts.home, task_id)
    profile = running.task_profile(parts, task)
    checks = running.in_order(profile, wanted)
    recorder = running.task_recorder(parts, profile, task_id)
    with editing(parts, task_id) as task:
        return tuple(_run_in_task(parts, task, recorder, checks, watch))


def _run_in_task(
    parts: Parts, task: Task, recorder: Recorder, checks: Sequence[Check], watch: Watch
) -> Iterator[CheckRun]:
    root = ready(parts, task)
    for check in checks:
        with looking(parts, task) as opened:
            tree = objects.build_tree(opened.git, task.head_commit, opened.changes.tree)
        require_mask(root, GIT_MASK)
        with running.report_folder(parts) as (run_id, report):
            place = Place(root, report, tree, clean_room=False, task_id=task.id)
            with guest_at_work(parts.home.guest_mark(task.id), coarse_now_ns):
                run = running.run_one(parts, recorder, (run_id, check, place), watch, owner=task.id)
        yield run
        if run.verdict is not Verdict.PASSED:
            return


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
