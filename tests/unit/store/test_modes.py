"""Modes below the home are the same under every umask: a guest runs as another user and must read its worktree."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from sandbox.files.overlay_mounts import find_overlay_obstacle
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream

_VARIABLE = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]+|snap-[0-9a-f-]+|[0-9a-f]{8,}|(?<=accounts/)[0-9]+|(?<=objects/)[0-9a-f]{2}"
)
Modes = Mapping[str, set[str]]


def run_main_flow(home: Path, upstream: Upstream, mask: int, layout: str) -> Modes:
    """Modes below the home after the operations that write there."""
    home.mkdir(mode=0o700)
    config = home / "config.toml"
    config.write_text(f'[workspaces]\nworktree = "{layout}"\n')
    config.chmod(0o600)
    before = os.umask(mask)
    try:
        with Workbench(home, environ={"PATH": os.environ["PATH"], "HOME": str(home.parent)}, allow_file=True) as bench:
            repository = bench.clone(str(upstream.root), partial=False).repository
            task = bench.create_task(repository.id).id
            bench.write_file(task, "new/folder/file", b"x\n", None)
            snapshot = bench.snapshot(task).id
            bench.restore(task, "head")
            bench.restore(task, snapshot)
            bench.clean_task(task)
            bench.commit(task, "a change")
            bench.push(task)
            fork = bench.fork_task(task).id
            found = read_modes(home)
            for name in (task, fork):
                bench.close_task(name, delete_worktree=True, discard=True)
            return found
    finally:
        os.umask(before)


def read_modes(home: Path, variable: re.Pattern[str] = _VARIABLE) -> Modes:
    """By path. `variable`: parts of paths that are of this run, beside ids."""
    found: dict[str, set[str]] = {}
    for path in home.rglob("*"):
        if not path.is_symlink() and "presence" not in path.parts:
            name = variable.sub("*", _VARIABLE.sub("*", str(path.relative_to(home))))
            found.setdefault(name, set()).add(stat.filemode(path.stat().st_mode))
    return found


@pytest.mark.parametrize("layout", ["overlay", "plain"])
def test_modes_below_the_home_do_not_depend_on_the_umask(upstream: Upstream, tmp_path: Path, layout: str) -> None:
    """Control: a plain file's mode does."""
    if layout == "overlay" and (reason := find_overlay_obstacle(tmp_path)):
        pytest.skip(f"no overlay mounts here: {reason}")
    upstream.write("folder/f", b"x\n")
    upstream.write("run", b"#!/bin/sh\n", executable=True)
    upstream.commit()
    modes: dict[int, Modes] = {}
    for mask in (0o022, 0o000, 0o077):
        copy = Upstream(tmp_path / "copies" / f"{mask:o}" / "upstream")
        shutil.copytree(upstream.root, copy.root)
        before = os.umask(mask)
        (tmp_path / f"plain-{mask:o}").touch()
        os.umask(before)
        modes[mask] = run_main_flow(tmp_path / f"home-{mask:o}", copy, mask, layout)

    assert len({(tmp_path / f"plain-{mask:o}").stat().st_mode for mask in modes}) == 3, "void"
    assert {name: found for name, found in modes[0o000].items() if found != modes[0o022].get(name)} == {}
    assert {name: found for name, found in modes[0o077].items() if found != modes[0o022].get(name)} == {}
    inside = {
        name: found for name, found in modes[0o077].items() if re.match(r"repositories/worktrees/[^/]+/task-", name)
    }
    assert any(name.endswith("new/folder") for name in inside)
    assert all(mode[7] == "r" and (mode[0] != "d" or mode[9] == "x") for found in inside.values() for mode in found)
