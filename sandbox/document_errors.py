"""Describe errors in a document that a user wrote: the key, its value, what is expected. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_NAMED = 10
_SHOWN = 60
_LENGTH = 2000


def mistakes(error: Exception) -> str:
    """One line for each of the first ten errors of a file: unreadable, not text, not TOML, wrong keys.

    The text shows values of the file: do not use it for files with secrets.
    """
    if isinstance(error, ValidationError):
        return "\n".join(_lines(error.errors(include_url=False)))[:_LENGTH]
    if isinstance(error, tomllib.TOMLDecodeError):
        return f"It is not TOML: {error}"
    if isinstance(error, UnicodeDecodeError):
        return f"It is not UTF-8 text: see byte {error.start}"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)[:_LENGTH]


def _lines(errors: Sequence[ErrorDetails]) -> Iterable[str]:
    for error in errors[:_NAMED]:
        where = place(error["loc"])
        yield f"{where}: {reason(error)}" if where else reason(error)
    if len(errors) > _NAMED:
        yield f"... and {len(errors) - _NAMED} more"


def place(location: Sequence[int | str]) -> str:
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


def reason(error: ErrorDetails) -> str:
    """Describe what is expected of a value, and what it is instead."""
    if error["type"] == "extra_forbidden":
        return "there is no such key"
    if error["type"] == "missing":
        return "is missing"
    if error["type"] == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    expected = str(error["msg"]).replace("Input should be", "should be").split(", unable to")[0]
    expected = expected.replace("a valid tuple", "a list").replace("a valid dictionary", "a table")
    return f"{expected}, not {_short(error['input'])}"


def _short(value: object) -> str:
    if isinstance(value, (dict, list, tuple)):
        return "a table" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
