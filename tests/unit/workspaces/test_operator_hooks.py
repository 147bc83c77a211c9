"""Hooks of the operator: what they get, and what their ends mean."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from devtools.host_speed import slowness
from sandbox.errors import ErrorCode
from sandbox.workspaces import operator_hooks
from sandbox.workspaces.operator_hooks import run_hook
from tests.unit.conftest import refused


def test_no_command_is_no_hook() -> None:
    run_hook("pre_create", (), {}, {})


def test_a_hook_gets_names_and_no_other_variable(tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "SECRET": "x", "SANDBOX_HOME": "/home"}
    run_hook("pre_create", ("sh", "-c", f"pwd > {tmp_path}/said; env >> {tmp_path}/said"), {"id": "clone-1"}, environ)
    said = (tmp_path / "said").read_text().splitlines()
    assert said[0] == "/"
    assert {line.partition("=")[0] for line in said[1:]} - {"PWD", "SHLVL", "_"} == {"PATH", "SANDBOX_WORKSPACE_ID"}


def test_a_refusal_shows_the_end_of_the_output_harmless() -> None:
    script = "head -c 9000 /dev/zero | tr '\\0' x; printf 'no \\033[31mroom'; exit 3"
    with refused(ErrorCode.POLICY_VIOLATION) as caught:
        run_hook("post_create", ("sh", "-c", script), {}, {})
    assert "exit code 3" in caught.value.brief
    assert caught.value.details.endswith("room")
    assert len(caught.value.details) < 3000
    assert "\x1b" not in caught.value.details


def test_a_deadline_ends_the_hook_and_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_hooks, "DEADLINE_S", 0.2)
    began = time.monotonic()
    with refused(ErrorCode.TIMEOUT):
        run_hook("pre_create", ("sh", "-c", "sleep 60 & sleep 60"), {}, {})
    assert time.monotonic() - began < 30 * slowness()
