"""A configured proxy is what git connects to, and its refusal is not asked for again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.git.process import Git
from sandbox.git.transport import read_remote_refs
from tests.unit.conftest import access_to, refused


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[bytes]]]:
    """A proxy that refuses, and the first line of each request it got."""
    seen: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client:
                        seen.append(client.recv(4096).split(b"\r\n")[0])
                        client.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", seen
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_git_asks_the_proxy_once_and_no_one_else(proxy: tuple[str, list[bytes]], tmp_path: Path) -> None:
    url, seen = proxy
    access = replace(access_to("https://git.example.invalid/o/n", tmp_path / "known_hosts"), proxy=url)
    with refused(ErrorCode.NETWORK_ERROR):
        read_remote_refs(Git(tmp_path), access)
    assert seen == [b"CONNECT git.example.invalid:443 HTTP/1.1"]
