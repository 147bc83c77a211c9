"""A cached verdict is bound to what every guest gets, its environment included."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.models import Check
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.verdict_keys import build_bindings
from sandbox.workbench.controller.policies_in_force import Policies

CHECK = Check(id="test", label="test", argv=("make", "test"))


def key_in(home: Path, policy: str) -> str:
    (home / "policies").mkdir(parents=True)
    (home / "policies" / "container.toml").write_text(policy)
    return build_bindings(Policies(home), GuestSetup("sha256:" + "1" * 64, "runc"), "2" * 40, [CHECK])["test"].key


@pytest.mark.parametrize("policy", ['[env]\nGOPROXY = "direct"\n', '[env]\nTZ = "UTC"\n', "shm_bytes = 1\n"])
def test_another_policy_is_another_key(policy: str, tmp_path: Path) -> None:
    shipped = key_in(tmp_path / "a", "")
    assert key_in(tmp_path / "b", "") == shipped
    assert key_in(tmp_path / "c", policy) != shipped
