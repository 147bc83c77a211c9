"""The protocol of a guest's PID 1 (images/init), and the engine's framing around it. Pure: bytes in, messages out.

Our frame: type (1 byte), length (u32), payload; all integers big-endian (docs/adr/0019). The engine wraps the output of
the guest: stream (1 byte), three zero bytes, size (u32), data:
https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerAttach

The guest's other processes write to pipes that only PID 1 reads, so every byte that arrives here comes from PID 1.
After one malformed byte the connection is not trusted any more.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import PurePosixPath
from typing import Any

from sandbox.lazy_dataclass import dataclass

NONCE_BYTES = 16
MAX_PAYLOAD = 1024**2
MAX_OUTPUT = 64 * 1024
STDOUT, STDERR = "stdout", "stderr"

_FRAME = struct.Struct(">cI")
_ENVELOPE = struct.Struct(">B3sI")
_ENGINE_STDOUT = 1
_RUN = struct.Struct(">16sQII")
_DONE = struct.Struct(">16siIiQQQIQ")
_BUSY = struct.Struct(">16s")
_ALIVE = struct.Struct(">16sB")
_SIGNAL = struct.Struct(">16sI")
_PORT = struct.Struct(">16sH")
_PLACE = struct.Struct(">16sI")
_TIMED_OUT, _KILLED, _QUIESCENT, _NOT_STARTED = 1, 2, 4, 8
_OUTPUTS = {b"O": STDOUT, b"E": STDERR}
_POSTURE_TEXTS = 5


class MalformedError(ValueError):
    """The bytes do not follow the protocol: the guest is not trusted any more."""


@dataclass(frozen=True)
class Command:
    """A command for PID 1, with its complete environment."""

    argv: Sequence[str]
    cwd: PurePosixPath
    env: Mapping[str, str]


@dataclass(frozen=True)
class OutputChunk:
    """A chunk of the check's output; `stream` is 'stdout' or 'stderr'."""

    nonce: bytes
    stream: str
    data: bytes


@dataclass(frozen=True)
class ExitReport:
    """How a check ended. `wait_status` as of waitpid(2); `quiescent`: no process but PID 1 is left in the guest.

    `start_errno`: errno of the failed chdir or exec, 0 when it ran. `leftovers`: how many processes were killed after
    the check's own process had ended.
    """

    nonce: bytes
    wait_status: int
    timed_out: bool
    killed: bool
    quiescent: bool
    start_errno: int
    cpu_time_s: float
    max_rss_bytes: int
    leftovers: int
    wall_time_s: float


@dataclass(frozen=True)
class Busy:
    """Another check is already running."""

    nonce: bytes


@dataclass(frozen=True)
class Alive:
    """Answer to a ping; `running`: whether a check is running."""

    token: bytes = field(repr=False)
    running: bool


@dataclass(frozen=True)
class Posture:
    """The kernel's data about PID 1: `/proc/self/status`, `/proc/self/mountinfo`, `/proc/net/dev`.

    `port_start`: the first port that needs no capability, empty where the kernel does not report it. `folders`: whether
    PID 1 could create a file in each folder that a check writes to; one line for each folder.
    """

    token: bytes = field(repr=False)
    status: str
    mountinfo: str
    interfaces: str
    port_start: str
    folders: str


@dataclass(frozen=True)
class PlaceAnswer:
    """Whether a port or a file of the guest is there; `error`: an errno, 0 if it is."""

    token: bytes = field(repr=False)
    error: int


Message = OutputChunk | ExitReport | Busy | Alive | Posture | PlaceAnswer


def command_bytes(command: Command) -> int:
    """Return the size of a command in a frame, in bytes."""
    return _RUN.size + sum(len(word.encode("utf-8", "surrogateescape")) + 1 for word in _command_strings(command))


def _command_strings(command: Command) -> list[str]:
    return [str(command.cwd), *command.argv, *(f"{name}={value}" for name, value in command.env.items())]


def run_frame(nonce: bytes, command: Command, deadline_s: float) -> bytes:
    """Build the frame that starts a check. Raises: ValueError for NUL bytes and for more than 1 MiB."""
    return _command_frame(b"R", nonce, command, deadline_s)


def beside_frame(nonce: bytes, command: Command, deadline_s: float) -> bytes:
    """Build the frame that starts a command beside the running check. Raises: as `run_frame`."""
    return _command_frame(b"S", nonce, command, deadline_s)


def _command_frame(kind: bytes, nonce: bytes, command: Command, deadline_s: float) -> bytes:
    words = _command_strings(command)
    if any("\0" in word for word in words):
        raise ValueError("a NUL byte")
    head = _RUN.pack(nonce, max(1, round(deadline_s * 1000)), len(command.argv), len(command.env))
    return _frame(kind, head + b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words))


def kill_frame(nonce: bytes) -> bytes:
    """Build the frame that kills the running check, if it has this nonce."""
    return _frame(b"K", nonce)


def signal_frame(nonce: bytes, number: int) -> bytes:
    """Build the frame that sends a signal to the process of a check or of a command beside it."""
    return _frame(b"T", _SIGNAL.pack(nonce, number))


def port_frame(token: bytes, port: int) -> bytes:
    """Build the frame that asks whether something in the guest listens on this port of 127.0.0.1."""
    return _frame(b"C", _PORT.pack(token, port))


def file_frame(token: bytes, path: PurePosixPath) -> bytes:
    """Build the frame that asks whether the guest has this regular file."""
    return _frame(b"F", token + str(path).encode("utf-8", "surrogateescape") + b"\0")


def ping_frame(token: bytes) -> bytes:
    """Build the frame that requests an `Alive`."""
    return _frame(b"P", token)


def query_frame(token: bytes) -> bytes:
    """Build the frame that requests a `Posture`."""
    return _frame(b"Q", token)


def _frame(kind: bytes, payload: bytes) -> bytes:
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"{len(payload)} bytes are more than a frame holds")
    return _FRAME.pack(kind, len(payload)) + payload


class Decoder:
    """Decodes the bytes of an attached connection, in pieces of any size. Buffers at most one incomplete frame."""

    def __init__(self) -> None:
        self._wrapped = bytearray()
        self._plain = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are now complete. Raises: `MalformedError`; do not call `feed` after that."""
        self._wrapped += data
        self._unwrap()
        while (message := self._next()) is not None:
            yield message

    def _unwrap(self) -> None:
        """Unwrap the engine's envelopes. An incomplete one is unwrapped in part: it may be larger than any frame."""
        while len(self._wrapped) >= _ENVELOPE.size:
            stream, zeros, size = _ENVELOPE.unpack_from(self._wrapped)
            if stream != _ENGINE_STDOUT or zeros != b"\0\0\0":
                raise MalformedError(f"the engine sent stream {stream}")
            part = self._wrapped[_ENVELOPE.size : _ENVELOPE.size + size]
            if len(part) < size:
                if part:
                    self._wrapped[:] = _ENVELOPE.pack(stream, zeros, size - len(part))
                    self._plain += part
                return
            self._plain += part
            del self._wrapped[: _ENVELOPE.size + size]

    def _next(self) -> Message | None:
        if len(self._plain) < _FRAME.size:
            return None
        kind, size = _FRAME.unpack_from(self._plain)
        if kind not in _READERS or size > MAX_PAYLOAD:
            raise MalformedError(f"a frame {kind!r} of {size} bytes")
        if len(self._plain) < _FRAME.size + size:
            return None
        payload = bytes(self._plain[_FRAME.size : _FRAME.size + size])
        del self._plain[: _FRAME.size + size]
        return _READERS[kind](kind, payload)


def _parse_output(kind: bytes, payload: bytes) -> OutputChunk:
    data = payload[NONCE_BYTES:]
    if len(payload) < NONCE_BYTES or len(data) > MAX_OUTPUT:
        raise MalformedError(f"output of {len(payload)} bytes")
    return OutputChunk(payload[:NONCE_BYTES], _OUTPUTS[kind], data)


def _parse_exit_report(kind: bytes, payload: bytes) -> ExitReport:
    nonce, status, flags, errno, user_us, system_us, rss_kib, leftovers, wall_us = _unpack(_DONE, kind, payload)
    return ExitReport(
        nonce=nonce,
        wait_status=status,
        timed_out=bool(flags & _TIMED_OUT),
        killed=bool(flags & _KILLED),
        quiescent=bool(flags & _QUIESCENT),
        start_errno=(errno or -1) if flags & _NOT_STARTED else 0,
        cpu_time_s=(user_us + system_us) / 1e6,
        max_rss_bytes=rss_kib * 1024,
        leftovers=leftovers,
        wall_time_s=wall_us / 1e6,
    )


def _parse_busy(kind: bytes, payload: bytes) -> Busy:
    (nonce,) = _unpack(_BUSY, kind, payload)
    return Busy(nonce)


def _parse_alive(kind: bytes, payload: bytes) -> Alive:
    token, running = _unpack(_ALIVE, kind, payload)
    return Alive(token, bool(running))


def _parse_place(kind: bytes, payload: bytes) -> PlaceAnswer:
    token, error = _unpack(_PLACE, kind, payload)
    return PlaceAnswer(token, error)


def _parse_posture(kind: bytes, payload: bytes) -> Posture:
    texts = payload[NONCE_BYTES:].split(b"\0")
    if len(payload) < NONCE_BYTES or len(texts) != _POSTURE_TEXTS + 1 or texts[-1]:
        raise MalformedError(f"a posture of {len(payload)} bytes")
    return Posture(payload[:NONCE_BYTES], *(text.decode("utf-8", "surrogateescape") for text in texts[:_POSTURE_TEXTS]))


def _unpack(shape: struct.Struct, kind: bytes, payload: bytes) -> tuple[Any, ...]:
    if len(payload) != shape.size:
        raise MalformedError(f"a frame {kind!r} of {len(payload)} bytes")
    return shape.unpack(payload)


_READERS: dict[bytes, Callable[[bytes, bytes], Message]] = {
    b"O": _parse_output,
    b"E": _parse_output,
    b"D": _parse_exit_report,
    b"B": _parse_busy,
    b"A": _parse_alive,
    b"I": _parse_posture,
    b"N": _parse_place,
}
