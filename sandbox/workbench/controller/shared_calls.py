"""One run of an action for all threads that ask for it at the same time.

Theory. A result is as new as the moment at which its action began, so a caller may share every run that begins after
its call, and no other. While one run is under way, all new callers of the same key wait for the next one, which begins
when the first has ended. So any number of callers cost two runs, and none gets an answer older than its call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import field
from typing import Generic, TypeVar

from sandbox.errors import SandboxError
from sandbox.lazy_dataclass import dataclass

_ResultT = TypeVar("_ResultT")


@dataclass
class _Run(Generic[_ResultT]):
    """`before`: the run that has to end first. `results`: one if it succeeded. `error`: what its callers raise."""

    before: _Run[_ResultT] | None
    ended: threading.Event = field(default_factory=threading.Event)
    results: list[_ResultT] = field(default_factory=list)
    error: SandboxError | None = None


class SharedCalls(Generic[_ResultT]):
    """The runs of actions by key. All callers of a key pass actions with the same effect. Thread-safe."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s`: a caller that waited longer for a run of another thread runs its own."""
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, _Run[_ResultT]] = {}
        self._under_way: dict[Hashable, _Run[_ResultT]] = {}

    def run(self, key: Hashable, action: Callable[[], _ResultT]) -> _ResultT:
        """The result of a run that begins after this call. Raises: what that run raises."""
        with self._lock:
            joined = self._waiting.get(key)
            own = joined or _Run(self._under_way.get(key))
            self._waiting[key] = own
        if joined is None:
            return self._lead(key, own, action)
        joined.ended.wait(self._timeout_s)
        if joined.results:
            return joined.results[0]
        if joined.error is not None:
            raise joined.error.with_details(joined.error.details)  # a copy: each thread adds its own traceback
        return action()  # the other thread was interrupted, or takes too long

    def _lead(self, key: Hashable, own: _Run[_ResultT], action: Callable[[], _ResultT]) -> _ResultT:
        try:
            if own.before is not None:
                own.before.ended.wait(self._timeout_s)
                own.before = None
            with self._lock:
                del self._waiting[key]  # from here on it is too old for new callers
                self._under_way[key] = own
            result = action()
            own.results.append(result)
        except SandboxError as error:
            own.error = error
            raise
        finally:
            with self._lock:
                for runs in (self._waiting, self._under_way):
                    if runs.get(key) is own:
                        del runs[key]
            own.ended.set()
        return result
