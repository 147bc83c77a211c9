"""Download objects of Git LFS: the batch API on the remote's own host, then each object as a stream.

Theory. The server's answers say where objects are, so they choose requests of this host. Therefore: only https (http if
the remote is); only the remote's origin, and hosts that the operator named; addresses are looked at, and the connection
goes to the address that was looked at; other hosts get no private address, unless the remote has one itself. A
redirect is a new choice under the same rules. Our credential goes to the remote's origin alone, and headers that the
server chose go to the origin that it chose them for.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import SplitResult, urljoin, urlsplit

import requests
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as HTTPTimeout
from urllib3.util.connection import create_connection

from sandbox.credentials import Credential, remove_secret
from sandbox.egress.addresses import is_allowed_address
from sandbox.errors import ErrorCode, SandboxError
from sandbox.forges.deadlines import CONNECTION_CLASSES, DeadlineAdapter
from sandbox.forges.first_answer import FirstAnswerSession
from sandbox.forges.forge import CALL_TIMEOUT_S, CONNECT_TIMEOUT_S
from sandbox.forges.http_session import USER_AGENT, TransientForgeError, retry_read
from sandbox.forges.lfs_answers import POINTERS_HINT, DownloadAction, broken_error, read_batch, refusal
from sandbox.forges.plain_url import PORTS, Origin, find_origin, parse_plain_url
from sandbox.forges.refusals import redact_secret
from sandbox.git.lfs_pointers import PointedFile
from sandbox.git.shutdown import Shutdown

_MEDIA_TYPE = "application/vnd.git-lfs+json"
_BATCH = 50  # objects of one request: their addresses expire
_ANSWER_BYTES = 4 * 1024**2
_REDIRECTS = 3
_CHUNK = 1 << 18
_MOVED = {301, 302, 303, 307, 308}


@dataclass(frozen=True)
class HostRules:
    """How to reach one host: the CA file of its credential, and its proxy, '' for none."""

    ca_file: Path | None = None
    proxy: str = ""


@dataclass(frozen=True)
class LfsServer:
    """`endpoint`: `https://HOST/OWNER/NAME.git/info/lfs`. `credential`: for it alone. `hosts`: further hosts of
    objects, each `HOST` or `HOST:PORT`. `timeout_s`: of each object.
    """

    endpoint: str
    credential: Credential | None
    hosts: frozenset[str]
    rules_of: Callable[[str, int], HostRules]
    timeout_s: float
    shutdown: Shutdown = field(default_factory=Shutdown)


Take = Callable[[bytes], None]
Store = Callable[[PointedFile, Callable[[Take], None]], None]
"""Stores one object: is given what to call with a function that takes its bytes."""


def download(server: LfsServer, wanted: Sequence[PointedFile], store: Store) -> None:
    """Download objects, one after the other, and have each one stored.

    Raises: `auth_failed`, `remote_not_found`, `not_found`, `remote_broken`, `policy_violation` for an address that is
    not allowed, `quota_exceeded`, `network_error`, `timeout`; what `store` raises.
    """
    transfer = _Transfer(server)
    with redact_secret(server.credential), transfer.opened():
        for start in range(0, len(wanted), _BATCH):
            by_id = {file.pointer.oid: file for file in wanted[start : start + _BATCH]}
            for oid, action in transfer.ask(by_id).items():
                retry_read(partial(store, by_id[oid], partial(transfer.receive, action)))


class _Transfer:
    def __init__(self, server: LfsServer) -> None:
        self._server = server
        self._remote = _parse(server.endpoint)
        self._sessions: dict[Origin, requests.Session] = {}
        self._sockets: dict[
            Origin, socket.socket
        ] = {}  # a duplicate of the last connection's, also while an answer ends
        self._lock = threading.Lock()  # of `_sockets`

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Break the connections at shutdown, so that a silent server cannot delay it; close them at the end."""
        try:
            with self._server.shutdown.stop_on_shutdown(self._break):
                yield
        finally:
            for session in self._sessions.values():
                session.close()
            for duplicate in self._sockets.values():
                duplicate.close()

    def _break(self) -> None:
        with self._lock:
            for duplicate in self._sockets.values():
                with suppress(OSError):
                    duplicate.shutdown(socket.SHUT_RDWR)

    def _keep_breakable(self, origin: Origin, found: socket.socket) -> None:
        """Requests go one after the other: the connection before to the same origin is over."""
        duplicate = socket.socket(fileno=os.dup(found.fileno()))
        with self._lock:
            former = self._sockets.pop(origin, None)
            self._sockets[origin] = duplicate
        if former is not None:
            former.close()

    def ask(self, wanted: Mapping[str, PointedFile]) -> Mapping[str, DownloadAction]:
        """The batch API: where these objects are."""
        objects = [{"oid": oid, "size": file.pointer.size} for oid, file in wanted.items()]
        asked = {"operation": "download", "transfers": ["basic"], "hash_algo": "sha256", "objects": objects}
        headers = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE, **self._authorization()}
        url = f"{self._server.endpoint}/objects/batch"

        def once() -> bytes:
            with self._send("POST", url, headers, json.dumps(asked).encode()) as answer:
                self._require_success(answer)
                return _read_bounded(answer)

        return read_batch(retry_read(once), wanted)

    def receive(self, action: DownloadAction, take: Take) -> None:
        """Give the bytes of an object to `take`. A redirect is followed to an allowed host only."""
        url, headers, chosen_for = action.href, dict(action.header), _parse(action.href)
        if find_origin(chosen_for) == find_origin(self._remote) and "authorization" not in map(str.lower, headers):
            headers |= self._authorization()
        for _ in range(_REDIRECTS + 1):
            place = _parse(url)
            self._require_allowed(place)
            with self._send("GET", url, headers if find_origin(place) == find_origin(chosen_for) else {}) as answer:
                if answer.status_code not in _MOVED:
                    self._require_success(answer)
                    for chunk in _read_chunks(answer):
                        take(chunk)
                    return
                url = _join(url, answer.headers.get("location", ""))
        raise broken_error(f"more than {_REDIRECTS} redirects for one object", _show(_parse(url)))

    def _authorization(self) -> dict[str, str]:
        """As for git: never without encryption."""
        credential = self._server.credential
        if self._remote.scheme != "https" or credential is None or not credential.secret.get_secret_value():
            return {}
        pair = f"{credential.username}:{credential.secret.get_secret_value()}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    def _require_allowed(self, place: SplitResult) -> None:
        """Raises: `policy_violation` for a place that neither is the remote's nor was named by the operator."""
        scheme, host, port = find_origin(place)
        if (scheme, host, port) == find_origin(self._remote):
            return
        named = {f"{host}:{port}"} | ({host} if port == PORTS[scheme] else set())
        if not named & self._server.hosts or (scheme == "http" and self._remote.scheme == "https"):
            raise SandboxError(
                ErrorCode.POLICY_VIOLATION,
                f"Objects of Git LFS would come from another host: {_show(place)[:200]}",
                details=f"{self._remote.netloc} says so",
                hint='If that is right, the operator names it: remotes.lfs_hosts = ["HOST"] in the configuration, for '
                f"https. {POINTERS_HINT}",
            )

    def _send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> requests.Response:
        """One request, without redirects. Raises: `network_error`, `timeout`, `policy_violation` for an address."""
        place = _parse(url)
        if self._server.shutdown.is_set:
            raise SandboxError(ErrorCode.TIMEOUT, "The download from Git LFS was stopped")
        try:
            return self._find_session(place).request(
                method,
                url,
                headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity", **headers},
                data=body,
                timeout=(CONNECT_TIMEOUT_S, self._server.timeout_s if body is None else CALL_TIMEOUT_S),
                allow_redirects=False,
                stream=True,
            )
        except (requests.RequestException, HTTPError, OSError) as error:
            raise _network_error(error, str(place.hostname)) from error

    def _require_success(self, answer: requests.Response) -> None:
        if not 200 <= answer.status_code < 300:
            said = remove_secret(next(_read_chunks(answer), b"").decode("utf-8", "replace"), self._server.credential)
            raise refusal(answer.status_code, answer.headers, str(urlsplit(answer.url).hostname), said)

    def _find_session(self, place: SplitResult) -> requests.Session:
        """The session of an origin. Nothing of the environment counts: no proxy, no ~/.netrc, no CA file."""
        origin = find_origin(place)
        if origin not in self._sessions:
            rules = self._server.rules_of(*origin[1:])
            self._sessions[origin] = session = FirstAnswerSession()
            session.proxies = {place.scheme: rules.proxy} if rules.proxy else {}
            session.verify = str(rules.ca_file) if rules.ca_file else True
            session.adapters.clear()
            connect = None if rules.proxy else partial(self._connect, origin)
            session.mount(f"{place.scheme}://", _Adapter(place.scheme, connect))
        return self._sessions[origin]

    def _connect(self, origin: Origin, host: str, port: int, timeout_s: float | None) -> socket.socket:
        """Connect to an address that was looked at. Raises: `policy_violation`; OSError."""
        if (host, port) != origin[1:]:  # two libraries read a URL in two ways
            raise broken_error("it names an address that is none", host[:200])
        remote = find_origin(self._remote)
        addresses = _look_up(host, port)
        may_be_internal = origin == remote or any(not _is_public(address) for address in _look_up(*remote[1:]))
        allowed = [one for one in addresses if is_allowed_address(one, may_be_internal=may_be_internal)]
        if not allowed:
            raise SandboxError(
                ErrorCode.POLICY_VIOLATION,
                f"Objects of Git LFS would come from {host}, which has no public address",
                details=", ".join(addresses[:5]),
                hint=f"Only a remote that itself is in a private network may name such a host. {POINTERS_HINT}",
            )
        found = _connect_to_first(allowed, port, timeout_s)
        self._keep_breakable(origin, found)
        return found


Connect = Callable[[str, int, float | None], socket.socket]


class _Adapter(DeadlineAdapter):
    """Connections of `connect`, None: those of the library, to a proxy."""

    def __init__(self, scheme: str, connect: Connect | None) -> None:
        super().__init__()
        self._class: type[HTTPConnection] = CONNECTION_CLASSES[scheme]
        if connect is not None:
            self._class = _guard(self._class, connect)

    def find_connection_class(self, scheme: str) -> type[HTTPConnection]:
        """See `DeadlineAdapter`."""
        return self._class


def _guard(parent: type[HTTPConnection], connect: Connect) -> type[HTTPConnection]:
    def new_connection(self: HTTPConnection) -> socket.socket:
        timeout_s = self.timeout if isinstance(self.timeout, int | float) else None
        try:
            return connect(self.host, int(self.port), timeout_s)
        except OSError as error:
            raise NewConnectionError(self, str(error)) from error

    return type("_GuardedConnection", (parent,), {"_new_conn": new_connection})


def _connect_to_first(addresses: Sequence[str], port: int, timeout_s: float | None) -> socket.socket:
    """Raises: OSError of the last one."""
    for address in addresses[:-1]:
        with suppress(OSError):
            return create_connection((address, port), timeout_s)
    return create_connection((addresses[-1], port), timeout_s)


def _look_up(host: str, port: int) -> list[str]:
    rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


def _is_public(address: str) -> bool:
    return is_allowed_address(address, may_be_internal=False)


def _parse(url: str) -> SplitResult:
    """Raises: `remote_broken` for a URL that cannot be used, or that two libraries may read in two ways."""
    try:
        return parse_plain_url(url)
    except ValueError as error:
        raise broken_error("it names an address that is none", ascii(url)[:200]) from error


def _join(url: str, location: str) -> str:
    """Where a redirect leads. Raises: `remote_broken`."""
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise broken_error("it redirects to an address that is none", ascii(location)[:200]) from error


def _show(place: SplitResult) -> str:
    """Without the query, which may be a signature."""
    return f"{place.scheme}://{place.netloc}{place.path}"


def _read_chunks(answer: requests.Response) -> Iterator[bytes]:
    """The bytes as they were sent, still packed."""
    try:
        while chunk := answer.raw.read1(_CHUNK, decode_content=False):
            yield chunk
    except (HTTPError, OSError) as error:
        raise _network_error(error, str(urlsplit(answer.url).hostname)) from error


def _read_bounded(answer: requests.Response) -> bytes:
    kept = bytearray()
    for chunk in _read_chunks(answer):
        kept += chunk
        if len(kept) > _ANSWER_BYTES:
            raise broken_error(f"its answer is larger than {_ANSWER_BYTES} bytes", "")
    return bytes(kept)


def _network_error(error: Exception, hostname: str) -> SandboxError:
    details = f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, requests.exceptions.SSLError):
        return SandboxError(
            ErrorCode.NETWORK_ERROR,
            f"The certificate of {hostname} is not trusted",
            details=details,
            hint=f"For a private CA: sandbox credentials set {hostname} --ca-file FILE.",
        )
    slow = isinstance(error, requests.Timeout | TimeoutError | HTTPTimeout)
    return TransientForgeError(
        SandboxError(
            ErrorCode.TIMEOUT if slow else ErrorCode.NETWORK_ERROR,
            f"{hostname} did not send a file of Git LFS in time"
            if slow
            else f"{hostname} did not answer, or broke off",
            details=details,
            hint="Try again later, or raise remotes.timeout_s." if slow else "Check the network, then try again.",
        )
    )
