"""images/init/init.c as PID 1: what it says, what it accepts, and how it ends. Hostile checks are next door."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from devtools.waiting import wait_until
from tests.unit.pid1 import (
    KILLED,
    LONG_MS,
    NOT_STARTED,
    PATH,
    QUIESCENT,
    TIMED_OUT,
    UID,
    Done,
    Ended,
    Pid1,
    frame,
    order,
    pid1,
    words,
)

pytestmark = pytest.mark.slow
NONCE = b"0123456789abcdef"


@pytest.fixture
def guest(supervisor: Path) -> Iterator[Pid1]:
    """A PID 1 that stays long enough."""
    with pid1(supervisor, "300") as found:
        yield found


# --- one check


@pytest.mark.parametrize(
    ("script", "code"),
    [(f"exit {code}", code) for code in (0, 1, 3, 125, 126, 127, 255)]
    + [(f"kill -{number} $$", -number) for number in (1, 2, 6, 9, 11, 15)],
)
def test_report_has_the_wait_status(guest: Pid1, script: str, code: int) -> None:
    done = guest.check("sh", "-c", script)
    assert (done.code, done.flags, done.errno, done.leftovers) == (code, QUIESCENT, 0, 0)
    assert done.passed == (code == 0)


def test_streams_are_told_apart(guest: Pid1) -> None:
    done = guest.check("sh", "-c", "echo out; echo err >&2; echo more")
    assert (done.out, done.err) == (b"out\nmore\n", b"err\n")


def test_environment_is_exactly_what_was_sent(guest: Pid1) -> None:
    env = ("A=1", "EMPTY=", "B==two words\n", "A=again")
    assert guest.check("/usr/bin/env", env=env).out.decode() == "A=1\nEMPTY=\nB==two words\n\nA=again\n"
    assert guest.check("/usr/bin/env", env=()).out == b""


def test_arguments_are_passed_as_they_are(guest: Pid1) -> None:
    argv = (b"printf", b"[%s]", b"", b"two words", b"-n", b"\xff\xfe\n$HOME")
    assert guest.check(*argv).out == b"[][two words][-n][\xff\xfe\n$HOME]"


def test_working_directory(guest: Pid1) -> None:
    assert guest.check("pwd", cwd="/usr/bin").out == b"/usr/bin\n"


def test_stdin_is_empty(guest: Pid1) -> None:
    done = guest.check("sh", "-c", "cat; readlink /proc/self/fd/0")
    assert (done.code, done.out) == (0, b"/dev/null\n")


def test_check_has_three_descriptors(guest: Pid1) -> None:
    out = guest.check("sh", "-c", "ls /proc/self/fd").out
    assert out.split() == [b"0", b"1", b"2", b"3"]  # 3: what ls lists


def test_check_leads_a_session_and_no_signal_is_blocked_or_ignored(guest: Pid1) -> None:
    status = guest.check("cat", "/proc/self/status").out.decode()  # no shell: it blocks signals while it waits
    seen = dict(line.split(":\t") for line in status.splitlines())
    assert {seen["SigBlk"], seen["SigIgn"]} == {"0" * 16}
    ids = guest.check("cut", "-d ", "-f1,5,6", "/proc/self/stat").out
    assert len(set(ids.split())) == 1  # pid, group, session


def test_check_dies_first_when_memory_runs_out_and_pid_1_stays_as_it_was(guest: Pid1) -> None:
    before = Path(f"/proc/{guest.host_pid}/oom_score_adj").read_text()
    assert guest.check("cat", "/proc/self/oom_score_adj").out == b"1000\n"
    assert Path(f"/proc/{guest.host_pid}/oom_score_adj").read_text() == before


@pytest.mark.parametrize(
    ("argv", "cwd", "name"),
    [
        (("no-such-program",), "/", "ENOENT"),
        (("",), "/", "ENOENT"),
        (("/no/such/program",), "/", "ENOENT"),
        (("/etc/hostname/x",), "/", "ENOTDIR"),
        (("/etc",), "/", "EACCES"),
        (("/etc/passwd",), "/", "EACCES"),
        (("true",), "/no/such/directory", "ENOENT"),
        (("true",), "/etc/passwd", "ENOTDIR"),
        (("true", "x" * 200_000), "/", "E2BIG"),
        (("true", *["x"] * 500_000), "/", "E2BIG"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_check_that_cannot_start_says_why(guest: Pid1, argv: tuple[str, ...], cwd: str, name: str) -> None:
    done = guest.check(*argv, cwd=cwd)
    assert (errno.errorcode[done.errno], done.flags) == (name, NOT_STARTED | QUIESCENT)
    assert done.code != 0
    assert guest.check("true").passed


def test_script_without_an_interpreter_is_no_program(guest: Pid1, folder: Path) -> None:
    script = folder / "script"
    script.write_text("exit 0\n")
    script.chmod(0o755)
    assert guest.check(str(script)).errno == 8  # ENOEXEC
    script.write_text("#!/bin/sh\nexit 4\n")
    assert guest.check(str(script)).code == 4


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("PATH=/nowhere:{folder}:/bin", 7),
        ("PATH={folder}/file:{folder}", 7),  # ENOTDIR is passed over
        ("PATH={folder}/locked:{folder}", 7),  # so is EACCES
        ("PATH=", 7),  # an empty entry is the current directory
        ("PATH=/nowhere:", 7),
        ("PATH=" + "x" * 9000 + ":{folder}", 7),
        ("OTHER=1", 127),  # /usr/bin:/bin
    ],
    ids=lambda value: str(value)[:24],
)
def test_program_is_looked_up_in_the_path_that_was_sent(guest: Pid1, folder: Path, path: str, code: int) -> None:
    script = folder / "tool"
    script.write_text("#!/bin/sh\nexit 7\n")
    script.chmod(0o755)
    (folder / "file").touch()
    (folder / "locked").mkdir()
    (folder / "locked" / "tool").touch(0o644)
    assert guest.check("tool", env=(path.format(folder=folder),), cwd=str(folder)).code == code


def test_program_that_may_not_run_is_told_from_one_that_is_not_there(guest: Pid1, folder: Path) -> None:
    (folder / "tool").touch(0o644)
    assert guest.check("tool", env=(f"PATH={folder}:/nowhere",)).errno == 13


def test_usage_is_that_of_all_processes(guest: Pid1) -> None:
    loop = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    done = guest.check("sh", "-c", f"({loop}); {loop}")
    assert done.user_us + done.system_us > 10_000
    assert done.maxrss_kib > 100
    assert done.wall_us > 10_000
    assert guest.check("true").user_us < done.user_us


def test_wall_time_ends_with_the_check(guest: Pid1) -> None:
    done = guest.check("sh", "-c", "sleep 300 & sleep 0.2")
    assert 200_000 <= done.wall_us < 250_000_000


def test_hundred_checks_leave_no_descriptor_and_no_process(guest: Pid1) -> None:
    for _ in range(10):
        assert guest.check("true").passed
    before = descriptors(guest)
    for number in range(100):
        assert guest.check("sh", "-c", f"echo {number}; exit {number}").out == b"%d\n" % number
    assert descriptors(guest) == before
    assert guest.check("no-such-program").errno
    assert descriptors(guest) == before
    assert guest.pids() == {1}


def descriptors(guest: Pid1) -> dict[str, str]:
    """What PID 1 has open."""
    return {entry.name: str(entry.readlink()) for entry in Path(f"/proc/{guest.host_pid}/fd").iterdir()}


# --- output


def test_megabytes_on_both_streams_arrive_whole(guest: Pid1) -> None:
    script = "head -c 5000000 /dev/zero | tr '\\0' o; head -c 5000000 /dev/zero | tr '\\0' e >&2"
    done = guest.check("sh", "-c", f"({script}) & {script}; wait")
    assert (done.out, done.err) == (b"o" * 10_000_000, b"e" * 10_000_000)


def test_every_byte_is_kept(guest: Pid1, folder: Path) -> None:
    content = bytes(range(256)) * 999 + b"\x00\r\n\x1b[31m" + frame(b"D", NONCE + bytes(48))
    (folder / "bytes").write_bytes(content)
    assert hashlib.sha256(guest.check("cat", str(folder / "bytes")).out).digest() == hashlib.sha256(content).digest()


def test_last_words_come_before_the_report(guest: Pid1) -> None:
    done = guest.check("sh", "-c", "head -c 60000 /dev/zero; echo end; echo error >&2; kill -9 $$")
    assert done.out.endswith(b"end\n")
    assert (len(done.out), done.err) == (60_004, b"error\n")


def test_output_waits_for_a_slow_reader_and_loses_nothing(guest: Pid1, folder: Path) -> None:
    nonce = guest.start("sh", "-c", f"touch {folder}/begun; head -c 3000000 /dev/zero; touch {folder}/ended")
    wait_until((folder / "begun").exists)
    time.sleep(0.2)  # not for anything: whatever it could write without a reader has been written by now, or will be
    assert not (folder / "ended").exists()
    assert len(guest.finish(nonce).out) == 3_000_000
    assert (folder / "ended").exists()


def test_deadline_holds_while_nobody_reads(guest: Pid1) -> None:
    nonce = guest.begin("cat", "/dev/zero", ms=1000)
    wait_until(lambda: not guest_processes(guest))
    done = guest.finish(nonce)
    assert (done.flags, done.code) == (TIMED_OUT | QUIESCENT, -9)


def guest_processes(guest: Pid1) -> list[str]:
    """Children of PID 1, seen from outside."""
    return Path(f"/proc/{guest.host_pid}/task/{guest.host_pid}/children").read_text().split()


def test_closed_outputs_end_nothing(guest: Pid1) -> None:
    before = cpu_ticks(guest)
    done = guest.check("sh", "-c", "echo first; exec >&- 2>&-; sleep 0.5; exit 6")
    assert (done.code, done.out, done.flags) == (6, b"first\n", QUIESCENT)
    assert cpu_ticks(guest) - before < 20, "it did not turn round the closed pipe for half a second"


def cpu_ticks(guest: Pid1) -> int:
    fields = Path(f"/proc/{guest.host_pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


# --- deadline and kill


@pytest.mark.parametrize("script", ["sleep 600", "trap '' TERM INT HUP; sleep 600 & wait; sleep 600", "kill -STOP $$"])
def test_deadline_ends_a_check(guest: Pid1, script: str) -> None:
    done = guest.check("sh", "-c", script, ms=200)
    assert (done.code, done.flags, done.leftovers) == (-9, TIMED_OUT | QUIESCENT, 0)
    assert done.wall_us >= 200_000
    assert guest.pids() == {1}


def test_deadline_of_zero_is_past_at_once(guest: Pid1) -> None:
    assert guest.check("sleep", "600", ms=0).flags == TIMED_OUT | QUIESCENT


def test_largest_deadline_is_far_away(guest: Pid1) -> None:
    assert guest.check("sleep", "0.1", ms=2**64 - 1).passed


def test_check_that_ends_late_has_timed_out_also_when_pid_1_was_stopped(guest: Pid1, folder: Path) -> None:
    began = time.monotonic()
    guest.send(frame(b"R", order(NONCE, ("sh", "-c", waiting_for(folder / "go")), ms=4000)) + frame(b"P", NONCE))
    assert guest.receive() == (b"A", NONCE + b"\1")
    os.kill(guest.host_pid, signal.SIGSTOP)
    try:
        wait_until(lambda: time.monotonic() > began + 4.5)
        (child,) = guest_processes(guest)
        (folder / "go").touch()
        wait_until(lambda: Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    finally:
        os.kill(guest.host_pid, signal.SIGCONT)
    done = guest.finish(NONCE)
    assert (done.code, done.flags) == (0, TIMED_OUT | QUIESCENT)
    assert not done.passed


def waiting_for(path: Path) -> str:
    """A script that ends when `path` is there."""
    return f"until [ -e {path} ]; do sleep 0.01; done"


def test_kill_ends_the_check_it_names(guest: Pid1) -> None:
    nonce = guest.start("sh", "-c", "trap '' TERM; echo ready; sleep 600 & sleep 600")
    assert guest.until_output(nonce) == b"ready\n"
    guest.send(frame(b"K", nonce) * 3)
    done = guest.finish(nonce)
    assert (done.code, done.flags, done.leftovers) == (-9, KILLED | QUIESCENT, 0)
    guest.send(frame(b"K", nonce))
    assert guest.check("true").passed


def test_kill_of_another_check_is_ignored(guest: Pid1, folder: Path) -> None:
    guest.send(frame(b"K", NONCE))
    nonce = guest.start("sh", "-c", f"echo ready; {waiting_for(folder / 'go')}; exit 3")
    assert guest.until_output(nonce) == b"ready\n"
    guest.send(frame(b"K", NONCE))
    assert guest.ping() == 1
    (folder / "go").touch()
    done = guest.finish(nonce)
    assert (done.code, done.flags) == (3, QUIESCENT)


# --- what is left


@pytest.mark.parametrize(
    ("script", "count"),
    [
        ("for i in 1 2 3 4 5; do sleep 600 & done; exit 0", 5),
        ("setsid sleep 600 & exit 0", 1),
        ("(sleep 600 & sleep 600 & exit 1); exit 0", 2),
        ("trap '' TERM HUP; sleep 600 & exit 0", 1),
        ("sleep 600 & kill -STOP $!; exit 0", 1),
        ("sleep 600 >&- 2>&- </dev/null & exit 0", 1),
        ("(while :; do echo noise; done) & exit 0", 1),
        ("exit 0", 0),
        ("sleep 0.01 & wait; exit 0", 0),
    ],
)
def test_what_a_check_leaves_is_killed_and_counted(guest: Pid1, script: str, count: int) -> None:
    done = guest.check("sh", "-c", script)
    assert (done.code, done.flags, done.leftovers) == (0, QUIESCENT, count)
    assert guest.pids() == {1}


def test_what_holds_the_outputs_open_does_not_hold_the_report(guest: Pid1) -> None:
    done = guest.check("sh", "-c", "setsid sleep 600 & echo said; exit 4")
    assert (done.code, done.out, done.leftovers) == (4, b"said\n", 1)


def test_orphans_are_buried_while_the_check_runs_and_are_no_leftovers(guest: Pid1, attacks: Path) -> None:
    done = guest.check(str(attacks), "orphans", "300")
    assert (done.code, done.flags, done.leftovers) == (0, QUIESCENT, 0)


def test_last_thread_decides(guest: Pid1, attacks: Path) -> None:
    done = guest.check(str(attacks), "threads")
    assert (done.code, done.out, done.flags) == (5, b"late\n", QUIESCENT)


# --- the conversation


def test_ping_says_whether_a_check_runs(guest: Pid1) -> None:
    assert guest.ping() == 0
    nonce = guest.start("sh", "-c", "echo ready; sleep 600")
    guest.until_output(nonce)
    assert guest.ping() == 1
    guest.send(frame(b"K", nonce))
    guest.finish(nonce)
    assert guest.ping() == 0


def test_second_check_is_refused_while_one_runs(guest: Pid1) -> None:
    first = guest.start("sh", "-c", "echo ready; sleep 600")
    guest.until_output(first)
    second = guest.start("true")
    assert guest.receive() == (b"B", second)
    guest.send(frame(b"K", second) + frame(b"K", first))
    assert guest.finish(first).flags == KILLED | QUIESCENT
    assert guest.check("true").passed


def test_same_nonce_again_is_a_check_like_another(guest: Pid1) -> None:
    for code in (0, 1):
        guest.send(frame(b"R", order(NONCE, ("sh", "-c", f"exit {code}"))))
        assert guest.finish(NONCE).code == code


@pytest.mark.parametrize("running", [False, True])
def test_posture_is_pid_1s_own(guest: Pid1, running: bool) -> None:
    if running:
        nonce = guest.start("sh", "-c", "echo ready; sleep 600")
        guest.until_output(nonce)
    guest.send(frame(b"Q", NONCE))
    kind, payload = guest.receive()
    assert (kind, payload[:16], payload[-1:]) == (b"I", NONCE, b"\0")
    status, mounts, devices, ports, folders = payload[16:-1].decode().split("\0")
    assert folders == "", "it was told of none"
    assert ports == Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    assert {name: fields[name].strip() for name in ("Pid", "NoNewPrivs", "CapEff")} == {
        "Pid": "1", "NoNewPrivs": "1", "CapEff": "0" * 16,
    }  # fmt: skip
    seen = Path(f"/proc/{guest.host_pid}/mountinfo").read_text()  # of other tests' mounts some may have gone meanwhile
    proc = {line for line in mounts.splitlines() if line.split()[4] == "/proc"}
    assert proc <= set(seen.splitlines())
    assert proc or len(seen) > 100_000, "a table of 128 KiB, as on a host with many mounts, is left out and not cut"
    assert "lo:" in devices


# --- what a check can write


def folders_of(guest: Pid1) -> list[str]:
    """What PID 1 says of its folders."""
    guest.send(frame(b"Q", NONCE))
    kind, payload = guest.receive()
    assert (kind, payload[:16]) == (b"I", NONCE)
    return payload[16:-1].decode().split("\0")[4].splitlines()


def test_folders_are_tried_and_nothing_is_left_in_them(supervisor: Path, folder: Path) -> None:
    own, shut, closed = folder / "own", folder / "shut", folder / "closed"
    for path, owner, mode in ((own, UID, 0o755), (shut, 0, 0o755), (closed, UID, 0o500)):
        path.mkdir()
        path.chmod(mode)
        os.chown(path, owner, owner)
    missing = folder / "missing"
    before = own.stat()
    with pid1(supervisor, "300", *map(str, (own, shut, closed, missing))) as guest:
        for _ in range(2):
            assert folders_of(guest) == [
                f"0 {UID} 755 {own}",
                f"{errno.EACCES} 0 755 {shut}",
                f"{errno.EACCES} {UID} 500 {closed}",
                f"{errno.ENOENT} 0 0 {missing}",
            ]
    after = own.stat()
    assert list(own.iterdir()) == []
    assert (after.st_mtime_ns, after.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns), "a file without a name"


def test_folder_on_a_full_disk_is_told_from_one_that_is_shut(supervisor: Path, folder: Path) -> None:
    """The question is one of rights: a check that fills its disk finds out by itself."""
    place = folder / "full"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,mode=777", "none", place], check=True)
    try:
        (place / "all").write_bytes(bytes(4096))
        with pid1(supervisor, "300", str(place)) as guest:
            assert folders_of(guest) == [f"{errno.ENOSPC} 0 777 {place}"]
        assert [path.name for path in place.iterdir()] == ["all"]
    finally:
        subprocess.run(["umount", place], check=True)


def test_folders_are_left_alone_while_a_check_runs(supervisor: Path, folder: Path) -> None:
    with pid1(supervisor, "300", str(folder)) as guest:
        nonce = guest.start("sh", "-c", "echo ready; sleep 600")
        guest.until_output(nonce)
        assert folders_of(guest) == []


@pytest.mark.parametrize("paths", [["relative"], [""], ["/"] * 5, ["/" + "x" * 300]], ids=lambda value: str(value)[:20])
def test_folders_that_are_none_are_refused(supervisor: Path, paths: list[str]) -> None:
    with pid1(supervisor, "300", *paths) as guest:
        assert guest.exit_code() == 64


def test_frames_may_come_byte_by_byte(guest: Pid1) -> None:
    for byte in frame(b"P", NONCE) + frame(b"R", order(NONCE, ("echo", "hi"))):
        guest.send(bytes([byte]))
    assert guest.receive() == (b"A", NONCE + b"\0")
    assert guest.finish(NONCE).out == b"hi\n"


def test_frames_may_come_all_at_once(guest: Pid1) -> None:
    other = NONCE[::-1]
    guest.send(frame(b"P", NONCE) + frame(b"R", order(NONCE, ("sleep", "600"))) + frame(b"R", order(other, ("true",))))
    guest.send(frame(b"P", NONCE) + frame(b"K", NONCE))
    assert [guest.receive() for _ in range(3)] == [(b"A", NONCE + b"\0"), (b"B", other), (b"A", NONCE + b"\1")]
    assert guest.finish(NONCE).flags == KILLED | QUIESCENT


def test_largest_frame_is_taken(guest: Pid1) -> None:
    empty = order(NONCE, ("true", *[""] * 11))
    argv = ("true", *["x" * 100_000] * 10, "y" * ((1 << 20) - len(empty) - 1_000_000))
    payload = order(NONCE, argv)
    assert len(payload) == 1 << 20
    guest.send(frame(b"R", payload))
    assert guest.finish(NONCE).passed


def test_unread_answers_are_kept_and_all_come(guest: Pid1) -> None:
    tokens = [struct.pack(">QQ", 0, number) for number in range(5_000)]
    writer = guest.send_meanwhile(b"".join(frame(b"P", token) for token in tokens))
    writer.join(0.2)
    assert [guest.receive() for _ in tokens] == [(b"A", token + b"\0") for token in tokens]
    writer.join()


def test_unread_postures_are_kept_and_all_come_with_a_check_between(guest: Pid1) -> None:
    nonce = secrets.token_bytes(16)
    queries = frame(b"Q", NONCE) * 300
    run = frame(b"R", order(nonce, ("sh", "-c", "head -c 300000 /dev/zero")))
    writer = guest.send_meanwhile(queries + run + queries)
    writer.join(0.2)  # not for anything: by now it is most likely blocked
    counts = dict.fromkeys((b"I", b"O", b"D"), 0)
    written = 0
    while counts[b"I"] < 600 or not counts[b"D"]:
        kind, payload = guest.receive()
        counts[kind] += 1
        written += len(payload) - 16 if kind == b"O" else 0
    assert (counts[b"I"], counts[b"D"], written) == (600, 1, 300_000)
    writer.join()


def _run(argc: int, envc: int, *texts: str | bytes, tail: bytes = b"") -> bytes:
    return frame(b"R", NONCE + struct.pack(">QII", LONG_MS, argc, envc) + words(*texts) + tail)


MALFORMED = {
    "unknown type": frame(b"Z"),
    "unknown type, header only": b"Z\0\0\0\x10",
    "type of an answer": frame(b"D", NONCE),
    "nul type": bytes(5),
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "ping without token": frame(b"P"),
    "ping, short": frame(b"P", NONCE[:15]),
    "ping, long": frame(b"P", NONCE + b"x"),
    "kill without nonce": frame(b"K"),
    "kill, long": frame(b"K", NONCE * 2),
    "query, short": frame(b"Q", b"x"),
    "exit with payload": frame(b"X", b"x"),
    "run, empty": frame(b"R"),
    "run, only numbers": frame(b"R", NONCE + struct.pack(">QII", 1, 1, 0)),
    "run too long": b"R" + struct.pack(">I", (1 << 20) + 1),
    "run, longest length": b"R\xff\xff\xff\xff",
    "no argument": _run(0, 0, "/"),
    "fewer arguments than said": _run(2, 0, "/", "true"),
    "more arguments than said": _run(1, 0, "/", "true", "x"),
    "no working directory": _run(1, 0, "true"),
    "relative working directory": _run(1, 0, "usr", "true"),
    "empty working directory": _run(1, 0, "", "true"),
    "arguments without end": _run(0xFFFFFFFF, 0, "/", "true"),
    "variables without end": _run(1, 0xFFFFFFFF, "/", "true"),
    "both without end": _run(0xFFFFFFFF, 0xFFFFFFFF, "/", "true"),
    "variable without value": _run(1, 1, "/", "true", "NAME"),
    "variable without name": _run(1, 1, "/", "true", "=value"),
    "fewer variables than said": _run(1, 2, "/", "true", "A=1"),
    "last text unfinished": _run(1, 1, "/", "true", tail=b"A=1"),
    "bytes after the end": _run(1, 0, "/", "true", tail=b"\0"),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_frame_ends_the_guest(guest: Pid1, data: bytes) -> None:
    assert guest.ping() == 0
    guest.send(data)
    assert guest.exit_code() == 70
    with pytest.raises(Ended):
        guest.receive()


@pytest.mark.parametrize("data", [MALFORMED["unknown type"], MALFORMED["no argument"], MALFORMED["kill, long"]])
def test_malformed_frame_ends_the_check_that_runs(guest: Pid1, data: bytes) -> None:
    nonce = guest.start("sh", "-c", "echo ready; sleep 600")
    guest.until_output(nonce)
    (child,) = guest_processes(guest)
    guest.send(data)
    assert guest.exit_code() == 70
    assert not Path(f"/proc/{child}").exists()
    with pytest.raises(Ended):
        guest.receive()


# --- the end


def test_exit_is_at_once_and_takes_the_check_along(guest: Pid1) -> None:
    nonce = guest.start("sh", "-c", "echo ready; sleep 600")
    guest.until_output(nonce)
    (child,) = guest_processes(guest)
    guest.send(frame(b"X"))
    assert guest.exit_code() == 0
    assert not Path(f"/proc/{child}").exists()


def test_lease_ends_a_guest_nobody_speaks_to(supervisor: Path) -> None:
    with pid1(supervisor, "1") as guest:
        assert guest.exit_code() == 0


def test_lease_does_not_end_a_check_and_begins_again_after_it(supervisor: Path) -> None:
    with pid1(supervisor, "1") as guest:
        assert guest.check("sleep", "1.5").passed
        assert guest.exit_code() == 0


def test_last_output_of_a_long_check_has_a_whole_lease_to_be_read(supervisor: Path) -> None:
    with pid1(supervisor, "1") as guest:
        nonce = guest.start("sh", "-c", "sleep 1.2; head -c 100000 /dev/zero")  # what the pipes hold without a reader
        (child,) = wait_until(lambda: guest_processes(guest))
        began = running = time.monotonic()
        while Path(f"/proc/{child}").exists() and running < began + 60:
            running = time.monotonic()
        try:
            assert len(guest.finish(nonce).out) == 100_000
        except Ended:
            assert time.monotonic() - running >= 1.0, "only a reader who comes too late finds it gone"


def test_lease_is_renewed_by_frames(supervisor: Path) -> None:
    def left_s() -> float | None:
        """How long it stayed after a ping in the middle of its lease; None when it was gone by then."""
        with pid1(supervisor, "1") as guest, suppress(Ended, BrokenPipeError):
            began = time.monotonic()
            wait_until(lambda: time.monotonic() > began + 0.4)
            asked = time.monotonic()
            guest.ping()
            assert guest.exit_code() == 0
            return time.monotonic() - asked
        return None

    assert wait_until(left_s) >= 1.0  # type: ignore[operator]  # not None, it is true


ATTENDING = bytes(16)


@pytest.mark.parametrize("token", [ATTENDING, NONCE, b""], ids=["attending", "asking", "none"])
def test_s158_lease_ends_a_check_whose_controller_pinged_during_it_and_is_silent(
    supervisor: Path, token: bytes
) -> None:
    """The controls: a controller that does not ping leaves the check to its deadline, as one of an earlier version; so
    does another one that only asks whether a check runs.
    """
    with pid1(supervisor, "1") as guest:
        nonce = guest.start("sh", "-c", "trap '' TERM HUP; sleep 600 & sleep 600", ms=3000)
        (child,) = wait_until(lambda: guest_processes(guest))
        if token:
            assert guest.ping(token) == 1
        if token == ATTENDING:
            with pytest.raises(Ended):
                guest.finish(nonce)
        else:
            assert guest.finish(nonce).flags == TIMED_OUT | QUIESCENT
        assert guest.exit_code() == (75 if token == ATTENDING else 0)
        assert not Path(f"/proc/{child}").exists()


def test_a_question_of_another_controller_does_not_take_the_lease_from_a_check(supervisor: Path) -> None:
    with pid1(supervisor, "1") as guest:
        nonce = guest.start("sleep", "600", ms=10_000)
        assert [guest.ping(token) for token in (ATTENDING, NONCE)] == [1, 1]
        with pytest.raises(Ended):
            guest.finish(nonce)
        assert guest.exit_code() == 75


def test_a_silent_controller_keeps_its_check_for_longer_than_an_idle_guest(supervisor: Path) -> None:
    with pid1(supervisor, "1,4") as guest:
        nonce = guest.start("sleep", "2.5")
        assert guest.ping(ATTENDING) == 1
        assert guest.finish(nonce).passed
        idle = time.monotonic()
        assert guest.exit_code() == 0
        assert time.monotonic() - idle < 3, "the lease of an idle guest is the shorter one"
    with pid1(supervisor, "1,2") as guest:
        guest.start("sleep", "600")
        assert guest.ping(ATTENDING) == 1
        assert guest.exit_code() == 75


def test_a_ping_that_waits_for_pid_1_renews_the_lease_that_ended_while_it_was_stopped(
    supervisor: Path, folder: Path
) -> None:
    with pid1(supervisor, "3") as guest:
        nonce = guest.begin("sh", "-c", f"{waiting_for(folder / 'go')}; exit 3")
        os.kill(guest.host_pid, signal.SIGSTOP)
        began = time.monotonic()
        try:
            guest.send(frame(b"P", ATTENDING))
            wait_until(lambda: time.monotonic() > began + 3.2)
            (folder / "go").touch()
        finally:
            os.kill(guest.host_pid, signal.SIGCONT)
        assert guest.receive() == (b"A", ATTENDING + b"\1")
        assert guest.finish(nonce).code == 3


def test_end_of_input_ends_no_check(supervisor: Path) -> None:
    with pid1(supervisor, "1") as guest:
        nonce = guest.start("sh", "-c", "echo ready; sleep 0.5; exit 3")
        guest.hang_up()
        done = guest.finish(nonce)
        assert (done.code, done.flags) == (3, QUIESCENT)
        assert guest.exit_code() == 0


def test_deadline_holds_without_a_controller(supervisor: Path) -> None:
    with pid1(supervisor, "1") as guest:
        nonce = guest.start("sleep", "600", ms=300)
        guest.send(frame(b"R", order(NONCE, ("true",)))[:20])  # it died in the middle of a word
        guest.hang_up()
        assert guest.finish(nonce).flags == TIMED_OUT | QUIESCENT
        assert guest.exit_code() == 0


def test_lease_ends_a_guest_whose_report_nobody_reads(supervisor: Path, folder: Path) -> None:
    with pid1(supervisor, "1") as guest:
        guest.start("sh", "-c", "head -c 1000000 /dev/zero", ms=500)
        assert guest.exit_code() == 0


def test_guest_ends_when_its_output_can_reach_nobody(guest: Pid1) -> None:
    nonce = guest.start("sh", "-c", "echo ready; while :; do echo more; done")
    guest.until_output(nonce)
    assert guest.process.stdout is not None
    guest.process.stdout.close()
    assert guest.exit_code() == 74


@pytest.mark.parametrize(
    "arguments",
    [(), ("",), ("0",), ("-1",), ("x",), ("5x",), ("1", "2"), ("99999999999",), ("1,",), ("1,0",), ("1,2x",)],
)
def test_without_a_lease_nothing_begins(supervisor: Path, arguments: tuple[str, ...]) -> None:
    with pid1(supervisor, *arguments) as guest:
        assert guest.exit_code() == 64


def test_another_process_than_pid_1_does_nothing(supervisor: Path) -> None:
    bystander = ["sh", "-c", 'sleep 600 & "$0" 60; code=$?; kill $! && exit $code', str(supervisor)]
    command = ["unshare", "--pid", "--fork", "--mount-proc", *bystander]  # never outside of a namespace
    assert subprocess.run(command, check=False, timeout=60).returncode == 64


def test_closed_descriptors_and_leaked_ones_are_put_right(supervisor: Path) -> None:
    leaky = f"exec 5</etc/passwd 9>/dev/null 2>&-; exec {supervisor} 60"
    shell = shutil.which("sh")
    assert shell is not None
    with pid1(Path(shell), "-c", leaky) as guest:
        assert guest.ping() == 0
        found = descriptors(guest)
        assert found["2"] == "/dev/null"
        assert "/etc/passwd" not in found.values()
        done = guest.check("sh", "-c", "ls /proc/self/fd; echo error >&2")
        assert (done.out.split(), done.err) == ([b"0", b"1", b"2", b"3"], b"error\n")


def test_every_descriptor_is_closed_on_exec(guest: Pid1) -> None:
    assert guest.ping() == 0
    for info in Path(f"/proc/{guest.host_pid}/fdinfo").iterdir():
        flags = dict(line.split(":", 1) for line in info.read_text().splitlines())["flags"]
        assert int(flags, 8) & os.O_CLOEXEC, info.name


def test_done_is_all_the_caller_needs() -> None:
    """The harness itself: a report with a flag missing is no pass."""
    done = Done(0, QUIESCENT, 0, 0, 0, 0, 0, 0, b"", b"")
    assert done.passed
    assert not Done(0, 0, 0, 0, 0, 0, 0, 0, b"", b"").passed
    assert not Done(0, QUIESCENT | TIMED_OUT, 0, 0, 0, 0, 0, 0, b"", b"").passed
    assert PATH.startswith("PATH=")
