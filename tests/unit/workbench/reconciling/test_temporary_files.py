"""Temporary files of writes that were cut off, wherever the home has records; files of guests never."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox.store.home import Home
from sandbox.store.lockfile import create_locked
from sandbox.workbench.reconciling.temporary_files import find_temporary_files

WRITTEN = (
    "credentials.toml",
    "keys/0123.pem",  # the private half of a key
    "keys/keys.json",
    "quarantine/name.json",
    "init/0123/pid1",
    "serve/receivers/name.json",
    "releases/repo/state.json",
    "releases/repo/manifests/tree.json",
    "repositories/registry.json",
    "repositories/tasks/task-1.json",
    "repositories/artifacts/content",
    "repositories/verdicts/key.json",
    "repositories/placed/seen/name.task-1.json",
    "repositories/operations/task-1/1/operation.json",
    "repositories/operations/task-1/permitted-1.json",
    "repositories/workspaces/clone/id.json",
    "repositories/flaky/repo/tests.json",
    "repositories/pristine/repo/commit.json",
    "repositories/layers/repo/task-1/base",
    "repositories/logs/task-1/run-1.json",
    "repositories/trust/repo/digest.json",
    "repositories/dependencies/layers/key.json",
    "repositories/dependencies/resolutions/key.json",
    "repositories/dependencies/failures/key.json",
    "repositories/compilers/repo/image/current.json",
    "repositories/candidates/repo/key/manifest.json",
)
OF_GUESTS = (
    "releases/repo/tree/file",
    "repositories/worktrees/repo/task-1/file",
    "repositories/rooms/run-1/file",
    "repositories/reports/task-1/file",
    "repositories/workspaces/clone/id/file",
    "repositories/pristine/repo/commit/file",
    "repositories/dependencies/trees/folder/file",
    "repositories/compilers/repo/image/folder/file",
    "repositories/candidates/repo/key/files/file",
)


def cut_off(path: Path) -> Path:
    """A temporary file as a killed writer leaves it: no process holds its lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, beside = create_locked(path)
    os.close(fd)
    return beside


@pytest.mark.parametrize(("names", "is_ours"), [(WRITTEN, True), (OF_GUESTS, False)], ids=["ours", "guests'"])
def test_files_of_writes_that_were_cut_off_are_found_in_all_places(
    tmp_path: Path, names: tuple[str, ...], *, is_ours: bool
) -> None:
    home = Home(tmp_path)
    left = {cut_off(tmp_path / name).relative_to(tmp_path) for name in names}
    reconciler = cast("Any", SimpleNamespace(services=SimpleNamespace(home=home)))
    findings = list(find_temporary_files(reconciler))
    assert {Path(finding.name) for finding in findings} == (left if is_ours else set())
    assert all(finding.remedy is not None and finding.remedy() == "" for finding in findings)
    assert bool(list(tmp_path.rglob("*.tmp"))) != is_ours
