"""THREATS S05, S06, S162: what a guest can take of the host's disk, and which check ends when it is nearly full."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devtools.requirement import unavailable
from sandbox.checks.disk_watch import DiskWatch, FreeSpaceFloor
from sandbox.engine.connection import DockerEngine
from sandbox.files.attributes import AttributeCount
from sandbox.files.disk_images import DiskSize, create_disk, ensure_template, find_disk_obstacle, mount_disk
from sandbox.files.disk_usage import FreeSpace
from sandbox.files.mount_points import unmount_below
from sandbox.models import CheckRun, Verdict
from sandbox.workbench import Workbench
from tests.attack.arena import Arena, variants
from tests.unit.conftest import initialised

pytestmark = [pytest.mark.must, pytest.mark.one_git]

MIB = 1024**2
DISK = 8 * MIB  # names of files take long to make: a larger disk takes a busy host a minute to fill
SMALL = f"limits = {{ memory_bytes = 134217728, cpus = 1.0, pids = 64, disk_bytes = {DISK}, disk_files = 2000 }}"
WITHOUT_A_NAME = "exec 3>f; rm f; head -c 60000000 /dev/zero >&3; echo status $?"
WRITERS = {
    "without-a-name": f"{WITHOUT_A_NAME}; sleep 20",
    "held-by-a-child": "(exec 3>f; rm f; head -c 60000000 /dev/zero >&3; echo status $?; sleep 20) & wait",
    "report": "head -c 60000000 /dev/zero >/report/f; echo status $?",
    "directories": "seq 5000 | xargs mkdir 2>/dev/null; echo status $?",
    # More than the disk holds however well ext4 fills its folders; one file may have 65,000 names there.
    "long-names": "perl -e 'for (1..60000) { link(qw(f), qw(x) x 240 . $_) or die $! }'; echo status $?; sleep 9",
}


def image_bytes(arena: Arena) -> int:
    (image,) = (arena.home / "repositories" / "layers").glob("*/task-*/disk.img")
    return image.stat().st_blocks * 512


@pytest.mark.parametrize("writer", variants(WRITERS, *(WRITERS.keys() - {"held-by-a-child"})))
def test_s05_no_kind_of_file_takes_more_than_the_limit(guests: Callable[..., Arena], writer: str) -> None:
    """The kernel refuses it, so it does not matter whether a watch could see it."""
    arena = guests("sh", "-c", f"touch f; {WRITERS[writer]}", extra=SMALL)
    arena.new_task()
    (run,) = arena.workbench.run_checks(arena.task.id, ["go"])
    assert run.verdict is Verdict.DISK_LIMIT, run
    assert "status 0" not in run.stdout_tail
    assert image_bytes(arena) < DISK + 10 * MIB


def test_s05_control_a_watched_check_takes_more_before_it_is_stopped(
    guests: Callable[..., Arena], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiskWatch, "check_disk_limit", lambda _self: None)
    settings = {"workspaces": {"disk": "watch"}}
    arena = guests("sh", "-c", WITHOUT_A_NAME, extra=SMALL, settings=settings)
    arena.new_task()
    (run,) = arena.workbench.run_checks(arena.task.id, ["go"])
    assert (run.verdict, run.stdout_tail) == (Verdict.PASSED, "status 0\n")


def test_s05_a_full_disk_can_be_edited_and_cleaned(guests: Callable[..., Arena]) -> None:
    arena = guests("sh", "-c", "head -c 60000000 /dev/zero >f; sleep 20", extra=SMALL)
    arena.new_task()
    task = arena.task.id
    assert arena.workbench.run_checks(task, ["go"])[0].verdict is Verdict.DISK_LIMIT
    arena.workbench.write_file(task, "note", b"written to a full disk\n", None)
    arena.workbench.clean_task(task, ["f"])
    assert arena.workbench.read_file(task, "note").content == "written to a full disk\n"


PROFILE = """
label = "filling"
image = "{image}"
priority = 99
[[detect.any]]
file = "fill"
[[check]]
id = "fill"
label = "adds to its files"
argv = [{argv}]
timeout_s = 60
{limits}
"""
ROOMY = "limits = { memory_bytes = 268435456, cpus = 1.0, pids = 64 }"
TAKES = "head -c 150000000 /dev/zero >f; sync f; sleep 40"
NEIGHBOUR = "head -c 3000000 /dev/zero >f; sync f; sleep 8; echo ended"


@pytest.fixture
def small_host(engine: DockerEngine, tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 MiB that two homes share."""
    assert engine.is_local
    assert find_disk_obstacle(tmp_path) == ""
    place = tmp_path / "host"
    place.mkdir()
    create_disk(tmp_path / "host.img", ensure_template(tmp_path, DiskSize(300 * MIB, 20_000)))
    mount_disk(tmp_path / "host.img", place)
    yield place
    unmount_below(tmp_path)


def run_in_home(
    host: Path, name: str, argv: tuple[str, ...], image: str = "base", limits: str = ROOMY, **settings: object
) -> CheckRun:
    upstream = initialised(host / f"{name}-upstream")
    upstream.write("fill", b"\n")
    upstream.commit()
    (host / name / "profiles").mkdir(parents=True)
    words = ", ".join(f"'''{word}'''" for word in argv)
    text = PROFILE.format(image=image, argv=words, limits=limits)
    (host / name / "profiles" / "filling.toml").write_text(text)
    floor = {"min_free_bytes": 200 * MIB, "min_free_files": 10}
    with Workbench(host / name, allow_file=True, settings={"disk": floor} | settings) as workbench:
        task = workbench.create_task(workbench.clone(str(upstream.root)).repository.id).id
        try:
            return workbench.run_checks(task, ["fill"])[0]
        finally:
            workbench.close_task(task, delete_worktree=True, discard=True)


def run_both(host: Path) -> tuple[Verdict, Verdict]:
    with ThreadPoolExecutor(2) as pool:
        neighbour = pool.submit(run_in_home, host, "neighbour", ("sh", "-c", NEIGHBOUR))
        taker = pool.submit(run_in_home, host, "taker", ("sh", "-c", TAKES))
        return taker.result().verdict, neighbour.result().verdict


def test_s06_at_the_floor_only_the_check_that_took_the_disk_ends(small_host: Path) -> None:
    assert run_both(small_host) == (Verdict.DISK_LIMIT, Verdict.PASSED)


def test_s06_control_without_the_share_the_neighbour_ends_too(
    small_host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_the_floor(self: FreeSpaceFloor, _own: object, _before: object, now: FreeSpace) -> bool:
        return self.is_reached(now)

    monkeypatch.setattr(FreeSpaceFloor, "is_reached_by", at_the_floor)
    assert run_both(small_host) == (Verdict.DISK_LIMIT, Verdict.DISK_LIMIT)


HOLDER = """
import ctypes, os, socket, select, sys, threading, time
kind, seconds = sys.argv[1], float(sys.argv[2])
held = []

def start(call, *words):
    # A thread that does not come back from this call.
    threading.Thread(target=call, args=words, daemon=True).start()

def write_nameless():
    fd = os.open("f", os.O_CREAT | os.O_RDWR)
    os.unlink("f")
    for _ in range(8):
        os.write(fd, bytes(1 << 20))
    return fd

def hold_in_flight():
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    held.extend(pair)
    for _ in range(4):
        fd = write_nameless()
        socket.send_fds(pair[0], [b"f"], [fd])
        os.close(fd)
    return pair[1]

def hold_in_poll():
    receiver = hold_in_flight()
    waiting = select.poll()
    waiting.register(receiver, 0)
    start(waiting.poll)
    time.sleep(0.3)
    held.remove(receiver)
    receiver.close()

def hold_in_sendfile():
    pipe = os.pipe()
    for _ in range(4):
        fd = write_nameless()
        start(os.sendfile, pipe[1], fd, 0, 8 << 20)
        time.sleep(0.05)
        os.close(fd)

def hold_in_sendmsg():
    pair = socket.socketpair()
    held.extend(pair)
    pair[0].setblocking(False)
    try:
        while True:
            pair[0].send(bytes(4096))
    except BlockingIOError:
        pair[0].setblocking(True)
    for _ in range(4):
        fd = write_nameless()
        start(socket.send_fds, pair[0], [bytes(65536)], [fd])
        time.sleep(0.05)
        os.close(fd)

def hold_mapped():
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    for _ in range(4):
        fd = write_nameless()
        assert libc.mmap(None, ctypes.c_size_t(8 << 20), 1, 1, fd, ctypes.c_long(0)) != ctypes.c_void_p(-1).value
        os.close(fd)

def hold_xattrs():
    for number in range(6000):
        open(f"x{number}", "w").close()
        os.setxattr(f"x{number}", "user.x", os.urandom(2000) + bytes(1500))

def hold_directories():
    for number in range(60):
        os.mkdir("d")
        held.append(os.open("d", os.O_RDONLY))
        open("d/f", "w").close()
        for name in range(1500):
            os.link("d/f", "d/" + "x" * 240 + str(name))
        for name in os.listdir("d"):
            os.unlink("d/" + name)
        os.rmdir("d")

try:
    globals()["hold_" + kind]()
    print("held", flush=True)
except OSError as error:
    print(error, flush=True)
time.sleep(seconds)
os._exit(0)
"""
HOLDERS = ("in_flight", "in_poll", "in_sendfile", "in_sendmsg", "mapped", "xattrs", "directories")
ON_A_DISK = ("in_flight", "xattrs", "directories")
"""Content, attributes and names: who holds the content makes no difference to the kernel."""
TIGHT = f"limits = {{ memory_bytes = 268435456, cpus = 1.0, pids = 64, disk_bytes = {16 * MIB}, disk_files = 9000 }}"


def run_holder(host: Path, holder: str, seconds: float, disk: str) -> CheckRun:
    argv = ("python3", "-c", HOLDER, holder, str(seconds))
    settings = {"workspaces": {"disk": disk}, "disk": {"min_free_bytes": 0}}
    return run_in_home(host, "holder", argv, "python", TIGHT, **settings)


@pytest.mark.parametrize(
    ("holder", "disk"),
    [
        *((holder, "watch") for holder in HOLDERS),  # which looks for each in another place
        *(pytest.param(x, "image", marks=() if x in ON_A_DISK else pytest.mark.thorough) for x in HOLDERS),
    ],
)
def test_s05_what_no_name_shows_takes_no_more_than_the_limit(small_host: Path, holder: str, disk: str) -> None:
    """Files that only a socket, a system call or a mapping holds, extended attributes, deleted directories."""
    run = run_holder(small_host, holder, 30, disk)
    assert run.verdict is Verdict.DISK_LIMIT, run


@pytest.mark.parametrize("holder", HOLDERS)
def test_s05_control_what_no_name_shows_is_held_where_it_is_not_watched(
    small_host: Path, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = FreeSpace.of(small_host).free_bytes
    measured: list[FreeSpace] = []
    monkeypatch.setattr(DiskWatch, "check_at_end", lambda _self: None)
    monkeypatch.setattr(DiskWatch, "check_disk_limit", lambda _self: measured.append(FreeSpace.of(small_host)))
    run = run_holder(small_host, holder, 1, "watch")
    assert (run.verdict, run.stdout_tail) == (Verdict.PASSED, "held\n"), run
    assert free - min(space.free_bytes for space in measured) > 16 * MIB, "void"


SETXATTR = {"x86_64": 188, "aarch64": 5}
WITH_ATTRIBUTES = """
for my $n (0..99) {
    open my $f, '>', "f$n";
    for (1..100) {
        my ($name, $value) = ("user.a$_", 'x' x 2000);
        $t += 2000 if !syscall(SETXATTR, "f$n", $name, $value, 2000, 0);
    }
}
print "stored $t\\n"; sleep 9
""".replace("SETXATTR", str(SETXATTR.get(platform.machine(), 0)))


@pytest.fixture
def btrfs_host(engine: DockerEngine, tmp_path: Path) -> Iterator[Path]:
    """A btrfs of 400 MiB: no block of a file counts its attributes there."""
    image, place = tmp_path / "host.img", tmp_path / "host"
    place.mkdir()
    with image.open("wb") as stream:
        stream.truncate(400 * MIB)
    if (program := shutil.which("mkfs.btrfs", path="/usr/sbin:/sbin:/usr/bin")) is None:
        unavailable("no mkfs.btrfs: scripts/setup tools")
    subprocess.run([program, "-q", str(image)], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=False, capture_output=True)
    if mounted.returncode:
        unavailable(f"no btrfs can be mounted: {mounted.stderr.decode(errors='replace')}")
    yield place
    unmount_below(tmp_path)


@pytest.mark.parametrize("is_counted", [True, False], ids=["counted", "control"])
def test_s162_attributes_of_files_are_part_of_the_limit(
    btrfs_host: Path, monkeypatch: pytest.MonkeyPatch, *, is_counted: bool
) -> None:
    """In a home whose checks are watched. Control: uncounted, 20 MB are stored with a limit of 8 MiB."""
    if not is_counted:
        monkeypatch.setattr(AttributeCount, "measure", lambda *_: ())
    argv, watched = ("perl", "-e", WITH_ATTRIBUTES), {"disk": "watch"}
    run = run_in_home(btrfs_host, "home", argv, limits=SMALL, workspaces=watched)
    if is_counted:
        assert run.verdict is Verdict.DISK_LIMIT, run
        assert run.usage.disk_used_bytes is not None
        assert run.usage.disk_used_bytes > DISK
    else:
        assert (run.verdict, run.stdout_tail) == (Verdict.PASSED, "stored 20000000\n")


def test_s162_a_disk_of_its_own_bounds_attributes_by_itself(btrfs_host: Path) -> None:
    """Whatever the home is on."""
    run = run_in_home(btrfs_host, "home", ("perl", "-e", WITH_ATTRIBUTES), limits=SMALL)
    assert run.verdict is Verdict.PASSED, run
    assert int(run.stdout_tail.split()[1]) < MIB
