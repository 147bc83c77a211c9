"""PID 1 of a bare namespace, spoken to over pipes: the harness of the supervisor's tests.

It runs under a uid of its own, without capabilities, as in a guest. Reads have generous deadlines: a frame that does
not come fails the test that waits for it.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from devtools.waiting import wait_until

UID = 64321
UNSHARES_OWN = b"unshare: sigprocmask unblock failed: Invalid argument\n"  # when SIGKILL ends its child
PATIENCE_S = 120.0
LONG_MS = 600_000
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TIMED_OUT, KILLED, QUIESCENT, NOT_STARTED = 1, 2, 4, 8
DONE = struct.Struct(">iIiQQQIQ")


@dataclass(frozen=True)
class Done:
    """A check's report, and what it wrote before."""

    status: int  # wait(2)
    flags: int
    errno: int
    user_us: int
    system_us: int
    maxrss_kib: int
    leftovers: int
    wall_us: int
    out: bytes
    err: bytes

    @property
    def code(self) -> int:
        """Exit status, or minus the signal."""
        return os.waitstatus_to_exitcode(self.status)

    @property
    def passed(self) -> bool:
        """Whether a controller would take it for a check that passed in a guest to keep."""
        return self.status == 0 and self.flags == QUIESCENT


class Ended(Exception):
    """PID 1 closed its stdout."""


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    return kind + struct.pack(">I", len(payload)) + payload


def words(*texts: str | bytes) -> bytes:
    return b"".join((text if isinstance(text, bytes) else text.encode()) + b"\0" for text in texts)


def order(
    nonce: bytes, argv: tuple[str | bytes, ...], env: tuple[str, ...] = (PATH,), cwd: str = "/", ms: int = LONG_MS
) -> bytes:
    """The payload of a run."""
    return nonce + struct.pack(">QII", ms, len(argv), len(env)) + words(cwd, *argv, *env)


@dataclass
class Pid1:
    """The process and both ends of its conversation."""

    process: subprocess.Popen[bytes]

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def send_meanwhile(self, data: bytes) -> threading.Thread:
        """Write without waiting for whoever has to read first."""
        thread = threading.Thread(target=self.send, args=(data,), daemon=True)
        thread.start()
        return thread

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def read(self, count: int) -> bytes:
        """Exactly so many bytes. Raises `Ended` at the end of the stream."""
        assert self.process.stdout is not None
        got, until = b"", time.monotonic() + PATIENCE_S
        fd = self.process.stdout.fileno()
        while len(got) < count:
            ready, _, _ = select.select([fd], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"nothing came within {PATIENCE_S:g} s"
            piece = os.read(fd, count - len(got))
            if not piece:
                raise Ended
            got += piece
        return got

    def receive(self) -> tuple[bytes, bytes]:
        """One frame: its type and payload."""
        kind, length = struct.unpack(">cI", self.read(5))
        assert length <= 1 << 20
        return kind, self.read(length)

    def start(self, *argv: str | bytes, env: tuple[str, ...] = (PATH,), cwd: str = "/", ms: int = LONG_MS) -> bytes:
        """Begin a check; its nonce."""
        nonce = secrets.token_bytes(16)
        self.send(frame(b"R", order(nonce, argv, env, cwd, ms)))
        return nonce

    def begin(self, *argv: str | bytes, ms: int = LONG_MS) -> bytes:
        """Begin a check, and see it accepted before anything it writes; its nonce."""
        nonce = secrets.token_bytes(16)
        self.send(frame(b"R", order(nonce, argv, ms=ms)) + frame(b"P", nonce))
        assert self.receive() == (b"A", nonce + b"\1")
        return nonce

    def finish(self, nonce: bytes) -> Done:
        """Read on until the report, which must be about `nonce`, as must be all before it."""
        streams = {b"O": bytearray(), b"E": bytearray()}
        while True:
            kind, payload = self.receive()
            assert payload[:16] == nonce
            if kind == b"D":
                numbers: tuple[int, int, int, int, int, int, int, int] = DONE.unpack(payload[16:])
                return Done(*numbers, bytes(streams[b"O"]), bytes(streams[b"E"]))
            streams[kind] += payload[16:]
            assert 0 < len(payload) - 16 <= select.PIPE_BUF - 5 - 16, "a frame is one atomic write"

    def check(self, *argv: str | bytes, env: tuple[str, ...] = (PATH,), cwd: str = "/", ms: int = LONG_MS) -> Done:
        """Start and finish."""
        return self.finish(self.start(*argv, env=env, cwd=cwd, ms=ms))

    def until_output(self, nonce: bytes) -> bytes:
        """The first output of a check that runs."""
        kind, payload = self.receive()
        assert (kind, payload[:16]) == (b"O", nonce)
        return payload[16:]

    def ping(self, token: bytes = b"") -> int:
        """Whether a check runs: 0 or 1. Nothing else may come before the answer."""
        token = token or secrets.token_bytes(16)
        self.send(frame(b"P", token))
        kind, payload = self.receive()
        assert (kind, payload[:16], len(payload)) == (b"A", token, 17)
        return payload[16]

    def exit_code(self) -> int:
        """How it ended. Waits for it."""
        return self.process.wait(PATIENCE_S)

    def pids(self) -> set[int]:
        """Who is there, but the shell that looks."""
        *found, shell = self.check("sh", "-c", "cd /proc; echo [0-9]* $$").out.split()
        return {int(pid) for pid in found} - {int(shell)}

    @property
    def host_pid(self) -> int:
        """Its pid outside."""
        return wait_until(self.child)

    def child(self) -> int:
        """The same, or 0 when there is none yet or no more."""
        try:
            found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        except FileNotFoundError:
            return 0
        return int(found[0]) if found else 0

    def kill(self) -> None:
        """With all that is in its namespace."""
        while self.process.poll() is None:
            if pid := self.child():
                with suppress(ProcessLookupError):  # it has just ended by itself
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)


@contextmanager
def pid1(binary: Path, *arguments: str) -> Iterator[Pid1]:
    """`binary` as the first process of a new namespace with its own /proc. It says nothing on stderr, whatever comes.

    `unshare --kill-child` would not kill it: the wish to die with a parent ends with a change of uid (prctl(2)).
    """
    command = ["unshare", "--pid", "--fork", "--mount-proc"]
    command += ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--no-new-privs", str(binary)]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as process:
        guest = Pid1(process)
        try:
            yield guest
        finally:
            guest.kill()
            assert process.stderr is not None
            said = process.stderr.read()
    assert said in (b"", UNSHARES_OWN)
