"""Use-cases on background runs: start checks or a fetch of packages without waiting, read progress, wait, stop.

Theory. A client gives up on a call after a minute, and a build takes twenty. So the checks run in a thread that belongs
to no call. Any caller that knows the run id can ask for the result: the call that started the checks, a later session,
another process. The thread holds the lock of the request's file (store/stop_requests.py) and writes the run's record
(store/background_runs.py). A record that says `running` while the lock is free belongs to a process that was killed:
that run has no result. Or the disk was full when the run ended: the result waits in the process that has it, which
answers from there and saves it when it is asked.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from sandbox.errors import ErrorCode, SandboxError, translate_shortage
from sandbox.listener import HeldListener
from sandbox.models import BackgroundOperation, BackgroundRun, Check, CheckRun, Verification
from sandbox.models.background import BackgroundFacts
from sandbox.models.explorations import Exploration
from sandbox.models.layers import PreparedLayers
from sandbox.store.background_runs import (
    BackgroundRunRecord,
    RunFailure,
    find_background_run,
    prune_background_runs,
    save_background_run,
)
from sandbox.store.home import Home
from sandbox.store.runs import describe_without_result, has_log
from sandbox.store.stop_requests import is_running, list_run_ids
from sandbox.text import decode_for_display
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.layer_attempts import STOPPED
from sandbox.workbench.checks.run import new_run_id
from sandbox.workbench.checks.stop import STOP_WAIT_S, stop_build, stop_checks, stoppable
from sandbox.workbench.controller.background_threads import BackgroundThread, BackgroundThreads
from sandbox.workbench.controller.disk_admission import RECORD_DEMAND, Writer
from sandbox.workbench.controller.services import Services
from sandbox.workbench.tasks.busy_task import TASK_HELD

LAST_LINES, LINE_CHARS = 10, 200
"""How much output of a running check is shown."""

_TAIL_BYTES = 4096
_WRITE_EVERY_S = 0.5
_LOOK_S = 0.25
_START_LOOK_S = 0.05
_START_WAIT_S = 60.0
_COMMANDS: Mapping[BackgroundOperation, str] = {
    "check": "check run",
    "verify": "verify",
    "candidate": "candidate",
    "layers-build": "layers build",
    "explore": "explore",
}
_EXPECTED_TREE = "expected_tree"
"""The approved state, among the options in a record."""

_ENDED: Mapping[str, object] = {
    "deadline_s": None,
    "check_id": None,
    "check_run_id": None,
    "queue_position": None,
    "waits_for": None,
    "last_lines": (),
}
"""What a run that has ended does not answer, though its last record has it."""

_log = logging.getLogger(__name__)

Result: TypeAlias = "tuple[CheckRun, ...] | Verification | PreparedLayers | Exploration"

Work = Callable[[Watch, str], Result]
"""Runs the checks, or builds the layers, with this watch. The last check gets this run id."""


@dataclass(frozen=True)
class Question:
    """Which checks to run, and how. Two equal questions share one run. `options`: all other inputs of the run.

    `owner_id`: a task; or a repository, to build its layers. `expected_tree`: the state that was approved. A run that
    began with another one does not answer; without one any run does.
    """

    operation: BackgroundOperation
    owner_id: str
    check_ids: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    expected_tree: str | None = field(default=None, compare=False)


def start(services: Services, question: Question, watch: Watch, work: Work) -> BackgroundRun:
    """Start `work` in a new thread. If the same question is being answered already, return that run instead.

    `watch` is called from that thread. Raises: the error that ends the run before its first check; `conflict` for a
    closed task; `quota_exceeded` beyond `MAX_BACKGROUND_RUNS` runs of this controller.
    """
    commit = services.repositories.find_owner_commit(question.owner_id).commit
    services.disk.require(Writer.RECORD, RECORD_DEMAND)
    services.home.background_runs.mkdir(mode=0o700, exist_ok=True)
    prune_background_runs(services.home, services.settings.keep.background_runs)
    with services.home.locked(f"start-{question.owner_id}", _START_WAIT_S):  # else two callers at once start two runs
        running = _find_same(services, question)
        if running is not None:
            return running
        run_id = new_run_id(services.presence)
        context = contextvars.copy_context()
        record = _new_record(run_id, question, commit)
        services.background_threads.start(
            run_id, lambda ours: context.run(_run, services.home, record, watch, work, ours)
        ).wait_for_record()
    return _build_answer(find_background_run(services.home, run_id))


def _run(home: Home, record: BackgroundRunRecord, watch: Watch, work: Work, thread: BackgroundThread) -> None:
    """Complete the record before the request's file is removed: else the process would look killed."""
    run_id = record.run_id
    ours = replace(watch, cancelled=lambda: thread.cancelled.is_set() or watch.cancelled())
    with stoppable(home, record.owner_id, ours, run_id) as heard:
        tracker = _Tracker(home, record, thread)
        thread.record_ready.set()
        try:
            tracker.finish(work(tracker.follow(heard), run_id))
        except SandboxError as error:
            if error.reason == STOPPED:
                tracker.finish(())
            else:
                tracker.fail(error)
        except Exception as error:  # noqa: BLE001 - the edge of a thread: the waiting caller gets a code, our log the trace
            tracker.fail(_translate(run_id, error))


def _translate(run_id: str, error: Exception) -> SandboxError:
    """What the host lacks, by its name; all else is a defect, and is logged with its trace."""
    shortage = translate_shortage(error) if isinstance(error, OSError) else None
    if shortage is not None:
        return shortage
    _log.error("a background run failed", exc_info=error)
    return SandboxError(ErrorCode.INTERNAL, f"{run_id} failed; this is a defect of the sandbox")


def _new_record(run_id: str, question: Question, commit: str) -> BackgroundRunRecord:
    of_task, tree = question.owner_id.startswith("task-"), question.expected_tree
    return BackgroundRunRecord(
        run_id=run_id,
        task_id=question.owner_id if of_task else None,
        repo_id=None if of_task else question.owner_id,
        operation=question.operation,
        check_ids=question.check_ids,
        options={**question.options, **({} if tree is None else {_EXPECTED_TREE: tree})},
        commit=commit,
        started_at=datetime.now(UTC),
    )


class _Tracker:
    """Keeps the record of a run up to date: at each step, and twice a second while there is output. Progress that
    cannot be saved ends no run; an end that cannot be saved waits in `thread.unsaved`.
    """

    def __init__(self, home: Home, record: BackgroundRunRecord, thread: BackgroundThread) -> None:
        self._home, self._record, self._thread = home, record, thread
        self._started = time.monotonic()
        self._timeout_s = 0.0
        self._pending_write: threading.Timer | None = None  # writes the output that came since the last write
        self._tail = bytearray()
        self._changing = threading.Lock()  # the output of a check comes from another thread than its steps
        self._warned = False
        save_background_run(home, record)

    def follow(self, watch: Watch) -> Watch:
        """Return a watch that also updates the record."""

        def on_start(run_id: str, check: Check) -> None:
            self._timeout_s = check.timeout_s
            self._tail.clear()
            self._change(check_id=check.id, check_run_id=run_id, queue_position=None, deadline_s=self._deadline_s())
            watch.starts(run_id, check)

        def on_queue(position: int) -> None:
            waits = position > 0
            self._change(queue_position=position or None, deadline_s=None if waits else self._deadline_s())
            watch.queued(position)

        listener = HeldListener(watch.follow, "output of a check") if watch.follow is not None else None

        def on_output(stream: str, chunk: bytes) -> None:
            self._add_output(chunk)
            if listener is not None:
                listener(stream, chunk)

        def on_building(line: str) -> None:
            self._add_output(f"{line}\n".encode())
            watch.building(line)

        def on_waiting(what: str) -> None:
            self._change(waits_for=what or None)
            watch.waiting(what)

        return replace(
            watch, starts=on_start, queued=on_queue, follow=on_output, building=on_building, waiting=on_waiting
        )

    def finish(self, result: Result) -> None:
        """Record the result of the run."""
        if isinstance(result, Verification):
            self._end(state="finished", verification=result)
        elif isinstance(result, PreparedLayers):
            self._end(state="finished", prepared=result)
        elif isinstance(result, Exploration):
            self._end(state="finished", exploration=result)
        else:
            self._end(state="finished", runs=result)

    def fail(self, error: SandboxError) -> None:
        """Record that the run ended with an error instead of a result."""
        if error.reason == TASK_HELD and self._record.check_id is None:
            error = _explain_missed_start(self._record, error)
        failure = RunFailure(
            code=error.code,
            brief=error.brief,
            details=error.details,
            hint=error.hint,
            reason=error.reason,
            data=None if error.data is None else dict(error.data),
        )
        self._end(state="failed", failure=failure)

    def _end(self, **changes: Any) -> None:
        self._change(ended_s=self._seconds_since_start(), **changes)
        if self._pending_write is not None:
            self._pending_write.cancel()

    def _seconds_since_start(self) -> float:
        return round(time.monotonic() - self._started, 3)

    def _deadline_s(self) -> float:
        return round(self._seconds_since_start() + self._timeout_s, 3)

    def _add_output(self, chunk: bytes) -> None:
        self._tail += chunk[-_TAIL_BYTES:]
        del self._tail[:-_TAIL_BYTES]
        self._change_soon()

    def _change_soon(self) -> None:
        if self._pending_write is None:
            self._pending_write = threading.Timer(_WRITE_EVERY_S, self._write_pending)
            self._pending_write.daemon = True
            self._pending_write.start()

    def _write_pending(self) -> None:
        self._pending_write = None
        self._change()

    def _change(self, **changes: Any) -> None:
        with self._changing:
            if self._record.ended_s is not None:
                return  # this output came after the end
            lines = tuple(
                line[:LINE_CHARS] for line in decode_for_display(bytes(self._tail)).splitlines()[-LAST_LINES:]
            )
            self._record = self._record.model_copy(update={"last_lines": lines, **changes})
            try:
                save_background_run(self._home, self._record)
            except OSError as error:
                self._note_unsaved(error)

    def _note_unsaved(self, error: OSError) -> None:
        has_ended = self._record.ended_s is not None
        if has_ended:
            self._thread.unsaved = self._record
        if has_ended or not self._warned:
            what = "result" if has_ended else "progress"
            _log.warning("the %s of %s cannot be saved: %s", what, self._record.run_id, error.strerror or error)
            self._warned = True


def _explain_missed_start(record: BackgroundRunRecord, error: SandboxError) -> SandboxError:
    """The same conflict, as it is read later: the task may be idle by then. Pure."""
    command = _COMMANDS[record.operation]
    return error.with_changes(
        brief=f"{record.run_id} did not start: another operation held {record.owner_id} then",
        details=error.details.replace("It is", "It was", 1),
        hint=f"Start it again once that has ended: `sandbox {command} {record.owner_id}`.",
    )


def wait(
    home: Home,
    background_threads: BackgroundThreads,
    run_id: str,
    wait_s: float | None,
    cancelled: Callable[[], bool] | None = None,
) -> BackgroundRun:
    """Return the run once it has ended, or its state after `wait_s` seconds (None: no limit) or when `cancelled`.

    Raises: `not_found` for an unknown run, or when its process was killed; the error that ended the run.
    """
    ends_at = None if wait_s is None or wait_s > threading.TIMEOUT_MAX else time.monotonic() + wait_s
    thread = background_threads.find(run_id)
    while True:
        run = _find_run(home, background_threads, run_id)
        left_s = _LOOK_S if ends_at is None else ends_at - time.monotonic()
        if run.state == "finished" or left_s <= 0 or (cancelled is not None and cancelled()):
            return run
        pause_s = min(_LOOK_S, left_s)
        if thread is None:
            time.sleep(pause_s)
        else:
            thread.ended.wait(pause_s)


def wait_for_start(home: Home, background_threads: BackgroundThreads, run_id: str) -> BackgroundRun:
    """Return the run once its first check has begun, or it has ended; one of layers or several ways at once. Raises: as
    `wait`.
    """
    found = _find_run(home, background_threads, run_id)
    while found.state == "running" and found.check_id is None and found.operation not in {"layers-build", "explore"}:
        found = wait(home, background_threads, run_id, _START_LOOK_S)
    return found


def find_task_id(home: Home, run_id: str) -> str | None:
    """The task of a run; None for one of a repository. Raises: `not_found`."""
    return find_background_run(home, run_id).task_id


def stop(services: Services, run_id: str) -> BackgroundRun:
    """Stop a run: its checks are recorded as `killed`. A run that has ended does not change.

    Raises: `not_found`; as `stop_checks`; the error that ended the run.
    """
    record = services.background_threads.find_unsaved(run_id) or find_background_run(services.home, run_id)
    if record.state == "running" and record.task_id is not None:
        stop_checks(services, record.task_id, run_id)
    elif record.state == "running":
        stop_build(services, record.owner_id, run_id)
    return wait(services.home, services.background_threads, run_id, STOP_WAIT_S)


def _find_run(home: Home, background_threads: BackgroundThreads, run_id: str) -> BackgroundRun:
    record = find_background_run(home, run_id)
    if record.state != "running" or _is_alive(home, record):
        return _build_answer(record)
    unsaved = background_threads.find_unsaved(run_id)
    if unsaved is not None:
        _save_after_all(home, background_threads, unsaved)
        return _build_answer(unsaved)
    record = find_background_run(home, run_id)  # read again: the run may have ended before its lock was free
    if record.state == "running":
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            describe_without_result(run_id),
            details=f"{record.operation} of {record.owner_id}, {' '.join(record.check_ids)}",
            hint=" ".join(["Ask for it again.", *_name_kept_log(home, record)]),
        )
    return _build_answer(record)


def _save_after_all(home: Home, background_threads: BackgroundThreads, record: BackgroundRunRecord) -> None:
    with suppress(OSError):  # the disk is still full: the next caller tries again
        save_background_run(home, record)
        background_threads.forget_unsaved(record.run_id)


def _name_kept_log(home: Home, record: BackgroundRunRecord) -> Iterator[str]:
    """Where the output of the check is that ran last."""
    last = record.check_run_id
    if last is not None and has_log(home, record.owner_id, last):
        yield f"`sandbox check log {last}` prints what its check '{record.check_id}' wrote until then."


def _is_alive(home: Home, record: BackgroundRunRecord) -> bool:
    return is_running(home.stop_requests, record.owner_id, record.run_id)


def _build_answer(record: BackgroundRunRecord) -> BackgroundRun:
    """Raises: the error that ended the run."""
    if record.failure is not None:
        failed = record.failure
        raise SandboxError(
            failed.code,
            failed.brief,
            details=failed.details,
            hint=failed.hint,
            reason=failed.reason,
            data=failed.data,
        )
    running = record.state == "running"
    elapsed_s = max(0.0, (datetime.now(UTC) - record.started_at).total_seconds())
    shared = {name: getattr(record, name) for name in BackgroundFacts.model_fields}
    if running:
        return BackgroundRun(**shared, elapsed_s=round(elapsed_s, 3))
    return BackgroundRun(**{**shared, **_ENDED, "state": "finished"}, elapsed_s=record.ended_s or 0.0)


def _find_same(services: Services, question: Question) -> BackgroundRun | None:
    """Find a run that answers the question now. After a new commit, `verify` is a different question."""
    for run_id in list_run_ids(services.home.stop_requests, question.owner_id):
        with suppress(SandboxError):  # the run has no record yet, or the record is damaged
            record = find_background_run(services.home, run_id)
            if record.state == "running" and _is_about(record, question) and _is_current(services, record):
                return _build_answer(record)
    return None


def _is_about(record: BackgroundRunRecord, question: Question) -> bool:
    """Whether the run answers the question, if it is current. Pure."""
    options = dict(record.options)
    tree = options.pop(_EXPECTED_TREE, None)
    asked = Question(record.operation, record.owner_id, record.check_ids, options)
    return asked == question and question.expected_tree in {None, tree}


def _is_current(services: Services, record: BackgroundRunRecord) -> bool:
    last = services.repositories.find_owner_commit(record.owner_id)
    return last.commit == record.commit and _is_alive(services.home, record)
