"""What a person who waits for checks is shown, and how times, builds and lines are written."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import click
import pytest

from devtools.waiting import wait_until
from sandbox.cli import progress_line
from sandbox.cli.build_progress import BuildProgress
from sandbox.cli.invocation import Invocation
from sandbox.cli.progress_line import ProgressClock, RefreshIntervals, find_last_line
from sandbox.cli.terminal import StatusLine, count_columns, cut_to_width, is_interactive
from sandbox.cli.time_format import format_local, format_relative
from sandbox.cli.verdicts import CheckProgress
from sandbox.errors import ErrorCode, SandboxError
from tests.unit.conftest import refused

PACE = RefreshIntervals(tick_s=0.01, first_s=0.05, further_s=0.1)
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Shown(StatusLine):
    """A status line that remembers."""

    def __init__(self) -> None:
        super().__init__(live=True)
        self.lines: list[str] = []

    def show(self, text: str) -> None:
        self.lines.append(text)

    def clear(self) -> None:
        self.lines.append("")


def test_without_a_terminal_a_line_comes_late_and_then_rarely() -> None:
    said: list[tuple[float, str]] = []
    began = time.monotonic()
    clock = ProgressClock(StatusLine(), lambda text: said.append((time.monotonic() - began, text)), PACE)
    clock.begin("test", 600)
    wait_until(lambda: len(said) >= 3)
    clock.stop()

    assert said[0][1] == "still running: test, 0 s of 600 s"
    assert [at >= least for (at, _), least in zip(said, (0.05, 0.15, 0.25), strict=False)] == [True] * 3
    told = len(said)
    threading.Event().wait(0.2)
    assert len(said) == told


def test_the_pace_is_30_seconds_and_then_a_minute() -> None:
    assert (RefreshIntervals().first_s, RefreshIntervals().further_s) == (30, 60)


def test_on_a_terminal_the_line_has_time_deadline_and_last_words() -> None:
    status = Shown()
    clock = ProgressClock(status, lambda _: None, PACE)
    clock.begin("build", 60)
    clock.add_output(b"one\ntwo \x1b[31mred\x1b[0m\n\n")
    wait_until(lambda: "build: 0 s of 60 s  two red" in status.lines)
    clock.end("build")
    clock.stop()
    assert status.lines[-1] == ""


def test_while_it_waits_its_time_does_not_run() -> None:
    said: list[str] = []
    clock = ProgressClock(StatusLine(), said.append, PACE)
    clock.begin("test", 600)
    clock.show_queued("waiting: 1st in line")
    threading.Event().wait(0.2)
    assert said == []
    clock.show_queued("")
    wait_until(lambda: bool(said))
    clock.stop()


def test_checks_that_run_at_once_share_the_line() -> None:
    status = Shown()
    clock = ProgressClock(status, lambda _: None, PACE)
    clock.begin("one", 60)
    clock.begin("two", 30)
    wait_until(lambda: "one: 0 s of 60 s, two: 0 s of 30 s" in status.lines)
    clock.stop()


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"", ""),
        (b"a\nb", "b"),
        (b"a\n \n\n", "a"),
        (b"10%\r20%", "20%"),
        (b"\x1b]0;title\x07x\n", "x"),
        (b"a\tb", "a b"),
    ],
)
def test_the_last_line_of_output_is_safe_to_show(output: bytes, line: str) -> None:
    assert find_last_line(output) == line


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("e\u0301x", 2, "e\u0301x"),
    ],
)
def test_a_text_is_cut_to_columns(text: str, width: int, shown: str) -> None:
    assert cut_to_width(text, width) == shown
    assert count_columns(cut_to_width(text, width)) <= width


@pytest.mark.parametrize(
    ("environ", "interactive"), [({}, True), ({"CI": "1"}, False), ({"TERM": "dumb"}, False), ({"CI": ""}, True)]
)
def test_nothing_is_rewritten_under_ci_or_on_a_dumb_terminal(environ: dict[str, str], interactive: bool) -> None:
    stream = io.StringIO()
    assert not is_interactive(stream, environ)
    stream.isatty = lambda: True  # type: ignore[method-assign]
    assert is_interactive(stream, environ) is interactive
    stream.close()


@pytest.mark.parametrize(
    ("away", "text"),
    [
        (timedelta(), "now"),
        (timedelta(seconds=-59), "59 s ago"),
        (timedelta(minutes=-3, seconds=-20), "3 min ago"),
        (timedelta(hours=-25), "1 d ago"),
        (timedelta(hours=2, minutes=1), "in 2 h"),
        (timedelta(days=-31), (NOW - timedelta(days=31)).astimezone().date().isoformat()),
    ],
)
def test_a_time_is_told_from_now(away: timedelta, text: str) -> None:
    assert format_relative(NOW + away, NOW) == text


def test_a_local_time_has_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert format_local(NOW) == "2026-01-31T17:30:00+05:30"
    finally:
        monkeypatch.undo()
        time.tzset()


BUILD = (
    "space-sandbox/base:latest is up to date",
    "building space-sandbox/python:latest",
    "Step 1/3 : ARG BASE",
    "Step 2/3 : FROM ${BASE}",
    " ---> 123",
    "Step 3/3 : RUN echo hello",
    "hello",
    "Successfully built 456",
    "Successfully tagged space-sandbox/python:latest",
    "space-sandbox/init:latest is up to date",
)


@pytest.fixture
def progress() -> Iterator[BuildProgress]:
    """Its clock ends with the test."""
    with BuildProgress(StatusLine()) as made:
        yield made


def test_a_build_is_told_step_by_step(capsys: pytest.CaptureFixture[str], progress: BuildProgress) -> None:
    for line in BUILD:
        progress.add_line(line)
    progress.show_log()  # nothing failed

    assert capsys.readouterr().err.splitlines() == [
        BUILD[0],
        BUILD[1],
        "python: step 1/3 ARG BASE",
        "python: step 2/3 FROM ${BASE}",
        "python: step 3/3 RUN echo hello",
        BUILD[-1],
    ]


def test_builds_at_the_same_time_are_told_apart(capsys: pytest.CaptureFixture[str], progress: BuildProgress) -> None:
    """Only the output of the one that failed is shown."""
    for line in BUILD[:4]:
        progress.add_line(f"python | {line}")
        progress.add_line(f"build | {line}".replace("python", "build"))
    steps = capsys.readouterr().err.splitlines()
    assert {"python: step 1/3 ARG BASE", "build: step 2/3 FROM ${BASE}"} <= {*steps}
    for line in ("E: no such package", "failed: space-sandbox/build:latest"):
        progress.add_line(f"build | {line}")
    capsys.readouterr()
    progress.add_line("python | more")
    assert capsys.readouterr().err == ""
    progress.show_log()
    shown = capsys.readouterr().err.splitlines()
    assert shown[-1] == "E: no such package"
    assert "more" not in shown


@pytest.mark.parametrize(
    "line", ["obtained the lock", "pulling metadata", "building 'x.y' extension", "failed: 2 of 9"]
)
def test_what_a_build_prints_is_no_line_of_ours(
    capsys: pytest.CaptureFixture[str], line: str, progress: BuildProgress
) -> None:
    for each in (*BUILD[1:7], line, "gcc: error"):
        progress.add_line(each)
    assert line not in capsys.readouterr().err
    progress.show_log()
    assert capsys.readouterr().err.splitlines() == [*BUILD[2:7], line, "gcc: error"]


def test_after_a_failure_no_build_goes_on_and_another_may_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exploration notes the error and builds the next image. Those beside the one that failed end without a word."""
    monkeypatch.setattr(progress_line, "RefreshIntervals", lambda: PACE)
    status = Shown()
    with BuildProgress(status) as progress:
        for name in ("python", "build"):
            progress.add_line(f"{name} | building space-sandbox/{name}:latest")
        progress.add_line("build | failed: space-sandbox/build:latest")
        shown = len(status.lines)
        time.sleep(10 * PACE.tick_s)
        assert not any(status.lines[shown:])
        progress.add_line("python | building space-sandbox/python:latest")
        wait_until(lambda: "python: 0 s" in status.lines[shown:])
        assert not any("build: " in line for line in status.lines[shown:])


def test_the_lines_that_an_error_has_are_not_printed_twice(
    capsys: pytest.CaptureFixture[str], progress: BuildProgress
) -> None:
    for line in BUILD[:7]:
        progress.add_line(line)
    capsys.readouterr()
    try:
        raise SandboxError(ErrorCode.INTERNAL, "x", details="\n".join([*BUILD[4:7], "returned a non-zero code"]))
    except SandboxError as error:
        progress.show_log(error)
    assert capsys.readouterr().err.splitlines() == list(BUILD[2:4])


@pytest.mark.parametrize("label", ["", "python | "])
def test_an_error_does_not_repeat_what_a_verbose_build_printed(capsys: pytest.CaptureFixture[str], label: str) -> None:
    """Control: in the document of --json the details are whole."""
    details = "\n".join([*BUILD[4:7], "returned a non-zero code"])

    def fail(*, document: bool) -> None:
        with BuildProgress(StatusLine(), verbose=True, document=document) as progress:
            for line in BUILD[:7]:
                progress.add_line(f"{label}{line}")
            raise SandboxError(ErrorCode.INTERNAL, "x", details=details, hint="y")

    found = []
    for document in (False, True):
        with pytest.raises(SandboxError) as caught:
            fail(document=document)
        assert (caught.value.code, caught.value.hint) == (ErrorCode.INTERNAL, "y")
        found.append(caught.value.details)
    assert found == ["returned a non-zero code", details]
    assert capsys.readouterr().err.splitlines() == [f"{label}{line}" for line in BUILD[:7]] * 2


def test_a_build_that_ends_early_is_shown_whole(capsys: pytest.CaptureFixture[str], progress: BuildProgress) -> None:
    for line in BUILD[:7]:
        progress.add_line(line)
    capsys.readouterr()
    progress.show_log()
    assert capsys.readouterr().err.splitlines() == list(BUILD[2:7])


FETCH = (
    "missing images, which are made now: Debian, base",
    "bootstrapping space-sandbox/debian:bookworm with mmdebstrap",
    "downloading packages with apt, 17.3 MiB",
    "extracting archives",
    "obtained space-sandbox/debian:bookworm",
    "base | building space-sandbox/base:0123456789ab",
)


def test_without_a_terminal_a_bootstrap_is_told_rarely(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its phases are many: the line that says that it goes on has the last one."""
    monkeypatch.setattr(progress_line, "RefreshIntervals", lambda: PACE)
    shown = ""
    with BuildProgress(StatusLine()) as progress:
        for line in FETCH[:4]:
            progress.add_line(line)

        def goes_on() -> bool:
            nonlocal shown
            shown += capsys.readouterr().err
            return "still running" in shown

        wait_until(goes_on)
        for line in (*FETCH[4:], "base | Successfully tagged space-sandbox/base:0123456789ab"):
            progress.add_line(line)
    shown += capsys.readouterr().err
    assert [line for line in shown.splitlines() if "still running" not in line] == [FETCH[0], FETCH[1], FETCH[5][7:]]
    assert "still running: debian: extracting archives, 0 s" in shown


def test_on_a_terminal_each_second_shows_which_image_and_what_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while no line comes."""
    monkeypatch.setattr(progress_line, "RefreshIntervals", lambda: PACE)
    status = Shown()
    with BuildProgress(status) as progress:
        for line in FETCH[:3]:
            progress.add_line(line)
        wait_until(lambda: status.lines.count(f"debian: {FETCH[2]}: 0 s") > 1)
        for line in FETCH[3:]:
            progress.add_line(line)
        progress.add_line("base | Step 2/5 : RUN apt-get \x1b[31minstall")
        progress.add_line("base | Get:1 git")
        wait_until(lambda: status.lines.count("base: step 2/5 RUN apt-get install: 0 s  Get:1 git") > 1)
        progress.add_line("python | building space-sandbox/python:0123456789ab")
        wait_until(lambda: "base: step 2/5 RUN apt-get install: 0 s, python: 0 s" in status.lines)
        progress.add_line("base | Successfully tagged space-sandbox/base:0123456789ab")
        progress.add_line("python | STEP 1/9: ARG BASE")
        wait_until(lambda: "python: step 1/9 ARG BASE: 0 s" in status.lines)
    assert status.lines[-1] == "", "it ends with the block"


@pytest.mark.parametrize("lines", [BUILD[:7], [f"python | {line}" for line in BUILD[:7]]], ids=["alone", "labelled"])
def test_a_run_whose_build_fails_shows_the_end_of_its_log_once(
    capsys: pytest.CaptureFixture[str], lines: Sequence[str]
) -> None:
    """The error that is printed next has it."""

    def run() -> None:
        building = CheckProgress().watch().building
        for line in lines:
            building(line)
        raise SandboxError(ErrorCode.INTERNAL, "x", details="\n".join(BUILD[2:7]))  # not all that was printed

    with refused(ErrorCode.INTERNAL):
        click.Command("run", callback=run).main([], standalone_mode=False, obj=Invocation())
    shown = capsys.readouterr().err.splitlines()
    assert [line for line in BUILD[1:7] if line in shown] == [BUILD[1]]


@pytest.mark.parametrize("follow", [False, True])
def test_outside_of_a_terminal_a_line_says_what_holds_the_task(
    capsys: pytest.CaptureFixture[str], follow: bool
) -> None:
    """It waits for ten seconds before it gives up."""
    with click.Context(click.Command("run"), obj=Invocation()):
        watch = CheckProgress(follow=follow).watch()
        watch.waiting("the check 'slow' in task-1")
        watch.waiting("")
    assert capsys.readouterr().err == "waiting for the check 'slow' in task-1\n"


@pytest.mark.parametrize("follow", [False, True])
def test_on_a_terminal_the_status_line_alone_says_it(capsys: pytest.CaptureFixture[str], follow: bool) -> None:
    invocation = Invocation()
    invocation.status = Shown()
    with click.Context(click.Command("run"), obj=invocation):
        CheckProgress(follow=follow).watch().waiting("the check 'slow' in task-1")
    assert capsys.readouterr().err == ""


def test_a_bootstrap_that_fails_is_left_to_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    with refused(ErrorCode.INTERNAL), BuildProgress(StatusLine()) as progress:
        for line in (*FETCH[:4], "E: apt-get update failed", "not built: space-sandbox/debian:bookworm"):
            progress.add_line(line)
        raise SandboxError(ErrorCode.INTERNAL, "x", details="E: apt-get update failed")
    assert capsys.readouterr().err.splitlines() == [*FETCH[:2]]
