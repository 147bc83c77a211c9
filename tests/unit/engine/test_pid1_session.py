"""A conversation with PID 1 over a socket pair: the other end is scripted, and may say anything or nothing."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import pytest

from sandbox.engine import pid1_session as session
from sandbox.engine.container_types import Streams, never_stop
from sandbox.engine.pid1_messages import Command
from sandbox.engine.pid1_session import Session, SessionOutcome
from sandbox.models import Verdict
from tests.unit.engine.test_pid1_messages import done_frame, frame, wrapped

COMMAND = Command(("true",), PurePosixPath("/"), {})
DEADLINE_S = 300.0
OTHER = bytes(16)

Says = Callable[[bytes, bytes], bytes | None]
"""(type of a request, its nonce or token) -> what the other end sends; None: it hangs up."""


@dataclass
class Peer:
    """The other end, in a thread of its own. `heard`: types and nonces of all requests."""

    channel: socket.socket
    says: Says
    heard: list[tuple[bytes, bytes]] = field(default_factory=list)

    def serve(self) -> None:
        with contextlib.suppress(OSError), self.channel, self.channel.makefile("rb") as stream:
            while len(head := stream.read(5)) == 5:
                payload = stream.read(struct.unpack(">I", head[1:])[0])
                self.heard.append((head[:1], payload[:16]))
                answer = self.says(head[:1], payload[:16])
                if answer is None:
                    self.channel.shutdown(socket.SHUT_RDWR)
                    return
                self.channel.sendall(wrapped(answer) if answer else b"")


@dataclass
class Talk:
    """Our end and what came out of it."""

    session: Session
    peer: Peer
    out: list[tuple[str, bytes]] = field(default_factory=list)

    def streams(self) -> Streams:
        return Streams(lambda data: self.out.append(("out", data)), lambda data: self.out.append(("err", data)))

    def run(
        self, why_stop: Callable[[], Verdict | None] = never_stop, deadline_s: float = DEADLINE_S
    ) -> SessionOutcome:
        return self.session.run(COMMAND, self.streams(), deadline_s, why_stop)


@pytest.fixture
def talking() -> Iterator[Callable[[Says], Talk]]:
    with contextlib.ExitStack() as stack:

        def begin(says: Says) -> Talk:
            ours, theirs = socket.socketpair()
            peer = Peer(theirs, says)
            thread = threading.Thread(target=peer.serve)
            thread.start()
            stack.callback(thread.join, 60)
            return Talk(stack.enter_context(Session(ours)), peer)

        yield begin


def on_run(*frames: Callable[[bytes], bytes]) -> Says:
    return lambda kind, nonce: b"".join(make(nonce) for make in frames) if kind == b"R" else b""


def test_output_goes_to_its_stream_in_order_and_the_report_ends_it(talking: Callable[[Says], Talk]) -> None:
    talk = talking(
        on_run(
            lambda n: frame(b"O", n + b"1"),
            lambda n: frame(b"E", n + b"2"),
            lambda n: frame(b"O", n + b"3"),
            lambda n: done_frame(n, status=256),
        )
    )
    outcome = talk.run()
    assert outcome.report is not None
    assert (outcome.report.wait_status, outcome.stop_verdict, outcome.overdue) == (256, None, False)
    assert talk.out == [("out", b"1"), ("err", b"2"), ("out", b"3")]


def test_what_belongs_to_another_check_is_dropped(talking: Callable[[Says], Talk]) -> None:
    talk = talking(
        on_run(
            lambda _: frame(b"O", OTHER + b"old"),
            lambda _: done_frame(OTHER, status=0),
            lambda _: frame(b"B", OTHER),
            lambda n: done_frame(n, status=9),
        )
    )
    outcome = talk.run()
    assert outcome.report is not None
    assert outcome.report.wait_status == 9
    assert talk.out == []


@pytest.mark.parametrize(
    "answer",
    [
        lambda n: frame(b"B", n),
        lambda _: frame(b"Z", b""),
        lambda n: frame(b"O", n + bytes(64 * 1024 + 1)),
    ],
    ids=["busy", "malformed", "too long"],
)
def test_an_answer_that_cannot_be_is_no_report(
    talking: Callable[[Says], Talk], answer: Callable[[bytes], bytes]
) -> None:
    assert talking(on_run(answer)).run() == SessionOutcome(None)


def test_a_guest_that_ends_is_no_report(talking: Callable[[Says], Talk]) -> None:
    assert talking(lambda *_: None).run() == SessionOutcome(None)


def test_a_reason_to_stop_kills_this_check_and_waits_for_its_report(talking: Callable[[Says], Talk]) -> None:
    talk = talking(lambda kind, nonce: done_frame(nonce, status=9, flags=6) if kind == b"K" else b"")
    outcome = talk.run(why_stop=lambda: Verdict.DISK_LIMIT)
    assert outcome.stop_verdict is Verdict.DISK_LIMIT
    assert outcome.report is not None
    assert outcome.report.killed
    heard = [(kind, nonce) for kind, nonce in talk.peer.heard if kind != b"P"]
    assert [kind for kind, _ in heard] == [b"R", b"K"]
    assert len({nonce for _, nonce in heard}) == 1


def test_pid_1_hears_from_us_while_a_check_runs_and_not_its_nonce(
    talking: Callable[[Says], Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check ends when there were three pings."""
    monkeypatch.setattr(session, "PING_INTERVAL_S", 0.0)
    heard = list[bytes]()

    def says(kind: bytes, nonce: bytes) -> bytes:
        heard.append(nonce)
        return done_frame(heard[0], status=0) if len(heard) == 4 else frame(b"A", nonce + b"\1")

    talk = talking(says)
    assert talk.run().report is not None
    kinds = [kind for kind, _ in talk.peer.heard]
    assert (kinds[0], {*kinds[1:]}) == (b"R", {b"P"})
    assert heard[0] not in heard[1:]


def test_reasons_are_asked_for_while_the_guest_floods(talking: Callable[[Says], Talk]) -> None:
    """Output at every turn must not keep the question from being asked. The flood ends with the kill."""
    killed = threading.Event()

    def says(kind: bytes, nonce: bytes) -> bytes:
        if kind == b"K":
            killed.set()
            return done_frame(nonce, status=9, flags=6)
        return b""

    talk = talking(says)

    def flood(nonce: bytes) -> None:
        with contextlib.suppress(OSError):
            while not killed.is_set():
                talk.peer.channel.sendall(wrapped(frame(b"O", nonce + bytes(1000))))

    asked = list[int]()

    def why_stop() -> Verdict | None:
        if not asked:
            threading.Thread(target=flood, args=(OTHER,), daemon=True).start()
        asked.append(1)
        return Verdict.KILLED if len(asked) > 2 else None

    # The two writers of the other end may cut each other's frames; then it ends as malformed, and was stopped as well.
    assert talk.run(why_stop=why_stop).stop_verdict is Verdict.KILLED


def test_a_kill_that_is_not_answered_ends_the_wait(
    talking: Callable[[Says], Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "GRACE_S", 0.2)
    assert talking(lambda *_: b"").run(why_stop=lambda: Verdict.KILLED) == SessionOutcome(None, Verdict.KILLED)


def test_a_guest_that_forgets_its_deadline_is_overdue(
    talking: Callable[[Says], Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "GRACE_S", 0.1)
    assert talking(lambda *_: b"").run(deadline_s=0.1) == SessionOutcome(None, None, overdue=True)


def test_an_interrupt_kills_the_check_before_it_passes_on(talking: Callable[[Says], Talk]) -> None:
    killed = threading.Event()

    def says(kind: bytes, nonce: bytes) -> bytes:
        if kind == b"K":
            killed.set()
        return frame(b"O", nonce + b"x")

    talk = talking(says)

    def interrupt(_: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        talk.session.run(COMMAND, Streams(interrupt, interrupt), DEADLINE_S, never_stop)
    assert killed.wait(60)


POSTURE = b"status\0mounts\0interfaces\0port_start\0folders\0"


def idle(running: bytes) -> Says:
    def says(kind: bytes, token: bytes) -> bytes:
        return frame(b"A", token + running) if kind == b"P" else frame(b"I", token + POSTURE)

    return says


def test_posture_is_what_an_idle_guest_says(talking: Callable[[Says], Talk]) -> None:
    found = talking(idle(b"\0")).session.query_posture(60)
    assert found is not None
    said = (found.status, found.mountinfo, found.interfaces, found.port_start, found.folders)
    assert said == ("status", "mounts", "interfaces", "port_start", "folders")


def test_a_guest_in_which_something_runs_is_not_used(talking: Callable[[Says], Talk]) -> None:
    assert talking(idle(b"\1")).session.query_posture(60) is None


@pytest.mark.parametrize(
    "says",
    [
        lambda kind, _: frame(b"A", OTHER + b"\0") if kind == b"P" else frame(b"I", OTHER + POSTURE),
        lambda *_: None,
        lambda *_: frame(b"Z", b""),
    ],
    ids=["to another", "gone", "malformed"],
)
def test_no_answer_is_no_posture(talking: Callable[[Says], Talk], says: Says) -> None:
    assert talking(says).session.query_posture(0.3) is None


def test_a_guest_that_only_says_it_is_alive_has_no_posture(talking: Callable[[Says], Talk]) -> None:
    talk = talking(lambda kind, token: frame(b"A", token + b"\0") if kind == b"P" else b"")
    assert talk.session.query_posture(0.3) is None


def test_the_connection_is_given_back(talking: Callable[[Says], Talk]) -> None:
    ours, theirs = socket.socketpair()
    fd = ours.fileno()
    with theirs, Session(ours):
        os.fstat(fd)
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(fd)
