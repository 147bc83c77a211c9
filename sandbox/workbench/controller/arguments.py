"""Check the argument types of the public API: a wrong type is `invalid_input`, not a failure deeper in the code.

An empty text for an argument or a field of a question that may be None is refused as well: it selects nothing, and
code that asks `if value` would take it for None, and do more than it was asked to.

Only the text of the annotations is read, so no module is imported for this. Annotations that this module does not
know (type aliases, containers of models) are not checked. The same wrapper turns a full disk, which any operation can
meet, into an error with a code.

pydantic's `validate_call` (strict) was measured instead and not used, because it slows the start (docs/adr/0003). CPU
time, best of six in one run: `sandbox task list` takes 151 ms and loads no pydantic; loading it adds 68 ms. Validators
need the classes behind the annotations: loading those of the 76 methods took 450 ms more, building validators 52 ms.
A call costs 12 microseconds here. `validate_call` also refuses sets of ids and `True` for a number, and copies
sequences; and its error texts would still have to be made of the annotations.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

from sandbox.errors import ErrorCode, SandboxError, translate_shortage

_ClassT = TypeVar("_ClassT", bound=type)

_SIMPLE: dict[str, type | tuple[type, ...]] = {
    "None": type(None),
    "bool": bool,
    "bytes": bytes,
    "float": (float, int),
    "int": int,
    "str": str,
}
_CHOSEN = {"str | None", "Path | str | None"}
_TEXTS = {"prompt"}
_PATH_MAX, _NAME_MAX = 4096, 255  # bytes (limits.h of Linux)
_QUESTIONS = ("Options", "Query", "Question", "Request")
"""How the names of the models end that say what a caller asks for."""
_PLAIN_TYPE_NAMES = {"Sequence[str]": "a sequence of str"}


def check_argument_types(cls: _ClassT) -> _ClassT:
    """Make the constructor and the public methods of a class check argument types, and report a full disk or quota as
    an error code.
    """
    for name, value in list(vars(cls).items()):
        if isinstance(value, FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, _wrap_method(value, cls.__name__ if name == "__init__" else name))
    return cls


def _wrap_method(method: FunctionType, shown_name: str) -> Callable[..., Any]:
    code = method.__code__
    names = code.co_varnames[: code.co_argcount]
    expected = {name: text for name, text in method.__annotations__.items() if name != "return"}

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            annotation = expected.get(name, "")
            if annotation and not _matches(value, annotation):
                raise _type_error(shown_name, name, annotation, value)
            if empty := _find_empty(name, value, annotation):
                raise _empty_error(shown_name, empty)
            if isinstance(value, str | Path) and "Path" in annotation and not _may_be_path(str(value)):
                raise _path_error(shown_name, name, str(value))
        try:
            return method(*args, **kwargs)
        except OSError as error:
            lacking = translate_shortage(error)
            if lacking is None:
                raise
            raise lacking from error

    return call


def _matches(value: Any, annotation: str) -> bool:
    if value is None and annotation.endswith("| None"):
        return True
    if "[" in annotation.replace("Sequence[str]", ""):  # the brackets may contain ` | `
        return _matches_container(value, annotation)
    return any(_is_a(value, part) for part in annotation.split(" | "))


def _matches_container(value: Any, annotation: str) -> bool:
    kind, _, inner = annotation.removesuffix(" | None").removesuffix("]").partition("[")
    if kind == "Mapping":
        return isinstance(value, Mapping) and _match_items(value, inner)
    if kind == "Sequence":
        return _is_several(value, inner)
    return kind != "Callable" or callable(value)


def _match_items(value: Mapping[Any, Any], annotation: str) -> bool:
    """Of the values only those of plain types are checked."""
    key, _, of_values = annotation.partition(", ")
    if not all(_is_a(each, key) for each in value):
        return False
    is_plain = all(kind in _SIMPLE for kind in of_values.split(" | "))
    return not is_plain or all(_matches(each, of_values) for each in value.values())


def _is_several(value: Any, kind: str) -> bool:
    """Whether it is a collection of this kind. A text is none of texts."""
    several = isinstance(value, Collection) and not isinstance(value, (str, bytes, Mapping))
    return several and all(_is_a(each, kind) for each in value)


def _find_empty(name: str, value: Any, annotation: str) -> str:
    """The name of the argument, or of the field of it, that is an empty text and may be None; else an empty text."""
    if annotation in _CHOSEN:
        return name if value == "" and name not in _TEXTS else ""
    kind = type(value)
    if not kind.__name__.endswith(_QUESTIONS):
        return ""
    fields = (field for field, text in vars(kind).get("__annotations__", {}).items() if text in _CHOSEN)
    return next((f"{name}.{field}" for field in fields if getattr(value, field) == ""), "")


def _empty_error(method: str, name: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT, f"{method}: '{name}' is empty", hint="Leave it out, or give None, for its default."
    )


def _may_be_path(text: str) -> bool:
    """Whether the system takes it: a call with another one raises ValueError, or an OSError of its own."""
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return False
    return b"\0" not in encoded and len(encoded) < _PATH_MAX and all(len(p) <= _NAME_MAX for p in encoded.split(b"/"))


def _path_error(method: str, name: str, value: str) -> SandboxError:
    return SandboxError(ErrorCode.INVALID_INPUT, f"{method}: '{name}' cannot be a path: {value[:100]!a}")


def _is_a(value: Any, kind: str) -> bool:
    if kind in _SIMPLE:
        return isinstance(value, _SIMPLE[kind])
    if kind == "Sequence[str]":
        return _is_several(value, "str")
    return any(base.__name__ == kind for base in type(value).__mro__)


def _type_error(method: str, name: str, annotation: str, value: Any) -> SandboxError:
    expected = _PLAIN_TYPE_NAMES.get(annotation, annotation)
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"{method}: '{name}' should be {expected}, not {type(value).__name__}",
        hint='Pass one name as a list: ["test"].' if expected is not annotation and isinstance(value, str) else "",
    )
