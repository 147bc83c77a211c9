"""What an operation has returned outlives a power failure. The home lies on a disk of its own, an image of ext4, whose
file is copied the moment an operation returns: what the kernel has not written to it by then is lost, as it would be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devtools.requirement import unavailable
from sandbox import Workbench
from sandbox.files.git_mask import require_mask
from sandbox.files.mount_points import unmount_below
from sandbox.models import TaskOptions, WorkspaceRequest
from sandbox.store.home import GIT_MASK
from tests.unit.conftest import Upstream

DISK = {"min_free_bytes": 1, "min_free_files": 1, "reserve_bytes": 1, "reserve_files": 1}
LARGE = "a line of a file that git stores with another command\n" * 30_000
LAYOUTS = ("plain", "overlay")
CONTENT = b"content of the repository\n" * 20


class Machine:
    """A home whose disk can lose its power."""

    def __init__(self, folder: Path, layout: str = "plain") -> None:
        self.settings = {"workspaces": {"worktree": layout}, "disk": DISK, "remotes": {"allow_file": True}}
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
        with mounted(self.image, self.mount_point):
            try:
                with Workbench(self.home, environ={}, settings=self.settings) as workbench:
                    yield workbench
            finally:
                unmount_below(self.home)

    def fail(self) -> None:
        """What is on the disk at this moment is what the next `running` finds."""
        run("cp", "--sparse=always", str(self.image), str(self.after))

    def restart(self) -> None:
        self.after.replace(self.image)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return make_machine(tmp_path, "plain")


def make_machine(tmp_path: Path, layout: str) -> Machine:
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        unavailable("mounts a disk: it needs root and mkfs.ext4")
    made = Machine(tmp_path, layout)
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
        run("sync", "-f", str(machine.mount_point))  # of this disk alone: others are busy
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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_files_of_a_new_worktree_are_there(tmp_path: Path, upstream: Upstream, layout: str) -> None:
    """Of a new task, of one that was cleaned, and of a workspace of the kind `clone`. Empty files would be shown, and
    committed, as changes of the user. Control: a file that is only written is lost.
    """
    machine = make_machine(tmp_path, layout)
    for number in range(5):
        upstream.write(f"d/f{number}.txt", CONTENT)
    upstream.commit()
    with machine.running() as workbench:
        repository = workbench.clone(str(upstream.root)).repository
        cleaned = workbench.create_task(repository.id)
        run("sync", "-f", str(machine.mount_point))  # of this disk alone: others are busy
        new = workbench.create_task(repository.id)
        workspace = workbench.acquire_workspace("clone", WorkspaceRequest(hint=repository.id))
        workbench.write_file(cleaned.id, "new.txt", "mine\n", None)
        workbench.clean_task(cleaned.id)
        assert new.worktree_path is not None
        (new.worktree_path / "only-written").write_bytes(b"x" * 100)
        machine.fail()
    machine.restart()
    with machine.running() as workbench:
        assert {change.path for change in workbench.status(new.id).changes} <= {"only-written"}
        assert (new.worktree_path / "d" / "f0.txt").read_bytes() == CONTENT
        require_mask(new.worktree_path, GIT_MASK)
        written = new.worktree_path / "only-written"
        assert not written.exists() or written.read_bytes() == b""
        assert [change.path for change in workbench.status(cleaned.id).changes] == ["new.txt"]
        assert workbench.read_file(cleaned.id, "new.txt").content == "mine\n"
        again = workbench.acquire_workspace("clone", WorkspaceRequest(hint=repository.id))
        assert (again.id, again.diff()) == (workspace.id, [])


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[None]:
    run("mount", "-o", "loop", str(image), str(place))
    try:
        yield
    finally:
        ends_at = (
            time.monotonic() + 20
        )  # each start of a container copies the table of mounts, and uses it for a moment
        while subprocess.run(["umount", str(place)], capture_output=True, check=False).returncode:
            assert time.monotonic() < ends_at, f"{place} is in use"
            time.sleep(0.1)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
