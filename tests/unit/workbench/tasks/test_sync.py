"""Sync and checkout: the task's work is never lost, a conflict changes nothing, and later steps see the new base."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import ConflictKind, ConflictResolution, MergeConflict, SyncState
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk, on_disk


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def advance(desk: Desk, path: str = "f", content: bytes = b"zero\none\ntwo\n") -> str:
    """A new commit on the remote's default branch."""
    desk.upstream.write(path, content)
    return desk.upstream.commit()


def answer(conflict: MergeConflict, **choice: str) -> ConflictResolution:
    ours, theirs = (side and side.blob for side in (conflict.ours, conflict.theirs))
    return ConflictResolution.model_validate({"path": conflict.path, "ours": ours, "theirs": theirs, **choice})


def test_uncommitted_changes_are_merged_with_the_newer_base_and_the_state_before_is_a_snapshot(desk: Desk) -> None:
    desk.write("f", b"one\ntwo\nthree\n")
    desk.write("kept.log", b"ignored")
    tip = advance(desk)
    done = desk.workbench.sync_task(desk.task.id, fetch=True)
    assert (done.state, done.onto, done.base_commit, done.head_commit) == (SyncState.SYNCED, tip, tip, tip)
    assert (desk.root / "f").read_bytes() == b"zero\none\ntwo\nthree\n"
    assert (desk.root / "kept.log").read_bytes() == b"ignored"
    assert [c.path for c in done.changes] == ["f"]
    assert done.previous is not None
    assert desk.git("show", f"{done.previous.tree}:f") == "one\ntwo\nthree\n"
    assert desk.workbench.sync_task(desk.task.id).state is SyncState.UP_TO_DATE
    text = desk.workbench.diff(desk.task.id).text
    assert "+three" in text
    assert "zero" not in [line[1:] for line in text.splitlines() if line[:1] in "+-"]


def test_own_commits_stay_below_a_merge_commit(desk: Desk) -> None:
    desk.write("mine", b"mine\n")
    own = desk.workbench.commit(desk.task.id, "mine").commit
    tip = advance(desk)
    done = desk.workbench.sync_task(desk.task.id, fetch=True)
    assert desk.git("rev-parse", f"{done.head_commit}^1", f"{done.head_commit}^2").split() == [own, tip]
    assert (done.dirty, done.ahead, done.previous) == (False, 2, None)
    assert [file.path for file in desk.workbench.diff(desk.task.id).files] == ["mine"]
    assert (desk.root / "f").read_bytes() == b"zero\none\ntwo\n"
    desk.write("mine", b"more\n")
    desk.workbench.commit(desk.task.id, "more")
