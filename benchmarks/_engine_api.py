"""The engine's API without the SDK, one request per connection: the floor for our overhead."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from typing import Any

SOCKET = "/var/run/docker.sock"
_TIMEOUT_S = 60.0


class _Unix(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(SOCKET)


def call(method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """The JSON document of the answer; None for other answers. Raises: RuntimeError for an error status."""
    connection = _Unix("localhost")
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    if answer.status >= http.HTTPStatus.BAD_REQUEST:
        raise RuntimeError(data.decode(errors="replace"))
    return json.loads(data) if answer.headers.get_content_type() == "application/json" else None


def execute(container: str, *argv: str) -> None:
    """Run one command by `exec`: create, start, read all output, get the exit code."""
    made = call("POST", f"/containers/{container}/exec", {"Cmd": argv, "AttachStdout": True, "AttachStderr": True})
    call("POST", f"/exec/{made['Id']}/start", {"Detach": False})
    assert call("GET", f"/exec/{made['Id']}/json")["ExitCode"] == 0


def create(body: Mapping[str, Any]) -> str:
    """Create and start a container."""
    container = str(call("POST", "/containers/create", body)["Id"])
    call("POST", f"/containers/{container}/start")
    return container


def delete(container: str) -> None:
    """Remove a container by force."""
    call("DELETE", f"/containers/{container}?force=1&v=1")
