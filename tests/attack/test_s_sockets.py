"""THREATS S202, S236: memory of the kernel that no control group, or not each, is charged for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandbox.engine import supervised
from sandbox.engine.cgroups import CGROUP_ROOT
from sandbox.engine.socket_memory import SocketWatch
from sandbox.models import CheckRun, Verdict
from tests.attack.arena import Arena

pytestmark = [pytest.mark.must, pytest.mark.one_git]

MIB = 1024**2
LIMIT = 64 * MIB
SENT = 4 * LIMIT
ROOM = f"limits = {{ memory_bytes = {LIMIT}, cpus = 2.0, pids = 64, open_files = 4096 }}\ntimeout_s = 60"
HEAD = f"""
import socket, sys, time
kept, sent, chunk, ends_at = [], 0, b"x" * 65536, time.monotonic() + 20
def read_udp():
    (line,) = (line.split() for line in open("/proc/net/sockstat") if line.startswith("UDP:"))
    return int(line[-1]) * 4096 >> 20
before = read_udp()
def fill(s, most=1 << 30):
    global sent
    s.setblocking(False)
    while most > 0 and sent < {SENT}:
        try: done = s.send(chunk)
        except OSError: return
        sent, most = sent + done, most - done
def listen():
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    s.bind(("127.0.0.1", 0)); s.listen(4096); kept.append(s)
    return s
def goes_on(): return sent < {SENT} and time.monotonic() < ends_at
"""
TAIL = """
print(sent >> 20, read_udp() - before, flush=True)
time.sleep(int(sys.argv[1]))
"""
WAYS = {
    "accepted connections": """
s = listen()
while goes_on():
    c = socket.socket(); c.connect(s.getsockname()); a, _ = s.accept(); kept += [c, a]; fill(c); fill(a)
""",
    "connections that are not accepted": """
s = listen()
while goes_on():
    c = socket.socket(); c.connect(s.getsockname()); kept.append(c); fill(c)
""",
    "datagrams": """
while goes_on():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); kept.append(s)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20); s.bind(("127.0.0.1", 0)); s.connect(s.getsockname())
    chunk = b"x" * 60000
    fill(s, 1 << 20)
""",
}


def run(arena: Arena) -> CheckRun:
    return arena.workbench.run(str(arena.remote)).runs[0]


@pytest.mark.parametrize("way", WAYS)
def test_s202_network_buffers_count_as_memory_of_a_guest(
    guests: Callable[..., Arena], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Control: without the limit and the watch the check holds four times its memory, and passes."""
    if (CGROUP_ROOT / "cgroup.controllers").exists() and way != "connections that are not accepted":
        pytest.skip("version 2 of control groups counts it as memory by itself")
    program = HEAD + WAYS[way] + TAIL
    with monkeypatch.context() as open_wall:
        open_wall.setattr(supervised, "limit_socket_memory", lambda *_: None)
        open_wall.setattr(SocketWatch, "check", lambda _: None)
        control = run(guests("python3", "-c", program, "1", extra=ROOM, image="python"))
    assert control.verdict is Verdict.PASSED, (control.verdict, control.stderr_tail)
    sent, as_datagrams = map(int, control.stdout_tail.split())
    assert sent >= SENT // MIB, "void"
    assert (control.usage.memory_peak_bytes or 0) <= LIMIT
    held_s = "1" if way == "datagrams" else "30"  # on a busy host the watch may look after seconds only
    found = run(guests("python3", "-c", program, held_s, extra=ROOM, image="python"))
    if way == "datagrams":  # the kernel drops what is past the share
        assert as_datagrams > 2 * LIMIT // MIB, "void"
        assert found.verdict is Verdict.PASSED
        assert int(found.stdout_tail.split()[1]) < LIMIT // MIB
    else:
        assert found.verdict is Verdict.OOM_KILLED
        assert (found.usage.memory_peak_bytes or 0) > LIMIT


CLOSES = """
import socket, time
listener = socket.socket(); listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
listener.bind(("127.0.0.1", 0)); listener.listen(64)
kept, sent, chunk = [], 0, b"x" * 65536
while sent < 26 << 20:
    c = socket.socket(); c.connect(listener.getsockname()); a, _ = listener.accept(); kept += [a, c]
    c.setblocking(False)
    while sent < 26 << 20:
        try: sent += c.send(chunk)
        except OSError: break
for c in kept[1::2]: c.close()
waits = [line.split() for line in open("/proc/net/tcp") if line.split()[3] in ("04", "09")]
print(sum(int(words[4].split(":")[0], 16) for words in waits) >> 20, {words[9] for words in waits}, flush=True)
time.sleep(1)
"""


def test_s202_what_a_closed_socket_still_sends_is_no_memory_twice(guests: Callable[..., Arena]) -> None:
    """A check that closes sockets with data on the way passes: it holds less than its limit."""
    found = run(guests("python3", "-c", CLOSES, extra=ROOM, image="python"))
    closed, _, inodes = found.stdout_tail.partition(" ")
    assert closed, (found.verdict, found.stderr_tail)
    assert int(closed) > 20, "void"
    assert inodes.strip() == "{'0'}", "void"
    assert found.verdict is Verdict.PASSED, (found.verdict, found.usage.memory_peak_bytes)


UNCHARGED_MIB = 160
UNCHARGED = {
    "replies of netlink": """
import socket, struct
ask = struct.pack("=IHHII", 32, 18, 1, 1, 0) + struct.pack("=BxHiII", 0, 0, 1, 0, 0)  # RTM_GETLINK of lo
while goes_on():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.setblocking(False); kept.append(s)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 30)
    try:
        for _ in range(4000): s.send(ask)
    except OSError: pass
""",
    "locks of a process": """
import fcntl, os, struct
while goes_on():
    fd = os.open(f"/tmp/{len(kept)}", os.O_RDWR | os.O_CREAT, 0o600); kept.append(fd)
    for at in range(1000, 0, -1):  # each at the head of the list
        fcntl.fcntl(fd, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 2 * at, 1, 0))
""",
}
UNCHARGED_HEAD = f"""
import re, sys, time
kept, ends_at = [], time.monotonic() + 25
def held(): return int(re.search(r"SUnreclaim: +(\\d+)", open("/proc/meminfo").read())[1]) >> 10
before = held()
def goes_on(): return held() - before < {UNCHARGED_MIB} and time.monotonic() < ends_at
"""
UNCHARGED_TAIL = """
print(held() - before, flush=True)
time.sleep(int(sys.argv[1]))
"""


@pytest.mark.parametrize("way", UNCHARGED)
def test_s236_what_no_control_group_is_charged_for_counts_as_memory_of_a_guest(
    guests: Callable[..., Arena], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Control: without the watch the check holds more of the host than it may, its peak does not show it, and it
    passes.
    """
    program = UNCHARGED_HEAD + UNCHARGED[way] + UNCHARGED_TAIL
    with monkeypatch.context() as open_wall:
        open_wall.setattr(SocketWatch, "check", lambda _: None)
        control = run(guests("python3", "-c", program, "1", extra=ROOM, image="python"))
    assert control.verdict is Verdict.PASSED, (control.verdict, control.stderr_tail)
    assert int(control.stdout_tail) >= UNCHARGED_MIB, "void"
    assert (control.usage.memory_peak_bytes or 0) <= LIMIT
    found = run(guests("python3", "-c", program, "30", extra=ROOM, image="python"))
    assert found.verdict is Verdict.OOM_KILLED
    assert (found.usage.memory_peak_bytes or 0) > LIMIT
