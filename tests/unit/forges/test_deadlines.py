"""One deadline for all of an answer, whatever its head is like: a server that writes it as slowly as it likes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
import requests

from sandbox.forges import http_session

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"
_TIMES = 60
HEADS = {
    "a byte now and then": [b"HTTP/1.1 200 OK\r\nX-Slow: ", *[b"x"] * _TIMES, b"\r\nContent-Length: 2\r\n\r\n[]"],
    "not yet, and not yet": [*[b"HTTP/1.1 100 Continue\r\n\r\n"] * _TIMES, _ANSWER],
}


@contextlib.contextmanager
def saying(pieces: list[bytes], pause_s: float) -> Iterator[str]:
    """A server for one request, which says these with so long a pause between them: its URL."""
    ended = threading.Event()

    def speak() -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as connection:
            connection.recv(65536)
            for piece in pieces:
                connection.sendall(piece)
                if ended.wait(pause_s):
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        speaker = threading.Thread(target=speak)
        speaker.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            ended.set()
            speaker.join()


@pytest.mark.parametrize("pieces", HEADS.values(), ids=HEADS)
def test_a_head_that_does_not_end_is_given_up(pieces: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    with saying(pieces, 0.0) as url, contextlib.closing(http_session.build_session(None)) as session:
        assert session.get(url).text == "[]"  # the control: at once it is an answer
    monkeypatch.setattr(http_session, "CALL_TIMEOUT_S", 0.3)
    session = http_session.build_session(None)
    with saying(pieces, 0.1) as url, contextlib.closing(session), pytest.raises(requests.ReadTimeout):
        session.get(url)


@pytest.mark.parametrize("charset", ["punycode", "idna", "utf-16", "none-such"])
def test_an_answer_is_utf_8_whatever_it_calls_itself(charset: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset={charset}\r\nContent-Length: 4\r\n\r\n"
    with (
        saying([head.encode() + "a-é".encode()], 0.0) as url,
        contextlib.closing(http_session.build_session(None)) as session,
    ):
        assert session.get(url).text == "a-é"


@pytest.mark.slow
def test_a_server_that_does_not_shake_hands_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_session, "CONNECT_TIMEOUT_S", 0.6)
    session = http_session.build_session(None)
    with saying([b""], 60.0) as url, contextlib.closing(session), pytest.raises(requests.Timeout) as caught:
        session.get(url.replace("http:", "https:"))
    told = http_session.network_error(caught.value, "git.example.com")
    assert "1 s to connect" in told.details, "not what nobody waited for"
