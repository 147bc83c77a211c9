"""S168: requests with two lengths, of clients with and without the token. Over real sockets."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from sandbox.agent.transports.http import RequireToken
from sandbox.agent.transports.timeouts import TimeoutProtocol
from sandbox.daemon.guards import Network
from tests.unit.agent.transports.test_http import _plain, listening

HIDDEN = b"POST /hidden HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
BODY = b"0\r\n\r\n" + HIDDEN
BY_PROTOCOL = pytest.mark.parametrize("protocol", [TimeoutProtocol, H11Protocol], ids=["guarded", "control"])
GUARDS = {
    "allowed": _plain,
    "token": RequireToken(_plain, "secret"),
    "network": Network(_plain, ["x"], "secret", lambda _scope: False),
    "host": Network(_plain, ["y"], "secret", lambda _scope: False),
}


def ask(app: Any, protocol: Any, head: str) -> list[int]:
    """The status of each answer to one request, which hides another one from a proxy that counts bytes."""
    with (
        listening(lambda _: app, protocol) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as client,
    ):
        client.sendall(f"POST / HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n".encode() + BODY)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := client.recv(1000):
            answer += piece
    return [int(part.split()[0]) for part in answer.split(b"HTTP/1.1 ")[1:]]


@BY_PROTOCOL
def test_s168_a_request_with_two_lengths_is_refused(protocol: Any) -> None:
    """What a proxy that counts bytes takes for its body is a request for us."""
    found = ask(_plain, protocol, f"content-length: {len(BODY)}\r\nTransfer-Encoding: chunked")
    assert found == ([400] if protocol is TimeoutProtocol else [200, 200])


@pytest.mark.parametrize("guard", ["token", "network", "host"])
def test_s168_also_without_the_token(guard: str) -> None:
    """A stranger's request could become the beginning of another client's."""
    assert ask(GUARDS[guard], TimeoutProtocol, f"transfer-encoding: chunked\r\ncontent-length: {len(BODY)}") == [400]


@pytest.mark.parametrize(
    ("guard", "found"), [("token", [401]), ("network", [401]), ("host", [421]), ("allowed", [200, 200])]
)
def test_s168_a_refusal_ends_the_connection(guard: str, found: list[int]) -> None:
    """What a stranger sent after it has no answer. Control: an application that allows all."""
    assert ask(GUARDS[guard], TimeoutProtocol, "transfer-encoding: chunked") == found
