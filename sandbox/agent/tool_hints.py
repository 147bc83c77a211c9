"""Error hints name commands, for people. For a model, replace them by the tool that does the same.

A model that runs the command in its own shell would bypass approval.
"""

from __future__ import annotations

import re

from sandbox.agent.tools import TOOLS

_TOOLS = {tool.command: tool.name for tool in TOOLS.values() if isinstance(tool.command, str)}
"""By command. Commands that are not here are only for people: `gc`, `credentials`, `images`, ..."""

_ARGUMENTS = {"delete": "delete_worktree", "discard": "discard", "ref": "ref", "without": "without"}
"""What tools call the options that hints name."""

_OPTION = re.compile(rf"(?<![\w-])--({'|'.join(_ARGUMENTS)})(?![\w-])")
_WORDS = "|".join(sorted(_TOOLS, key=len, reverse=True))
# Of all checks of a task, which only a person stops: the tool stops one background run.
_QUOTED = re.compile(rf"`sandbox (?!check stop task-)({_WORDS})(?: (?![^`]*--discard)[^`]*)?`")
_ONLY_FOR_PEOPLE = re.compile(r"; `sandbox check runs[^`]*`[^`;.]*")  # no tool lists runs
_PLAIN = re.compile(rf"(?<!`)\bsandbox ({_WORDS})(?![\w-])")


def replace_commands(text: str) -> str:
    """Replace commands in a hint by their tools; a command in backquotes loses its options too. Pure."""
    quoted = _QUOTED.sub(lambda found: f"`{_TOOLS[found[1]]}`", _ONLY_FOR_PEOPLE.sub("", text))
    parts = _PLAIN.sub(lambda found: _TOOLS[found[1]], quoted).split("`")
    return "`".join([_replace_options(part) if n % 2 == 0 else part for n, part in enumerate(parts)])


def _replace_options(text: str) -> str:
    """Options of commands as arguments of tools, outside of backquotes, unless the text names a command for people."""
    return text if "sandbox " in text else _OPTION.sub(lambda found: f"`{_ARGUMENTS[found[1]]}`", text)
