"""The dashboard on a home with one task, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any

import httpx2
from starlette.applications import Starlette

from sandbox.daemon.browser_sessions import COOKIE, Sessions
from sandbox.daemon.dashboard import Dashboard
from sandbox.daemon.guards import Network
from sandbox.workbench import Workbench
from tests.unit.agent.transports.test_http import listening
from tests.unit.desk import Desk


class Structure(HTMLParser):
    """The elements of a page with their attributes' names, and the values of those that a browser acts on."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[Any] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kept = [(name, value) if name in {"href", "src", "action", "data-events"} else (name,) for name, value in attrs]
        self.found.append((tag, kept))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", data))


class Site:
    """The dashboard's routes at TCP, with the rules of the network, on a home with one task."""

    def __init__(self, desk: Desk, person: Workbench, port: int) -> None:
        self.desk, self.person, self.sessions = desk, person, Sessions()
        self.url = f"http://127.0.0.1:{port}"
        routes = Starlette(routes=Dashboard(person, self.sessions, self.url).routes())
        self.app = Network(routes, [f"127.0.0.1:{port}"], "t" * 40, self.is_person)

    def is_person(self, scope: Any) -> bool:
        return self.sessions.find(dict(scope["headers"]).get(b"cookie", b"").decode()) is not None

    def log_in(self, client: httpx2.Client) -> str:
        """Open a session; returns its secret."""
        answer = client.get(f"{self.url}/login", params={"link": self.sessions.make_link()})
        assert answer.status_code == 303, answer.text
        return str(answer.cookies[COOKIE])


@contextmanager
def open_site(desk: Desk) -> Iterator[Site]:
    """Serve the dashboard of a desk's home."""
    places: list[Site] = []

    def make(port: int) -> Any:
        places.append(Site(desk, desk.workbench, port))
        return places[0].app

    with listening(make):
        yield places[0]
