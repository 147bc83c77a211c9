"""Ask a local engine what it has to say about one thing, without the SDK: a tenth of its time for a question.

Only questions, and only answers that say yes. Whatever else comes is left to the SDK, which asks again and knows what
went wrong. HTTP/1.0, so that the body ends with the connection, and nothing is shared between threads.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import requests

from sandbox.engine.connection import Engine

_MAX_BYTES = 32 * 1024**2
_PIECE = 64 * 1024


def inspect(engine: Engine, kind: str, name: str) -> dict[str, Any] | None:
    """`GET /<kind>/<name>/json`; None when the engine is not on this host, or does not simply answer.

    Raises: requests.ReadTimeout when it does not answer in the time it has: the SDK would wait as long again.
    """
    if not engine.local:
        return None
    with suppress(ConnectionError, FileNotFoundError, ValueError):
        head, _, body = _asked(engine, f"/v{engine.api.api_version}/{kind}/{quote(name, safe='/:@')}/json")
        found = json.loads(body) if head.split(b" ")[1:2] == [b"200"] else None
        return found if isinstance(found, dict) else None
    return None


def _asked(engine: Engine, target: str) -> tuple[bytes, bytes, bytes]:
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
