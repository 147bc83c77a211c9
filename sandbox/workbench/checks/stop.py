"""Use-case: stop the checks that run in a task, in any process.

The process that runs them is asked to stop. It ends them as it ends any cancelled request: with a record, and without
leaving a guest behind. Only guests of a dead process are ended from here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sandbox.engine.container_labels import INSTANCE_LABEL, TASK_LABEL
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import SLUG_PATTERN, TASK_ID_PATTERN, Check, CheckRun, StoppedCheck, StopResult, Verdict
from sandbox.store.home import Home
from sandbox.store.liveness import list_live_nonces, owner_of
from sandbox.store.records import find_task
from sandbox.store.stop_requests import ObservedRequest, open_requests, register_request
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.controller.services import Services
from sandbox.workbench.tasks.guest_cleanup import remove_orphans

STOP_WAIT_S = 60.0
"""How long the running process may take to stop; it looks for a stop request four times a second, a kill is quick."""

_LOOK_S = 0.02
_EDIT_WAIT_S = 10.0


@contextmanager
def stoppable(home: Home, owner_id: str, watch: Watch, run_id: str | None = None) -> Iterator[Watch]:
    """Run checks of a task, or build layers of a repository, in the body with the yielded watch: `stop_checks` and
    `stop_build` in any process can stop them, also by `run_id`.
    """
    if not _is_known(home, owner_id):
        yield watch  # the request itself reports the wrong id
        return
    home.stop_requests.mkdir(mode=0o700, exist_ok=True)
    with register_request(home.stop_requests, owner_id, run_id) as request:

        def announce(check: Check, run: CheckRun | None) -> None:
            if (
                run is not None and not run.cached
            ):  # the announced check may have a label before its id, its run has none
                request.note_end(run.check_id, run.verdict)
            watch.announce(check, run)

        def note_start(run_id: str, check: Check) -> None:
            request.note_run(run_id, check.id)
            request.note_begin(check.id)
            watch.starts(run_id, check)

        yield replace(
            watch,
            announce=announce,
            starts=note_start,
            cancelled=lambda: watch.cancelled() or request.is_stop_requested(),
            stop_reason=lambda: request.read_stop_reason() or watch.stop_reason(),
        )


def _is_known(home: Home, owner_id: str) -> bool:
    if re.fullmatch(TASK_ID_PATTERN, owner_id):
        return home.task(owner_id).exists()
    return re.fullmatch(SLUG_PATTERN, owner_id) is not None and home.clone(owner_id).exists()


def stop_build(services: Services, repo_id: str, run_id: str) -> None:
    """Stop one build of a repository's layers, and wait until it has ended. Guests of a dead process are removed by
    reconciliation.

    Raises: `timeout` when the running process does not react.
    """
    with open_requests(services.home.stop_requests, repo_id, run_id) as requests:
        _end_requests(requests, f"The build of layers of {repo_id}")


def stop_checks(services: Services, task_id: str, run_id: str | None = None, reason: str = "") -> StopResult:
    """Stop all checks that run or wait in a task, also in clean rooms, and wait until they have ended. It is not an
    error if there are none.

    `run_id`: stop only this background run. `reason`: a note of the runs that are stopped.

    Raises: `not_found`; `timeout` when the running process does not react; `engine_unavailable` when the engine cannot
    say whether a guest of a dead process still runs; `conflict` when another operation holds the task.
    """
    find_task(services.home, task_id, allow_closed=True)
    with open_requests(services.home.stop_requests, task_id, run_id) as requests:
        running = [request.read_checks() for request in requests]
        dead = _end_requests(requests, f"The checks in {task_id}", reason)
        if any(dead) or (run_id is None and services.home.guest_mark(task_id).exists()):
            _end_guests(services, task_id)
        return StopResult(task_id=task_id, stopped=tuple(_list_stopped(requests, running, dead)))


def _end_requests(requests: Sequence[ObservedRequest], what: str, reason: str = "") -> list[bool]:
    """Ask all of them to stop, and wait until they have. Returns which had a process that was dead already. Raises:
    `timeout`.
    """
    for request in requests:
        request.ask_to_stop(reason)
    _wait_until_over(what, lambda: all(request.is_over() for request in requests))
    return [request.clean_up() for request in requests]


def _list_stopped(
    requests: Sequence[ObservedRequest], before: Sequence[Sequence[tuple[str, Verdict | None]]], dead: Sequence[bool]
) -> Iterator[StoppedCheck]:
    """Checks that were killed by this stop, and those that a dead process had begun."""
    for request, known, died in zip(requests, before, dead, strict=True):
        for index, (name, verdict) in enumerate(request.read_checks()):
            was_over = index < len(known) and known[index][1] is not None
            if not was_over and (verdict is Verdict.KILLED or (died and verdict is None)):
                yield StoppedCheck(check_id=name, verdict=verdict)


def _wait_until_over(what: str, is_over: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + STOP_WAIT_S
    while not is_over():
        if time.monotonic() > ends_at:
            raise SandboxError(
                ErrorCode.TIMEOUT,
                f"{what} did not stop within {STOP_WAIT_S:g} s",
                hint="Look for a suspended `sandbox` process (state T in `ps`). Continue or end it, then repeat.",
            )
        time.sleep(_LOOK_S)


def _end_guests(services: Services, task_id: str) -> None:
    """Remove the guests that a dead process left, in the task and in its clean rooms."""
    with services.home.locked(task_id, _EDIT_WAIT_S):
        remove_orphans(services, task_id)
    labels = {INSTANCE_LABEL: services.home.instance_id, TASK_LABEL: task_id}
    listed = services.engine.list_containers(labels)
    living = list_live_nonces(services.home.liveness)  # after the list: a process that started since has no guest in it
    for guest in listed:
        if (owner := owner_of(guest.name)) is not None and owner not in living:
            services.engine.remove_container(guest.id)
