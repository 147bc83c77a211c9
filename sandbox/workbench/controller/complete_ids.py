"""Let the public API take the beginning of an id, or a name. Inside, and in records and journals, ids are whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from sandbox.lazy_module import LazyModule
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models.words import SLUG_PATTERN
from sandbox.store.short_ids import complete_owner_id, complete_run_id, complete_task_id

if TYPE_CHECKING:
    from sandbox.workbench.controller import repository_names
    from sandbox.workbench.controller.services import Services
else:  # loaded when a name is no id (docs/adr/0003)
    repository_names = LazyModule("sandbox.workbench.controller.repository_names")

_ClassT = TypeVar("_ClassT", bound=type)
_TASK_OR_RUN = lazy_pattern(r"(task|run)-[0-9a-f-]+\Z")


def _complete_repository(services: Services, name: str) -> str:
    home = services.home
    if re.fullmatch(SLUG_PATTERN, name) and (home.clone(name).exists() or home.releases(name).is_dir()):
        return name  # also of a repository that was removed: its releases are never those of a longer id
    return repository_names.complete_repo_id(services.home, services.remotes, name)


def _complete_owner(services: Services, name: str) -> str:
    """A task or run goes before a repository with a name that ends so."""
    found = complete_owner_id(services.home, name)
    return found if found != name or _TASK_OR_RUN.match(name) else _complete_repository(services, name)


_COMPLETED: dict[str, Callable[[Services, str], str]] = {
    "owner_id": _complete_owner,
    "repo_id": _complete_repository,
    "run_id": lambda services, name: complete_run_id(services.home, name),
    "task_id": lambda services, name: complete_task_id(services.home, name),
}


def complete_ids(cls: _ClassT) -> _ClassT:
    """Make the public methods of a class complete the ids that they are given. Its objects have `_services`."""
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
        services, values = args[0]._services, list(args)
        for name, place in places.items():
            if place < len(values) and isinstance(values[place], str):
                values[place] = _COMPLETED[name](services, values[place])
            elif isinstance(kwargs.get(name), str):
                kwargs[name] = _COMPLETED[name](services, kwargs[name])
        return method(*values, **kwargs)

    return call
