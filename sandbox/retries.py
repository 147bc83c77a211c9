"""The retry policy for network requests that only read: a few attempts, with growing and jittered pauses.

A server may ask for a longer pause (RFC 9110, Retry-After). We wait for at most `MAX_PAUSE_S`: after a request for a
longer pause the error is raised at once, and its hint names the pause.
"""

from __future__ import annotations

from collections.abc import Callable

import tenacity

ATTEMPTS = 3
MAX_PAUSE_S = 30.0
BACKOFF = tenacity.wait_exponential_jitter(multiplier=0.5, max=5, jitter=0.5)


def build_retrying(
    is_transient: Callable[[BaseException], bool],
    requested_pause_s: Callable[[BaseException], float],
    before_sleep: Callable[[tenacity.RetryCallState], None] | None = None,
    left_s: Callable[[], float] | None = None,
) -> tenacity.Retrying:
    """A new retry controller; the last error is raised.

    `is_transient`: whether another attempt may succeed. `requested_pause_s`: the pause that the server asked for, 0 for
    none. `before_sleep` is called before each pause. `left_s`: the seconds that are left for all attempts; a pause that
    would take them up is not begun, so that the error says what it is about, and not that the time was over.
    """

    def is_worth_retrying(error: BaseException) -> bool:
        return is_transient(error) and requested_pause_s(error) <= MAX_PAUSE_S

    def pause_s(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        return max(float(BACKOFF(state)), requested_pause_s(error) if error is not None else 0.0)

    def is_over(state: tenacity.RetryCallState) -> bool:
        return state.attempt_number >= ATTEMPTS or (left_s is not None and state.upcoming_sleep >= left_s())

    return tenacity.Retrying(
        stop=is_over,
        wait=pause_s,
        retry=tenacity.retry_if_exception(is_worth_retrying),
        before_sleep=before_sleep,
        reraise=True,
    )
