"""A server that gets what the daemon sends, and an event to send."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue

from sandbox.models import HomeEvent, HomeEventKind, JournalEntry

Received = tuple[str, dict[str, str], bytes]


class Receiver:
    """Answers with these statuses, then with 200; a redirect leads to `/elsewhere`."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.received: Queue[Received] = Queue()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.received.put((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(outer.statuses.pop(0) if outer.statuses else 200)
                self.send_header("location", "/elsewhere")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)


@contextmanager
def serve_receiver() -> Iterator[Receiver]:
    found = Receiver()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        found.server.server_close()
        thread.join()


def make_event(kind: HomeEventKind, number: int, operation: str = "push", result: str = "ok") -> HomeEvent:
    """One of a home; its name is as a hostile guest would write it."""
    entry = JournalEntry.model_validate(
        {
            "at": "2026-01-01T00:00:00Z",
            "actor": "agent",
            "operation": operation,
            "arguments": f"sha256:{'0' * 64}",
            "names": ["a\u202eb\n"],
            "result": result,
            "duration_s": 1.5,
        }
    )
    return HomeEvent(id=f"home/{number}", at=entry.at, kind=kind, operation=entry)
