"""Run a part of a check: put a caller's arguments where the profile allows them. Pure.

The command stays the profile's: what may be added, and where, is in its file. Without arguments it is the whole check,
as always in clean rooms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.models import Check, CheckParameter

if TYPE_CHECKING:
    import regex
else:  # loaded when a caller gives arguments (docs/adr/0003)
    regex = LazyModule("regex")

MAX_ARGUMENTS = 100
MAX_CHARS = 1_000
_PATTERN_BUDGET_S = 0.1  # a pattern of a repository may take any time, for an argument that is the name of its test


def fill_parameters(check: Check, arguments: Sequence[str] = ()) -> Check:
    """The check with its final command: each `<name>` of a parameter is replaced by its arguments, or by its default.

    Arguments are taken in order: one by each parameter, all that are left by one with `many`. A path from the top of
    the repository, as failures name it, is taken as one from the folder in which the check runs. Raises:
    `invalid_input` for arguments that no parameter takes, or that do not match.
    """
    top = "" if check.cwd == "." else f"{check.cwd}/"
    rest = [text.removeprefix(top) or text for text in arguments]
    if len(rest) > MAX_ARGUMENTS:
        raise _refuse(check, f"{len(rest)} arguments; at most {MAX_ARGUMENTS} are possible")
    values: dict[str, tuple[str, ...]] = {}
    for parameter in check.parameters:
        given = rest if parameter.many else rest[:1]
        rest = rest[len(given) :]
        values[f"<{parameter.name}>"] = _complete(check, parameter, given)
    if rest:
        raise _refuse(check, f"no place for {rest[0][:100]!r}")
    argv = tuple(part for word in check.argv for part in values.get(word, (word,)))
    return check.model_copy(update={"argv": argv, "parameters": (), "arguments": tuple(arguments)})


def _complete(check: Check, parameter: CheckParameter, given: Sequence[str]) -> tuple[str, ...]:
    for text in given:
        if len(text) > MAX_CHARS or not text.isprintable() or not _matches(parameter.pattern, text):
            raise _refuse(check, f"{text[:100]!r} is none of its {parameter.name}: {parameter.pattern}")
    if not given:
        return parameter.default
    return (*((parameter.option,) if parameter.option else ()), *given)


def _matches(pattern: str, text: str) -> bool:
    try:
        return regex.fullmatch(pattern, text, timeout=_PATTERN_BUDGET_S) is not None
    except TimeoutError:
        return False


def _refuse(check: Check, why: str) -> SandboxError:
    taken = ", ".join(f"{p.name}{' ...' if p.many else ''} ({p.pattern})" for p in check.parameters)
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"The check '{check.id}' does not take these arguments",
        details=f"{why}\nIt takes: {taken or 'none'}",
        hint="The profile's [[check.parameter]] says what may be added (docs/profiles.md).",
    )
