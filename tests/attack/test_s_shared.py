"""THREATS S: what guests share with each other on one kernel."""

from __future__ import annotations

import errno
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from devtools.waiting import wait_until
from sandbox.engine import supervised
from sandbox.engine.connection import DockerEngine
from sandbox.engine.pty_limit import MAX_PTYS
from sandbox.workbench import Watch
from tests.attack.arena import Arena

pytestmark = [pytest.mark.must, pytest.mark.one_git]

INOTIFY = {"x86_64": 294, "aarch64": 26}
OPEN = """
my $n = 0;
while (syscall({number}, 0) >= 0) {{ $n++ }}
$| = 1;
print "$n opened\\nfull\\n";
for (1 .. {seconds} * 10) {{ last if -e "stop"; select(undef, undef, undef, 0.1) }}
"""
"""Open as many inotify instances as the kernel allows, and hold them for some seconds, or until the file `stop`."""
SECONDS = 45
ROOM = "limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64, open_files = 4096 }\ntimeout_s = 60"


def program(seconds: int) -> str:
    return OPEN.format(number=INOTIFY[platform.machine()], seconds=seconds)


def opened(text: str) -> int:
    return next(int(line.split()[0]) for line in text.splitlines() if line.endswith(" opened"))


def most() -> int:
    return int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())


@contextmanager
def careless_guest(engine: DockerEngine, seconds: int) -> Iterator[str]:
    """A container as an engine starts it by default for this user."""
    body = {
        "Image": "space-sandbox/base",
        "User": "64000:64000",
        "Entrypoint": ["perl", "-e", program(seconds)],
        "HostConfig": {"NetworkMode": "none", "Ulimits": [{"Name": "nofile", "Soft": 4096, "Hard": 4096}]},
    }
    made = engine.api.create_container_from_config(body)["Id"]
    try:
        engine.api.start(made)
        yield made
    finally:
        engine.api.remove_container(made, force=True, v=True)


def log(engine: DockerEngine, container: str) -> str:
    ends_at = time.monotonic() + 30
    while time.monotonic() < ends_at:
        text = str(engine.api.logs(container).decode())
        if "full" in text:
            return text
        time.sleep(0.1)
    return ""


def test_s02_a_guest_that_holds_all_of_its_users_share_takes_nothing_from_another(
    guests: Callable[..., Arena], engine: DockerEngine
) -> None:
    """Two homes of one host. Control: of two containers of one user the second gets nothing."""
    with careless_guest(engine, SECONDS) as first, careless_guest(engine, 0) as second:
        assert (opened(log(engine, first)) + opened(log(engine, second))) <= most(), "void"
        assert opened(log(engine, second)) < most() // 2 or opened(log(engine, first)) < most() // 2, "void"
    greedy, modest = (guests("perl", "-e", program(seconds), extra=ROOM) for seconds in (SECONDS, 0))
    task, full = greedy.new_task(), threading.Event()
    assert task.worktree_path is not None

    def follow(_stream: str, chunk: bytes) -> None:
        if b"full" in chunk:
            full.set()

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(greedy.workbench.run_checks, task.id, ["go"], watch=Watch(follow=follow))
        try:
            assert full.wait(60), "void: the greedy guest did not come that far"
            neighbour = modest.workbench.run(str(modest.remote)).runs[0]
            assert not holding.done(), "void: the greedy guest has ended"
        finally:
            (task.worktree_path / "stop").touch()
    assert opened(holding.result()[0].stdout_tail) == most(), "void"
    assert opened(neighbour.stdout_tail) == most()


KEEP = """
my $id = shmget(77, 8 << 20, 01666) // die "shmget: $!";
shmwrite($id, "x" x (8 << 20), 0, 8 << 20) or die "shmwrite: $!";
print "stored\\n";
"""
COUNT = "sed 1d /proc/sysvipc/shm | wc -l"


def test_s04_shared_memory_goes_with_its_last_process(guests: Callable[..., Arena], engine: DockerEngine) -> None:
    """Control: in a container with the engine's defaults it stays."""
    body = {"Image": "space-sandbox/base", "Entrypoint": ["sh", "-c", f"perl -e '{KEEP}'; {COUNT}"]}
    assert run_careless(engine, body).split() == ["stored", "1"], "void"
    arena = guests(
        "sh", "-c", f'{COUNT}; perl -e "$STORE"; {COUNT}', extra=f"{ROOM}\n[check.env]\nSTORE = '''{KEEP}'''"
    )
    arena.new_task()
    for _ in range(2):
        (run,) = arena.workbench.run_checks(arena.task.id, ["go"])
        assert run.stdout_tail.split() == ["0", "stored", "0"], run.stderr_tail


TAKE_AIO = """
sub held {{ open(my $f, "<", "/proc/sys/fs/aio-nr") or die $!; my $n = <$f>; $n + 0 }}
my ($before, $context) = (held(), pack("Q", 0));
my $done = syscall({number}, 512, $context) == 0 ? "taken" : "error " . ($! + 0);
print "$done ", held() - $before >= 512 ? "of the host" : "unchanged", "\\n";
"""
IO_SETUP = {"x86_64": 206, "aarch64": 0}


def test_s203_a_guest_takes_no_kernel_aio_of_the_host(guests: Callable[..., Arena], engine: DockerEngine) -> None:
    """Control: a container with the engine's defaults takes from what all programs of the host may have."""
    program = TAKE_AIO.format(number=IO_SETUP[platform.machine()])
    body = {"Image": "space-sandbox/base", "Entrypoint": ["perl", "-e", program]}
    assert run_careless(engine, body).strip() == "taken of the host", "void"
    arena = guests("perl", "-e", program, extra=ROOM)
    (run,) = arena.workbench.run(str(arena.remote)).runs
    assert run.stdout_tail.strip() == f"error {errno.ENOSYS} unchanged", run.stderr_tail


FILTER_PACKETS = """
use Socket;
my ($program, $done) = (pack("SCCL", 6, 0, 0, 0xffff) x 64, 0);
for (1 .. 20) {
  socket(my $s, AF_UNIX, SOCK_DGRAM, 0) or die "socket: $!";
  $done += setsockopt($s, SOL_SOCKET, 26, pack("S x6 P", 64, $program)) ? 1 : 0;
}
print "$done ", $! + 0, "\\n";
"""


def test_s237_a_guest_attaches_no_filters_of_packets(guests: Callable[..., Arena], engine: DockerEngine) -> None:
    """Their compiled programs are counted for the whole host, where runc needs some for each container. Control: a
    container with the engine's defaults attaches them.
    """
    body = {"Image": "space-sandbox/base", "Entrypoint": ["perl", "-e", FILTER_PACKETS]}
    assert run_careless(engine, body).split()[0] == "20", "void"
    arena = guests(
        "perl", "-e", "eval $ENV{PROGRAM}; die $@ if $@", extra=f"{ROOM}\n[check.env]\nPROGRAM = '''{FILTER_PACKETS}'''"
    )
    (run,) = arena.workbench.run(str(arena.remote)).runs
    assert run.stdout_tail.split() == ["0", str(errno.EPERM)], run.stderr_tail


OPEN_PTYS = """
my @kept;
while (@kept < 400 && sysopen(my $f, "/dev/ptmx", 2)) { push @kept, $f }
print scalar(@kept), "\\n";
"""


@pytest.mark.thorough  # the suite has it as the entry that ships, S204
def test_s204_a_guest_has_a_share_of_the_pseudo_terminals_only(
    guests: Callable[..., Arena], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All containers of the host share what is not reserved for it. Control: without the limit a guest takes more.

    In the kept guest of a task as well, whose mounts are verified once more.
    """
    if os.geteuid() != 0:
        pytest.skip("only root limits them")
    with monkeypatch.context() as open_wall:
        open_wall.setattr(supervised, "limit_ptys", lambda _: None)
        careless = guests("perl", "-e", OPEN_PTYS, extra=ROOM)
        assert careless.workbench.run(str(careless.remote)).runs[0].stdout_tail == "400\n", "void"
    arena = guests("perl", "-e", OPEN_PTYS, extra=ROOM)
    arena.new_task()
    runs = [arena.workbench.run_checks(arena.task.id, ["go"])[0] for _ in range(2)]
    assert [run.stdout_tail for run in runs] == [f"{MAX_PTYS}\n"] * 2


WATCH_FILES = """
import ctypes, os, struct, sys, time
paths = ["/etc/hosts", "/sandbox-init", "/etc/passwd", "/etc/group"]
if os.path.exists("stop"):
    print(*[len(open(path, "rb").read()) > 0 for path in paths])
    sys.exit()
libc = ctypes.CDLL(None)
fd = libc.inotify_init1(0o4000)
watches = {libc.inotify_add_watch(fd, path.encode(), 0x20): path for path in paths}
open("started", "w").close()
while not os.path.exists("stop"):
    time.sleep(0.05)
seen = set()
try:
    while data := os.read(fd, 1 << 16):
        seen |= {watches[struct.unpack_from("i", data, at)[0]] for at in range(0, len(data), 16)}
except BlockingIOError:
    pass
print(*sorted(seen))
for path in paths:
    try:
        open(path, "r+").close()
        print("changed", path)
    except OSError:
        pass
"""


def test_s205_files_in_common_show_a_guest_that_another_one_runs_and_no_more(guests: Callable[..., Arena]) -> None:
    """Control: the watch hears of `/etc/hosts`, which all guests of a home share. Those with names of users are a
    guest's own.
    """
    arena = guests("python3", "-c", WATCH_FILES, extra=ROOM, image="python")
    watcher, other = arena.new_task(), arena.new_task()
    assert watcher.worktree_path is not None
    assert other.worktree_path is not None
    (other.worktree_path / "stop").touch()
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(arena.workbench.run_checks, watcher.id, ["go"])
        wait_until((watcher.worktree_path / "started").exists)
        (read,) = arena.workbench.run_checks(other.id, ["go"])
        (watcher.worktree_path / "stop").touch()
        (watched,) = watching.result()
    assert read.stdout_tail.split() == ["True"] * 4, read.stderr_tail
    assert watched.stdout_tail.split() == ["/etc/hosts", "/sandbox-init"], watched.stderr_tail


HOLD = "ls /tmp; if [ -e /tmp/little ]; then head -c 40000000 /dev/zero > /tmp/much; else echo > /tmp/little; fi"


def test_s04_a_container_that_holds_much_memory_is_not_kept(guests: Callable[..., Arena]) -> None:
    """Control: after the first run, with little in its /tmp, the second finds it."""
    arena = guests("sh", "-c", HOLD, extra=ROOM, settings={"container": {"keep_bytes": 20_000_000}})
    arena.new_task()
    runs = [arena.workbench.run_checks(arena.task.id, ["go"])[0] for _ in range(3)]
    assert [run.stdout_tail.split() for run in runs] == [[], ["little"], []]
    little, much, again = (run.usage.memory_left_bytes for run in runs)
    assert little is not None
    assert much is not None
    assert little < 20_000_000
    assert much >= 40_000_000
    assert again is not None
    assert again < 20_000_000


SETS = """
wc -l </proc/sysvipc/sem
if [ $(wc -l </proc/sysvipc/sem) = 1 ]; then n=1; else n=40; fi
perl -e 'for (1..$ARGV[0]) { semget(0, 32000, 01600) // die $! }' $n
"""


def test_s138_a_container_whose_semaphores_hold_much_memory_is_not_kept(guests: Callable[..., Arena]) -> None:
    """No process and no file has it. Control: the second run finds the few semaphores of the first."""
    arena = guests("sh", "-c", SETS, extra=ROOM, settings={"container": {"keep_bytes": 20_000_000}})
    arena.new_task()
    runs = [arena.workbench.run_checks(arena.task.id, ["go"])[0] for _ in range(3)]
    assert [run.stdout_tail.split() for run in runs] == [["1"], ["2"], ["1"]], runs[1].stderr_tail
    few, many = (run.usage.memory_left_bytes or 0 for run in runs[:2])
    assert few < 20_000_000
    assert many > 60_000_000


def run_careless(engine: DockerEngine, body: Mapping[str, object]) -> str:
    made = engine.api.create_container_from_config({**body, "HostConfig": {"NetworkMode": "none"}})["Id"]
    try:
        engine.api.start(made)
        engine.api.wait(made, timeout=60)
        return str(engine.api.logs(made).decode())
    finally:
        engine.api.remove_container(made, force=True, v=True)
