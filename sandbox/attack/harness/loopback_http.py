"""A read-only HTTP server of a test's own on loopback: what it answers is one function."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

Answer = Callable[[str], bytes | int | None]
"""From the path of a request, as it was sent, to the content, or a status without any; None: there is none (404)."""


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, answer: Answer, *args: object) -> None:
        self.answer = answer
        super().__init__(*args)  # type: ignore[arg-type]  # what the server passes

    def do_GET(self) -> None:
        answer = self.answer(self.path)
        content = answer if isinstance(answer, bytes) else b""
        self.send_response(200 if isinstance(answer, bytes) else answer or 404)
        self.send_header("Content-Type", _guess_type(content))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


def _guess_type(content: bytes) -> str:
    if content.startswith(b"<!DOCTYPE html>"):
        return "text/html"
    return "application/json" if content.startswith(b"{") else "application/octet-stream"


@contextmanager
def serve_http(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve on loopback; yields the port. `answer` is called by a thread for each request."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, answer)) as server:
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
