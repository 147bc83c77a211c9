"""Let the public API take the beginning of an id. Inside, and in records and journals, ids are whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from sandbox.store.short_ids import complete_owner_id, complete_run_id, complete_task_id

if TYPE_CHECKING:
    from sandbox.store.home import Home

_ClassT = TypeVar("_ClassT", bound=type)

_COMPLETED: dict[str, Callable[[Home, str], str]] = {
    "owner_id": complete_owner_id,
    "run_id": complete_run_id,
    "task_id": complete_task_id,
}


def complete_ids(cls: _ClassT) -> _ClassT:
    """Make the public methods of a class complete the ids that they are given. Its objects have `_services.home`."""
    for name, method in list(vars(cls).items()):
        if name.startswith("_") or not isinstance(method, FunctionType):
            continue
        code = getattr(method, "__wrapped__", method).__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        places = {place: names.index(place) for place in _COMPLETED if place in names}
        if places:
            setattr(cls, name, _wrap_method(method, places))
    return cls


def _wrap_method(method: Callable[..., Any], places: dict[str, int]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        home, values = args[0]._services.home, list(args)
        for name, place in places.items():
            if place < len(values) and isinstance(values[place], str):
                values[place] = _COMPLETED[name](home, values[place])
            elif isinstance(kwargs.get(name), str):
                kwargs[name] = _COMPLETED[name](home, kwargs[name])
        return method(*values, **kwargs)

    return call
