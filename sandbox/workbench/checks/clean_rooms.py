"""Run checks over a committed tree in clean rooms, or answer from cached verdicts of clean rooms.

A clean room is a fresh checkout, with a fresh guest for each check. One chain of checks has one room; several rooms may
run in parallel (docs/adr/0021).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.files.git_mask import require_mask
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.models import Check, CheckRun, Verdict
from sandbox.profiles import Profile, project_of
from sandbox.store.bindings import save_binding
from sandbox.store.home import GIT_MASK
from sandbox.store.verdicts import Binding, doubt_failure, is_conclusive, save_verdict
from sandbox.workbench.checks.callbacks import Watch, share_watch
from sandbox.workbench.checks.chains import Chain, all_passed, answer_chain, split_into_chains
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.layers import hold_layers, prepare_setups
from sandbox.workbench.checks.shared_cache import open_shared_cache
from sandbox.workbench.checks.verdict_keys import build_bindings, possible_setups, uses_compiler_cache
from sandbox.workbench.checks.verdict_ways import (
    Bindings,
    find_answer,
    forget_other_ways,
    has_failed,
    settle_pass,
)
from sandbox.workbench.checks.verify_options import VerifyOptions
from sandbox.workbench.controller.guest_accounts import find_account
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import TreeSource

if TYPE_CHECKING:
    from concurrent import futures

    from sandbox.checks import execute
    from sandbox.checks.cancellation import Cancellation
    from sandbox.checks.execute import Recorder
    from sandbox.workbench.checks import compared_sides, compiler_caching
    from sandbox.workbench.checks import run as running
    from sandbox.workbench.tasks import worktrees
    from sandbox.workspaces.layout import WorktreePaths
else:  # loaded when a check runs: cached verdicts need none of them (docs/adr/0089)
    futures = LazyModule("concurrent.futures")
    execute = LazyModule("sandbox.checks.execute")
    compared_sides = LazyModule("sandbox.workbench.checks.compared_sides")
    compiler_caching = LazyModule("sandbox.workbench.checks.compiler_caching")
    running = LazyModule("sandbox.workbench.checks.run")
    worktrees = LazyModule("sandbox.workbench.tasks.worktrees")


KeepArtifacts = Callable[[CheckRun], None]
"""Called with the run of the launch: keeps what was taken if it passed."""

TakeArtifacts = Callable[[Path, Binding], AbstractContextManager[KeepArtifacts]]
"""Takes what a release needs out of a room, in which no guest runs."""


@dataclass(frozen=True)
class VerifyRequest:
    """The checks to run on the tree, each after those it requires. `owner`: id of the task or repository. `take`:
    called before a launch, with its room; None: no files are taken. `keep`: whether what passes is evidence: its
    verdict is cached, and it has receipts. A check that does not pass is cached in any case. `tests_of`: ids of checks
    with tests that the caller looks at: no cached verdict of them is an answer if its results of tests are gone, and
    none of the shared cache, which has no results.
    """

    profile: Profile
    checks: tuple[Check, ...]
    owner: str
    take: TakeArtifacts | None = None
    keep: bool = True
    tests_of: Collection[str] = ()

    @property
    def task_id(self) -> str | None:
        return self.owner if self.owner.startswith("task-") else None


def run_in_rooms(
    services: Services, source: TreeSource, request: VerifyRequest, watch: Watch, options: VerifyOptions
) -> tuple[CheckRun, ...]:
    """Return the runs, chain by chain. A chain with cached verdicts needs no room. Stops at the first failure, unless
    `options.keep_going`. Rooms are removed in any case.

    Raises: as `prepare_setups` and `build_room_recorder`; `quota_exceeded` for a tree past the
    limits of a checkout or a full disk.
    """
    parts = request.profile.parts_of(request.checks)
    setups = prepare_setups(services, parts, source, watch, refresh=options.refresh)
    runners = {name: _ChainRunner(services, source, request, setup, options) for name, setup in setups.items()}

    def run_chain(chain: Chain, watch: Watch) -> tuple[CheckRun, ...]:
        return runners[project_of(chain[0].id)].run_chain(chain, watch)

    chains = split_into_chains(request.checks)
    with hold_layers(services, request.owner, *setups.values()):
        if options.jobs > 1 and len(chains) > 1:
            return _run_in_parallel(chains, run_chain, watch, options)
        return _run_one_by_one(chains, run_chain, watch, options)


RunChain = Callable[[Chain, Watch], tuple[CheckRun, ...]]


def _run_one_by_one(
    chains: Sequence[Chain], run_chain: RunChain, watch: Watch, options: VerifyOptions
) -> tuple[CheckRun, ...]:
    runs: tuple[CheckRun, ...] = ()
    for chain in chains:
        runs += run_chain(chain, watch)
        if not all_passed(runs) and (not options.keep_going or watch.cancelled()):
            break
    return runs


def _run_in_parallel(
    chains: Sequence[Chain], run_chain: RunChain, watch: Watch, options: VerifyOptions
) -> tuple[CheckRun, ...]:
    """Run `options.jobs` chains in parallel. A failed check stops the others, unless `options.keep_going`; an error
    of ours always does.
    """
    with (
        share_watch(watch) as (shared, cancellation),
        futures.ThreadPoolExecutor(options.jobs, "clean-room") as pool,
    ):
        ends = not options.keep_going
        started = [pool.submit(_run_unless_cancelled, chain, run_chain, shared, cancellation, ends) for chain in chains]
        return tuple(run for chain in started for run in chain.result())


def _run_unless_cancelled(
    chain: Chain, run_chain: RunChain, watch: Watch, cancellation: Cancellation, failure_ends: bool
) -> tuple[CheckRun, ...]:
    """Run a chain; no runs if the request was cancelled before the chain began."""
    if watch.cancelled():
        return ()
    try:
        runs = run_chain(chain, watch)
    except BaseException:
        cancellation.set()
        raise
    if failure_ends and not all_passed(runs):
        cancellation.set()
    return runs


SaveRun = Callable[[CheckRun], None]


@dataclass(frozen=True)
class _VerdictOnce:
    """Saves the verdict of one run, once. `kept`: whether it has one. `_save`: returns whether it is stored."""

    _save: Callable[[CheckRun], bool]
    kept: bool
    _saved: list[bool] = field(default_factory=list)

    def save_failure(self, run: CheckRun) -> None:
        """Save it if the check did not pass. It is called before the run has a record: a process that is interrupted or
        killed then leaves no failure that the gate does not know. A pass is unknown to it, and the check runs again.
        """
        if run.verdict is not Verdict.PASSED:
            self.save(run)

    def save(self, run: CheckRun) -> bool:
        """Save it, unless that was done. Whether it is stored."""
        if self.kept and not self._saved:
            self._saved.append(self._save(run))
        return any(self._saved)


@dataclass(frozen=True)
class _ChainRunner:
    services: Services
    source: TreeSource
    request: VerifyRequest
    setup: GuestSetup
    options: VerifyOptions

    def _build_recorder(self, setup: GuestSetup) -> Recorder:
        """Built only when a check runs: cached verdicts need no guest."""
        return running.build_room_recorder(self.services, setup, self.request.owner)

    def _may_read_cache(self, chain: Chain) -> bool:
        """Whether compilers of this chain may take what other rooms compiled."""
        return not self.options.from_scratch and self._uses_cache(chain)

    def _uses_cache(self, chain: Chain) -> bool:
        return uses_compiler_cache(self.services.settings, self.request.profile, chain)

    def _bind_ways(self, chain: Chain, cache_of: str) -> list[Bindings]:
        """The bindings for each way to run the chain; from scratch is the first."""
        setups, tree = possible_setups(self.setup, cache_of), self.source.tree
        return [build_bindings(self.services.policies, setup, tree, chain) for setup in setups]

    def run_chain(self, chain: Chain, watch: Watch) -> tuple[CheckRun, ...]:
        """The cached verdicts of a chain if each of its checks has one, else the runs of the whole chain.

        A check needs the output of those before it, so a chain is never run in part. A check that failed once has no
        verdict yet.
        """
        known = self._find_cached_runs(chain) if self.options.cache else None
        if known is None or any(self._lacks_tests(run) for run in known):
            return self._run_in_room(chain, watch)
        known = tuple(run.model_copy(update={"missing_packages": self.setup.missing_packages}) for run in known)
        checks = {check.id: check for check in chain}
        for run in known:
            check = checks[run.check_id]
            watch.announce(check, None)
            watch.announce(check, run)
        return known

    def _lacks_tests(self, run: CheckRun) -> bool:
        """Whether its results of tests are needed, and gone."""
        home = self.services.home
        return run.check_id in self.request.tests_of and compared_sides.is_lost(compared_sides.load_side(home, run))

    def _find_cached_runs(self, chain: Chain) -> tuple[CheckRun, ...] | None:
        """Verdicts from scratch answer every request, those of rooms that read a compiler cache only some: none that
        a later run in another way overrules, and none after a failure from scratch, which the gate counts.
        """
        ways = self._bind_ways(chain, self.source.repo_id if self._uses_cache(chain) else "")
        only_scratch = not self._may_read_cache(chain) or self._failed_from_scratch(chain, ways)
        for number in range(1 if only_scratch else len(ways)):
            known = self._answer(chain, ways, number)
            if known is not None:
                return known
        return None

    def _answer(self, chain: Chain, ways: Sequence[Bindings], number: int) -> tuple[CheckRun, ...] | None:
        """From this home's cache, or the shared one. A launch has files to release, which only its home has, as it has
        results of tests; and what failed once here runs again here.
        """
        home, shared = self.services.home, open_shared_cache(self.services)

        def find(check: Check) -> CheckRun | None:
            known = find_answer(home, ways, number, check.id)
            only_here = check.launch is not None or check.id in self.request.tests_of
            if known is not None or shared is None or only_here:
                return known
            return None if has_failed(home, ways, check.id) else shared.find(ways[number][check.id])

        return answer_chain(chain, find, keep_going=self.options.keep_going)

    def _run_in_room(self, chain: Chain, watch: Watch) -> tuple[CheckRun, ...]:
        source, runs = self.source, list[CheckRun]()
        setup = self._choose_setup(chain)
        recorder = self._build_recorder(setup)
        bound = build_bindings(self.services.policies, setup, source.tree, chain)
        trees, shared = (source.tree, source.similar_tree or source.tree), open_shared_cache(self.services)
        checks = [bound[check.id].check for check in chain]
        with worktrees.clean_room(self.services, source.repo_id, source.git, trees, setup.added, checks) as room:

            def answer(check: Check) -> CheckRun | None:
                if runs and watch.cancelled():
                    return None
                as_before = all_passed(runs)  # else none: its key does not cover what a failed check left in the room
                verdict = _VerdictOnce(partial(self._save, chain, bound[check.id]), kept=as_before)
                run = self._run_and_take(check, bound[check.id], room, watch, recorder, verdict.save_failure)
                runs.append(run)
                stored, has_passed = verdict.save(run), run.verdict is Verdict.PASSED
                is_evidence = as_before and (stored or not has_passed)
                if is_evidence:  # what a receipt says that it was bound to, and a comparison counts
                    save_binding(self.services.home.logs(self.request.owner), run.run_id, bound[check.id])
                if as_before and self.request.keep and has_passed and not stored:  # the gate does not take it, either
                    run = runs[-1] = run.model_copy(update={"refused": True})
                if shared is not None and is_evidence:
                    shared.add(bound[check.id], run)
                return run

            answer_chain(chain, answer, keep_going=self.options.keep_going)
        return tuple(runs)

    def _save(self, chain: Chain, binding: Binding, run: CheckRun) -> bool:
        """Whether the run is stored, and counts."""
        home = self.services.home
        if not self.request.keep and run.verdict is Verdict.PASSED:
            doubt_failure(home, binding)
            return False
        stored = save_verdict(home, binding, run)
        if not is_conclusive(run):
            forget_other_ways(home, self._bind_ways(chain, self.source.repo_id), binding)
        elif stored and run.verdict is Verdict.PASSED:
            ways = self._bind_ways(chain, self.source.repo_id if self._uses_cache(chain) else "")
            return settle_pass(home, ways, binding)
        return stored

    def _choose_setup(self, chain: Chain) -> GuestSetup:
        """The setup of one room, with what it does about the compiler cache. What failed from scratch runs so again:
        with a cache it could not pass.
        """
        if not self._may_read_cache(chain) or self._failed_from_scratch(chain, self._bind_ways(chain, "")):
            return self.setup
        built = (self.source.repo_id, self.source.commit, self.source.tree)
        use = compiler_caching.choose_use(self.services, self.source.git, built, self.setup.image_digest)
        return replace(self.setup, compiler_cache=use)

    def _failed_from_scratch(self, chain: Chain, ways: Sequence[Bindings]) -> bool:
        return any(has_failed(self.services.home, ways[:1], check.id) for check in chain)

    def _run_and_take(
        self, check: Check, binding: Binding, room: WorktreePaths, watch: Watch, recorder: Recorder, before: SaveRun
    ) -> CheckRun:
        """Before a launch, take what it would release: what it does to its files afterwards does not count."""
        if check.launch is None or self.request.take is None:
            return self._run_one(check, room, watch, recorder, before)
        with self.request.take(room.root, binding) as keep:
            run = self._run_one(check, room, watch, recorder, before)
            keep(run)
        return run

    def _run_one(
        self, check: Check, room: WorktreePaths, watch: Watch, recorder: Recorder, before: SaveRun
    ) -> CheckRun:
        require_mask(room.root, GIT_MASK)
        with running.new_report_folder(self.services, room) as (run_id, report):
            account = find_account(self.services, room.owner)
            place = execute.CheckDirectories(
                room.root, report, account, self.source.tree, clean_room=True, task_id=self.request.task_id
            )
            which, owner = (run_id, check, place), self.request.owner
            run = running.run_one(self.services, recorder, which, watch, owner=owner, before=before)
            if run.compiler_cache == "filled" and run.verdict is Verdict.PASSED:
                cache = (self.source.repo_id, self.setup.image_digest)
                compiler_caching.keep_filled(self.services, cache, self.source.tree, report)
            return run
