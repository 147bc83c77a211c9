"""THREATS S07, S08: the host's own writes fill the disk, and a full disk can no longer be emptied."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from devtools.mounts import small_file_system
from devtools.requirement import unavailable
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.disk_usage import FreeSpace
from sandbox.git import maintenance, new_commits, objects
from sandbox.git.contents import content_of
from sandbox.git.entries import REGULAR, TreeChange
from sandbox.git.process import Git
from sandbox.git.transport import RemoteAccess
from sandbox.models import ProbeLevel, Task, TaskStatus, WorkspaceRequest
from sandbox.store.home import Home, write_json
from sandbox.workbench import Workbench
from sandbox.workbench.controller.disk_admission import Demand, Writer
from sandbox.workbench.delivery import hub, imported_tasks
from sandbox.workbench.reconciling import clone_objects
from sandbox.workspaces.own_disk import has_disk, has_failed
from tests.attack.arena import GIT, Arena, outcome, refused

pytestmark = [pytest.mark.must, pytest.mark.one_git]
MIB = 1024**2
DISK, FLOOR, RESERVE, INODES = 48 * MIB, 12 * MIB, 4 * MIB, 20_000
FLOORS = {"min_free_bytes": FLOOR, "min_free_files": 0, "reserve_bytes": RESERVE, "reserve_files": 0}
NO_FLOORS = dict.fromkeys(FLOORS, 0)
NOISE = os.urandom(6 * MIB)


@dataclass
class SmallDisk:
    """A home on a file system of `DISK` bytes, with one repository and tasks on it."""

    root: Path
    origin: Path

    def __post_init__(self) -> None:
        self.home = self.root / "home"
        with self.open() as bench:
            self.repo_id = bench.clone(str(self.origin)).repository.id
            self.tasks = [bench.create_task(self.repo_id, name) for name in ("one", "two", "three")]
            bench.write_file(self.tasks[0].id, "uncommitted", os.urandom(50_000), None)

    def open(self, **disk: int) -> Workbench:
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.origin.parent)}
        return Workbench(self.home, environ=environ, settings={"disk": disk or FLOORS}, allow_file=True)

    @property
    def free_bytes(self) -> int:
        return FreeSpace.of(self.root).free_bytes

    def fill(self, left_bytes: int = 0) -> None:
        """Another program takes the space until this much is left."""
        with (self.root / f"fill-{time.monotonic_ns()}").open("wb", buffering=0) as stream, suppress(OSError):
            while self.free_bytes > left_bytes:
                stream.write(b"\0" * min(MIB, self.free_bytes - left_bytes))

    def fill_names(self) -> None:
        """Another program takes all inodes."""
        place = self.root / f"fill-{time.monotonic_ns()}"
        place.mkdir()
        with suppress(OSError):
            for number in range(INODES):
                (place / f"{number}").touch()

    def empty(self) -> None:
        for path in self.root.glob("fill-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    root = tmp_path / "origin"
    root.mkdir()
    (root / "f").write_text("one\n")
    run_git(root, "init", "-q", "-b", "main")
    commit_all(root)
    return root


def run_git(root: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    names = {f"GIT_{who}_{what}": "a@example.invalid" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {"PATH": os.environ["PATH"], "HOME": str(root), **names}
    return subprocess.run([GIT, *args], cwd=root, env=env, check=False, capture_output=True)


def commit_all(root: Path) -> None:
    assert run_git(root, "add", ".").returncode == 0
    assert run_git(root, "commit", "-q", "-m", "work").returncode == 0


@pytest.fixture
def disk(tmp_path: Path, origin: Path) -> Iterator[SmallDisk]:
    with small_file_system(tmp_path / "disk", DISK, INODES) as root:
        yield SmallDisk(root, origin)


def writers(bench: Workbench, disk: SmallDisk, task: Task) -> dict[str, Callable[[], object]]:
    """Every operation that adds to the disk and needs no engine."""
    return {
        "edit": lambda: bench.write_file(task.id, "new", os.urandom(100_000), None),
        "snapshot": lambda: bench.snapshot(task.id, "label"),
        "commit": lambda: bench.commit(task.id, "work"),
        "fork": lambda: bench.fork_task(task.id),
        "create": lambda: bench.create_task(disk.repo_id),
        "clone": lambda: bench.clone(str(disk.origin)),
        "fetch": lambda: bench.fetch(str(disk.origin)),
        "diff": lambda: bench.diff(task.id),
        "state": lambda: bench.send_task_state(str(disk.origin), task.id, 1),
    }


def test_s08_writes_on_a_nearly_full_disk_are_refused_before_they_start(disk: SmallDisk) -> None:
    """Control: without floors the same writes go on to the last byte."""
    task = disk.tasks[0]
    disk.fill(RESERVE // 2)
    before = disk.free_bytes
    with disk.open() as bench:
        for step in writers(bench, disk, task).values():
            with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
                step()
            assert caught[0].reason == "disk"
            assert caught[0].hint
    assert disk.free_bytes == before
    with disk.open(**NO_FLOORS) as bench:
        for step in writers(bench, disk, task).values():
            outcome(step)
    assert disk.free_bytes < before - 200_000, "void"


def test_s08_the_last_room_of_a_disk_is_given_to_one_of_many_writers_only(disk: SmallDisk) -> None:
    """Control: the two snapshots fit one by one."""
    disk.fill(RESERVE + 3 * MIB)
    with disk.open() as bench:
        admission = bench._services.disk
        for number, task in enumerate(disk.tasks[:2]):
            bench.write_file(task.id, f"large{number}", os.urandom(500_000), None)
        bench.snapshot(disk.tasks[0].id)
        disk.fill(RESERVE + MIB * 3 // 2)
        with (
            admission.admit(Writer.SNAPSHOT, Demand(MIB)),
            refused(ErrorCode.QUOTA_EXCEEDED),
        ):
            bench.snapshot(disk.tasks[1].id)
        bench.snapshot(disk.tasks[1].id)


def test_s08_a_full_disk_can_be_emptied_and_explained(disk: SmallDisk) -> None:
    """Control: when the spare directory is gone too, the record of a closed task cannot be written."""
    one, two, three = disk.tasks
    disk.fill()
    assert disk.free_bytes == 0, "void"
    with disk.open() as bench:
        assert [c.path for c in bench.status(one.id).changes] == ["uncommitted"]
        assert bench.log(one.id)
        assert len(bench.tasks()) == 3
        assert next(p for p in bench.doctor() if p.name == "disk: home").level is ProbeLevel.FAIL
        assert bench.collect(dry_run=True).leftovers == ()
        with refused(ErrorCode.DIRTY_WORKSPACE):
            bench.close_task(one.id, delete_worktree=True)
        assert bench.close_task(one.id, delete_worktree=True, discard=True).status is TaskStatus.CLOSED
        assert bench.close_task(two.id).status is TaskStatus.CLOSED
        assert bench.log(two.id)[-1].operation == "close"
        bench.collect()
        assert bench.audit_verify().intact
    shutil.rmtree(Home(disk.home).spare, ignore_errors=True)
    disk.fill()
    with pytest.raises(OSError, match="No space"):
        write_json(disk.home / "record", {"text": "x" * 5000})
    with disk.open() as bench, refused(ErrorCode.QUOTA_EXCEEDED):
        bench.close_task(three.id)
    disk.empty()
    with disk.open() as bench:
        bench.close_task(three.id)
    assert Home(disk.home).spare.exists()


def test_s08_a_disk_without_inodes_can_be_emptied_and_explained(disk: SmallDisk) -> None:
    """Control: when the spare directory with its inodes is gone too, the record of a closed task cannot be written."""
    one, two, three = disk.tasks
    disk.fill_names()
    assert FreeSpace.of(disk.root).free_files == 0, "void"
    with disk.open() as bench:
        assert [c.path for c in bench.status(one.id).changes] == ["uncommitted"]
        with refused(ErrorCode.QUOTA_EXCEEDED):
            bench.create_task(disk.repo_id)
        with refused(ErrorCode.DIRTY_WORKSPACE):
            bench.close_task(one.id, delete_worktree=True)
        assert bench.close_task(one.id, delete_worktree=True, discard=True).status is TaskStatus.CLOSED
        assert bench.close_task(two.id).status is TaskStatus.CLOSED
        bench.collect()
        assert bench.audit_verify().intact
    shutil.rmtree(Home(disk.home).spare, ignore_errors=True)
    disk.fill_names()
    with disk.open() as bench, refused(ErrorCode.QUOTA_EXCEEDED):
        bench.close_task(three.id)
    disk.empty()
    with disk.open() as bench:
        bench.close_task(three.id)


def test_s08_a_task_goes_on_once_there_is_room_again(disk: SmallDisk) -> None:
    """A full disk of the host makes the disk of a task read-only: its changes are saved, and it gets a new disk."""
    task = disk.tasks[2]
    worktree, layers = task.worktree_path, Home(disk.home).layers(disk.repo_id, task.id)
    assert worktree is not None
    if not has_disk(layers):
        unavailable("tasks of this host have no disk of their own")
    for number in range(50):
        (worktree / f"d{number}").mkdir()
        (worktree / f"d{number}" / "file").write_bytes(os.urandom(20_000))
        if number == 24:
            os.sync()  # these have their place on the disk; of the others the kernel may lose any
            disk.fill()
    written = {f"d{number}/file" for number in range(25)}
    os.sync()
    assert has_failed(layers), "void"
    disk.empty()
    steps: dict[str, Callable[[Workbench], object]] = {
        "edit": lambda bench: bench.write_file(task.id, "new", b"x", None),
        "commit": lambda bench: bench.commit(task.id, "work"),
        "restore": lambda bench: bench.restore(task.id, "head"),
    }
    with disk.open() as bench:
        for step in steps.values():
            with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
                step(bench)
            assert "sandbox task clean" in caught[0].hint
        assert written <= {file.path for file in bench.diff(task.id).files}
        assert bench.snapshot(task.id).tree == bench.clean_task(task.id).tree
        assert written <= {change.path for change in bench.status(task.id).changes}
        for step in steps.values():
            step(bench)
    assert not has_failed(layers)


def test_s08_a_small_pack_that_unpacks_to_more_than_is_free_is_known_before(disk: SmallDisk, tmp_path: Path) -> None:
    """Control: git's own checkout of it fills the disk."""
    (disk.origin / "large").write_bytes(b"x" * 64 * MIB)
    commit_all(disk.origin)
    with disk.open() as bench:
        bench.clone(str(disk.origin))
        before = disk.free_bytes
        for step in (lambda: bench.create_task(disk.repo_id), lambda: bench.fetch(str(disk.origin))):
            with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
                step()
            assert caught[0].data is not None
            assert caught[0].data["needed_bytes"] >= 64 * MIB
    assert before - disk.free_bytes < MIB // 2
    assert run_git(tmp_path, "clone", "-q", str(disk.origin), str(disk.root / "plain")).returncode != 0, "void"


def fetch_branch(bench: Workbench, disk: SmallDisk) -> None:
    (disk.origin / "noise").write_bytes(NOISE)
    run_git(disk.origin, "add", ".")
    run_git(disk.origin, "commit", "-q", "-m", "work")
    bench.clone(str(disk.origin))


def fetch_notes(bench: Workbench, disk: SmallDisk) -> None:
    (disk.origin / "noise").write_bytes(NOISE)
    oid = run_git(disk.origin, "hash-object", "-w", "noise").stdout.decode().strip()
    assert run_git(disk.origin, "notes", "--ref=space-sandbox", "add", "-f", "-C", oid, "HEAD:f").returncode == 0
    bench.fetch_receipts(str(disk.origin))


@pytest.mark.parametrize("fetch", [fetch_branch, fetch_notes])
def test_s08_a_fetch_gets_only_what_the_disk_can_spare(
    disk: SmallDisk, fetch: Callable[[Workbench, SmallDisk], None]
) -> None:
    """Control: without floors the same pack is fetched."""
    disk.fill(FLOOR + 8 * MIB)
    before = disk.free_bytes
    with disk.open() as bench, refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        fetch(bench, disk)
    assert caught[0].reason == "disk"
    assert before - disk.free_bytes < MIB, "nothing of it is kept"
    with disk.open(**NO_FLOORS) as bench:
        fetch(bench, disk)
    assert before - disk.free_bytes > 5 * MIB, "void"


def test_s08_commits_that_a_release_saves_get_only_what_the_disk_can_spare(disk: SmallDisk) -> None:
    """Control: with more space they are saved."""
    with disk.open() as bench:
        workspace = bench.acquire_workspace("clone", WorkspaceRequest(hint=f"{disk.repo_id}@new"))
        for number in range(2):
            workspace.write(f"noise{number}", NOISE[number::2])
        workspace.commit("work")
        disk.fill(8 * MIB)
        before = disk.free_bytes
        with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
            bench.release_workspace(workspace.id)
        assert caught[0].reason == "disk"
        assert before - disk.free_bytes < MIB
        disk.empty()
        bench.release_workspace(workspace.id)


def test_s08_what_a_hub_sends_is_limited_by_the_disk(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the settings would let it send more than there is."""
    task, url, limits = "task-00000000-0000-4000-8000-000000000000", "https://hub.invalid/owner/hub", list[int]()

    def note_limit(_git: Git, access: RemoteAccess, *_names: str, **_options: bool) -> None:
        limits.append(access.max_fetch_bytes)
        raise SandboxError(ErrorCode.NETWORK_ERROR, "the hub is gone")

    for module in (hub, imported_tasks):
        monkeypatch.setattr(module, "fetch_ref", note_limit)
    with disk.open() as bench:
        steps: dict[str, Callable[[], object]] = {
            "state": lambda: bench.take_over_task(url, str(disk.origin), task, 2),
            "commit": lambda: bench.import_task(url, str(disk.origin), task, "0" * 40),
            "end": lambda: bench.take_over_task(url, str(disk.origin), task, 2),
        }
        for name, step in steps.items():
            there = {} if name == "end" else {1: "0" * 40}
            for module in (hub, imported_tasks):
                monkeypatch.setattr(module, "list_epochs", lambda *_, there=there: there)
            monkeypatch.setattr(hub, "find_end", lambda *_: "refs/end")
            with refused(ErrorCode.NETWORK_ERROR):
                step()
        assert bench._services.settings.remotes.max_fetch_bytes > DISK, "void"
    assert len(limits) == len(steps)
    assert max(limits) < DISK // 2


def test_s07_objects_that_no_ref_leads_to_go_a_day_after_they_were_seen(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As older versions left them at each look, and as closed tasks leave them. Control: the first `gc` keeps them."""
    content = os.urandom(256 * 1024)
    new_commits.build_tree(
        Git(arena.cache), arena.task.head_commit, [TreeChange(b"large", REGULAR, content_of(content))]
    )
    arena.workbench.write_file(arena.task.id, "kept", b"kept\n" * 100, None)
    kept = arena.workbench.commit(arena.task.id, "work").commit
    for days in (8, 10):
        assert arena.in_odb(content), "void"
        later = SimpleNamespace(
            time=lambda days=days: time.time() + days * 86_400, monotonic=time.monotonic, sleep=time.sleep
        )
        monkeypatch.setattr(clone_objects, "time", later)
        monkeypatch.setattr(maintenance, "time", SimpleNamespace(**{**vars(later), "time": time.time}))
        if days == 10:
            monkeypatch.setattr(maintenance, "time", later)
        assert [left.kind for left in arena.workbench.collect().leftovers] == ["clone objects"]
    assert not arena.in_odb(content)
    assert objects.peel(Git(arena.cache), kept, "commit") == kept
    arena.require_git("fsck", "--connectivity-only", cwd=arena.root, git_dir=arena.cache)
