"""What an answer of the cluster shows of logs and lists: bounded, and it says what is left out."""

from __future__ import annotations

import base64
from typing import Any
from unittest.mock import MagicMock

import pytest

from sandbox.cluster.operation_table import OPERATIONS
from sandbox.cluster.task_queues import PUBLISHES, READS, READS_OF_RUNS
from sandbox.cluster.windows import (
    WINDOW_BYTES,
    Page,
    PageArguments,
    RunLogArguments,
    bound_conflicts,
    collect_pages,
    read_run_log,
)
from sandbox.models import ConflictKind, MergeConflict, RunLog, SyncResult, SyncState


def log_of(content: str | bytes, *, raw: bool = False) -> RunLog:
    bench = MagicMock()
    bench.run_log.return_value = RunLog(
        run_id="run-1",
        check_id="test",
        stream="stdout",
        content=base64.b64encode(content).decode() if isinstance(content, bytes) else content,
        encoding="base64" if raw else "utf-8",
        total_bytes=len(content),
        truncated=False,
    )
    return read_run_log(bench, "task", RunLogArguments(raw=raw))


def test_the_workflow_and_the_table_agree_on_what_only_reads() -> None:
    reading = {name.value for name, row in OPERATIONS.items() if not row.changes}
    assert reading == READS | READS_OF_RUNS
    assert not READS & READS_OF_RUNS
    assert {name.value for name, row in OPERATIONS.items() if row.publishes} == PUBLISHES


def test_a_log_of_the_size_of_a_window_is_whole() -> None:
    assert log_of("x" * WINDOW_BYTES) == log_of("x" * WINDOW_BYTES).model_copy(update={"truncated": False})
    assert log_of("x" * WINDOW_BYTES).content == "x" * WINDOW_BYTES


@pytest.mark.parametrize("line", ["line\n", "x", "\u20ac", "\u20ac\u20ac\n"])
def test_a_longer_log_has_its_beginning_and_end_and_says_what_is_missing(line: str) -> None:
    content = "first\n" + line * (3 * WINDOW_BYTES // len(line.encode())) + "\nlast\n"
    found = log_of(content)
    assert found.truncated
    assert found.content.startswith("first\n")
    assert found.content.endswith("\nlast\n")
    assert "bytes are not shown" in found.content
    assert len(found.content.encode()) < WINDOW_BYTES + 200


def test_bytes_stay_bytes() -> None:
    found = log_of(b"\xff\n" * WINDOW_BYTES, raw=True)
    shown = base64.b64decode(found.content)
    assert found.truncated
    assert shown.startswith(b"\xff\n")
    assert shown.endswith(b"\xff\n")


def test_conflicts_are_all_listed_though_their_texts_have_a_limit() -> None:
    text = "x" * (WINDOW_BYTES // 2)
    conflicts = tuple(
        MergeConflict(path=f"{number}", kind=ConflictKind.BOTH_ADDED, base=None, ours=None, theirs=None, merged=text)
        for number in range(3)
    )
    commit = "0" * 40
    found = bound_conflicts(
        SyncResult(
            branch="b", head_commit=commit, base_commit=commit, ahead=0, dirty=False, changes=(),
            state=SyncState.CONFLICTS, onto=commit, conflicts=conflicts,
        )
    )  # fmt: skip
    assert [one.path for one in found.conflicts] == ["0", "1", "2"]
    assert [one.merged for one in found.conflicts] == [text, text, None]


def test_pages_are_joined_without_an_item_twice_though_one_came_meanwhile() -> None:
    items = [*range(10)]

    def ask(limit: int, skip: int) -> Page:
        found: list[Any] = items[::-1][skip:][: min(limit, 4)]
        answer = Page(items=found, more=skip + len(found) < len(items))
        items.append(len(items))
        return answer

    assert [*collect_pages(ask, int, 9)] == [9, 8, 7, 6, 5, 4, 3, 2, 1]


def test_a_page_has_a_limit() -> None:
    with pytest.raises(ValueError, match="less than or equal"):
        PageArguments(limit=10**6)
