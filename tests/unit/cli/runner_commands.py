"""What GitHub's runner takes for a command."""

from __future__ import annotations


def commands_of(lines: list[str]) -> list[str]:
    """What GitHub's runner would obey: after its documentation, and its sources (actions/runner, ActionCommand.cs).

    A command stands at the start of a line, white space aside, or, written as `##[name]`, anywhere in it. A token stops
    all until it comes again.
    """
    found, token = [], ""
    for line in "\n".join(lines).split("\n"):
        command = _find_command(line)
        if token:
            token = "" if command in {f"::{token}::", f"##[{token}]"} else token
        elif command.startswith("::stop-commands::"):
            token = command.removeprefix("::stop-commands::")
        elif command:
            found.append(command)
    return found


def _find_command(line: str) -> str:
    """The line from its command on; '' if it has none."""
    text = line.lstrip()
    if text.startswith("::"):
        return text
    at = line.find("##[")
    return line[at:] if at >= 0 else ""
