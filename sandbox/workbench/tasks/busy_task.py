"""Wait for a task that another operation holds, and say which: a check that runs in the task is named, with its run.

Theory. The lock of a task is a file without content, so it does not say which operation holds it. Nearly all take
milliseconds; only a check in the task's own container takes minutes, and the mark of its guest names its run. The file
of the request that runs it (store/stop_requests.py) has the check, and the id of the background run if it is one.
Checks in clean rooms hold no task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass

from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.guest_times import read_guest_run
from sandbox.store.home import Home
from sandbox.store.stop_requests import open_requests
from sandbox.workbench.controller.services import Services

TASK_HELD = "task_held"
"""Reason of the `conflict`."""


@dataclass(frozen=True)
class CheckInTask:
    """A check that runs in a task's own container. `run_id`: the background run it belongs to; None without one."""

    check_id: str
    check_run_id: str
    run_id: str | None

    def describe(self) -> str:
        """For people and agents: the id that `check wait` takes, else that of `check log`."""
        return f"the check '{self.check_id}' ({self.run_id or self.check_run_id})"


def find_check_in_task(home: Home, task_id: str) -> CheckInTask | None:
    """The check that holds the task; None if another operation does, or none."""
    check_run_id = read_guest_run(home.guest_mark(task_id))
    if check_run_id is None:
        return None
    with open_requests(home.stop_requests, task_id) as requests:
        for request in requests:
            check_id = request.read_runs().get(check_run_id)
            if check_id is not None and not request.is_over():
                return CheckInTask(check_id, check_run_id, request.run_id)
    return None


@contextmanager
def wait_for_lock(
    services: Services, task_id: str, wait_s: float, waiting: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold the lock of a task that is held by another operation now. `waiting`, and the callback for progress, are
    called with what is waited for, and with '' when the wait is over.

    Raises: `conflict` with the reason `TASK_HELD` after `wait_s` seconds; its data has the check if one runs.
    """
    holder = find_check_in_task(services.home, task_id)
    what = f"another operation on {task_id}" if holder is None else f"{holder.describe()} in {task_id}"
    with ExitStack() as held:
        with _saying(services, what, waiting):
            try:
                held.enter_context(services.home.locked(task_id, wait_s))
            except SandboxError as error:
                raise _build_error(task_id, find_check_in_task(services.home, task_id), error) from error
        yield


@contextmanager
def _saying(services: Services, what: str, waiting: Callable[[str], None] | None) -> Iterator[None]:
    progress = services.surface.progress
    if waiting is not None:
        waiting(what)
    if progress is not None:
        progress(f"waiting for {what}")
    try:
        yield
    finally:
        if progress is not None:
            progress("")
        if waiting is not None:
            waiting("")


def _build_error(task_id: str, holder: CheckInTask | None, error: SandboxError) -> SandboxError:
    if holder is None:
        return SandboxError(error.code, error.brief, hint=error.hint, reason=TASK_HELD, data={"task_id": task_id})
    hint = f"Wait for it, or run `sandbox check stop {task_id}`."
    if holder.run_id is not None:
        hint = f"Wait for it (`sandbox check wait {holder.run_id}`), or run `sandbox check stop {holder.run_id}`."
    named = {name: value for name, value in asdict(holder).items() if value is not None}
    return SandboxError(
        ErrorCode.CONFLICT,
        error.brief,
        details=f"It is {holder.describe()}.",
        hint=hint,
        reason=TASK_HELD,
        data={"task_id": task_id, "running": named},
    )
