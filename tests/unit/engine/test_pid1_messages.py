"""The supervisor's protocol inside the engine's framing: any chunking is the same, anything malformed is the end."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.engine import pid1_messages
from sandbox.engine.pid1_messages import (
    Alive,
    Busy,
    Command,
    Decoder,
    ExitReport,
    MalformedError,
    Message,
    OutputChunk,
    Posture,
    kill_frame,
    ping_frame,
    query_frame,
    run_frame,
)

NONCE = bytes(range(16))


def frame(kind: bytes, payload: bytes) -> bytes:
    """As PID 1 writes it."""
    return kind + struct.pack(">I", len(payload)) + payload


def wrapped(data: bytes, stream: int = 1) -> bytes:
    """As the engine sends it."""
    return struct.pack(">BxxxI", stream, len(data)) + data


def done_frame(nonce: bytes = NONCE, status: int = 0, flags: int = 4, errno: int = 0, leftovers: int = 0) -> bytes:
    numbers = struct.pack(">iIiQQQIQ", status, flags, errno, 1_500_000, 500_000, 10, leftovers, 2_250_000)
    return frame(b"D", nonce + numbers)


def decoded(data: bytes, cuts: Sequence[int] = ()) -> list[Message]:
    decoder, found = Decoder(), list[Message]()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        found += decoder.feed(data[start:end])
    return found


MESSAGES: list[tuple[bytes, Message]] = [
    (frame(b"O", NONCE + b"out"), OutputChunk(NONCE, "stdout", b"out")),
    (frame(b"E", NONCE), OutputChunk(NONCE, "stderr", b"")),
    (frame(b"O", NONCE + bytes(64 * 1024)), OutputChunk(NONCE, "stdout", bytes(64 * 1024))),
    (done_frame(), ExitReport(NONCE, 0, False, False, True, 0, 2.0, 10240, 0, 2.25)),
    (done_frame(status=9, flags=3, leftovers=7), ExitReport(NONCE, 9, True, True, False, 0, 2.0, 10240, 7, 2.25)),
    (done_frame(status=-1, flags=12, errno=2), ExitReport(NONCE, -1, False, False, True, 2, 2.0, 10240, 0, 2.25)),
    (done_frame(flags=8), ExitReport(NONCE, 0, False, False, False, -1, 2.0, 10240, 0, 2.25)),
    (done_frame(errno=2), ExitReport(NONCE, 0, False, False, True, 0, 2.0, 10240, 0, 2.25)),
    (frame(b"B", NONCE), Busy(NONCE)),
    (frame(b"A", NONCE + b"\1"), Alive(NONCE, True)),
    (frame(b"A", NONCE + b"\0"), Alive(NONCE, False)),
    (
        frame(b"I", NONCE + b"Uid: 1\0" + b"/ \xff\0" + b"\0" + b"0\0" + b"0 1 /\0"),
        Posture(NONCE, "Uid: 1", "/ \udcff", "", "0", "0 1 /"),
    ),
]


@pytest.mark.parametrize(("data", "message"), MESSAGES, ids=lambda value: type(value).__name__)
def test_a_frame_is_its_message(data: bytes, message: Message) -> None:
    assert decoded(wrapped(data)) == [message]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([row for row in MESSAGES if len(row[0]) < 200]), max_size=6),
    st.lists(st.integers(0, 10**6), max_size=8),
    st.lists(st.integers(0, 10**6), max_size=8),
)
def test_cuts_of_the_engine_and_of_the_socket_change_nothing(
    rows: list[tuple[bytes, Message]], envelopes: list[int], pieces: list[int]
) -> None:
    data = b"".join(raw for raw, _ in rows)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in envelopes), len(data)]
    sent = b"".join(wrapped(data[start:end]) for start, end in itertools.pairwise(edges))
    assert decoded(sent, pieces) == [message for _, message in rows]


MALFORMED = {
    "stderr of the supervisor": wrapped(b"x", stream=2),
    "stdin echoed": wrapped(b"x", stream=0),
    "no envelope at all": b"HTTP/1.1 200 OK\r\n",
    "unknown type": wrapped(frame(b"Z", b"")),
    "a controller's own type": wrapped(frame(b"R", b"")),
    "more than a frame holds": wrapped(b"O" + struct.pack(">I", 1024**2 + 1)),
    "output without a nonce": wrapped(frame(b"O", b"short")),
    "output that is too long": wrapped(frame(b"O", NONCE + bytes(64 * 1024 + 1))),
    "report with a byte more": wrapped(frame(b"D", done_frame()[5:] + b"\0")),
    "report with a byte less": wrapped(frame(b"D", done_frame()[5:-1])),
    "busy without a nonce": wrapped(frame(b"B", b"")),
    "alive without its flag": wrapped(frame(b"A", NONCE)),
    "posture of two texts": wrapped(frame(b"I", NONCE + b"a\0b\0")),
    "posture of three texts, as before": wrapped(frame(b"I", NONCE + b"a\0b\0c\0")),
    "posture of six texts": wrapped(frame(b"I", NONCE + b"a\0b\0c\0d\0e\0f\0")),
    "posture without its end": wrapped(frame(b"I", NONCE + b"a\0b\0c\0d\0e")),
    "posture without a token": wrapped(frame(b"I", b"a\0b\0c\0d\0e\0")),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError):
        decoded(data)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_messages_or_malformed_and_never_another_error(data: bytes, in_envelope: bool) -> None:
    try:
        found = decoded(wrapped(data) if in_envelope else data)
    except MalformedError:
        return
    assert all(isinstance(message, Message) for message in found)


def test_what_is_not_complete_is_waited_for_in_bounded_memory() -> None:
    decoder = Decoder()
    assert list(decoder.feed(wrapped(done_frame())[:-1])) == []
    (message,) = decoder.feed(wrapped(done_frame())[-1:])
    assert isinstance(message, ExitReport)
    huge = Decoder()  # an envelope may announce four gigabytes; what is in it is taken out as it comes
    list(huge.feed(struct.pack(">BxxxI", 1, 2**32 - 1)))
    for _ in range(200):
        assert len(list(huge.feed(frame(b"O", NONCE + bytes(1000))))) == 1
    assert max(len(held) for held in vars(huge).values()) < 2000


def test_a_run_is_what_the_page_says() -> None:
    command = Command(("make", "-j2"), PurePosixPath("/workspace/a"), {"A": "1", "EMPTY": ""})
    sent = run_frame(NONCE, command, 1.5)
    assert sent[:1] == b"R"
    assert struct.unpack(">I", sent[1:5]) == (len(sent) - 5,)
    assert sent[5:21] == NONCE
    assert struct.unpack(">QII", sent[21:37]) == (1500, 2, 2)
    assert sent[37:] == b"/workspace/a\0make\0-j2\0A=1\0EMPTY=\0"


def test_a_deadline_is_never_zero() -> None:
    sent = run_frame(NONCE, Command(("true",), PurePosixPath("/"), {}), 0.0001)
    assert struct.unpack(">Q", sent[21:29]) == (1,)


@pytest.mark.parametrize(
    "command",
    [
        Command(("a\0b",), PurePosixPath("/"), {}),
        Command(("a",), PurePosixPath("/\0"), {}),
        Command(("a",), PurePosixPath("/"), {"A": "\0"}),
        Command(("a",), PurePosixPath("/"), {"A": "x" * 1024**2}),
    ],
    ids=["argument", "directory", "environment", "too long"],
)
def test_what_no_frame_holds_is_refused(command: Command) -> None:
    with pytest.raises(ValueError, match=r"NUL|more than"):
        run_frame(NONCE, command, 1.0)


def test_the_other_requests() -> None:
    sent = (kill_frame(NONCE), ping_frame(NONCE), query_frame(NONCE))
    assert sent == (frame(b"K", NONCE), frame(b"P", NONCE), frame(b"Q", NONCE))
    assert len(NONCE) == pid1_messages.NONCE_BYTES
