"""Use-cases on checks in a clean room: verify a task's last commit, and the main job `run`."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.git import objects
from sandbox.models import Check, CheckRun, RunSummary, Verification
from sandbox.profiles import Profile
from sandbox.store.records import find_task
from sandbox.workbench.checks import run
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.chains import all_passed
from sandbox.workbench.checks.clean_rooms import Source, Wanted, run_in_rooms
from sandbox.workbench.checks.disagreement import explain
from sandbox.workbench.checks.local_changes import uncommitted_in
from sandbox.workbench.checks.verify_options import VerifyOptions
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.repositories.check_overrides import with_overrides
from sandbox.workbench.repositories.clone import Registered, cache_of, named_profile, register, whole_tree_of
from sandbox.workbench.repositories.commit_facts import profile_from_facts, profile_of
from sandbox.workbench.repositories.profile_checks import task_profile


def verify(services: Parts, task_id: str, watch: Watch, options: VerifyOptions) -> Verification:
    """Run all checks of the profile in clean rooms over the exact tree of the task's last commit.

    Raises: `not_found`; `conflict` for a closed task; as `order_checks` and `run_in_rooms`.
    """
    task = find_task(services.home, task_id)
    _, git = cache_of(services, task.repo_id)
    profile = task_profile(services, task)
    checks = run.in_order(profile, [c.id for c in profile.checks])
    tree, near = objects.tree_of(git, task.head_commit), objects.tree_of(git, task.base_commit)
    source = Source(task.repo_id, git, tree, near)
    runs = run_in_rooms(services, source, Wanted(profile, checks, task.id), watch, options)
    differences = explain(services, task, runs)
    return Verification(runs=runs, verified=_verified(runs, checks), tree=tree, differences=differences)


def run_url(
    services: Parts,
    place: tuple[str, str],
    wanted: Sequence[str],
    profile_name: str | None,
    watch: Watch,
    options: VerifyOptions,
) -> RunSummary:
    """The main use-case: clone the URL of `place`, check out its ref, and verify it in clean rooms.

    Raises: as `register`, `order_checks` and `run_in_rooms`; `not_found` for the profile.
    """
    url, ref = place
    chosen = named_profile(services, profile_name) if profile_name else None
    found = register(services, url)
    repository, git = found.repository, found.git
    commit = found.commit_of(ref)
    tree = whole_tree_of(services, found, commit)
    profile = (
        with_overrides(services.settings, repository.id, chosen, strict=False)
        if chosen
        else _detect_profile(services, found, commit)
    )
    checks = run.in_order(profile, wanted or [c.id for c in profile.checks])
    source = Source(repository.id, git, tree, tree)
    uncommitted = uncommitted_in(services, found, commit)
    runs = run_in_rooms(services, source, Wanted(profile, checks, repository.id), watch, options)
    return RunSummary(
        repository=repository,
        ref=ref,
        commit=commit,
        profile=profile.name,
        runs=runs,
        verified=_verified(runs, checks),
        tree=tree,
        uncommitted=uncommitted,
    )


def _detect_profile(services: Parts, found: Registered, commit: str) -> Profile:
    """The profile of a commit; for the head, from the facts that `register` has read."""
    if commit == found.head.commit:
        return profile_from_facts(services, found.repository.id, found.facts)
    return profile_of(services, found.repository.id, found.git, commit)


def _verified(runs: Sequence[CheckRun], checks: Sequence[Check]) -> bool:
    return len(runs) == len(checks) and all_passed(runs)
