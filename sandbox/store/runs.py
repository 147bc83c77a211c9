"""Past runs of checks: their records and logs. `records.save_run` and `checks.output` write them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.models import CheckRun
from sandbox.models.words import RUN_ID_PATTERN
from sandbox.store.home import Home, modified_ns, newest_files, read_record

if TYPE_CHECKING:
    from sandbox.models import LogName
    from sandbox.store import background_runs, liveness
else:  # read when a run, or its record, is not found
    background_runs = LazyModule("sandbox.store.background_runs")
    liveness = LazyModule("sandbox.store.liveness")

LAUNCH_FILE = "launch-"
"""Beginning of the names of files that probes left, before the run's id: a profile chooses how they end, and the guest
what is in them, so none may look like a record or a log.
"""

_MAX_RUNS_SHOWN = 5
_MAX_CHECK_RUNS_SHOWN = 40  # of one request
_log = logging.getLogger(__name__)


def list_runs(home: Home, owner_id: str, limit: int) -> tuple[CheckRun, ...]:
    """The `limit` runs that ended last, newest first. A damaged record is skipped, with a warning.

    The caller has checked that the task or repository exists.
    """
    found = [run for path in newest_files(home.logs(owner_id))[:limit] if (run := read_run(path)) is not None]
    return tuple(sorted(found, key=lambda run: (run.started_at, run.run_id), reverse=True))


def find_newest_run_id(home: Home, owner_id: str) -> str | None:
    """The id of the run that began last, also while it runs, or if it was killed; None if none has begun."""
    begun = _list_begun(home.logs(owner_id))  # before the records: a run that ends meanwhile is among these
    records = newest_files(home.logs(owner_id))
    recorded = {path.stem for path in records}
    found = [(started, run_id) for run_id, started in begun.items() if run_id not in recorded]
    for path in records:
        if found and modified_ns(path) < max(found)[0]:
            break  # it ended before that one began, and so did the others
        if (run := read_run(path)) is not None:
            found.append((int(run.started_at.timestamp() * 1e9), run.run_id))
    return max(found)[1] if found else None


def _list_begun(folder: Path) -> dict[str, int]:
    """When each run with a log began, about: its streams are made then, and often one of them stays empty."""
    found: dict[str, int] = {}
    for kind in ("stdout", "stderr"):
        for path in folder.glob(f"run-*.{kind}"):
            if is_run_id(path.stem) and (changed := modified_ns(path)):  # 0: removed meanwhile
                found[path.stem] = min(found.get(path.stem, changed), changed)
    return found


def find_run(home: Home, owner_id: str, run_id: str) -> CheckRun:
    """Raises: `not_found` with the newest runs, also for an invalid id; `internal` for a damaged record."""
    known = {path.stem for path in home.logs(owner_id).glob("run-*.json")}
    is_known = is_run_id(run_id) and run_id in known
    run = find_run_record(home, owner_id, run_id) if is_known else None
    if run is None:
        raise run_not_found_error(home, owner_id, run_id)
    return run


def run_not_found_error(home: Home, owner_id: str, run_id: str) -> SandboxError:
    """`not_found` with the newest runs of a task or repository."""
    newest = [f"{run.run_id}  {run.check_id} {run.verdict.value}" for run in list_runs(home, owner_id, _MAX_RUNS_SHOWN)]
    return SandboxError(
        ErrorCode.NOT_FOUND,
        f"{owner_id} has no run '{run_id[:100]}'",
        details="\n".join(["The newest runs:", *newest] if newest else ["No check of it has run yet."]),
        hint=f"`sandbox check runs {owner_id}` lists all; `sandbox check log` without an id shows the newest one.",
    )


def is_run_id(text: str) -> bool:
    """Whether the text has the form of a run id."""
    return re.fullmatch(RUN_ID_PATTERN, text) is not None


def find_owner(home: Home, run_id: str) -> str:
    """The task or repository of a run, also while it runs. Raises: `not_found`."""
    for folder in home.all_logs():
        if has_log(home, folder.name, run_id):
            return folder.name
    raise no_such_run_error(home, run_id)


def no_such_run_error(home: Home, run_id: str) -> SandboxError:
    """`not_found` for a run that no task and no repository has. The id of a background run may name no run of a check:
    then with the runs of its checks.
    """
    request = background_runs.read_background_run(home, run_id) if is_run_id(run_id) else None
    if request is not None:
        found = request.list_check_runs()
        lines = [f"{run}  {check}" for check, run in found[:_MAX_CHECK_RUNS_SHOWN]]
        return SandboxError(
            ErrorCode.NOT_FOUND,
            f"{run_id} is a run of `{request.operation}` in the background, and not of one check",
            details="\n".join(["The runs of its checks:", *lines] if lines else ["No check of it has a run."]),
            hint=f"Give the id of the run of a check. `sandbox check wait {run_id}` has the result of all.",
        )
    return SandboxError(
        ErrorCode.NOT_FOUND,
        f"There is no run '{run_id[:100]}'",
        hint="The result of a check names its run; `sandbox check runs TASK` lists all runs of a task.",
    )


def has_log(home: Home, owner_id: str, run_id: str) -> bool:
    """Whether a run belongs to this task or repository, also while it runs."""
    folder = home.logs(owner_id)
    return is_run_id(run_id) and any((folder / f"{run_id}.{kind}").exists() for kind in ("json", "stdout", "stderr"))


def find_run_record(home: Home, owner_id: str, run_id: str) -> CheckRun | None:
    """The record of a run that `find_owner` found; None while it runs, or if it was killed."""
    return read_record(home.logs(owner_id) / f"{run_id}.json", CheckRun)


def look_at_run(home: Home, owner_id: str, run_id: str) -> tuple[CheckRun | None, bool]:
    """The record of a run that `find_owner` found, and whether the run is over: without a record its process was
    killed, or ended without saving one.
    """
    record = find_run_record(home, owner_id, run_id)
    if record is None and liveness.owner_of(run_id) not in liveness.list_live_nonces(home.liveness):
        return find_run_record(home, owner_id, run_id), True  # again: it may have ended just before its controller
    return record, record is not None


def describe_without_result(run_id: str) -> str:
    """What is said of a run that has no record and no live process: it was killed, or the disk was full."""
    return f"{run_id} has no result: the process that ran it was killed, or ended without saving one"


def find_ended_run(home: Home, owner_id: str, run_id: str, *, without: str = "", hint: str = "") -> CheckRun:
    """The record of a run that `find_owner` found. `without`: what it lacks until it has ended. `hint`: for that time.

    Raises: `conflict` while it runs; `not_found` if the process that ran it has ended without a record.
    """
    record, is_over = look_at_run(home, owner_id, run_id)
    if record is None and is_over:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            describe_without_result(run_id),
            hint=f"Run the check again. `sandbox check log {run_id}` prints what it wrote until then.",
        )
    if record is None:
        raise SandboxError(
            ErrorCode.CONFLICT,
            f"{run_id} has not ended{without}",
            hint=hint or f"`sandbox check wait {run_id}` waits for it.",
        )
    return record


def read_run(path: Path) -> CheckRun | None:
    """The record in this file; None if there is none, and with a warning if it is damaged."""
    try:
        return read_record(path, CheckRun)
    except SandboxError:
        _log.warning("skipped an unreadable record of a run: %s", path)
        return None


def log_path(home: Home, owner_id: str, run_id: str, stream: LogName) -> Path:
    """Path of the stored part of one output stream of a run."""
    return home.logs(owner_id) / f"{run_id}.{stream}"


def read_log(home: Home, owner_id: str, run_id: str, stream: LogName) -> bytes:
    """The stored bytes of one stream of a run that `find_owner` found. Raises: `not_found`."""
    with open_log(home, owner_id, run_id, stream) as file:
        return file.read()


@contextmanager
def open_log(home: Home, owner_id: str, run_id: str, stream: LogName) -> Iterator[IO[bytes]]:
    """Open the stored part of one stream for reading. Raises: `not_found`."""
    try:
        file = log_path(home, owner_id, run_id, stream).open("rb")
    except FileNotFoundError as error:
        raise SandboxError(
            ErrorCode.NOT_FOUND, f"The log of {run_id} no longer exists", details=f"{run_id}.{stream}"
        ) from error
    with file:
        yield file
