"""Lines of a question about text that a push or pull request publishes: guests and agents wrote it.

Theory. A person approves what they read, so each text is shown as it is published, to its end. Where that is too long
to be read, the line before it says in our words how much is not shown. No text can look like such a line: all of it
comes after a name on a line of ours, or after a bar.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from sandbox.forges.body import list_prompt_lines
from sandbox.forges.comparison_table import list_details
from sandbox.models import Task, TreeComparison
from sandbox.text import spell_out
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery.sent_commits import list_sent_messages, name_sent_commits

MOST_MESSAGE_LINES, MOST_MESSAGE_CHARS = 600, 64 * 1024
"""Of all commit messages in a question, which has other lines as well."""

_SUBJECT_CHARS = 200


def quote_value(name: str, value: Any) -> list[str]:
    """The complete value: a person can only approve what is shown."""
    lines = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split("\n")
    return _quote(name, [spell_out(line) for line in lines])


def _quote(name: str, shown: Sequence[str]) -> list[str]:
    return [f"  {name}: {shown[0]}"] if len(shown) == 1 else [f"  {name}:", *(f"    | {line}" for line in shown)]


def describe_prompt(task: Task) -> Iterator[str]:
    """What a pull request publishes of the task's prompt."""
    shown, left_out = list_prompt_lines(task.prompt)
    if shown:
        yield "publishes in the pull request what the task was created for:"
        yield from quote_value("prompt", "\n".join(shown))
    if left_out:
        yield f"  and {left_out} more line(s) of it, which are not published: `sandbox task show {task.id}`"


def describe_comparison(found: TreeComparison | None) -> Iterator[str]:
    """What a pull request publishes of a comparison with the base: names of tests are what guests report."""
    if found is None:
        return
    result = "no new failures" if found.no_new_failures else "new failures"
    yield f"publishes in the pull request a comparison with its base, commit {found.commit[:12]}: {result}"
    details, left_out = list_details(found)
    yield from (f"  {spell_out(about)}: {spell_out(text)}" for about, text in details)
    if left_out:
        yield f"  and {left_out} more, of which it publishes the number only"


def describe_messages(services: Services, task: Task, room: int) -> Iterator[str]:
    """The messages of all commits that are sent: whole, as long as they have at most `room` lines; else each has an
    equal share.
    """
    git = services.repositories.open(task.repo_id)[1]
    found = list_sent_messages(git, task)
    messages = [(oid, message.rstrip("\n")) for oid, message in found]
    yield f"publishes: {len(messages)} commit message(s)"
    room = max(0, min(room, MOST_MESSAGE_LINES))
    shown = _show_whole(messages, room)
    if shown is not None:
        yield from shown
        return
    lines, lengths = room // len(messages), MOST_MESSAGE_CHARS // len(messages)
    parts = [_cut(message, lines - 1, lengths) for _, message in messages]
    hidden = [_count_hidden(message, part) for (_, message), part in zip(messages, parts, strict=True)]
    if any(map(any, hidden)):
        more_lines, more_chars = map(sum, zip(*hidden, strict=True))
        yield f"NOT SHOWN, and published too: {_count(more_lines, more_chars)} of {sum(map(any, hidden))} message(s)"
        clone = services.home.clone(task.repo_id)
        command = ["git", f"--git-dir={clone}", "log", "--reverse", *name_sent_commits(git, task)]
        yield f"  to read all: {spell_out(shlex.join(command))}"
    for (oid, _), part, rest in zip(messages, parts, hidden, strict=True):
        note = f"{oid}, {_count(*rest)} of it NOT SHOWN" if any(rest) else oid[:12]
        yield from _quote(note, [spell_out(line) for line in part])


def _show_whole(messages: Sequence[tuple[str, str]], room: int) -> list[str] | None:
    """None: they are too long."""
    if sum(len(message) for _, message in messages) > MOST_MESSAGE_CHARS:
        return None
    shown = [line for oid, message in messages for line in quote_value(oid[:12], message)]
    return shown if len(shown) <= room and sum(map(len, shown)) <= MOST_MESSAGE_CHARS else None


def _cut(message: str, most_lines: int, most_chars: int) -> list[str]:
    """The first lines of a message, in at most `most_chars` as they are shown; of its subject the beginning always."""
    lines = message.split("\n")
    if len(lines[0]) > _SUBJECT_CHARS:
        return [lines[0][:_SUBJECT_CHARS]]
    size, kept = len(lines[0]), 1
    for line in lines[1 : max(1, most_lines)]:
        size += len(spell_out(line)) if len(line) <= most_chars else len(line)
        if size > most_chars:
            break
        kept += 1
    return lines[:kept]


def _count_hidden(message: str, shown: Sequence[str]) -> tuple[int, int]:
    """Lines and characters. The rest of a subject that is cut is a line."""
    chars = len(message) - len("\n".join(shown))
    lines = message.count("\n") + 1 - len(shown)
    return (lines or int(chars > 0)), chars


def _count(lines: int, chars: int) -> str:
    return f"{lines:,} line(s), {chars:,} character(s)"
