"""The threads of one controller that run checks in the background."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from sandbox.store.background_runs import BackgroundRunRecord

MAX_BACKGROUND_RUNS = 64
"""Maximum background runs of one controller. `container.parallel` limits how many run checks at the same time."""


@dataclass
class BackgroundThread:
    """One run. `pid`: a forked child has the object, not the thread. `record_ready`: its record exists, or it ended
    without one. `ended`: its thread has finished. `unsaved`: its last record, if the disk did not take it.
    """

    run_id: str
    pid: int = field(default_factory=os.getpid)
    cancelled: threading.Event = field(default_factory=threading.Event)
    record_ready: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    unsaved: BackgroundRunRecord | None = None

    def wait_for_record(self) -> None:
        """Raises: the error that ended the run before it had a record."""
        self.record_ready.wait()
        if self.error is not None:
            raise self.error


class BackgroundThreads:
    """All runs of a controller that have not ended, and the ends that could not be saved: at most
    `MAX_BACKGROUND_RUNS`, the last ones. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[str, BackgroundThread] = {}
        self._unsaved: dict[str, BackgroundRunRecord] = {}

    def start(self, run_id: str, work: Callable[[BackgroundThread], None]) -> BackgroundThread:
        """Run `work` in a thread of its own. Raises: `quota_exceeded` above `MAX_BACKGROUND_RUNS`."""
        started = BackgroundThread(run_id)
        with self._lock:
            if len(self._threads) >= MAX_BACKGROUND_RUNS:
                raise SandboxError(
                    ErrorCode.QUOTA_EXCEEDED,
                    f"{MAX_BACKGROUND_RUNS} background runs are active, which is the maximum",
                    hint="Wait for one of them to end, or stop one.",
                )
            self._threads[run_id] = started
        try:
            threading.Thread(target=self._run, args=(started, work), name=run_id).start()
        except RuntimeError as error:  # the thread limit of the process or system
            with self._lock:
                del self._threads[run_id]
            raise SandboxError(ErrorCode.QUOTA_EXCEEDED, "This host cannot start another thread for a run") from error
        return started

    def find(self, run_id: str) -> BackgroundThread | None:
        """The thread of a run that has not ended."""
        with self._lock:
            return self._threads.get(run_id)

    def find_unsaved(self, run_id: str) -> BackgroundRunRecord | None:
        """The record of a run that has ended, if it could not be saved."""
        with self._lock:
            thread = self._threads.get(run_id)
            return self._unsaved.get(run_id) if thread is None else thread.unsaved

    def forget_unsaved(self, run_id: str) -> None:
        """The record of this run was saved after all."""
        with self._lock:
            self._unsaved.pop(run_id, None)
            if (thread := self._threads.get(run_id)) is not None:
                thread.unsaved = None

    def cancel_all(self) -> None:
        """Ask all runs to end; their running checks are recorded as `killed`."""
        for running in self._list_threads():
            running.cancelled.set()

    def wait_for_all(self) -> None:
        """Return when all runs have ended."""
        while found := self._list_threads():
            found[0].ended.wait()

    def _list_threads(self) -> list[BackgroundThread]:
        with self._lock:
            return [thread for thread in self._threads.values() if thread.pid == os.getpid()]

    def _run(self, started: BackgroundThread, work: Callable[[BackgroundThread], None]) -> None:
        try:
            work(started)
        except Exception as error:  # noqa: BLE001 - the caller of `start` gets it
            started.error = error
        finally:
            with self._lock:
                del self._threads[started.run_id]
                if started.unsaved is not None:
                    self._unsaved[started.run_id] = started.unsaved
                    for oldest in list(self._unsaved)[:-MAX_BACKGROUND_RUNS]:
                        del self._unsaved[oldest]
            started.record_ready.set()
            started.ended.set()
