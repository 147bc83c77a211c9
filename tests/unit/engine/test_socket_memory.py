"""THREATS S202: network buffers count, on trees of files as the kernel makes them (Linux 6.18)."""

from __future__ import annotations

import mmap
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.engine.cgroups import SOCKET_LIMIT, CgroupPaths
from sandbox.engine.container_types import ALONE, Neighbours, NetworkMember, find_neighbours, never_stop
from sandbox.engine.socket_memory import SocketWatch, limit_socket_memory
from sandbox.engine.uncharged_memory import estimate_lock_bytes
from sandbox.models import Verdict

MIB = 1024**2
LIMIT = 256 * MIB
PID = 42
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
UNLIMITED = str(9223372036854771712)


def line(inode: int, received: int, *, sent: int = 0, state: str = "01", uid: int = 1000) -> str:
    queues = f"{sent:08X}:{received:08X}"
    return f"   0: 0100007F:B43B 0100007F:1F90 {state} {queues} 00:00000000 00000000 {uid:5}        0 {inode} 1 00 20\n"


class Host:
    """Files of one guest and of its host."""

    def __init__(self, root: Path, version: int) -> None:
        self.proc, self.version = root / "proc", version
        self.group = root / "memory" / "guest"
        for folder in (self.group, self.proc / "net", self.proc / str(PID) / "net"):
            folder.mkdir(parents=True)
        (self.proc / str(PID) / "status").write_text("Name:\tsandbox-init\nUid:\t1000\t1000\t1000\t1000\n")
        self.write_memory(0, 0)
        self.write_host(tcp=2048 * MIB, udp=0)
        if version == 1:
            (self.group / SOCKET_LIMIT).write_text(UNLIMITED)
        self.paths = CgroupPaths(version, memory=self.group)

    def write_memory(self, held: int, sockets: int) -> None:
        names = ("total_rss", "total_shmem") if self.version == 1 else ("anon", "shmem")
        (self.group / "memory.stat").write_text(f"{names[0]} {held}\n{names[1]} 0\nsock {sockets}\n")
        if self.version == 1:
            (self.group / "memory.kmem.tcp.usage_in_bytes").write_text(f"{sockets}\n")

    def write_host(self, tcp: int, udp: int) -> None:
        (self.proc / "net" / "sockstat").write_text(
            "sockets: used 9\n"
            f"TCP: inuse 1 orphan 0 tw 0 alloc 3 mem {tcp // mmap.PAGESIZE}\n"
            f"UDP: inuse 0 mem {udp // mmap.PAGESIZE}\nRAW: inuse 0\n"
        )

    def write_kernel(self, unreclaimable: int) -> None:
        (self.proc / "meminfo").write_text(f"MemTotal: 9 kB\nSUnreclaim:     {unreclaimable // 1024} kB\n")

    def write_table(self, name: str, *lines: str) -> None:
        (self.proc / str(PID) / "net" / name).write_text(HEAD + "".join(lines))

    def look(self, neighbours: Neighbours = ALONE) -> tuple[Verdict | None, int | None]:
        watch = SocketWatch(self.paths, PID, LIMIT, self.proc)
        return watch.watch_beside(never_stop, neighbours)(), watch.held_bytes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, in its one item."""
    now = [100.0]
    monkeypatch.setattr("sandbox.engine.socket_memory.time.monotonic", lambda: now[0])
    return now


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    made = Host(tmp_path, request.param)
    limit_socket_memory(made.paths, LIMIT)
    return made


def test_s202_version_1_gets_a_limit(tmp_path: Path) -> None:
    host = Host(tmp_path, 1)
    limit_socket_memory(host.paths, LIMIT)
    assert (host.group / SOCKET_LIMIT).read_text() == str(128 * MIB)


def test_s202_where_there_is_no_such_limit_none_is_made(tmp_path: Path) -> None:
    host = Host(tmp_path, 1)
    (host.group / SOCKET_LIMIT).unlink()
    for paths in (host.paths, CgroupPaths(2, memory=host.group), CgroupPaths(1), None):
        limit_socket_memory(paths, LIMIT)
    assert not (host.group / SOCKET_LIMIT).exists()


def test_s202_memory_and_buffers_together_stop_a_guest_past_its_limit(host: Host) -> None:
    host.write_memory(100 * MIB, 150 * MIB)
    assert host.look() == (None, None)
    host.write_memory(100 * MIB, 157 * MIB)
    assert host.look() == (Verdict.OOM_KILLED, 257 * MIB)


def test_s202_what_waits_in_connections_that_were_not_accepted_counts(host: Host) -> None:
    """Control: with an inode they are the guest's, and the kernel charges them."""
    host.write_table("tcp", line(7, 200 * MIB), line(0, 4096, state="0A"))
    host.write_table("tcp6", line(9, 200 * MIB))
    assert host.look() == (None, None)
    host.write_table("tcp", line(0, 200 * MIB), line(0, 4096, state="0A"))
    host.write_table("tcp6", line(0, 50 * MIB), line(0, 7 * MIB, state="08"))
    assert host.look() == (Verdict.OOM_KILLED, 257 * MIB)


@pytest.mark.parametrize("state", ["04", "05", "09", "0B"])
def test_s202_what_a_closed_socket_still_sends_is_counted_once(host: Host, state: str) -> None:
    """It has no inode, too, but its group is still charged. Controls: the states of one that is not accepted yet."""
    host.write_memory(100 * MIB, 100 * MIB)
    host.write_table("tcp", line(0, 0, sent=100 * MIB, state=state))
    assert host.look() == (None, None)
    for waiting in ("01", "03", "08"):
        host.write_table("tcp", line(0, 100 * MIB, state=waiting))
        assert host.look() == (Verdict.OOM_KILLED, 300 * MIB)


def test_s202_a_controller_that_may_not_set_the_limit_counts_all_that_waits(tmp_path: Path) -> None:
    host = Host(tmp_path, 1)
    host.write_memory(10 * MIB, 0)
    host.write_table("tcp", line(7, 100 * MIB, sent=100 * MIB), line(0, 1 << 30, state="0A"))
    assert host.look() == (None, None)
    host.write_table("udp", line(8, 50 * MIB, state="07"))
    assert host.look() == (Verdict.OOM_KILLED, 260 * MIB)


def test_s202_connections_that_wait_to_be_forgotten_hide_no_socket(host: Host) -> None:
    """As many as a network may have with the kernel's defaults on a large host (`tcp_max_tw_buckets`)."""
    host.write_memory(100 * MIB, 0)
    host.write_table("tcp", *[line(0, 0, state="06", uid=0)] * 262_144)
    assert host.look() == (None, None)
    host.write_table("tcp", *[line(0, 0, state="06", uid=0)] * 262_144, line(0, 157 * MIB))
    assert host.look() == (Verdict.OOM_KILLED, 257 * MIB)


OTHER_UID, UNKNOWN_UID = 2000, 0


@pytest.mark.parametrize("is_charged", [True, False], ids=["charged", "only watched"])
def test_s202_sockets_of_a_neighbour_with_another_uid_do_not_count(tmp_path: Path, is_charged: bool) -> None:
    """Controls: in a network of its own all count; and its own count beside the other's."""
    host = Host(tmp_path, 2 if is_charged else 1)
    host.write_memory(190 * MIB, 0)
    beside = Neighbours(LIMIT, same_uid_bytes=0)
    inode = 0 if is_charged else 7
    host.write_table("tcp", line(inode, 113 * MIB, uid=OTHER_UID))
    assert host.look(beside) == (None, None)
    assert host.look() == (Verdict.OOM_KILLED, 303 * MIB)
    host.write_table("tcp", line(inode, 113 * MIB, uid=OTHER_UID), line(inode, 67 * MIB))
    assert host.look(beside) == (Verdict.OOM_KILLED, 257 * MIB)


@pytest.mark.parametrize(
    ("uid", "same_uid_bytes"), [(1000, LIMIT), (UNKNOWN_UID, 0)], ids=["a uid in common", "an unknown uid"]
)
def test_s202_what_could_be_a_neighbours_is_bounded_by_both_limits(host: Host, uid: int, same_uid_bytes: int) -> None:
    host.write_memory(190 * MIB, 0)
    beside = Neighbours(LIMIT, same_uid_bytes)
    host.write_table("tcp", line(0, 322 * MIB, uid=uid))
    assert host.look(beside) == (None, None)
    host.write_table("tcp", line(0, 323 * MIB, uid=uid))
    assert host.look(beside) == (Verdict.OOM_KILLED, 513 * MIB)


@pytest.mark.parametrize("status", ["", "Uid:\t65534\t65534\t65534\t65534\n"], ids=["gone", "in no namespace of ours"])
def test_s202_a_guest_without_a_known_uid_has_no_sockets_for_certain(host: Host, status: str) -> None:
    (host.proc / str(PID) / "status").write_text(status)
    host.write_memory(190 * MIB, 0)
    host.write_table("tcp", line(0, 113 * MIB, uid=65534))
    assert host.look(Neighbours(LIMIT)) == (None, None)
    host.write_table("tcp", line(0, 323 * MIB, uid=65534))
    assert host.look(Neighbours(LIMIT)) == (Verdict.OOM_KILLED, 513 * MIB)


def test_s202_what_a_guest_holds_for_certain_stops_it_beside_others_too(host: Host) -> None:
    host.write_memory(100 * MIB, 157 * MIB)
    assert host.look(Neighbours(LIMIT, LIMIT)) == (Verdict.OOM_KILLED, 257 * MIB)


def test_neighbours_are_all_others_and_those_with_the_same_uid() -> None:
    others = (NetworkMember(1, 10), NetworkMember(2, 20), NetworkMember(1, 40))
    assert find_neighbours(NetworkMember(1, 5), others) == Neighbours(70, 50)
    assert find_neighbours(NetworkMember(1, 5), ()) == ALONE


def test_s202_a_guest_that_uses_its_memory_for_other_things_is_the_kernels_matter(host: Host) -> None:
    host.write_memory(LIMIT, 32 * MIB)
    assert host.look() == (None, None)


def test_s202_tables_are_not_read_while_sockets_of_the_host_hold_little(host: Host) -> None:
    host.write_memory(LIMIT, LIMIT)
    host.write_host(tcp=16 * MIB, udp=15 * MIB)
    assert host.look() == (None, None)
    host.write_host(tcp=16 * MIB, udp=17 * MIB)
    assert host.look()[0] is Verdict.OOM_KILLED


def test_s202_looks_are_rare_and_the_given_condition_comes_first(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = SocketWatch(host.paths, PID, LIMIT, host.proc)
    now = [100.0]
    monkeypatch.setattr("sandbox.engine.socket_memory.time.monotonic", lambda: now[0])
    assert watch.check() is None
    host.write_memory(LIMIT, LIMIT)
    assert watch.watch_beside(lambda: Verdict.KILLED)() is Verdict.KILLED
    assert watch.check() is None
    now[0] += 0.1
    assert watch.check() is Verdict.OOM_KILLED


def test_s202_a_long_look_is_followed_by_one_at_once_only_if_the_host_holds_more(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that takes seconds must not hide what fills up meanwhile, nor keep the controller busy."""
    now, looks = [100.0], list[float]()

    def look(_watch: SocketWatch, *_: object, **__: object) -> None:
        looks.append(now[0])
        now[0] += 2.0

    monkeypatch.setattr("sandbox.engine.socket_memory.time.monotonic", lambda: now[0])
    monkeypatch.setattr(SocketWatch, "_find_excess", look)
    watch = SocketWatch(host.paths, PID, LIMIT, host.proc)
    grown = LIMIT // 8
    for held in (1000, 1000 + grown, 1000, 1000 + grown, 1000 + 2 * grown, 1000):
        host.write_host(tcp=LIMIT + held // mmap.PAGESIZE * mmap.PAGESIZE, udp=0)
        now[0] += 0.2
        assert watch.check() is None
    assert looks == pytest.approx([100.2, 102.4, 105.0])
    now[0] += 20.0
    watch.check()
    assert len(looks) == 4


def grow(host: Host, watch: SocketWatch, now: list[float]) -> Verdict | None:
    """What a second look says, after the host's kernel took a gigabyte more; the first one says nothing."""
    host.write_host(tcp=0, udp=0)
    host.write_kernel(100 * MIB)
    assert watch.check() is None
    host.write_kernel(1124 * MIB)
    now[0] += 1.0
    return watch.check()


@pytest.mark.parametrize("waiting", [LIMIT // 8, LIMIT])
@pytest.mark.parametrize("neighbours", [ALONE, Neighbours(2 * LIMIT, 0)], ids=["alone", "beside others"])
def test_s236_replies_of_netlink_that_wait_count(
    host: Host, clock: list[float], waiting: int, neighbours: Neighbours
) -> None:
    """They name no user: beside others a guest is stopped only if they are more than all may hold."""
    rows = [f"0000000000000000 0 {n} 00000000 {waiting // 2} 0 0 2 0 7\n" for n in range(2)]
    (host.proc / str(PID) / "net" / "netlink").write_text(
        "sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode\n" + "".join(rows)
    )
    host.write_memory(LIMIT // 2, 0)
    watch = SocketWatch(host.paths, PID, LIMIT, host.proc)
    watch.watch_beside(never_stop, neighbours)
    is_over = waiting == LIMIT and neighbours == ALONE
    assert grow(host, watch, clock) is (Verdict.OOM_KILLED if is_over else None)


@pytest.mark.parametrize(
    ("lock", "pid", "is_stopped"),
    [
        ("POSIX  ADVISORY  WRITE 42 00:31:7 0 0", PID, True),
        ("FLOCK  ADVISORY  WRITE 42 00:31:7 0 EOF", PID, False),  # its open file is charged
        ("POSIX  ADVISORY  WRITE 77 00:31:7 0 0", 77, False),
    ],
    ids=["process", "flock", "another's"],
)
def test_s236_locks_on_ranges_of_files_count(
    host: Host, clock: list[float], lock: str, pid: int, is_stopped: bool
) -> None:
    limit = 8 * MIB
    host.write_memory(limit, 0)
    (host.group / "cgroup.procs").write_text(f"{PID}\n")
    (host.proc / str(pid) / "fdinfo").mkdir(parents=True)
    locks = "".join(f"lock:\t{n}: {lock}\n" for n in range(limit // 8 // 192 + 1))
    (host.proc / str(pid) / "fdinfo" / "3").write_text(f"pos:\t0\nflags:\t02\nino:\t7\n{locks}")
    watch = SocketWatch(replace(host.paths, pids=host.group), PID, limit, host.proc)
    assert grow(host, watch, clock) is (Verdict.OOM_KILLED if is_stopped else None)


def test_s236_descriptors_of_one_open_file_have_its_locks_once(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / "1" / "fdinfo").mkdir(parents=True, exist_ok=True)
        lock = f"lock:\t1: POSIX  ADVISORY  WRITE 1 00:31:{number // 4} 0 0\n"
        (tmp_path / "1" / "fdinfo" / str(number)).write_text(f"pos:\t0\nino:\t{number // 4}\n{lock}")
    assert estimate_lock_bytes(tmp_path, [1, 2]) == 2 * 192 * 1


def test_s236_tables_are_not_read_while_the_kernel_holds_no_more_than_before(host: Host, clock: list[float]) -> None:
    host.write_host(tcp=0, udp=0)
    host.write_kernel(5000 * MIB)
    watch = SocketWatch(host.paths, PID, LIMIT, host.proc)
    host.write_memory(LIMIT, LIMIT)
    assert watch.check() is None
    clock[0] += 1.0
    host.write_kernel(5000 * MIB + LIMIT // 8)
    assert watch.check() is None
    clock[0] += 1.0
    host.write_kernel(5001 * MIB + LIMIT // 8)
    assert watch.check() is Verdict.OOM_KILLED


def test_s202_files_that_are_gone_are_no_guest_to_stop(tmp_path: Path) -> None:
    paths = CgroupPaths(1, memory=tmp_path / "gone")
    assert SocketWatch(paths, PID, LIMIT, tmp_path).check() is None
    assert SocketWatch(None, PID, LIMIT, tmp_path).check() is None
