"""Loopback https servers that record what they are sent: a real git behind one password, and an attacker."""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import trustme

from tests.attack.arena import GIT

USER, TOKEN = "attacker-wants", f"CANARY-{os.getpid()}-TOKEN"  # unlike the token of a test that runs beside us
ENCODED = base64.b64encode(f"{USER}:{TOKEN}".encode()).decode()


@dataclass
class Stub:
    """One server. `seen`: path, Authorization and all headers of every request. While `down` exists it answers 503.

    `most_bytes`: it takes no larger request, as a proxy before it might. `hangs_up`: so many pushes it does and
    says nothing.
    """

    project: Path | None
    redirect_to: str = ""
    asks: bool = True
    down: Path | None = None
    most_bytes: int | None = None
    hangs_up: int = 0
    seen: list[tuple[str, str, str]] = field(default_factory=list)
    port: int = 0

    def pushes(self) -> int:
        """How often something was sent to it."""
        return sum(path.endswith("/git-receive-pack") for path, _, _ in self.seen)

    def leaked(self) -> list[str]:
        """Requests that carried the secret, in any header."""
        return [path for path, _, headers in self.seen if TOKEN in headers or ENCODED in headers]


class _Handler(BaseHTTPRequestHandler):
    stub: Stub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        authorization = self.headers.get("Authorization", "")
        self.stub.seen.append((self.path, authorization, str(self.headers)))
        body = self._body()
        if self.stub.down is not None and self.stub.down.exists():
            self._answer(503, [], b"")
        elif self.stub.most_bytes is not None and len(body) > self.stub.most_bytes:
            self._answer(413, [], b"")
        elif self.stub.asks and self.stub.project is not None and authorization != f"Basic {ENCODED}":
            self._answer(401, [("WWW-Authenticate", 'Basic realm="x"')], b"")
        elif self.stub.redirect_to:
            self._answer(302, [("Location", f"{self.stub.redirect_to}{self.path}")], b"")
        elif self.stub.project is None:
            self._answer(401, [("WWW-Authenticate", 'Basic realm="x"')], b"")
        else:
            self._git(body)

    do_POST = do_GET

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _git(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        environ = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.stub.project), "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command, "REMOTE_USER": "x",
            "REMOTE_ADDR": "127.0.0.1", "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)), "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
            "GIT_CONFIG_KEY_1": "http.receivepack", "GIT_CONFIG_VALUE_1": "true",
        }  # fmt: skip
        done = subprocess.run([GIT, "http-backend"], input=body, env=environ, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        if self.stub.hangs_up and path.endswith("/git-receive-pack"):
            self.stub.hangs_up -= 1
            self.close_connection = True
            return
        headers = [tuple(line.decode().split(": ", 1)) for line in head.split(b"\r\n")]
        status = next((int(v.split()[0]) for k, v in headers if k == "Status"), 200)
        self._answer(status, [(k, v) for k, v in headers if k != "Status"], content)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(stub: Stub, authority: trustme.CA, *, tls: bool = True) -> Iterator[Stub]:
    """Serve on a free port of 127.0.0.1."""
    handler = type("Handler", (_Handler,), {"stub": stub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    stub.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
