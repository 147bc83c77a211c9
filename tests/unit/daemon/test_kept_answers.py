"""Answers that are kept: who asks, who waits, and who gets the one before."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandbox.daemon import kept_answers
from sandbox.daemon.kept_answers import KeptAnswer

PATIENCE_S = 60


class Question:
    """Answers with the number of times it was asked, when it is let go."""

    def __init__(self) -> None:
        self.asked, self._begun, self._go = 0, threading.Semaphore(0), threading.Event()

    def __call__(self) -> int:
        self.asked += 1
        found = self.asked
        self._begun.release()
        assert self._go.wait(PATIENCE_S)
        return found

    def wait_until_asked(self) -> None:
        assert self._begun.acquire(timeout=PATIENCE_S)

    def answer(self) -> None:
        self._go.set()


def test_the_answer_before_is_handed_out_while_a_new_one_is_made() -> None:
    kept, slow = KeptAnswer[int](), Question()
    assert kept.get(lambda: -1).value == -1
    kept.forget()
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(kept.get, slow)
        slow.wait_until_asked()
        assert pool.submit(kept.get, slow).result(PATIENCE_S).value == -1
        slow.answer()
        assert asking.result(PATIENCE_S).value == 1
    assert (kept.get(slow).value, slow.asked) == (1, 1)


def test_callers_that_ask_at_the_same_time_wait_for_the_first_answer() -> None:
    kept, slow = KeptAnswer[int](), Question()
    with ThreadPoolExecutor() as pool:
        asking = [pool.submit(kept.get, slow) for _ in range(3)]
        slow.wait_until_asked()
        slow.answer()
        assert [one.result(PATIENCE_S).value for one in asking] == [1, 1, 1]


def test_what_was_found_before_it_was_forgotten_is_not_kept() -> None:
    """The one who forgets asks anew, also while another still asks."""
    kept, old, new = KeptAnswer[int](), Question(), Question()
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(kept.get, old)
        old.wait_until_asked()
        kept.forget()
        asking_anew = pool.submit(kept.get, new)
        new.wait_until_asked()
        new.answer()
        assert asking_anew.result(PATIENCE_S).value == 1
        at = kept.get(new).at
        old.answer()
        assert asking.result(PATIENCE_S).value == 1
    assert (kept.get(new).at, new.asked) == (at, 1)


def test_an_error_is_not_kept_and_the_next_caller_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, question = KeptAnswer[int](), Question()
    question.answer()
    with pytest.raises(ZeroDivisionError):
        kept.get(lambda: 1 // 0)
    assert (kept.get(question).value, kept.get(question).value) == (1, 1)
    monkeypatch.setattr(kept_answers, "KEPT_S", 0.0)
    kept.forget()
    assert [kept.get(question).value for _ in range(2)] == [2, 3], "after its time it is asked for again"
