"""images/init/init.c as PID 1: commands beside a check, questions about files and ports, signals."""

from __future__ import annotations

import secrets
import select
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.waiting import wait_until
from tests.unit.pid1 import (
    DONE,
    KILLED,
    LONG_MS,
    QUIESCENT,
    TIMED_OUT,
    Done,
    Ended,
    Pid1,
    frame,
    order,
    pid1,
)

pytestmark = pytest.mark.slow
SLEEPS = ("sleep", "1000")
MOST = 4


@pytest.fixture
def guest(supervisor: Path) -> Iterator[Pid1]:
    with pid1(supervisor, "300") as found:
        yield found


def beside(guest: Pid1, *argv: str, ms: int = LONG_MS) -> bytes:
    """Start a command beside the check; its nonce."""
    nonce = secrets.token_bytes(16)
    guest.send(frame(b"S", order(nonce, argv, ms=ms)))
    return nonce


def collect(guest: Pid1, *nonces: bytes) -> dict[bytes, Done]:
    """Read until each of these has its report; no frame of another may come."""
    outputs = {(nonce, kind): bytearray() for nonce in nonces for kind in (b"O", b"E")}
    found: dict[bytes, Done] = {}
    while len(found) < len(nonces):
        kind, payload = guest.receive()
        nonce, rest = payload[:16], payload[16:]
        assert nonce in nonces
        assert nonce not in found, "the report is the last frame"
        if kind == b"D":
            out, err = (bytes(outputs[nonce, stream]) for stream in (b"O", b"E"))
            numbers: tuple[int, int, int, int, int, int, int, int] = DONE.unpack(rest)
            found[nonce] = Done(*numbers, out, err)
        else:
            outputs[nonce, kind] += rest
            assert 0 < len(rest) <= select.PIPE_BUF - 5 - 16
    return found


def kill(guest: Pid1, nonce: bytes) -> None:
    guest.send(frame(b"K", nonce))


def answer(guest: Pid1, kind: bytes, more: bytes) -> int:
    """The errno of a question about a place."""
    token = secrets.token_bytes(16)
    guest.send(frame(kind, token + more))
    got, payload = guest.receive()
    assert (got, payload[:16]) == (b"N", token)
    return int(struct.unpack(">I", payload[16:])[0])


def test_command_beside_a_check_has_a_report_and_streams_of_its_own(guest: Pid1) -> None:
    check = guest.begin(*SLEEPS)
    ours = beside(guest, "sh", "-c", "echo out; echo err >&2; exit 3")
    done = collect(guest, ours)[ours]
    assert (done.code, done.flags, done.out, done.err) == (3, QUIESCENT, b"out\n", b"err\n")
    assert guest.ping() == 1, "the check goes on"
    kill(guest, check)
    assert guest.finish(check).flags == KILLED | QUIESCENT


def test_several_run_at_once_and_one_more_is_busy(guest: Pid1) -> None:
    check = guest.begin(*SLEEPS)
    started = [beside(guest, "sh", "-c", f"echo {n}; sleep 1000") for n in range(MOST)]
    assert sorted(guest.receive()[0] for _ in started) == [b"O"] * MOST
    extra = beside(guest, "true")
    assert guest.receive() == (b"B", extra)
    kill(guest, started[1])
    assert collect(guest, started[1])[started[1]].flags == KILLED | QUIESCENT
    again = beside(guest, "true")
    assert collect(guest, again)[again].passed, "its place is free"
    kill(guest, check)
    left = [nonce for nonce in started if nonce != started[1]]
    done = collect(guest, check, *left)
    assert {done[nonce].flags & KILLED for nonce in (check, *left)} == {KILLED}
    assert list(done)[-1] == check, "the check's report is the last"
    assert done[check].leftovers == 0


def test_nothing_runs_beside_no_check(guest: Pid1) -> None:
    ours = beside(guest, "true")
    assert guest.receive() == (b"B", ours)
    assert guest.check("true").passed


def command_lines(guest: Pid1) -> bytes:
    look = beside(guest, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    return collect(guest, look)[look].out


def test_deadline_of_one_ends_it_and_its_group_only(guest: Pid1) -> None:
    check = guest.begin("sh", "-c", "sleep 1000 & sleep 1000")
    ours = beside(guest, "sh", "-c", "sleep 2000 & sleep 2000", ms=300)
    assert collect(guest, ours)[ours].flags == TIMED_OUT | QUIESCENT
    wait_until(lambda: b"sleep 2000" not in command_lines(guest))  # the last of the group takes a moment to die
    assert command_lines(guest).count(b"sleep 1000") == 4
    kill(guest, check)
    assert guest.finish(check).flags == KILLED | QUIESCENT


def test_end_of_the_check_is_the_end_of_all_that_left_their_group(guest: Pid1) -> None:
    check = guest.begin("sh", "-c", "sleep 1000")
    ours = beside(guest, "sh", "-c", "setsid sleep 3000 & exit 0")
    assert collect(guest, ours)[ours].code == 0
    kill(guest, check)
    assert guest.finish(check).flags == KILLED | QUIESCENT
    assert guest.pids() == {1}


def test_who_left_the_group_and_writes_on_does_not_hold_the_report(guest: Pid1) -> None:
    check = guest.begin(*SLEEPS)
    ours = beside(guest, "sh", "-c", "setsid yes & exit 0")
    done = collect(guest, ours)[ours]
    assert (done.code, done.flags) == (0, QUIESCENT)
    kill(guest, check)
    assert guest.finish(check).flags == KILLED | QUIESCENT


def test_flood_of_the_check_does_not_starve_the_others(guest: Pid1) -> None:
    check = guest.start("sh", "-c", "yes")
    ours = beside(guest, "echo", "heard")
    while True:
        kind, payload = guest.receive()
        if payload[:16] == ours:
            assert (kind, payload[16:]) == (b"O", b"heard\n")
            break
        assert payload[:16] == check
    kill(guest, check)
    seen: list[bytes] = []
    while seen.count(b"D") < 2:
        seen.append(guest.receive()[0])


def test_a_signal_reaches_the_process_that_is_named(guest: Pid1, folder: Path) -> None:
    mark = folder / "ready"
    check = guest.begin("sh", "-c", f"trap 'exit 7' TERM; : > {mark}; while :; do sleep 0.05; done")
    wait_until(mark.exists)
    guest.send(frame(b"T", secrets.token_bytes(16) + struct.pack(">I", signal.SIGKILL)))
    assert guest.ping() == 1, "of another nonce: ignored"
    guest.send(frame(b"T", check + struct.pack(">I", signal.SIGTERM)))
    done = guest.finish(check)
    assert (done.code, done.flags) == (7, QUIESCENT)


def test_files_are_found_and_links_and_folders_are_not(guest: Pid1, folder: Path) -> None:
    (folder / "file").touch()
    (folder / "link").symlink_to(folder / "file")
    errors = [answer(guest, b"F", str(folder / name).encode() + b"\0") for name in ("file", "link", "", "missing")]
    assert errors == [0, 21, 21, 2]


def test_ports_are_found_when_something_listens(guest: Pid1) -> None:
    program = (
        "import socket,time; s=socket.create_server(('127.0.0.1',18392)); print('up', flush=True); time.sleep(999)"
    )
    assert answer(guest, b"C", struct.pack(">H", 18392)) == 111, "the control: refused before"
    check = guest.begin("python3", "-c", program)
    assert guest.until_output(check) == b"up\n"
    assert answer(guest, b"C", struct.pack(">H", 18392)) == 0
    kill(guest, check)
    assert guest.finish(check).flags == KILLED | QUIESCENT


@pytest.mark.parametrize(
    "data",
    [
        frame(b"T", bytes(16)),
        frame(b"C", bytes(17)),
        frame(b"F", bytes(16)),
        frame(b"F", bytes(16) + b"x"),
        frame(b"S"),
    ],
    ids=["signal", "port", "no-file", "no-end", "no-command"],
)
def test_malformed_frames_end_the_guest(guest: Pid1, data: bytes) -> None:
    guest.send(data)
    with pytest.raises(Ended):
        guest.receive()
    assert guest.exit_code() == 70
