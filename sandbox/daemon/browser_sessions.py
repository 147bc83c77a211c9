"""Sessions of persons in a browser: opened by a one-time link, which only our own user can ask for.

The token of agents opens none: else an agent could answer its own questions. A browser sends a cookie to every port of
a host, so the pages have a host name of their own, `<random>.localhost`, which browsers lead to this machine: another
server on 127.0.0.1 never gets the cookie. Browsers try `[::1]` before 127.0.0.1, so our port there must not be another
user's, who would get the link (`LoopbackPort`). Links and sessions are in memory only; a new daemon forgets them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable
from errno import EADDRNOTAVAIL, EAFNOSUPPORT

COOKIE = "sandbox-session"
LINK_S, SESSION_S = 60.0, 12 * 3600.0
_MOST = 100
_MOST_COOKIES = 10
"""Of our name in one request. A browser sends one; a page of another port may have set further ones."""


class Sessions:
    """Links and sessions of one daemon. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._links: dict[str, float] = {}
        self._sessions: dict[str, float] = {}

    def make_link(self) -> str:
        """The secret of a link that opens one session within a minute."""
        return self._add(self._links, LINK_S)

    def open_session(self, link: str) -> str | None:
        """Use up a link. Returns the cookie's value; None for a link that is unknown, used or too old."""
        with self._lock:
            until = self._links.pop(_digest(link), 0.0)
        return self._add(self._sessions, SESSION_S) if until > self._clock() else None

    def find(self, cookie_header: str) -> str | None:
        """The session of a request, by its `Cookie` header.

        Read by hand: `http.cookies` needs seconds for kilobytes of backslashes (CVE-2024-7592), and anyone may send
        them. Our values have no character that is quoted.
        """
        values = [
            value
            for name, _, value in (part.strip().partition("=") for part in cookie_header.split(";"))
            if name == COOKIE
        ]
        now = self._clock()
        with self._lock:
            return next(
                (value for value in values[-_MOST_COOKIES:] if self._sessions.get(_digest(value), 0.0) > now), None
            )

    def _add(self, places: dict[str, float], length_s: float) -> str:
        secret = secrets.token_urlsafe(32)
        with self._lock:
            while len(places) >= _MOST:
                del places[next(iter(places))]
            places[_digest(secret)] = self._clock() + length_s
        return secret


class LoopbackPort:
    """Our port on the loopback addresses that a browser may try for `*.localhost` and where we do not listen: bound,
    without a listener, so that a browser is refused there and comes to us. Thread-safe.
    """

    def __init__(self, host: str, port: int) -> None:
        own = "127.0.0.1" if host == "localhost" else host
        self._others, self._port = [address for address in ("127.0.0.1", "::1") if address != own], port
        self._held: dict[str, socket.socket] = {}
        self._lock = threading.Lock()

    def hold(self) -> None:
        """Keep the port from other users until this process ends. Raises: OSError when another program has it."""
        with self._lock:
            for address in self._others:
                if address not in self._held and (found := _bind(address, self._port)):
                    self._held[address] = found


def _bind(address: str, port: int) -> socket.socket | None:
    """None on a host without this address: then no program can listen there."""
    held = None
    try:
        held = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # for processes of our user: our successor
        held.bind((address, port))
    except OSError as error:
        if held is not None:
            held.close()
        if error.errno in {EADDRNOTAVAIL, EAFNOSUPPORT}:
            return None
        raise
    return held


def make_form_token(session: str) -> str:
    """What every form of a session's pages has: a page of another origin cannot read it."""
    return hmac.new(session.encode(), b"form", hashlib.sha256).hexdigest()


def is_form_token(session: str, given: str) -> bool:
    """Whether a form was on a page of this session."""
    return hmac.compare_digest(make_form_token(session).encode(), given.encode())


def _digest(secret: str) -> str:
    """Secrets are looked up by digest, so that the time of a look does not depend on them."""
    return hashlib.sha256(secret.encode()).hexdigest()
