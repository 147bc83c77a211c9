"""A connection to a container's stdin and stdout: one HTTP request, then raw bytes both ways.

This replaces the SDK's call: the SDK hides its socket in a response with buffers that may hold guest output, and sets
no deadline for the answer. Local engines only. POST /containers/{id}/attach, upgraded to `tcp`:
https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerAttach
"""

from __future__ import annotations

import socket

from sandbox.engine.docker_api import DockerApi, translate_errors
from sandbox.errors import ErrorCode, SandboxError

_MAX_HEADERS = 16 * 1024
_END = b"\r\n\r\n"


def attach(engine: DockerApi, container_id: str) -> socket.socket:
    """Connect to the container's stdin, stdout and stderr, from now on. The caller closes the socket; stdin stays open
    for the next connection.

    Raises: `engine_unavailable`, `timeout`, `internal` when the engine refuses.
    """
    path = "/" + engine.endpoint.url.removeprefix("unix://").lstrip("/")
    channel = socket.socket(socket.AF_UNIX)
    try:
        channel.settimeout(engine.api.timeout)
        with translate_errors("attach to the container"):
            channel.connect(path)
            channel.sendall(_build_request(engine.api.api_version, container_id))
            status = _read_status(channel)
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


def _build_request(version: str, container_id: str) -> bytes:
    target = f"/v{version}/containers/{container_id}/attach?stream=1&stdin=1&stdout=1&stderr=1"
    lines = ("Host: engine", "Connection: Upgrade", "Upgrade: tcp", "Content-Length: 0")
    return "\r\n".join((f"POST {target} HTTP/1.1", *lines, "", "")).encode("ascii")


def _read_status(channel: socket.socket) -> bytes:
    """Read exactly the head of the answer and return its status code. The bytes after the head are guest output."""
    head = b""
    while not head.endswith(_END):
        ahead = channel.recv(_MAX_HEADERS, socket.MSG_PEEK)
        if not ahead or len(head) > _MAX_HEADERS:
            raise ConnectionError(f"an answer of {len(head)} bytes without an end")
        seen = head + ahead
        end = seen.find(_END)
        head += channel.recv(len(ahead) if end < 0 else end + len(_END) - len(head))
    return head.split(b" ", 2)[1]
