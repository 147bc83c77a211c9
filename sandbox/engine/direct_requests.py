"""Inspect one object of a local engine without the SDK: it takes a tenth of the SDK's time.

Read requests only, and only successful answers. For any other answer the SDK repeats the request and reports the error.
HTTP/1.0: the body ends with the connection, and threads share no state.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import requests

from sandbox.engine.docker_api import DockerApi

_MAX_BYTES = 32 * 1024**2
_PIECE = 64 * 1024


def inspect_directly(engine: DockerApi, kind: str, name: str) -> dict[str, Any] | None:
    """Send `GET /<kind>/<name>/json`; None when the engine is not on this host, or the answer is not a plain success.

    Raises: requests.ReadTimeout when the engine does not answer in time: the SDK would wait as long again.
    """
    if not engine.is_local:
        return None
    with suppress(ConnectionError, FileNotFoundError, ValueError):
        head, _, body = _request(engine, f"/v{engine.api.api_version}/{kind}/{quote(name, safe='/:@')}/json")
        found = json.loads(body) if head.split(b" ")[1:2] == [b"200"] else None
        return found if isinstance(found, dict) else None
    return None


def _request(engine: DockerApi, target: str) -> tuple[bytes, bytes, bytes]:
    path = "/" + engine.endpoint.url.removeprefix("unix://").lstrip("/")
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(engine.api.timeout)
        try:
            channel.connect(path)
            channel.sendall(f"GET {target} HTTP/1.0\r\nHost: engine\r\n\r\n".encode("ascii"))
            answer = bytearray()
            while piece := channel.recv(_PIECE):
                answer += piece
                if len(answer) > _MAX_BYTES:
                    raise ValueError("an answer without an end")
        except TimeoutError as error:
            raise requests.ReadTimeout(f"{target}: {error}") from error
    return bytes(answer).partition(b"\r\n\r\n")
