from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.files.sealing import seal_tree

US = os.geteuid(), os.getegid()


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _second_name(path: Path) -> None:
    (path.parent.parent / "outside").write_text("x")
    path.hardlink_to(path.parent.parent / "outside")


def _deep(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


HOSTILE: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "socket": _socket,
    "second name": _second_name,
    "depth": _deep,
}


def test_a_sealed_tree_can_be_read_and_not_written(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/run").write_text("#!/bin/sh")
    (tree / "bin/run").chmod(0o6777)
    (tree / "data").write_text("12345")
    (tree / "data").chmod(0o666)
    (tree / "away").symlink_to("/etc/passwd")
    before = Path("/etc/passwd").stat()
    assert seal_tree(tree, US).bytes == len("#!/bin/sh") + 5 + len("/etc/passwd")
    modes = [oct((tree / name).stat().st_mode & 0o7777) for name in ("bin", "bin/run", "data")]
    assert modes == ["0o755", "0o555", "0o444"]
    assert Path("/etc/passwd").stat() == before


@pytest.mark.parametrize("target", ["/etc", "."])
def test_a_link_in_place_of_the_tree_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "tree").symlink_to(target)
    with pytest.raises(SandboxError) as raised:
        seal_tree(tmp_path / "tree", US)
    assert raised.value.code is ErrorCode.POLICY_VIOLATION


def test_a_tree_that_the_guest_deleted_or_replaced_by_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name in ("missing", "file"):
        with pytest.raises(SandboxError) as raised:
            seal_tree(tmp_path / name, US)
        assert raised.value.code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    HOSTILE[kind](tree / "x")
    with pytest.raises(SandboxError) as raised:
        seal_tree(tree, US)
    assert raised.value.code is ErrorCode.POLICY_VIOLATION
    remove_tree(tree)
