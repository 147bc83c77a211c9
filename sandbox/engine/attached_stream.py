"""A connection to a container's stdin and stdout: one HTTP request, then raw bytes both ways.

Our own few lines instead of the SDK's: its socket hides in a response whose buffers may hold what the guest said, and
it has no deadline for the answer. Local engines only. POST /containers/{id}/attach, upgraded to `tcp`:
https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerAttach
"""

from __future__ import annotations

import socket

from sandbox.engine.connection import Engine, translated
from sandbox.errors import ErrorCode, SandboxError

_MAX_HEADERS = 16 * 1024
_END = b"\r\n\r\n"


def attach(engine: Engine, container_id: str) -> socket.socket:
    """The container's stdin, stdout and stderr, from now on. The caller closes it; stdin stays open for the next.

    Raises: `engine_unavailable`, `internal` when the engine refuses.
    """
    path = "/" + engine.endpoint.url.removeprefix("unix://").lstrip("/")
    channel = socket.socket(socket.AF_UNIX)
    try:
        channel.settimeout(engine.api.timeout)
        with translated("attach to the container"):
            channel.connect(path)
            channel.sendall(_request(engine.api.api_version, container_id))
            status = _status(channel)
        if status != b"101":
            raise SandboxError(
                ErrorCode.INTERNAL,
                "The engine refused to attach to the container",
                details=status.decode("ascii", "replace"),
            )
    except BaseException:
        channel.close()
        raise
    return channel


def _request(version: str, container_id: str) -> bytes:
    target = f"/v{version}/containers/{container_id}/attach?stream=1&stdin=1&stdout=1&stderr=1"
    lines = ("Host: engine", "Connection: Upgrade", "Upgrade: tcp", "Content-Length: 0")
    return "\r\n".join((f"POST {target} HTTP/1.1", *lines, "", "")).encode("ascii")


def _status(channel: socket.socket) -> bytes:
    """Read the head of the answer to its last byte and none further: what follows is the guest's."""
    head = b""
    while not head.endswith(_END):
        ahead = channel.recv(_MAX_HEADERS, socket.MSG_PEEK)
        if not ahead or len(head) > _MAX_HEADERS:
            raise ConnectionError(f"an answer of {len(head)} bytes without an end")
        seen = head + ahead
        end = seen.find(_END)
        head += channel.recv(len(ahead) if end < 0 else end + len(_END) - len(head))
    return head.split(b" ", 2)[1]
