"""What one edit may hold in memory. The gate's answers: tests/unit/edits/test_patch.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.edits import hash_gate
from sandbox.edits.hash_gate import HashGate
from sandbox.errors import ErrorCode
from sandbox.files.tree import READ_CAP, WorktreeFiles, sha256_of
from tests.unit.conftest import refused

SIZE = 1000
HASH = sha256_of(b"x" * SIZE)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[HashGate]:
    for number in range(4):
        (tmp_path / f"f{number}").write_bytes(b"x" * SIZE)
    with WorktreeFiles(tmp_path) as files:
        yield HashGate(files)


def test_s09_the_files_of_one_edit_have_a_limit_together(gate: HashGate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_gate, "GATED_BYTES", 3 * SIZE)
    three = {f"f{number}": HASH for number in range(3)}
    assert len(gate.check_states({**three, "new": None})) == 4
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        gate.check_states({**three, "f3": HASH})
    assert str(3 * SIZE) in caught.value.brief
    assert "f3" in caught.value.details


def test_s09_a_file_past_the_limit_is_not_read(gate: HashGate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is asked before: the wrong hash of the file is not noticed."""
    monkeypatch.setattr(hash_gate, "GATED_BYTES", SIZE)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        gate.check_states({"f0": HASH, "f1": f"sha256:{'0' * 64}"})


def test_a_file_that_is_too_large_alone_names_its_own_limit(gate: HashGate, tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as stream:
        stream.truncate(READ_CAP + 1)
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        gate.check_states({"large": HASH})
    assert str(READ_CAP) in caught.value.brief


def test_s09_the_files_that_one_edit_names_have_a_limit(gate: HashGate, monkeypatch: pytest.MonkeyPatch) -> None:
    """No path is looked at: the call would hold the task's lock for long."""
    monkeypatch.setattr(hash_gate, "MOST_FILES", 3, raising=False)
    assert len(gate.check_states({"f0": HASH, "f1": HASH, "new": None})) == 3
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        gate.check_states({"f0": HASH, "f1": HASH, "new": None, "../x": None})
    assert "at most 3 files" in caught.value.brief
