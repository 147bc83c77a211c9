"""THREATS S204: the limit of a guest's pseudo terminals. The kernel's part: `tests/attack/test_s_shared.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.engine import pty_limit
from sandbox.engine.pty_limit import build_pty_options, limit_ptys

ROOT = "168 1 0:60 / / ro,relatime - overlay overlay ro,lowerdir=/a - b,max=1\n"
PTS = "169 168 0:63 / /dev/pts rw,nosuid,noexec,relatime - devpts devpts rw,gid=5,mode=620,ptmxmode=666"


def test_s204_other_options_are_kept() -> None:
    kept = {"gid": "5", "mode": "620", "ptmxmode": "666"}
    assert build_pty_options(f"{ROOT}{PTS}\n") == {**kept, "max": "256"}
    assert build_pty_options(f"{ROOT}{PTS},max=1024\n") == {**kept, "max": "256"}


@pytest.mark.parametrize("mountinfo", ["", ROOT, f"{ROOT}{PTS},max=256\n", PTS.replace("/dev/pts", "/dev/ptsx")])
def test_s204_without_one_or_with_the_limit_there_is_no_change(mountinfo: str) -> None:
    assert build_pty_options(mountinfo) == {}


def test_s204_the_hosts_own_is_never_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Control: another file system is."""
    changed: list[Path] = []
    monkeypatch.setattr(pty_limit, "_reconfigure", lambda folder, _: changed.append(folder))
    process = tmp_path / "7"
    (process / "root" / "dev" / "pts").mkdir(parents=True)
    (process / "mountinfo").write_text(PTS)
    limit_ptys(7, tmp_path)
    assert changed == [process / "root" / "dev" / "pts"]
    (process / "root" / "dev" / "pts").rmdir()
    (process / "root").rename(process / "other")
    (process / "root").symlink_to("/")
    limit_ptys(7, tmp_path)
    assert len(changed) == 1


def test_s204_a_process_that_is_gone_is_no_error() -> None:
    limit_ptys(os.getpid() + (1 << 30))
