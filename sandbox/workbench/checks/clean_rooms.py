"""Run checks over a committed tree in clean rooms, or answer from cached verdicts of clean rooms.

A clean room is a fresh checkout, with a fresh guest for each check. One chain of checks has one room; several rooms may
run in parallel (docs/adr/0021).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from sandbox.checks.cancellation import Cancellation, interrupts_deferred
from sandbox.checks.execute import Place, Recorder
from sandbox.files.git_mask import require_mask
from sandbox.git.process import Git
from sandbox.models import Check, CheckRun
from sandbox.profiles import Profile
from sandbox.store.home import GIT_MASK
from sandbox.store.verdicts import Binding, find_verdict, keep_verdict
from sandbox.workbench.checks import run as running
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.chains import Chain, all_passed, ask, chains_of
from sandbox.workbench.checks.guest_setup import GuestSetup, resolve_guest_setup
from sandbox.workbench.checks.verdict_keys import bindings
from sandbox.workbench.checks.verify_options import VerifyOptions
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.tasks.worktrees import clean_room


@dataclass(frozen=True)
class Source:
    """The tree to check and the repository with its objects. `near`: a similar tree that may be checked out already."""

    repo_id: str
    git: Git
    tree: str
    near: str


@dataclass(frozen=True)
class Wanted:
    """The checks to run on the tree, required ones first. `owner`: id of the task or repository."""

    profile: Profile
    checks: tuple[Check, ...]
    owner: str

    @property
    def task_id(self) -> str | None:
        return self.owner if self.owner.startswith("task-") else None


def run_in_rooms(
    services: Parts, source: Source, wanted: Wanted, watch: Watch, options: VerifyOptions
) -> tuple[CheckRun, ...]:
    """Return the runs, chain by chain. A chain with cached verdicts needs no room. Stops at the first failure, unless
    `options.keep_going`. Rooms are removed in any case.

    Raises: as `resolve_guest_setup` and `build_room_recorder`; `quota_exceeded` for a tree past the limits of a
    checkout or a full disk.
    """
    rooms = _Rooms(services, source, wanted, resolve_guest_setup(services, wanted.profile), options)
    chains = chains_of(wanted.checks)
    if options.jobs > 1 and len(chains) > 1:
        return _at_once(chains, rooms.runs_of, watch, options)
    return _in_turn(chains, rooms.runs_of, watch, options)


RunsOf = Callable[[Chain, Watch], tuple[CheckRun, ...]]


def _in_turn(chains: Sequence[Chain], runs_of: RunsOf, watch: Watch, options: VerifyOptions) -> tuple[CheckRun, ...]:
    runs: tuple[CheckRun, ...] = ()
    for chain in chains:
        runs += runs_of(chain, watch)
        if not all_passed(runs) and (not options.keep_going or watch.cancelled()):
            break
    return runs


def _at_once(chains: Sequence[Chain], runs_of: RunsOf, watch: Watch, options: VerifyOptions) -> tuple[CheckRun, ...]:
    """Run `options.jobs` chains in parallel. A failed check stops the others, unless `options.keep_going`; an error
    of ours always does.
    """
    over, telling = Cancellation(), threading.Lock()

    def announce(check: Check, run: CheckRun | None) -> None:
        with telling:
            watch.announce(check, run)

    with interrupts_deferred() as interrupted, ThreadPoolExecutor(options.jobs, "clean-room") as pool:
        shared = replace(
            watch, announce=announce, cancelled=lambda: over.is_set() or interrupted() or watch.cancelled()
        )
        ends = not options.keep_going
        at_work = [pool.submit(_one_of_several, chain, runs_of, shared, over, ends) for chain in chains]
        return tuple(run for chain in at_work for run in chain.result())


def _one_of_several(
    chain: Chain, runs_of: RunsOf, watch: Watch, over: Cancellation, failure_ends: bool
) -> tuple[CheckRun, ...]:
    """Run a chain; no runs if the request was cancelled before the chain began."""
    if watch.cancelled():
        return ()
    try:
        runs = runs_of(chain, watch)
    except BaseException:
        over.set()
        raise
    if failure_ends and not all_passed(runs):
        over.set()
    return runs


@dataclass(frozen=True)
class _Rooms:
    parts: Parts
    source: Source
    wanted: Wanted
    made: GuestSetup
    options: VerifyOptions

    @cached_property
    def recorder(self) -> Recorder:
        """Built only when a check runs: cached verdicts need no guest."""
        return running.recorder(self.parts, self.made, self.wanted.owner)

    def runs_of(self, chain: Chain, watch: Watch) -> tuple[CheckRun, ...]:
        """Answer a whole chain from the cache, or run all of it: each check needs the output of those before it."""
        bound = bindings(self.parts, self.made, self.source.tree, chain)
        known = self._known(chain, bound) if self.options.cache else None
        if known is None:
            return self._run(chain, bound, watch)
        for run in known:
            check = bound[run.check_id].check
            watch.announce(check, None)
            watch.announce(check, run)
        return known

    def _known(self, chain: Chain, bound: dict[str, Binding]) -> tuple[CheckRun, ...] | None:
        return ask(
            chain, lambda check: find_verdict(self.parts.home, bound[check.id]), keep_going=self.options.keep_going
        )

    def _run(self, chain: Chain, bound: dict[str, Binding], watch: Watch) -> tuple[CheckRun, ...]:
        source, runs = self.source, list[CheckRun]()
        with clean_room(self.parts, source.repo_id, source.git, source.tree, source.near) as room:

            def answer(check: Check) -> CheckRun | None:
                if runs and watch.cancelled():
                    return None
                as_before = all_passed(runs)
                runs.append(self._run_one(check, room, watch))
                if as_before:  # the verdict's key does not cover what a failed check left in the room
                    keep_verdict(self.parts.home, bound[check.id], runs[-1])
                return runs[-1]

            ask(chain, answer, keep_going=self.options.keep_going)
        return tuple(runs)

    def _run_one(self, check: Check, room: Path, watch: Watch) -> CheckRun:
        require_mask(room, GIT_MASK)
        with running.report_folder(self.parts) as (run_id, report):
            place = Place(room, report, self.source.tree, clean_room=True, task_id=self.wanted.task_id)
            return running.run_one(self.parts, self.recorder, (run_id, check, place), watch, owner=self.wanted.owner)
