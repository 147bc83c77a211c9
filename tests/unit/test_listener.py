"""A listener that stalls or fails: what it hears, and that its thread ends."""

from __future__ import annotations

import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from sandbox.checks.output import OutputForwarder
from sandbox.git import progress
from sandbox.git.progress import ProgressForwarder


def follow_progress(hear: Callable[[], None]) -> tuple[AbstractContextManager[Any], Callable[[], None]]:
    forwarder = ProgressForwarder(lambda _line: hear())
    return forwarder, lambda: forwarder.forward("line")


def follow_output(hear: Callable[[], None]) -> tuple[AbstractContextManager[Any], Callable[[], None]]:
    forwarder = OutputForwarder(lambda _name, _chunk: hear())
    return forwarder, lambda: forwarder.forward("stdout", b"chunk")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("sandbox.git.progress._LAST_LINES_S", 0.05)
    monkeypatch.setattr("sandbox.checks.output._LAST_WORDS_S", 0.05)
    return iter([None])


@pytest.mark.parametrize("more", [0, 1000], ids=["one", "more-than-fit"])
@pytest.mark.parametrize("follow", [follow_progress, follow_output], ids=["progress", "follow"])
def test_the_thread_of_a_listener_that_stalled_ends_once_it_goes_on(
    follow: Callable[[Callable[[], None]], tuple[AbstractContextManager[Any], Callable[[], None]]], more: int
) -> None:
    """Else a process that serves for long keeps one thread for each command of git. What was queued is passed on."""
    stalled, goes_on = threading.Event(), threading.Event()
    heard, threads = list[None](), list[threading.Thread]()

    def hear() -> None:
        threads[:] = [threading.current_thread()]
        stalled.set()
        assert goes_on.wait(60)
        heard.append(None)

    forwarder, send = follow(hear)
    with forwarder:
        send()
        assert stalled.wait(60)
        for _ in range(more):
            send()
    goes_on.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert min(more, 64) < len(heard) <= 1 + more


def write_closed(stream: Any, content: bytes | str) -> Exception:
    stream.close()
    with pytest.raises(ValueError, match="closed") as caught:
        stream.write(content)
    return caught.value


CLOSED = [
    BrokenPipeError(errno.EPIPE, "Broken pipe"),
    ConnectionResetError(errno.ECONNRESET, "reset"),
    write_closed(io.StringIO(), ""),
    write_closed(io.TextIOWrapper(io.BytesIO()), ""),
    write_closed(io.BytesIO(), b""),
    write_closed(io.BufferedWriter(io.FileIO(os.devnull, "wb")), b""),
    write_closed(io.FileIO(os.devnull, "wb"), b""),
]


@pytest.mark.parametrize("error", CLOSED, ids=repr)
def test_a_listener_with_a_closed_stream_is_silently_called_no_more(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    assert listen(error) == 1
    assert caplog.text == ""


@pytest.mark.parametrize(
    "error",
    [ValueError("closed"), OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "a bad disk"), KeyError("a bug")],
    ids=repr,
)
def test_another_error_of_a_listener_is_logged(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    assert listen(error) == 1
    assert caplog.text.count("the listener 'progress' failed and is called no more") == 1


def listen(error: BaseException) -> int:
    calls: list[str] = []

    def hear(line: str) -> None:
        calls.append(line)
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "_LAST_LINES_S", 60.0)  # until the thread has logged the error, on a busy machine too
        with ProgressForwarder(hear) as forwarder:
            for _ in range(3):
                forwarder.forward("line")
    return len(calls)
