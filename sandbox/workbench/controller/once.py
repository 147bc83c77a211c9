"""A property that is made at its first use, by one thread only."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, Self, TypeVar, overload

_ValueT = TypeVar("_ValueT")


class Once(Generic[_ValueT]):
    """Used as `functools.cached_property`, which has no lock any more since Python 3.12.

    The object keeps its lock in `first_uses`: one for all its properties, for they are made of each other. Where it has
    another object in `shares`, that one keeps the values, for both.
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
        """Only the first uses come here: afterwards the value is found before this (it has no `__set__`)."""
        if instance is None:
            return self
        lock: RLock = instance.first_uses
        with lock:
            keeper = getattr(instance, "shares", None) or instance
            values: dict[str, _ValueT] = vars(keeper)
            if self._name not in values:
                values[self._name] = self._make(keeper)
            return values[self._name]
