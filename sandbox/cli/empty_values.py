"""Empty values on a command line. A variable of the shell that is not set is one, and selects or restricts nothing."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.errors import ErrorCode, SandboxError

_TEXTS = {"--body", "--label", "--message", "--new", "--old", "--prompt", "--reason", "--title", "-m"}
"""Options that take a text. It may be empty, or the command says itself what it needs."""


def require_values(arguments: Sequence[str]) -> None:
    """Raises: `invalid_input` for an empty argument before `--`, unless it is the value of an option for a text."""
    before = ""
    for argument in arguments:
        if argument == "--":
            return
        option, equals, value = argument.partition("=")
        if not argument and before not in _TEXTS:
            raise _empty_error(
                f"The value after {before} is empty" if before.startswith("-") else "An argument is empty"
            )
        if equals and not value and option.startswith("--") and option not in _TEXTS:
            raise _empty_error(f"The value of {option} is empty")
        before = argument


def _empty_error(brief: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        brief,
        hint="A variable of the shell that is not set gives an empty value. Leave the option out for its default.",
    )
