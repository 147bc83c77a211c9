"""What an answer of the cluster shows of logs and lists: bounded, and it says what is left out."""

from __future__ import annotations

import base64
import hashlib
import os
import zlib
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

from sandbox.cluster.operation_table import OPERATIONS
from sandbox.cluster.task_queues import (
    ALL_READS,
    LATER_READS,
    PUBLISHES,
    READS,
    READS_OF_CHANGES,
    READS_OF_RUNS,
    READS_OF_STATES,
)
from sandbox.cluster.windows import (
    MOST_ARTIFACT_BYTES,
    MOST_DOCUMENT_BYTES,
    WINDOW_BYTES,
    ArtifactArguments,
    ArtifactWindow,
    ChangesArguments,
    Page,
    PageArguments,
    RunLogArguments,
    bound_conflicts,
    collect_artifact,
    collect_changes,
    collect_pages,
    read_artifact,
    read_changes,
    read_run_log,
)
from sandbox.errors import ErrorCode
from sandbox.models import Artifact, ArtifactList, ConflictKind, MergeConflict, RunLog, SyncResult, SyncState
from sandbox.models.exported_changes import MOST_FILES, ExportedChanges
from tests.unit.conftest import refused


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
    assert reading == ALL_READS
    sets = (READS, READS_OF_RUNS, LATER_READS, READS_OF_CHANGES, READS_OF_STATES)
    assert len(ALL_READS) == sum(map(len, sets))
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


def windows_of(content: bytes, size: int | None = None) -> Callable[[int], ArtifactWindow]:
    """What a worker answers for each offset. `size`: what its list of artifacts says."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    bench = MagicMock()
    artifact = Artifact(path="a", sha256=digest, size=len(content) if size is None else size)
    bench.artifacts.return_value = ArtifactList(run_id="run-1", artifacts=(artifact,))
    bench.read_artifact.side_effect = lambda *_: iter([content])
    bench.share_artifact.return_value = ("0" * 64,)
    return lambda offset: read_artifact(bench, "task", ArtifactArguments(path="a", offset=offset))


@pytest.mark.parametrize("size", [0, 1, WINDOW_BYTES, WINDOW_BYTES + 1, 3 * WINDOW_BYTES])
def test_an_artifact_is_joined_from_its_windows(size: int) -> None:
    content = (b"0123456789\n" * (size // 11 + 1))[:size]
    ask = windows_of(content)
    assert b"".join(collect_artifact(ask(0), ask)) == content


def test_an_artifact_with_other_content_or_too_little_is_refused_before_its_end() -> None:
    content = bytes(2 * WINDOW_BYTES)
    ask, other = windows_of(content), windows_of(b"x" * len(content))
    short = windows_of(content[:-1])
    for evil in (lambda offset: (other if offset else ask)(offset), lambda offset: (short if offset else ask)(offset)):
        got = bytearray()
        with refused(ErrorCode.INTERNAL):
            for chunk in collect_artifact(ask(0), evil):
                got += chunk
        assert len(got) < len(content)


def test_a_large_artifact_is_refused_or_in_the_store_that_both_share() -> None:
    ask = windows_of(b"", MOST_ARTIFACT_BYTES + 1)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        ask(0)
    bench = MagicMock()
    artifact = Artifact(path="a", sha256=f"sha256:{'0' * 64}", size=MOST_ARTIFACT_BYTES + 1)
    bench.artifacts.return_value = ArtifactList(run_id="run-1", artifacts=(artifact,))
    bench.share_artifact.return_value = ("0" * 64,)
    found = read_artifact(bench, "task", ArtifactArguments(path="a", shared=True))
    assert (found.parts, found.content) == (("0" * 64,), b"")


def test_an_artifact_without_an_end_is_refused() -> None:
    """A worker says that it is large, and answers on. Control: a list that says the truth."""
    endless = ArtifactWindow(
        artifact=Artifact(path="a", sha256=f"sha256:{'0' * 64}", size=10**15), content=base64.b64encode(bytes(2**18))
    )
    ask = MagicMock(return_value=endless)
    with refused(ErrorCode.INTERNAL):
        for _ in collect_artifact(endless, ask):
            pass
    assert ask.call_count < 40
    with pytest.raises(ValueError, match="should have at most 64 items"):
        ArtifactWindow(artifact=endless.artifact, parts=["0" * 64] * 65)


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


@pytest.mark.parametrize("item", [{"x": 1}, None, "x", [1]])
def test_what_is_no_item_of_a_list_is_an_error_of_ours(item: object) -> None:
    with refused(ErrorCode.INTERNAL) as caught:
        list(collect_pages(lambda _limit, _skip: Page(items=[item], more=False), int, 5))
    assert caught.value.hint
    assert [*collect_pages(lambda _limit, _skip: Page(items=[1], more=False), int, 5)] == [1], "control"


def test_a_page_has_a_limit() -> None:
    with pytest.raises(ValueError, match="less than or equal"):
        PageArguments(limit=10**6)


def changes_of(document: bytes, *, compressed: bool = True) -> Callable[[int], ArtifactWindow]:
    """What a worker answers for a document that it chose."""
    whole = zlib.compress(document) if compressed else document
    artifact = Artifact(path="changes", sha256=f"sha256:{hashlib.sha256(whole).hexdigest()}", size=len(whole))

    def ask(offset: int) -> ArtifactWindow:
        return ArtifactWindow(artifact=artifact, content=base64.b64encode(whole[offset : offset + WINDOW_BYTES]))

    return ask


def many_files(count: int) -> bytes:
    files = ",".join(['{"path":"a","content":null,"of_a_newer_version":1}'] * count)
    commit = "a" * 40
    return f'{{"base_commit":"{commit}","commit":null,"tree":"{commit}","files":[{files}]}}'.encode()


def test_the_changes_of_a_task_are_joined_from_their_windows() -> None:
    content = os.urandom(WINDOW_BYTES)
    file = {"path": "new", "content": base64.b64encode(content)}
    commit = "a" * 40
    made = ExportedChanges.model_validate({"base_commit": commit, "commit": commit, "tree": commit, "files": [file]})
    bench, asked = MagicMock(), list[int]()
    bench.export_changes.return_value = made

    def ask(offset: int) -> ArtifactWindow:
        asked.append(offset)
        return read_changes(bench, "task", ChangesArguments(offset=offset))

    assert collect_changes(ask) == made
    assert len(collect_changes(changes_of(many_files(MOST_FILES))).files) == MOST_FILES, "control of one more"
    assert asked == [0, WINDOW_BYTES]


@pytest.mark.parametrize(
    "answer",
    [
        changes_of(b"{}"),
        changes_of(b"\xff"),
        changes_of(b"not compressed", compressed=False),
        changes_of(zlib.compress(b" " * 100)[:-5], compressed=False),
        changes_of(b" " * (MOST_DOCUMENT_BYTES + 1)),
        changes_of(many_files(MOST_FILES + 1)),
    ],
    ids=["another document", "no text", "not compressed", "without an end", "a bomb", "many files"],
)
def test_what_is_not_the_changes_of_a_task_is_refused(answer: Callable[[int], ArtifactWindow]) -> None:
    with refused(ErrorCode.INTERNAL) as caught:
        collect_changes(answer)
    assert caught.value.brief == "The answer of a worker cannot be read"
