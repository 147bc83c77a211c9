"""The request of a thin client (`sandbox.command_client`), and whether this process can stand in for the client's."""

from __future__ import annotations

import os
import socket
import time
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import field
from itertools import chain
from pathlib import Path

from sandbox.command_client import LENGTH_BYTES, PROTOCOL
from sandbox.lazy_dataclass import dataclass

MAX_BYTES = 8 * 1024**2
"""More than the kernel allows for arguments and environment of a process by default (2 MiB)."""

DEADLINE_S = 10.0
_STREAMS = 3
_STREAM_WORDS = 7
_READ_BY_LIBRARIES = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "GCONV_", "LOCPATH", "LC_", "LANG", "TZ", "OPENSSL_")
"""Variables that the interpreter and the C library read when a process starts, or that modules read behind our back."""


@dataclass(frozen=True)
class CommandRequest:
    """One command. `streams`: descriptors of its standard streams. `encodings`: of each stream, and its error handler.

    `file_encoding`: of file names.
    """

    package: str
    encodings: tuple[tuple[str, str], ...]
    file_encoding: str
    arguments: tuple[str, ...]
    environment: Mapping[bytes, bytes] = field(repr=False)
    streams: tuple[int, ...]


def receive_request(connection: socket.socket) -> CommandRequest:
    """Read one request, within `DEADLINE_S`. Raises: ValueError for a malformed one; OSError."""
    until = time.monotonic() + DEADLINE_S
    connection.settimeout(DEADLINE_S)
    content, streams, _flags, _address = socket.recv_fds(connection, 1 << 16, _STREAMS)
    for fd in streams:
        os.set_inheritable(fd, False)
    length = int.from_bytes(content[:LENGTH_BYTES], "big")
    if len(content) < LENGTH_BYTES or not 0 < length <= MAX_BYTES or len(streams) != _STREAMS:
        raise ValueError("the request has no length, or not three streams")
    parts, left = [content[LENGTH_BYTES:]], length + LENGTH_BYTES - len(content)
    while left > 0:
        connection.settimeout(max(0.001, until - time.monotonic()))
        chunk = connection.recv(min(left, 1 << 16))
        if not chunk:
            raise ValueError("the request is cut off")
        parts.append(chunk)
        left -= len(chunk)
    return parse_request(b"".join(parts), tuple(streams))


def parse_request(content: bytes, streams: tuple[int, ...]) -> CommandRequest:
    """Raises: ValueError."""
    protocol, package, encodings, count, *rest = content.split(b"\0")
    if protocol != PROTOCOL:
        raise ValueError("its version differs")
    words, number = encodings.decode("ascii").split(" "), int(count)
    if len(words) != _STREAM_WORDS or not 0 <= number <= len(rest):
        raise ValueError("the request is malformed")
    variables = (variable.partition(b"=") for variable in rest[number:])
    return CommandRequest(
        package=os.fsdecode(package),
        encodings=tuple(zip(words[0:6:2], words[1:6:2], strict=True)),
        file_encoding=words[-1],
        arguments=tuple(map(os.fsdecode, rest[:number])),
        environment={name: value for name, _, value in variables},
        streams=streams,
    )


class ModuleOrigin:
    """The files of our modules, and the directories of all others: each with its inode and time of change.

    Whatever installs a library renames or creates its files, which changes their directory. Every command looks, in a
    fork, which copies each page that it touches. So paths and stamps are two pieces of memory: 1,500 strings lay on as
    many pages (docs/adr/0149).
    """

    def __init__(self, package: Path, modules: Iterable[str]) -> None:
        """`package`: our modules are below it. `modules`: files of modules; those that do not exist are left out."""
        ours = f"{package}{os.sep}"
        places = {name if name.startswith(ours) else os.path.dirname(name) for name in modules}  # noqa: PTH120 - many
        found = sorted(os.fsencode(place) for place in places if os.path.exists(place))  # noqa: PTH110 - as above
        self._paths = b"\0".join(found)
        self._stamps = array("Q", chain.from_iterable(map(_stamp, found)))

    def has_changed(self) -> bool:
        """Whether one of them was changed, replaced or removed since."""
        try:
            return self._stamps != array("Q", chain.from_iterable(map(_stamp, self._paths.split(b"\0"))))
        except OSError:
            return True


def _stamp(path: bytes) -> tuple[int, int]:
    """What tells a file from the one that replaces it. Raises: OSError."""
    found = os.stat(path)  # noqa: PTH116 - hundreds for each command; pathlib takes three times as long
    return found.st_ino, found.st_mtime_ns


@dataclass(frozen=True)
class Program:
    """What this process is a copy of. `environment`: what it started with; `read`: names that imports read of it.

    `origin`: where its modules were read.
    """

    package: str
    environment: Mapping[bytes, bytes] = field(repr=False)
    read: frozenset[bytes]
    file_encoding: str
    origin: ModuleOrigin

    def find_mismatch(self, request: CommandRequest) -> str:
        """Why a copy of this process would not do what the client's own process does; ''  if it would."""
        if request.package != self.package:
            return "it belongs to another installation"
        if request.file_encoding != self.file_encoding:
            return "its names of files are encoded differently"
        for name in sorted(self.environment.keys() | request.environment.keys()):
            matters = name in self.read or os.fsdecode(name).startswith(_READ_BY_LIBRARIES)
            if matters and self.environment.get(name) != request.environment.get(name):
                return f"its variable {os.fsdecode(name)} differs"
        return ""
