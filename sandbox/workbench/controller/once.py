"""A property that is computed at its first use, by one thread only."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, Self, TypeVar, overload

_ValueT = TypeVar("_ValueT")


class Once(Generic[_ValueT]):
    """A `functools.cached_property` with a lock; the standard one has none since Python 3.12.

    The object has one lock for all its properties, `once_lock`, because they use each other. If the object's
    `shared_from` is another object, that one keeps the values for both.
    """

    def __init__(self, make: Callable[[Any], _ValueT]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, _owner: type[Any], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> _ValueT: ...
    def __get__(self, instance: Any, owner: type[Any]) -> Self | _ValueT:
        """Called for first uses only: afterwards Python finds the value in the object (this class has no `__set__`)."""
        if instance is None:
            return self
        lock: RLock = instance.once_lock
        with lock:
            keeper = getattr(instance, "shared_from", None) or instance
            values: dict[str, _ValueT] = vars(keeper)
            if self._name not in values:
                values[self._name] = self._make(keeper)
            return values[self._name]
