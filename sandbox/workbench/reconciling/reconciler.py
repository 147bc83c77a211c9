"""One reconciliation: runs finders, and under locks the remedy of each leftover that they find."""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import field
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.models import TASK_ID_PATTERN, Leftover, LeftoverAction
from sandbox.store.liveness import list_live_nonces
from sandbox.store.lockfile import remove_abandoned
from sandbox.workbench.controller.services import Services

NOTE_LENGTH = 500
_OLD_S = 60.0
_START_TIME = 19  # among the fields of proc(5) after the name of the program
_ACTION_OF_ERROR = {ErrorCode.CONFLICT: LeftoverAction.BUSY, ErrorCode.DIRTY_WORKSPACE: LeftoverAction.KEPT}
"""The action for an error of a remedy; all other errors are `FAILED`."""

Remedy = Callable[[], str | None]
"""Handles the leftover. Returns a note (empty: `Finding.note`), or None if under the locks it was already gone."""


@dataclass(frozen=True)
class Finding:
    """One leftover. `locks` are held while `remedy` runs; a leftover without a remedy is reported and kept.

    `forecast`: called by a dry run instead of the remedy, with the same return values; None: not called. `bytes`: about
    what the remedy frees.
    """

    kind: str
    name: str
    remedy: Remedy | None = None
    action: LeftoverAction = LeftoverAction.REMOVED
    locks: tuple[str, ...] = ()
    note: str = ""
    forecast: Remedy | None = None
    bytes: int = 0


@dataclass
class Reconciler:
    """One reconciliation. `guests_unknown`: why it is unknown which guests run; then all they may use is kept."""

    services: Services
    dry_run: bool = False
    guests_unknown: str = ""
    done: list[Leftover] = field(default_factory=list)

    def is_dead(self, nonce: str | None) -> bool:
        """Whether the controller with this nonce is gone. Call it after listing what it may own, never before."""
        return nonce not in list_live_nonces(self.services.home.liveness)

    def is_alone(self) -> bool:
        """Whether no other controller is alive. Call it after listing."""
        return list_live_nonces(self.services.home.liveness) <= {self.services.presence.nonce}

    def run_finder(self, finder: Finder) -> None:
        """Handle each finding of a finder, or report what would be done. An error of the finder is reported too."""
        try:
            for finding in finder(self):
                outcome = self._handle_finding(finding)
                if outcome is not None:
                    self.done.append(outcome)
        except SandboxError as error:
            self.done.append(_report_failed_finder(finder, _describe_error(error)))
        except OSError as error:
            self.done.append(_report_failed_finder(finder, f"{error.strerror}: {error.filename}"))

    def _handle_finding(self, finding: Finding) -> Leftover | None:
        def leftover(action: LeftoverAction, note: str) -> Leftover:
            freed = finding.bytes if action is finding.action and finding.remedy else 0
            return Leftover(kind=finding.kind, name=finding.name, action=action, note=note, bytes=freed)

        if finding.remedy is None:
            return leftover(LeftoverAction.KEPT, finding.note)
        try:
            note = self._run_remedy(finding)
        except SandboxError as error:
            return leftover(_ACTION_OF_ERROR.get(error.code, LeftoverAction.FAILED), _describe_error(error))
        except OSError as error:
            return leftover(LeftoverAction.FAILED, error.strerror or str(error))
        return None if note is None else leftover(finding.action, note or finding.note)

    def _run_remedy(self, finding: Finding) -> str | None:
        home = self.services.home
        try:
            with ExitStack() as held:
                for name in finding.locks:
                    held.enter_context(home.locked(name, timeout_s=0.0))
                remedy = finding.forecast if self.dry_run else finding.remedy
                return "" if remedy is None else remedy()
        finally:
            for name in finding.locks:  # taking the lock created its file again
                if is_task_id(name) and not home.task(name).exists():
                    remove_abandoned(home.lock_path(name))


Finder = Callable[[Reconciler], Iterator[Finding]]


def _describe_error(error: SandboxError) -> str:
    return f"{error.brief}: {error.details}".removesuffix(": ")[:NOTE_LENGTH]


def _report_failed_finder(finder: Finder, why: str) -> Leftover:
    name = getattr(finder, "__name__", "").removeprefix("find_").replace("_", " ")
    return Leftover(kind="look", name=name, action=LeftoverAction.FAILED, note=why[:NOTE_LENGTH])


def is_task_id(name: str) -> bool:
    """Whether a name has the form of a task id."""
    return re.fullmatch(TASK_ID_PATTERN, name) is not None


def is_old(path: Path) -> bool:
    """Whether this file or directory last changed more than a minute ago."""
    return _changed_before(path, time.time() - _OLD_S)


def is_left(path: Path) -> bool:
    """Whether no thread of this process can be making this file or directory: it is older than the process, or than a
    minute. The caller knows that no other controller is alive.
    """
    return _changed_before(path, max(_find_process_start(), time.time() - _OLD_S))


def _changed_before(path: Path, moment: float) -> bool:
    try:
        return path.stat().st_mtime < moment
    except FileNotFoundError:
        return False


def _find_process_start() -> float:
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[_START_TIME])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s


def find_matching(folder: Path, *patterns: str) -> list[Path]:
    """Names below a directory, also hidden ones. Unlike with `Path.glob`, a file that vanishes is not an error."""
    found = (name for p in patterns for name in glob.glob(p, root_dir=folder, recursive=True, include_hidden=True))  # noqa: PTH207 - see above
    return sorted(folder / name for name in found)


def list_folder(folder: Path) -> list[Path]:
    """Entries of a directory, sorted by name; empty if the directory does not exist."""
    return sorted(folder.iterdir()) if folder.is_dir() else []
