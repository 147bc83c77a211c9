"""What an operation has returned outlives a power failure. The home lies on a disk of its own, an image of ext4, whose
file is copied the moment an operation returns: what the kernel has not written to it by then is lost, as it would be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devtools.requirement import unavailable
from sandbox import Workbench
from sandbox.models import TaskOptions
from tests.unit.conftest import Upstream

DISK = {"min_free_bytes": 1, "min_free_files": 1, "reserve_bytes": 1, "reserve_files": 1}
LARGE = "a line of a file that git stores with another command\n" * 30_000
SETTINGS = {"workspaces": {"worktree": "plain"}, "disk": DISK, "remotes": {"allow_file": True}}


class Machine:
    """A home whose disk can lose its power."""

    def __init__(self, folder: Path) -> None:
        self.image = folder / "disk.img"
        self.mount_point = folder / "disk"
        self.after = folder / "after.img"
        self.home = self.mount_point / "home"

    def format(self) -> None:
        with self.image.open("wb") as file:
            file.truncate(128 << 20)
        run("mkfs.ext4", "-q", "-F", str(self.image))

    @contextmanager
    def running(self) -> Iterator[Workbench]:
        with mounted(self.image, self.mount_point), Workbench(self.home, environ={}, settings=SETTINGS) as workbench:
            yield workbench

    def fail(self) -> None:
        """What is on the disk at this moment is what the next `running` finds."""
        run("cp", "--sparse=always", str(self.image), str(self.after))

    def restart(self) -> None:
        self.after.replace(self.image)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        unavailable("mounts a disk: it needs root and mkfs.ext4")
    made = Machine(tmp_path)
    made.mount_point.mkdir()
    made.format()
    return made


def test_what_was_committed_and_kept_is_there(machine: Machine, upstream: Upstream) -> None:
    """A commit, the state before a restore, and the files of a task without a worktree. Control: a file that is only
    written is lost.
    """
    upstream.write("a.txt", b"before\n")
    upstream.commit()
    with machine.running() as workbench:
        repository = workbench.clone(str(upstream.root)).repository
        task, other = workbench.create_task(repository.id), workbench.create_task(repository.id)
        values = workbench.create_task(repository.id, options=TaskOptions(workspace_kind="tree"))
        run("sync")
        (machine.home / "only-written").write_bytes(b"x" * 100)
        sha256 = workbench.read_file(task.id, "a.txt").sha256
        workbench.write_file(task.id, "a.txt", "not committed\n" * 50, sha256)
        kept = workbench.restore(task.id, "head").previous
        workbench.write_file(values.id, "value.txt", "a value\n" * 50, None)
        workbench.write_file(other.id, "new.txt", "committed\n" * 50, None)
        workbench.write_file(other.id, "large.txt", LARGE, None)
        commit = workbench.commit(other.id, "More").commit
        machine.fail()
    machine.restart()
    assert kept is not None
    with machine.running() as workbench:
        assert (machine.home / "only-written").read_bytes() == b""
        assert workbench.status(other.id).head_commit == commit
        assert workbench.read_file(other.id, "new.txt").content == "committed\n" * 50
        assert workbench.read_file(other.id, "large.txt").content == LARGE
        assert workbench.read_file(values.id, "value.txt").content == "a value\n" * 50
        workbench.restore(task.id, kept.id)
        assert workbench.read_file(task.id, "a.txt").content == "not committed\n" * 50


def test_a_first_clone_is_there(machine: Machine, upstream: Upstream) -> None:
    upstream.write("a.txt", b"one\n")
    upstream.commit()
    with machine.running() as workbench:
        repository = workbench.clone(str(upstream.root)).repository
        machine.fail()
    machine.restart()
    with machine.running() as workbench:
        task = workbench.create_task(repository.id)
        assert task.base_commit == upstream.oid("HEAD")


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[None]:
    run("mount", "-o", "loop", str(image), str(place))
    try:
        yield
    finally:
        run("umount", str(place))


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
