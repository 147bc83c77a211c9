"""THREATS S116: a web page, a rebound name or a process without the token asks the HTTP server of `sandbox serve`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.loopback_http import serve_http
from sandbox.attack.harness.outcomes import GotThrough, Void
from sandbox.attack.harness.scene import Scene, require_equal, require_hit
from sandbox.attack.harness.start_program import build_program

PATHS = ("/", "/metrics", "/mcp", "/api/v1/openapi.json", "/api/v1/events", "/unknown")
OPEN_PATH = "/metrics"
_START_S, _STOP_S, _ASK_S = 60.0, 30.0, 20.0
_REFUSED = {401, 403, 421}
_REBOUND, _PAGE = "attacker.example", "http://attacker.example"


def _ask(port: int, path: str, headers: Mapping[str, str]) -> int:
    """The status of a request with these headers, `Host` included, sent to loopback as a browser or a process does."""
    connection = HTTPConnection("127.0.0.1", port, timeout=_ASK_S)
    try:
        connection.putrequest("GET", path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


def _plain_server_answers(scene: Scene) -> str:
    del scene
    with serve_http(lambda _: b"{}") as port:
        seen = [_ask(port, OPEN_PATH, headers) for headers in ({"Host": _REBOUND}, {"Origin": _PAGE}, {})]
    require_hit(seen == [200, 200, 200], f"a plain server answered {seen}")
    return "a plain server on loopback answered a rebound name, a page of another origin and a request without a token"


@contextmanager
def _serving(scene: Scene) -> Iterator[int]:
    """`sandbox serve` on the scene's home, with a free port on loopback; yields the port. Raises: `Void`."""
    log = scene.root / "serve.log"
    words = ["--home", str(scene.home), "serve", "--http", "127.0.0.1:0"]
    with log.open("wb") as stream:
        process = subprocess.Popen(  # noqa: S603 - this sandbox, as it is installed
            [sys.executable, "-I", "-c", build_program(), *words],
            cwd=scene.root,
            env=scene.build_environment(),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
    try:
        yield _wait_for_port(scene, process)
    except Void as error:
        raise Void(f"{error}: {log.read_text(errors='replace')[-300:]}") from error
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_port(scene: Scene, process: subprocess.Popen[bytes]) -> int:
    ends_at = time.monotonic() + _START_S
    while time.monotonic() < ends_at and process.poll() is None:
        time.sleep(0.1)
        try:
            said = json.loads((scene.home / "serve" / "lock").read_text())
            port = int(said["url"].rpartition(":")[2])
            if said["pid"] == process.pid and _ask(port, "/healthz", {}) == 200:
                return port
        except (OSError, ValueError, LookupError, HTTPException):
            continue  # not yet
    raise Void("`sandbox serve` did not start")


def _server_asks_for_all(scene: Scene) -> str:
    with _serving(scene) as port:
        token = (scene.home / "mcp-token").read_text()
        right = {"Authorization": f"Bearer {token}"}
        require_equal(_ask(port, OPEN_PATH, right), 200, "the answer to our own token")
        wrong: tuple[Mapping[str, str], ...] = (
            {},
            {"Authorization": f"Bearer {'0' * len(token)}"},
            {**right, "Host": f"{_REBOUND}:{port}"},
            {**right, "Host": "127.0.0.1"},
            {**right, "Origin": _PAGE},
            {**right, "Origin": "null"},
        )
        for path in PATHS:
            for headers in wrong:
                if (status := _ask(port, path, headers)) not in _REFUSED:
                    names = ", ".join(sorted(headers)) or "none"
                    raise GotThrough(f"{path} answered {status} to a request with these headers: {names}")
    return (
        f"{len(PATHS) * len(wrong)} requests without token, host or origin of ours were refused, one with them answered"
    )


ENTRIES = (
    AttackEntry(
        "S116", "pages, rebound names and strangers at the HTTP server", "serve",
        _plain_server_answers, _server_asks_for_all, scene="bare",
    ),
)  # fmt: skip
