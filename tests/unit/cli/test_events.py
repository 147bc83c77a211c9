"""A line of `sandbox events` says each thing once, and what was decided."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sandbox.cli.events import describe_operation
from sandbox.files.tree import sha256_of
from sandbox.models import Actor, HomeEvent, HomeEventKind, JournalEntry

TASK = "task-00000000-0000-0000-0000-000000000000"
APPROVAL = f"apr-{'a' * 26}"


def made(operation: str, *names: str, **facts: str) -> HomeEvent:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    entry = JournalEntry(
        at=at, actor=Actor.CLI, operation=operation, names=names, arguments=sha256_of(b""), result="ok", duration_s=0,
        facts=facts,
    )  # fmt: skip
    return HomeEvent(id="x/1", at=at, kind=HomeEventKind.TASK, task_id=TASK, operation=entry)


@pytest.mark.parametrize(
    ("operation", "names", "line"),
    [
        ("create", [TASK, "09dd"], f"create of {TASK} 09dd"),
        ("check", ["test", "test passed"], f"check of {TASK} test passed"),
        ("check", ["test", "tests passed"], f"check of {TASK} test, tests passed"),
        (
            "approve",
            ["space_repo_push", "ada in the dashboard", APPROVAL, "approved", "once"],
            f"approve of {TASK} space_repo_push, ada in the dashboard, {APPROVAL}, approved, once",
        ),
        ("edit", list("abcdefg"), f"edit of {TASK} a, b, c, d, e and 2 more"),
        ("edit", ["a\x1b[31m\nb"], f"edit of {TASK} a␤b"),
        ("gc", [], f"gc of {TASK}"),
    ],
)
def test_a_line_names_each_thing_once(operation: str, names: list[str], line: str) -> None:
    assert describe_operation(made(operation, *names)) == line


def test_a_cleaning_says_what_it_removed() -> None:
    event = made("gc", a="removed closed task x", b="kept storage home", c="busy clone y", d="failed look z")
    assert describe_operation(event) == f"gc of {TASK} removed closed task x, failed look z"
    assert describe_operation(made("check", "test", a="removed x")) == f"check of {TASK} test", "the control"
