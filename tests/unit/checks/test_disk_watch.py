"""What files take on disk, and when a check that adds to them is stopped. Ids: THREATS L04, L05, L06, S162."""

from __future__ import annotations

import errno
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from unittest.mock import Mock

import pytest

from devtools.mounts import small_file_system
from devtools.requirement import unavailable
from sandbox.checks import disk_watch
from sandbox.checks.disk_watch import SLICE_S, Additions, DiskWatch, FreeSpaceFloor
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files import attributes
from sandbox.files.deleted_open import OpenFiles
from sandbox.files.disk_usage import MAX_DEPTH, DiskUse, FreeSpace, TooDeepError, measure_disk_use
from sandbox.files.file_tables import MAX_FILES
from sandbox.files.in_flight import UnixSockets
from sandbox.models import Limits, Verdict
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream

MIB = 1024**2
NO_PID = 1 << 22
"""No process has this number (PID_MAX_LIMIT) or a higher one."""
SENDFILE = {"x86_64": 40, "aarch64": 71}


def used(root: Path, since_ns: int = 0) -> DiskUse:
    return sum(measure_disk_use(root, since_ns), DiskUse())


def handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# --- counting


def test_blocks_and_names_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * MIB)
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "dangling").symlink_to("/nonexistent")
    os.mkfifo(tmp_path / "fifo")
    found = used(tmp_path)
    assert found.files == 5
    assert MIB <= found.bytes < MIB + 64 * 1024


def test_s162_attributes_count_where_they_are_in_no_block(tmp_path: Path) -> None:
    """Control: on the file system of the test's directory, if that is ext4 or XFS, its blocks have them."""
    with small_file_system(tmp_path / "small", 16 * MIB) as folder:
        (folder / "f").touch()
        (folder / "link").symlink_to("f")
        before = used(folder)
        try:
            for number in range(10):
                os.setxattr(folder / "f", f"user.a{number}", b"x" * 4000)
        except OSError:
            unavailable("no attributes on tmpfs: Linux 6.6")
        assert (folder / "f").lstat().st_blocks == 0, "void"
        assert 40_000 <= used(folder).bytes - before.bytes < 42_000
        assert used(folder).files == before.files == 2
        for number in range(20):
            (folder / f"name{number}").hardlink_to(folder / "f")
        assert 40_000 <= used(folder).bytes - before.bytes < 42_000, "those of a file with several names count once"


def test_s162_a_file_of_many_attributes_is_measured_in_parts_and_none_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch looks at its clock between them. 7,000 attributes of 16 KiB were read in one go."""
    with small_file_system(tmp_path / "small", 16 * MIB) as folder:
        (folder / "f").touch()
        try:
            for number in range(200):
                os.setxattr(folder / "f", f"user.a{number}", b"x" * 1000)
        except OSError:
            unavailable("no attributes on tmpfs: Linux 6.6")
        monkeypatch.setattr(os, "getxattr", Mock(side_effect=AssertionError))
        parts = list(measure_disk_use(folder))
    assert 200_000 <= sum(part.bytes for part in parts) < 220_000
    assert max(part.bytes for part in parts) < 40_000
    assert sum(part.files for part in parts) == 1


@pytest.mark.parametrize("number", [errno.E2BIG, errno.ERANGE])
def test_s162_a_file_with_more_attributes_than_can_be_listed_is_over_any_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (tmp_path / "f").touch()
    monkeypatch.setattr(attributes, "file_system_type", lambda _: 0x9123683E)
    assert used(tmp_path).bytes < MIB, "the control"
    monkeypatch.setattr(os, "listxattr", Mock(side_effect=OSError(number, "")))
    assert used(tmp_path).bytes > 1 << 39


def test_l06_a_sparse_file_is_free_and_an_allocated_one_is_not(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as stream:
        stream.truncate(1 << 40)
    assert used(tmp_path).bytes < MIB
    with (tmp_path / "allocated").open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, 8 * MIB)
    assert used(tmp_path).bytes >= 8 * MIB


def test_a_file_with_many_names_takes_its_bytes_once(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"x" * MIB)
    for n in range(1, 50):
        (tmp_path / str(n)).hardlink_to(tmp_path / "0")
    found = used(tmp_path)
    assert found.files == 50
    assert found.bytes <= MIB + 64 * 1024


def test_nothing_outside_is_counted_through_a_link(tmp_path: Path) -> None:
    """Control: a directory of the same content in its place is counted."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (outside / "big").write_bytes(b"x" * MIB)
    (root / "way-out").symlink_to(outside)
    assert used(root).bytes < MIB
    (root / "way-out").unlink()
    outside.rename(root / "way-out")
    assert used(root).bytes >= MIB


def test_only_what_changed_since_is_counted_whatever_its_times_say(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_bytes(b"x" * MIB)
    after.write_bytes(b"x" * 2 * MIB)
    while after.stat().st_ctime_ns == before.stat().st_ctime_ns:
        after.chmod(0o600)
    os.utime(after, ns=(0, 0))
    found = used(tmp_path, after.stat().st_ctime_ns)
    assert found.files == 1
    assert found.bytes >= 2 * MIB
    assert used(tmp_path, 1 << 62) == DiskUse()


def test_a_directory_that_moves_while_it_is_counted_is_counted_once(tmp_path: Path) -> None:
    """The two change places once the first was counted, so that the walk comes to that again."""
    for folder, other in (("x", "y"), ("y", "x")):
        moving = tmp_path / folder / f"to-{other}"
        moving.mkdir(parents=True)
        (moving / "file").write_bytes(b"x" * MIB)
    met, swapped = DiskUse(), False
    with closing(measure_disk_use(tmp_path)) as counting:
        for taken in counting:
            met += taken
            if taken.bytes >= MIB and not swapped:
                swapped = True
                (tmp_path / "x" / "to-y").rename(tmp_path / "y" / "to-y")
                (tmp_path / "y" / "to-x").rename(tmp_path / "x" / "to-x")
    assert swapped
    assert MIB <= met.bytes < 2 * MIB


def test_deeper_than_anybody_looks_is_an_error_and_leaves_no_handle(tmp_path: Path) -> None:
    """Also past what one path can name."""
    before = handles()
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(MAX_DEPTH + 1):
        os.mkdir("d" * 60, dir_fd=folder)
        below = os.open("d" * 60, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    with pytest.raises(TooDeepError):
        used(tmp_path)
    assert handles() == before


# --- without a name


class Processes:
    """A directory like /proc, whose processes have files that this test holds open."""

    def __init__(self, root: Path) -> None:
        self.proc, self.worktree = root / "proc", root / "worktree"
        self.worktree.mkdir()
        self.devices = frozenset([self.worktree.stat().st_dev])

    def add(self, pid: int, sees: Path, *files: int, uid: int | None = None, kind: str = "fd") -> None:
        folder = self.proc / str(pid)
        thread = folder / "task" / str(pid)
        files_in = thread / "fd" if kind == "fd" else folder / kind
        thread.mkdir(parents=True)
        files_in.mkdir()
        owner = self.worktree.stat().st_uid if uid is None else uid
        (folder / "status").write_text(f"Name:\tx\nUid:\t{owner}\t0\t0\t0\n")
        (thread / "root").symlink_to(sees.parent)
        (thread / "fdinfo").mkdir()
        for fd in files:
            (files_in / str(fd)).symlink_to(f"/proc/self/fd/{fd}")
            (thread / "fdinfo" / str(fd)).symlink_to(f"/proc/self/fdinfo/{fd}")

    def held(self, devices: frozenset[int] | None = None) -> DiskUse:
        files = OpenFiles(self.worktree, PurePosixPath("/worktree"), devices or self.devices, self.proc)
        found = files.measure_deleted()
        return sum(found, DiskUse())


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path)


@pytest.fixture
def unlinked(tmp_path: Path) -> Iterator[int]:
    with (tmp_path / "gone").open("wb", buffering=0) as stream:
        stream.write(b"x" * MIB)
        (tmp_path / "gone").unlink()
        yield stream.fileno()


def test_l04_a_file_without_a_name_counts_once_for_whoever_holds_it(processes: Processes, unlinked: int) -> None:
    processes.add(1, processes.worktree, unlinked)
    processes.add(2, processes.worktree, unlinked)
    processes.add(3, processes.worktree, unlinked, kind="map_files")
    found = processes.held()
    assert found.files == 1
    assert MIB <= found.bytes <= MIB + 64 * 1024


@pytest.mark.parametrize("kind", ["cwd", "exe"])
def test_s05_a_directory_or_program_without_a_name_counts(processes: Processes, tmp_path: Path, kind: str) -> None:
    """Where no table of files has it. Control: with its name it does not count."""
    (tmp_path / "gone").mkdir()
    handle = os.open(tmp_path / "gone", os.O_RDONLY)
    processes.add(1, processes.worktree)
    (processes.proc / "1" / "task" / "1" / kind).symlink_to(f"/proc/self/fd/{handle}")
    try:
        assert processes.held() == DiskUse()
        (tmp_path / "gone").rmdir()
        assert processes.held().files == 1
    finally:
        os.close(handle)


def test_what_has_a_name_or_is_memory_or_a_strangers_does_not_count(
    processes: Processes, unlinked: int, tmp_path: Path
) -> None:
    stranger = tmp_path / "other" / "worktree"
    stranger.mkdir(parents=True)
    processes.add(1, stranger, unlinked)
    processes.add(2, processes.worktree, unlinked, uid=12345)
    with (tmp_path / "named").open("wb") as named:
        processes.add(3, processes.worktree, named.fileno())
        assert processes.held() == DiskUse()
    processes.add(4, processes.worktree, unlinked)
    assert processes.held(frozenset([0])) == DiskUse()
    assert processes.held().files == 1


HOLDERS = {
    "leader-ended": "threading.Thread(target=time.sleep, args=(60,)).start(); say(); libc.pthread_exit(None)",
    "table-of-its-own": """
def hold():
    assert libc.unshare(0x400) == 0  # CLONE_FILES
    unshared.set()
    time.sleep(60)
threading.Thread(target=hold).start(); unshared.wait(); os.close(fd); say(); time.sleep(60)""",
}


@contextmanager
def running_holder(root: Path, holder: str) -> Iterator[tuple[int, OpenFiles]]:
    """A real process of a user of its own, in a network namespace of its own, with a deleted file."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a process of another user")
    worktree = root / "worktree"
    worktree.mkdir()
    os.chown(worktree, 66_123, 66_123)
    with (root / "gone").open("w+b", buffering=0) as stream:
        stream.write(b"x" * MIB)
        (root / "gone").unlink()
        program = f"""
import ctypes, mmap, os, select, socket, sys, threading, time
fd, libc, unshared = {stream.fileno()}, ctypes.CDLL(None), threading.Event()
def say(): sys.stdout.write("x"); sys.stdout.flush()
assert libc.unshare(0x40000000) == 0  # CLONE_NEWNET
os.setgroups([]); os.setgid(66123); os.setuid(66123)
{holder}"""
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, pass_fds=[stream.fileno()])
    assert child.stdout is not None
    with child.stdout as stdout:
        try:
            assert stdout.read(1) == b"x"
            yield child.pid, OpenFiles(worktree, PurePosixPath(worktree), frozenset([worktree.stat().st_dev]))
        finally:
            child.kill()
            child.wait()


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
def test_s05_a_file_that_only_another_thread_holds_is_found(tmp_path: Path, holder: str) -> None:
    """Control: the first thread's directory in proc does not show the file."""
    with running_holder(tmp_path, holder) as (pid, files):
        deadline = time.monotonic() + 10
        while is_shown(pid):  # it says so just before its end
            assert time.monotonic() < deadline
            time.sleep(0.01)
        found = sum(files.measure_deleted(), DiskUse())
        assert found.bytes >= MIB


@pytest.mark.parametrize(("state", "hides"), [("S", True), ("D", False), ("R", False)])
def test_s05_a_thread_that_waits_for_a_disk_is_no_sign(processes: Processes, state: str, hides: bool) -> None:
    """A program that copies files is in sendfile(2) at many a look. Its name says nothing of its state."""
    processes.add(1, processes.worktree)
    thread = processes.proc / "1" / "task" / "1"
    (thread / "syscall").write_text(f"{SENDFILE[platform.machine()]} 0x3 0x4 0x0 0x800000 0x0 0x0 0x7ffd 0x7f12\n")
    (thread / "stat").write_text(f"1 (x) S (y) {state} 0 1 1 0 -1 4194304\n")
    files = OpenFiles(processes.worktree, PurePosixPath("/worktree"), processes.devices, processes.proc)
    for _ in range(2):
        sum(files.measure_deleted(), DiskUse())
    assert files.may_hide_files() is hides


def share_namespace(folder: Path) -> None:
    (folder / "ns").mkdir()
    (folder / "ns" / "net").symlink_to("/proc/self/ns/net")


def test_s05_the_search_for_lost_sockets_has_a_bound_and_is_done_in_slices(
    processes: Processes, tmp_path: Path
) -> None:
    """In more tables than the kernel compares. Each file that is looked at is a value of its own, so that the watch can
    go on later; what is not found within the bound is a sign. Control: the search ends where the socket is found.
    """
    table, thread = tmp_path / "table", processes.proc / "1" / "task" / "1"
    processes.add(1, processes.worktree)
    share_namespace(processes.proc / "1")
    share_namespace(thread)
    (thread / "net").mkdir()
    table.mkdir()
    for number in range(NO_PID, NO_PID + 512):
        (processes.proc / "2" / "task" / str(number)).mkdir(parents=True)
        (processes.proc / "2" / "task" / str(number) / "fd").symlink_to(table)
    share_namespace(processes.proc / "2")
    files = OpenFiles(processes.worktree, PurePosixPath("/worktree"), processes.devices, processes.proc)
    with socket.socket(socket.AF_UNIX) as held:
        inode = os.fstat(held.fileno()).st_ino
        for number in range(200):
            (table / str(number)).symlink_to(f"/proc/self/fd/{held.fileno()}")
        for sockets, examined in (([inode], 1), ([inode, inode + 1], MAX_FILES + 1)):
            lines = "".join(f"0000000000000000: 00000002 00000000 00000000 0001 01 {each}\n" for each in sockets)
            (thread / "net" / "unix").write_text(f"Num RefCount Protocol Flags Type St Inode Path\n{lines}")
            for _ in range(2):
                assert sum(1 for _ in files.measure_deleted()) == examined
            assert files.may_hide_files() is (len(sockets) > 1)


WAITING = """
pair = socket.socketpair()
poll = select.poll()
poll.register(pair[1], select.POLLIN)
threading.Thread(target=poll.poll, daemon=True).start()
assert libc.prctl(4, 1) == 0  # PR_SET_DUMPABLE: a process of another user may not read its own
waiting = f"/proc/self/task/{max(map(int, os.listdir('/proc/self/task')))}/syscall"
while open(waiting).read().split()[0] not in ("7", "73"): time.sleep(0.01)  # poll, or ppoll of aarch64
"""


@pytest.mark.parametrize(("then", "hides"), [("", False), ("pair[1].close()", True)], ids=["open", "closed"])
def test_s05_a_socket_that_only_poll_has_is_a_sign_of_hidden_files(tmp_path: Path, then: str, hides: bool) -> None:
    with running_holder(tmp_path, f"{WAITING}{then}\nsay(); time.sleep(60)") as (pid, files):
        for _ in range(2):
            sum(files.measure_deleted(), DiskUse())
        assert files.may_hide_files() is hides
        sockets = UnixSockets(Path("/proc"))
        sockets.list_of(Path(f"/proc/{pid}/task/{pid}"))
        if hides:  # the second thread has the same table
            assert sum(1 for _ in sockets.find_lost(set())) == len([*Path(f"/proc/{pid}/fd").iterdir()]) + 1


def in_a_socket(unlinked: int, _place: Path) -> list[socket.socket]:
    pair = list(socket.socketpair())
    socket.send_fds(pair[0], [b"f"], [unlinked])
    return pair


def in_a_socket_that_is_in_flight(unlinked: int, place: Path) -> list[socket.socket]:
    sender, receiver = in_a_socket(unlinked, place)
    with sender, receiver:
        return in_a_socket(receiver.fileno(), place)


def in_a_connection_that_was_not_accepted(unlinked: int, place: Path) -> list[socket.socket]:
    listener, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    listener.bind(str(place / "s"))
    listener.listen()
    client.connect(str(place / "s"))
    socket.send_fds(client, [b"f"], [unlinked])
    return [client, listener]


@pytest.mark.parametrize("send", [in_a_socket, in_a_socket_that_is_in_flight, in_a_connection_that_was_not_accepted])
def test_s05_a_socket_says_that_files_are_in_flight(
    processes: Processes, unlinked: int, tmp_path: Path, send: Callable[[int, Path], list[socket.socket]]
) -> None:
    """As the kernel says. Controls: the file is not measured; the sender's socket does not say so, nor does that of
    another worktree.
    """
    mounted_at = PurePosixPath("/worktree")
    sender, receiver = send(unlinked, tmp_path)
    with sender, receiver:
        stranger = tmp_path / "other" / "worktree"
        stranger.mkdir(parents=True)
        processes.add(1, stranger, receiver.fileno())
        processes.add(2, processes.worktree, sender.fileno(), unlinked)
        files = OpenFiles(processes.worktree, mounted_at, processes.devices, processes.proc)
        for _ in range(3):
            assert sum(files.measure_deleted(), DiskUse()).bytes > 0
            assert not files.may_hide_files()
        processes.add(3, processes.worktree, receiver.fileno())
        sum(files.measure_deleted(), DiskUse())
        assert not files.may_hide_files(), "it may be on its way to who receives it"
        sum(files.measure_deleted(), DiskUse())
        assert files.may_hide_files()


def test_s05_a_file_system_that_grew_past_the_budget_stops_a_check_with_files_in_flight(
    tmp_path: Path, disk: Disk
) -> None:
    """Controls: less growth, or none in flight, stops nothing."""
    in_flight: set[str] = set()
    additions = Additions((tmp_path,), may_hide_files=lambda: bool(in_flight))
    watch = DiskWatch(additions, Limits(disk_bytes=8 * MIB), FreeSpaceFloor(), clock=disk.clock, room_of=disk.room_of)
    for files, taken, verdict in (({"f"}, 7, None), (set(), 9, None), ({"f"}, 9, Verdict.DISK_LIMIT)):
        in_flight = files
        disk.takes(used_bytes=taken * MIB)
        disk.now_s += 60
        assert watch.check_disk_limit() is verdict


def test_s06_at_the_floor_a_check_with_files_in_flight_may_have_taken_all_that_is_gone(
    tmp_path: Path, disk: Disk
) -> None:
    """Control: one without stops for what it was seen to take."""
    floor = FreeSpaceFloor(bytes=50 * MIB)
    for hides, verdict in ((0, None), (1, Verdict.DISK_LIMIT)):
        additions = Additions((tmp_path,), may_hide_files=partial(bool, hides))
        disk.takes(used_bytes=0, free_bytes=100 * MIB)
        watch = DiskWatch(additions, Limits(disk_bytes=900 * MIB), floor, clock=disk.clock, room_of=disk.room_of)
        disk.takes(used_bytes=60 * MIB, free_bytes=40 * MIB)
        disk.now_s += 60
        watch.check_disk_limit()
        assert watch.check_disk_limit() is verdict


CONTAINER = f"/system.slice/docker-{'ab' * 32}.scope"
SHOWS_ITSELF = "assert libc.prctl(4, 1) == 0; say(); time.sleep(60)"


def test_l04_a_check_that_ends_early_with_an_unreadable_folder_is_measured_by_growth(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is the watched folder itself. Controls: less growth, or a folder that is gone."""

    for error, taken, verdict in (
        (PermissionError(), 7, None), (FileNotFoundError(), 9, None), (PermissionError(), 9, Verdict.DISK_LIMIT),
    ):  # fmt: skip
        monkeypatch.setattr(disk_watch, "measure_disk_use", Mock(side_effect=error))
        disk.takes(used_bytes=0)
        watch = disk.watch(tmp_path)
        disk.takes(used_bytes=taken * MIB)
        assert watch.check_at_end() is verdict


HIDES_ITSELF = "assert libc.prctl(4, 0) == 0; say(); time.sleep(60)"
MAPS_THE_FILE = """
assert libc.prctl(4, 1) == 0
mapped = mmap.mmap(fd, 4096, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
os.closerange(3, 1 << 16); say(); time.sleep(60)"""
ASKS_AS_ITS_USER = """
import os, sys
from pathlib import Path, PurePosixPath
from sandbox.checks.disk_watch import Additions
from sandbox.files.deleted_open import OpenFiles
from sandbox.files.disk_usage import DiskUse
worktree, proc = map(Path, sys.argv[1:])
files = OpenFiles(worktree, PurePosixPath(worktree), frozenset([worktree.stat().st_dev]), proc)
os.setgroups([]); os.setgid(66123); os.setuid(66123)
additions = Additions((worktree,), 1, files.measure_deleted, files.may_hide_files, files.note_denied)
for _ in range(2): found = sum(additions.measure_files(), DiskUse())
print(found.bytes >> 20, files.may_hide_files())
"""


@pytest.mark.parametrize(
    ("holder", "group", "folder_mode", "answer"),
    [(HIDES_ITSELF, CONTAINER, 0o700, "0 True"), (HIDES_ITSELF, "/user.slice", 0o700, "0 False"),
     (MAPS_THE_FILE, CONTAINER, 0o700, "0 True"), (SHOWS_ITSELF, CONTAINER, 0o300, "1 True"),
     (SHOWS_ITSELF, CONTAINER, 0o700, "1 False")],
    ids=["not dumpable", "in no container", "mapped", "unreadable folder", "control"],
)  # fmt: skip
def test_l04_what_a_controller_may_not_look_at_is_a_sign_of_hidden_files(
    tmp_path: Path, holder: str, group: str, folder_mode: int, answer: str
) -> None:
    """A controller with the guest's uid that has no capabilities: in no container a process is the user's own."""
    with running_holder(tmp_path, holder) as (pid, _files):
        proc = tmp_path / "proc"
        proc.mkdir()
        for above in (tmp_path, *tmp_path.parents[:-1]):
            above.chmod(above.stat().st_mode | 0o055)
        (proc / str(pid)).mkdir()
        for name in ("status", "task", "map_files", "maps"):
            (proc / str(pid) / name).symlink_to(f"/proc/{pid}/{name}")
        (proc / str(pid) / "cgroup").write_text(f"0::{group}\n")
        folder = tmp_path / "worktree" / "folder"
        folder.mkdir()
        os.chown(folder, 66_123, 66_123)
        folder.chmod(folder_mode)
        done = subprocess.run(
            [sys.executable, "-c", ASKS_AS_ITS_USER, str(tmp_path / "worktree"), str(proc)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout.strip() == answer, done.stderr


def is_shown(pid: int) -> bool:
    try:
        return any("/gone" in str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_l04_what_is_held_without_a_name_is_part_of_the_budget(tmp_path: Path, disk: Disk) -> None:
    watch = disk.watch(tmp_path, held=lambda: iter([DiskUse(), DiskUse(9 * MIB, 1)]))
    disk.now_s += 60
    assert watch.check_disk_limit() is Verdict.DISK_LIMIT


# --- watching


class Disk:
    """A file system as the watch sees it, and its clock."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.step_s = 1e-6
        self.room = FreeSpace(used_bytes=0, used_files=0, free_bytes=100 * MIB, free_files=1000)
        self.looks = 0

    def clock(self) -> float:
        self.now_s += self.step_s
        return self.now_s

    def room_of(self, _folder: Path) -> FreeSpace:
        self.looks += 1
        return self.room

    def takes(self, **change: int) -> None:
        self.room = FreeSpace(**{**vars(self.room), **change})

    def watch(
        self,
        folder: Path,
        floor: FreeSpaceFloor | None = None,
        *,
        files: int = 5,
        held: Callable[[], Iterator[DiskUse]] = lambda: iter(()),
    ) -> DiskWatch:
        limits = Limits(disk_bytes=8 * MIB, disk_files=files)
        additions = Additions((folder,), deleted_open=held)
        return DiskWatch(additions, limits, floor or FreeSpaceFloor(), clock=self.clock, room_of=self.room_of)


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_nothing_is_counted_while_the_file_system_does_not_grow(tmp_path: Path, disk: Disk) -> None:
    watch = disk.watch(tmp_path)
    (tmp_path / "big").write_bytes(b"x" * 9 * MIB)
    assert watch.check_disk_limit() is None
    assert watch.used is None
    disk.takes(used_bytes=2 * MIB)
    assert watch.check_disk_limit() is Verdict.DISK_LIMIT
    assert watch.used is not None
    assert watch.used.bytes >= 9 * MIB


def test_what_others_delete_hides_nothing_for_long(tmp_path: Path, disk: Disk) -> None:
    watch = disk.watch(tmp_path)
    (tmp_path / "big").write_bytes(b"x" * 9 * MIB)
    assert watch.check_disk_limit() is None
    disk.now_s += 60
    assert watch.check_disk_limit() is Verdict.DISK_LIMIT


def test_names_count_as_well(tmp_path: Path, disk: Disk) -> None:
    watch = disk.watch(tmp_path)
    for n in range(6):
        (tmp_path / str(n)).touch()
    disk.takes(used_files=6)
    assert watch.check_disk_limit() is Verdict.DISK_LIMIT


def test_what_others_write_stops_nothing_and_counting_pauses(tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "small").write_bytes(b"x")
    watch = disk.watch(tmp_path)
    disk.takes(used_bytes=1000 * MIB)
    assert watch.check_disk_limit() is None
    assert watch.used is not None
    assert watch.used.files == 1


def test_a_verdict_stays(tmp_path: Path, disk: Disk) -> None:
    watch = disk.watch(tmp_path)
    (tmp_path / "big").write_bytes(b"x" * 9 * MIB)
    disk.now_s += 60
    assert watch.check_disk_limit() is Verdict.DISK_LIMIT
    (tmp_path / "big").unlink()
    disk.now_s += 600
    assert watch.check_disk_limit() is Verdict.DISK_LIMIT


def test_a_long_count_is_cut_into_slices(tmp_path: Path, disk: Disk) -> None:
    for n in range(1200):
        (tmp_path / str(n)).touch()
    watch = disk.watch(tmp_path, files=1000)
    disk.now_s += 60
    disk.step_s = SLICE_S  # for each look at the clock
    answers = 1
    while watch.check_disk_limit() is None:
        answers += 1
        assert answers < 1000
    assert answers > 5


def test_s89_what_is_written_between_two_looks_is_seen_at_the_end(tmp_path: Path, disk: Disk) -> None:
    """Control: the look that a running guest gets comes too early after the last count."""
    watch = disk.watch(tmp_path)
    disk.step_s = 1.0
    disk.takes(used_bytes=2 * MIB)
    while watch.used is None:
        assert watch.check_disk_limit() is None
    (tmp_path / "big").write_bytes(b"x" * 9 * MIB)
    disk.takes(used_bytes=11 * MIB)
    assert watch.check_disk_limit() is None
    assert watch.check_at_end() is Verdict.DISK_LIMIT


def test_at_the_end_files_are_counted_only_if_the_file_system_grew(tmp_path: Path, disk: Disk) -> None:
    watch = disk.watch(tmp_path)
    (tmp_path / "small").write_bytes(b"x")
    assert (watch.check_at_end(), watch.used) == (None, None)
    disk.takes(used_bytes=2 * MIB)
    assert watch.check_at_end() is None
    assert watch.used is not None
    assert watch.used.files == 1


def test_a_last_count_is_of_now_or_not_at_all(tmp_path: Path, disk: Disk) -> None:
    watch = disk.watch(tmp_path, files=100_000)
    for n in range(200):
        (tmp_path / str(n)).touch()
    disk.step_s = 1.0
    watch.count_at_end(2.0)
    assert watch.used is None
    watch.count_at_end(60.0)
    assert watch.used is not None
    assert watch.used.files == 200


def test_what_is_too_deep_to_count_is_over_the_limit(tmp_path: Path, disk: Disk) -> None:
    folder = tmp_path
    for _ in range(MAX_DEPTH + 1):
        folder /= "d"
        folder.mkdir()
    watch = disk.watch(tmp_path, files=100_000)
    disk.now_s += 60
    assert watch.check_disk_limit() is Verdict.DISK_LIMIT


@pytest.mark.parametrize(
    ("change", "floor", "stops"),
    [
        ({"free_bytes": MIB}, FreeSpaceFloor(50 * MIB, 0), True),
        ({"free_bytes": 50 * MIB}, FreeSpaceFloor(50 * MIB, 0), False),
        ({"free_files": 0}, FreeSpaceFloor(0, 10), True),
        ({"free_files": 10}, FreeSpaceFloor(0, 10), False),
        ({"free_bytes": 0, "free_files": 0}, FreeSpaceFloor(0, 0), False),
    ],
)
def test_a_check_is_stopped_before_the_host_has_no_room(
    tmp_path: Path, disk: Disk, change: dict[str, int], floor: FreeSpaceFloor, stops: bool
) -> None:
    watch = disk.watch(tmp_path, floor)
    for name in "abc":
        (tmp_path / name).write_bytes(b"x" * MIB)
    disk.takes(**change)
    assert watch.check_disk_limit() is (Verdict.DISK_LIMIT if stops else None)


def test_s06_at_the_floor_only_the_check_that_took_the_space_stops() -> None:
    """`before` and `now` are the same for both: they share the host. Control: the one that took it."""
    floor, before = FreeSpaceFloor(2048 * MIB, 0), FreeSpace(0, 0, 20_000 * MIB, None)
    now = FreeSpace(0, 0, 2000 * MIB, None)
    taker, neighbour = DiskUse(17_500 * MIB, 0), DiskUse(500 * MIB, 0)
    assert floor.is_reached_by(taker, before, now)
    assert not floor.is_reached_by(neighbour, before, now)


def test_s06_what_is_small_beside_the_free_space_never_stops_a_check() -> None:
    """A neighbour that ended left the space just above the floor."""
    floor, before = FreeSpaceFloor(2048 * MIB, 0), FreeSpace(0, 0, 2050 * MIB, None)
    assert not floor.is_reached_by(DiskUse(200 * MIB, 0), before, FreeSpace(0, 0, 1850 * MIB, None))
    assert floor.is_reached_by(DiskUse(300 * MIB, 0), before, FreeSpace(0, 0, 1750 * MIB, None))


def test_s06_many_checks_that_take_a_part_each_are_stopped_as_the_space_ends() -> None:
    floor, before = FreeSpaceFloor(2048 * MIB, 0), FreeSpace(0, 0, 20_000 * MIB, None)
    part = DiskUse(4500 * MIB, 0)
    assert not floor.is_reached_by(part, before, FreeSpace(0, 0, 2000 * MIB, None))
    assert floor.is_reached_by(part, before, FreeSpace(0, 0, 900 * MIB, None))


def test_a_file_system_that_counts_no_files_has_no_floor_for_them() -> None:
    assert not FreeSpaceFloor(0, 10).is_reached(FreeSpace(0, 0, 1, None))
    assert FreeSpace.of(Path("/proc")).free_files is None


def test_a_folder_that_goes_stops_nothing(tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "gone").mkdir()
    watch = disk.watch(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    disk.now_s += 60
    assert watch.check_disk_limit() is None


# --- the floor


@pytest.mark.slow
@pytest.mark.parametrize("key", ["min_free_bytes", "min_free_files"])
def test_no_task_is_made_on_a_full_disk(tmp_path: Path, upstream: Upstream, key: str) -> None:
    upstream.write("f", b"x")
    upstream.commit()
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}

    def opened(**disk: int) -> Workbench:
        return Workbench(tmp_path / "home", environ=environ, allow_file=True, settings={"disk": disk})

    with opened() as workbench:
        repo_id = workbench.clone(str(upstream.root)).repository.id
    with opened(**{key: 1 << 60}) as workbench, pytest.raises(SandboxError) as caught:
        workbench.create_task(repo_id)
    assert caught.value.code is ErrorCode.QUOTA_EXCEEDED
    assert "GiB" in caught.value.details
    worktrees = tmp_path / "home" / "repositories" / "worktrees"
    assert not list(worktrees.rglob("task-*"))
    with opened() as workbench:  # control: with the usual floor there is one
        assert workbench.create_task(repo_id).repo_id == repo_id
