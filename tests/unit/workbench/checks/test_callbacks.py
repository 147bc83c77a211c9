"""What a caller hears of a step that takes long."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sandbox.checks.cancellation import Cancellation
from sandbox.models import Check, CheckRun
from sandbox.workbench.checks.callbacks import Watch, hold_errors, report_step, share_watch


def test_a_long_step_is_reported_again_and_not_after_its_end() -> None:
    lines: list[str] = []
    twice = threading.Event()

    def report(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            twice.set()

    with report_step(report, "Fetching", every_s=0.01):
        assert twice.wait(10)
    assert lines[:3] == ["Fetching", "Fetching: 0 s so far", "Fetching: 0 s so far"]
    assert not any(thread.name == "step" for thread in threading.enumerate())


def test_the_error_of_a_listener_is_raised_at_the_end_and_once(caplog: pytest.LogCaptureFixture) -> None:
    """It must not end the check (THREATS L08), and must not vanish: that of `announce` does not."""
    heard: list[bytes] = []

    def fail(_stream: str, chunk: bytes) -> None:
        heard.append(chunk)
        raise ValueError("boom")

    steps: list[str] = []

    def run() -> None:
        with hold_errors(fail) as follow:
            assert follow is not None
            follow("stdout", b"1")
            follow("stdout", b"2")
            steps.append("recorded")

    with pytest.raises(ValueError, match="boom"):
        run()
    assert (heard, steps) == ([b"1"], ["recorded"])
    assert "is called no more" in caplog.text


def test_an_error_of_the_check_goes_before_that_of_its_listener() -> None:
    def fail(_stream: str, _chunk: bytes) -> None:
        raise ValueError("boom")

    def run() -> None:
        with hold_errors(fail) as follow:
            assert follow is not None
            follow("stdout", b"1")
            raise KeyError("the check")

    with pytest.raises(KeyError):
        run()
    with hold_errors(None) as nothing:
        assert nothing is None


@pytest.mark.parametrize(
    "error", [BrokenPipeError(32, "Broken pipe"), ValueError("I/O operation on closed file.")], ids=repr
)
def test_a_listener_with_a_closed_stream_ends_no_request(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """As of `| head`. The verdict does not depend on who reads."""
    heard: list[bytes] = []

    def fail(_stream: str, chunk: bytes) -> None:
        heard.append(chunk)
        raise error

    with hold_errors(fail) as follow:
        assert follow is not None
        follow("stdout", b"1")
        follow("stdout", b"2")
    assert (heard, caplog.text) == ([b"1"], "")


def test_a_shared_watch_is_cancelled_by_its_token_or_by_the_request() -> None:
    request = Cancellation()
    with share_watch(Watch(cancelled=request.is_set)) as (shared, cancellation):
        assert not shared.cancelled()
        cancellation.set()
        assert shared.cancelled()
        assert not request.is_set()
    with share_watch(Watch(cancelled=request.is_set)) as (shared, _):
        assert not shared.cancelled()
        request.set()
        assert shared.cancelled()


def test_threads_of_a_shared_watch_announce_one_at_a_time() -> None:
    inside, most = list[str](), list[int]()

    def announce(check: Check, _run: CheckRun | None) -> None:
        inside.append(check.id)
        time.sleep(0.01)
        most.append(len(inside))
        inside.remove(check.id)

    with share_watch(Watch(announce=announce)) as (shared, _), ThreadPoolExecutor(4) as pool:
        for number in range(8):
            pool.submit(shared.announce, Check(id=f"c{number}", label="c", argv=("true",)), None)
    assert most == [1] * 8


def test_a_listener_that_stalls_is_not_entered_by_the_thread_of_the_next_check() -> None:
    entered, goes_on = threading.Event(), threading.Event()
    inside, most = 0, 0

    def follow(_stream: str, chunk: bytes) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if chunk == b"first":
            entered.set()
            assert goes_on.wait(10)
        inside -= 1

    watch = Watch(follow=follow)

    def check(watch: Watch, chunk: bytes) -> threading.Thread:
        with hold_errors(watch.follow) as held:
            assert held is not None
            thread = threading.Thread(target=held, args=("stdout", chunk))
            thread.start()
        return thread

    first = check(watch, b"first")
    assert entered.wait(10)
    second = check(replace(watch, announce=lambda *_: None), b"second")
    second.join(0.05)
    assert second.is_alive()
    goes_on.set()
    for thread in (first, second):
        thread.join(10)
        assert not thread.is_alive()
    assert most == 1
