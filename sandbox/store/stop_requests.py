"""Requests that run checks of a task or build layers, and stop requests of other processes for them.

Theory. A request that runs checks of a task has a file `<task>.<nonce>` and holds its lock; one that builds layers of a
repository has a digest of the repository's id there, for that may contain dots. It appends a line when a check begins
or ends. Another process that wants it to stop creates `<task>.<nonce>.stop` beside it and waits for the
lock. A stop file names one request, so an old one cannot stop a new request. Files of dead processes are recognised by
their free lock, and are removed.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.lazy_dataclass import dataclass
from sandbox.models import TASK_ID_PATTERN, CheckId, Verdict
from sandbox.store.lockfile import create_locked, is_abandoned, remove_abandoned

_STOP_SUFFIX = ".stop"


@dataclass(frozen=True)
class ActiveRequest:
    """A request of this process, while it runs checks."""

    path: Path
    _fd: int

    def is_stop_requested(self) -> bool:
        """Whether another process asked this request to stop."""
        return _stop_path(self.path).exists()

    def read_stop_reason(self) -> str:
        """Why another process asked this request to stop; empty if it gave no reason, or none asked."""
        try:
            return _stop_path(self.path).read_text("utf-8")
        except OSError:
            return ""

    def note_run(self, run_id: str, check_id: CheckId) -> None:
        """Note the id of the run of a check that begins."""
        self._append_line(f"{run_id} {check_id}")  # other versions skip it: the second word is no verdict

    def note_begin(self, check_id: CheckId) -> None:
        """Note that a check begins, before its guest is created."""
        self._append_line(check_id)

    def note_end(self, check_id: CheckId, verdict: Verdict) -> None:
        """Note that a check's result was recorded."""
        self._append_line(f"{check_id} {verdict.value}")

    def _append_line(self, line: str) -> None:
        with suppress(OSError):  # a full disk: a missing note for other processes is no reason to fail
            os.write(self._fd, f"{line}\n".encode())


@contextmanager
def register_request(folder: Path, owner_id: str, run_id: str | None = None) -> Iterator[ActiveRequest]:
    """Let other processes see and stop this request while it runs checks of a task, or builds layers of a repository.

    `run_id`: the request's public name, if it has one. Raises: OSError if the home cannot be written.
    """
    path = request_path(folder, owner_id, run_id or secrets.token_hex(8))
    held, beside = create_locked(path)
    try:
        beside.rename(path)
        yield ActiveRequest(path, held)
    finally:
        for ours in (path, beside, _stop_path(path)):
            with suppress(OSError):
                ours.unlink()
        os.close(held)


@dataclass(frozen=True)
class ObservedRequest:
    """A request found in the folder, of any process. Its file stays readable after it was unlinked."""

    path: Path
    _fd: int

    def ask_to_stop(self, reason: str = "") -> None:
        """Create the stop file, with the reason. Calling it twice is the same as once."""
        path = _stop_path(self.path)
        with suppress(FileExistsError):
            path.touch(exist_ok=False)
            with suppress(OSError):  # on a full disk: the file stops it, also without a reason
                path.write_text(reason, encoding="utf-8")

    def is_over(self) -> bool:
        """Whether the request has ended or its process has died."""
        return os.fstat(self._fd).st_nlink == 0 or is_abandoned(self.path)

    def read_checks(self) -> list[tuple[CheckId, Verdict | None]]:
        """The checks that began, with the verdicts of those that ended. A check may run several times: of those that
        run at the same time, the first is taken for the one that ended.
        """
        began: list[tuple[CheckId, Verdict | None]] = []
        for line in os.pread(self._fd, 2**20, 0).decode().splitlines():
            name, *verdict = line.split(" ")
            if not verdict:
                began.append((name, None))
            elif verdict[0] in set(Verdict) and (name, None) in began:
                began[began.index((name, None))] = (name, Verdict(verdict[0]))
        return began

    def read_running(self) -> list[CheckId]:
        """The checks that began and have not ended."""
        return [name for name, verdict in self.read_checks() if verdict is None]

    def read_runs(self) -> dict[str, CheckId]:
        """The checks that began, by the ids of their runs."""
        words = [line.split(" ") for line in os.pread(self._fd, 2**20, 0).decode().splitlines()]
        return {line[0]: line[1] for line in words if len(line) == 2 and line[0].startswith("run-")}

    @property
    def run_id(self) -> str | None:
        """The id of the background run; None for a request without one."""
        name = self.path.name.partition(".")[2]
        return name if name.startswith("run-") else None

    def clean_up(self) -> bool:
        """Remove the stop file, and the request file if its process died. Returns whether it had died."""
        _stop_path(self.path).unlink(missing_ok=True)
        return remove_abandoned(self.path)


def request_path(folder: Path, owner_id: str, name: str) -> Path:
    """The file of one request. It exists and is locked while its process runs it."""
    return folder / f"{_name_owner(owner_id)}.{name}"


def _name_owner(owner_id: str) -> str:
    if re.fullmatch(TASK_ID_PATTERN, owner_id):
        return owner_id
    return f"repository-{hashlib.sha256(owner_id.encode()).hexdigest()[:32]}"


def list_run_ids(folder: Path, owner_id: str) -> list[str]:
    """The run ids of the background requests of a task or repository, of live and dead processes."""
    found = (path.name.partition(".")[2] for path in _list_files(folder, f"{_name_owner(owner_id)}.run-"))
    return sorted(name for name in found if not name.endswith(_STOP_SUFFIX))


def _list_files(folder: Path, beginning: str) -> list[Path]:
    """Sorted. No pattern: pathlib compiles each new one, which takes longer than closing a task's files."""
    try:
        return sorted(folder / name for name in os.listdir(folder) if name.startswith(beginning))  # noqa: PTH208 - names
    except FileNotFoundError:
        return []


def is_running(folder: Path, owner_id: str, run_id: str) -> bool:
    """Whether the process that runs the request with this run id is alive."""
    path = request_path(folder, owner_id, run_id)
    return path.exists() and not is_abandoned(path)


@contextmanager
def open_requests(folder: Path, owner_id: str, run_id: str | None = None) -> Iterator[list[ObservedRequest]]:
    """The requests of a task or repository, or the one with this run id, of live and dead processes. Removes stop files
    without a request.
    """
    found: list[ObservedRequest] = []
    wanted = None if run_id is None else request_path(folder, owner_id, run_id).name
    try:
        for path in _list_files(folder, f"{_name_owner(owner_id)}."):
            if wanted is not None and path.name != wanted:
                continue
            if path.suffix == _STOP_SUFFIX:
                if not path.with_suffix("").exists():
                    path.unlink(missing_ok=True)
                continue
            with suppress(FileNotFoundError):
                found.append(ObservedRequest(path, os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)))
        yield found
    finally:
        for each in found:
            os.close(each._fd)


def _stop_path(path: Path) -> Path:
    return path.with_name(path.name + _STOP_SUFFIX)


def read_run_names(folder: Path, task_id: str) -> dict[str, CheckId]:
    """The checks that began in requests on a task which are not over, by the ids of their runs."""
    with open_requests(folder, task_id) as requests:
        living = [request for request in requests if not request.is_over()]
        return {run: check for request in living for run, check in request.read_runs().items()}


def has_request(folder: Path, task_id: str) -> bool:
    """Whether any process runs checks of a task."""
    with open_requests(folder, task_id) as requests:
        return any(not request.is_over() for request in requests)


def list_running_checks(folder: Path, task_id: str) -> tuple[CheckId, ...]:
    """The checks of a task that run now, in any process, in clean rooms too."""
    with open_requests(folder, task_id) as requests:
        running = [check for request in requests if not request.is_over() for check in request.read_running()]
    return tuple(dict.fromkeys(running))
