"""What it costs to find that a text is in a file more than once. Results: tests/unit/workbench/tasks/test_edit.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.edits import replace
from sandbox.edits.hash_gate import HashGate
from sandbox.errors import ErrorCode
from sandbox.files.tree import WorktreeFiles, sha256_of
from tests.unit.conftest import refused

SIZE = 4000


def count(folder: Path, old: bytes) -> tuple[str, int]:
    """What is said of a text of one letter in a file of this letter, and the number of its places."""
    content = b"a" * SIZE
    (folder / "f").write_bytes(content)
    with WorktreeFiles(folder) as files, refused(ErrorCode.PATCH_REJECTED) as caught:
        replace.replace_text(HashGate(files), "f", old, b"b", sha256_of(content))
    found = (caught.value.data or {})["matches"]
    assert isinstance(found, int)
    return f"{caught.value.brief} {caught.value.details}", found


def test_s216_each_occurrence_of_a_long_text_costs_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: without the limit a thousand of them are counted."""
    old = b"a" * (SIZE // 2)
    assert count(tmp_path, old)[1] * len(old) > 100 * SIZE
    monkeypatch.setattr(replace, "_COUNTED_BYTES", 3 * SIZE)
    said, found = count(tmp_path, old)
    assert 2 <= found <= 7
    assert f"occurs {found} or more times" in said
    assert "and more" in said


@pytest.mark.parametrize("short", [1, 2])
def test_s216_two_occurrences_are_seen_however_long_the_text_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: int
) -> None:
    monkeypatch.setattr(replace, "_COUNTED_BYTES", 0)
    said, found = count(tmp_path, b"a" * (SIZE - short))
    assert (found, "occurs 2" in said) == (2, True)
