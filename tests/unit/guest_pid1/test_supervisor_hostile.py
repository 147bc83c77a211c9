"""images/init/init.c against checks that attack it. Each attack also runs where it must work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.waiting import wait_until
from tests.unit.pid1 import (
    KILLED,
    NOT_STARTED,
    QUIESCENT,
    TIMED_OUT,
    UID,
    Pid1,
    frame,
    pid1,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def guest(supervisor: Path) -> Iterator[Pid1]:
    """A PID 1 that stays long enough."""
    with pid1(supervisor, "300") as found:
        yield found


# --- looking in

PRYING = "mem fd/0 fd/1 environ maps oom_score_adj exe process_vm_readv pidfd_getfd ptrace".split()  # noqa: SIM905  # a table of words


@pytest.fixture(scope="module")
def pried(supervisor: Path, attacks: Path) -> dict[str, int]:
    with pid1(supervisor, "300") as guest:
        done = guest.check(str(attacks), "pry")
    assert done.passed
    lines = (line.rsplit(" ", 1) for line in done.out.decode().splitlines())
    return {what: int(errno) for what, errno in lines}


@pytest.mark.parametrize("what", PRYING)
def test_check_cannot_look_into_pid_1(pried: dict[str, int], what: str) -> None:
    assert pried[f"child {what}"] == 0, "the control: into its own child it can"
    assert pried[f"pid1 {what}"] in {1, 13}  # EPERM, EACCES


def test_check_is_as_open_to_its_own_as_any_program(guest: Pid1) -> None:
    """What hides PID 1 does not stay on the check: debuggers and sanitizers work on it."""
    assert guest.check("sh", "-c", "(read _ < /proc/$$/environ; ls /proc/$$/fd) > /dev/null").code == 0


# --- signals


def test_no_signal_reaches_pid_1(guest: Pid1, attacks: Path) -> None:
    done = guest.check(str(attacks), "signals")
    assert (done.code, done.out, done.flags) == (0, b"child 9\n", QUIESCENT)
    assert guest.ping() == 0
    assert guest.check("true").passed


def test_stop_from_inside_does_not_hold_the_deadline(guest: Pid1) -> None:
    done = guest.check("sh", "-c", "while :; do kill -STOP 1; done", ms=300)
    assert done.flags == TIMED_OUT | QUIESCENT


def test_flood_of_sigchld_drowns_neither_ping_nor_kill(guest: Pid1, attacks: Path) -> None:
    nonce = guest.start("sh", "-c", f"{attacks} chld & {attacks} chld & echo ready; wait")
    assert guest.until_output(nonce) == b"ready\n"
    for _ in range(10):
        assert guest.ping() == 1
    guest.send(frame(b"K", nonce))
    assert guest.finish(nonce).flags == KILLED | QUIESCENT


def test_flood_of_sigchld_does_not_hold_the_deadline(guest: Pid1, attacks: Path) -> None:
    assert guest.check(str(attacks), "chld", ms=500).flags == TIMED_OUT | QUIESCENT


# --- tracing


def test_check_that_makes_pid_1_its_tracer_ends_by_itself(guest: Pid1, attacks: Path) -> None:
    done = guest.check(str(attacks), "traceme")
    assert (done.code, done.flags) == (0, QUIESCENT)


def test_orphan_that_makes_pid_1_its_tracer_is_killed(guest: Pid1, attacks: Path) -> None:
    done = guest.check("sh", "-c", f"{attacks} orphan-traceme; sleep 0.2; exit 0")
    assert (done.code, done.flags, done.leftovers) == (0, QUIESCENT, 1)
    assert guest.pids() == {1}


def test_check_whose_end_its_own_tracer_keeps_has_timed_out(guest: Pid1, attacks: Path) -> None:
    done = guest.check(str(attacks), "held", ms=1500)
    assert done.flags == TIMED_OUT | QUIESCENT
    assert not done.passed
    assert guest.pids() == {1}


# --- processes


def test_fork_bomb_ends_at_the_deadline_with_nothing_left(guest: Pid1, attacks: Path) -> None:
    done = guest.check(str(attacks), "bomb", "150", ms=1000)
    assert (done.code, done.flags) == (-9, TIMED_OUT | QUIESCENT)
    assert guest.pids() == {1}
    assert guest.check("true").passed


def test_fork_bomb_that_outlives_its_check_is_swept(guest: Pid1, attacks: Path) -> None:
    done = guest.check("sh", "-c", f"{attacks} bomb 150 & sleep 0.3; exit 0")
    assert (done.code, done.flags) == (0, QUIESCENT)
    assert done.leftovers >= 1
    assert guest.pids() == {1}


def test_fork_bomb_is_killed_on_request(guest: Pid1, attacks: Path) -> None:
    nonce = guest.begin(str(attacks), "bomb", "150")
    guest.send(frame(b"K", nonce))
    assert guest.finish(nonce).flags == KILLED | QUIESCENT
    assert guest.pids() == {1}


ORPHAN_FACTORY = "while :; do (:&); done"


def test_orphans_without_end_hold_neither_ping_nor_kill(guest: Pid1) -> None:
    nonce = guest.start("sh", "-c", f"echo ready; for i in 1 2 3; do ({ORPHAN_FACTORY}) & done; {ORPHAN_FACTORY}")
    assert guest.until_output(nonce) == b"ready\n"
    assert guest.ping() == 1
    guest.send(frame(b"K", nonce))
    assert guest.finish(nonce).flags == KILLED | QUIESCENT
    assert guest.pids() == {1}


def test_orphans_without_end_do_not_hold_the_deadline(guest: Pid1) -> None:
    assert guest.check("sh", "-c", ORPHAN_FACTORY, ms=500).flags == TIMED_OUT | QUIESCENT
    assert guest.pids() == {1}


def test_child_without_an_exit_signal_is_buried(guest: Pid1, attacks: Path) -> None:
    done = guest.check(str(attacks), "quiet")
    assert (done.code, done.flags, done.leftovers) == (0, QUIESCENT, 1)
    assert guest.pids() == {1}


DAEMON = "setsid sh -c 'trap \"\" TERM HUP INT; (while :; do echo alive >> {folder}/beats; done) & exec sleep 600' & "


def test_daemon_does_not_write_after_the_report(guest: Pid1, folder: Path) -> None:
    nonce = guest.start("sh", "-c", DAEMON.format(folder=folder) + f"until [ -s {folder}/beats ]; do :; done; exit 0")
    done = guest.finish(nonce)
    size = (folder / "beats").stat().st_size
    assert (done.code, done.flags, done.leftovers) == (0, QUIESCENT, 2)
    assert guest.pids() == {1}
    assert (folder / "beats").stat().st_size == size


def test_control_without_a_sweep_the_daemon_writes_on(guest: Pid1, folder: Path) -> None:
    nonce = guest.start("sh", "-c", DAEMON.format(folder=folder) + "echo ready; sleep 600")
    guest.until_output(nonce)
    size = wait_until(lambda: (folder / "beats").exists() and (folder / "beats").stat().st_size)
    wait_until(lambda: (folder / "beats").stat().st_size > size)
    guest.send(frame(b"X"))  # before the folder goes
    assert guest.exit_code() == 0


# --- output


def imitations(code: int) -> bytes:
    """Reports in PID 1's own words, about every nonce a check could think of."""
    body = bytes(3) + bytes([code]) + bytes([0, 0, 0, QUIESCENT]) + bytes(40)
    return b"".join(frame(b"D", nonce + body) for nonce in (bytes(16), b"\xff" * 16, b"0123456789abcdef"))


def test_imitated_report_is_output(guest: Pid1, folder: Path) -> None:
    (folder / "forged").write_bytes(imitations(0))
    done = guest.check("sh", "-c", f"cat {folder}/forged; cat {folder}/forged >&2; exit 9")
    assert (done.code, done.out, done.err) == (9, imitations(0), imitations(0))


def test_check_cannot_write_where_pid_1_writes(guest: Pid1) -> None:
    script = "for i in 0 1 2 3 4 5 6 7; do echo forged > /proc/1/fd/$i && echo wrote $i; done 2>/dev/null; exit 9"
    done = guest.check("sh", "-c", script)
    assert (done.code, done.out, done.err) == (9, b"", b"")


def test_flood_until_the_deadline_is_read_and_ends(guest: Pid1) -> None:
    done = guest.check("sh", "-c", "cat /dev/zero & cat /dev/zero >&2", ms=500)
    assert (done.code, done.flags) == (-9, TIMED_OUT | QUIESCENT)
    assert min(len(done.out), len(done.err)) > 65536


def test_grandchild_that_floods_after_the_end_does_not_delay_the_report(guest: Pid1) -> None:
    done = guest.check("sh", "-c", "setsid cat /dev/zero & echo last >&2; exit 5")
    assert (done.code, done.err, done.flags, done.leftovers) == (5, b"last\n", QUIESCENT, 1)


def test_output_held_by_sockets_of_the_dead_does_not_hold_the_report(guest: Pid1, attacks: Path) -> None:
    done = guest.check(str(attacks), "inflight")
    assert done.out == b"self sendmsg 0\nself sendmsg 0\n"
    assert done.passed


def test_check_that_reads_its_own_pipe_only_robs_itself(guest: Pid1) -> None:
    done = guest.check("sh", "-c", "echo before; head -c 1 /proc/self/fd/1 >/dev/null & exec >&-; sleep 0.2; exit 3")
    assert (done.code, done.flags) == (3, QUIESCENT)
    assert guest.check("echo", "after").out == b"after\n"


# --- limits and priorities of PID 1


def test_lowered_limit_of_pid_1_is_told_and_turns_no_report(guest: Pid1, attacks: Path) -> None:
    done = guest.check("sh", "-c", f"{attacks} limits nofile; exit 7")
    assert done.out == b"pid1 nofile 0\n", "the control: the kernel allows it"
    assert (done.code, done.flags) == (7, 0)
    later = guest.check("true")
    assert (later.errno, later.flags) == (24, NOT_STARTED)  # EMFILE
    assert guest.ping() == 0


def test_forbidden_processes_of_pid_1_start_no_check(guest: Pid1, attacks: Path) -> None:
    done = guest.check(str(attacks), "limits", "nproc")
    assert (done.out, done.code, done.flags) == (b"pid1 nproc 0\n", 0, 0)
    later = guest.check("true")
    assert (later.errno, later.flags, later.status) == (11, NOT_STARTED, -1)  # EAGAIN


CPU = min(os.sched_getaffinity(0))
TOUCHES = {
    "nice": "renice -n 5 -p 1 >/dev/null",
    "batch": "chrt -b -p 0 1",
    "idle": "chrt -i -p 0 1",
    "cpus": f"taskset -cp {CPU} 1 >/dev/null",
}


@pytest.mark.parametrize("script", TOUCHES.values(), ids=TOUCHES.keys())
def test_touched_priority_of_pid_1_is_told(guest: Pid1, script: str) -> None:
    if "taskset" in script and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one CPU: it cannot be taken fewer")
    done = guest.check("sh", "-c", script)
    assert (done.code, done.flags) == (0, 0)
    assert not done.passed


@pytest.mark.parametrize(
    "script", ["ulimit -n 64", "nice -n 5 true", "chrt -b 0 true", f"taskset -c {CPU} true", "ulimit -t 9"]
)
def test_limits_and_priorities_of_the_check_itself_are_its_own_business(guest: Pid1, script: str) -> None:
    assert guest.check("sh", "-c", script).passed
    assert guest.check("sh", "-c", "ulimit -n; nice").out == guest.check("sh", "-c", "ulimit -n; nice").out


# --- the rest


def test_attacks_of_one_check_do_not_reach_the_next(guest: Pid1, attacks: Path) -> None:
    for words in (("pry",), ("signals",), ("traceme",), ("orphans", "50"), ("quiet",), ("inflight",)):
        assert guest.check(str(attacks), *words).flags == QUIESCENT
        assert guest.check("sh", "-c", "exit 1").code == 1
        assert guest.check("true").passed
    assert guest.pids() == {1}


def test_check_is_never_another_user(guest: Pid1) -> None:
    assert guest.check("id", "-u").out == b"%d\n" % UID


def test_exit_takes_a_fork_bomb_along(guest: Pid1, attacks: Path) -> None:
    guest.begin(str(attacks), "bomb", "150")
    guest.send(frame(b"X"))
    assert guest.exit_code() == 0
