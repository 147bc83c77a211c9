"""Wishes to stop: tokens, and Ctrl-C turned into a claim."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from sandbox.checks import cancellation
from sandbox.checks.cancellation import Cancellation, any_of, defer_interrupts, stop_when_cancelled
from sandbox.models import Verdict

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A suite in the background of a shell ignores SIGINT: each test has Python's own handlers, as a program has."""
    before = [signal.signal(number, signal.default_int_handler) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


def test_a_cancellation_stays_given() -> None:
    token = Cancellation()
    assert not token.is_set()
    threads = [threading.Thread(target=token.set) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    token.set()
    assert token.is_set()


def test_the_first_reason_that_holds_decides_and_the_others_are_not_asked() -> None:
    asked = []

    def disk() -> Verdict | None:
        asked.append("disk")
        return Verdict.DISK_LIMIT

    token = Cancellation()
    why_stop = any_of(stop_when_cancelled(token.is_set), disk)
    assert why_stop() is Verdict.DISK_LIMIT
    token.set()
    assert why_stop() is Verdict.KILLED
    assert asked == ["disk"]
    assert any_of(lambda: None, lambda: None)() is None


def interrupted_twice(number: signal.Signals, seen: list[bool]) -> None:
    """What the claim says before the signals, between them and after them."""
    with defer_interrupts() as interrupted:
        seen.append(interrupted())
        signal.raise_signal(number)
        seen.append(interrupted())
        signal.raise_signal(number)
        seen.append(interrupted())


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupt_is_a_claim_in_the_body_and_raised_after_it(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two together are one wish. Control: without the block it is raised at once."""
    monkeypatch.setattr(cancellation, "SECOND_SIGNAL_S", 3600.0)
    seen: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted_twice(number, seen)
    assert seen == [False, True, True]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_a_second_interrupt_after_a_while_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "SECOND_SIGNAL_S", 0.0)
    seen: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted_twice(signal.SIGINT, seen)
    assert seen == [False, True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_an_interrupt_the_body_ends_as_it_ends() -> None:
    with defer_interrupts():
        pass
    with pytest.raises(ZeroDivisionError), defer_interrupts():
        _ = 1 // 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_inner_block_has_the_claim_of_the_outermost_which_raises() -> None:
    seen: list[bool] = []

    def nested() -> None:
        with defer_interrupts() as outer:
            with defer_interrupts() as inner:
                signal.raise_signal(signal.SIGINT)
                seen.extend([outer(), inner()])
            seen.append(outer())

    with pytest.raises(KeyboardInterrupt):
        nested()
    assert seen == [True, True, True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_a_program_chose_stays() -> None:
    heard = []

    def own(number: int, _frame: FrameType | None) -> None:
        heard.append(number)

    signal.signal(signal.SIGINT, own)
    with defer_interrupts() as interrupted:
        signal.raise_signal(signal.SIGINT)
        assert not interrupted()
    assert heard == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is own


def test_an_ignored_interrupt_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with defer_interrupts() as interrupted:
        signal.raise_signal(signal.SIGINT)
        assert not interrupted()


def test_other_threads_leave_signals_alone() -> None:
    found = []

    def work() -> None:
        with defer_interrupts() as interrupted:
            found.append((interrupted(), signal.getsignal(signal.SIGINT) is signal.default_int_handler))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert found == [(False, True)]
