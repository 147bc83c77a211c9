"""Whose socket is at the other end, by tables as the kernel writes them. Id: S116."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from sandbox.daemon.tcp_peers import _TABLES, Address, _find_owners, is_other_user

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = "   {n}: {ours} {theirs} 01 00000000:00000000 00:00000000 00000000 {uid:5}        0 1234 1 0 20 4 30 10 -1\n"
OTHER = 65534


def write_row(folder: Path, name: str, ours: str, theirs: str) -> None:
    """The connection's end of another user, after that of the server, which is ours."""
    rows = ROW.format(n=0, ours=theirs, theirs=ours, uid=os.geteuid()) + ROW.format(
        n=1, ours=ours, theirs=theirs, uid=OTHER
    )
    (folder / name).write_text(HEAD + rows)


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "client"),
    [
        ("tcp", "0100007F:C350", "0100007F:223D", ("127.0.0.1", 50000)),
        (
            "tcp6",
            "0000000000000000FFFF00000100007F:C350",
            "0000000000000000FFFF00000100007F:223D",
            ("127.0.0.1", 50000),
        ),
        ("tcp6", "00000000000000000000000001000000:C350", "00000000000000000000000001000000:223D", ("::1", 50000)),
    ],
    ids=["ipv4", "mapped", "ipv6"],
)
def test_the_socket_of_another_user_is_found(
    tmp_path: Path, name: str, ours: str, theirs: str, client: Address
) -> None:
    """As a host with the usual order of bytes writes it. Control: another port is no row of the table."""
    write_row(tmp_path, name, ours, theirs)
    server = (client[0], 8765)
    assert is_other_user(client, server, tmp_path)
    assert not is_other_user((client[0], 50001), server, tmp_path)


def test_our_own_socket_is_no_stranger() -> None:
    """Control: it is found in the kernel's tables, as one of ours."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        assert set(_find_owners(client.getsockname(), listener.getsockname(), _TABLES)) == {os.geteuid()}
        assert not is_other_user(client.getsockname(), listener.getsockname())
