"""Sessions of persons in a browser: opened by a one-time link, which only our own user can ask for.

The token of agents opens none: else an agent could answer its own questions. A browser sends a cookie to every port of
a host, so the pages have a host name of their own, `<random>.localhost`, which browsers lead to this machine: another
server on 127.0.0.1 never gets the cookie. Links and sessions are in memory only; a new daemon forgets them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie

COOKIE = "sandbox-session"
LINK_S, SESSION_S = 60.0, 12 * 3600.0
_MOST = 100


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
        """The session of a request, by its `Cookie` header."""
        try:
            found = SimpleCookie(cookie_header).get(COOKIE)
        except CookieError:
            return None
        if found is None:
            return None
        with self._lock:
            is_open = self._sessions.get(_digest(found.value), 0.0) > self._clock()
        return found.value if is_open else None

    def _add(self, places: dict[str, float], length_s: float) -> str:
        secret = secrets.token_urlsafe(32)
        with self._lock:
            while len(places) >= _MOST:
                del places[next(iter(places))]
            places[_digest(secret)] = self._clock() + length_s
        return secret


def make_form_token(session: str) -> str:
    """What every form of a session's pages has: a page of another origin cannot read it."""
    return hmac.new(session.encode(), b"form", hashlib.sha256).hexdigest()


def is_form_token(session: str, given: str) -> bool:
    """Whether a form was on a page of this session."""
    return hmac.compare_digest(make_form_token(session).encode(), given.encode())


def _digest(secret: str) -> str:
    """Secrets are looked up by digest, so that the time of a look does not depend on them."""
    return hashlib.sha256(secret.encode()).hexdigest()
