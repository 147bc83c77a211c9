"""The time and the bytes that one call of a forge's adapter has for all of its requests that only read.

A server decides how many pages a list has, how large each is, and may take its time for it, while the caller holds a
task's lock. So a call has one deadline and one limit of bytes, whatever number of requests it needs.
"""

from __future__ import annotations

import time

from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.forge import CALL_TIMEOUT_S, MAX_READ_BYTES, READS_TIMEOUT_S
from sandbox.forges.http_session import TransientForgeError


class ReadBudget:
    """Belongs to one adapter. Its calls come one after the other, and each begins it anew."""

    def __init__(self) -> None:
        self._ends, self._read_bytes = 0.0, 0
        self.begin()

    def begin(self) -> None:
        """A call begins."""
        self._ends, self._read_bytes = time.monotonic() + READS_TIMEOUT_S, 0

    def left_s(self) -> float:
        """The seconds that the call has left, pauses included: a server asks for them, too."""
        return self._ends - time.monotonic()

    def limit_request(self) -> float:
        """The seconds that the next request may take. Raises: `timeout` if the call has no time left."""
        left_s = self.left_s()
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

    def count_answer(self, size_bytes: int) -> None:
        """An answer was read. Raises: `forge_error` if all of this call are too large together."""
        self._read_bytes += size_bytes
        if self._read_bytes > MAX_READ_BYTES:
            raise SandboxError(
                ErrorCode.FORGE_ERROR, f"The forge's answers to one question are larger than {MAX_READ_BYTES} bytes"
            )
