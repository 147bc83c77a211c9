"""A fork with the build output of its task: what is copied, what never is, and what stays incremental."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.files import artifact_copy
from sandbox.files.tree import WorktreeFiles
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

BUILT_NS = 1_700_000_000_123_456_789


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    upstream.write("Makefile", b"test:\n\ttrue\n")
    upstream.write("kept.so", b"tracked\n")
    found = Desk(upstream, tmp_path / "sandbox-home")
    with found.workbench:
        yield found


def build(desk: Desk, path: str, content: bytes = b"built") -> Path:
    made = desk.write(path, content, executable=path == "tool.o")
    os.utime(made, ns=(BUILT_NS, BUILT_NS))
    return made


def test_build_output_comes_along_with_its_times_and_nothing_else(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    for path in ("a.o", "deep/er/b.o", "tool.o"):
        build(desk, path)
    build(desk, "x.log")  # ignored by the repository, and no build output of the profile
    desk.write("source.c", b"int x;\n")
    (desk.root / "link.o").symlink_to(tmp_path / "secret")
    (desk.root / "way").symlink_to(tmp_path)
    os.mkfifo(desk.root / "pipe.o")
    fork = desk.workbench.fork_task(desk.task.id, with_artifacts=True)
    root = desk.worktree(fork)
    names = {
        str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and p.suffix in {".o", ".log", ".c", ".so"}
    }
    assert names == {"a.o", "deep/er/b.o", "tool.o", "source.c", "kept.so"}
    assert not {"link.o", "way", "pipe.o"} & {path.name for path in root.iterdir()}
    for path in ("a.o", "deep/er/b.o"):
        assert (root / path).read_bytes() == b"built"
        assert (root / path).stat().st_mtime_ns == BUILT_NS
    assert ((root / "tool.o").stat().st_mode & 0o777, (root / "a.o").stat().st_mode & 0o777) == (0o755, 0o644)
    assert (root / "a.o").stat().st_uid == root.stat().st_uid
    assert (root / "source.c").stat().st_mtime_ns > BUILT_NS  # a build tool compiles it again
    assert [c.path for c in desk.workbench.status(fork.id).changes] == ["source.c"]
    (root / "a.o").write_bytes(b"of the fork")
    assert (desk.root / "a.o").read_bytes() == b"built"


def test_without_the_option_nothing_is_copied_and_a_snapshot_has_none(desk: Desk) -> None:
    build(desk, "a.o")
    assert not (desk.worktree(desk.workbench.fork_task(desk.task.id)) / "a.o").exists()
    kept = desk.workbench.snapshot(desk.task.id)
    with refused(ErrorCode.INVALID_INPUT):
        desk.workbench.fork_task(desk.task.id, kept.id, with_artifacts=True)


def test_files_of_the_fork_are_not_replaced(desk: Desk) -> None:
    desk.write("kept.so", b"changed\n")
    fork = desk.workbench.fork_task(desk.task.id, with_artifacts=True)
    assert (desk.worktree(fork) / "kept.so").read_bytes() == b"changed\n"
    assert [c.path for c in desk.workbench.status(fork.id).changes] == ["kept.so"]


def test_on_a_full_disk_a_fork_has_no_half_of_a_file_and_the_caller_learns_of_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a disk takes a part of the bytes of a write, and only the next one fails."""
    for path in ("a.o", "b.o", "c.o"):
        build(desk, path, b"x" * 3000)
    left = 4000

    def write(fd: int, data: bytes) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = real_write(fd, data[:left])
        left -= taken
        return taken

    def share(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    real_write = os.write
    root = desk.worktree(desk.workbench.fork_task(desk.task.id))
    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(fcntl, "ioctl", share)
    with WorktreeFiles(desk.root) as source, WorktreeFiles(root) as target, refused(ErrorCode.QUOTA_EXCEEDED):
        artifact_copy.copy_artifacts(
            source, target, artifact_copy.find_artifacts(source, lambda path: path.endswith(b".o")), None
        )
    assert {path.name: path.stat().st_size for path in root.glob("*.o")} == {"a.o": 3000}
