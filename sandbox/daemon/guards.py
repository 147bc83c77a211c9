"""Who a request is from, before any route sees it.

At the Unix socket it is our own user, as the kernel says; browsers cannot connect to it, so `Host` and `Origin` mean
little there, and are replaced. At TCP anybody on this host may connect, and a browser may be made to: a name that an
attacker controls can lead to 127.0.0.1 (DNS rebinding), and a page of another origin can send requests. So every
request must name our address as its host, and no other origin; then it needs the token of agents, the session of a
person, or, for `/metrics` alone, the token of those who watch the service.

What is open to more than agents and persons can only be read: a request with a body is refused before its body is
awaited, which a stranger could withhold (S193).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox.agent.transports.timeouts import ADMITTED

RIGHTS = "sandbox.rights"
"""Key of a request's scope: `user`, `token`, `person` (a browser's session), `metrics`, or `none`."""

METRICS = "/metrics"
"""The one path that the token for metrics opens."""

OPEN_PATHS = frozenset({"/healthz", "/login", "/static/style.css", "/static/live.js", "/static/icon.svg"})
"""What needs no token: it does not depend on the home, or has a secret of its own."""
_READ_ONLY_PATHS = OPEN_PATHS | {METRICS}
_CLOSE = {"connection": "close"}
_WRONG_HOST = PlainTextResponse("This host is not served here.\n", 421, _CLOSE)
_WRONG_ORIGIN = PlainTextResponse("Requests of other origins are refused.\n", 403, _CLOSE)
_NO_TOKEN = PlainTextResponse(
    "This request has no token, or a wrong one.\n"
    "To open the pages in a browser, run `sandbox dashboard` as the user who runs the daemon.\n"
    "Programs send the header `Authorization: Bearer TOKEN`: docs/serve.md says where the token is.\n",
    401,
    {"www-authenticate": "Bearer", **_CLOSE},
)
_ONLY_METRICS = PlainTextResponse(f"The token of this request opens {METRICS} only.\n", 403, _CLOSE)
_NOT_READ = PlainTextResponse("This path can only be read: send GET.\n", 405, {"allow": "GET, HEAD", **_CLOSE})
_NO_BODY = PlainTextResponse("A request to this path has no body.\n", 413, _CLOSE)
_REPLACED = {b"host", b"origin"}


class OurUser:
    """Requests of our own user, at the Unix socket."""

    def __init__(self, app: ASGIApp, authority: str) -> None:
        self._app, self._authority = app, authority.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the lifespan."""
        if scope["type"] == "http":
            headers = [(name, value) for name, value in scope["headers"] if name not in _REPLACED]
            scope = {**scope, "headers": [*headers, (b"host", self._authority)], RIGHTS: "user"}
        await self._app(scope, receive, send)


class Network:
    """Requests at TCP. `is_person`: whether a request has a session that a person opened in a browser.
    `metrics_token`: '' for none.
    """

    def __init__(
        self,
        app: ASGIApp,
        authorities: Sequence[str],
        token: str,
        is_person: Callable[[Scope], bool],
        metrics_token: str = "",
    ) -> None:
        self._app, self._is_person = app, is_person
        self._token, self._metrics_token = token.encode(), metrics_token.encode()
        self._hosts = frozenset(authority.encode() for authority in authorities)
        self._origins = frozenset(b"http://" + host for host in self._hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        if _values(scope, b"host") not in [[host] for host in self._hosts]:
            await _WRONG_HOST(scope, receive, send)
        elif any(origin not in self._origins for origin in _values(scope, b"origin")):
            await _WRONG_ORIGIN(scope, receive, send)
        elif not self._may_ask(rights := self._find_rights(scope), scope["path"]):
            await (_ONLY_METRICS if rights == "metrics" else _NO_TOKEN)(scope, receive, send)
        elif (refusal := _refuse_more_than_reading(scope)) is not None:
            await refusal(scope, receive, send)
        else:
            if rights in {"token", "person"}:
                scope[ADMITTED] = True
            await self._app({**scope, RIGHTS: rights}, receive, send)

    @staticmethod
    def _may_ask(rights: str, path: str) -> bool:
        if path in OPEN_PATHS:
            return True
        return path == METRICS if rights == "metrics" else rights != "none"

    def _find_rights(self, scope: Scope) -> str:
        given = _bearer_token(scope)
        if _is_same(given, self._token):
            return "token"
        if self._is_person(scope):
            return "person"
        return "metrics" if _is_same(given, self._metrics_token) else "none"


def _refuse_more_than_reading(scope: Scope) -> PlainTextResponse | None:
    """The answer to a request that does not just read a path that can only be read."""
    if scope["path"] not in _READ_ONLY_PATHS:
        return None
    if scope["method"] not in {"GET", "HEAD"}:
        return _NOT_READ
    lengths = _values(scope, b"content-length")
    has_body = any(int(length) for length in lengths) or _values(scope, b"transfer-encoding")  # h11 read the numbers
    return _NO_BODY if has_body else None


def _bearer_token(scope: Scope) -> bytes:
    given = _values(scope, b"authorization")
    scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _is_same(given: bytes, wanted: bytes) -> bool:
    return bool(wanted) and hmac.compare_digest(given, wanted)


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]
