"""The time that one call of a forge's adapter has for all of its requests that only read.

A server decides how many pages a list has, and may take its time for each of them, while the caller holds a task's
lock. So a call has one deadline, whatever number of requests it needs.
"""

from __future__ import annotations

import time

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import CALL_TIMEOUT_S, READS_TIMEOUT_S
from sandbox.forges.http_session import TransientForgeError


class ReadTime:
    """Belongs to one adapter, whose calls come one after the other. Each begins it anew."""

    def __init__(self) -> None:
        self._ends = 0.0
        self.begin()

    def begin(self) -> None:
        """A call begins."""
        self._ends = time.monotonic() + READS_TIMEOUT_S

    def limit_request(self) -> float:
        """The seconds that the next request may take. Raises: `timeout` if the call has no time left."""
        left_s = self._ends - time.monotonic()
        if left_s <= 0.0:
            raise TransientForgeError(
                SandboxError(
                    ErrorCode.TIMEOUT,
                    "The forge did not answer in time",
                    details=f"limit: {READS_TIMEOUT_S:.0f} s for all requests of a question",
                    hint="Try again later.",
                )
            )
        return min(left_s, CALL_TIMEOUT_S)
