"""Tokens in files of the home."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.token_file import read_metrics_token, read_token
from tests.unit.conftest import refused

AGENTS = "a" * 40


def test_the_token_for_metrics_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    made = read_metrics_token(tmp_path, AGENTS)
    path = tmp_path / "metrics-token"
    assert (path.read_text(), path.stat().st_mode & 0o777, len(made) >= 32) == (made, 0o600, True)
    assert read_metrics_token(tmp_path, AGENTS) == made
    path.chmod(0o640)
    with refused(ErrorCode.POLICY_VIOLATION):
        read_metrics_token(tmp_path, AGENTS)


def test_the_token_of_agents_is_none_for_metrics(tmp_path: Path) -> None:
    read_metrics_token(tmp_path, AGENTS)
    (tmp_path / "metrics-token").write_text(f"{AGENTS}\n")
    with refused(ErrorCode.POLICY_VIOLATION):
        read_metrics_token(tmp_path, AGENTS)


def test_a_short_token_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("hunter2\n")
    path.chmod(0o600)
    with pytest.raises(SandboxError) as caught:
        read_token(path, create=False)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert "chmod" not in caught.value.hint
    assert str(path) in caught.value.hint
