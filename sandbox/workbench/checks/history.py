"""Use-cases on past runs: list them, and read their output."""

from __future__ import annotations

import base64
import re

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CheckRun, LogName, RunLog
from sandbox.store import runs
from sandbox.store.home import Home
from sandbox.store.records import find_repository, find_task, not_found_error
from sandbox.store.runs import is_run_id
from sandbox.text import DisplayDecoder

_PIECE = 1 << 16
_LOG_NAME = re.compile("stdout|stderr|service-[a-z][a-z0-9-]*")


def list_runs(home: Home, owner_id: str, limit: int) -> tuple[CheckRun, ...]:
    """Runs of a task (also a closed one) or of a repository (`run`), newest first.

    Raises: `not_found`, `invalid_input`.
    """
    _require_owner(home, owner_id)
    if limit < 1:
        raise SandboxError(ErrorCode.INVALID_INPUT, "The number of runs to list must be at least 1")
    return runs.list_runs(home, owner_id, limit)


def find_run_id(home: Home, owner_id: str, run_id: str | None) -> str:
    """The id of a run of a task or repository; without `run_id`, of the run that began last, also if it has no result.
    `owner_id` may be the id of a run.

    Raises: `not_found`, `invalid_input`.
    """
    if run_id is None:
        return owner_id if is_run_id(owner_id) else _find_newest(home, owner_id)
    _require_owner(home, owner_id)
    if not runs.has_log(home, owner_id, run_id):
        raise runs.run_not_found_error(home, owner_id, run_id)
    return run_id


def read_run(home: Home, run_id: str) -> CheckRun:
    """The record of a run. Raises: as `runs.find_owner` and `runs.find_ended_run`."""
    return runs.find_ended_run(home, runs.find_owner(home, run_id), run_id)


def read_log(home: Home, owner_id: str, run_id: str | None, stream: LogName, *, raw: bool) -> RunLog:
    """One stream of a run, or the output of a service as `service-NAME`; without `run_id`, of the newest run. Also
    while it runs, and if the process that ran it was killed. `owner_id` may be the id of a run.

    Raises: `not_found`, `invalid_input`.
    """
    if not _LOG_NAME.fullmatch(stream):
        raise SandboxError(ErrorCode.INVALID_INPUT, f"A run has no stream {stream!r}: use stdout or stderr")
    run_id = find_run_id(home, owner_id, run_id)
    owner_id = runs.find_owner(home, run_id) if is_run_id(owner_id) else owner_id
    run = runs.find_run_record(home, owner_id, run_id)  # before the log: if there is a record, the log is complete
    total, limit = measure_log(run, stream) if run is not None else (None, 0)
    content = runs.read_log(home, owner_id, run_id, stream)
    return RunLog(
        run_id=run_id,
        check_id=None if run is None else run.check_id,
        stream=stream,
        content=base64.b64encode(content).decode() if raw else _make_safe(content),
        encoding="base64" if raw else "utf-8",
        total_bytes=len(content) if total is None else total,
        truncated=total is not None and total > limit,
        finished=run is not None,
    )


def measure_log(run: CheckRun, stream: LogName) -> tuple[int, int]:
    """How many bytes were written to a stream of a run, and how many are kept at most."""
    if stream in {"stdout", "stderr"}:
        return run.stdout_bytes if stream == "stdout" else run.stderr_bytes, run.usage.limits.output_bytes
    for service in run.services:
        if stream == f"service-{service.name}":
            return service.output_bytes, service.limits.output_bytes
    raise not_found_error(
        "service", stream.removeprefix("service-"), [s.name for s in run.services], "These ran beside the check."
    )


def _make_safe(content: bytes) -> str:
    """Convert in pieces: a log full of escape sequences would need many times its size in memory."""
    shower = DisplayDecoder()
    pieces = [shower.feed(content[at : at + _PIECE]) for at in range(0, len(content), _PIECE)]
    return "".join([*pieces, shower.finish()])


def _find_newest(home: Home, owner_id: str) -> str:
    """The id of the run that began last, whether it has ended or not."""
    _require_owner(home, owner_id)
    newest = runs.find_newest_run_id(home, owner_id)
    if newest is None:
        raise SandboxError(
            ErrorCode.NOT_FOUND, f"No check of {owner_id} has run yet", hint=f"See: sandbox check list {owner_id}"
        )
    return newest


def _require_owner(home: Home, owner_id: str) -> None:
    """Require the id of a known task or repository, so that it is never a path. Raises: `not_found`."""
    if owner_id.startswith("task-"):
        find_task(home, owner_id, allow_closed=True)
        return
    try:
        find_repository(home, owner_id)
    except SandboxError as error:
        if owner_id.startswith("run-"):
            raise runs.no_such_run_error(home, owner_id) from error
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"There is no task, run or repository '{owner_id[:100]}'",
            details=error.details,
            hint="`sandbox task list` and `sandbox repo list` show what has runs; `sandbox check runs TASK` lists all",
        ) from error
