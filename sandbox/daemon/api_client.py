"""Ask the daemon of a home at its Unix socket."""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any

from sandbox.daemon.peers import identify_peer, is_same_user
from sandbox.daemon.place import API_SOCKET, find_owner, folder_of
from sandbox.errors import ErrorCode, SandboxError

_TIMEOUT_S = 30.0
_MOST_BYTES = 1024**2


class _DaemonConnection(http.client.HTTPConnection):
    """HTTP over the socket of a daemon of our own user."""

    def __init__(self, home: Path) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._home = home

    def connect(self) -> None:
        """Raises: OSError, also for a daemon of another user."""
        folder = os.open(folder_of(self._home), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(_TIMEOUT_S)
            self.sock.connect(f"/proc/self/fd/{folder}/{API_SOCKET}")
        finally:
            os.close(folder)
        if not is_same_user(identify_peer(self.sock)):
            raise PermissionError("the daemon is another user's")


def _no_answer_error(home: Path, error: Exception) -> SandboxError:
    owner = find_owner(home)
    if owner is not None and owner.is_starting:
        return SandboxError(
            ErrorCode.CONFLICT,
            f"Process {owner.pid} is starting on the home {home}, and does not serve it yet",
            hint="Try again in a few seconds; `sandbox serve --status` says when it serves.",
        )
    return SandboxError(
        ErrorCode.NOT_FOUND,
        f"No daemon of yours serves the home {home}",
        details="" if owner is None else str(error)[:200],
        hint="Start one: sandbox serve --http 127.0.0.1:8765",
    )


def post(home: Path, path: str) -> dict[str, Any]:
    """The JSON answer to an empty request. Raises: `not_found` if no daemon answers, `conflict` if it only starts."""
    connection = _DaemonConnection(home)
    try:
        connection.request("POST", path)
        return dict(json.loads(connection.getresponse().read(_MOST_BYTES)))
    except (OSError, http.client.HTTPException, ValueError, TypeError) as error:
        raise _no_answer_error(home, error) from error
    finally:
        connection.close()
