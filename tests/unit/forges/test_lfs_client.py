"""Downloads from a server of Git LFS that closes each connection after its answer. Hostile ones: THREATS S73 to S76."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from sandbox.errors import ErrorCode
from sandbox.forges.lfs_client import HostRules, LfsServer, Take, download
from sandbox.git.entries import REGULAR, TreeEntry
from sandbox.git.lfs_pointers import PointedFile, Pointer
from sandbox.git.shutdown import Shutdown
from tests.unit.conftest import refused


class _Handler(BaseHTTPRequestHandler):
    """Gives out objects, each followed by the end of the connection. `silent`: set, it stops after the first byte."""

    protocol_version = "HTTP/1.1"
    objects: ClassVar[dict[str, bytes]] = {}
    silent: ClassVar[threading.Event | None] = None

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["objects"]
        place = f"http://{self.headers['Host']}/"
        rows = [{**row, "actions": {"download": {"href": place + row["oid"]}}} for row in asked]
        self._answer(json.dumps({"transfer": "basic", "objects": rows}).encode())

    def do_GET(self) -> None:
        self._answer(self.objects[self.path.removeprefix("/")], self.silent)

    def _answer(self, content: bytes, silent: threading.Event | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        if silent is not None:
            self.wfile.write(content[:1])
            silent.wait(30)
        else:
            self.wfile.write(content)


@contextmanager
def serving(contents: list[bytes], silent: threading.Event | None = None) -> Iterator[tuple[str, list[PointedFile]]]:
    """The endpoint of such a server, and its files."""
    objects = {sha256(content).hexdigest(): content for content in contents}
    handler = type("_Objects", (_Handler,), {"objects": objects, "silent": silent})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            entry = TreeEntry(b"f", REGULAR, "0" * 40, 130)
            files = [PointedFile(entry, Pointer(oid, len(content), b"")) for oid, content in objects.items()]
            yield f"http://127.0.0.1:{server.server_port}/x.git/info/lfs", files
        finally:
            server.shutdown()
            thread.join()


def connect(endpoint: str, shutdown: Shutdown) -> LfsServer:
    return LfsServer(endpoint, None, frozenset(), lambda *_: HostRules(), 20.0, shutdown)


def test_a_connection_that_the_server_closed_keeps_no_descriptor() -> None:
    """Else a thousand objects are more than a process may have open."""
    contents = [b"object %d" % number for number in range(60)]
    counts: list[int] = []
    received: list[bytes] = []

    def store(_file: PointedFile, receive: Callable[[Take], None]) -> None:
        receive(received.append)
        counts.append(len(list(Path("/proc/self/fd").iterdir())))

    with serving(contents) as (endpoint, files):
        download(connect(endpoint, Shutdown()), files, store)
    assert sorted(received) == sorted(contents)
    assert max(counts) - counts[0] < 20


def test_a_shutdown_ends_the_read_of_an_answer_whose_connection_the_client_has_let_go() -> None:
    """With `Connection: close` only the answer still has the socket. Control: the first byte arrives."""
    shutdown, silent = Shutdown(), threading.Event()

    def take(chunk: bytes) -> None:
        assert chunk == b"t"
        threading.Thread(target=shutdown.set).start()

    with serving([b"the object"], silent) as (endpoint, files):
        try:
            with refused(ErrorCode.TIMEOUT):
                download(connect(endpoint, shutdown), files, lambda _, receive: receive(take))
        finally:
            silent.set()
