"""The proxy of one fetch: it listens on a Unix socket, and lets through only what the list allows.

The guest at the other end is treated as hostile, although a fetch runs no foreign code: what it sends may be shaped by
what it downloaded. Of each connection exactly one request is served (docs/adr/0053-the-way-out-is-one-socket.md):

1. the request names a host and port of the list, else no name is even looked up: a look-up tells its name to others;
2. the name is resolved once, here, and only an allowed address is connected to, by that address;
3. a CONNECT must be followed by a TLS ClientHello for the same name, before a byte is sent on.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sandbox.egress.addresses import is_allowed_address
from sandbox.egress.client_hello import MAX_HELLO_BYTES, HiddenName, NotTls, find_server_name
from sandbox.egress.connection_meter import Connection, ConnectionMeter, EgressLimits, Refused
from sandbox.egress.destinations import AllowedHost, AllowList, Destination
from sandbox.egress.proxy_requests import BadRequest, ProxyRequest, RequestReader
from sandbox.guest_labels import guest_sockets
from sandbox.models.egress import EgressAccess, EgressRefusal

_CHUNK_BYTES = 64 * 1024
_START_DEADLINE_S = 30.0
_LINGER_S = 1.0
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"

_WE_UNLINK: dict[str, Any] = {} if sys.version_info < (3, 13) else {"cleanup_socket": False}
"""asyncio would look for the socket by the address that it was bound to, which is gone (`listen_on`)."""

_ValueT = TypeVar("_ValueT")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Resolver = Callable[[Destination], Awaitable[Sequence[str]]]
"""Returns the addresses of a host. Raises: `OSError`."""
Dialler = Callable[[str, int], Awaitable[Streams]]
"""Connects to an address and port. Raises: `OSError`."""


async def resolve(destination: Destination) -> Sequence[str]:
    """Resolve a name as this host does, in a thread that is not waited for: asyncio's own executor delays the end of
    the loop, and of the process, while a resolver is silent. Raises: `OSError`.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def tell(addresses: list[str] | None) -> None:
        if found.done():
            return
        if addresses is None:
            found.set_exception(OSError("the name has no address"))
        else:
            found.set_result(addresses)

    def look_up() -> None:
        addresses = None
        try:
            rows = socket.getaddrinfo(destination.host, destination.port, type=socket.SOCK_STREAM)
            addresses = [str(row[4][0]) for row in rows]
        except (OSError, UnicodeError):
            pass
        try:
            loop.call_soon_threadsafe(tell, addresses)
        except RuntimeError:  # the loop has ended: the deadline came first
            return

    threading.Thread(target=look_up, name="resolver", daemon=True).start()
    return await found


async def dial(address: str, port: int) -> Streams:
    """Connect to an address over TCP."""
    return await asyncio.open_connection(address, port, limit=_CHUNK_BYTES)


@dataclass(frozen=True)
class Outside:
    """How the proxy reaches the network."""

    resolve: Resolver = resolve
    dial: Dialler = dial


@dataclass
class EgressProxy:
    """A context manager: inside of it the socket `path` is served, by a thread of its own. The socket is removed.

    `owner`: uid and gid that may connect, beside ours; None: only ours. Raises on entry: `OSError`.
    """

    path: Path
    allowed: AllowList
    limits: EgressLimits = field(default_factory=EgressLimits)
    owner: tuple[int, int] | None = None
    outside: Outside = Outside()
    _meter: ConnectionMeter = field(init=False)
    _lookups: dict[Destination, asyncio.Future[Sequence[str]]] = field(init=False, default_factory=dict)
    _loop: asyncio.AbstractEventLoop = field(init=False)
    _thread: threading.Thread = field(init=False)
    _stop: asyncio.Event = field(init=False)

    @property
    def accesses(self) -> tuple[EgressAccess, ...]:
        """A record of each connection that has ended; all of them after the end of the `with` block."""
        return tuple(self._meter.accesses)

    @property
    def unrecorded(self) -> int:
        """How many connections ended without a record, because there were too many."""
        return self._meter.unrecorded

    def __enter__(self) -> Self:
        self._meter = ConnectionMeter(self.limits)
        listener = listen_on(self.path, self.owner)
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(listener, ready)), name="egress", daemon=True
        )
        self._thread.start()
        if not ready.wait(_START_DEADLINE_S):
            raise TimeoutError("the proxy's thread did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self.path.unlink(missing_ok=True)

    async def _serve(self, listener: socket.socket, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = self._meter.begin()
            if self._meter.is_exhausted:
                server.close()  # to refuse more of them one by one would cost as much as to serve them
            task = asyncio.create_task(self._handle(_Peer(reader, writer), connection))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_unix_server(accept, sock=listener, limit=_CHUNK_BYTES, **_WE_UNLINK)
        ready.set()
        await self._stop.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports end in the loop's next turn

    async def _handle(self, client: _Peer, connection: Connection) -> None:
        """Serve one connection to its end. Only a refusal is answered."""
        try:
            if connection.refused is not None:
                raise Refused(connection.refused)
            await self._within(self._meter.left_s, self._serve_request(client, connection), EgressRefusal.TIME_OVER)
        except Refused as refused:
            connection.refused = refused.why
            if not connection.is_open:
                await client.answer_refusal(connection.destination, refused.why)
        except OSError:
            pass  # either side closed its end
        finally:
            client.close()
            self._meter.end(connection)

    async def _serve_request(self, client: _Peer, connection: Connection) -> None:
        request = await self._step(_read_request(client), EgressRefusal.IDLE)
        connection.destination = request.destination
        entry = self.allowed.find(request.scheme, request.destination)
        if entry is None:
            raise Refused(EgressRefusal.NOT_ALLOWED)
        server = await self._connect(entry)
        try:
            if request.scheme == "https":
                connection.is_open = True
                await self._step(client.send(_ESTABLISHED), EgressRefusal.IDLE)
                first = await self._step(_read_hello(client, entry, request.rest), EgressRefusal.IDLE)
            else:
                connection.is_open, first = True, request.head
            self._meter.count(connection, sent=len(first))
            await self._step(server.send(first), EgressRefusal.IDLE)
            await self._pass_on(client, server, connection, both_ways=request.scheme == "https")
        finally:
            server.close()

    async def _connect(self, entry: AllowedHost) -> _Peer:
        """Resolve the name once, and connect to one of the addresses that were looked at."""
        asked = entry.destination
        try:
            found = (
                [asked.host] if asked.is_address else await self._step(self._look_up(asked), EgressRefusal.NOT_RESOLVED)
            )
        except (OSError, UnicodeError):
            raise Refused(EgressRefusal.NOT_RESOLVED) from None
        addresses = [text for text in found if is_allowed_address(text, may_be_internal=entry.may_be_internal)]
        if not addresses:
            raise Refused(EgressRefusal.ADDRESS_NOT_ALLOWED if found else EgressRefusal.NOT_RESOLVED)
        for address in dict.fromkeys(addresses):
            try:
                return _Peer(*await self._step(self.outside.dial(address, asked.port), EgressRefusal.CONNECT_FAILED))
            except (OSError, Refused):
                continue
        raise Refused(EgressRefusal.CONNECT_FAILED)

    async def _look_up(self, asked: Destination) -> Sequence[str]:
        """The addresses of a name. Connections that ask at the same time share one look: resolvers drop some of many
        equal questions at once, and the system's asks again after five seconds.
        """
        found = self._lookups.get(asked)
        if found is None:
            found = self._lookups[asked] = asyncio.ensure_future(self.outside.resolve(asked))

            def forget(ended: asyncio.Future[Sequence[str]]) -> None:
                del self._lookups[asked]
                if not ended.cancelled():
                    ended.exception()  # those who asked may all have given up

            found.add_done_callback(forget)
        return await asyncio.shield(found)

    async def _pass_on(self, client: _Peer, server: _Peer, connection: Connection, *, both_ways: bool) -> None:
        """Pass bytes on until both sides have ended theirs, or a limit. A plain request has only an answer."""

        async def receive() -> None:
            while chunk := await server.reader.read(_CHUNK_BYTES):
                self._meter.count(connection, received=len(chunk))
                await client.send(chunk)
            client.end_stream()

        async def send() -> None:
            while chunk := await client.reader.read(_CHUNK_BYTES):
                self._meter.count(connection, sent=len(chunk))
                await server.send(chunk)
            server.end_stream()

        async def watch() -> None:
            while (left := self._meter.idle_left_s(connection)) > 0:
                await asyncio.sleep(left)
            raise Refused(EgressRefusal.IDLE)

        passing = [receive(), send()] if both_ways else [receive()]
        await _run_until_done(passing, watch())

    async def _step(self, step: Awaitable[_ValueT], why: EgressRefusal) -> _ValueT:
        return await self._within(self._meter.limits.step_s, step, why)

    async def _within(self, seconds: float, step: Awaitable[_ValueT], why: EgressRefusal) -> _ValueT:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await step
        except TimeoutError as error:
            if limit.expired():
                raise Refused(why) from None
            raise OSError(error.strerror or "the peer does not answer") from error  # ETIMEDOUT: no limit of ours


@dataclass(frozen=True)
class _Peer:
    """One end of a connection through the proxy."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def __post_init__(self) -> None:
        self.writer.transport.set_write_buffer_limits(0)  # `send` returns when the kernel has all of it

    async def send(self, chunk: bytes) -> None:
        self.writer.write(chunk)
        await self.writer.drain()

    def end_stream(self) -> None:
        """Say that no more bytes follow."""
        with suppress(OSError, RuntimeError):
            self.writer.write_eof()

    async def answer_refusal(self, destination: Destination | None, why: EgressRefusal) -> None:
        """Answer with a status and one line of text, which clients print.

        What the client still sends is read, for a moment: unread bytes would break its end of the socket before
        it has the answer. One of too many connections is closed at once.
        """
        line = f"egress_refused: {destination or 'request'}: {why.value}\n".encode()
        head = f"HTTP/1.1 403 egress_refused {why.value}\r\nContent-Length: {len(line)}\r\nConnection: close\r\n\r\n"
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                await self.send(head.encode() + line)
                self.end_stream()
                while why is not EgressRefusal.TOO_MANY_CONNECTIONS and await self.reader.read(_CHUNK_BYTES):
                    pass

    def close(self) -> None:
        """Close at once: what was sent is in the kernel, and a peer that does not read must not delay the end."""
        self.writer.transport.abort()


async def _run_until_done(passing: Sequence[Coroutine[None, None, None]], watch: Coroutine[None, None, None]) -> None:
    """Wait for all of `passing`. The first error of any ends the others and is raised."""
    watcher = asyncio.create_task(watch)
    workers = [asyncio.create_task(one) for one in passing]
    waiting = {watcher, *workers}
    try:
        while waiting - {watcher}:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in (watcher, *workers):
            task.cancel()
        await asyncio.gather(watcher, *workers, return_exceptions=True)


async def _read_request(client: _Peer) -> ProxyRequest:
    reader = RequestReader()
    try:
        while True:
            data = await client.reader.read(_CHUNK_BYTES)
            request = reader.feed(data)
            if request is not None:
                return request
            if not data:
                raise Refused(EgressRefusal.BAD_REQUEST)
    except BadRequest:
        raise Refused(EgressRefusal.BAD_REQUEST) from None


async def _read_hello(client: _Peer, entry: AllowedHost, begun: bytes) -> bytes:
    """Return the first bytes of the tunnel, once they hold a ClientHello for this host. An IP address has no name."""
    wanted = "" if entry.destination.is_address else entry.destination.host
    hello = begun
    try:
        while (name := find_server_name(hello)) is None:
            more = await client.reader.read(_CHUNK_BYTES)
            if not more or len(hello) > MAX_HELLO_BYTES:
                raise Refused(EgressRefusal.NOT_TLS)
            hello += more
    except NotTls:
        raise Refused(EgressRefusal.NOT_TLS) from None
    except HiddenName:
        raise Refused(EgressRefusal.SERVER_NAME_DIFFERS) from None
    if name != wanted:
        raise Refused(EgressRefusal.SERVER_NAME_DIFFERS)
    return hello


def listen_on(path: Path, owner: tuple[int, int] | None) -> socket.socket:
    """Make the socket. The address of a Unix socket holds 107 bytes: a home may be deeper, so its folder is opened."""
    with guest_sockets():
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        path.chmod(0o600)
        if owner is not None:
            os.chown(path, *owner)
        listener.listen(64)
    except BaseException:
        listener.close()
        raise
    return listener
