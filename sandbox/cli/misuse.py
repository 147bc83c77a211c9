"""What to do after a wrong command line: the command or option that is meant, or where it stands, a task's name."""

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
    "exec": "`sandbox check run` for a check of a task",
    "fork": "`sandbox task fork`",
    "fetch": "`sandbox repo fetch`, `sandbox repo update`",
    "log": "`sandbox logs` for the output of a check, `sandbox task log` for what was done in a task",
    "new": "`sandbox task create`",
    "open": "`sandbox pr open`",
    "patch": "`sandbox file patch`",
    "read": "`sandbox file read`",
    "restore": "`sandbox task restore`",
    "results": "`sandbox check results`",
    "runs": "`sandbox check runs`",
    "search": "`sandbox file search`",
    "show": "`sandbox task show`, `sandbox repo show`",
    "snapshot": "`sandbox task snapshot`",
    "snapshots": "`sandbox task snapshots`",
    "start": "`sandbox task create`",
    "stop": "`sandbox check stop`",
    "sync": "`sandbox task sync`",
    "test": "`sandbox check run` for a check of a task, `sandbox run` for a repository",
    "write": "`sandbox file write`",
}
"""Commands of a group that people look for at the top, or in another group."""

_SYNONYMS = (
    (("create", "open", "new", "start", "begin", "add", "make"), ("create", "open", "clone", "build", "write", "set")),
    (("list", "ls", "dir"), ("list", "show", "status")),
    (("remove", "rm", "delete", "del", "close", "drop", "destroy"), ("remove", "delete", "close", "forget")),
    (("show", "cat", "get", "info", "inspect", "describe", "view"), ("read", "show", "status", "results")),
    (("test", "exec", "start"), ("run",)),
    (("stop", "kill", "cancel", "abort"), ("stop", "drain")),
    (("search", "grep", "find"), ("search",)),
    (("rename", "mv", "move"), ("rename",)),
    (("log", "logs", "output"), ("log",)),
    (("set", "config", "configure", "edit"), ("set",)),
    (("approve", "yes", "accept", "allow", "grant"), ("approve",)),
    (("deny", "no", "reject", "refuse"), ("deny",)),
)
"""Words that people try, and the commands that may be meant, the likeliest first."""

_OPTIONS = {
    "--branch": ("--ref", "--base"),
    "--commit": ("--ref",),
    "--tag": ("--ref",),
    "--rev": ("--ref",),
    "--pr": ("--ref",),
    "--test": ("--check",),
    "--description": ("--body", "--prompt"),
    "--title": ("--prompt",),
    "--draft": ("--ready",),
}
"""Options that people try, and those that may be meant."""

_UNDO = "`sandbox task restore TASK head` drops what is not committed; with `base` or a snapshot it goes back further."
_RELEASES = "`sandbox promote` puts a candidate in use as a release; `sandbox promote REPO --history` lists releases."
_PULL_REQUEST = "`--ref pr/7` is pull request 7."
_OWN_PROFILE = "A profile of your own is a file HOME/profiles/NAME.toml: docs/profiles.md has its keys."
_OF_COMMANDS = {
    ("sandbox run", "--image"): "`sandbox repo set REPO --image TAG` keeps an image for a repository.",
    ("sandbox run", "--env"): "`sandbox repo set REPO --env NAME=VALUE` keeps a variable of all checks.",
    ("sandbox run", "--limit"): "`sandbox repo set REPO --limit NAME=VALUE` keeps a limit of all checks.",
    ("sandbox run", "--submodules"): "`sandbox repo set REPO --submodules` keeps that for a repository.",
    ("sandbox run", "--pr"): _PULL_REQUEST,
    ("sandbox profiles detect", "--pr"): _PULL_REQUEST,
    ("sandbox profiles", "new"): _OWN_PROFILE,
    ("sandbox profiles", "create"): _OWN_PROFILE,
    ("sandbox profiles", "add"): _OWN_PROFILE,
    ("sandbox profiles", "edit"): _OWN_PROFILE,
    ("sandbox", "version"): "Did you mean `sandbox --version`?",
    ("sandbox", "undo"): _UNDO,
    ("sandbox", "revert"): _UNDO,
    ("sandbox", "reset"): _UNDO,
    ("sandbox", "rollback"): "`sandbox promote REPO --rollback` puts the release before the one in use in use again.",
    ("sandbox", "launch"): "`sandbox candidate` launches what a task or repository builds, in a guest.",
    ("sandbox", "release"): _RELEASES,
    ("sandbox", "releases"): _RELEASES,
    ("sandbox task", "undo"): _UNDO,
    ("sandbox task", "revert"): _UNDO,
    ("sandbox", "help"): "Did you mean `sandbox --help`, or `sandbox COMMAND --help`?",
    ("sandbox file", "list"): "`sandbox file search TASK --glob '*'` lists paths.",
    ("sandbox file", "ls"): "`sandbox file search TASK --glob '*'` lists paths.",
    ("sandbox task create", "extra"): "The purpose of a task is an option: --prompt TEXT.",
    ("sandbox check run", "--all"): "Name the checks: `sandbox check list TASK` shows them. `sandbox verify TASK` runs "
    "all of them on the last commit.",
}
"""By command, and what is wrong: a word too many, a command or an option that it has not."""


def describe_misuse(error: click.ClickException, top: Collection[str]) -> tuple[str, str]:
    """The sentence and the hint for a command line that click refused. `top`: the commands of `sandbox` itself."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "sandbox"
    brief, advice = re.sub(r"\s+", " ", error.format_message()).strip(), ""
    if isinstance(error, click.NoSuchOption):
        brief = f"{error.message}{_suggest_option(error)}"
        advice = _OF_COMMANDS.get((path, error.option_name), "")
    elif isinstance(error, click.exceptions.NoSuchCommand):
        brief, advice = _describe_command(error, brief, path, top)
    elif isinstance(error, click.MissingParameter):
        metavar = getattr(error.param, "metavar", None) or ""
        advice = (
            "`-` is the task that this terminal used last; `sandbox list` shows open ones." if "TASK" in metavar else ""
        )
    elif brief.startswith("Got unexpected extra argument"):
        advice = _OF_COMMANDS.get((path, "extra"), "")
    return brief, f"{advice} See: {path} --help".strip()


def describe_unknown_command(name: str, top: Collection[str]) -> str:
    """What stands near to a word that is no command of `sandbox` itself; may be empty."""
    if own := _OF_COMMANDS.get(("sandbox", name)):
        return own
    if name not in ELSEWHERE and (meant := _find_meant(name, top)):
        return f"Did you mean `sandbox {meant}`?"
    close = difflib.get_close_matches(name, top, n=3)
    return _find_place(name, top) or (f"Did you mean: {', '.join(close)}?" if close else _find_meant_place(name))


def _describe_command(
    error: click.exceptions.NoSuchCommand, brief: str, path: str, top: Collection[str]
) -> tuple[str, str]:
    """The sentence and the advice for a word that is no command of a group: one of the same group comes first."""
    name = error.command_name
    if own := _OF_COMMANDS.get((path, name)):
        return error.message, own
    group = error.ctx.command if error.ctx else None
    known = group.list_commands(error.ctx) if error.ctx and isinstance(group, click.Group) else ()
    if meant := _find_meant(name, known):
        return error.message, f"Did you mean `{path} {meant}`?"
    is_general = name == "list"  # of what the group is about; `sandbox list` is about tasks
    return brief, "" if is_general else _find_place(name, top)


def _find_meant(name: str, known: Collection[str]) -> str:
    """The likeliest of the known commands for a word that means the same; '' for none."""
    return next((one for words, meant in _SYNONYMS if name in words for one in meant if one in known), "")


def _find_meant_place(name: str) -> str:
    """Where a command stands that a word may mean; '' for none."""
    places = (ELSEWHERE[one] for words, meant in _SYNONYMS if name in words for one in meant if one in ELSEWHERE)
    place = next(places, "")
    return f"Did you mean {place}?" if place else ""


def _find_place(name: str, top: Collection[str]) -> str:
    places = [f"`sandbox {name}`"] if name in top else []
    places += [ELSEWHERE[name]] if name in ELSEWHERE else []
    return f"Did you mean {', '.join(places)}?" if places else ""


def _suggest_option(error: click.NoSuchOption) -> str:
    """Options that mean the same, else near ones, compared without their dashes, which make all short ones alike."""
    known = [name for parameter in (error.ctx.command.params if error.ctx else ()) for name in parameter.opts]
    names = {name.lstrip("-"): name for name in known if name.startswith("--")}
    meant = [one for one in _OPTIONS.get(error.option_name, ()) if one in known]
    close = meant or [names[one] for one in difflib.get_close_matches(error.option_name.lstrip("-"), names, n=3)]
    return f" Did you mean: {', '.join(close)}?" if close else ""
