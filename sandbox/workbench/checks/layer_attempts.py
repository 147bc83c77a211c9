"""One attempt at a time to fetch and install the packages of a layer, and none again shortly after a failure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.failed_fetches import FailedFetch, find_failed_fetch, forget_failed_fetch, save_failed_fetch
from sandbox.store.home import Home
from sandbox.workbench.checks.callbacks import Watch

FETCH_FAILURES = frozenset({ErrorCode.NETWORK_ERROR, ErrorCode.EGRESS_REFUSED, ErrorCode.TIMEOUT})
"""What the network or a registry did: checks can run without the packages, and a later attempt may succeed."""

STOPPED = "stopped"
"""The `reason` of the error of an attempt that its caller stopped."""

OTHER_HASH = "other_hash"
"""The `reason` of the error of an archive that differs from the lock file's: no other layer stands in for it."""

_WAIT_S = 1800.0  # a fetch and an install at their deadlines take 1,500 s
_LOOK_S = 0.25


@contextmanager
def attempt(home: Home, request: str, watch: Watch, *, retry: bool) -> Iterator[None]:
    """Build the layer of a request in the body: one builder at a time, in any process. `request`: its digest.

    Without `retry`, an attempt that failed in the last minutes is not repeated. Raises: the error of that attempt; a
    `conflict` with reason `stopped` when `watch.cancelled`, instead of what the body raises then; `conflict` when
    another builder takes longer than half an hour.
    """
    with ExitStack() as stack:
        _wait_for_turn(stack, home, f"layer-{request[:32]}", watch)
        if not retry and (failed := find_failed_fetch(home, request)):
            raise _repeat_error(failed)
        try:
            yield
        except SandboxError as error:
            if watch.cancelled():
                raise _stopped_error() from error
            if error.code in FETCH_FAILURES:
                save_failed_fetch(home, request, error)
            raise
        forget_failed_fetch(home, request)


def _wait_for_turn(stack: ExitStack, home: Home, lock: str, watch: Watch) -> None:
    ends_at, said = time.monotonic() + _WAIT_S, False
    while True:
        require_not_stopped(watch)
        try:
            stack.enter_context(home.locked(lock, _LOOK_S))
        except SandboxError as error:
            if error.code is not ErrorCode.CONFLICT or time.monotonic() > ends_at:
                raise
        else:
            return
        if not said:
            watch.building("Another command fetches the same packages: waiting for it")
            said = True


def _repeat_error(failed: FailedFetch) -> SandboxError:
    ago_s = (datetime.now(UTC) - failed.failed_at).total_seconds()
    return SandboxError(
        failed.code,
        f"{failed.brief} (tried {ago_s:.0f} s ago)",
        details=failed.details,
        hint=f"{failed.hint} To try again at once: `sandbox run --refresh` or `sandbox layers build TASK`.".strip(),
        reason=failed.reason,
    )


def require_not_stopped(watch: Watch) -> None:
    """Raises: `conflict` with reason `stopped` when `watch.cancelled`."""
    if watch.cancelled():
        raise _stopped_error()


def _stopped_error() -> SandboxError:
    return SandboxError(
        ErrorCode.CONFLICT, "The fetch of packages was stopped", hint="Ask for them again.", reason=STOPPED
    )
