"""The arguments of a call of a tool: its input model, or what is wrong with them.

The reader of an error is a model that has read the list of tools long before, or a program: the error itself says what
each argument should be. It repeats no value.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from sandbox.agent.agent import Agent
from sandbox.agent.inputs import MOST_TASKS, Input, LogName
from sandbox.agent.outputs import ApprovalResult
from sandbox.agent.permission import request_approval
from sandbox.agent.tools import REQUEST_APPROVAL, TOOLS, Tool
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import SLUG_PATTERN, RepoId, Sha256, TaskId
from sandbox.store.records import not_found_error
from sandbox.workbench import Workbench

_ALIKE = 0.5
"""How near the name of an argument is to one that may be meant: enough for `old_text` and `old`."""

_BEGINNING = re.compile(r"(?:task-)?([0-9a-f]{4}[0-9a-f-]{0,31})")
"""Of the id of a task; `-`, the task of a terminal, is none of an agent."""

_FILLED = frozenset({"base_branch", "branch", "glob", "onto", "pattern", "repo_id", "subpath", "task_id"})
"""Optional arguments that models fill with an empty text. Not texts that may be empty, nor what chooses a verdict."""

_NAME_CHARS = 100
"""Of an argument that is wrong; a request sets its length."""

_MAX_ERRORS, _MAX_CHARS = 10, 2000
_WORDS = {
    "Input should": "should",
    "String should": "should",
    "Tuple should": "should",
    "Dictionary should": "should",
    "a valid string": "a string",
    "a valid integer": "an integer",
    "a valid number": "a number",
    "a valid boolean": "true or false",
    "a valid tuple": "a list",
    "a valid dictionary": "an object",
}
_JSON_TYPES = {
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


def _pattern_of(annotated: Any) -> str:
    schema = TypeAdapter(annotated).json_schema()
    return str(schema["pattern"])


_FORMS = {
    _pattern_of(TaskId): "should be the id of a task, from space_repo_create_task or space_repo_list_tasks",
    _pattern_of(RepoId): "should be the id of a repository, from space_repo_clone or space_repo_list",
    _pattern_of(Sha256): "should be sha256: and 64 hex digits, as space_repo_read_file gives it",
    _pattern_of(LogName): "should be stdout, stderr or service-NAME",
}
"""What a text with this pattern is."""


def leave_out_empty(tool: Tool | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call without optional ones that a model filled with an empty text (docs/adr/0195). Pure."""
    fields = tool.input_model.model_fields if tool else {}
    filled = {name for name in _FILLED & fields.keys() if not fields[name].is_required()}
    return {name: value for name, value in arguments.items() if name not in filled or value != ""}


def find_beginnings(tool: Tool | None, arguments: Mapping[str, Any]) -> frozenset[str]:
    """The texts in the arguments of a call that may be beginnings of ids of tasks. `against` may be a commit, too, so
    it is one only with `task-`. A list that is longer than the tool takes is left to `validate_arguments`. Pure.
    """
    given = {name: arguments.get(name) for name in tool.input_model.model_fields} if tool else {}
    others, against = given.get("task_ids"), given.get("against")
    texts = [given.get("task_id"), *(others if isinstance(others, list) and len(others) <= MOST_TASKS else ())]
    texts += [against] if str(against).startswith("task-") else []
    return frozenset(one for one in texts if isinstance(one, str) and _BEGINNING.fullmatch(one))


def may_name_briefly(tool: Tool | None, arguments: Mapping[str, Any]) -> bool:
    """Whether `complete_ids` may change the arguments of a call. Pure."""
    return bool(find_beginnings(tool, arguments)) or _find_repository(tool, arguments) is not None


def complete_ids(workbench: Workbench, tool: Tool | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call with the whole ids of tasks that they name by a beginning, as lists for people show them,
    and of a repository that they name without its host.

    So a question, its answer and the journal have whole ids. Raises: `invalid_input` when several fit.
    """
    beginnings = find_beginnings(tool, arguments)
    whole = {one: workbench.complete_id(f"task-{one.removeprefix('task-')}") for one in beginnings}

    def complete(value: Any) -> Any:
        return whole.get(value, value) if isinstance(value, str) else value

    completed = {
        name: complete(value) if name in {"task_id", "against"} else value for name, value in arguments.items()
    }
    if beginnings and isinstance(others := completed.get("task_ids"), list):
        completed["task_ids"] = [complete(other) for other in others]
    if (repository := _find_repository(tool, arguments)) is not None:
        completed["repo_id"] = _complete_repository(workbench, repository)
    return completed


def _find_repository(tool: Tool | None, arguments: Mapping[str, Any]) -> str | None:
    """What may be the name of a repository, if the tool takes one."""
    given = arguments.get("repo_id") if tool is not None and "repo_id" in tool.input_model.model_fields else None
    return given if isinstance(given, str) and re.fullmatch(SLUG_PATTERN, given) else None


def _complete_repository(workbench: Workbench, name: str) -> str:
    try:
        return workbench.repository(name).id
    except SandboxError as error:
        if error.code is not ErrorCode.NOT_FOUND:
            raise
        return name  # the call says what it looked for


def validate_arguments(tool: Tool, arguments: dict[str, Any], hint: str = "") -> Any:
    """The input model of a tool. `hint`: where the caller finds its schema.

    Raises: `invalid_input`, with each field that is wrong.
    """
    try:
        return tool.input_model.model_validate(arguments)
    except ValidationError as error:
        unused = tool.input_model.model_fields.keys() - arguments.keys()
        wrong = [_describe_wrong_field(tool.input_model, e, unused) for e in error.errors()[:_MAX_ERRORS]]
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{tool.name} does not accept these arguments",
            details="\n".join(wrong)[:_MAX_CHARS],
            hint=" ".join(filter(None, (_list_arguments(tool), hint))),
        ) from error


def _list_arguments(tool: Tool) -> str:
    fields = tool.input_model.model_fields
    required = [name for name, field in fields.items() if field.is_required()]
    optional = [name for name in fields if name not in required]
    parts = [", ".join(required), f"optional: {', '.join(optional)}" if optional else ""]
    return f"{tool.name} takes {'; '.join(filter(None, parts)) or 'no arguments'}."


def _describe_wrong_field(model: type[Input], error: ErrorDetails, unused: Collection[str]) -> str:
    """`unused`: the fields that were not given: one of them may be meant by an unknown one, as `old` by `old_text`."""
    name = ".".join(map(str, error["loc"]))[:_NAME_CHARS]
    if error["type"] == "extra_forbidden":
        near = _find_meant(name, unused)
        return f"{name}: there is no such argument{f'; did you mean {near}?' if near else ''}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    field = model.model_fields.get(str(error["loc"][0])) if error["loc"] else None
    meaning = f" {field.description}" if field is not None and field.description else ""
    return f"{name}: {_describe_expected(error)}.{meaning}"


def _find_meant(name: str, unused: Collection[str]) -> str:
    """The field that has a word of its name in common, as `old` with `old_string`, or is close."""
    words = set(name.split("_"))
    sharing = [field for field in unused if words & set(field.split("_"))]
    near = sharing if len(sharing) == 1 else difflib.get_close_matches(name, unused, 1, _ALIKE)
    return near[0] if near else ""


def _describe_expected(error: ErrorDetails) -> str:
    if error["type"] == "missing":
        return "is missing"
    if error["type"] == "string_pattern_mismatch":
        return _FORMS.get(error["ctx"]["pattern"], "has another form")
    expected = error["msg"].split(", unable to")[0]
    for jargon, word in _WORDS.items():
        expected = expected.replace(jargon, word)
    given = _JSON_TYPES.get(type(error["input"]), "null")
    return f"{expected}, not {given}" if error["type"].endswith("_type") else expected


def request_tool_approval(agent: Agent, arguments: Any) -> ApprovalResult:
    """The tool that asks for approval ahead of a call. Raises: `not_found` for another tool; `approval_denied`."""
    tool = TOOLS.get(arguments.tool)
    if tool is None or tool.name == REQUEST_APPROVAL or not agent.offers(tool.preset):
        offered = [t.name for t in TOOLS.values() if t.name != REQUEST_APPROVAL and agent.offers(t.preset)]
        raise not_found_error("tool", arguments.tool[:100], offered, "Give the name of the tool that you would call.")
    wanted = complete_ids(agent.workbench, tool, leave_out_empty(tool, arguments.arguments))
    return request_approval(agent, tool, validate_arguments(tool, wanted))
