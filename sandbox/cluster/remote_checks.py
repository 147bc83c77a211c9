"""Checks of the cluster's tasks: start, wait, stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sandbox.cluster.elsewhere import bind_state, elsewhere, encode, not_on_cluster_error, on_workers_only
from sandbox.cluster.operation_table import VerifyArguments
from sandbox.cluster.remote_progress import RemoteProgress
from sandbox.cluster.remote_runs import RemoteRuns, list_explored
from sandbox.models import (
    BackgroundOperation,
    BackgroundRun,
    Check,
    CheckRun,
    PolicyAnswer,
    PreparedLayers,
    StopResult,
    Verification,
)
from sandbox.models.explorations import Exploration
from sandbox.models.operations import OperationName
from sandbox.store import placed_tasks
from sandbox.store.placed_tasks import PlacedRun
from sandbox.workbench import ExploreOptions, VerifyOptions, Watch

FIRST_ANSWER_S = 1.0
"""How long a command that starts checks in the background waits for an error, such as a check that does not exist."""

WAIT_S = 2.0
"""How long an answer is waited for until the caller is asked whether it still waits. A busy server takes a second."""


class RemoteChecks(RemoteRuns):
    """Methods of `ClusterWorkbench`."""

    @elsewhere
    def checks(self, owner_id: str) -> tuple[Check, ...]:
        """As in `Workbench`."""
        return self._asked.ask(owner_id, OperationName.LIST_CHECKS, {}, tuple[Check, ...])

    @elsewhere
    def run_checks(
        self,
        task_id: str,
        check_ids: Sequence[str],
        watch: Watch | None = None,
        *,
        runtime: str | None = None,
        arguments: Sequence[str] = (),
        expected_tree: str | None = None,
    ) -> tuple[CheckRun, ...]:
        """As in `Workbench`; their output comes late, and of much output the end."""
        wanted = bind_state(_describe_checks(check_ids, runtime, arguments), expected_tree)
        with self._progress(task_id, watch) as finish:
            found = self._asked.ask(task_id, OperationName.CHECK, wanted, tuple[CheckRun, ...], _find_cancelled(watch))
            finish(found)
        return self._note_runs(task_id, found)

    @elsewhere
    def start_checks(
        self,
        task_id: str,
        check_ids: Sequence[str],
        watch: Watch | None = None,
        *,
        runtime: str | None = None,
        arguments: Sequence[str] = (),
        expected_tree: str | None = None,
    ) -> BackgroundRun:
        """As in `Workbench`. The run continues when this process ends."""
        wanted = bind_state(_describe_checks(check_ids, runtime, arguments), expected_tree)
        return self._start(task_id, "check", wanted, watch, tuple(check_ids))

    @elsewhere
    def verify(
        self,
        task_id: str,
        watch: Watch | None = None,
        options: VerifyOptions | None = None,
        *,
        expected_tree: str | None = None,
    ) -> Verification:
        """As in `Workbench`, with output as of `run_checks`. `against`: a task is one on the same worker."""
        wanted = bind_state(_choose_options(task_id, options), expected_tree)
        return self._ask_to_verify(task_id, OperationName.VERIFY, wanted, watch)

    @elsewhere
    def start_verify(
        self,
        task_id: str,
        watch: Watch | None = None,
        options: VerifyOptions | None = None,
        *,
        expected_tree: str | None = None,
    ) -> BackgroundRun:
        """As `verify`, without waiting."""
        wanted = bind_state(_choose_options(task_id, options), expected_tree)
        return self._start(task_id, "verify", wanted, watch)

    @elsewhere
    def candidate(
        self,
        owner_id: str,
        watch: Watch | None = None,
        options: VerifyOptions | None = None,
        *,
        expected_tree: str | None = None,
    ) -> Verification:
        """As `verify`."""
        wanted = bind_state(_choose_options(owner_id, options), expected_tree)
        return self._ask_to_verify(owner_id, OperationName.CANDIDATE, wanted, watch)

    @elsewhere
    def start_candidate(
        self,
        task_id: str,
        watch: Watch | None = None,
        options: VerifyOptions | None = None,
        *,
        expected_tree: str | None = None,
    ) -> BackgroundRun:
        """As `candidate`, without waiting."""
        wanted = bind_state(_choose_options(task_id, options), expected_tree)
        return self._start(task_id, "candidate", wanted, watch)

    @elsewhere
    def explore(
        self,
        task_id: str,
        patches: Mapping[str, bytes] | None = None,
        task_ids: Sequence[str] = (),
        watch: Watch | None = None,
        options: ExploreOptions | None = None,
        *,
        expected_tree: str | None = None,
    ) -> Exploration:
        """As in `Workbench`, without output while the checks run. Tasks are those on the same worker, as forks are."""
        ways = _describe_exploration(patches or {}, task_ids, options or ExploreOptions())
        wanted = bind_state(ways, expected_tree)
        found = self._asked.ask(task_id, OperationName.EXPLORE, wanted, Exploration, _find_cancelled(watch))
        placed_tasks.note_runs(self._services.home, task_id, list_explored(found))
        placed_tasks.note_snapshots(self._services.home, task_id, [way.snapshot for way in found.ways if way.snapshot])
        return found

    @elsewhere
    def start_exploration(
        self,
        task_id: str,
        patches: Mapping[str, bytes] | None = None,
        task_ids: Sequence[str] = (),
        watch: Watch | None = None,
        options: ExploreOptions | None = None,
        *,
        expected_tree: str | None = None,
    ) -> BackgroundRun:
        """As `explore`, without waiting."""
        ways = _describe_exploration(patches or {}, task_ids, options or ExploreOptions())
        return self._start(task_id, "explore", bind_state(ways, expected_tree), watch)

    @elsewhere
    def stop_checks(self, task_id: str) -> StopResult:
        """As in `Workbench`: of the operation that has its turn. Those that wait for theirs begin then."""
        return self._asked.ask(task_id, OperationName.STOP_CHECKS, {}, StopResult)

    @elsewhere
    def launch_check(self, owner_id: str) -> Check | None:
        """As in `Workbench`."""
        return self._asked.ask(owner_id, OperationName.FIND_LAUNCH, {}, Check | None)  # type: ignore[arg-type]  # a form

    @elsewhere
    def check_limits(self, owner_id: str, check_id: str) -> tuple[PolicyAnswer, ...]:
        """As in `Workbench`, on the worker."""
        wanted = {"check_id": check_id}
        return self._asked.ask(owner_id, OperationName.CHECK_LIMITS, wanted, tuple[PolicyAnswer, ...])

    @on_workers_only
    @elsewhere
    def build_layers(
        self, owner_id: str, watch: Watch | None = None, *, expected_commit: str | None = None, refresh: bool = False
    ) -> PreparedLayers:
        """As in `Workbench`, on the worker, without its output."""
        wanted = {"expected_commit": expected_commit, "refresh": refresh}
        return self._asked.ask(owner_id, OperationName.LAYERS_BUILD, wanted, PreparedLayers)

    @on_workers_only
    @elsewhere
    def start_layers(
        self, owner_id: str, watch: Watch | None = None, *, expected_commit: str | None = None, refresh: bool = False
    ) -> BackgroundRun:
        """As `build_layers`, without waiting."""
        wanted = {"expected_commit": expected_commit, "refresh": refresh}
        return self._start(owner_id, "layers-build", wanted, watch)

    @elsewhere
    def wait_run(
        self, run_id: str, wait_s: float | None = None, *, cancelled: Callable[[], bool] | None = None
    ) -> BackgroundRun:
        """As in `Workbench`. What was cancelled by the watch with which it was started is stopped by who waits."""
        placed = self._find_run(run_id)
        found = self._note_ended(self._wait_for_end(placed, wait_s, cancelled))
        if found.state == "running" and wait_s != 0 and (running := self._find_running(placed)):
            return found.model_copy(update={"check_id": running.check_id, "check_run_id": running.run_id})
        return found

    def _wait_for_end(
        self, placed: PlacedRun, wait_s: float | None, cancelled: Callable[[], bool] | None
    ) -> BackgroundRun:
        is_stopped = self._cancellations.get(placed.run_id)
        if cancelled is None and is_stopped is None:
            return self._asked.wait(placed, wait_s)
        ends_at = math.inf if wait_s is None else time.monotonic() + wait_s
        while is_stopped is None or not is_stopped():
            left = ends_at - time.monotonic()
            found = self._asked.wait(placed, max(0.0, min(left, WAIT_S)))
            if found.state != "running" or time.monotonic() >= ends_at:
                return found
            if cancelled is not None and cancelled() and not (is_stopped is not None and is_stopped()):
                return found  # another request than the one with which it was started
        return self._asked.stop(placed)

    @elsewhere
    def wait_for_start(self, run_id: str) -> BackgroundRun:
        """The run after `FIRST_ANSWER_S`, in which an operation that cannot begin is answered. Whether a check has
        begun on its worker is not known here.
        """
        return self.wait_run(run_id, FIRST_ANSWER_S)

    @elsewhere
    def stop_run(self, run_id: str) -> BackgroundRun:
        """As in `Workbench`."""
        return self._note_ended(self._asked.stop(self._find_run(run_id)))

    def _find_run(self, run_id: str) -> PlacedRun:
        found = placed_tasks.find_placed_run(self._services.home, run_id)
        if found is None:
            raise not_on_cluster_error("waiting for a run that this home did not start", run_id)
        return found

    @contextmanager
    def _progress(self, task_id: str, watch: Watch | None) -> Iterator[Callable[[Sequence[CheckRun]], None]]:
        """Show progress while the body waits. What it is given is called with the runs when they have ended."""
        if watch is None:
            yield lambda _: None
            return
        progress = RemoteProgress(self._questions_about(task_id), watch)
        progress.begin()
        try:
            yield progress.finish
        finally:
            progress.end()

    def _ask_to_verify(
        self, task_id: str, name: OperationName, wanted: Mapping[str, Any], watch: Watch | None
    ) -> Verification:
        with self._progress(task_id, watch) as finish:
            found = self._asked.ask(task_id, name, wanted, Verification, _find_cancelled(watch))
            finish(found.runs)
        self._note_runs(task_id, found.runs)
        return found

    def _start(
        self,
        task_id: str,
        operation: BackgroundOperation,
        arguments: Mapping[str, Any],
        watch: Watch | None,
        check_ids: tuple[str, ...] = (),
    ) -> BackgroundRun:
        run = PlacedRun(
            run_id=f"run-{self._services.presence.new_id()}",
            task_id=task_id,
            operation=operation,
            check_ids=check_ids,
            started_at=datetime.now(UTC),
        )
        placed_tasks.save_placed_run(self._services.home, run)
        if cancelled := _find_cancelled(watch):
            self._cancellations[run.run_id] = cancelled
        self._asked.start(run, arguments)
        return BackgroundRun(**run.model_dump(exclude={"schema_version"}), state="running", elapsed_s=0.0)


def _find_cancelled(watch: Watch | None) -> Callable[[], bool] | None:
    """None if the caller does not cancel."""
    return None if watch is None or watch.cancelled is Watch.cancelled else watch.cancelled


def _describe_checks(check_ids: Sequence[str], runtime: str | None, arguments: Sequence[str]) -> dict[str, Any]:
    return {"check_ids": list(check_ids), "runtime": runtime, "arguments": list(arguments)}


def _choose_options(task_id: str, options: VerifyOptions | None) -> dict[str, Any]:
    """Those that are not as by default: a worker of an earlier version takes fewer.

    Raises: `invalid_input` for an option that workers do not take.
    """
    chosen, defaults = asdict(options or VerifyOptions()), asdict(VerifyOptions())
    taken = set(VerifyArguments.model_fields)
    wanted = {name: value for name, value in chosen.items() if value != defaults[name]}
    if others := [name for name in wanted if name not in taken]:
        raise not_on_cluster_error(f"verify with {', '.join(others)}", task_id)
    return wanted


def _describe_exploration(
    patches: Mapping[str, bytes], task_ids: Sequence[str], options: ExploreOptions
) -> dict[str, Any]:
    return {
        "patches": {name: encode(patch) for name, patch in patches.items()},
        "task_ids": list(task_ids),
        **asdict(options),
    }
