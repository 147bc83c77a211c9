"""Reading the log of a run by lines and by pattern: what is kept, what is hostile, what still grows. Ids: THREATS I."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.checks.output import Spool
from sandbox.cli import main
from sandbox.errors import ErrorCode
from sandbox.models import CheckRun, Limits, LogLines, LogQuery, Usage, Verdict
from sandbox.store.home import Home
from sandbox.store.log_file import LogFile, LogPiece
from sandbox.store.records import save_run
from sandbox.text import decode_for_display
from sandbox.workbench import Workbench
from sandbox.workbench.checks.log_lines import fit_piece
from sandbox.workbench.checks.run import new_run_id
from tests.unit.conftest import refused

OWNER = "task-00000000-0000-0000-0000-000000000000"
RUN = f"run-{7:032x}"
LINES = st.lists(st.sampled_from([b"", b"a", b"\xc3\xa9", b"bb" * 9, b"\r", b"\x1b[31m"]), max_size=40)
BACKTRACKS = "(a+)+$"


class Bench:
    """A workbench whose home has logs, and nothing else."""

    def __init__(self, home: Path) -> None:
        self.home = Home(home)
        self.workbench = Workbench(home, environ={"PATH": os.environ["PATH"], "HOME": str(home.parent)})

    def spool(self, output: bytes, *, limit: int = 10 * 1024**2, finished: bool = True, run_id: str = RUN) -> None:
        """A run that printed this, as a check leaves it; unless it has finished, there is no record of it."""
        self.home.logs(OWNER).mkdir(parents=True, exist_ok=True)
        for stream, content in (("stdout", output), ("stderr", b"")):
            with Spool(self.home.logs(OWNER) / f"{run_id}.{stream}", limit) as spool:
                for at in range(0, len(content), 1 << 16):
                    spool.write(content[at : at + (1 << 16)])
        if finished:
            save_run(self.home, OWNER, run_of(len(output), limit, run_id))

    def read(self, **query: object) -> LogLines:
        return self.workbench.read_log(RUN, LogQuery.model_validate(query))


def run_of(size: int, limit: int, run_id: str = RUN) -> CheckRun:
    return CheckRun(
        run_id=run_id,
        check_id="test",
        task_id=OWNER,
        verdict=Verdict.FAILED,
        exit_code=1,
        signal=None,
        started_at=datetime(2026, 1, 2, tzinfo=UTC),
        wall_time_s=1.5,
        usage=Usage(limits=Limits(output_bytes=limit)),
        stdout_tail="",
        stderr_tail="",
        stdout_bytes=size,
        stderr_bytes=0,
        truncated=size > limit,
        tree="a" * 40,
        clean_room=False,
        cached=False,
        image_digest="sha256:" + "0" * 64,
        runtime="runc",
        report=None,
    )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path / "home")
    with found.workbench:
        yield found


def numbered(count: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(1, count + 1))


# --- where lines are


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(lines=LINES, ends=st.booleans(), first=st.integers(1, 42), last=st.integers(0, 42), most=st.integers(1, 60))
def test_pieces_are_the_lines_that_git_and_editors_count(
    tmp_path: Path, lines: list[bytes], ends: bool, first: int, last: int, most: int
) -> None:
    content = b"\n".join(lines) + (b"\n" if lines and ends else b"")
    path = tmp_path / "log"
    path.write_bytes(content)
    expected = content.removesuffix(b"\n").split(b"\n") if content else []
    with path.open("rb") as file:
        log = LogFile(file)
        assert (log.lines, log.size) == (len(expected), len(content))
        first = min(first, max(log.lines, 1))
        last = max(first - 1, min(last, log.lines))
        whole = log.read_forward(first, last, 10**6)
        assert list(whole.lines) == expected[first - 1 : last]
        cut = log.read_forward(first, last, most)
        assert b"\n".join(expected[first - 1 : last]).startswith(b"\n".join(cut.lines))
        assert content[cut.offset : cut.end] == log.read(cut.offset, cut.end - cut.offset)
        back = log.read_backward(last, most)
        assert b"\n".join(expected[:last]).endswith(b"\n".join(back.lines))
        assert not back.lines or back.first + len(back.lines) - 1 == last
        assert content[back.offset : back.end].removesuffix(b"\n").split(b"\n") == list(back.lines) or not back.lines


@given(lines=LINES.filter(bool), most=st.integers(1, 200), backwards=st.booleans())
def test_a_fitted_piece_is_within_its_budget_and_never_empty(lines: list[bytes], most: int, backwards: bool) -> None:
    size = sum(len(line) + 1 for line in lines)
    piece = LogPiece(5, tuple(lines), 100, 100 + size)
    found = fit_piece(piece, most, backwards=backwards)
    assert 1 <= len(found.lines) <= len(lines)
    if len(found.lines) > 1:
        assert (found.lines == tuple(lines[-len(found.lines) :])) if backwards else (found.offset == 100)
        assert sum(len(line) + 1 for line in found.lines) == found.end - found.offset
    assert (found.first + len(found.lines) == 5 + len(lines)) if backwards else (found.first == 5)
    assert (found.end == piece.end) if backwards else (found.offset == piece.offset)


def test_where_it_begins_is_exact_without_a_last_newline(bench: Bench) -> None:
    output = numbered(1000) + b"the end"
    bench.spool(output)
    for most in (20, 100, 7):
        found = bench.read(max_bytes=most)
        assert found.shown_from_byte is not None
        assert found.content == output[found.shown_from_byte :].decode() + "\n"


# --- ranges


def test_the_last_lines_are_given_and_it_says_that_they_are_not_all(bench: Bench) -> None:
    output = numbered(10_000)
    bench.spool(output)
    found = bench.read(max_bytes=1000)
    assert found.content is not None
    assert found.content.endswith("line 9999\nline 10000\n")
    assert (found.end_line, found.total_lines, found.truncated, found.finished) == (10_000, 10_000, True, True)
    assert found.shown_from_byte is not None
    assert output[found.shown_from_byte :].decode() == found.content
    assert len(json.dumps(found.content)) <= 1010


def test_a_range_is_read_from_its_start_and_whole_when_it_fits(bench: Bench) -> None:
    output = numbered(10_000)
    bench.spool(output)
    found = bench.read(start_line=5000, end_line=5002)
    assert found.content == "line 5000\nline 5001\nline 5002\n"
    assert not found.truncated
    assert output[found.shown_from_byte :].startswith(b"line 5000\n")
    cut = bench.read(start_line=5000, max_bytes=100)
    assert cut.truncated
    assert (cut.start_line, cut.content) == (5000, "".join(f"line {n}\n" for n in range(5000, (cut.end_line or 0) + 1)))
    assert bench.read(end_line=2).content == "line 1\nline 2\n"
    assert bench.read(start_line=9999, end_line=20_000).end_line == 10_000
    assert bench.read(max_bytes=10**6).truncated is False


def test_what_was_not_kept_is_counted_and_offsets_go_on_behind_it(bench: Bench) -> None:
    output = numbered(1000)
    bench.spool(output, limit=1000)
    found = bench.read(max_bytes=10**6)
    assert found.content is not None
    assert f"[... {len(output) - 1000} bytes dropped here ...]" in found.content
    assert (found.truncated, found.total_bytes, found.dropped_bytes) == (True, len(output), len(output) - 1000)
    last = bench.read(start_line=found.total_lines)
    assert (last.content, last.truncated) == ("line 1000\n", False)
    assert output[last.shown_from_byte :] == b"line 1000\n"
    assert bench.read(start_line=1, end_line=2).truncated is False
    assert bench.read(pattern="line 1000").truncated, "a match may be among what was not kept"


def test_a_guest_cannot_forge_a_gap(bench: Bench) -> None:
    output = b"x" * 500 + b"\n[... 77 bytes dropped here ...]\n" + b"y" * 467
    assert len(output) == 1000
    bench.spool(output, limit=1000)
    found = bench.read()
    assert (found.dropped_bytes, found.truncated, found.shown_from_byte) == (0, False, 0)


def test_i09_no_sequence_hides_a_line_and_each_is_one(bench: Bench) -> None:
    output = b"\x1b]0;start\nhidden?\n10%\r20%\r\n\xe2\x80\xaeevil\x07\n\xff\n"
    assert "hidden?" not in decode_for_display(output), "the control did not hide it: this proves nothing"
    bench.spool(output)
    found = bench.read()
    assert found.content == "\nhidden?\n10%\N{SYMBOL FOR NEWLINE}20%\n\\u202eevil\ufffd\n\ufffd\n"
    assert (found.start_line, found.end_line, found.total_lines) == (1, 5, 5)


def test_a_line_that_never_ends_is_cut_at_either_end(bench: Bench) -> None:
    bench.spool(b"start" + b"\xff" * 10**6 + b"end")
    last, first = bench.read(max_bytes=6000), bench.read(start_line=1, max_bytes=6000)
    assert last.content is not None
    assert first.content is not None
    assert last.content.endswith("end\n")
    assert first.content.startswith("start")
    for found in (last, first):
        assert found.truncated
        assert len(json.dumps(found.content)) <= 6010


def test_an_empty_log_has_no_lines(bench: Bench) -> None:
    bench.spool(b"")
    found = bench.read()
    assert (found.content, found.total_lines, found.truncated) == ("", 0, False)
    assert "start_line" not in found.model_dump(mode="json")
    assert bench.read(pattern="x").matches == ()


# --- patterns


def test_a_failure_in_the_middle_is_found_and_read(bench: Bench) -> None:
    output = numbered(50_000) + b"FAILED test_sums - assert 3 == 4\n" + numbered(50_000)
    bench.spool(output)
    found = bench.read(pattern=r"^FAILED \S+")
    assert [(m.line, m.text) for m in found.matches or ()] == [(50_001, "FAILED test_sums - assert 3 == 4")]
    assert (found.truncated, found.content) == (False, None)
    around = bench.read(start_line=50_000, end_line=50_002)
    assert around.content == "line 50000\nFAILED test_sums - assert 3 == 4\nline 1\n"


def test_matches_are_bounded_and_a_range_narrows_them(bench: Bench) -> None:
    bench.spool(numbered(1000))
    found = bench.read(pattern="line", max_results=10)
    assert [m.line for m in found.matches or ()] == list(range(1, 11))
    assert (found.truncated, found.stopped_by) == (True, "max_results")
    narrowed = bench.read(pattern="line", start_line=995)
    assert [m.line for m in narrowed.matches or ()] == list(range(995, 1001))
    assert not narrowed.truncated
    assert bench.read(pattern="line", start_line=3, end_line=3).matches == bench.read(pattern="^line 3$").matches


def test_i07_a_pattern_that_backtracks_ends(bench: Bench) -> None:
    bench.spool(b"a" * 60 + b"!\n")
    started = time.monotonic()
    found = bench.read(pattern=BACKTRACKS, timeout_s=5)
    assert time.monotonic() - started < 10 * slowness()
    assert found.matches == ()
    assert found.stopped_by in {None, "pattern", "time"}
    huge = b"a" * 200_000 + b"!\n"
    bench.spool(huge, run_id=f"run-{8:032x}")
    search = f"import re, signal; signal.setitimer(signal.ITIMER_PROF, 0.5); re.search({BACKTRACKS!r}, 'a' * 60 + '!')"
    naive = subprocess.run([sys.executable, "-c", search], check=False)
    assert naive.returncode == -signal.SIGPROF, "the control: a matcher without limits"
    found = bench.workbench.read_log(f"run-{8:032x}", LogQuery(pattern=BACKTRACKS, timeout_s=5))
    assert found.stopped_by in {"pattern", "time"}
    assert found.truncated


def test_long_and_binary_lines_are_cut_around_the_match(bench: Bench) -> None:
    bench.spool(b"x" * 10**6 + b"NEEDLE" + b"y" * 10**6 + b"\nfoo\0NEEDLE\x1b[31m\n")
    long, binary = bench.read(pattern="NEEDLE").matches or ()
    assert "NEEDLE" in long.text
    assert len(long.text) <= 500
    assert (long.cut, binary.cut) == (True, None)
    assert binary.text == "foo\ufffdNEEDLE"


@pytest.mark.parametrize("name", ["--help", "-O", ":(attr:x)", "$(touch x)"], ids=["help", "open", "magic", "shell"])
def test_g04_a_pattern_is_never_an_option(bench: Bench, name: str) -> None:
    bench.spool(f"a {name} b\n".encode())
    found = bench.read(pattern=f"\\Q{name}\\E")
    assert [m.line for m in found.matches or ()] == [1]


# --- what is there


def test_a_run_that_has_not_ended_is_readable(bench: Bench) -> None:
    run_id = new_run_id(bench.workbench._services.presence)
    bench.spool(numbered(10), finished=False, run_id=run_id)
    found = bench.workbench.read_log(run_id)
    assert (found.finished, found.end_line, found.total_bytes, found.dropped_bytes) == (False, 10, 71, 0)
    assert found.note is None
    assert [m.line for m in bench.workbench.read_log(run_id, LogQuery(pattern="line 7")).matches or ()] == [7]


@pytest.mark.parametrize("query", [{}, {"pattern": "line 7"}], ids=["range", "search"])
def test_the_log_of_a_killed_process_is_finished_and_says_so(bench: Bench, query: dict[str, object]) -> None:
    """No live controller has this run. Control: the test above."""
    bench.spool(numbered(10), finished=False)
    found = bench.read(**query)
    assert (found.finished, found.total_bytes) == (True, 71)
    assert found.note == f"{RUN} has no result: the process that ran it was killed, or ended without saving one"


NO_RUNS = ("", "..", "../tasks/x", "/etc/passwd", "run-", RUN[:-1] + "1", RUN.upper(), f"run-{9:032x}", f"{RUN}.stdout")


@pytest.mark.parametrize("run_id", NO_RUNS)
def test_what_is_no_run_is_not_found(bench: Bench, run_id: str) -> None:
    bench.spool(b"x\n")
    with refused(ErrorCode.NOT_FOUND):
        bench.workbench.read_log(run_id)


BAD: tuple[dict[str, object], ...] = (
    {"start_line": 0},
    {"start_line": 3, "end_line": 2},
    {"start_line": 12},
    {"max_bytes": 0},
    {"max_results": 0},
    {"timeout_s": 0},
    {"pattern": ""},
    {"pattern": "a\nb"},
    {"pattern": "("},
    {"pattern": "x" * 5000},
)


@pytest.mark.parametrize("query", BAD, ids=lambda query: str(query)[:30])
def test_what_cannot_be_read_is_invalid_input(bench: Bench, query: dict[str, object]) -> None:
    bench.spool(numbered(10))
    with refused(ErrorCode.INVALID_INPUT):
        bench.read(**query)


def test_the_command_line_prints_lines_and_matches(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    bench.spool(numbered(100))

    def command(*words: str) -> str:
        assert main(["--home", str(bench.home.root), "check", "log", RUN, *words]) == 0
        return capfd.readouterr().out

    assert command("--lines", "3:4") == "line 3\nline 4\n"
    assert command("--lines", "99:") == "line 99\nline 100\n"
    assert command("--lines", "7") == "line 7\n"
    assert command("--pattern", "9$", "--lines", ":20") == "9: line 9\n19: line 19\n"
    assert command().startswith("line 1\nline 2\n")
    found = json.loads(command("--pattern", "^line 42$", "--json"))
    assert found["matches"] == [{"line": 42, "text": "line 42"}]
    assert main(["--home", str(bench.home.root), "check", "log", RUN, "--lines", "x"]) == 2
    assert main(["--home", str(bench.home.root), "check", "log", RUN, "--raw", "--lines", "1"]) == 2
