"""The one retry policy of requests that only read."""

from __future__ import annotations

import json
import logging

import pytest
import tenacity

from sandbox import retries
from sandbox.cli.log_setup import configure_logs
from sandbox.errors import ErrorCode
from sandbox.git import transport
from sandbox.git.failures import GitFailure, is_transient


class _Failure(Exception):
    def __init__(self, wait_s: float = 0.0) -> None:
        super().__init__("failed")
        self.wait_s = wait_s


def _wait_s(error: BaseException) -> float:
    return error.wait_s if isinstance(error, _Failure) else 0.0


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", slept.append)
    monkeypatch.setattr(retries, "BACKOFF", tenacity.wait_none())
    return slept


@pytest.mark.parametrize(
    ("error", "tries", "slept"),
    [
        (_Failure(), retries.ATTEMPTS, [0.0] * (retries.ATTEMPTS - 1)),
        (_Failure(retries.MAX_PAUSE_S), retries.ATTEMPTS, [retries.MAX_PAUSE_S] * (retries.ATTEMPTS - 1)),
        (_Failure(retries.MAX_PAUSE_S + 1), 1, []),
        (ValueError("lasts"), 1, []),
    ],
    ids=["transient", "pause", "pause too long", "permanent"],
)
def test_only_transient_errors_are_retried_after_the_requested_pause(
    error: Exception, tries: int, slept: list[float], pauses: list[float]
) -> None:
    attempts = 0

    def ask() -> None:
        nonlocal attempts
        attempts += 1
        raise error

    with pytest.raises(type(error)):
        retries.build_retrying(lambda e: isinstance(e, _Failure), _wait_s)(ask)
    assert (attempts, pauses) == (tries, slept)


@pytest.mark.parametrize("plain_progress", [True, False], ids=["command", "server"])
def test_a_retry_of_git_is_one_line_without_the_words_of_the_remote(
    pauses: list[float], capsys: pytest.CaptureFixture[str], plain_progress: bool
) -> None:
    """Plain for a person, a record in the log of a server. Control: a warning is a record for both."""
    error = GitFailure(ErrorCode.NETWORK_ERROR, "no answer", details="words\nof the remote", transient=True)
    logger = logging.getLogger("sandbox")
    before = logger.handlers, logger.level, logger.propagate

    def fail() -> None:
        raise error

    try:
        configure_logs(lambda text: text, plain_progress=plain_progress)
        with pytest.raises(GitFailure):
            retries.build_retrying(is_transient, lambda _: 1.2, transport._announce_retry)(fail)
        logger.warning("other")
    finally:
        logger.handlers, logger.level, logger.propagate = before
    *lines, other = capsys.readouterr().err.splitlines()
    said = lines if plain_progress else [json.loads(line)["event"] for line in lines]
    assert said == ["trying again in 2 s: no answer"] * (retries.ATTEMPTS - 1)
    assert json.loads(other)["event"] == "other"


@pytest.mark.parametrize(("left_s", "tries"), [(10.0, 3), (7.0, 2), (5.0, 1), (-1.0, 1)])
def test_a_pause_that_takes_up_the_time_that_is_left_is_not_begun(
    left_s: float, tries: int, pauses: list[float]
) -> None:
    attempts = 0

    def ask() -> None:
        nonlocal attempts
        attempts += 1
        raise _Failure(5.0)

    with pytest.raises(_Failure):
        retries.build_retrying(lambda _: True, _wait_s, left_s=lambda: left_s - sum(pauses) + 0.1 * bool(pauses))(ask)
    assert (attempts, pauses) == (tries, [5.0] * (tries - 1))
