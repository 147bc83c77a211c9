"""Use-cases on checks in a clean room: verify a task's last commit, and the main job `run`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from sandbox.git import objects
from sandbox.git.log import read_author_and_subject
from sandbox.git.process import Git
from sandbox.lazy_module import LazyModule
from sandbox.models import (
    CheckRun,
    ChosenSettings,
    PullRequestCommit,
    Remark,
    RemarkKind,
    RunSummary,
    UncommittedChanges,
    Verification,
)
from sandbox.profiles import Profile
from sandbox.store.records import find_task
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.chains import is_verified
from sandbox.workbench.checks.check_order import order_checks
from sandbox.workbench.checks.clean_rooms import VerifyRequest, run_in_rooms
from sandbox.workbench.checks.disagreement import explain_disagreements
from sandbox.workbench.checks.git_facts import add_git_facts
from sandbox.workbench.checks.verify_options import VerifyOptions
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.check_overrides import apply_overrides
from sandbox.workbench.repositories.commit_facts import TreeSource, load_facts, profile_with_settings
from sandbox.workbench.repositories.commit_settings import add_only_folder, choose_named_folder, complete_settings
from sandbox.workbench.repositories.profile_checks import load_task_profile
from sandbox.workbench.repositories.repository_settings import (
    add_projects,
    choose_profile,
    find_profile,
    read_settings,
    require_folders,
)
from sandbox.workbench.repositories.seen_facts import advise, advise_owner
from sandbox.workspaces.base_facts import BaseFacts

if TYPE_CHECKING:
    from sandbox.checks import missing_packages
    from sandbox.workbench.checks import changed_parts, differential, directory_tree, repetition
    from sandbox.workbench.checks import uncommitted as working_directories
    from sandbox.workbench.repositories import change_settings, clone
    from sandbox.workbench.repositories.clone import UpdatedRepository
    from sandbox.workbench.tasks import lifecycle, status
else:  # loaded at first use (docs/adr/0080)
    missing_packages = LazyModule("sandbox.checks.missing_packages")
    changed_parts = LazyModule("sandbox.workbench.checks.changed_parts")
    differential = LazyModule("sandbox.workbench.checks.differential")
    directory_tree = LazyModule("sandbox.workbench.checks.directory_tree")
    working_directories = LazyModule("sandbox.workbench.checks.uncommitted")
    change_settings = LazyModule("sandbox.workbench.repositories.change_settings")
    clone = LazyModule("sandbox.workbench.repositories.clone")
    repetition = LazyModule("sandbox.workbench.checks.repetition")
    lifecycle = LazyModule("sandbox.workbench.tasks.lifecycle")
    status = LazyModule("sandbox.workbench.tasks.status")

_PACKAGES_REMEDY = "The verdicts hold without them: docs/dependencies.md, Checks without packages, says what helps."


def verify(
    services: Services, task_id: str, watch: Watch, options: VerifyOptions, expected_tree: str | None = None
) -> Verification:
    """Run all checks of the profile in clean rooms over the exact tree of the task's last commit.

    With `options.against` the same checks run on that tree, too, and both are compared. `expected_tree`: the working
    state that was approved. Raises: `not_found`; `conflict` for another one, or a closed task; `invalid_input` for
    what `against` names; as `order_checks` and `run_in_rooms`.
    """
    task = find_task(services.home, task_id)
    lifecycle.require_approved_task(services, task, expected_tree)
    _, git = services.repositories.open(task.repo_id)
    plain = load_task_profile(services, task)
    profile = add_git_facts(plain, git, task.head_commit)
    policy = services.policies.container.container
    checks = order_checks(profile, [c.id for c in profile.checks], policy, lambda: advise_owner(services, task.id))
    tree, base_tree = objects.tree_of(git, task.head_commit), objects.tree_of(git, task.base_commit)
    source = TreeSource(task.repo_id, git, tree, task.head_commit, base_tree)
    if options.against is not None:  # a check that fails must not keep the others from being compared
        differential.find_other_commit(services, task, source, options.against)
        options = replace(options, keep_going=True)
    compared = () if options.against is None else [check.id for check in checks]
    request = VerifyRequest(profile, checks, task.id, tests_of=compared)
    if options.repeat > 1 or options.shuffle is not None:
        found, runs = repetition.run_rounds(services, request, source, watch, options)
    else:
        runs = run_in_rooms(services, source, request, watch, options)
        found = Verification(runs=runs, verified=is_verified(runs, checks), tree=tree)
    differences, uncommitted = (
        explain_disagreements(services, task, found.runs),
        status.count_uncommitted(services, task),
    )
    found = found.model_copy(
        update={"commit": task.head_commit, "differences": differences, "uncommitted": uncommitted}
    )
    if options.against is None:
        return found
    verified = differential.VerifiedTask(task, plain, source, found.runs, runs)
    comparison, more = differential.compare_verified(services, verified, watch, options)
    update = {"comparison": comparison, "no_new_failures": comparison.no_new_failures, "flaky": (*found.flaky, *more)}
    return found.model_copy(update=update)


@dataclass(frozen=True)
class _Verified:
    """`commit`: that the tree belongs to, or is based on. `base_tree`: of that commit."""

    git: Git
    commit: str
    tree: str
    base_tree: str
    facts: BaseFacts
    uncommitted: UncommittedChanges | None


def run_url(
    services: Services,
    url_and_ref: tuple[str, str],
    check_ids: Sequence[str],
    profile_name: str | None,
    watch: Watch,
    options: VerifyOptions,
) -> RunSummary:
    """The main use-case: clone the URL, check out the ref, and verify it in clean rooms.

    Raises: as `update_cache`, `order_checks` and `run_in_rooms`; `not_found` for the profile; `engine_unavailable`
    before anything is cloned, so also for a repository without checks, and for a check that it does not have.
    """
    if profile_name:
        find_profile(services.policies.profiles, profile_name)
    url, ref = url_and_ref
    services.remotes.parse(url)
    if options.changed_since is None:  # else there may be no check to run, which needs no engine
        services.require_engine()  # said before a clone that takes minutes, not after it
    updated = clone.update_cache(services, url)
    repository = updated.repository
    chosen = _choose_settings(services, repository.id, profile_name, options)
    if options.lfs is not None:
        chosen = chosen.model_copy(update={"lfs": options.lfs})
    with _open_source(services, updated, ref, chosen, include_changes=options.include_changes) as found:
        uncommitted = found.uncommitted
        profile = (
            _find_named_profile(services, repository.id, found, chosen)
            if profile_name
            else _find_profile(services, repository.id, found, chosen, options)
        )
        profile = add_git_facts(profile, updated.git, found.commit)
        policy = services.policies.container.container
        left_out = uncommitted.count if uncommitted and not uncommitted.included else 0
        find_advice = partial(advise, services, repository.id, found.facts, profile, left_out)
        wanted = _choose_checks(services, updated, found, profile, check_ids, options)
        checks = order_checks(profile, wanted, policy, find_advice) if wanted or not profile.checks else ()
        pull_request = _describe_pull_request(updated.git, ref, found.commit)
        tree = TreeSource(repository.id, found.git, found.tree, found.commit, found.base_tree)
        runs = run_in_rooms(services, tree, VerifyRequest(profile, checks, repository.id), watch, options)
    verified = bool(checks) and is_verified(runs, checks)
    advice = find_advice(packages=bool(checks) and not verified)
    return RunSummary(
        repository=repository,
        ref=ref,
        commit=found.commit,
        profile=profile.full_name,
        subpath=profile.folder,
        runs=runs,
        verified=verified,
        nothing_changed=options.changed_since is not None and not checks,
        left_out=tuple(check.id for check in profile.checks if check.id not in {c.id for c in checks}),
        tree=found.tree,
        uncommitted=uncommitted,
        advice=(*_remark_on_packages(runs), *_leave_out_choice(advice, named=bool(profile_name))),
        pull_request=pull_request,
        protocol=services.remotes.find_other_protocol(services.remotes.parse(url)),
    )


def _leave_out_choice(advice: Sequence[Remark], *, named: bool) -> Iterator[Remark]:
    """Without what a person knows who named the profile of a run."""
    yield from (remark for remark in advice if not (named and remark.kind is RemarkKind.UNCHECKED))


def _remark_on_packages(runs: Sequence[CheckRun]) -> Iterator[Remark]:
    for seen in missing_packages.describe_missing_packages(runs):
        yield Remark(kind=RemarkKind.MISSING_PACKAGES, seen=seen, remedy=_PACKAGES_REMEDY)


def _find_profile(
    services: Services, repo_id: str, found: _Verified, chosen: ChosenSettings, options: VerifyOptions
) -> Profile:
    """The profile that fits the tree, with what its repository suggests and is trusted."""
    if options.projects is None:
        chosen = complete_settings(services.home, services.policies, repo_id, found.facts, chosen)
        chosen = choose_named_folder(services.policies, found.facts, chosen, options.named_folder)
    require_folders(found.git, found.tree, chosen, f"Commit {found.commit[:12]}")
    return profile_with_settings(services, repo_id, found.facts, chosen, strict=options.projects is None)


def _find_named_profile(services: Services, repo_id: str, found: _Verified, chosen: ChosenSettings) -> Profile:
    """The profile that the caller named, and the projects, without what the repository suggests."""
    chosen = add_only_folder(services.policies, found.facts, chosen)
    require_folders(found.git, found.tree, chosen, f"Commit {found.commit[:12]}")
    top = choose_profile(services.policies, found.facts, chosen)
    profile = add_projects(services.policies, found.facts, chosen, top)
    return apply_overrides(services.settings, repo_id, profile, strict=False)


def _choose_checks(
    services: Services,
    updated: UpdatedRepository,
    found: _Verified,
    profile: Profile,
    check_ids: Sequence[str],
    options: VerifyOptions,
) -> Sequence[str]:
    """The ids of the checks to run: those that the caller names, else all, of what changed if the caller asks so."""
    if options.changed_since is None:
        return check_ids or [check.id for check in profile.checks]
    commits = (clone.find_or_fetch_commit(services, updated, options.changed_since), found.commit)
    changed = changed_parts.find_changed_checks(
        profile, changed_parts.list_changed_paths(found.git, commits, found.tree)
    )
    return [name for name in check_ids if name in changed] if check_ids else changed


def _choose_settings(
    services: Services, repo_id: str, profile_name: str | None, options: VerifyOptions
) -> ChosenSettings:
    """The settings of the repository, with what the caller says for this run."""
    chosen = read_settings(services.home, services.policies, repo_id, profile_name)
    if options.projects is not None:
        chosen = change_settings.merge_settings(
            chosen.model_copy(update={"projects": {}}), {"projects": options.projects}
        )
    return chosen if options.subpath is None else change_settings.merge_settings(chosen, {"subpath": options.subpath})


@contextmanager
def _open_source(
    services: Services, updated: UpdatedRepository, ref: str, chosen: ChosenSettings, *, include_changes: bool
) -> Iterator[_Verified]:
    commit = clone.fetch_commit(services, updated, ref)
    tree = clone.whole_tree_of(services, updated, commit)
    if include_changes:
        with directory_tree.build_directory_tree(services, updated, ref, commit, chosen) as built:
            yield _Verified(built.git, commit, built.tree, tree, built.facts, built.changes)
    else:
        facts = _load_facts(services, updated, commit, chosen)
        uncommitted = working_directories.find_uncommitted_changes(services.remotes, updated, commit, facts)
        yield _Verified(updated.git, commit, tree, tree, facts, uncommitted)


def _describe_pull_request(git: Git, ref: str, commit: str) -> PullRequestCommit | None:
    wanted = clone.find_pull_request_ref(git, ref)
    if wanted is None:
        return None
    author, subject = read_author_and_subject(git, commit)
    return PullRequestCommit(number=wanted.number, merged=wanted.merged, author=author, subject=subject)


def _load_facts(services: Services, updated: UpdatedRepository, commit: str, chosen: ChosenSettings) -> BaseFacts:
    """The facts of a commit; for the head, those that `update_cache` has read."""
    if commit == updated.default_head.commit and updated.facts.below.keys() >= set(chosen.folders):
        return updated.facts
    repo_id = updated.repository.id
    return load_facts(services.home, services.policies, repo_id, updated.git, commit, chosen.folders)
