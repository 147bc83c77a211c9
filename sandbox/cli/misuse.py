"""What to do after a wrong command line: the place of a command that stands elsewhere, an option, a task's name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

import click

ELSEWHERE = {
    "apply": "`sandbox task apply`",
    "approve": "`sandbox approvals approve`",
    "build": "`sandbox images build`",
    "clone": "`sandbox repo clone`",
    "close": "`sandbox task close`",
    "create": "`sandbox task create`",
    "deny": "`sandbox approvals deny`",
    "edit": "`sandbox file edit`",
    "fork": "`sandbox task fork`",
    "log": "`sandbox logs` for the output of a check, `sandbox task log` for what was done in a task",
    "patch": "`sandbox file patch`",
    "read": "`sandbox file read`",
    "results": "`sandbox check results`",
    "runs": "`sandbox check runs`",
    "search": "`sandbox file search`",
    "show": "`sandbox task show`, `sandbox repo show`",
    "snapshot": "`sandbox task snapshot`",
    "sync": "`sandbox task sync`",
    "write": "`sandbox file write`",
}
"""Commands of a group that people look for at the top, or in another group."""

_OF_COMMANDS = {
    ("sandbox task create", "extra"): "The purpose of a task is an option: --prompt TEXT.",
    ("sandbox check run", "--all"): "Name the checks: `sandbox check list TASK` shows them. `sandbox verify TASK` runs "
    "all of them on the last commit.",
}
"""By command, and what is wrong: a word too many, or an option."""


def describe_misuse(error: click.ClickException, top: Collection[str]) -> tuple[str, str]:
    """The sentence and the hint for a command line that click refused. `top`: the commands of `sandbox` itself."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "sandbox"
    brief, advice = re.sub(r"\s+", " ", error.format_message()).strip(), ""
    if isinstance(error, click.NoSuchOption):
        brief = f"{error.message}{_suggest_option(error)}"
        advice = _OF_COMMANDS.get((path, error.option_name), "")
    elif isinstance(error, click.exceptions.NoSuchCommand):
        advice = _find_place(error.command_name, top)
    elif isinstance(error, click.MissingParameter):
        metavar = getattr(error.param, "metavar", None) or ""
        advice = "`-` is the task that this terminal used last; `sandbox list` shows all." if "TASK" in metavar else ""
    elif brief.startswith("Got unexpected extra argument"):
        advice = _OF_COMMANDS.get((path, "extra"), "")
    return brief, f"{advice} See: {path} --help".strip()


def describe_unknown_command(name: str, top: Collection[str]) -> str:
    """What stands near to a word that is no command of `sandbox` itself; may be empty."""
    close = difflib.get_close_matches(name, top, n=3)
    return _find_place(name, top) or (f"Did you mean: {', '.join(close)}?" if close else "")


def _find_place(name: str, top: Collection[str]) -> str:
    places = [f"`sandbox {name}`"] if name in top else []
    places += [ELSEWHERE[name]] if name in ELSEWHERE else []
    return f"Did you mean {', '.join(places)}?" if places else ""


def _suggest_option(error: click.NoSuchOption) -> str:
    """Near options, compared without their dashes, which make all short ones alike."""
    known = [name for parameter in (error.ctx.command.params if error.ctx else ()) for name in parameter.opts]
    names = {name.lstrip("-"): name for name in known if name.startswith("--")}
    close = [names[one] for one in difflib.get_close_matches(error.option_name.lstrip("-"), names, n=3)]
    return f" Did you mean: {', '.join(close)}?" if close else ""
