"""The arguments of a call, checked against its tool's model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sandbox.agent.agent import Agent
from sandbox.agent.outputs import ApprovalResult
from sandbox.agent.permission import request_approval
from sandbox.agent.tools import REQUEST_APPROVAL, TOOLS, Tool
from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench import Workbench

_ALIKE = 0.5
"""How near the name of an argument is to one that may be meant: enough for `old_text` and `old`."""

_BEGINNING = re.compile(r"(?:task-)?([0-9a-f]{4}[0-9a-f-]{0,31})")
"""Of the id of a task; `-`, the task of a terminal, is none of an agent."""

_NAME_CHARS = 100
"""Of an argument that is wrong; a request sets its length."""


def complete_task_ids(workbench: Workbench, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call with the whole ids of tasks that they name by a beginning, as lists for people show them.

    So a question, its answer and the journal have whole ids. Raises: `invalid_input` when several tasks begin so.
    """

    def complete(value: Any) -> Any:
        found = _BEGINNING.fullmatch(value) if isinstance(value, str) else None
        return workbench.complete_id(f"task-{found[1]}") if found else value

    completed = {name: complete(value) if name == "task_id" else value for name, value in arguments.items()}
    if isinstance(others := completed.get("task_ids"), list):
        completed["task_ids"] = [complete(other) for other in others]
    return completed


def validate_arguments(tool: Tool, arguments: dict[str, Any], hint: str = "tools/list has the schema.") -> Any:
    """The input model of a tool. `hint`: where the caller finds its schema.

    Raises: `invalid_input`, with each field that is wrong.
    """
    try:
        return tool.input_model.model_validate(arguments)
    except ValidationError as error:
        unused = tool.input_model.model_fields.keys() - arguments.keys()
        wrong = [_describe_wrong_field(e, unused) for e in error.errors(include_input=False)[:10]]
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{tool.name} does not accept these arguments",
            details="\n".join(wrong)[:2000],
            hint=hint,
        ) from error


def _describe_wrong_field(error: ErrorDetails, unused: Collection[str]) -> str:
    """`unused`: the fields that were not given: one of them may be meant by an unknown one, as `old` by `old_text`."""
    name = ".".join(map(str, error["loc"]))[:_NAME_CHARS]
    near = difflib.get_close_matches(name, unused, 1, _ALIKE) if error["type"] == "extra_forbidden" else []
    return f"{name}: {error['msg']}{f'; did you mean {near[0]}?' if near else ''}"


def request_tool_approval(agent: Agent, arguments: Any) -> ApprovalResult:
    """The tool that asks for approval ahead of a call. Raises: `not_found` for another tool; `approval_denied`."""
    tool = TOOLS.get(arguments.tool)
    if tool is None or tool.name == REQUEST_APPROVAL or not agent.offers(tool.preset):
        raise SandboxError(ErrorCode.NOT_FOUND, f"There is no tool {arguments.tool[:100]!r}")
    wanted = complete_task_ids(agent.workbench, arguments.arguments)
    return request_approval(agent, tool, validate_arguments(tool, wanted))
