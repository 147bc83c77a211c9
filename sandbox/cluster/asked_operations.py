"""Operations that this home asks of a cluster, with results of the types that the use-cases have."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from sandbox.cluster.answers import make_log_safe, unreadable_answer_error
from sandbox.cluster.dispatcher import ALL_PLACES_S, Dispatcher, make_closed_error
from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import BackgroundRun, CheckRun, PreparedLayers, Verification
from sandbox.models.explorations import Exploration
from sandbox.models.operations import OperationAnswer, OperationName, TaskOperation
from sandbox.models.workers import PlaceState, TaskPlace
from sandbox.store.placed_tasks import PlacedRun
from sandbox.text import neutralise, one_line

CANCELLED_EVERY_S = 0.25
"""How often a request is asked whether it was cancelled."""

MOST_LOSSES = 100
"""How many are remembered, so that each is reported once."""

PLACES_AT_ONCE = 4
"""How many callers ask where tasks are, each in a thread that goes on when its caller has given up."""

_ResultT = TypeVar("_ResultT")
_CODES = frozenset(code.value for code in ErrorCode)


class AskedOperations:
    """`connect`: makes the dispatcher, at the first operation. Thread-safe."""

    def __init__(self, connect: Callable[[], Dispatcher]) -> None:
        self._connect = connect
        self._dispatcher: Dispatcher | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        """Of the connection. Who makes it may hold this for seconds."""
        self._losses_lock = threading.Lock()
        self._places = threading.Semaphore(PLACES_AT_ONCE)
        self._losses: dict[tuple[str, str], str] = {}
        """By task and operation; empty: it was reported."""

    @property
    def dispatcher(self) -> Dispatcher:
        """Raises: as `connect_dispatcher`; `network_error` (`reason`: `connection_closed`) after `close`: a thread that
        outlives it makes no other connection.
        """
        with self._lock:
            if self._is_closed:
                raise make_closed_error()
            if self._dispatcher is None:
                self._dispatcher = self._connect()
            return self._dispatcher

    def close(self) -> None:
        """Let go of the connection, if there is one."""
        with self._lock:
            self._is_closed = True
            if self._dispatcher is not None:
                self._dispatcher.close()

    def ask(
        self,
        task_id: str,
        name: OperationName,
        arguments: Mapping[str, Any],
        kind: type[_ResultT],
        cancelled: Callable[[], bool] | None = None,
    ) -> _ResultT:
        """The result of an operation. An interrupt ends its checks, as `cancelled` does, which a thread of its own asks
        several times a second. Raises: its error; as `Dispatcher`.
        """
        operation = TaskOperation(id=uuid.uuid4().hex, task_id=task_id, name=name, arguments=dict(arguments))
        self.dispatcher.submit(operation, is_new=True)
        try:
            with self._cancelling(operation, cancelled):
                return self.finish(operation, kind)
        except KeyboardInterrupt:
            self.dispatcher.cancel(operation)
            raise

    def finish(self, operation: TaskOperation, kind: type[_ResultT]) -> _ResultT:
        """The result of an operation that was submitted. Raises: its error; as `Dispatcher`."""
        answer = self.dispatcher.result(operation)
        assert answer is not None  # noqa: S101 - only with a limit on the wait
        self._note_loss(answer)
        return read_value(answer, kind)

    @contextmanager
    def _cancelling(self, operation: TaskOperation, cancelled: Callable[[], bool] | None) -> Iterator[None]:
        """Cancel an operation when this becomes true in the body."""
        is_over = threading.Event()

        def watch() -> None:
            while cancelled is not None and not is_over.wait(CANCELLED_EVERY_S):
                if cancelled():
                    with suppress(SandboxError):  # the body has it, too
                        self.dispatcher.cancel(operation)
                    return

        if cancelled is not None:
            threading.Thread(target=watch, name="cancellation", daemon=True).start()
        try:
            yield
        finally:
            is_over.set()

    def places(self, task_ids: Sequence[str]) -> Mapping[str, TaskPlace]:
        """Where tasks are, after at most `ALL_PLACES_S`. What was not said by then is unknown."""
        found = dict.fromkeys(task_ids, TaskPlace(state=PlaceState.UNKNOWN))
        end = time.monotonic() + ALL_PLACES_S

        def ask() -> None:
            try:
                with suppress(SandboxError):
                    found.update(self.dispatcher.places(task_ids))
            finally:
                self._places.release()

        if self._places.acquire(timeout=ALL_PLACES_S):
            asking = threading.Thread(target=ask, name="places", daemon=True)
            try:
                asking.start()
            except RuntimeError:  # this host has no more threads
                self._places.release()
                raise
            asking.join(max(0.0, end - time.monotonic()))
        return dict(found)

    def take_losses(self, task_id: str | None = None) -> tuple[str, ...]:
        """What tasks, or this one, lost with their workers, as the answers since the last call say. Each loss is
        reported once.
        """
        with self._losses_lock:
            found = {key: text for key, text in self._losses.items() if text and task_id in {None, key[0]}}
            self._losses |= dict.fromkeys(found, "")
        return tuple(found.values())

    def _note_loss(self, answer: OperationAnswer) -> None:
        if answer.lost:
            with self._losses_lock:
                key = answer.task_id, answer.operation_id
                self._losses.setdefault(key, f"{answer.task_id}: {answer.lost}")
                while len(self._losses) > MOST_LOSSES:  # also of who never takes them
                    del self._losses[next(iter(self._losses))]

    def start(self, run: PlacedRun, arguments: Mapping[str, Any]) -> None:
        """Ask for the checks of a run with a new id, and return."""
        self.dispatcher.submit(_operation_of(run, arguments), is_new=True)

    def wait(self, run: PlacedRun, wait_s: float | None) -> BackgroundRun:
        """A run once it has ended, or that it has not after `wait_s`. Raises: its error."""
        answer = self.dispatcher.result(_operation_of(run, {}), wait_s)
        facts: dict[str, Any] = {
            **run.model_dump(exclude={"schema_version"}),
            "elapsed_s": (datetime.now(UTC) - run.started_at).total_seconds(),
        }
        if answer is None:
            return BackgroundRun(**facts, state="running")
        self._note_loss(answer)
        if run.operation == "explore":
            return BackgroundRun(**facts, state="finished", exploration=read_value(answer, Exploration))
        if run.operation == "layers-build":
            return BackgroundRun(**facts, state="finished", prepared=read_value(answer, PreparedLayers))
        if run.operation in {"verify", "candidate"}:
            return BackgroundRun(**facts, state="finished", verification=read_value(answer, Verification))
        return BackgroundRun(**facts, state="finished", runs=read_value(answer, tuple[CheckRun, ...]))

    def stop(self, run: PlacedRun) -> BackgroundRun:
        """End the checks of a run; returns when they have ended. Raises: its error."""
        self.dispatcher.cancel(_operation_of(run, {}))
        return self.wait(run, None)


def read_value(answer: OperationAnswer, kind: type[_ResultT]) -> _ResultT:
    """The value of an answer, without what only a later version of a worker says: workers are upgraded before callers.

    Raises: its error; `internal` for a value of another type.
    """
    raise_for_error(answer)
    try:
        found = TypeAdapter(kind).validate_python(answer.value, extra="ignore")
    except ValidationError as error:
        raise unreadable_answer_error(answer.worker, describe_errors(error)) from error
    return cast(_ResultT, make_log_safe(found))


def raise_for_error(answer: OperationAnswer) -> None:
    """Raises: the error of an answer that has one; as `internal` if it has a code that this version does not know. Its
    texts are safe to show: a worker may have put terminal sequences into them (S194).
    """
    if answer.error is not None:
        found = answer.error
        raise SandboxError(
            ErrorCode(found.code) if found.code in _CODES else ErrorCode.INTERNAL,
            one_line(found.brief),
            details=neutralise(found.details),
            hint=neutralise(found.hint),
            reason=found.reason,
            data=found.data,
        )


def _operation_of(run: PlacedRun, arguments: Mapping[str, Any]) -> TaskOperation:
    return TaskOperation(
        id=run.run_id, task_id=run.task_id, name=OperationName(run.operation), arguments=dict(arguments)
    )
