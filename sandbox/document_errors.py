"""Parse a document that a user wrote, and describe its errors: the key, its value, what is expected. Pure."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_MAX_ERRORS = 10
_ALIKE = 0.6
_MAX_VALUE_CHARS = 60
_MAX_CHARS = 2000
_MAX_INTEGER_BITS = 1024


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a document that the operator wrote; one of a repository or guest needs `policy.untrusted_toml`.

    Raises: tomllib.TOMLDecodeError, also for values that are nested too deep and numbers with too many digits.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError as error:
        raise tomllib.TOMLDecodeError("its values are nested too deep") from error
    except ValueError as error:  # of `int`
        raise tomllib.TOMLDecodeError("it has a number with too many digits") from error


def describe_errors(error: Exception, model: type[BaseModel] | None = None) -> str:
    """One line for each of the first ten errors of a file: unreadable, not text, not TOML, wrong keys. `model`: of the
    document; an unknown key then has the known one that is closest.

    The text shows values of the file: do not use it for files with secrets.
    """
    if isinstance(error, ValidationError):
        return "\n".join(_format_lines(error.errors(include_url=False), model))[:_MAX_CHARS]
    if isinstance(error, tomllib.TOMLDecodeError):
        return f"It is not TOML: {error}"
    if isinstance(error, UnicodeDecodeError):
        return f"It is not UTF-8 text: see byte {error.start}"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)[:_MAX_CHARS]


def _format_lines(errors: Sequence[ErrorDetails], model: type[BaseModel] | None) -> Iterable[str]:
    for error in errors[:_MAX_ERRORS]:
        where = format_location(error["loc"])
        if model is not None and error["type"] == "extra_forbidden":
            yield f"{where}: {describe_unknown_key(error, model)}"
            continue
        yield f"{where}: {describe_value_error(error)}" if where else describe_value_error(error)
    if len(errors) > _MAX_ERRORS:
        yield f"... and {len(errors) - _MAX_ERRORS} more"


def describe_unknown_key(error: ErrorDetails, model: type[BaseModel]) -> str:
    """Describe an error `extra_forbidden`, with the known key of the table that is closest."""
    near = difflib.get_close_matches(str(error["loc"][-1]), _list_keys(model, error["loc"][:-1]), 1, _ALIKE)
    return f"there is no such key{f'; did you mean {near[0]}?' if near else ''}"


def _list_keys(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """The keys of the table at a location of a document; none where that is no table of a model."""
    tables = [model]
    for part in location:
        if isinstance(part, str):
            found = [table.model_fields.values() for table in tables]
            named = [field for fields in found for field in fields if part == field.alias]
            named += [table.model_fields[part] for table in tables if part in table.model_fields]
            tables = [inner for field in named for inner in _find_models(field.annotation)] or tables
    return [field.alias or name for table in tables for name, field in table.model_fields.items() if not field.exclude]


def _find_models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _find_models(argument)]


def format_location(location: Sequence[int | str]) -> str:
    """Format a location: `limits.pids of check 2`. Tables with dots, list items counted from 1, innermost first."""
    groups: list[str] = []
    names: list[str] = []
    for part in location:
        if isinstance(part, int):
            groups.append(f"{'.'.join(names)} {part + 1}")
            names = []
        else:
            names.append(part)
    return " of ".join(reversed([*groups, *([".".join(names)] if names else [])]))


def describe_value_error(error: ErrorDetails) -> str:
    """Describe what is expected of a value, and what it is instead."""
    if error["type"] == "extra_forbidden":
        return "there is no such key"
    if error["type"] == "missing":
        return "is missing"
    if error["type"] == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    expected = str(error["msg"]).replace("Input should be", "should be").split(", unable to")[0]
    expected = expected.replace("a valid tuple", "a list").replace("a valid dictionary", "a table")
    return f"{expected}, not {_format_value(error['input'])}"


def _format_value(value: object) -> str:
    if isinstance(value, (dict, list, tuple)):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:  # Python writes no longer one
        return "an integer of too many digits"
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}..."
