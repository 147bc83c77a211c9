"""Run a part of a check: put a caller's arguments where the profile allows them.

The command stays the profile's: what may be added, and where, is in its file. Without arguments it is the whole check,
as always in clean rooms.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Check, CheckParameter

MAX_ARGUMENTS = 100
MAX_CHARS = 1_000
_DEADLINE_S = 5.0  # of a process that starts in a fiftieth of a second
_ESCAPE_OR_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_MATCHER = """import json, re, sys
pattern, texts = json.load(sys.stdin)
json.dump([text for text in texts if not re.fullmatch(pattern, text)], sys.stdout)
"""


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
    wrong = [text for text in given if len(text) > MAX_CHARS or not text.isprintable()]
    try:
        wrong = wrong or _list_others(parameter.pattern, given)
    except subprocess.TimeoutExpired:
        raise _refuse(check, f"to match {given[0][:100]!r} takes too long: {parameter.pattern}") from None
    if wrong:
        raise _refuse(check, f"{wrong[0][:100]!r} is none of its {parameter.name}: {parameter.pattern}")
    if not given:
        return parameter.default
    return (*((parameter.option,) if parameter.option else ()), *given)


def _list_others(pattern: str, texts: Sequence[str]) -> list[str]:
    """The texts that do not match. Raises: subprocess.TimeoutExpired.

    A pattern may take any time, for an argument that is the name of a test of the same repository, and Python's matcher
    cannot be stopped. So it runs in a process of its own, unless the form of the pattern shows that it is quick.
    """
    plain = _ESCAPE_OR_CLASS.sub("x", pattern)
    if not texts or ("(" not in plain and sum(map(plain.count, "*+?{")) <= 2):
        return [text for text in texts if not re.fullmatch(pattern, text)]
    command = [sys.executable, "-I", "-S", "-c", _MATCHER]
    question = json.dumps([pattern, list(texts)])
    ended = subprocess.run(  # noqa: S603 -- a program of ours; the pattern is its input
        command, input=question, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
    )
    return list(json.loads(ended.stdout)) if ended.returncode == 0 else list(texts)  # of too little memory, for example


def _refuse(check: Check, why: str) -> SandboxError:
    taken = ", ".join(f"{p.name}{' ...' if p.many else ''} ({p.pattern})" for p in check.parameters)
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"The check '{check.id}' does not take these arguments",
        details=f"{why}\nIt takes: {taken or 'none'}",
        hint="The profile's [[check.parameter]] says what may be added (docs/profiles.md).",
    )
