"""The policies of a home: each file is read at its first use, and a mistake in one does not concern the others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from sandbox.errors import SandboxError
from sandbox.workbench.controller.policies_in_force import Policies

READS: dict[str, Callable[[Policies], object]] = {
    "approvals.toml": lambda policies: policies.approvals,
    "commit.toml": lambda policies: policies.commits,
    "container.toml": lambda policies: policies.container,
    "paths.toml": lambda policies: policies.paths,
}


@pytest.mark.parametrize("name", READS)
def test_a_mistake_in_one_file_is_reported_by_that_policy_only(tmp_path: Path, name: str) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / name).write_text("no toml")
    policies = Policies(tmp_path)
    for other, read in READS.items():
        if other != name:
            read(policies)
    with pytest.raises(SandboxError) as found:
        READS[name](policies)
    assert str(tmp_path / "policies" / name) in f"{found.value.brief} {found.value.details}"


def test_a_policy_is_loaded_once_and_the_mistake_is_reported_until_it_is_corrected(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    own = tmp_path / "policies" / "commit.toml"
    own.write_text("no toml")
    policies = Policies(tmp_path)
    with pytest.raises(SandboxError):
        _ = policies.commits
    own.unlink()
    loaded = policies.commits
    own.write_text("no toml")
    assert policies.commits is loaded


def test_without_a_file_of_the_operator_the_shipped_container_policy_is_in_force(tmp_path: Path) -> None:
    policies = Policies(tmp_path)
    assert policies.container is policies.shipped_container
    assert policies.workspace == PurePosixPath(policies.shipped_container.container.mounts.workspace)


def test_only_root_gives_files_to_the_guests_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policies, user = Policies(tmp_path), Policies(tmp_path).shipped_container.container.user
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert policies.pristine_owner == (user.uid, user.gid)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert policies.pristine_owner is None
