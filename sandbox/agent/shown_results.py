"""Turn the result or error of a use-case into JSON, for any protocol: safe to show, within a budget.

Guest text stays in the fields that the models define. Control sequences and invisible characters in it are neutralised,
except in the content of a file: an edit needs the exact text (`file_results`). Elsewhere CRLF is shown as a line break,
except in texts that an agent compares or sends back: a diff, and a file with conflict markers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from sandbox.agent.file_results import end_cut_content, file_result
from sandbox.agent.json_lines import neutralise_values
from sandbox.agent.tool_hints import replace_commands
from sandbox.agent.tools import Tool
from sandbox.errors import SandboxError
from sandbox.models import Diff, FileContent, SyncResult
from sandbox.text import neutralise_lines, one_line
from sandbox.workbench import Workbench

BUDGET_BYTES = 50 * 1024
_MOST_LOSSES = 3  # of one task in one answer; each has a limit (`sandbox.cluster.answers`)
_NOTICE_BYTES = 512  # part of the budget that is reserved for the notice about a cut


class ShownResult(NamedTuple):
    """`document`: what fits into the budget. `text`: the same as JSON. `notice`: what was left out; '' without any."""

    document: dict[str, Any]
    text: str
    notice: str


def show_result(tool: Tool, result: BaseModel, budget_bytes: int = BUDGET_BYTES) -> ShownResult:
    """The result of a call, at most `budget_bytes` of JSON. A notice says what was left out and how to get it."""
    document = _show(result)
    text, omitted = _shorten(document, tool.cut_fields, budget_bytes - _NOTICE_BYTES)
    if not omitted:
        return ShownResult(document, text, "")
    hint = tool.cut_hint
    if isinstance(result, FileContent):
        hint = end_cut_content(document)
        text = _json(document)
    words = ", ".join(f"{count} of {field}" for field, count in omitted.items())
    return ShownResult(document, text, f"Left out to keep the answer short: {words}. {hint}")


def show_error(error: SandboxError, home: Path) -> str:
    """A typed error as JSON, without paths of this host, and with tools in place of the commands in its hint."""
    payload = neutralise_values(error.payload())
    payload["error"]["hint"] = replace_commands(payload["error"]["hint"])
    return _json(payload).replace(_json(str(home))[1:-1], "$SANDBOX_HOME")


def take_losses(workbench: Workbench, arguments: Mapping[str, Any]) -> list[str]:
    """What the task of a call lost with its worker on a cluster, if this was not reported before. Other clients of this
    process ask about other tasks. Empty for a name that cannot be of a task or run: the answer says so.
    """
    owner = arguments.get("task_id") or arguments.get("run_id")
    if not isinstance(owner, str) or not owner:
        return []
    try:
        return [one_line(loss) for loss in workbench.take_losses(owner)[-_MOST_LOSSES:]]
    except SandboxError:  # beside the answer to the call, which has an error of its own where state is damaged
        return []


def _show(result: BaseModel) -> dict[str, Any]:
    shown = file_result(result) if isinstance(result, FileContent) else result
    document: dict[str, Any] = neutralise_values(shown.model_dump(mode="json"))
    for remark in document.get("advice", ()):
        remark["remedy"] = replace_commands(remark["remedy"])
    if isinstance(shown, FileContent):
        document["content"] = shown.content
    elif isinstance(shown, Diff):
        document["text"] = neutralise_lines(shown.text)
    elif isinstance(shown, SyncResult):
        for conflict, entry in zip(shown.conflicts, document["conflicts"], strict=True):
            entry["merged"] = conflict.merged and neutralise_lines(conflict.merged)
            entry["excerpt"] = conflict.excerpt and neutralise_lines(conflict.excerpt)
    return document


def _shorten(document: dict[str, Any], fields: tuple[str, ...], max_bytes: int) -> tuple[str, dict[str, int]]:
    """Cut the longest field until the JSON fits. Returns it, and how many characters or entries of each are cut.

    `runs.stdout_tail` means that field in each run; such fields are cut before any whole entry is left out.
    """
    omitted: dict[str, int] = {}
    while (excess := len(text := _json(document)) - max_bytes) > 0:
        holder, name = _longest(document, [f for f in fields if "." in f]) or _longest(document, fields) or ({}, "")
        if not name:
            break
        kept = _cut(holder[name], excess, tail=name.endswith("_tail"))
        omitted[name] = omitted.get(name, 0) + len(holder[name]) - len(kept)
        holder[name] = kept
        if name.endswith("_tail"):  # unknown now: the shown text differs from the guest's bytes
            holder.pop(f"{name.removesuffix('_tail')}_shown_from_byte", None)
        if "truncated" in holder:
            holder["truncated"] = True
    return text, omitted


def _longest(document: dict[str, Any], fields: Iterable[str]) -> tuple[dict[str, Any], str] | None:
    """The object that has the longest of the fields, and the field's name; None when all are empty."""
    found: list[tuple[dict[str, Any], str]] = []
    for field in fields:
        owner, _, name = field.rpartition(".")
        found += [(holder, name) for holder in (document.get(owner, ()) if owner else [document]) if holder.get(name)]
    return max(found, key=lambda one: len(_json(one[0][one[1]])), default=None)


def _cut(value: Any, excess: int, *, tail: bool) -> Any:
    """Shorten a value by at least one element: a tail keeps its end, other values keep their beginning."""
    size = len(_json(value))
    keep = max(0, min(len(value) - 1, int(len(value) * (size - excess) / size)))
    return value[len(value) - keep :] if tail else value[:keep]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
