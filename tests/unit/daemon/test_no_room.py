"""The daemon on a host that has no room for another process."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import NoReturn

import pytest

from sandbox.daemon.command_requests import ModuleOrigin, Program
from sandbox.daemon.main_process import Daemon, Parts
from sandbox.daemon.place import begin


def test_a_daemon_that_cannot_fork_goes_on_and_sends_clients_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> NoReturn:
        raise BlockingIOError

    program = Program("elsewhere", {}, frozenset(), "utf-8", ModuleOrigin(tmp_path, ()))
    daemon = Daemon(
        begin(tmp_path, os.environ), Parts(program, lambda: 0, lambda: None, lambda _api, _http: 0, lambda _http: "")
    )
    try:
        monkeypatch.setattr(os, "fork", refuse)
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(tmp_path / "serve/commands.sock"))
            daemon._accept()
            assert client.recv(1) == b"", "it runs its command by itself"
        daemon._keep_server()
    finally:
        daemon._end()
        for one in (daemon._api, daemon._wakeup, daemon._wakes):
            one.close()
