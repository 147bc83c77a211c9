"""Another https server, in this process: asks everyone for a password or sends them on, and keeps what it got."""

from __future__ import annotations

import http.server
import ssl
import threading
from types import TracebackType
from typing import Any, Self


class Recorder:
    """Listens on 127.0.0.1. `requests`: the headers of each request that came through the TLS handshake.

    `elsewhere`: where to send everyone, instead of asking for a password.
    """

    def __init__(self, context: ssl.SSLContext, elsewhere: str = "") -> None:
        self.requests: list[dict[str, str]] = []
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler(elsewhere))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self, elsewhere: str) -> type[http.server.BaseHTTPRequestHandler]:
        seen = self.requests

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(dict(self.headers))
                self.send_response(302 if elsewhere else 401)
                header = ("Location", elsewhere) if elsewhere else ("WWW-Authenticate", 'Basic realm="elsewhere"')
                self.send_header(*header)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Tests read `requests`."""

        return Handler
