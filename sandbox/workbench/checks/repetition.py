"""Run checks several times over one tree: what fails newly, alone where its runner can select tests; or all of them.

A run of these is no evidence for the gate: it is of a part, or was repeated until it passed. Only the rounds that a
caller asked for are cached, up to the first that does not pass, so that no later luck opens the gate. After that only
what does not pass is cached: a check that passed in an earlier round may fail in a later one.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sandbox.checks import repeated
from sandbox.checks.comparison import WHOLE, CheckSide, Reruns, compare_check, find_excused
from sandbox.checks.parameters import fill_parameters
from sandbox.checks.runner_arguments import select_tests
from sandbox.checks.shuffle import shuffle_check
from sandbox.errors import ErrorCode, SandboxError, describe_briefly
from sandbox.git import objects
from sandbox.models import (
    Check,
    CheckComparison,
    CheckRun,
    FlakyTest,
    TestChangeKind,
    TestResult,
    Verdict,
    Verification,
)
from sandbox.models.words import BAD_OUTCOMES
from sandbox.profiles import Profile
from sandbox.store.bindings import find_binding
from sandbox.store.flaky_tests import record_flaky_tests
from sandbox.store.home import Home
from sandbox.store.runs import list_runs
from sandbox.store.verdicts import began_after, is_bound, was_short_of_resources
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.chains import all_passed, is_verified
from sandbox.workbench.checks.check_order import order_checks
from sandbox.workbench.checks.clean_rooms import VerifyRequest, run_in_rooms
from sandbox.workbench.checks.compared_sides import load_side
from sandbox.workbench.checks.verify_options import VerifyOptions
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import TreeSource

RERUNS = 2
MOST_RERUN = 50
"""Beyond so many newly failing tests of a check, chance is no explanation, and none runs again."""

_MOST_RUNS = 200  # of an owner, the newest, among which another one of the same check is looked for
_OWN_ENDS = frozenset({Verdict.PASSED, Verdict.FAILED})

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RepeatedTree:
    """A tree, to run its checks several times. `profile`: with the facts of its commit. `owner`: of the runs."""

    profile: Profile
    source: TreeSource
    owner: str


@dataclass(frozen=True)
class CheckPair:
    """A check on another tree, `before`, and on this one."""

    check_id: str
    before: CheckSide
    after: CheckSide


@dataclass(frozen=True)
class Confirmation:
    """What more runs on the other tree say. `unconfirmed`: failing tests that also pass there, or that no second run
    has failing. `again`: the runs made now.
    """

    unconfirmed: frozenset[str] = frozenset()
    again: tuple[CheckSide, ...] = ()


@dataclass(frozen=True)
class _Part:
    """What runs again, and how often at most. `arguments`: none for the whole check."""

    check_id: str
    arguments: tuple[str, ...]
    times: int


def rerun_new_failures(
    services: Services, tree: RepeatedTree, pair: CheckPair, watch: Watch, options: VerifyOptions
) -> list[CheckSide]:
    """The run of a check on this tree and up to two more of what fails newly in it; else only the first. What passes
    without the other tests may need them to fail, each time: then the whole check runs once more.
    """
    found = compare_check(pair.check_id, pair.before, pair.after)
    arguments = _choose_arguments(tree, pair, found)
    if arguments is None:
        return [pair.after]
    again = _run_again(services, tree, _Part(pair.check_id, arguments, RERUNS), watch, options)
    counts = repeated.add_up(again)
    passed = {name for name, one in counts.items() if one.failed < one.ran}
    if arguments and not passed.isdisjoint(_list_newly_failing(found)):
        again += _run_again(services, tree, _Part(pair.check_id, (), 1), watch, options)
    return [pair.after, *again]


def confirm_failures(
    services: Services, tree: RepeatedTree, pair: CheckPair, watch: Watch, options: VerifyOptions
) -> Confirmation:
    """Whether what failed on the other tree, `tree`, and so excuses failures on this one, failed there by chance: it
    has to fail in two runs of the whole check, and pass in none between or after them. Earlier runs that are kept
    count; what is missing runs again. No part: alone a test may fail each time, as it may pass (docs/adr/0190).
    """
    names, first = find_excused(pair.before, pair.after), pair.before
    if first.run is None or not names:
        return Confirmation()
    failures = _count_failures(services.home, tree.owner, first, names)
    again = list[CheckSide]()
    for _ in range(_ENOUGH):
        if not failures.undecided:
            break
        sides = _run_again(services, tree, _Part(pair.check_id, (), 1), watch, options)
        if not sides:  # it did not end by itself, or the request was stopped
            break
        again += sides
        for side in sides:
            failures.add_newer(side)
    return Confirmation(frozenset(failures.unconfirmed), tuple(again))


_ENOUGH = 2
"""In so many runs a failure of the other tree must have been seen."""


class _Failures:
    """In how many runs each test failed since the last run of the whole check in which it did not."""

    def __init__(self, names: Iterable[str]) -> None:
        self._failed = dict.fromkeys(names, 0)
        self._ended = set[str]()
        self._passed_now = set[str]()

    @property
    def unconfirmed(self) -> set[str]:
        return {name for name, failed in self._failed.items() if failed < _ENOUGH}

    @property
    def undecided(self) -> set[str]:
        """Those that more runs may still confirm."""
        return self.unconfirmed - self._passed_now

    def add_older(self, side: CheckSide) -> bool:
        """Count a run that began before those that were added. Whether even older ones matter."""
        failed, passed = _divide(side, self._failed.keys() - self._ended)
        for name in failed:
            self._failed[name] += 1
        self._ended |= passed
        return bool(self.unconfirmed - self._ended)

    def add_newer(self, side: CheckSide) -> None:
        failed, passed = _divide(side, self._failed.keys())
        for name in failed:
            self._failed[name] += 1
        self._failed.update(dict.fromkeys(passed, 0))
        self._passed_now |= passed


def _divide(side: CheckSide, names: Collection[str]) -> tuple[set[str], set[str]]:
    """Which of these tests failed in a run of the whole check, and which passed; of the others it does not say."""
    seen = repeated.add_up([side])
    failed = {name for name in names if name in seen and seen[name].failed}
    passed = set(names) if side.verdict is Verdict.PASSED else {name for name in names if name in seen}
    return failed, passed - failed


def _count_failures(home: Home, owner: str, first: CheckSide, names: Iterable[str]) -> _Failures:
    """The failures in the known runs, with the compared one."""
    found = _Failures(names)
    for side in _list_known_runs(home, owner, first):
        if not found.add_older(side):
            break
    return found


def _list_known_runs(home: Home, owner: str, first: CheckSide) -> Iterator[CheckSide]:
    """The known runs of the whole check, newest first; `first` is one of them. A failure has to have the same binding,
    its results, and an end of its own; as of a verdict, it did not run at the same time as `first`, and was not short
    of resources (docs/adr/0021). A pass may be one that is no evidence, which has no binding. None if `first` has none:
    it ran after a check that failed in its room, and may have failed for what that left.
    """
    run = first.run
    bound = None if run is None else find_binding(home, run)
    if run is None or bound is None:
        return

    def is_known(other: CheckRun) -> bool:
        if (other.arguments, other.shuffle_seed) != (run.arguments, run.shuffle_seed) or other.run_id == run.run_id:
            return False
        if not is_bound(other, bound) or other.verdict not in _OWN_ENDS:
            return False
        if other.verdict is Verdict.PASSED:
            return True
        apart = began_after(run, other) or began_after(other, run)
        return apart and not was_short_of_resources(other) and find_binding(home, other) == bound

    others = (other for other in list_runs(home, owner, _MOST_RUNS) if is_known(other))
    for other in sorted((*others, run), key=lambda each: each.started_at, reverse=True):
        side = first if other.run_id == run.run_id else load_side(home, other)
        if side.complete or other.verdict is Verdict.PASSED:
            yield side


def _run_again(
    services: Services, tree: RepeatedTree, part: _Part, watch: Watch, options: VerifyOptions
) -> list[CheckSide]:
    sides = list[CheckSide]()
    policy = services.policies.container.container
    checks = order_checks(tree.profile, [part.check_id], policy, arguments=part.arguments)
    again = dataclasses.replace(options, cache=False, keep_going=False, jobs=1)
    request = VerifyRequest(tree.profile, checks, tree.owner, keep=False)
    for _ in range(part.times):
        if watch.cancelled():
            break
        runs = run_in_rooms(services, tree.source, request, watch, again)
        run = next((run for run in runs if run.check_id == part.check_id), None)
        if run is None or run.verdict not in _OWN_ENDS:
            break
        sides.append(load_side(services.home, run))
    return sides


def _choose_arguments(tree: RepeatedTree, pair: CheckPair, found: CheckComparison) -> tuple[str, ...] | None:
    """What runs again: arguments for a part, none for the whole check. None: no run is needed."""
    first = pair.after
    if first.verdict is not Verdict.FAILED or not found.reasons:
        return None
    if found.by == "verdict":
        return () if found.before is Verdict.PASSED or WHOLE in pair.before.unconfirmed else None
    if not 0 < found.counts.get(TestChangeKind.NEWLY_FAILING, 0) <= MOST_RERUN:
        return None
    names = _list_newly_failing(found)
    return _select(tree, found.check_id, [result for result in first.results or () if result.test in names])


def _list_newly_failing(found: CheckComparison) -> set[str]:
    return {change.test for change in found.changes if change.change is TestChangeKind.NEWLY_FAILING}


def _select(tree: RepeatedTree, check_id: str, tests: Sequence[TestResult]) -> tuple[str, ...]:
    """The arguments for those that failed: all of one name, since each of several files may have it; none for the whole
    check.
    """
    failed = [result for result in tests if result.outcome in BAD_OUTCOMES]
    if len(failed) > MOST_RERUN:
        return ()
    check = next(check for check in tree.profile.checks if check.id == check_id)
    source = tree.source

    def exists(path: str) -> bool:
        return objects.find_blob(source.git, source.tree, path.encode()) is not None

    arguments = select_tests(check, failed, exists)
    if arguments is None:
        return ()
    try:
        fill_parameters(check, arguments)
    except SandboxError:  # a name that its pattern does not take
        return ()
    return arguments


def run_rounds(
    services: Services, request: VerifyRequest, source: TreeSource, watch: Watch, options: VerifyOptions
) -> tuple[Verification, tuple[CheckRun, ...]]:
    """Run all checks `options.repeat` times. The answer has of each check the first run that did not pass, or the last.
    A request that was stopped does not verify the tree, also if all that ran had passed. Returns also all runs.
    """
    rounds: list[tuple[CheckRun, ...]] = []
    for number in range(options.repeat):
        if rounds and watch.cancelled():
            break
        keep = all(all_passed(runs) for runs in rounds)
        checks = shuffle_checks(request.checks, options.shuffle, number)
        asked = dataclasses.replace(request, checks=checks, keep=keep)
        rounds.append(run_in_rooms(services, source, asked, watch, dataclasses.replace(options, cache=False)))
    chosen: dict[str, CheckRun] = {}
    sides: dict[str, list[CheckSide]] = {}
    all_runs = tuple(run for runs in rounds for run in runs)
    for run in all_runs:
        sides.setdefault(run.check_id, []).append(load_side(services.home, run))
        if run.check_id not in chosen or chosen[run.check_id].verdict is Verdict.PASSED:
            chosen[run.check_id] = run
    passed = [runs for runs in rounds if is_verified(runs, request.checks)]
    stopped = watch.cancelled() and len(passed) < options.repeat
    found = Verification(
        runs=tuple(chosen.values()),
        verified=len(passed) == options.repeat,
        tree=source.tree,
        flaky=record(services.home, source, sides),
        rounds_passed=len(passed) if stopped else None,
    )
    return found, all_runs


def shuffle_checks(checks: Sequence[Check], seed: int | None, number: int) -> tuple[Check, ...]:
    """The checks with their tests in another order in each round. Raises: `invalid_input` if none of them can."""
    if seed is None:
        return tuple(checks)
    if not any(check.shuffle for check in checks):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "No check of this profile can run its tests in another order",
            hint="A profile says how in [check.shuffle]: docs/profiles.md.",
        )
    return tuple(shuffle_check(check, seed + number) for check in checks)


def record(home: Home, source: TreeSource, sides: Mapping[str, Sequence[CheckSide]]) -> tuple[FlakyTest, ...]:
    """Find the flaky tests among the runs of each check, and keep them for the repository."""
    now = datetime.now(UTC)
    found = tuple(
        test for check_id, runs in sides.items() for test in repeated.find_flaky(check_id, source.tree, runs, now)
    )
    if found:
        try:
            record_flaky_tests(home, source.repo_id, found)
        except (OSError, SandboxError) as error:
            _log.warning("the flaky tests of %s are not kept: %s", source.repo_id, describe_briefly(error))
    return found


def count_reruns(sides: Sequence[CheckSide]) -> Mapping[str, Reruns]:
    """How often each test ran and failed; empty for a single run."""
    return repeated.add_up(sides) if len(sides) > 1 else {}
