"""Runs of the cluster's tasks, and their journal: on the worker that has the task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from sandbox.cluster.answers import check_encoding, unreadable_answer_error
from sandbox.cluster.elsewhere import TasksElsewhere, elsewhere
from sandbox.cluster.remote_progress import MOST_NEW, Questions, follow_task
from sandbox.cluster.windows import MOST_ITEMS, ArtifactWindow, Page, collect_artifact, collect_pages
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import (
    ArtifactList,
    BackgroundRun,
    CheckRun,
    JournalEntry,
    LogLines,
    LogQuery,
    RunLog,
    TaskEvent,
    TestResults,
    UsageSeries,
)
from sandbox.models.explorations import Exploration
from sandbox.models.operations import OperationName
from sandbox.models.task_look import LookedAtRun, ReadUpTo, TaskLook
from sandbox.store import placed_tasks
from sandbox.store.placed_tasks import PlacedRun
from sandbox.workbench.checks.shared_artifacts import shares_artifacts

_ResultT = TypeVar("_ResultT")


class RemoteRuns(TasksElsewhere):
    """Methods of `ClusterWorkbench`."""

    @elsewhere
    def runs(self, owner_id: str, most: int = 100) -> tuple[CheckRun, ...]:
        """As in `Workbench`: those on the worker that has the task."""
        found = tuple(self._collect(owner_id, OperationName.LIST_RUNS, CheckRun, most))
        self._note_runs(owner_id, found[::-1])
        return found

    @elsewhere
    def find_run(self, owner_id: str, run_id: str | None = None) -> str:
        """As in `Workbench`."""
        task_id, wanted = self._name_run(owner_id, run_id)
        found = self._asked.ask(task_id, OperationName.FIND_RUN, {"run_id": wanted}, str)
        placed_tasks.note_runs(self._services.home, task_id, [found])
        return found

    @elsewhere
    def run_log(self, owner_id: str, run_id: str | None = None, stream: str = "stdout", *, raw: bool = False) -> RunLog:
        """As in `Workbench`; of a long log the beginning and the end."""
        task_id, wanted = self._name_run(owner_id, run_id)
        found = self._asked.ask(
            task_id, OperationName.RUN_LOG, {"run_id": wanted, "stream": stream, "raw": raw}, RunLog
        )
        placed_tasks.note_runs(self._services.home, task_id, [found.run_id])
        return check_encoding(found, raw=raw)

    @elsewhere
    def read_log(self, run_id: str, query: LogQuery | None = None) -> LogLines:
        """As in `Workbench`, at most `WINDOW_BYTES` of it."""
        asked = (query or LogQuery()).model_dump(mode="json")
        return self._ask_about_run(run_id, OperationName.READ_LOG, {"query": asked}, LogLines)

    @elsewhere
    def test_results(
        self, run_id: str, *, failed_only: bool = False, cursor: int = 0, limit: int = 1000
    ) -> TestResults:
        """As in `Workbench`, with smaller pages."""
        page = {"failed_only": failed_only, "cursor": cursor, "limit": limit}
        return self._ask_about_run(run_id, OperationName.TEST_RESULTS, page, TestResults)

    @elsewhere
    def usage(self, run_id: str) -> UsageSeries:
        """As in `Workbench`."""
        return self._ask_about_run(run_id, OperationName.USAGE, {}, UsageSeries)

    @elsewhere
    def look_at_runs(self, task_id: str, places: Mapping[str, ReadUpTo]) -> TaskLook:
        """As in `Workbench`, on the worker."""
        wanted = {"places": {run: place.model_dump() for run, place in places.items()}}
        found = self._asked.ask(task_id, OperationName.LOOK, wanted, TaskLook)
        placed_tasks.note_runs(self._services.home, task_id, [run.run_id for run in found.runs])
        return found

    @elsewhere
    def watch_task(self, task_id: str, poll_s: float = 0.25) -> Iterator[TaskEvent]:
        """As `look_at_task`."""
        return (event for event in self.look_at_task(task_id, poll_s) if event is not None)

    @elsewhere
    def look_at_task(self, task_id: str, poll_s: float = 0.25) -> Iterator[TaskEvent | None]:
        """As in `Workbench`, with longer pauses between looks while there is no news; of much output the end."""
        return follow_task(task_id, self._questions_about(task_id), lambda: self.log(task_id, limit=MOST_NEW), poll_s)

    def _questions_about(self, task_id: str) -> Questions:
        return Questions(lambda places: self.look_at_runs(task_id, places), self.past_run, lambda: self.checks(task_id))

    @elsewhere
    def past_run(self, run_id: str) -> CheckRun:
        """As in `Workbench`."""
        return self._ask_about_run(run_id, OperationName.PAST_RUN, {}, CheckRun)

    @elsewhere
    def artifacts(self, run_id: str) -> ArtifactList:
        """As in `Workbench`."""
        return self._ask_about_run(run_id, OperationName.ARTIFACTS, {}, ArtifactList)

    @elsewhere
    def read_artifact(self, run_id: str, path: str) -> Iterator[bytes]:
        """As in `Workbench`: through the shared store, if the worker and this home have `cache.artifacts`; else at most
        `MOST_ARTIFACT_BYTES`.
        """
        shared = shares_artifacts(self._services)

        def ask(offset: int) -> ArtifactWindow:
            wanted = {"path": path, "offset": offset, "shared": shared}
            return self._ask_about_run(run_id, OperationName.READ_ARTIFACT, wanted, ArtifactWindow)

        first = ask(0)
        if first.artifact.path != path:
            raise unreadable_answer_error("a worker", "It answered with another artifact.")
        if first.parts:
            return self.read_shared_artifact(first.artifact, first.parts)
        return collect_artifact(first, ask)

    @elsewhere
    def log(self, task_id: str, *, limit: int | None = 10_000) -> tuple[JournalEntry, ...]:
        """As in `Workbench`: what was done on the worker that has the task, at most the newest `MOST_ITEMS`."""
        found = self._collect(task_id, OperationName.JOURNAL, JournalEntry, limit or MOST_ITEMS)
        return tuple(found)[::-1]

    def _name_run(self, owner_id: str, run_id: str | None) -> tuple[str, str | None]:
        """The task and the run that are meant by an owner, which may be the id of a run."""
        home = self._services.home
        if run_id is None and (task_id := placed_tasks.find_task_of_run(home, owner_id)) is not None:
            return task_id, owner_id
        if run_id is None and (placed := placed_tasks.find_placed_run(home, owner_id)) is not None:
            return placed.task_id, self._find_last_run(placed)
        return owner_id, run_id

    def _find_last_run(self, placed: PlacedRun) -> str:
        """The run of a check that was asked for in the background; of several the last. Raises: `conflict`."""
        found = self._note_ended(self._asked.wait(placed, 0.0))
        runs = _list_run_ids(found)
        if found.state == "running" and (running := self._find_running(placed)):
            return running.run_id
        if not runs:
            raise SandboxError(
                ErrorCode.CONFLICT,
                f"{placed.run_id} has not begun",
                hint=f"`sandbox check wait {placed.run_id}` waits.",
            )
        return runs[-1]

    def _find_running(self, placed: PlacedRun) -> LookedAtRun | None:
        """The check that runs in the task of a background run now: operations of a task take turns."""
        running = self.look_at_runs(placed.task_id, {}).runs
        return running[-1] if running else None

    def _ask_about_run(
        self, run_id: str, name: OperationName, arguments: Mapping[str, Any], kind: type[_ResultT]
    ) -> _ResultT:
        task_id, wanted = self._name_run(run_id, None)
        return self._asked.ask(task_id, name, {"run_id": wanted, **arguments}, kind)

    def _collect(self, task_id: str, name: OperationName, kind: type[_ResultT], limit: int) -> Iterator[_ResultT]:
        def ask(most: int, skip: int) -> Page:
            return self._asked.ask(task_id, name, {"limit": most, "skip": skip}, Page)

        return collect_pages(ask, kind, min(limit, MOST_ITEMS))

    def _note_runs(self, task_id: str, runs: tuple[CheckRun, ...]) -> tuple[CheckRun, ...]:
        placed_tasks.note_runs(self._services.home, task_id, [run.run_id for run in runs])
        return runs

    def _note_ended(self, ended: BackgroundRun) -> BackgroundRun:
        if ended.task_id is not None:
            placed_tasks.note_runs(self._services.home, ended.task_id, _list_run_ids(ended))
        if ended.state != "running":
            self._cancellations.pop(ended.run_id, None)
        return ended


def list_explored(found: Exploration) -> list[str]:
    """The ids of the runs of all ways, the last one last."""
    return [run_id for way in found.ways for run_id in way.runs.values()]


def _list_run_ids(ended: BackgroundRun) -> list[str]:
    """Of the checks that were asked for in the background; empty while they run."""
    if ended.exploration is not None:
        return list_explored(ended.exploration)
    return [run.run_id for run in (ended.verification.runs if ended.verification else ended.runs)]
