"""A forge on a free port of the loopback: records what it is sent, answers by script or rules, validates both."""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

import trustme

from devtools.forges.exchange import Answer, Request
from devtools.forges.faults import Spoil
from devtools.forges.githttp import GitHttp

_CHUNK = 64 * 1024
_PACE_S = 0.02  # between the bytes of an answer that dribbles


class Rules(Protocol):
    """What a forge does. `prefixes`: the paths under which its API is served, longest first."""

    prefixes: tuple[str, ...]

    def answer(self, request: Request) -> Answer: ...

    def misasked(self, request: Request) -> list[str]: ...

    def misanswered(self, request: Request, answer: Answer) -> list[str]: ...


@dataclass
class _Turn:
    method: str
    path: re.Pattern[str]
    steps: list[Answer | Spoil]
    forever: bool


@dataclass
class StandIn:
    """`url`: scheme and authority. `requests`: all that came. `problems`: what of it and of the answers did not fit.

    `git`: the repository over http on the same host, if any.
    """

    rules: Rules
    token: str = ""
    git: GitHttp | None = None
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    _turns: list[_Turn] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on(self, method: str, path: str, *steps: Answer | Spoil, forever: bool = False) -> None:
        """Answer the next requests to `path` (a regular expression for all of it, below the API's root) with these.

        A step that is a function spoils the answer that would have come. `forever`: the last one stays.
        """
        with self._lock:
            self._turns.append(_Turn(method, re.compile(path), list(steps), forever))

    @property
    def api_url(self) -> str:
        """The root of the API: of an own server, since github.com has an own host for it."""
        return f"{self.url}{self.rules.prefixes[0]}"

    def answer(self, request: Request) -> Answer:
        """One at a time. A request that does not fit is refused before the rules see it."""
        if self.git and self.git.serves(request):
            self.requests.append(request)
            return self.git.answer(request)
        with self._lock:
            self.requests.append(request)
            misasked = self.rules.misasked(request)
            self._tell(request, misasked)
            step = self._next(request)
            if isinstance(step, Answer):
                given = step
            elif misasked:
                return Answer(400, {"message": "; ".join(misasked)})
            else:
                given = self.rules.answer(request)
                given = step(given) if step else given
            if given.checked:
                self._tell(request, self.rules.misanswered(request, given))
        return given

    def _tell(self, request: Request, problems: list[str]) -> None:
        self.problems += [f"{request.method} {request.path}: {problem}" for problem in problems]

    def count(self, method: str, path: str) -> int:
        """How many requests came to `path`, a regular expression."""
        return sum(r.method == method and bool(re.fullmatch(path, r.path)) for r in self.requests)

    def stray_tokens(self, secret: str = "") -> list[str]:
        """Requests that carried the secret (else: the stand-in's token) anywhere but in the header made for it."""
        said = ((r, r.carries(secret or self.token)) for r in self.requests)
        return [f"{r.method} {r.path}: {', '.join(places)}" for r, places in said if places]

    def saw(self, secret: str) -> bool:
        """Whether any request carried it, anywhere: for a host that must never see it."""
        return any(r.carries(secret) or secret in str(r.headers) for r in self.requests)

    def _next(self, request: Request) -> Answer | Spoil | None:
        for turn in self._turns:
            if turn.steps and turn.method == request.method and turn.path.fullmatch(request.path):
                return turn.steps[0] if turn.forever and len(turn.steps) == 1 else turn.steps.pop(0)
        return None


class _Handler(BaseHTTPRequestHandler):
    stand_in: StandIn
    scheme: str
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms behind its headers for the client to acknowledge them

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def do_GET(self) -> None:
        request = self._request()
        answer = self.stand_in.answer(request)
        if answer.hangs_up:
            self.close_connection = True
        else:
            self._send(request, answer)

    do_POST = do_PATCH = do_PUT = do_DELETE = do_HEAD = do_GET

    def _request(self) -> Request:
        target, _, raw_query = self.path.partition("?")
        prefix = next((p for p in self.stand_in.rules.prefixes if target.startswith(f"{p}/")), "")
        body = self._chunks() if self.headers.get("Transfer-Encoding") == "chunked" else self._sized()
        headers = {name.lower(): value for name, value in self.headers.items()}
        base_url = f"{self.scheme}://{headers.get('host', '')}{prefix}"
        return Request(self.command, target.removeprefix(prefix), raw_query, headers, body, base_url)

    def _sized(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, request: Request, answer: Answer) -> None:
        etag = f'W/"{sha256(answer.content).hexdigest()}"'
        if answer.status == 200 and request.method == "GET" and request.header("If-None-Match") == etag:
            answer = replace(answer, status=304, body=None)
        headers = {"Content-Type": f"{answer.content_type}; charset=utf-8", "ETag": etag, **answer.headers}
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        if answer.status not in {204, 304}:
            self.send_header("Content-Length", str(len(answer.content) + answer.filler_bytes))
        self.end_headers()
        try:
            self._send_body(answer)
        except OSError:  # the client has had enough
            self.close_connection = True

    def _send_body(self, answer: Answer) -> None:
        content = answer.content
        if answer.cut_after is not None:
            content = content[: answer.cut_after]
            self.close_connection = True
        if answer.dribbles or answer.stalls:
            self._send_slowly(content, answer)
            return
        self.wfile.write(content)
        for _ in range(answer.filler_bytes // _CHUNK):
            self.wfile.write(b" " * _CHUNK)
        self.wfile.write(b" " * (answer.filler_bytes % _CHUNK))

    def _send_slowly(self, content: bytes, answer: Answer) -> None:
        ended = self.stand_in.ended
        if answer.stalls:
            self.wfile.write(content[: len(content) // 2])
            ended.wait()
            self.close_connection = True
            return
        for position in range(len(content)):
            self.wfile.write(content[position : position + 1])
            if ended.wait(_PACE_S):
                return


@contextmanager
def serving(stand_in: StandIn, authority: trustme.CA | None = None) -> Iterator[None]:
    """Serve on 127.0.0.1, over https with an authority; sets `url`."""
    scheme = "https" if authority else "http"
    handler = type("Handler", (_Handler,), {"stand_in": stand_in, "scheme": scheme})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if authority:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    stand_in.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stand_in.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


class Elsewhere:
    """Another host: it answers whatever it is asked with the same bytes, and is nobody's to validate."""

    prefixes: tuple[str, ...] = ()

    def __init__(self, content: Callable[[Request], bytes] = lambda _: b"{}") -> None:
        self.content = content

    def answer(self, request: Request) -> Answer:
        return Answer(200, self.content(request), {"Content-Type": "text/plain"})

    def misasked(self, request: Request) -> list[str]:
        return []

    def misanswered(self, request: Request, answer: Answer) -> list[str]:
        return []
