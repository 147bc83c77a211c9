"""The egress proxy, spoken to as a guest would: what it passes on, what it refuses, what it records."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from devtools.egresspeers import Certificates, tunnel
from devtools.host_speed import slowness
from devtools.one_server_network import network_to
from sandbox.attack.harness.egress_peers import (
    NAME,
    PUBLIC_ADDRESS,
    FakeNetwork,
    LoopbackServer,
    allow,
    connect_request,
    connected,
    read_head,
    read_rest,
    send_request,
    serving,
)
from sandbox.egress import proxy as proxy_module
from sandbox.egress.connection_meter import EgressLimits
from sandbox.egress.destinations import AllowList, Destination
from sandbox.egress.proxy import EgressProxy, Outside, Streams, dial, resolve
from sandbox.models import EgressRefusal

PLAIN = f"GET http://{NAME}/simple/a?b=1 HTTP/1.1\r\nHost: {NAME}\r\nAccept: */*\r\nCookie: secret\r\n\r\n".encode()
REPLY = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbody"


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return Certificates()


@pytest.fixture
def registry(certificates: Certificates) -> Iterator[LoopbackServer]:
    with serving(certificates.server(NAME)) as server:
        yield server


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., EgressProxy]]:
    """A proxy on `tmp_path/socket`; the test ends it, or the fixture does."""
    made: list[EgressProxy] = []

    def enter(network: FakeNetwork, allowed: AllowList | None = None, **limits: Any) -> EgressProxy:
        proxy = EgressProxy(
            tmp_path / "socket",
            allowed or allow(),
            EgressLimits(**limits),
            outside=network.outside,
        )
        made.append(proxy.__enter__())
        return proxy

    yield enter
    for proxy in made:
        proxy.__exit__(None, None, None)


def ended(proxy: EgressProxy) -> EgressProxy:
    proxy.__exit__(None, None, None)
    return proxy


def reply(connection: socket.socket) -> bytes:
    found = connection.recv(65536)
    connection.sendall(REPLY)
    return found


def test_tunnel_to_a_registry_passes_bytes_both_ways_and_is_recorded(
    start: Callable[..., EgressProxy], registry: LoopbackServer, certificates: Certificates
) -> None:
    network = network_to(registry)
    proxy = start(network)
    assert tunnel(proxy.path, f"{NAME}:443", NAME, certificates.client()) == b"echo hi"
    (access,) = ended(proxy).accesses
    assert (access.host, access.port, access.refused) == (NAME, 443, None)
    assert access.sent_bytes > 200
    assert access.received_bytes > 500
    assert network.dialled == [f"{PUBLIC_ADDRESS}:443"]
    assert registry.names == [NAME]


def test_socket_is_private_and_goes_with_the_proxy(start: Callable[..., EgressProxy]) -> None:
    proxy = start(FakeNetwork({}, {}))
    assert stat.S_IMODE(proxy.path.stat().st_mode) == 0o600
    ended(proxy)
    assert not proxy.path.exists()


def test_socket_is_made_as_one_that_selinux_lets_guests_connect_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    @contextmanager
    def label() -> Iterator[None]:
        steps.append("label")
        yield
        steps.append("no label")

    class Recorded(socket.socket):
        def __init__(self, *given: int) -> None:
            steps.append("socket")
            super().__init__(*given)

    monkeypatch.setattr(proxy_module, "guest_sockets", label)
    monkeypatch.setattr(socket, "socket", Recorded)
    with proxy_module.listen_on(tmp_path / "socket", None):
        assert steps == ["label", "socket", "no label"]


def test_socket_may_be_deeper_than_a_socket_address_is_long(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 100) / ("e" * 100)
    folder.mkdir(parents=True)
    with EgressProxy(folder / "socket", allow()):
        assert b"403 egress_refused not_allowed" in send_request(folder / "socket", connect_request("a.example:443"))


def test_plain_request_is_written_anew_for_a_plain_registry(start: Callable[..., EgressProxy]) -> None:
    with serving(answer=reply) as server:
        proxy = start(network_to(server), allow(port=80, plain=True))
        assert send_request(proxy.path, PLAIN) == REPLY
    head = server.contacts[0].decode().lower().split("\r\n")
    assert head[0] == "get /simple/a?b=1 http/1.1"
    assert set(head[1:]) == {f"host: {NAME}", "accept: */*", "connection: close", ""}


@pytest.mark.parametrize(
    ("request_bytes", "why"),
    [
        (connect_request("other.example:443"), EgressRefusal.NOT_ALLOWED),
        (connect_request(f"{NAME}:80"), EgressRefusal.NOT_ALLOWED),
        (connect_request(f"{NAME}.:443"), EgressRefusal.BAD_REQUEST),
        (connect_request(PUBLIC_ADDRESS + ":443"), EgressRefusal.NOT_ALLOWED),
        (PLAIN, EgressRefusal.NOT_ALLOWED),  # https only
        (b"\x16\x03\x01\x00\x05hello\r\n\r\n", EgressRefusal.BAD_REQUEST),
        (b"GET /\r\n\r\n", EgressRefusal.BAD_REQUEST),
        (b"POST http://a.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", EgressRefusal.BAD_REQUEST),
        (b"A" * 40_000, EgressRefusal.BAD_REQUEST),
    ],
    ids=["name", "port", "dot", "address", "plain", "tls", "old", "method", "long"],
)
def test_other_requests_are_refused_without_a_look_up(
    start: Callable[..., EgressProxy], request_bytes: bytes, why: EgressRefusal
) -> None:
    network = FakeNetwork({NAME: [[PUBLIC_ADDRESS]]}, {})
    proxy = start(network)
    answer = send_request(proxy.path, request_bytes)
    assert answer.startswith(f"HTTP/1.1 403 egress_refused {why}".encode()) or why is EgressRefusal.BAD_REQUEST
    assert [access.refused for access in ended(proxy).accesses] == [why]
    assert (network.looked_up, network.dialled) == ([], [])


def test_connection_that_says_nothing_is_recorded_as_no_request(start: Callable[..., EgressProxy]) -> None:
    proxy = start(FakeNetwork({}, {}))
    with connected(proxy.path) as client:
        client.shutdown(socket.SHUT_WR)
        assert read_rest(client).startswith(b"HTTP/1.1 403")
    (access,) = ended(proxy).accesses
    assert (access.host, access.port, access.refused) == ("", 0, EgressRefusal.BAD_REQUEST)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({}, EgressRefusal.NOT_RESOLVED),
        ({NAME: [[]]}, EgressRefusal.NOT_RESOLVED),
        ({NAME: [["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254"]]}, EgressRefusal.ADDRESS_NOT_ALLOWED),
        ({NAME: [[PUBLIC_ADDRESS]]}, EgressRefusal.CONNECT_FAILED),
    ],
    ids=["unknown", "empty", "internal", "closed"],
)
def test_registry_that_cannot_be_reached_is_refused(
    start: Callable[..., EgressProxy], answers: dict[str, list[list[str]]], why: EgressRefusal
) -> None:
    proxy = start(FakeNetwork(answers, {}))
    assert f"403 egress_refused {why}".encode() in send_request(proxy.path, connect_request(f"{NAME}:443"))
    assert [access.refused for access in ended(proxy).accesses] == [why]


def test_second_address_is_tried_and_internal_ones_are_left_out(
    start: Callable[..., EgressProxy], registry: LoopbackServer, certificates: Certificates
) -> None:
    network = FakeNetwork({NAME: [["10.0.0.1", "1.1.1.1", PUBLIC_ADDRESS]]}, {PUBLIC_ADDRESS: registry.port})
    proxy = start(network)
    assert tunnel(proxy.path, f"{NAME}:443", NAME, certificates.client()) == b"echo hi"
    assert network.dialled == ["1.1.1.1:443", f"{PUBLIC_ADDRESS}:443"]


def test_host_that_the_operator_named_may_be_on_loopback(
    start: Callable[..., EgressProxy], registry: LoopbackServer, certificates: Certificates
) -> None:
    network = FakeNetwork({NAME: [["127.0.0.1"]]}, {"127.0.0.1": registry.port})
    proxy = start(network, allow(internal=True))
    assert tunnel(proxy.path, f"{NAME}:443", NAME, certificates.client()) == b"echo hi"


def test_something_else_than_tls_is_refused_and_not_passed_on(start: Callable[..., EgressProxy]) -> None:
    with serving() as server:
        proxy = start(network_to(server))
        answer = send_request(proxy.path, connect_request(f"{NAME}:443") + b"SSH-2.0-x\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        assert [access.refused for access in ended(proxy).accesses] == [EgressRefusal.NOT_TLS]
    assert server.contacts in ([], [b""])


def wait_for_end(proxy: EgressProxy, count: int = 1) -> EgressRefusal | None:
    """Wait for the end of so many connections: why the first ended."""
    ends_at = time.monotonic() + 20
    while len(proxy.accesses) < count and time.monotonic() < ends_at:
        time.sleep(0.01)
    return proxy.accesses[0].refused


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"idle_s": 0.2}, EgressRefusal.IDLE),
        ({"duration_s": 0.2}, EgressRefusal.TIME_OVER),
        ({"received_bytes": 100_000}, EgressRefusal.TOO_MANY_BYTES),
        ({"sent_bytes": 100_000}, EgressRefusal.TOO_MANY_BYTES),
    ],
    ids=["idle", "time", "received", "sent"],
)
def test_connection_is_cut_at_each_limit(
    start: Callable[..., EgressProxy], certificates: Certificates, limits: dict[str, float], why: EgressRefusal
) -> None:
    done = threading.Event()

    def answer(connection: socket.socket) -> bytes:
        found = connection.recv(16)
        if "received_bytes" in limits:
            connection.sendall(bytes(300_000))
        done.wait(20)
        return found

    with serving(certificates.server(NAME), answer) as server:
        proxy = start(network_to(server), **limits)
        message = bytes(300_000) if "sent_bytes" in limits else b"hi"
        with suppress(ConnectionError):  # on a busy host the time may be over before the tunnel is open
            tunnel(proxy.path, f"{NAME}:443", NAME, certificates.client(), message)
        assert wait_for_end(proxy) is why
        done.set()
    for count in (proxy.accesses[0].received_bytes, proxy.accesses[0].sent_bytes):
        assert count <= 100_000


def test_request_that_does_not_end_is_cut(start: Callable[..., EgressProxy]) -> None:
    proxy = start(FakeNetwork({}, {}), step_s=0.1)
    with connected(proxy.path) as client:
        client.sendall(b"CONNECT ")
        read_rest(client)
    assert wait_for_end(proxy) is EgressRefusal.IDLE


def test_no_connection_beyond_the_limits(start: Callable[..., EgressProxy]) -> None:
    proxy = start(FakeNetwork({}, {}), connections=3, open_connections=1)
    with connected(proxy.path) as first:
        first.sendall(b"C")
        assert b"too_many_connections" in send_request(proxy.path, b"")
    wait_for_end(proxy, 2)
    assert b"not_allowed" in send_request(proxy.path, connect_request("a.example:443"))
    with pytest.raises(ConnectionRefusedError):  # it does not listen any more
        send_request(proxy.path, connect_request("a.example:443"))


def test_only_so_many_connections_have_a_record(
    start: Callable[..., EgressProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.egress.connection_meter.MAX_RECORDS", 2)
    proxy = start(FakeNetwork({}, {}))
    for _ in range(3):
        send_request(proxy.path, connect_request("a.example:443"))
    assert len(ended(proxy).accesses) == 2
    assert proxy.unrecorded == 1


def test_end_of_the_proxy_cuts_what_is_open(
    start: Callable[..., EgressProxy], registry: LoopbackServer, certificates: Certificates
) -> None:
    proxy = start(network_to(registry))
    with connected(proxy.path) as client:
        client.sendall(connect_request(f"{NAME}:443"))
        assert read_head(client).startswith(b"HTTP/1.1 200")
        ended(proxy)
        assert read_rest(client) == b""
    assert len(proxy.accesses) == 1


def test_connections_that_ask_at_the_same_time_share_one_look_at_a_name(tmp_path: Path) -> None:
    """Also one that fails; a later connection looks again, so an answer is never older than its connection."""
    network = FakeNetwork({NAME: [[PUBLIC_ADDRESS], ["192.0.2.9"]]}, {})
    proxy = EgressProxy(tmp_path / "socket", allow(), outside=network.outside)

    async def look_up(name: str) -> list[Any]:
        looks = (proxy._look_up(Destination(name, 443)) for _ in range(3))
        return await asyncio.gather(*looks, return_exceptions=True)

    assert asyncio.run(look_up(NAME)) == [[PUBLIC_ADDRESS]] * 3
    assert asyncio.run(look_up(NAME)) == [["192.0.2.9"]] * 3
    assert all(isinstance(found, OSError) for found in asyncio.run(look_up("elsewhere.example")))
    assert network.looked_up == [NAME, NAME, "elsewhere.example"]


def test_a_name_is_resolved_as_this_host_does() -> None:
    assert "127.0.0.1" in asyncio.run(resolve(Destination("localhost", 80)))
    with pytest.raises(OSError, match="no address"):
        asyncio.run(resolve(Destination("name.invalid", 80)))


def test_the_end_of_the_proxy_does_not_wait_for_a_silent_resolver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def be_silent(*_: object, **__: object) -> list[Any]:
        answered.wait(20)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", be_silent)
    begun = time.monotonic()
    with EgressProxy(tmp_path / "socket", allow(), EgressLimits(step_s=0.1)) as proxy:
        assert b"not_resolved" in send_request(proxy.path, connect_request(f"{NAME}:443"))
    took = time.monotonic() - begun
    answered.set()
    assert took < 10 * slowness()


@pytest.mark.parametrize("code", [errno.ETIMEDOUT, errno.ECONNRESET])
def test_a_connection_that_the_network_breaks_reached_no_limit(tmp_path: Path, code: int) -> None:
    """Python raises the same class for ETIMEDOUT as for a limit of ours."""
    with serving(answer=reply) as server:
        network = network_to(server)

        async def break_off(_: str, __: int) -> Streams:
            _reader, writer = await dial("127.0.0.1", server.port)
            broken = asyncio.StreamReader()
            broken.set_exception(OSError(code, os.strerror(code)))
            return broken, writer

        outside = Outside(network.resolve, break_off)
        with EgressProxy(tmp_path / "socket", allow(port=80, plain=True), outside=outside) as proxy:
            assert send_request(proxy.path, PLAIN) == b""
    assert [access.refused for access in proxy.accesses] == [None]


def test_a_server_that_does_not_answer_a_connection_cannot_be_reached(tmp_path: Path) -> None:
    async def give_up(_: str, __: int) -> Streams:
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    outside = Outside(FakeNetwork({NAME: [[PUBLIC_ADDRESS]]}, {}).resolve, give_up)
    with EgressProxy(tmp_path / "socket", allow(), outside=outside) as proxy:
        assert b"connect_failed" in send_request(proxy.path, connect_request(f"{NAME}:443"))
