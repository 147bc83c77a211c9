"""Both ends of an egress proxy: servers on loopback, a network that leads to them, a client that speaks to its socket,
and a proxy that connects to whatever it is asked for, for controls.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sandbox.egress.destinations import AllowedHost, AllowList, Destination
from sandbox.egress.proxy import Outside, Streams, dial, listen_on

DEADLINE_S = 30.0
NAME = "registry.example"
PUBLIC_ADDRESS = "93.184.215.14"
"""An address that the proxy may connect to. A `FakeNetwork` leads it to loopback: no byte is sent there."""


def echo(connection: socket.socket) -> bytes:
    """Answer one message with itself."""
    found = connection.recv(65536)
    connection.sendall(b"echo " + found)
    return found


@dataclass
class LoopbackServer:
    """Serves connections one after the other. `contacts`: what each sent; `names`: the servers that TLS asked for."""

    port: int
    contacts: list[bytes] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    accepted: int = 0


@contextmanager
def serving(
    context: ssl.SSLContext | None = None, answer: Callable[[socket.socket], bytes] = echo
) -> Iterator[LoopbackServer]:
    """A server on loopback; plain without a context."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        server = LoopbackServer(listener.getsockname()[1])
        ended = threading.Event()
        if context is not None:
            context.sni_callback = lambda _, name, __: server.names.append(name or "")

        def serve() -> None:
            while not ended.is_set():
                with suppress(OSError):
                    connection, _ = listener.accept()
                    server.accepted += 1
                    with connection:
                        connection.settimeout(DEADLINE_S)
                        if context is None:
                            server.contacts.append(answer(connection))
                        else:
                            with context.wrap_socket(connection, server_side=True) as secured:
                                server.contacts.append(answer(secured))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server
        finally:
            ended.set()
            thread.join()


@dataclass
class FakeNetwork:
    """Answers of a resolver, and where addresses lead. `answers`: for each look-up of a name the next one; the last
    is repeated. `ports`: the loopback server behind an address; others refuse.
    """

    answers: Mapping[str, Sequence[Sequence[str]]]
    ports: Mapping[str, int]
    looked_up: list[str] = field(default_factory=list)
    dialled: list[str] = field(default_factory=list)

    async def resolve(self, destination: Destination) -> Sequence[str]:
        self.looked_up.append(destination.host)
        if destination.host not in self.answers:
            raise OSError("no such name")
        turns = self.answers[destination.host]
        return turns[min(self.looked_up.count(destination.host), len(turns)) - 1]

    async def dial(self, address: str, port: int) -> Streams:
        self.dialled.append(f"{address}:{port}")
        if address not in self.ports:
            raise ConnectionRefusedError
        return await dial("127.0.0.1", self.ports[address])

    @property
    def outside(self) -> Outside:
        return Outside(self.resolve, self.dial)


def allow(host: str = NAME, port: int = 443, *, plain: bool = False, internal: bool = False) -> AllowList:
    """A list with one host."""
    return AllowList([AllowedHost(Destination(host, port), "http" if plain else "https", internal)])


@contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    """A connection to a Unix socket, however long its path."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(DEADLINE_S)
            client.connect(f"/proc/self/fd/{folder}/{path.name}")
            yield client
    finally:
        os.close(folder)


def read_head(client: socket.socket) -> bytes:
    """The head of an answer, or what came before the end of the stream."""
    head = b""
    with suppress(ConnectionError):
        while not head.endswith(b"\r\n\r\n") and (more := client.recv(1)):
            head += more
    return head


def read_rest(client: socket.socket) -> bytes:
    """Everything until the end of the stream."""
    found = b""
    with suppress(ConnectionError):
        while more := client.recv(65536):
            found += more
    return found


def send_request(path: Path, request: bytes) -> bytes:
    """Send bytes, and return the answer to its end."""
    with connected(path) as client:
        with suppress(ConnectionError):
            client.sendall(request)
        return read_rest(client)


def connect_request(authority: str) -> bytes:
    """A CONNECT."""
    return f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode()


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(65536):
            await _send(writer, chunk)
        writer.write_eof()


async def _connect_to_anything(
    network: FakeNetwork, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """What a careless proxy does with a connection."""
    opened = [writer]
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target = head.split()[:2]
        authority = target.decode().removeprefix("http://").partition("/")[0]
        host, _, port = (authority if ":" in authority else f"{authority}:80").rpartition(":")
        addresses = [host]
        if host not in network.ports:
            await network.resolve(Destination(host, int(port)))  # its look at the address
            addresses = list(await network.resolve(Destination(host, int(port))))  # the one it connects to
        other, out = await network.dial(addresses[0], int(port))
        opened.append(out)
        for one in opened:
            one.transport.set_write_buffer_limits(0)
        first = (writer, b"HTTP/1.1 200 OK\r\n\r\n") if method == b"CONNECT" else (out, head)
        await _send(*first)
        await asyncio.gather(_pump(reader, out), _pump(other, writer))
    except asyncio.CancelledError:
        return  # the end of this proxy; asyncio of Python 3.11 would print a cancelled handler's trace
    finally:
        for one in opened:
            one.transport.abort()


@contextmanager
def careless(path: Path, network: FakeNetwork) -> Iterator[None]:
    """A proxy that connects to whatever it is asked for, and passes everything on."""

    async def run() -> None:
        serve = partial(_connect_to_anything, network)
        server = await asyncio.start_unix_server(serve, sock=listen_on(path, None))
        loop.append(asyncio.get_running_loop())
        ready.set()
        await stop.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports end in the loop's next turn

    loop: list[asyncio.AbstractEventLoop] = []
    ready, stop = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        loop[0].call_soon_threadsafe(stop.set)
        thread.join()
        path.unlink()


def build_client_hello(server_name: str) -> bytes:
    """The first bytes that a TLS client sends to ask for this server."""
    sent = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname=server_name)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()
