"""The few calls of a check, over the engine's socket, without the docker SDK: loading that takes longer than a check.

`SocketApi` stands for the SDK's `APIClient` on a unix socket: these methods have its names, its parameters, its answers
and its errors. Every other attribute is that of a real client, which is made, and the SDK loaded, when it is first
used: for images, builds and streams of frames. An engine that is not on this host has the real client from the start.

One connection a request, HTTP/1.0: the body ends with the connection, and threads share no state (docs/adr/0080).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule

if TYPE_CHECKING:
    import docker
    import requests
else:  # loaded for an error, and for what is not here (docs/adr/0080)
    docker = LazyModule("docker")
    requests = LazyModule("requests")

BASE_URL = "http+docker://localhost"
_MAX_BYTES = 32 * 1024**2
_PIECE = 64 * 1024


@dataclass(frozen=True)
class Answer:
    """An answer of the engine, with the names of `requests.Response`."""

    status_code: int
    reason: str
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", errors="replace")

    def json(self) -> Any:
        """Raises: ConnectionError for a body that is no JSON: what answers is not an engine."""
        try:
            return json.loads(self.content)
        except ValueError as error:
            raise ConnectionError(f"the engine's answer is no JSON: {error}") from error


class SocketApi:
    """`timeout`: seconds until the next bytes of an answer. A method raises what the SDK's raises, or OSError."""

    base_url = BASE_URL

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._path = "/" + url.removeprefix("unix://").lstrip("/")
        self.timeout = timeout_s
        self.api_version = ""  # before the first answer: the engine's own
        self._clients: dict[int, docker.APIClient] = {}  # by process id

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._sdk, name)

    @property
    def _sdk(self) -> docker.APIClient:
        """The client of this process. A forked child makes its own: on a kept connection of its parent, each of them
        would read answers to the other's requests.
        """
        made = self._clients.get(os.getpid())
        return self._clients.setdefault(os.getpid(), self._make_client()) if made is None else made

    def _make_client(self) -> docker.APIClient:
        client = docker.APIClient(base_url=self._url, version=self.api_version, timeout=self.timeout)  # type: ignore[arg-type]  # the stubs say int; requests takes fractions
        # Proxies and ~/.netrc do not apply to a unix socket, and looking for them takes a quarter of a request's time.
        client.trust_env = False
        return client

    def close(self) -> None:
        if (client := self._clients.pop(os.getpid(), None)) is not None:
            client.close()

    def version(self, api_version: bool = True) -> dict[str, Any]:
        found = self._get("/version", versioned=api_version)
        self.api_version = self.api_version or str(found["ApiVersion"])
        return found

    def info(self) -> dict[str, Any]:
        return self._get("/info")

    def containers(self, all: bool = False, filters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        wanted = {name: [value] if isinstance(value, str) else list(value) for name, value in (filters or {}).items()}
        query = {"all": int(all), **({"filters": json.dumps(wanted)} if wanted else {})}
        listed: list[dict[str, Any]] = self._send("GET", f"/containers/json?{urlencode(query)}").json()
        return listed

    def inspect_container(self, container: str) -> dict[str, Any]:
        return self._get(f"/containers/{quote(container, safe='')}/json")

    def find(self, kind: str, name: str) -> dict[str, Any] | None:
        """Inspect one of the `containers` or `images`; None if there is none. Not a method of the SDK."""
        answer = self.request("GET", f"/{kind}/{quote(name, safe='/:@' if kind == 'images' else '')}/json")
        return None if answer.status_code == HTTPStatus.NOT_FOUND else _document(self.require_success(answer))

    def create_container_from_config(self, config: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
        target = "/containers/create" + (f"?{urlencode({'name': name})}" if name else "")
        return _document(self._send("POST", target, json.dumps(config).encode()))

    def start(self, container: str) -> None:
        self._send("POST", f"/containers/{quote(container, safe='')}/start")

    def kill(self, container: str, signal: str) -> None:
        self._send("POST", f"/containers/{quote(container, safe='')}/kill?{urlencode({'signal': signal})}")

    def wait(self, container: str, timeout: float | None = None) -> dict[str, Any]:
        answer = self.request("POST", f"/containers/{quote(container, safe='')}/wait", timeout_s=timeout)
        return _document(self.require_success(answer))

    def delete(self, url: str, params: Mapping[str, str], timeout: float) -> Answer:
        """As the SDK's, which is that of a `requests.Session`: the address has `base_url` and the version."""
        target = url.removeprefix(f"{BASE_URL}/v{self.api_version}")
        return self.request("DELETE", f"{target}?{urlencode(params)}", timeout_s=timeout)

    def _get(self, target: str, *, versioned: bool = True) -> dict[str, Any]:
        return _document(self.require_success(self.request("GET", target, versioned=versioned)))

    def _send(self, method: str, target: str, body: bytes = b"") -> Answer:
        return self.require_success(self.request(method, target, body))

    def request(
        self, method: str, target: str, body: bytes = b"", *, timeout_s: float | None = None, versioned: bool = True
    ) -> Answer:
        """Send one request. Raises: `requests.ReadTimeout` when the engine is silent for too long; OSError."""
        version = f"/v{self.api_version}" if versioned and self.api_version else ""
        head = [f"{method} {version}{target} HTTP/1.0", "Host: engine", f"Content-Length: {len(body)}"]
        if body:
            head.append("Content-Type: application/json")
        content = "\r\n".join((*head, "", "")).encode("ascii") + body
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(self.timeout if timeout_s is None else timeout_s)
            try:
                channel.connect(self._path)
                channel.sendall(content)
                return _parse_answer(_read_all(channel))
            except TimeoutError as error:
                raise requests.ReadTimeout(f"{target.partition('?')[0]}: {error}") from error

    def require_success(self, answer: Answer) -> Answer:
        """Raises: the SDK's `APIError`, or `NotFound`, with the engine's message."""
        if answer.status_code < HTTPStatus.MULTIPLE_CHOICES or answer.status_code == HTTPStatus.NOT_MODIFIED:
            return answer
        response = requests.Response()
        response.status_code, response.reason, response._content = answer.status_code, answer.reason, answer.content
        try:
            explanation = str(json.loads(answer.content)["message"])
        except (ValueError, KeyError, TypeError):
            explanation = answer.text[:500]
        kind = docker.errors.NotFound if answer.status_code == HTTPStatus.NOT_FOUND else docker.errors.APIError
        raise kind(f"{answer.status_code}: {explanation}", response=response, explanation=explanation)


def _document(answer: Answer) -> dict[str, Any]:
    """Raises: ConnectionError for an answer that is no object."""
    found = answer.json()
    if not isinstance(found, dict):
        raise ConnectionError("the engine's answer is not an object")
    return found


def _read_all(channel: socket.socket) -> bytes:
    answer = bytearray()
    while piece := channel.recv(_PIECE):
        answer += piece
        if len(answer) > _MAX_BYTES:
            raise ConnectionError("an answer without an end")
    return bytes(answer)


def _parse_answer(answer: bytes) -> Answer:
    """Raises: ConnectionError for what is no HTTP. A chunked body is never sent to HTTP/1.0 (RFC 9112, 6.1)."""
    head, end, body = answer.partition(b"\r\n\r\n")
    protocol, _, rest = head.partition(b"\r\n")[0].partition(b" ")
    status, _, reason = rest.partition(b" ")
    if not end or not protocol.startswith(b"HTTP/1.") or not status.isdigit():
        raise ConnectionError(f"an answer that is no HTTP: {answer[:40]!r}")
    return Answer(int(status), reason.decode("ascii", "replace"), body)
