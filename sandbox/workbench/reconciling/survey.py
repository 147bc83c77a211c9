"""What finders look at and what they tell: a leftover, and how to do away with it."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import TASK_ID_PATTERN, Leftover, Tidying
from sandbox.store.liveness import alive
from sandbox.store.lockfile import remove_abandoned
from sandbox.workbench.controller.services import Parts

NOTE_LENGTH = 500
_SAYS = {ErrorCode.CONFLICT: Tidying.BUSY, ErrorCode.DIRTY_WORKSPACE: Tidying.KEPT}
"""What an error of a remedy means; all others are failures."""

Remedy = Callable[[], str | None]
"""Does it, and returns a remark; None when it was none after all, seen under the locks."""


@dataclass(frozen=True)
class Finding:
    """One leftover. `locks` are held while `remedy` runs; without a remedy it is named and stays.

    `forecast`: what a dry run does instead of the remedy, with the same answers; by default nothing.
    """

    kind: str
    name: str
    remedy: Remedy | None = None
    action: Tidying = Tidying.REMOVED
    locks: tuple[str, ...] = ()
    note: str = ""
    forecast: Remedy | None = None


@dataclass
class Survey:
    """One reconciliation. `guests_unknown`: why nobody can tell which guests live; what they may use stays then."""

    parts: Parts
    dry_run: bool = False
    guests_unknown: str = ""
    done: list[Leftover] = field(default_factory=list)

    def is_dead(self, nonce: str | None) -> bool:
        """Whether the controller with this nonce is gone. Ask after listing what it may own, never before."""
        return nonce not in alive(self.parts.home.presence)

    def is_alone(self) -> bool:
        """Whether no other controller is at work. Ask after listing."""
        return alive(self.parts.home.presence) <= {self.parts.presence.nonce}

    def settle(self, finder: Finder) -> None:
        """Do what is to be done about each finding, or say what would be. One that cannot be looked for is told."""
        try:
            for finding in finder(self):
                outcome = self._settled(finding)
                if outcome is not None:
                    self.done.append(outcome)
        except SandboxError as error:
            self.done.append(_blind(finder, _why(error)))
        except OSError as error:
            self.done.append(_blind(finder, f"{error.strerror}: {error.filename}"))

    def _settled(self, finding: Finding) -> Leftover | None:
        def told(action: Tidying, note: str) -> Leftover:
            return Leftover(kind=finding.kind, name=finding.name, action=action, note=note)

        if finding.remedy is None:
            return told(Tidying.KEPT, finding.note)
        try:
            note = self._cured(finding)
        except SandboxError as error:
            return told(_SAYS.get(error.code, Tidying.FAILED), _why(error))
        except OSError as error:
            return told(Tidying.FAILED, error.strerror or str(error))
        return None if note is None else told(finding.action, note or finding.note)

    def _cured(self, finding: Finding) -> str | None:
        home = self.parts.home
        try:
            with ExitStack() as held:
                for name in finding.locks:
                    held.enter_context(home.locked(name, timeout_s=0.0))
                remedy = finding.forecast if self.dry_run else finding.remedy
                return "" if remedy is None else remedy()
        finally:
            for name in finding.locks:  # we made its file again
                if is_task_id(name) and not home.task(name).exists():
                    remove_abandoned(home.lock(name))


Finder = Callable[[Survey], Iterator[Finding]]


def _why(error: SandboxError) -> str:
    return f"{error.brief}: {error.details}".removesuffix(": ")[:NOTE_LENGTH]


def _blind(finder: Finder, why: str) -> Leftover:
    name = getattr(finder, "__name__", "").replace("_", " ")
    return Leftover(kind="look", name=name, action=Tidying.FAILED, note=why[:NOTE_LENGTH])


def is_task_id(name: str) -> bool:
    """Whether a name can be a task's."""
    return re.fullmatch(TASK_ID_PATTERN, name) is not None


def matching(folder: Path, *patterns: str) -> list[Path]:
    """Names below a directory, hidden ones too. What vanishes meanwhile is no error, as it is for `Path.glob`."""
    found = (name for p in patterns for name in glob.glob(p, root_dir=folder, recursive=True, include_hidden=True))  # noqa: PTH207 - see above
    return sorted(folder / name for name in found)


def children(folder: Path) -> list[Path]:
    """Entries of a directory by name; none of one that is not there."""
    return sorted(folder.iterdir()) if folder.is_dir() else []
