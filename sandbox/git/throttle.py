"""How long a server that has had enough of us wants us to wait (RFC 9110, 10.2.3).

git 2.39 does not say, its trace does (samples: tests/data/git-trace). That is the remote's text: one number is taken
from it, nothing is shown.
"""

from __future__ import annotations

import re
from datetime import datetime
from email.utils import parsedate_to_datetime

from sandbox.errors import SandboxError

MAX_PAUSE_S = 30.0
_RECEIVED = re.compile(r"<= Recv header: (.*)$", re.MULTILINE)
_ENOUGH = re.compile(r"HTTP/\S+ (429|503)\b")
_SECONDS = re.compile(r"\d{1,9}")


class Throttled(SandboxError):
    """The remote named a pause. `wait_s` is at least 0; longer ones than `MAX_PAUSE_S` are for people to wait."""

    def __init__(self, cause: SandboxError, wait_s: float) -> None:
        hint = cause.hint
        if wait_s > MAX_PAUSE_S:
            hint = f"The remote asks to be left alone for {wait_s:.0f} s: try again then."
        super().__init__(cause.code, cause.brief, details=cause.details, hint=hint)
        self.wait_s = wait_s


def retry_after(trace: str, now: datetime) -> float | None:
    """Seconds that the last answer asks for, if it is a 429 or 503 and does; `now` is aware, for dates."""
    wait_s, enough = None, False
    for line in _RECEIVED.findall(trace):
        if line.startswith("HTTP/"):
            wait_s, enough = None, _ENOUGH.match(line) is not None
        name, _, value = line.partition(":")
        if enough and name.strip().lower() == "retry-after":
            wait_s = _seconds(value.strip(), now)
    return wait_s


def _seconds(value: str, now: datetime) -> float | None:
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None
