"""Turn the result or error of a use-case into JSON, for any protocol: safe to show, within a budget.

An error over the budget is cut in its `details` and `data`. Its `hint` says so: no surface leaves that out.

Guest text stays in the fields that the models define. Control sequences and invisible characters in it are neutralised,
except in the content of a file: an edit needs the exact text (`file_results`). Elsewhere CRLF is shown as a line break,
except in texts that an agent compares or sends back: a diff, and a file with conflict markers.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
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
_FEW_NAMES = 12  # of an object with fields; the names of a larger one, a table, are no fields
_Field = tuple[dict[str, Any], str]  # the object that has it, and its name


class ShownResult(NamedTuple):
    """`document`: what fits into the budget. `text`: the same as JSON. `notice`: what was left out; '' without any."""

    document: dict[str, Any]
    text: str
    notice: str


def show_result(tool: Tool, result: BaseModel, budget_bytes: int) -> ShownResult:
    """The result of a call, at most `budget_bytes` of JSON. A notice says what was left out and how to get it."""
    document = _show(result)
    find = partial(_longest_named, document, tool.cut_fields)
    text, omitted = _shorten(document, find, budget_bytes - _NOTICE_BYTES)
    if not omitted:
        return ShownResult(document, text, "")
    hint = tool.cut_hint
    if isinstance(result, FileContent):
        hint = end_cut_content(document)
        text = _json(document)
    return ShownResult(document, text, f"{_describe_cut(omitted)} {hint}")


def show_error(error: SandboxError, home: Path, budget_bytes: int = BUDGET_BYTES) -> str:
    """A typed error as JSON of at most `budget_bytes`, without paths of this host, and with tools in place of the
    commands in its hint.
    """
    payload = neutralise_values(error.payload())
    payload["error"]["hint"] = replace_commands(payload["error"]["hint"])
    text = _json(payload).replace(_json(str(home))[1:-1], "$SANDBOX_HOME")
    if len(text) <= budget_bytes:
        return text
    document: dict[str, Any] = json.loads(text)
    shown = document["error"]
    _, omitted = _shorten(document, partial(_longest_of_error, shown), budget_bytes - _NOTICE_BYTES)
    shown["hint"] = f"{shown['hint']} {_describe_cut(omitted)}".lstrip()
    return _json(document)


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


def _shorten(document: dict[str, Any], find: Callable[[], _Field | None], max_bytes: int) -> tuple[str, dict[str, int]]:
    """Cut the longest field, which `find` knows, until the JSON fits. Returns it, and how many characters or entries of
    each are cut.
    """
    omitted: dict[str, int] = {}
    while (excess := len(text := _json(document)) - max_bytes) > 0:
        found = find()
        if found is None:
            break
        holder, name = found
        kept = _cut(holder[name], excess, tail=name.endswith("_tail"))
        omitted[name] = omitted.get(name, 0) + len(holder[name]) - len(kept)
        holder[name] = kept
        if name.endswith("_tail"):  # unknown now: the shown text differs from the guest's bytes
            holder.pop(f"{name.removesuffix('_tail')}_shown_from_byte", None)
        if "truncated" in holder:
            holder["truncated"] = True
    return text, omitted


def _describe_cut(omitted: Mapping[str, int]) -> str:
    words = [f"{count} of {field}" for field, count in itertools.islice(omitted.items(), _FEW_NAMES)]
    more = ["others"] if len(omitted) > _FEW_NAMES else []
    return f"Left out to keep the answer short: {', '.join([*words, *more])}."


def _longest_named(document: dict[str, Any], fields: tuple[str, ...]) -> _Field | None:
    """The longest of the fields; None when all are empty. `runs.stdout_tail` means that field in each run; such fields
    are cut before any whole entry is left out.
    """
    return _longest(_list_fields(document, [f for f in fields if "." in f])) or _longest(_list_fields(document, fields))


def _list_fields(document: dict[str, Any], fields: Iterable[str]) -> Iterator[_Field]:
    for field in fields:
        owner, _, name = field.rpartition(".")
        yield from ((holder, name) for holder in (document.get(owner, ()) if owner else [document]))


def _longest_of_error(error: dict[str, Any]) -> _Field | None:
    """The longest text, list or table of the details and data of an error."""
    return _longest(part for part in _parts_below(error) if part[0] is not error or part[1] in {"details", "data"})


def _parts_below(document: dict[str, Any]) -> Iterator[_Field]:
    for name, value in document.items():
        if isinstance(value, dict) and len(value) <= _FEW_NAMES:
            yield from _parts_below(value)
        elif isinstance(value, str | list | dict):
            yield document, name


def _longest(fields: Iterable[_Field]) -> _Field | None:
    found = [(holder, name) for holder, name in fields if holder.get(name)]
    return max(found, key=lambda one: len(_json(one[0][one[1]])), default=None)


def _cut(value: Any, excess: int, *, tail: bool) -> Any:
    """Shorten a value by at least one element: a tail keeps its end, other values keep their beginning."""
    size = len(_json(value))
    keep = max(0, min(len(value) - 1, int(len(value) * (size - excess) / size)))
    if isinstance(value, dict):
        return dict(itertools.islice(value.items(), keep))
    return value[len(value) - keep :] if tail else value[:keep]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
