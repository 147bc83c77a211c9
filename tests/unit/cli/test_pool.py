"""`sandbox pool` says why it made no spare."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.command import Command


@pytest.mark.parametrize(("size", "why"), [("0", "pool.size is 0"), ("2", "repositories that have had a task")])
def test_a_home_without_tasks_gets_no_spares_and_is_told_why(tmp_path: Path, size: str, why: str) -> None:
    ended = Command(tmp_path / "home", {"SANDBOX_POOL_SIZE": size})("pool", "fill")
    assert ended.code == 0
    assert why in ended.stderr
    assert "0 made" in ended.stderr
