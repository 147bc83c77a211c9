"""Which engine is asked, and what is said when none answers."""

from __future__ import annotations

import errno
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker.errors
import pytest
import requests

from devtools.host_speed import slowness
from sandbox.engine.connection import connect, how_to_start_engine
from sandbox.engine.docker_api import translate_errors
from sandbox.engine.endpoint import Endpoint, candidate_endpoints
from sandbox.engine.products import UNSUPPORTED_HINT
from sandbox.errors import ErrorCode
from tests.unit.conftest import refused


def context(folder: Path, name: str, document: object) -> Path:
    """Write a docker context; returns the folder of its certificates."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    meta = folder / "contexts" / "meta" / digest
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(json.dumps(document))
    return folder / "contexts" / "tls" / digest / "docker"


def host(url: str) -> dict[str, Any]:
    return {"Name": "x", "Endpoints": {"docker": {"Host": url}}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A docker configuration with two contexts, of which `current` is the current one."""
    made = tmp_path / ".docker"
    context(made, "current", host("unix:///current.sock"))
    context(made, "other", host("tcp://other:2376"))
    (made / "config.json").write_text(json.dumps({"currentContext": "current"}))
    return made


CURRENT = [Endpoint("unix:///current.sock", "context 'current'")]
RESOLVED: dict[str, tuple[str, dict[str, str], list[Endpoint]]] = {
    "configured": ("unix:///mine.sock", {"DOCKER_HOST": "tcp://x"}, [Endpoint("unix:///mine.sock", "engine.host")]),
    "docker-host": (
        "",
        {"DOCKER_HOST": "tcp://x:1", "DOCKER_CONTEXT": "other"},
        [Endpoint("tcp://x:1", "DOCKER_HOST")],
    ),
    "docker-context": ("", {"DOCKER_CONTEXT": "other"}, [Endpoint("tcp://other:2376", "context 'other'")]),
    "current-context": ("", {}, CURRENT),
    "empty-variables": ("", {"DOCKER_HOST": "", "DOCKER_CONTEXT": ""}, CURRENT),
}


@pytest.mark.parametrize(("configured", "environ", "expected"), RESOLVED.values(), ids=RESOLVED)
def test_the_engine_is_found_as_the_docker_command_does(
    configured: str, environ: dict[str, str], expected: list[Endpoint], folder: Path
) -> None:
    assert candidate_endpoints(configured, {"HOME": str(folder.parent), **environ}) == expected
    assert candidate_endpoints(configured, {"HOME": "/none", "DOCKER_CONFIG": str(folder), **environ}) == expected


def test_tls_is_used_where_it_is_asked_for(folder: Path) -> None:
    home = {"HOME": str(folder.parent), "DOCKER_HOST": "tcp://x:2376", "DOCKER_TLS_VERIFY": "1"}
    assert candidate_endpoints("", home)[0].tls_folder == folder
    assert candidate_endpoints("", {**home, "DOCKER_CERT_PATH": "/certs"})[0].tls_folder == Path("/certs")
    certificates = context(folder, "secure", host("tcp://secure:2376"))
    certificates.mkdir(parents=True)
    assert (
        candidate_endpoints("", {"HOME": str(folder.parent), "DOCKER_CONTEXT": "secure"})[0].tls_folder == certificates
    )


@pytest.mark.parametrize(
    "document", [None, [], {}, {"Endpoints": 1}, {"Endpoints": {"docker": {}}}, "x"], ids=lambda d: json.dumps(d)
)
def test_a_context_that_cannot_be_read_is_no_silent_fallback(document: object, tmp_path: Path) -> None:
    context(tmp_path / ".docker", "broken", document)
    for name in ("broken", "missing", "../../x"):
        with refused(ErrorCode.ENGINE_UNAVAILABLE) as caught:
            candidate_endpoints("", {"HOME": str(tmp_path), "DOCKER_CONTEXT": name})
        assert name in caught.value.brief


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"currentContext": ""}', '{"currentContext": "default"}'])
def test_a_configuration_without_a_context_means_the_default_sockets(text: str, tmp_path: Path) -> None:
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text(text)
    found = candidate_endpoints("", {"HOME": str(tmp_path)})
    assert {e.source for e in found} == {"default socket"}


def test_the_default_sockets_are_those_that_are_there_or_else_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/run/user/1"}
    every = ["/var/run/docker.sock", "/run/user/1/docker.sock", f"{tmp_path}/.docker/run/docker.sock"]
    monkeypatch.setattr(Path, "is_socket", lambda _path: False)
    assert [e.url for e in candidate_endpoints("", environ)] == [f"unix://{s}" for s in every]
    monkeypatch.setattr(Path, "is_socket", lambda path: str(path) == every[2])
    monkeypatch.setattr("sandbox.engine.endpoint.os.access", lambda *_: True)
    assert [e.url for e in candidate_endpoints("", environ)] == [f"unix://{every[2]}"]


def test_podmans_sockets_are_tried_where_docker_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped Docker keeps its socket: another engine, without its images, is no silent fallback."""
    environ = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/run/user/1"}
    there = {"/run/podman/podman.sock", "/run/user/1/podman/podman.sock"}
    monkeypatch.setattr(Path, "is_socket", lambda path: str(path) in there)
    monkeypatch.setattr("sandbox.engine.endpoint.os.access", lambda path, _mode: "/run/user" in str(path))
    assert [e.url for e in candidate_endpoints("", environ)] == ["unix:///run/user/1/podman/podman.sock"]
    monkeypatch.setattr("sandbox.engine.endpoint.os.access", lambda *_: True)
    assert {e.url for e in candidate_endpoints("", environ)} == {f"unix://{path}" for path in there}
    there.add("/var/run/docker.sock")
    assert [e.url for e in candidate_endpoints("", environ)] == ["unix:///var/run/docker.sock"]
    monkeypatch.setattr("sandbox.engine.endpoint.os.access", lambda path, _mode: str(path).endswith("podman.sock"))
    assert "unix:///var/run/docker.sock" in {e.url for e in candidate_endpoints("", environ)}, "the user may not use it"
    assert not [e for e in candidate_endpoints("", environ) if e.url.endswith("podman.sock")]


# --- when none answers


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


DEAD = {
    "no-socket": ("unix://{tmp}/none.sock", "No such file or directory"),
    "no-socket-file": ("unix://{tmp}/plain", "Connection refused"),
    "directory": ("unix://{tmp}", "Connection refused"),
    "closed-port": ("tcp://127.0.0.1:9", "Connection refused"),
    "no-such-name": ("tcp://name.invalid:2375", "Failed to resolve"),
    "no-port": ("tcp://127.0.0.1", "the port is missing"),
    "no-host": ("tcp://", "the host is missing"),
    "no-path": ("unix://", "the path of the socket is missing"),
    "unknown-scheme": ("ftp://127.0.0.1:9", "ftp:// is not supported"),
    "ssh": ("ssh://127.0.0.1:9", "ssh:// is not supported"),
    "pipe": ("npipe:////./pipe/docker_engine", "npipe:// is not supported"),
    "words": ("not a url", "the port is missing"),
    "bad-port": ("tcp://127.0.0.1:x", "the host or the port is malformed"),
    "bad-address": ("tcp://[::1", "the host or the port is malformed"),
}


@pytest.mark.usefixtures("engine_client_allowed")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(("url", "reason"), DEAD.values(), ids=DEAD)
def test_an_engine_that_is_not_there_is_engine_unavailable_in_words(
    url: str, reason: str, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "plain").write_bytes(b"")
    url = url.format(tmp=tmp_path)
    started = time.monotonic()
    with refused(ErrorCode.ENGINE_UNAVAILABLE) as caught:
        connect(url, environ, 60.0)
    assert time.monotonic() - started < 2 * slowness()
    assert caught.value.details == f"{url} (engine.host): {reason}"
    is_malformed = "not valid" in caught.value.brief
    assert ("tcp://host:port" if is_malformed else "systemctl start docker") in caught.value.hint


@pytest.mark.usefixtures("engine_client_allowed")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_all_default_sockets_that_were_tried_are_named(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.engine.endpoint.Path.is_socket", lambda _path: False)
    monkeypatch.setattr(
        "sandbox.engine.connection.candidate_endpoints", lambda *_: [Endpoint(f"unix:///no/{n}", "s") for n in "ab"]
    )
    with refused(ErrorCode.ENGINE_UNAVAILABLE) as caught:
        connect("", environ, 60.0)
    assert [line.split()[0] for line in caught.value.details.splitlines()] == ["unix:///no/a", "unix:///no/b"]


def test_a_socket_that_may_not_be_used_is_told_apart(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: one that is not there has to be started, above."""

    def forbidden(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("sandbox.engine.connection._connect", forbidden)
    with refused(ErrorCode.ENGINE_UNAVAILABLE) as caught:
        connect("unix:///run/docker.sock", environ, 60.0)
    assert "group" in caught.value.hint
    assert "systemctl" not in caught.value.hint


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """A TCP server that sends `answer` to every request, or never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        stop = threading.Event()
        held: list[socket.socket] = []

        def serve() -> None:
            while not stop.is_set():
                try:
                    connection = server.accept()[0]
                except TimeoutError:
                    continue
                held.append(connection)
                if answer is not None:
                    connection.recv(65536)
                    connection.sendall(answer)
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        finally:
            stop.set()
            thread.join()
            for connection in held:
                connection.close()


def response(body: bytes, status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (status, len(body)) + body


@pytest.mark.usefixtures("engine_client_allowed")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.slow
def test_l20_an_engine_that_never_answers_is_given_up_after_the_configured_time(environ: dict[str, str]) -> None:
    started = time.monotonic()
    with listening(None) as url, refused(ErrorCode.ENGINE_UNAVAILABLE) as caught:
        connect(url, environ, 2.5)
    assert 2.5 <= time.monotonic() - started < 4.5 * slowness()
    assert "timed out" in caught.value.details
    assert "within 2.5 s" in caught.value.brief
    assert "Start it" not in caught.value.hint


@pytest.mark.usefixtures("engine_client_allowed")
def test_l20_where_nothing_listens_it_is_given_up_within_two_seconds(environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    started = time.monotonic()
    with refused(ErrorCode.ENGINE_UNAVAILABLE) as caught:
        connect(url, environ, 60.0)
    assert time.monotonic() - started < 2 * slowness()
    assert "Start it" in caught.value.hint


@pytest.mark.usefixtures("engine_client_allowed")
def test_l20_an_address_that_takes_no_connection_does_not_count_as_a_slow_engine(environ: dict[str, str]) -> None:
    started = time.monotonic()
    with socket.socket() as full:  # its queue of one is full: further connections are not answered
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        with refused(ErrorCode.ENGINE_UNAVAILABLE) as caught:
            connect(f"tcp://127.0.0.1:{full.getsockname()[1]}", environ, 60.0)
        for each in waiting:
            each.close()
    assert time.monotonic() - started < 5 * slowness()
    assert caught.value.brief == "No container engine answers"


@pytest.mark.parametrize(("checkout", "named"), [(True, True), (False, False)], ids=["checkout", "wheel"])
def test_make_is_advised_in_a_checkout_only(monkeypatch: pytest.MonkeyPatch, checkout: bool, named: bool) -> None:
    monkeypatch.setattr("sandbox.engine.connection.is_checkout", lambda: checkout)
    assert ("make engine" in how_to_start_engine()) is named


NOT_AN_ENGINE = {
    "html": response(b"<html>"),
    "error": response(b"{}", b"500 Internal Server Error"),
    "not-found": response(b'{"message": "x"}', b"404 Not Found"),
    "no-http": b"SSH-2.0-OpenSSH\r\n",
    "nothing": b"",
    "empty-object": response(b"{}"),
    "list": response(b"[]"),
    "null": response(b"null"),
}


@pytest.mark.usefixtures("engine_client_allowed")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("answer", NOT_AN_ENGINE.values(), ids=NOT_AN_ENGINE)
def test_something_else_at_the_address_is_engine_unavailable(answer: bytes, environ: dict[str, str]) -> None:
    with listening(answer) as url, refused(ErrorCode.ENGINE_UNAVAILABLE):
        connect(url, environ, 60.0)


@pytest.mark.usefixtures("engine_client_allowed")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_an_engine_that_does_not_tell_its_version_is_engine_unavailable(environ: dict[str, str]) -> None:
    with listening(response(b'{"ApiVersion": "1.41"}')) as url, refused(ErrorCode.ENGINE_UNAVAILABLE):
        connect(url, environ, 60.0)


@pytest.mark.usefixtures("engine_client_allowed")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_an_engine_that_answers_is_used_with_the_configured_timeout(environ: dict[str, str]) -> None:
    with listening(response(b'{"Version": "20.10.24", "ApiVersion": "1.41"}')) as url:
        engine = connect(url, environ, 42.5)
        engine.close()
    assert (engine.version, engine.api.timeout, engine.is_local) == ("20.10.24", 42.5, False)


PODMAN = (Path(__file__).parents[2] / "data" / "podman-4.3.1" / "version.json").read_bytes()


@pytest.mark.usefixtures("engine_client_allowed")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_s15_podman_is_refused_by_name_when_it_is_connected(environ: dict[str, str]) -> None:
    """Control: the same answer without that component is an engine."""
    with listening(response(PODMAN)) as url, refused(ErrorCode.ENGINE_UNAVAILABLE) as caught:
        connect(url, environ, 60.0)
    assert caught.value.brief == "The container engine is Podman 4.3.1, which is not supported"
    assert caught.value.details == f"{url} (engine.host): Podman 4.3.1 is not supported"
    assert caught.value.hint == UNSUPPORTED_HINT
    with listening(response(PODMAN.replace(b"Podman Engine", b"Engine"))) as url:
        connect(url, environ, 60.0).close()


@pytest.mark.usefixtures("engine_client_allowed")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_s15_another_engine_beside_podman_is_used(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    answers = (PODMAN, b'{"Version": "20.10.24", "ApiVersion": "1.41"}')
    with listening(response(answers[0])) as first, listening(response(answers[1])) as second:
        found = [Endpoint(first, "default socket"), Endpoint(second, "default socket")]
        monkeypatch.setattr("sandbox.engine.connection.candidate_endpoints", lambda *_: found)
        engine = connect("", environ, 60.0)
        engine.close()
    assert engine.endpoint.url == second


def test_the_guard_of_this_suite_holds(environ: dict[str, str]) -> None:
    with pytest.raises(AssertionError, match="reached for the container engine"):
        connect("tcp://127.0.0.1:1", environ, 1.0)


# --- the engine's errors


def api_error(kind: type[docker.errors.APIError], status: int) -> docker.errors.APIError:
    answer = requests.Response()
    answer.status_code = status
    return kind("message", response=answer, explanation="the engine's words")


TRANSLATED: dict[str, tuple[Callable[[], Exception], ErrorCode]] = {
    "not-found": (lambda: api_error(docker.errors.NotFound, 404), ErrorCode.INTERNAL),
    "conflict": (lambda: api_error(docker.errors.APIError, 409), ErrorCode.INTERNAL),
    "server-error": (lambda: api_error(docker.errors.APIError, 500), ErrorCode.INTERNAL),
    "sdk": (lambda: docker.errors.DockerException("x"), ErrorCode.INTERNAL),
    "read-timeout": (lambda: requests.ReadTimeout("x"), ErrorCode.TIMEOUT),
    "gone": (lambda: requests.ConnectionError("x"), ErrorCode.ENGINE_UNAVAILABLE),
    "broken-pipe": (lambda: BrokenPipeError("x"), ErrorCode.ENGINE_UNAVAILABLE),
}


@pytest.mark.parametrize(("make", "code"), TRANSLATED.values(), ids=TRANSLATED)
def test_an_error_of_the_engine_says_what_we_tried(make: Callable[[], Exception], code: ErrorCode) -> None:
    error = make()
    with refused(code) as caught, translate_errors("count the sheep"):
        raise error
    assert "count the sheep" in caught.value.brief
    assert caught.value.__cause__ is error


def test_a_defect_of_ours_is_not_blamed_on_the_engine() -> None:
    with pytest.raises(ZeroDivisionError), translate_errors("divide"):
        raise ZeroDivisionError
