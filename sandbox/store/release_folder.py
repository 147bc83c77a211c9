"""Releases of a repository on disk: whole, read-only, and switched by one rename.

    releases/REPO/<tree>/            the artifacts
    releases/REPO/manifests/<tree>.json
    releases/REPO/current            link to the release in use; `previous`: to the one before
    releases/REPO/confirm/<tree>     created by the application's launcher
    releases/REPO/state.json         the names, the pending confirmation, the history, the switch that is under way

`state.json` first says which switch is intended, then `current` is renamed, then the state says that it is done. After
a kill the next caller looks where `current` leads: the switch happened or it did not, and the state follows. A launcher
that follows `current` finds the old release or the new one at any moment.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.models import Model
from sandbox.models.releases import (
    PendingConfirmation,
    ReleaseEntry,
    ReleaseEvent,
    ReleaseManifest,
    ReleaseState,
)
from sandbox.store.home import Home, read_json, sync_folder, validate_record, write_json

MAX_HISTORY = 200
LOCK_WAIT_S = 5.0
STAGING = ".staging-"
_CLOCK_SLACK = timedelta(minutes=1)
"""By which a clock may be corrected while a release waits."""

_CURRENT, _PREVIOUS, _STATE = "current", "previous", "state.json"
_CONFIRM, _MANIFESTS = "confirm", "manifests"


class _Switch(Model):
    """A change of `current` that is under way, and what the state will say after it."""

    release: str
    previous: str
    event: ReleaseEvent
    replaced: str
    pending: PendingConfirmation | None = None


class _StoredState(Model):
    current: str = ""
    previous: str = ""
    pending: PendingConfirmation | None = None
    switch: _Switch | None = None
    history: tuple[ReleaseEntry, ...] = ()


class Releases:
    """The releases of one repository. Get it from `open_releases`, which holds their lock."""

    def __init__(self, repo_id: str, folder: Path) -> None:
        self._repo_id = repo_id
        self.folder = folder
        self._state = self._recover(self._read())

    # --- what there is

    @property
    def state(self) -> ReleaseState:
        """The state, for callers."""
        found = self._state
        confirm = self.folder / _CONFIRM / found.pending.release if found.pending else None
        return ReleaseState(
            repo_id=self._repo_id,
            folder=self.folder,
            current=found.current,
            previous=found.previous,
            pending=found.pending,
            confirm=confirm,
            history=found.history,
        )

    def read_manifest(self, name: str) -> ReleaseManifest | None:
        """The manifest of a release; None if there is none."""
        document = read_json(self._manifest(name))
        return None if document is None else validate_record(ReleaseManifest, document, self._manifest(name))

    @property
    def is_confirmed(self) -> bool:
        """Whether the launcher created the file that confirms the pending release."""
        pending = self._state.pending
        return pending is not None and os.path.lexists(self.folder / _CONFIRM / pending.release)

    # --- steps

    def publish(self, staged: Path, manifest: ReleaseManifest) -> str:
        """Make a complete directory a release and return its name: the tree. A release of the same candidate with the
        same files is kept as it is; one of another candidate or build of this tree is replaced, unless it is in use.

        Raises: `conflict` when it is in use, or was before.
        """
        name, target = manifest.tree, self.folder / manifest.tree
        known = self.read_manifest(name) if target.is_dir() else None
        if known is not None and (known.key, known.files) == (manifest.key, manifest.files):
            return name
        if name in {self._state.current, self._state.previous}:
            raise SandboxError(
                ErrorCode.CONFLICT,
                f"Another release of tree {name[:12]} is in use",
                details="It was built with another image, policy or launch definition, or its build or "
                "[promote] gave other files.",
                hint="Commit a change, or roll back first.",
            )
        if target.exists():
            aside = self.folder / f"{STAGING}{secrets.token_hex(8)}"
            target.rename(aside)
            _remove(aside)
        _seal(staged)
        write_json(self._manifest(name), manifest.model_dump(mode="json"))
        staged.rename(target)
        sync_folder(self.folder)
        return name

    def promote(self, name: str, until: datetime) -> None:
        """Put a release in use until it is confirmed or `until` is over."""
        found = self._state
        pending = PendingConfirmation(release=name, previous=found.current, previous_before=found.previous, until=until)
        (self.folder / _CONFIRM / name).unlink(missing_ok=True)
        self._switch(_Switch(release=name, previous=found.current, event=ReleaseEvent.PROMOTED,
                             replaced=found.current, pending=pending))  # fmt: skip

    def settle(self, now: datetime | None = None) -> None:
        """Confirm the pending release if its launcher did; switch it back if it is overdue."""
        if self.is_confirmed:
            self.confirm()
        elif self.is_overdue(now):
            self.switch_back()

    def is_overdue(self, now: datetime | None = None) -> bool:
        """Whether a release waits for a confirmation that did not come in time."""
        return _is_overdue(self._state, now or datetime.now(UTC))

    def confirm(self) -> None:
        """Keep the pending release. No change without one."""
        pending = self._state.pending
        if pending is not None:
            entry = _entry(ReleaseEvent.CONFIRMED, pending.release, pending.previous)
            self._save(self._state.model_copy(update={"pending": None, "history": self._with(entry)}))

    def switch_back(self) -> None:
        """Put the release before the pending one in use again; without one before, none is in use."""
        pending = self._state.pending
        if pending is not None:
            self._switch(_Switch(release=pending.previous, previous=pending.previous_before,
                                 event=ReleaseEvent.SWITCHED_BACK, replaced=pending.release))  # fmt: skip

    def roll_back(self) -> None:
        """Exchange the release in use with the one before. Raises: `not_found` without one before."""
        found = self._state
        if not found.previous:
            raise SandboxError(ErrorCode.NOT_FOUND, f"There is no release of {self._repo_id} before the one in use")
        self._switch(_Switch(release=found.previous, previous=found.current, event=ReleaseEvent.ROLLED_BACK,
                             replaced=found.current))  # fmt: skip

    # --- the switch

    def _switch(self, switch: _Switch) -> None:
        self._save(self._state.model_copy(update={"switch": switch}))
        self._point(_CURRENT, switch.release)
        self._complete(switch)

    def _complete(self, switch: _Switch) -> None:
        self._point(_PREVIOUS, switch.previous)
        entry = _entry(switch.event, switch.release, switch.replaced)
        self._save(
            _StoredState(
                current=switch.release, previous=switch.previous, pending=switch.pending, history=self._with(entry)
            )
        )

    def _recover(self, found: _StoredState) -> _StoredState:
        """Complete a switch if its rename happened; else forget it."""
        self._state = found
        if found.switch is not None:
            if self._target(_CURRENT) == found.switch.release:
                self._complete(found.switch)
            else:
                self._save(found.model_copy(update={"switch": None}))
        return self._state

    def _point(self, link: str, name: str) -> None:
        """Let a link lead to a release, by one rename; '' removes it."""
        path = self.folder / link
        if name:
            beside = self.folder / f".{link}-{secrets.token_hex(8)}"
            beside.symlink_to(name)
            beside.replace(path)
        else:
            path.unlink(missing_ok=True)
        sync_folder(self.folder)

    def _target(self, link: str) -> str:
        try:
            return str((self.folder / link).readlink())
        except FileNotFoundError:
            return ""

    # --- the files

    def _manifest(self, name: str) -> Path:
        return self.folder / _MANIFESTS / f"{name}.json"

    def _with(self, entry: ReleaseEntry) -> tuple[ReleaseEntry, ...]:
        return (*self._state.history, entry)[-MAX_HISTORY:]

    def _read(self) -> _StoredState:
        path = self.folder / _STATE
        document = read_json(path)
        return _StoredState() if document is None else validate_record(_StoredState, document, path)

    def _save(self, state: _StoredState) -> None:
        write_json(self.folder / _STATE, state.model_dump(mode="json"))
        self._state = state


@contextmanager
def open_releases(home: Home, repo_id: str, lock_wait_s: float = LOCK_WAIT_S) -> Iterator[Releases]:
    """The releases of a repository, under their lock. Raises: `conflict` while another process changes them;
    `unsafe_path` when a directory of theirs is a link, or belongs to another user.
    """
    with home.locked(f"release-{repo_id}", lock_wait_s):
        folder = _prepare_folder(home, repo_id)
        if any(folder.glob(f"{STAGING}*")):
            _remove_leftovers(home, repo_id)
        yield Releases(repo_id, folder)


@contextmanager
def staged_release(home: Home, repo_id: str) -> Iterator[Path]:
    """An empty directory for the files of a release; removed at the end unless it was published.

    To copy them takes long, so it is done before `open_releases`, under a lock of its own. Raises: `conflict` while
    another process stages a release; `unsafe_path` as `open_releases`.
    """
    with home.locked(_name_staging_lock(repo_id), LOCK_WAIT_S):
        staged = _prepare_folder(home, repo_id) / f"{STAGING}{secrets.token_hex(8)}"
        staged.mkdir(mode=0o700)
        try:
            yield staged
        finally:
            if staged.exists():
                _remove(staged)


def _name_staging_lock(repo_id: str) -> str:
    return f"releasing-{repo_id}"  # no name of a lock of releases begins so, whatever the repository's id is


def _prepare_folder(home: Home, repo_id: str) -> Path:
    folder = home.releases(repo_id)
    for path in (folder.parent, folder, folder / _CONFIRM, folder / _MANIFESTS):
        path.mkdir(mode=0o700, exist_ok=True)
        _require_own_directory(path)
    return folder


def _remove_leftovers(home: Home, repo_id: str) -> None:
    """What a killed promoter staged. None is touched while one is alive; it never waits for us under its lock."""
    with suppress(SandboxError), home.locked(_name_staging_lock(repo_id), 0):
        for leftover in home.releases(repo_id).glob(f"{STAGING}*"):
            _remove(leftover)


@dataclass(frozen=True)
class UnsettledRelease:
    """A release that waits for its confirmation, perhaps without a controller that waits for it. `is_due`: it is
    overdue, a kill may have interrupted its switch, or its state cannot be read.
    """

    repo_id: str
    is_due: bool


def list_unsettled(home: Home) -> list[UnsettledRelease]:
    """As of now, without any lock, for each command asks this: look again under `open_releases`."""
    return [found for name in list_release_owners(home) if (found := _find_unsettled(home, name))]


def list_release_owners(home: Home) -> tuple[str, ...]:
    """The repositories with releases."""
    folder = home.releases("x").parent
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir())) if folder.is_dir() else ()


def _find_unsettled(home: Home, repo_id: str) -> UnsettledRelease | None:
    folder = home.releases(repo_id)
    try:
        document = read_json(folder / _STATE)
        state = _StoredState() if document is None else validate_record(_StoredState, document, folder / _STATE)
    except (SandboxError, OSError):
        return UnsettledRelease(repo_id, is_due=True)
    pending = state.pending
    if pending is None:
        return UnsettledRelease(repo_id, is_due=True) if state.switch else None
    return UnsettledRelease(repo_id, is_due=state.switch is not None or _is_overdue(state, datetime.now(UTC)))


def _is_overdue(state: _StoredState, now: datetime) -> bool:
    """Also if the clock was set back to before the promotion: how much time is left is unknown then, and it could be
    days. Safe is the release before, which was confirmed.
    """
    if state.pending is None:
        return False
    promoted_at = state.history[-1].at if state.history else now
    return now >= state.pending.until or now < promoted_at - _CLOCK_SLACK


def find_releases(home: Home, repo_id: str) -> Path | None:
    """The directory of a repository's releases; None if none was ever put in use."""
    folder = home.releases(repo_id)
    return folder if (folder / _STATE).exists() else None


def write_release_file(root: Path, path: str, chunks: Iterable[bytes], *, executable: bool) -> None:
    """Write one new file of a release that is not published yet, and sync it. `path`: checked by the caller."""
    target = root / path
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as stream:
        for chunk in chunks:
            stream.write(chunk)
        os.fchmod(fd, 0o555 if executable else 0o444)
        stream.flush()
        os.fsync(fd)


def _require_own_directory(path: Path) -> None:
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise SandboxError(
            ErrorCode.UNSAFE_PATH,
            f"{path} is no directory of this user",
            hint="Releases are never written through a link. Remove it, or use another home.",
        )


def _seal(folder: Path) -> None:
    """Sync all directories and take the right to write from them."""
    for parent, _, _ in os.walk(folder, topdown=False):
        sync_folder(Path(parent))
        Path(parent).chmod(0o555)


def _remove(folder: Path) -> None:
    for parent, _, _ in os.walk(folder):
        Path(parent).chmod(0o700)
    shutil.rmtree(folder)


def _entry(event: ReleaseEvent, release: str, previous: str) -> ReleaseEntry:
    return ReleaseEntry(at=datetime.now(UTC), event=event, release=release, previous=previous)
