"""A port in front of another one, in this process, that breaks connections at an exact byte.

One thread a connection waits for either side, so closing a socket is felt at once and a reset is a reset.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

How = Literal["reset", "corrupt", "stall"]
_CHUNK = 4096
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close() sends RST


@dataclass
class Break:
    """One order. `tripped` is set when a connection has reached the byte; a stalled one goes on after `over`."""

    how: How
    after: int
    times: int | None
    count: int = 0
    tripped: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)


class Tunnel:
    """Forwards `port` of `address`, 0 for a free one, to `target`, both on the loopback.

    Bytes are counted over both directions of each connection.
    """

    def __init__(self, target: int, address: str = "127.0.0.1", port: int = 0) -> None:
        self._target = target
        self._break: Break | None = None
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server((address, port))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for open_socket in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=10)
        self._listener.close()

    @contextmanager
    def leading_to(self, target: int) -> Iterator[None]:
        """New connections go to another port."""
        before, self._target = self._target, target
        try:
            yield
        finally:
            self._target = before

    @contextmanager
    def breaking(self, how: How, *, after: int = 0, times: int | None = None) -> Iterator[Break]:
        """Connections break when they have passed `after` bytes: all of them, or the first few to get there."""
        order = Break(how, after, times)
        self._break = order
        try:
            yield order
        finally:
            self._break = None
            order.over.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._spawn(self._serve, client)

    def _spawn(self, work: object, *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target)) as server:
            self._sockets += [client, server]
            self._forward(client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        passed, broken = 0, False
        while True:
            for source in select.select(list(other), [], [])[0]:
                chunk = source.recv(_CHUNK)
                if not chunk:
                    return
                passed += len(chunk)
                order = None if broken else self._claim(passed)
                if order is not None:
                    broken = True
                    chunk = _break(order, chunk, client)
                other[source].sendall(chunk)

    def _claim(self, passed: int) -> Break | None:
        with self._lock:
            order = self._break
            if order is None or passed <= order.after or (order.times is not None and order.count >= order.times):
                return None
            order.count += 1
            return order


def _break(order: Break, chunk: bytes, client: socket.socket) -> bytes:
    """Do it, and return what goes on. Raises: `OSError` when nothing does."""
    order.tripped.set()
    if order.how == "stall":
        order.over.wait()
        return chunk
    if order.how == "corrupt":
        return bytes(byte ^ 0x55 for byte in chunk)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    client.close()
    raise ConnectionResetError
