"""Both ends of an egress proxy, for its tests: servers on loopback, and a client that speaks to its socket."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import trustme

from sandbox.egress.destinations import AllowedHost, AllowList, Destination
from sandbox.egress.proxy import Outside, Streams, dial

DEADLINE_S = 30.0
NAME = "registry.example"
PUBLIC_ADDRESS = "93.184.215.14"
"""An address that the proxy may connect to. The tests' dialler leads it to loopback: nothing is sent there."""


class Certificates:
    """A CA, and server and client contexts that use it."""

    def __init__(self) -> None:
        self._ca = trustme.CA()

    def server(self, *names: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*names).configure_cert(context)
        return context

    def ca_pem(self) -> bytes:
        """The certificate of the CA."""
        return self._ca.cert_pem.bytes()

    def client(self) -> ssl.SSLContext:
        """Without a check of the name: the attacker owns the client."""
        context = ssl.create_default_context()
        context.check_hostname = False
        self._ca.configure_trust(context)
        return context


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


def network_to(server: LoopbackServer, name: str = NAME) -> FakeNetwork:
    """A network in which `name` has one public address, which leads to `server`."""
    return FakeNetwork({name: [[PUBLIC_ADDRESS]]}, {PUBLIC_ADDRESS: server.port})


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
    return f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode()


def tunnel(
    path: Path, authority: str, server_name: str | None, client: ssl.SSLContext, message: bytes = b"hi"
) -> bytes:
    """Ask for a tunnel, speak TLS in it to `server_name`, send a message: the answer, or b"" when it was cut.

    Raises: `ConnectionError` with the first line of a refusal.
    """
    with connected(path) as plain:
        plain.sendall(connect_request(authority))
        head = read_head(plain)
        if not head.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(head.partition(b"\r\n")[0].decode())
        try:
            with client.wrap_socket(plain, server_hostname=server_name) as secured:
                secured.sendall(message)
                return read_rest(secured)
        except (ssl.SSLError, OSError):
            return b""
