from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.files.guest_files import read_guest_file

HOSTILE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "directory": lambda path: path.mkdir(),
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "pipe": os.mkfifo,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_regular_file_is_not_read_and_leaves_no_descriptor(kind: str, tmp_path: Path) -> None:
    HOSTILE[kind](tmp_path / "x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert read_guest_file(tmp_path / "x", 10) is None
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_start_of_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    assert read_guest_file(tmp_path / "x", 4) == b"0123"
    assert read_guest_file(tmp_path / "x", 40) == b"0123456789"
