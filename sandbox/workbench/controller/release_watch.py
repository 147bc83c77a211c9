"""Releases that wait for a confirmation: confirm them, or switch them back in time, also those of other controllers.

The controller that promoted watches. When it has ended, or was killed, `gc` and the next controller that changes
something settle what is overdue, and watch what still has time for as long as they live (docs/adr/0112).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError, describe_briefly
from sandbox.models.releases import ReleaseState
from sandbox.store.release_folder import LOCK_WAIT_S, list_unsettled, open_releases
from sandbox.workbench.controller.services import Services

LOOK_S = 0.25
RETRY_S = 2.0
"""After a failure that is not another process."""
_log = logging.getLogger(__name__)


def settle_release(services: Services, repo_id: str, lock_wait_s: float = LOCK_WAIT_S) -> ReleaseState:
    """Confirm the pending release of a repository if its launcher did; switch it back if it is overdue."""
    place = services.home.releases(repo_id)
    if _is_gone(place) and not place.is_symlink():  # deleted meanwhile: to open them would create it again
        return ReleaseState(repo_id=repo_id, folder=place)
    with open_releases(services.home, repo_id, lock_wait_s) as releases:
        releases.settle()
        return releases.state


def wait_for_confirmation(
    services: Services, repo_id: str, wait_s: float | None = None, cancelled: Callable[[], bool] = lambda: False
) -> ReleaseState:
    """The state once no release is pending, or after `wait_s` seconds."""
    ends_at = None if wait_s is None else time.monotonic() + wait_s
    while True:
        is_last = cancelled() or (ends_at is not None and time.monotonic() >= ends_at)
        try:
            state = settle_release(services, repo_id)
        except SandboxError as error:
            if is_last or error.code is not ErrorCode.CONFLICT:  # another process changes them: look again
                raise
        else:
            if state.pending is None or is_last:
                return state
        time.sleep(LOOK_S)


def take_over_releases(services: Services) -> None:
    """Settle what is overdue, and watch what still has time. Does not raise: what cannot be settled is left to `gc`.

    A living promoter waits as well; each settles under the lock, so the second one finds it done. A lock that is held
    is not waited for: this is before the first change of each command.
    """
    for found in list_unsettled(services.home):
        if not found.is_due:
            watch_release(services, found.repo_id)
            continue
        try:
            settle_release(services, found.repo_id, 0)
        except (SandboxError, OSError) as error:
            if isinstance(error, SandboxError) and error.code is ErrorCode.CONFLICT:
                watch_release(services, found.repo_id)  # the other process may be killed before it settles it
            _log.info("the release of %s that waits was kept for now: %s", found.repo_id, describe_briefly(error))


class _ReleaseWatcher(threading.Thread):
    """Waits for one release. `place`: the directory of the releases."""

    def __init__(self, services: Services, repo_id: str) -> None:
        super().__init__(target=_wait_until_settled, args=(services, repo_id), name=f"release-{repo_id}", daemon=True)
        self.place = services.home.releases(repo_id)


def watch_release(services: Services, repo_id: str) -> None:
    """Settle in time, whatever the caller does. A controller that is killed meanwhile leaves it to the next one."""
    place = services.home.releases(repo_id)
    if not any(isinstance(other, _ReleaseWatcher) and other.place == place for other in threading.enumerate()):
        _ReleaseWatcher(services, repo_id).start()


def _wait_until_settled(services: Services, repo_id: str) -> None:
    """No failure ends it, for no release would be switched back after it; only the end of the home does."""
    before = ""
    while True:
        try:
            if _is_gone(services.home.root):
                return
            wait_for_confirmation(services, repo_id)
            return
        except Exception as error:  # noqa: BLE001 - the edge of a thread: a full disk, a lock, a link; it tries again
            text = describe_briefly(error)
            if text != before:
                _log.warning("the release of %s that waits cannot be settled: %s", repo_id, text)
            before = text
            time.sleep(RETRY_S)


def _is_gone(folder: Path) -> bool:
    """Raises: OSError if that cannot be seen; of `is_dir` it depends on the version of Python what it answers then."""
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    return False
