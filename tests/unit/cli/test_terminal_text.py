"""S194: what a worker, an engine or a forge says moves no cursor and sets no clipboard of a person's terminal."""

from __future__ import annotations

import base64
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import click
import pytest

from sandbox.cli import app, check_runs, pr, usage, verdicts
from sandbox.cli.ci import detect_ci
from sandbox.cli.invocation import Invocation, show_table
from sandbox.cli.streams import GuardedStream, _text_stream, drawing
from sandbox.cli.tables import print_table
from sandbox.cli.terminal import StatusLine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import (
    CiCheck,
    CiState,
    CiVerdict,
    LogLines,
    LogMatch,
    PullRequestStatus,
    PullState,
    RunLog,
    Verdict,
)
from tests.unit.receipt_samples import made_run

EVIL = "\x1b]52;c;cm0gLXJmIH4=\x07\x1b[2J\x1b[31mpassed\r\x9b2J"


def make_log(content: str, encoding: str = "utf-8") -> RunLog:
    facts = {"run_id": "run-1", "check_id": "t", "stream": "stdout", "total_bytes": 3, "truncated": False}
    return RunLog.model_validate({**facts, "content": content, "encoding": encoding})


def make_lines(**found: object) -> LogLines:
    counts = {"total_lines": 1, "total_bytes": 1, "dropped_bytes": 0, "truncated": False, "finished": True}
    return LogLines.model_validate({"run_id": "run-1", "stream": "stdout", **counts, **found})


def make_request() -> PullRequestStatus:
    check = CiCheck(name=EVIL, state=CiState.FAIL, url=EVIL, said=EVIL, excerpt=EVIL)
    return PullRequestStatus(
        url=EVIL, number=1, state=PullState.OPEN, draft=False, head_commit="a" * 40, current=True,
        verdict=CiVerdict.FAIL, checks=(check,), unseen=EVIL,
    )  # fmt: skip


def report(**texts: str) -> None:
    app._report_error(SandboxError(ErrorCode.CONFLICT, **{"brief": "x", **texts}), Invocation())  # type: ignore[arg-type]  # reason: keywords of several types


SHOWN: dict[str, Callable[[], object]] = {
    "brief": lambda: report(brief=EVIL),
    "details": lambda: report(details=EVIL),
    "hint": lambda: report(hint=EVIL),
    "log": lambda: check_runs._show(make_log(EVIL), "", raw=False),
    "bytes that were not asked for": lambda: check_runs._show(
        make_log(base64.b64encode(EVIL.encode()).decode(), "base64"), "", raw=False
    ),
    "lines": lambda: check_runs._show_lines(make_lines(content=EVIL), ""),
    "matches": lambda: check_runs._show_lines(make_lines(matches=(LogMatch(line=1, text=EVIL, cut=True),)), ""),
    "pull request": lambda: pr._show(make_request()),
    "table": lambda: show_table(["A", "B"], [[EVIL, EVIL]]),
    "rows of a view that is drawn": lambda: print_table(["A", "STATE"], [[EVIL, EVIL]]),
    "tails": lambda: verdicts._show_failure(made_run("t", Verdict.FAILED, stdout_tail=EVIL, stderr_tail=EVIL)),
}


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("is_terminal", [False, True], ids=["pipe", "terminal"])
def test_s194_no_field_has_a_terminal_sequence(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, *, is_terminal: bool
) -> None:
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
    SHOWN[name]()
    shown = "".join(capfd.readouterr())
    assert "passed" in shown or "bytes" in name
    assert not [one for one in ("\x1b]", "\x07", "\x1b[2J", "\r", "\x9b") if one in shown]


def test_s194_bytes_that_were_asked_for_are_exact(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    check_runs._show(make_log(base64.b64encode(EVIL.encode()).decode(), "base64"), "", raw=True)
    assert capfdbinary.readouterr().out == EVIL.encode()


@contextmanager
def writing(monkeypatch: pytest.MonkeyPatch, replaced: TextIO | None = None) -> Iterator[list[bytes]]:
    """What reaches the standard output of a command in the body, after it. `replaced`: that of the interpreter."""
    reading, writing = os.pipe()
    found: list[bytes] = []
    with monkeypatch.context() as patch, os.fdopen(reading, "rb") as stream:
        patch.setattr(sys, "stdout", _text_stream(GuardedStream(writing, StatusLine()), replaced))
        yield found
        sys.stdout.flush()
        os.close(writing)
        found.append(stream.read())


def test_s194_a_field_that_was_forgotten_has_only_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(monkeypatch) as found:
        sys.stdout.write(f"{EVIL}\x1b[0m\tend\r\n\u20ac\n")
        sys.stdout.flush()
        sys.stdout.buffer.write(b"\x1b]bytes that were asked for\x07")
    assert found[0].decode() == (
        "\ufffd]52;c;cm0gLXJmIH4=\ufffd\ufffd[2J\x1b[31mpassed\ufffd\ufffd2J\x1b[0m\tend\r\n\u20ac\n"
        "\x1b]bytes that were asked for\x07"
    )


@pytest.mark.parametrize(
    ("encoding", "errors"),
    [("ascii", "strict"), ("ANSI_X3.4-1968", "surrogateescape"), ("utf-8", "surrogateescape")],
    ids=["PYTHONIOENCODING", "C without coercion", "C"],
)
def test_s194_no_locale_lets_a_sequence_through(monkeypatch: pytest.MonkeyPatch, encoding: str, errors: str) -> None:
    """Control: a view that is drawn moves the cursor, and bytes that were asked for are exact."""
    with writing(monkeypatch, io.TextIOWrapper(io.BytesIO(), encoding, errors)) as found:
        click.echo("\x1b[2J\udc9b2J\u20ac", color=True)
        with drawing(sys.stdout):
            click.echo("\x1b[1J", color=True)
        sys.stdout.flush()
        sys.stdout.buffer.write(b"\x1b[3J")
    assert found == ["\ufffd[2J\ufffd2J\u20ac\n\x1b[1J\n\x1b[3J".encode()]


def test_what_an_encoding_lacks_is_written_as_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: what it has is written as it is."""
    with writing(monkeypatch, io.TextIOWrapper(io.BytesIO(), "latin-1")) as found:
        click.echo("\x1b[2J\u20ac\xe9", color=True)
    assert found == [b"\\ufffd[2J\\u20ac\xe9\n"]


@pytest.mark.parametrize(("encoding", "bars"), [("ascii", usage._DIGITS), ("utf-8", usage._BARS)])
def test_bars_are_digits_where_the_environment_asks_for_ascii(
    monkeypatch: pytest.MonkeyPatch, encoding: str, bars: str
) -> None:
    with writing(monkeypatch, io.TextIOWrapper(io.BytesIO(), encoding)):
        assert usage._choose_bars() == bars


def test_a_view_that_is_drawn_moves_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(monkeypatch) as found:
        with drawing(sys.stdout):
            sys.stdout.write("\x1b[2J")
        sys.stdout.write("\x1b[2J")
    assert found == [b"\x1b[2J\xef\xbf\xbd[2J"]


def test_sections_of_gitlab_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    section = "\x1b[0Ksection_end:1:a\r\x1b[0K"
    with writing(monkeypatch) as found:
        ci = detect_ci({"GITLAB_CI": "true"}, to_stderr=False)
        assert ci is not None
        ci.echo(section)
    assert found == [f"{section}\n".encode()]
