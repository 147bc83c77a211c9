from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from devtools.egresspeers import Certificates
from devtools.host_speed import slowness
from devtools.one_server_network import network_to
from sandbox.attack.harness.egress_peers import NAME, FakeNetwork, serving
from sandbox.egress.destinations import AllowedHost, Destination
from sandbox.egress.proxy import Outside, Streams
from sandbox.egress.reachability import ask_registries

HOST = AllowedHost(Destination(NAME, 443))
KEY = f"{NAME}:443"


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return Certificates()


@pytest.fixture
def ca_file(certificates: Certificates, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    path.write_bytes(certificates.ca_pem())
    return str(path)


def ask(network: FakeNetwork, ca_file: str, host: AllowedHost = HOST) -> str:
    return ask_registries([host], ca_file, outside=network.outside)[str(host.destination)]


def hang_up(connection: socket.socket) -> bytes:
    return connection.recv(1)


def test_a_host_with_a_trusted_certificate_answers(certificates: Certificates, ca_file: str) -> None:
    with serving(certificates.server(NAME), hang_up) as server:
        assert ask(network_to(server), ca_file) == ""
    assert server.contacts == [b""], "no request is sent"


def test_a_certificate_for_another_name_or_of_another_ca_is_told(certificates: Certificates, ca_file: str) -> None:
    for found in (certificates.server("other.example"), Certificates().server(NAME)):
        with serving(found, hang_up) as server:
            assert ask(network_to(server), ca_file).startswith("its certificate is not trusted")


def test_a_plain_registry_is_asked_by_head(ca_file: str) -> None:
    def answer(connection: socket.socket) -> bytes:
        found = connection.recv(65536)
        connection.sendall(b"HTTP/1.1 404 Not Found\r\n\r\n")
        return found

    plain = AllowedHost(Destination(NAME, 80), "http")
    with serving(answer=answer) as server:
        assert ask(network_to(server), ca_file, plain) == ""
    assert server.contacts[0].startswith(b"HEAD / HTTP/1.1")


@pytest.mark.parametrize(
    ("answers", "problem"),
    [({}, "not_resolved"), ({NAME: [["10.0.0.1"]]}, "address_not_allowed"), ({NAME: [["8.8.8.8"]]}, "connect_failed")],
    ids=["unknown", "internal", "refuses"],
)
def test_the_rules_of_a_fetch_decide(answers: dict[str, list[list[str]]], problem: str, ca_file: str) -> None:
    assert ask(FakeNetwork(answers, {}), ca_file) == problem


def test_silent_hosts_and_resolvers_are_waited_for_together(ca_file: str) -> None:
    async def never(_: object, __: object = None) -> Sequence[str]:
        await asyncio.sleep(60)
        return []

    async def dial(_: str, __: int) -> Streams:
        raise OSError

    hosts = [AllowedHost(Destination(f"{n}.example", 443)) for n in range(8)]
    started = time.monotonic()
    found = ask_registries(hosts, ca_file, deadline_s=0.5, outside=Outside(never, dial))
    assert time.monotonic() - started < 3 * slowness()
    assert len(found) == 8
    assert all(found.values())
