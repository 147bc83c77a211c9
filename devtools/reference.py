"""Write docs/reference/ from docstrings, signatures and schemas; `--check` only says what differs.

Pages are never edited by hand, and a test runs the check: the reference cannot drift.
"""

from __future__ import annotations

import html
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from devtools.written import write_or_check
from sandbox import config, models
from sandbox.agent.tools import TOOLS, NotApplicable
from sandbox.cli.app import cli
from sandbox.errors import ErrorCode
from sandbox.workbench import Workbench

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
_CODE = re.compile(r"`([^`]+)`")
_NOTE = "<!-- Written by `python -m devtools.reference`; edit the docstrings instead. -->\n"


def pages() -> dict[str, str]:
    """File name to content of every page."""
    found = {
        "tools.md": _tools(),
        "python.md": _python(),
        "models.md": _models(),
        "settings.md": _settings(),
        "commands.md": _commands(),
        "errors.md": _errors(),
    }
    index = "".join(f"- [{_title(text)}]({name})\n" for name, text in sorted(found.items()))
    return {name: _NOTE + text for name, text in {**found, "index.md": f"# Reference\n\n{index}"}.items()}


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with `--check` name those that are not as they should be."""
    wanted = {FOLDER / name: text for name, text in pages().items()}
    return write_or_check(arguments, wanted, [path for path in FOLDER.glob("*.md") if path not in wanted])


def _title(text: str) -> str:
    return text.splitlines()[0].removeprefix("# ")


def _tools() -> str:
    parts = ["# Tools for agents\n\nSee [agents](../agents.md). Fields of results are in [models](models.md).\n"]
    for tool in TOOLS.values():
        words = [tool.preset.value, f"risk `{tool.risk.value}`"]
        flags = (("destructive", tool.destructive), ("open world", tool.open_world), ("sends", tool.sends))
        words += [word for word, is_so in flags if is_so]
        parts.append(
            f"\n## `{tool.name}`\n\n{tool.description}\n\n{', '.join(words)}; returns `{tool.result_model.__name__}`. "
            f"Command: {_counterpart(tool.command, 'sandbox ')}. Journal: {_counterpart(tool.journal)}.\n"
        )
        parts.append(_schema_table(tool.input_model))
        if tool.result_model.__name__ not in models.__all__:
            parts.append(f"\n{inspect.cleandoc(tool.result_model.__doc__ or '')}\n{_fields(tool.result_model)}")
    return "".join(parts)


def _counterpart(word: str | NotApplicable, prefix: str = "") -> str:
    return f"none, {word.reason}" if isinstance(word, NotApplicable) else f"`{prefix}{word}`"


def _schema_table(model: type[BaseModel]) -> str:
    schema = model.model_json_schema()
    required, properties = schema.get("required", []), schema.get("properties", {})
    rows = []
    for name, shape in properties.items():
        default = "required" if name in required else f"`{_plain(shape.get('default'))}`"
        rows.append((f"`{name}`", _shape(shape, schema), default, shape.get("description", "")))
    columns = ("argument", "type", "default", "meaning")
    if not any(meaning for *_, meaning in rows):
        return table(columns[:3], [row[:3] for row in rows])
    return table(columns, rows)


def _shape(shape: dict[str, Any], schema: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "$ref" in shape:
        name = shape["$ref"].rsplit("/", 1)[1]
        return _link(name) if _is_listed(name) else _shape(schema["$defs"][name], schema)
    if "anyOf" in shape:
        return " or ".join(_shape(one, schema) for one in shape["anyOf"])
    if "enum" in shape:
        return ", ".join(f"`{_plain(value)}`" for value in shape["enum"])
    if "const" in shape:
        return f"`{shape['const']}`"
    if shape.get("type") == "array":
        return f"list of {_shape(shape.get('items', {}), schema)}"
    return str(shape.get("type", "any"))


def _is_listed(name: str) -> bool:
    """Whether the page of models has this one."""
    member = getattr(models, name) if name in models.__all__ else None
    return (
        inspect.isclass(member)
        and issubclass(member, models.Model)
        and member not in {models.Model, models.SparseModel}
    )


def _link(name: str) -> str:
    return f"[`{name}`](models.md#{name.lower()})"


def _plain(value: object) -> str:
    """A value as JSON has it, but for quotes; an empty text has them, since empty code shows its backquotes."""
    return json.dumps(value) if value is None or value == "" or isinstance(value, bool) else str(value)


def _python() -> str:
    parts = [f"# Python\n\n`from sandbox import Workbench`\n\n{_class_text()}\n"]
    methods = [(n, m) for n, m in vars(Workbench).items() if not n.startswith("_") or n == "__init__"]
    for name, member in methods:
        if isinstance(member, property):
            kind = inspect.signature(member.fget).return_annotation  # type: ignore[arg-type]  # none is without
            parts.append(f"\n## `{name}`\n\n```python\n{name}: {kind}\n```\n\n{inspect.getdoc(member)}\n")
            continue
        function = member
        if not callable(function):
            continue
        shown = "Workbench" if name == "__init__" else name
        parts.append(f"\n## `{shown}`\n\n```python\n{shown}{_signature(function)}\n```\n\n{inspect.getdoc(function)}\n")
    return "".join(parts)


def _class_text() -> str:
    """The docstring of the class; the mark of an example is of another markup."""
    return (inspect.getdoc(Workbench) or "").replace("::\n", ":\n")


def _signature(function: Callable[..., object]) -> str:
    """One parameter a line where it is long."""
    signature = inspect.signature(function)
    parameters = [p for name, p in signature.parameters.items() if name != "self"]
    words, star = [], False
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            words.append("*")
            star = True
        words.append(_parameter(parameter))
    text = f"({', '.join(words)}) -> {signature.return_annotation}"
    if len(text) < 80:
        return text
    inside = "".join(f"    {word},\n" for word in words)
    return f"(\n{inside}) -> {signature.return_annotation}"


def _parameter(parameter: inspect.Parameter) -> str:
    text = f"{parameter.name}: {parameter.annotation}"
    if parameter.default is inspect.Parameter.empty:
        return text
    default = parameter.default
    return f"{text} = {f'{type(default).__name__}.{default.name}' if isinstance(default, Enum) else repr(default)}"


def _models() -> str:
    parts = ["# Models\n\nWhat methods and tools take and return, and what `--json` prints. Every one is frozen.\n"]
    for name in sorted(models.__all__):
        if _is_listed(name):
            member = getattr(models, name)
            parts.append(f"\n## `{name}`\n\n{inspect.getdoc(member)}\n{_fields(member)}")
    return "".join(parts)


def _fields(model: type[BaseModel]) -> str:
    schema = model.model_json_schema(mode="serialization")
    rows = [(f"`{name}`", _shape(shape, schema)) for name, shape in schema.get("properties", {}).items()]
    return table(("field", "type"), rows)


def _settings() -> str:
    parts = ["# Settings\n\nKeys of `config.toml`; see [configuration](../configuration.md).\n"]
    for section, field in config.Settings.model_fields.items():
        one = inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel)
        model: type[BaseModel] = field.annotation if one else config.ProfileSettings  # type: ignore[assignment]  # as said
        name = section if one else f"{section}.<name>"
        parts.append(f"\n## `[{name}]`\n\n{inspect.getdoc(model)}\n{_schema_table(model)}")
    return "".join(parts)


def _commands() -> str:
    parts = ["# Commands\n\nWhat `--help` says; see [the command line](../cli.md).\n"]
    for path, command in _leaves(cli, ()):
        context = _context(command, " ".join(("sandbox", *path)))
        parts.append(f"\n## `sandbox {' '.join(path)}`\n\n```\n{command.get_help(context)}\n```\n")
    return "".join(parts)


def _context(command: click.Command, name: str) -> click.Context:
    """As the command line makes it: click keeps the help option of the first context that a command sees."""
    settings = cli.context_settings
    return click.Context(
        command,
        info_name=name,
        help_option_names=settings["help_option_names"],
        max_content_width=settings["max_content_width"],
        terminal_width=settings["max_content_width"],
    )


def _leaves(command: click.Command, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    if path and command.invoke_without_command:
        yield path, command
    context = _context(command, "")
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None:
            yield from _leaves(found, (*path, name))


_MEANT = {
    ErrorCode.INVALID_INPUT: "an argument, setting or file of yours is wrong",
    ErrorCode.UNSAFE_PATH: "a path that may not be read or written; its rule is named ([paths](../paths.md))",
    ErrorCode.UNSAFE_REPOSITORY: "a repository that is not read or laid out: its owner, objects, names or size",
    ErrorCode.NOT_FOUND: "no repository, task, file, check, run, ref, ... of this name; what there is is named",
    ErrorCode.STALE_HASH: "the file is not what the edit was written for; read it again",
    ErrorCode.PATCH_REJECTED: "the edit fits nowhere, or at several places; nothing was written",
    ErrorCode.CONFLICT: "something else is at work, or the state is another than the call is for",
    ErrorCode.NOTHING_TO_COMMIT: "nothing has changed, or there is no commit to push",
    ErrorCode.DIRTY_WORKSPACE: "work would be lost that exists only here",
    ErrorCode.AUTH_FAILED: "no credential, or one that is refused ([credentials](../credentials.md))",
    ErrorCode.REMOTE_NOT_FOUND: "the remote has no such repository, or hides it",
    ErrorCode.REMOTE_BROKEN: "the remote's repository is damaged; trying again does not help",
    ErrorCode.NETWORK_ERROR: "the remote cannot be reached, or the connection broke; try again",
    ErrorCode.TIMEOUT: "no answer within a deadline of ours",
    ErrorCode.ORIGIN_MISMATCH: "the clone that is here is of another remote",
    ErrorCode.PUSH_REJECTED: "the remote did not take the push; `reason` says why ([push](../push.md))",
    ErrorCode.FORGE_UNSUPPORTED: "no forge that pull requests can be opened on; the branch may be pushed",
    ErrorCode.FORGE_ERROR: "the forge failed, or gave an answer that cannot be used; try again",
    ErrorCode.APPROVAL_REQUIRED: (
        "a person has to approve it; `data.approval_id` is the id ([agents](../agents.md#approvals))"
    ),
    ErrorCode.APPROVAL_DENIED: "a person or the policy said no",
    ErrorCode.EGRESS_REFUSED: "a fetch asked for a host that is no registry ([dependencies](../dependencies.md))",
    ErrorCode.GATE_CLOSED: "the tree has to be verified first ([verify](../verify.md#the-gate))",
    ErrorCode.QUOTA_EXCEEDED: "a limit of ours, or the disk is full",
    ErrorCode.ENGINE_UNAVAILABLE: "no container engine answers, or it lacks what is asked for; `sandbox doctor`",
    ErrorCode.SERVICE_FAILED: "a service of a check ended, or was not ready in time; its last lines are shown",
    ErrorCode.IMAGE_MISSING: "the image is not here; `sandbox images build`",
    ErrorCode.POLICY_VIOLATION: "refused by a policy, or a container is not what was asked for",
    ErrorCode.RECEIPT_REFUSED: "a receipt does not hold, or is about something else; `reason` says which",
    ErrorCode.INTERNAL: "a defect, or a damaged file of ours",
}


def _errors() -> str:
    codes = importlib.import_module("sandbox.cli.app")._EXIT_CODES
    rows = [(f"`{code.value}`", _MEANT[code], str(codes.get(code, 5))) for code in ErrorCode]
    listed = table(("code", "means", "exit code of the command"), rows)
    return f"# Errors\n\nCodes are stable; the text is not.\n{listed}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; nothing for no rows."""
    if not rows:
        return ""
    lines = "".join(f"| {' | '.join(map(_cell, row))} |\n" for row in rows)
    return f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}\n{lines}"


def _cell(text: str) -> str:
    """One line whose `|` ends no cell.

    `\\|` is no way in code: GitHub shows the stroke alone, the site the backslash too. A character reference is one,
    and needs `<code>` in place of backticks.
    """
    return _CODE.sub(_code, " ".join(text.split())).replace("|", "&#124;")


def _code(found: re.Match[str]) -> str:
    return f"<code>{html.escape(found[1], quote=False)}</code>" if "|" in found[1] else found[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
