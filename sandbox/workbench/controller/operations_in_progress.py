"""The operations of one controller that are in progress, so that what they use is released after the last one.

A caller may leave `with Workbench()` while another of its threads still works, as after a timeout of
`asyncio.wait_for`. Were the controller marked as ended then, another process would take its container for a leftover,
and remove it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import wraps
from types import FunctionType, TracebackType
from typing import Any, TypeVar

from sandbox.errors import SandboxError

_log = logging.getLogger(__name__)
_ClassT = TypeVar("_ClassT", bound=type)


class OperationsInProgress:
    """A context manager that counts how often it is entered, by any thread. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._waiting: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._count -= 1
            self._call_if_idle()

    def call_after_last(self, release: Callable[[], None]) -> None:
        """Call `release` when no operation is in progress: now, or in the thread of the one that ends last. An
        operation that begins meanwhile waits for it.
        """
        with self._lock:
            self._waiting.append(release)
            self._call_if_idle()

    def _call_if_idle(self) -> None:
        """An error is logged: the operation that ends here may have succeeded."""
        while self._waiting and not self._count:
            try:
                self._waiting.pop()()
            except (OSError, SandboxError):
                _log.exception("what a controller used was not released")


def count_operations(cls: _ClassT) -> _ClassT:
    """Count each call of a public method as an operation. Objects of the class have `_services`.

    What a method yields after it has returned is not counted.
    """
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(cls, name, _wrap_method(method))
    return cls


def _wrap_method(method: FunctionType) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with args[0]._services.operations:
            return method(*args, **kwargs)

    return call
