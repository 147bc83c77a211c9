"""How long a server that throttles us asks us to wait: `Retry-After` (RFC 9110, 10.2.3).

git 2.39 does not print it, but its trace contains it (samples: tests/data/git-trace). The trace is the remote's text:
of it one number is read, the type of an answer, and where a redirect leads, which is shown as text of a stranger.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from sandbox.git.failures import GitFailure
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    from email import utils as email_utils

    from sandbox import retries
else:  # loaded when a remote asks for a pause (docs/adr/0080)
    email_utils = LazyModule("email.utils")
    retries = LazyModule("sandbox.retries")

_RECEIVED = re.compile(r"<= Recv header: (.*)$", re.MULTILINE)
_THROTTLE_STATUS = re.compile(r"HTTP/\S+ (429|503)\b")
_SECONDS = re.compile(r"\d{1,9}")


class Throttled(GitFailure):
    """The remote asked for a pause. `wait_s` is at least 0. Above `MAX_PAUSE_S` we do not wait; the hint names it."""

    def __init__(self, cause: GitFailure, wait_s: float) -> None:
        hint = cause.hint
        if wait_s > retries.MAX_PAUSE_S:
            hint = f"The remote asks for a pause of {wait_s:.0f} s. Try again after that."
        super().__init__(cause.code, cause.brief, details=cause.details, hint=hint, transient=cause.transient)
        self.wait_s = wait_s


def last_header(trace: str, name: str) -> str:
    """The value of a header of the last answer, the remote's text; '' without one. `name`: in lower case."""
    found = ""
    for line in _RECEIVED.findall(trace):
        key, _, value = line.partition(":")
        if line.startswith("HTTP/"):
            found = ""
        elif key.strip().lower() == name:
            found = value.strip()
    return found


def retry_after(trace: str, now: datetime) -> float | None:
    """Seconds of `Retry-After` in the last answer, if it is a 429 or 503; else None. `now`: timezone-aware."""
    wait_s, enough = None, False
    for line in _RECEIVED.findall(trace):
        if line.startswith("HTTP/"):
            wait_s, enough = None, _THROTTLE_STATUS.match(line) is not None
        name, _, value = line.partition(":")
        if enough and name.strip().lower() == "retry-after":
            wait_s = _parse_seconds(value.strip(), now)
    return wait_s


def _parse_seconds(value: str, now: datetime) -> float | None:
    if _SECONDS.fullmatch(value):
        return float(value)
    try:
        return max(0.0, (email_utils.parsedate_to_datetime(value) - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None
