"""Use-case: compare the checks of a task's last commit with the same checks on another tree, in clean rooms."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.checks.comparison import CheckSide, compare_check, require_good_run
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import cache_clones
from sandbox.models import Check, CheckComparison, CheckRun, FlakyTest, Task, TreeComparison, Verdict
from sandbox.models.comparisons import CoverageChange
from sandbox.profiles import Profile
from sandbox.store.home import Home
from sandbox.store.kept_comparisons import LastRuns, save_comparison
from sandbox.store.records import find_task
from sandbox.store.short_ids import complete_task_id
from sandbox.store.verdicts import began_after, is_conclusive
from sandbox.workbench.checks import repetition
from sandbox.workbench.checks.callbacks import Watch, label_checks
from sandbox.workbench.checks.check_order import order_checks
from sandbox.workbench.checks.clean_rooms import VerifyRequest, run_in_rooms
from sandbox.workbench.checks.collected_artifacts import find_coverage
from sandbox.workbench.checks.compared_sides import load_side
from sandbox.workbench.checks.gate import TreeVerdicts, find_tree_verdicts
from sandbox.workbench.checks.git_facts import add_git_facts
from sandbox.workbench.checks.repetition import CheckPair, RepeatedTree
from sandbox.workbench.checks.tree_bindings import bind_tree
from sandbox.workbench.checks.verify_options import VerifyOptions
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import fetch_whole_tree
from sandbox.workbench.repositories.commit_facts import TreeSource

BASE = "base"


Compared = tuple[TreeComparison, tuple[FlakyTest, ...]]


@dataclass(frozen=True)
class VerifiedTask:
    """A task's last commit and the runs of its checks. `profile`: with the facts of no commit. `all_runs`: those of all
    rounds, in their order.
    """

    task: Task
    profile: Profile
    source: TreeSource
    runs: tuple[CheckRun, ...]
    all_runs: tuple[CheckRun, ...]


@dataclass(frozen=True)
class SeenRuns:
    """The runs on a task's tree that a comparison takes into account. `own`: those that are compared, and those of
    earlier rounds, in their order. `more`: reruns, and the runs on the other tree, which may be the same one.
    `before`: of each check the last run that the verdict cache had before the other tree was checked.
    """

    own: Sequence[CheckRun]
    more: Sequence[CheckRun]
    before: LastRuns

    def choose(self, last: LastRuns) -> dict[str, CheckRun | None]:
        """Of each check the last run that was seen, from the last runs now. Another one came while the other tree was
        checked: if it did not pass, the comparison must not count. Pure.
        """
        return {name: self._choose(name, run) for name, run in last.items()}

    def _choose(self, check_id: str, last: CheckRun | None) -> CheckRun | None:
        own = [run for run in self.own if run.check_id == check_id]
        if last is not None and last.run_id in {run.run_id for run in (*own, *self.more)}:
            return last
        before = self.before.get(check_id)
        if (before and before.run_id) == (last and last.run_id) and self._explains(last, own):
            return last
        return own[-1] if own else None

    def _explains(self, last: CheckRun | None, own: Sequence[CheckRun]) -> bool:
        """Whether the own runs of a check leave this one as the last: no verdict is kept of a run without a conclusive
        end, nor of one after a check that failed in its room.
        """
        if last is None:
            failed = [number for number, run in enumerate(self.own) if run.verdict is not Verdict.PASSED]
            return any(
                not is_conclusive(run) or self.own.index(run) > min(failed, default=len(self.own)) for run in own
            )
        return any(began_after(run, last) for run in own or self.own)


def compare_verified(services: Services, verified: VerifiedTask, watch: Watch, options: VerifyOptions) -> Compared:
    """Run the same checks on the tree that `options.against` names, or answer from cached verdicts, and compare. What
    fails newly runs again, and is flaky if it passes; so does, on the other tree, what fails on both, if that decides
    the answer and it was not seen twice. Returns also the flaky tests. A request that was stopped has not compared all
    checks, so it never says `no_new_failures`, and is not kept.

    Raises: `not_found`, `invalid_input` for what `against` names; as `run_in_rooms`.
    """
    against = options.against or BASE
    source = verified.source
    commit = find_other_commit(services, verified.task, source, against)
    repository, git = services.repositories.open(source.repo_id)
    other = dataclasses.replace(source, tree=fetch_whole_tree(services, repository, git, commit), commit=commit)
    labelled = label_checks(watch, f"{against}: ")
    seen_before = _find_verdicts(services, verified).runs if options.shuffle is None else {}
    before = _run_checks(services, verified, other, labelled, options)
    after = {run.check_id: load_side(services.home, run) for run in verified.runs}
    own, base = (
        RepeatedTree(add_git_facts(verified.profile, each.git, each.commit), each, owner)
        for each, owner in ((source, verified.task.id), (other, other.repo_id))
    )
    pairs = [
        CheckPair(check.id, before.get(check.id, CheckSide()), after.get(check.id, CheckSide()))
        for check in verified.profile.checks
    ]
    compared = {pair.check_id: _compare(services, own, pair, watch, options) for pair in pairs}
    repeats = dict[str, Sequence[CheckSide]]()
    for pair in pairs:
        if any(one.found.reasons for one in compared.values()):
            break  # whether the other tree failed by chance does not matter any more
        confirmation = repetition.confirm_failures(services, base, pair, labelled, options)
        repeats[pair.check_id] = (pair.before, *confirmation.again)
        if confirmation.unconfirmed:
            before_doubted = dataclasses.replace(pair.before, unconfirmed=confirmation.unconfirmed)
            doubted = dataclasses.replace(pair, before=before_doubted)
            earlier = compared[pair.check_id].sides[1:]
            compared[pair.check_id] = _compare(services, own, doubted, watch, options, earlier)
    checks = [one.found for one in compared.values()]
    stopped = watch.cancelled()
    comparison = TreeComparison(
        against=against,
        commit=commit,
        tree=other.tree,
        checks=tuple(checks),
        no_new_failures=not stopped and not any(check.reasons for check in checks),
    )
    if not stopped and options.shuffle is None:  # with a seed it is of other checks
        reruns = [one.sides for one in compared.values()] + list(repeats.values())
        more = [*before.values(), *(side for sides in reruns for side in sides[1:])]
        seen = SeenRuns(verified.all_runs, tuple(side.run for side in more if side.run), seen_before)
        _save(services, verified, other, comparison, seen)
    flaky = repetition.record(services.home, source, {name: one.sides for name, one in compared.items()})
    return comparison, (*flaky, *repetition.record(services.home, other, repeats))


@dataclass(frozen=True)
class _Compared:
    """A check of both trees. `sides`: its runs on the task's tree."""

    found: CheckComparison
    sides: Sequence[CheckSide]


def _compare(
    services: Services,
    tree: RepeatedTree,
    pair: CheckPair,
    watch: Watch,
    options: VerifyOptions,
    earlier: Sequence[CheckSide] = (),
) -> _Compared:
    """Compare a check; what fails newly runs again. `earlier`: reruns of it that were made already."""
    first, *again = repetition.rerun_new_failures(services, tree, pair, watch, options)
    sides = [first, *earlier, *again]
    found = compare_check(pair.check_id, pair.before, pair.after, repetition.count_reruns(sides))
    found = require_good_run(found, pair.before, sides)
    return _Compared(_add_coverage(services.home, found, pair.before.run, pair.after.run), sides)


def _add_coverage(
    home: Home, found: CheckComparison, before: CheckRun | None, after: CheckRun | None
) -> CheckComparison:
    old, new = find_coverage(home, before), find_coverage(home, after)
    if old is None or new is None:
        return found
    return found.model_copy(update={"coverage": CoverageChange(before=old, after=new)})


def find_other_commit(services: Services, task: Task, source: TreeSource, against: str) -> str:
    """The commit that a name stands for: `base`, a task of the same repository, or a branch, tag or commit id.

    Raises: `not_found`; `invalid_input`.
    """
    if against == BASE:
        return task.base_commit
    name = complete_task_id(services.home, against) if against.startswith("task-") else against
    if not name.startswith("task-"):
        repository, git = services.repositories.open(source.repo_id)
        return cache_clones.resolve_commit(git, name, repository.default_branch)
    other = find_task(services.home, name, allow_closed=True)
    if other.repo_id != task.repo_id:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{other.id} is of another repository, {other.repo_id}",
            hint="Name 'base', a commit, or a task of the same repository.",
        )
    return other.head_commit


def _run_checks(
    services: Services, verified: VerifiedTask, other: TreeSource, watch: Watch, options: VerifyOptions
) -> dict[str, CheckSide]:
    profile = add_git_facts(verified.profile, other.git, other.commit)
    policy = services.policies.container.container
    checks: Sequence[Check] = order_checks(profile, [check.id for check in profile.checks], policy)
    request = VerifyRequest(profile, tuple(checks), other.repo_id, tests_of=[check.id for check in checks])
    runs = run_in_rooms(services, other, request, watch, options)
    return {run.check_id: load_side(services.home, run) for run in runs}


def _save(
    services: Services, verified: VerifiedTask, other: TreeSource, comparison: TreeComparison, seen: SeenRuns
) -> None:
    verdicts = _find_verdicts(services, verified)
    keys = bind_tree(services, verified.profile, other).keys
    save_comparison(services.home, keys, verdicts.keys, comparison, seen.choose(verdicts.runs))


def _find_verdicts(services: Services, verified: VerifiedTask) -> TreeVerdicts:
    """Those of the task's tree, as the gate sees them now."""
    return find_tree_verdicts(services, verified.profile, verified.source)
