"""Error hints name commands, for people. For a model, replace them by the tool that does the same.

A model that runs the command in its own shell would bypass approval.
"""

from __future__ import annotations

import re

from sandbox.agent.tools import TOOLS, Tool

_TOOLS = {tool.command: tool.name for tool in TOOLS.values() if isinstance(tool.command, str)}
"""By command. Commands that are not here are only for people: `gc`, `credentials`, `images`, ..."""

_ARGUMENTS = {
    "against": "against",
    "delete": "delete_worktree",
    "discard": "discard",
    "onto": "onto",
    "ref": "ref",
    "without": "without",
}
"""What tools call the options that hints name."""

_LISTS = {"without"}

_OPTION = re.compile(rf"(?<![\w-])--({'|'.join(_ARGUMENTS)})(?![\w-])")
_WORDS = "|".join(sorted(_TOOLS, key=len, reverse=True))
# Left to people: to stop all checks of a task, where the tool stops one background run, and to verify without a cache.
_QUOTED = re.compile(rf"`sandbox (?!check stop task-|verify [^`]*--no-cache)({_WORDS})( (?![^`]*--discard)[^`]*)?`")
_GIVEN = re.compile(rf" --({'|'.join(_ARGUMENTS)})(?: ([^-\s][^\s]*))?(?!\S)")
_ONLY_FOR_PEOPLE = re.compile(r"; `sandbox check runs[^`]*`[^`;.]*")  # no tool lists runs
_PLAIN = re.compile(rf"(?<!`)\bsandbox ({_WORDS})(?![\w-])")


def replace_commands(text: str) -> str:
    """Replace commands in a hint by their tools. Of a command in backquotes, the options that the tool has stay, as its
    arguments. Pure.
    """
    people = _ONLY_FOR_PEOPLE.sub("", text)
    quoted = _QUOTED.sub(lambda found: _name_call(TOOLS[_TOOLS[found[1]]], found[2] or ""), people)
    parts = _PLAIN.sub(lambda found: _TOOLS[found[1]], quoted).split("`")
    return "`".join([_replace_options(part) if n % 2 == 0 else part for n, part in enumerate(parts)])


def _name_call(tool: Tool, words: str) -> str:
    """The tool, and the arguments without which it would do something else."""
    given = [
        f"`{_ARGUMENTS[option]}`: {f'[{value}]' if option in _LISTS else value or 'true'}"
        for option, value in _GIVEN.findall(words)
        if _ARGUMENTS[option] in tool.input_model.model_fields
    ]
    return f"`{tool.name}`" + (f" ({', '.join(given)})" if given else "")


def _replace_options(text: str) -> str:
    """Options of commands as arguments of tools, outside of backquotes, unless the text names a command for people."""
    return text if "sandbox " in text else _OPTION.sub(lambda found: f"`{_ARGUMENTS[found[1]]}`", text)
