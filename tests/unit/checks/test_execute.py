"""Output, text, reports and verdicts of a guest that lies about all of them. Ids: THREATS sections I, L."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import unicodedata
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.checks.collected import CollectedResults
from sandbox.checks.comparison import compare_check
from sandbox.checks.execute import CheckDirectories, GuestSettings, Recorder, judge, with_heartbeat
from sandbox.checks.executors import choose_cpus
from sandbox.checks.output import TAIL_BYTES, OutputForwarder, Spool
from sandbox.checks.output_lines import READING_S, ReadingTime
from sandbox.checks.report import read_report
from sandbox.checks.shuffle import shuffle_check
from sandbox.engine.cgroups import Counters
from sandbox.engine.container_types import ContainerExit, StopCondition, Streams
from sandbox.engine.create_options import AccountFiles, GuestAccount, Supervisor
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.disk_usage import DiskUse
from sandbox.models import CauseKind, Check, CheckRun, Limits, Report, TestFailure, UsageSample, UsageSeries, Verdict
from sandbox.models.checks import ResultPatterns
from sandbox.store.home import Home, parse_json
from sandbox.store.records import save_run
from sandbox.text import DisplayDecoder, decode_for_display, neutralise
from sandbox.workbench.checks.compared_sides import is_lost, load_side
from tests.unit.conftest import refused

# --- spool


def spooled(folder: Path, chunks: list[bytes], limit: int) -> tuple[bytes, Spool]:
    path = folder / "log"
    path.unlink(missing_ok=True)
    with Spool(path, limit) as spool:
        for chunk in chunks:
            spool.write(chunk)
    return path.read_bytes(), spool


@settings(max_examples=150)
@given(st.lists(st.binary(max_size=12), max_size=12), st.integers(1, 40))
def test_a_spool_keeps_exactly_the_head_and_the_tail(tmp_path: Path, chunks: list[bytes], limit: int) -> None:
    content = b"".join(chunks)
    head, tail = limit - limit // 2, limit // 2
    dropped = max(0, len(content) - limit)
    expected = content
    if dropped:
        expected = content[:head] + b"\n[... %d bytes dropped here ...]\n" % dropped + content[len(content) - tail :]
    found, spool = spooled(tmp_path, chunks, limit)
    assert found == expected
    assert (spool.total_bytes, spool.dropped_bytes) == (len(content), dropped)
    assert spool.tail == content[-TAIL_BYTES:]


def test_the_recent_tail_is_bounded_however_it_came(tmp_path: Path) -> None:
    content = os.urandom(3 * TAIL_BYTES + 7)
    for size in (1, 1000, TAIL_BYTES, len(content)):
        chunks = [content[i : i + size] for i in range(0, len(content), size)]
        assert spooled(tmp_path, chunks, 10 * len(content))[1].tail == content[-TAIL_BYTES:]


def test_i10_a_tail_begins_with_a_whole_character(tmp_path: Path) -> None:
    cut = spooled(tmp_path, ["\u00e9".encode() * TAIL_BYTES + b"x"], 10 * TAIL_BYTES)[1]
    assert cut.tail_text == "\u00e9" * (TAIL_BYTES // 2 - 1) + "x"
    assert spooled(tmp_path, [b"\xa9x"], 100)[1].tail_text == "\ufffdx"


def test_l07_i08_a_flood_of_tiny_writes_is_held_in_bounded_memory(tmp_path: Path) -> None:
    limit = 50_000
    with Spool(tmp_path / "log", limit) as spool:
        for n in range(80_000):
            spool.write(b"%d" % (n % 90 + 10))
        held = sum(_deep_size(value) for value in vars(spool).values())
    assert held < 4 * limit
    assert (tmp_path / "log").stat().st_size < limit + 100


MEMORY = """
import resource, sys
from pathlib import Path
from sandbox.checks.output import Spool
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with Spool(Path(sys.argv[1]), 64 * 2**20) as spool:
    for _ in range(200 * 16):
        spool.write({chunk})
print(spool.total_bytes, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("chunk", ["bytes(65536)", "b'012345\\n' * 9362"], ids=["one-line", "lines"])
def test_i08_two_hundred_megabytes_are_held_in_a_few(tmp_path: Path, chunk: str) -> None:
    """Of one line, and of thirty million; the last half of the limit alone is 32 MiB."""
    command = [sys.executable, "-c", MEMORY.format(chunk=chunk), str(tmp_path / "log")]
    done = subprocess.run(command, capture_output=True, check=True, timeout=120, text=True)
    total, grown_kib = map(int, done.stdout.split())
    assert total > 200_000_000
    assert grown_kib < 16 * 1024
    assert (tmp_path / "log").stat().st_size < 64 * 2**20 + 100
    (tmp_path / "log").unlink()  # /tmp may be memory


def test_output_that_the_disk_does_not_take_is_counted_as_dropped(tmp_path: Path) -> None:
    """A limit of the process on the size of files stands in for a full disk."""
    script = (
        "import resource, signal, sys\nfrom pathlib import Path\nfrom sandbox.checks.output import Spool\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "with Spool(Path(sys.argv[1]), 10_000) as spool:\n    for _ in range(30):\n        spool.write(b'x' * 100)\n"
        "print(spool.total_bytes, spool.dropped_bytes)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "log")]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60, text=True)
    assert done.stdout.split() == ["3000", "2000"]
    assert (tmp_path / "log").read_bytes() == b"x" * 1000


def test_l08_a_listener_that_raises_is_told_no_more_and_disturbs_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[bytes] = []

    def listen(_name: str, chunk: bytes) -> None:
        heard.append(chunk)
        raise KeyError("a defect of the caller")

    with OutputForwarder(listen) as follower:
        for _ in range(5000):
            follower.forward("stdout", b"x")
    assert heard == [b"x"]
    assert "is called no more" in caplog.text


def test_l08_a_listener_that_is_too_slow_hears_how_much_it_missed() -> None:
    heard: list[bytes] = []
    told_all = threading.Event()

    def listen(_name: str, chunk: bytes) -> None:
        assert told_all.wait(60)
        heard.append(chunk)

    with OutputForwarder(listen) as follower:
        for _ in range(1000):
            follower.forward("stdout", b"x")
        told_all.set()
    text = b"".join(heard)
    missed = sum(int(number) for number in re.findall(rb"(\d+) bytes dropped here", text))
    assert missed > 0
    assert text.count(b"x") + missed == 1000


def _deep_size(value: object) -> int:
    items = value if isinstance(value, (list, tuple, deque)) else ()
    return sys.getsizeof(value) + sum(sys.getsizeof(item) for item in items)


def test_a_log_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"first")
    with pytest.raises(FileExistsError), Spool(tmp_path / "log", 10):
        pass


def test_a_log_is_complete_when_the_check_is_interrupted(tmp_path: Path) -> None:
    with suppress(KeyboardInterrupt), Spool(tmp_path / "log", 4) as spool:
        spool.write(b"abcdefgh")
        raise KeyboardInterrupt
    assert (tmp_path / "log").read_bytes().startswith(b"ab\n[... 4 bytes")
    assert (tmp_path / "log").read_bytes().endswith(b"gh")


# --- text

NEUTRAL = {
    "plain": ("a b\tc\n", "a b\tc\n"),
    "colour": ("\x1b[31mred\x1b[0m", "red"),
    "cursor": ("a\x1b[2J\x1b[1;1Hb", "ab"),
    "private-mode": ("\x1b[?1049hx", "x"),
    "c1-csi": ("\x9b31mred", "red"),
    "title": ("\x1b]0;evil\x07x", "x"),
    "osc52-clipboard": ("\x1b]52;c;cm0gLXJm\x07x", "x"),
    "osc52-st": ("\x1b]52;c;cm0gLXJm\x1b\\x", "x"),
    "osc8-link": ("\x1b]8;;https://evil\x1b\\click\x1b]8;;\x1b\\", "click"),
    "c1-osc": ("\x9d0;evil\x9cx", "x"),
    "dcs": ("\x1bPq#0;2;0\x1b\\x", "x"),
    "apc": ("\x1b_Gf=32;AAAA\x1b\\x", "x"),
    "two-characters": ("\x1bcx\x1b7y\x1b(Bz", "xyz"),
    "unfinished-escape": ("x\x1b", "x"),
    "unfinished-csi": ("x\x1b[31", "x31"),
    "crlf": ("a\r\nb\n", "a\nb\n"),
    "carriage-return": ("real\rfake", "real\nfake"),
    "backspace": ("ab\x08\x08cd", "ab\ufffd\ufffdcd"),
    "bell": ("\x07", "\ufffd"),
    "nul": ("a\0b", "a\ufffdb"),
    "delete": ("\x7f", "\ufffd"),
    "c1": ("\x85\x8d", "\ufffd\ufffd"),
    "vertical-tab": ("a\x0b\x0cb", "a\ufffd\ufffdb"),
    "bidi-override": ("x\u202egnp.sh", "x\\u202egnp.sh"),
    "bidi-isolate": ("\u2066x\u2069", "\\u2066x\\u2069"),
    "arabic-letter-mark": ("a\u061cb", "a\\u061cb"),
    "zero-width": ("a\u200bb\u200d", "a\\u200bb\\u200d"),
    "tag-characters": ("a\U000e0041", "a\\ue0041"),
    "byte-order-mark": ("\ufeffa", "\\ufeffa"),
    "line-separators": ("a\u2028b\u2029", "a\\u2028b\\u2029"),
    "surrogate": ("a\udcff", "a\ufffd"),
    "other-scripts": ("\u00e9 \u4e2d \U0001f600", "\u00e9 \u4e2d \U0001f600"),
}


@pytest.mark.parametrize(("text", "plain"), NEUTRAL.values(), ids=NEUTRAL)
def test_i09_i11_guest_text_is_made_harmless(text: str, plain: str) -> None:
    assert neutralise(text) == plain


SNIPPETS = st.sampled_from(
    ["\x1b", "[", "]", "31m", "\x07", "\\", "P", "\x9b", "\x9c", "\x9d", "\r", "\n", "a", "\u202e"]
)


@settings(max_examples=200)
@given(st.text(alphabet=st.characters(codec=None), max_size=30) | st.lists(SNIPPETS, max_size=12).map("".join))
def test_i09_nothing_that_controls_survives_and_twice_is_once(text: str) -> None:
    plain = neutralise(text)
    assert not [c for c in plain if c not in "\n\t" and unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"}]
    assert neutralise(plain) == plain
    plain.encode("utf-8")


@given(st.binary(max_size=40))
def test_i10_any_bytes_can_be_shown(raw: bytes) -> None:
    assert neutralise(decode_for_display(raw)) == decode_for_display(raw)


PIECES = st.sampled_from(
    [b"\x1b", b"[", b"]", b"31", b";" * 70, b"m", b"\x07", b"\\", b"P", b" " * 9, b"\r", b"\n", b"a", b"\xff"]
) | st.sampled_from([b"\xc2", b"\x9b", b"\x9c", b"\x9d", b"\xe2\x80\xae", b"\xf0\x9f", b"\x98\x80", b"\xed\xa0\x80"])


@settings(max_examples=400)
@given(st.lists(PIECES, max_size=14).map(b"".join) | st.binary(max_size=30), st.lists(st.integers(0, 40), max_size=8))
def test_i09_i10_a_stream_is_shown_the_same_however_it_is_cut(raw: bytes, cuts: list[int]) -> None:
    """In pieces cut anywhere, and byte by byte."""
    edges = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    for ends in (edges, list(range(len(raw) + 1))):
        shower = DisplayDecoder()
        fed = [shower.feed(raw[start:end]) for start, end in pairwise(ends)]
        assert "".join([*fed, shower.finish()]) == decode_for_display(raw)


def test_i09_a_sequence_without_an_end_is_not_kept_in_memory() -> None:
    shower = DisplayDecoder()
    for start in (b"\x1b]0;", b"\x1b[1", b"\x1bP"):
        shower.feed(start)
        for _ in range(100):
            shower.feed(b"1" * 10_000)
        assert sum(sys.getsizeof(value) for value in vars(shower).values()) < 2000


@pytest.mark.parametrize("text", ["\x1b]" * 50_000, "\x1b[" + "1;" * 100_000, "\x1bP" * 50_000, "\x1b" * 100_000])
def test_i07_hostile_text_takes_linear_time(text: str) -> None:
    started = time.monotonic()
    neutralise(text)
    assert time.monotonic() - started < 2 * slowness()


# --- reports

SUITE = b"""<testsuite tests="3" failures="1" errors="1" skipped="0" name="s">
<testcase classname="pkg.T" name="ok"/>
<testcase classname="pkg.T" name="bad"><failure message="assert 1 == 2">trace</failure></testcase>
<testcase name="worse"><error>boom</error></testcase>
</testsuite>"""
LAUGHS = b"""<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><testsuite name="&b;"/>"""
UNUSABLE = {
    "empty": b"",
    "no-xml": b"hello",
    "cut": SUITE[:-20],
    "html": b"<html></html>",
    "i15-billion-laughs": LAUGHS,
    "i15-dtd": b'<!DOCTYPE x SYSTEM "http://127.0.0.1:1/x.dtd"><testsuite tests="1"/>',
    "i15-external-entity": b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><testsuite name="&e;" tests="1"/>',
    "i15-parameter-entity": b'<!DOCTYPE x [<!ENTITY % e SYSTEM "file:///etc/passwd"> %e;]><testsuite tests="1"/>',
    "unknown-encoding": b'<?xml version="1.0" encoding="nosuch"?><testsuite tests="1"/>',
    "no-text-encoding": b'<?xml version="1.0" encoding="rot13"?><testsuite tests="1"/>',
    "multi-byte-encoding": b'<?xml version="1.0" encoding="shift_jis"?><testsuite tests="1"/>',
    "bad-utf-8": b'<testsuite tests="1" name="\xff"/>',
}


def test_a_report_is_summed_over_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_bytes(SUITE)
    (tmp_path / "b.xml").write_bytes(b'<testsuites><testsuite tests="2" skipped="1"/>' + SUITE + b"</testsuites>")
    (tmp_path / "c.txt").write_bytes(SUITE)
    failures = (
        TestFailure(name="pkg.T::bad", message="assert 1 == 2"),
        TestFailure(name="worse", message="boom"),
    )
    assert read_report(tmp_path) == Report(tests=8, failures=2, errors=2, skipped=1, failed=failures * 2)


def test_no_report_is_none(tmp_path: Path) -> None:
    assert read_report(tmp_path) is None


@pytest.mark.parametrize("content", UNUSABLE.values(), ids=UNUSABLE)
def test_an_unusable_report_is_none_and_hides_no_other(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_bytes(content)
    assert read_report(tmp_path) is None
    (tmp_path / "other.xml").write_bytes(SUITE)
    found = read_report(tmp_path)
    assert found is not None
    assert found.tests == 3


def _sparse(place: Path) -> None:
    with place.open("wb") as stream:
        stream.truncate(2 << 30)


REPORT_TRAPS: dict[str, Callable[[Path], object]] = {
    "link": lambda p: p.symlink_to("/etc/passwd"),
    "link-to-report": lambda p: p.symlink_to("real"),
    "fifo": lambda p: os.mkfifo(p),
    "directory": lambda p: p.mkdir(),
    "sparse": _sparse,
}


@pytest.mark.parametrize("make", REPORT_TRAPS.values(), ids=REPORT_TRAPS)
def test_i15_a_report_that_is_no_small_regular_file_is_ignored_at_once(
    make: Callable[[Path], object], tmp_path: Path
) -> None:
    (tmp_path / "real").write_bytes(SUITE)
    make(tmp_path / "junit.xml")
    started = time.monotonic()
    assert read_report(tmp_path) is None
    assert time.monotonic() - started < 2 * slowness()


@pytest.mark.parametrize(
    ("count", "tests"),
    [("7", 7), ("-7", 0), ("", 0), ("1e9", 0), ("9" * 30, 0), ("\u0667", 0), ("7.0", 0), (" 7", 0)],
)
def test_a_count_is_a_small_number_or_nothing(count: str, tests: int, tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text(f'<testsuite tests="{count}"/>')
    found = read_report(tmp_path)
    assert found is not None
    assert found.tests == tests


def test_i12_what_a_report_says_is_bounded_and_neutral(tmp_path: Path) -> None:
    case = '<testcase name="&#x202e;{}"><failure message="x&#x9b;31m{}"/></testcase>'
    cases = "".join(case.format("n" * 2000, "m" * 2000) for _ in range(80))
    (tmp_path / "junit.xml").write_text(f'<testsuite tests="80">{cases}</testsuite>')
    found = read_report(tmp_path)
    assert found is not None
    assert len(found.failed) == 50
    assert max(len(f.name) + len(f.message) for f in found.failed) <= 1000
    assert found.failed[0].name.startswith("\\u202en")
    assert found.failed[0].message.startswith("xm")


CASES = {
    "pytest": ('<testcase classname="tests.test_sum" name="test_add"><failure message="no">def f():\n'
               '&gt;       assert add(1, 2) == 4\nE    assert 3 == 4\n\ntests/test_sum.py:5: AssertionError</failure>',
               "tests/test_sum.py", 5),
    "pytest-frames": ('<testcase name="t"><failure message="m">tests/test_a.py:9: \nsrc/a.py:77: ValueError</failure>',
                      "src/a.py", 77),
    "pytest-xunit1": ('<testcase file="tests/test_a.py" line="8" name="t"><failure message="m">tests/test_a.py:9: \n'
                      'src/a.py:77: ValueError</failure>', "tests/test_a.py", 9),
    "go": ('<testcase name="TestAdd"><failure message="Failed">    sum_test.go:12: got 3</failure>', "sum_test.go", 12),
    "rust": ('<testcase name="adds"><failure message="m">thread panicked at src/lib.rs:10:5:\nboom</failure>',
             "src/lib.rs", 10),
    "jest": ('<testcase name="adds"><failure>Error: x\n    at Object.&lt;x&gt; (/workspace/src/sum.test.js:3:17)\n'
             '    at run (/workspace/node_modules/jest/run.js:9:1)\n    at lib/other.js:4:1</failure>',
             "src/sum.test.js", 3),
    "attributes": ('<testcase file="/workspace/spec/a_spec.rb" line="4" name="t"><failure message="expected 4"/>',
                   "spec/a_spec.rb", 4),
    "system": ('<testcase name="t"><error message="m">/usr/lib/python3.11/json.py:3: E</error>', None, None),
    "a-time": ('<testcase name="t"><error message="at 12:30, v1.5:3, http://host:80">x</error>', None, None),
    "line-0": ('<testcase file="a.py" line="0" name="t"><error>a.py:0: x</error>', "a.py", None),
    "hostile": ('<testcase file="a&#x202e;&#10;b" line="٣" name="t"><error/>', "a\\u202e\N{SYMBOL FOR NEWLINE}b", None),
}  # fmt: skip


@pytest.mark.parametrize(("case", "path", "line"), CASES.values(), ids=CASES)
def test_where_a_test_failed_is_read_as_far_as_it_is_said(
    case: str, path: str | None, line: int | None, tmp_path: Path
) -> None:
    (tmp_path / "junit.xml").write_text(f'<testsuite tests="1" failures="1">{case}</testcase></testsuite>')
    found = read_report(tmp_path)
    assert found is not None
    (failure,) = found.failed
    assert (failure.path, failure.line) == (path, line)


def test_a_failure_is_located_at_the_end_of_a_long_text_in_bounded_time(tmp_path: Path) -> None:
    text = "a.b/" * 10**6 + "&#97;" * 10**6 + "\ntests/test_long.py:7: AssertionError"
    (tmp_path / "junit.xml").write_text(
        f'<testsuite tests="1"><testcase name="t"><failure>{text}</failure></testcase></testsuite>'
    )
    started = time.process_time()
    found = read_report(tmp_path)
    assert time.process_time() - started < 5 * slowness()
    assert found is not None
    assert (found.failed[0].path, found.failed[0].line) == ("tests/test_long.py", 7)
    assert len(found.failed[0].message) <= 500


def test_only_so_many_report_files_are_read(tmp_path: Path) -> None:
    for n in range(2_005):
        (tmp_path / f"{n:04}.xml").write_bytes(b'<testsuite tests="1"/>')
    results = CollectedResults()
    found = read_report(tmp_path, results=results)
    assert found is not None
    assert found.tests == 2_000
    assert not results.complete


# --- verdicts


def ending(
    exit_code: int = 0,
    *,
    oom_killed: bool = False,
    timed_out: bool = False,
    stopped: Verdict | None = None,
    lost: bool = False,
    host: bool = False,
) -> ContainerExit:
    started_at = datetime(2026, 1, 2, tzinfo=UTC)
    found = ContainerExit(
        exit_code, oom_killed, timed_out, started_at, 1.5, Counters(), stop_verdict=stopped, report_missing=lost
    )
    return replace(found, host_out_of_memory=host)


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        (ending(0), Verdict.PASSED),
        (ending(1), Verdict.FAILED),
        (ending(137), Verdict.FAILED),
        (ending(125), Verdict.FAILED),
        (ending(255), Verdict.FAILED),
        (ending(0, oom_killed=True), Verdict.OOM_KILLED),
        (ending(137, oom_killed=True), Verdict.OOM_KILLED),
        (ending(0, timed_out=True), Verdict.TIMED_OUT),
        (ending(137, timed_out=True), Verdict.TIMED_OUT),
        (ending(137, oom_killed=True, timed_out=True), Verdict.TIMED_OUT),
        (ending(0, stopped=Verdict.KILLED), Verdict.KILLED),
        (ending(0, stopped=Verdict.DISK_LIMIT), Verdict.DISK_LIMIT),
        (ending(0, lost=True), Verdict.KILLED),
        (ending(0, lost=True, oom_killed=True), Verdict.OOM_KILLED),
        (ending(0, oom_killed=True, host=True), Verdict.KILLED),
        (ending(137, oom_killed=True, host=True, timed_out=True), Verdict.TIMED_OUT),
    ],
)
def test_l02_l19_the_verdict_follows_from_facts(how: ContainerExit, verdict: Verdict) -> None:
    assert judge(how) is verdict


@pytest.mark.parametrize(
    ("wanted", "available", "expected"),
    [
        (2.0, (0, 1), {""}),
        (4.0, (0, 1), {""}),
        (1.0, (0,), {""}),
        (0.5, (0,), {""}),
        (2.0, (), {""}),
        (0.5, (0, 1), {"0", "1"}),
        (1.0, (0, 1, 2), {"0", "1", "2"}),
        (1.2, (0, 1, 2, 3), {"0-1", "1-2", "2-3"}),
        (3.0, (0, 1, 2, 3), {"0-2", "1-3"}),
        (2.0, (4, 5, 6, 7), {"4-5", "5-6", "6-7"}),
        (2.0, (0, 2, 3), {"0,2", "2-3"}),
    ],
)
def test_a_check_gets_neighbouring_cpus_that_exist(
    wanted: float, available: tuple[int, ...], expected: set[str]
) -> None:
    def choose(turn: int) -> str:
        return choose_cpus(wanted, available, lambda choices: turn % choices)

    assert {choose(turn) for turn in range(10)} == expected


class Scripted:
    """An executor that prints and ends as told."""

    def __init__(self, out: bytes, how: ContainerExit) -> None:
        self.out = out
        self.how = how
        self.calls = 0

    def execute(
        self, run_id: str, check: Check, directories: CheckDirectories, streams: Streams, stop_condition: StopCondition
    ) -> ContainerExit:
        self.calls += 1
        streams.stdout(self.out)
        streams.stderr(b"warning\n")
        return self.how


GUEST = GuestSettings(
    "sha256:" + "ab" * 32,
    "runc",
    Path("/mask"),
    Path("/hosts"),
    "i",
    (0, 1),
    Supervisor(Path("/init"), 60),
)
ACCOUNT = GuestAccount((66000, 66000), AccountFiles(Path("/passwd"), Path("/group")))
CHECK = Check(id="test", label="t", argv=("true",), limits=Limits(output_bytes=100))


def test_a_run_is_recorded_as_it_was(tmp_path: Path) -> None:
    place = CheckDirectories(tmp_path, tmp_path / "report", ACCOUNT, "a" * 40, clean_room=True, task_id=None)
    place.report.mkdir()
    (place.report / "junit.xml").write_bytes(SUITE)
    executor = Scripted(b"\x1b[31mfake verdict: passed\n" + b"x" * 200, ending(1))
    heard: list[tuple[str, bytes]] = []
    run = Recorder(executor, GUEST, tmp_path / "logs").run("run-1", CHECK, place, lambda s, c: heard.append((s, c)))
    assert (run.verdict, run.exit_code, run.signal) == (Verdict.FAILED, 1, None)
    assert run.stdout_tail.startswith("fake verdict: passed\n")
    assert (run.stdout_bytes, run.stderr_bytes, run.truncated) == (226, 8, True)
    assert (run.tree, run.image_digest, run.clean_room, run.cached) == ("a" * 40, GUEST.image_digest, True, False)
    assert run.report is not None
    assert (run.stdout_shown_from_byte, run.stderr_shown_from_byte) == (0, 0)
    assert [(f.test, f.message) for f in run.failures] == [("pkg.T::bad", "assert 1 == 2"), ("worse", "boom")]
    assert heard == [("stdout", executor.out), ("stderr", b"warning\n")]
    assert executor.calls == 1
    assert (tmp_path / "logs" / "run-1.stderr").read_bytes() == b"warning\n"


@pytest.mark.parametrize("said", [b"", b"some"], ids=["before its start", "after it wrote"])
def test_a_check_that_did_not_start_leaves_no_log(said: bytes, tmp_path: Path) -> None:
    """Without a record it would be that of a run that was killed, and the newest one."""

    class Failing(Scripted):
        def execute(self, run_id: str, check: Check, directories: CheckDirectories, streams: Streams, _: object) -> Any:
            if self.out:
                streams.stdout(self.out)
            raise SandboxError(ErrorCode.ENGINE_UNAVAILABLE, "gone")

    place = CheckDirectories(tmp_path, tmp_path / "report", ACCOUNT, "a" * 40, clean_room=True, task_id=None)
    with refused(ErrorCode.ENGINE_UNAVAILABLE):
        Recorder(Failing(said, ending(0)), GUEST, tmp_path / "logs").run("run-1", CHECK, place)
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == (
        ["run-1.stderr", "run-1.stdout"] if said else []
    )


@pytest.mark.parametrize("reader", ["report.read_report", "cause.find_cause"])
@pytest.mark.parametrize(
    "error",
    [LookupError("unknown encoding: \x1b[31m\n" + "x" * 9000), RecursionError(), MemoryError(), OverflowError("int")],
    ids=["encoding", "depth", "memory", "number"],
)
def test_s189_a_fault_in_a_reader_is_noted_and_loses_no_verdict(
    reader: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr(f"sandbox.checks.{reader}", fail)
    place = CheckDirectories(tmp_path, tmp_path / "report", ACCOUNT, "a" * 40, clean_room=True, task_id=None)
    place.report.mkdir()
    (place.report / "junit.xml").write_bytes(SUITE)
    run = Recorder(Scripted(b"", ending(1)), GUEST, tmp_path / "logs").run("run-1", CHECK, place)
    assert (run.verdict, run.exit_code) == (Verdict.FAILED, 1)
    assert run.cause is not None
    (note,) = run.notes
    assert type(error).__name__ in note
    (record,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert "run-1" in record.getMessage()
    assert "in fail\n" in record.getMessage(), "where it happened"
    assert "\x1b" not in record.getMessage()
    assert len(record.getMessage()) < 5000


@pytest.mark.parametrize(("other", "kind"), [("", CauseKind.ENVIRONMENT), ("AssertionError", CauseKind.CODE)])
def test_the_cause_of_many_failures_is_that_of_more_than_are_in_the_record(
    other: str, kind: CauseKind, tmp_path: Path
) -> None:
    """Control: one that failed otherwise counts, also past those."""
    said = 'message="locale.Error: unsupported locale setting"'
    cases = [f'<testcase classname="t" name="a{n}"><failure {said}/></testcase>' for n in range(59)]
    cases += [f'<testcase classname="t" name="b"><failure message="{other}"/></testcase>'] if other else []
    place = CheckDirectories(tmp_path, tmp_path / "report", ACCOUNT, "a" * 40, clean_room=True, task_id=None)
    place.report.mkdir()
    (place.report / "junit.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
    run = Recorder(Scripted(b"", ending(1)), GUEST, tmp_path / "logs").run("run-1", CHECK, place)
    assert run.report is not None
    assert run.cause is not None
    assert (len(run.report.failed), run.cause.kind) == (50, kind)
    assert "no locale but C.UTF-8" in run.cause.sentence


def test_s188_output_that_was_not_read_to_its_end_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.checks.output_results.ReadingTime", lambda: ReadingTime(-1.0))
    place = CheckDirectories(tmp_path, tmp_path / "report", ACCOUNT, "a" * 40, clean_room=True, task_id=None)
    place.report.mkdir()
    check = Check(id="test", label="t", argv=("true",), results=ResultPatterns(output="tap"))
    run = Recorder(Scripted(b"ok 1\n", ending(0)), GUEST, tmp_path / "logs").run("run-1", check, place)
    assert (run.verdict, run.report) == (Verdict.PASSED, None)
    assert run.notes == (f"its output was not read to its end: that takes more than {READING_S:g} s",)


def test_a_record_says_in_which_order_tests_ran(tmp_path: Path) -> None:
    """Control: a run in the usual order has no such field, which older controllers of the home would refuse."""
    plain = Check(id="test", label="t", argv=("true",), shuffle={"SEED": "<seed>"})
    place = CheckDirectories(tmp_path, tmp_path / "report", ACCOUNT, "a" * 40, clean_room=True, task_id=None)
    place.report.mkdir()
    for check, expected in ((plain, None), (shuffle_check(plain, 0), 0)):
        run = Recorder(Scripted(b"", ending(0)), GUEST, tmp_path / "logs").run(f"run-{expected}", check, place)
        assert (run.shuffle_seed, run.model_dump().get("shuffle_seed")) == (expected, expected)
        assert ("shuffle_seed" in run.model_dump()) is (expected is not None)


TAP_CHECK = Check(id="test", label="t", argv=("true",), results=ResultPatterns(output="tap"))
OLD_FAILS, BOTH_FAIL = ("not ok", "ok"), ("not ok", "not ok")


class Side:
    """A home in which one run of a check is recorded, and how its results are lost."""

    def __init__(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.monkeypatch = home, monkeypatch

    def record(self, number: int, outcomes: tuple[str, ...], loss: str) -> CheckRun:
        """Run a check in which `old` and `new` end so."""
        folder = self.home.root / f"{number}"
        (folder / "report").mkdir(parents=True)
        place = CheckDirectories(folder, folder / "report", ACCOUNT, "a" * 40, clean_room=True, task_id=None)
        lines = [
            f"{outcome} {at} - {name}\n" for at, outcome, name in zip((1, 2), outcomes, ("old", "new"), strict=True)
        ]
        out, check = "".join(lines), TAP_CHECK
        with self.monkeypatch.context() as patched:
            if loss == "time":
                patched.setattr("sandbox.checks.output_results.ReadingTime", lambda: ReadingTime(-1.0))
            elif loss == "fault":
                patched.setattr("sandbox.checks.report.read_report", self._fail)
            elif loss == "dropped":  # only noise is left
                check = check.model_copy(update={"limits": Limits(output_bytes=20)})
                out = "noise\n" * 9 + out + "noise\n" * 9
            elif loss in {"elements", "bytes", "damaged"}:
                out = ""
                (place.report / "junit.xml").write_bytes(self._write_junit(outcomes, loss))
            elif loss == "no report":
                out = ""
            executor = Scripted(out.encode(), ending(1))
            run = Recorder(executor, GUEST, self.home.logs("task-1")).run(f"run-{number:032x}", check, place)
        save_run(self.home, "task-1", run)
        return run

    @staticmethod
    def _fail(*_arguments: object) -> None:
        raise RecursionError

    @staticmethod
    def _write_junit(outcomes: tuple[str, ...], loss: str) -> bytes:
        cases = [
            f'<testcase name="{name}">{"<failure/>" if outcome == "not ok" else ""}</testcase>'
            for name, outcome in zip(("old", "new"), outcomes, strict=True)
        ]
        more = {"elements": "<a/>" * 250_001, "bytes": " " * 10 * 1024**2, "damaged": "<"}[loss]
        return f"<testsuite>{''.join(cases)}{more}</testsuite>".encode()


@pytest.mark.parametrize("on", ["base", "task", "both"])
@pytest.mark.parametrize("loss", ["time", "dropped", "fault", "elements", "bytes", "damaged"])
def test_results_that_were_lost_hide_no_new_failure(
    loss: str, on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the base had no tests to compare with, and a check that failed there may fail."""
    sides = Side(Home(tmp_path), monkeypatch)
    base = sides.record(1, OLD_FAILS, loss if on in {"base", "both"} else "")
    task = sides.record(2, BOTH_FAIL, loss if on in {"task", "both"} else "")
    found = compare_check("test", load_side(sides.home, base), load_side(sides.home, task))
    assert any("not all tests of its reports are known" in reason for reason in found.reasons)
    for run, name in ((base, "base"), (task, "task")):
        is_here = on in {name, "both"}
        assert (run.report is None, run.results_lost, len(run.notes)) == (is_here, is_here, int(is_here))
    assert not any(map(is_lost, (load_side(sides.home, base), load_side(sides.home, task)))), "a rerun loses them again"


@pytest.mark.parametrize(("base", "task"), [("no report", "no report"), ("no report", "")], ids=["both", "base"])
def test_runs_without_a_report_and_without_loss_are_compared_by_verdict(
    base: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also records of older versions, which do not say that results were lost."""
    sides = Side(Home(tmp_path), monkeypatch)
    before, after = sides.record(1, OLD_FAILS, base), sides.record(2, BOTH_FAIL, task)
    older = CheckRun.model_validate(before.model_dump(exclude={"results_lost"}))
    for run in (before, older):
        found = compare_check("test", load_side(sides.home, run), load_side(sides.home, after))
        assert (found.by, found.reasons) == ("verdict", ())


def test_what_was_lost_is_noted_by_file_and_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = Side(Home(tmp_path), monkeypatch)
    (elements,) = sides.record(1, OLD_FAILS, "elements").notes
    (size,) = sides.record(2, OLD_FAILS, "bytes").notes
    assert "junit.xml (The report has too many elements" in elements
    assert "junit.xml (more than 10 MiB)" in size


def test_names_of_files_that_were_left_out_are_bounded_and_harmless(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}\x1b[31m\n{'x' * 200}.xml").write_bytes(b"<")
    results = CollectedResults()
    assert read_report(tmp_path, results=results) is None
    assert "and 6 more" in results.note
    assert not {"\x1b", "\n"} & set(results.note)
    assert len(results.note) < 1000


def test_coverage_with_a_document_type_is_no_lost_report(tmp_path: Path) -> None:
    """PHPUnit's and jest's have one. The control: another type may be a report."""
    for name, is_complete in (("coverage", True), ("testsuite", False)):
        (tmp_path / "coverage.xml").write_bytes(f"<!DOCTYPE {name} SYSTEM 'x.dtd'><{name}/>".encode())
        results = CollectedResults()
        assert read_report(tmp_path, results=results) is None
        assert (results.complete, results.note == "") == (is_complete, is_complete)


@pytest.mark.parametrize("rules", [{"output": "tap"}, {"passed": "^ok (.*)", "failed": "^not ok (.*)"}], ids=str)
def test_tests_of_an_output_whose_middle_was_dropped_are_not_all_known(rules: dict[str, str], tmp_path: Path) -> None:
    """Else a guest hides a test that fails, and a comparison takes the others for all. Control: a short output."""
    place = CheckDirectories(tmp_path, tmp_path / "report", ACCOUNT, "a" * 40, clean_room=True, task_id=None)
    place.report.mkdir()
    check = CHECK.model_copy(update={"results": ResultPatterns.model_validate(rules)})
    for number, noise in ((1, b""), (2, b"noise\n" * 30)):
        out = b"ok 1\n" + noise + b"not ok 2\n" + noise + b"ok 3\n"
        run = Recorder(Scripted(out, ending(1)), GUEST, tmp_path / "logs").run(f"run-{number}", check, place)
        assert run.report is not None
        path = tmp_path / "logs" / f"run-{number}.tests"
        head = parse_json(path.read_bytes().splitlines()[0], path)
        assert (run.report.tests, head["complete"], len(run.notes)) == ((2, False, 1) if noise else (3, True, 0))


class Counted:
    """Files that are counted once more at the end, and then are more."""

    def __init__(self, verdict: Verdict | None) -> None:
        self.verdict, self.seconds, self.used = verdict, 0.0, DiskUse(10, 1)

    def check_at_end(self) -> Verdict | None:
        return self.verdict

    def count_at_end(self, seconds: float) -> None:
        self.seconds, self.used = seconds, DiskUse(30, 3)


@pytest.mark.parametrize(
    ("verdict", "held"), [(None, DiskUse(30, 3)), (Verdict.DISK_LIMIT, DiskUse(10, 1))], ids=["counts", "was counted"]
)
def test_a_run_has_its_deadline_and_what_its_files_hold_at_the_end(
    tmp_path: Path, verdict: Verdict | None, held: DiskUse
) -> None:
    counted = Counted(verdict)
    place = CheckDirectories(tmp_path, tmp_path, ACCOUNT, "a" * 40, clean_room=True, task_id=None, disk=counted)
    samples = tuple(UsageSample(at_s=float(at), disk_used_bytes=place.read_disk_used()) for at in range(2))
    executor = Scripted(b"", replace(ending(0), samples=samples, wall_time_s=50.0))
    run = Recorder(executor, GUEST, tmp_path).run("run-1", CHECK, place)
    series = UsageSeries.model_validate(parse_json((tmp_path / "run-1.usage").read_bytes(), tmp_path))
    assert run.timeout_s == CHECK.timeout_s
    assert run.verdict is (verdict or Verdict.PASSED)
    assert (run.usage.disk_used_bytes, run.usage.disk_used_files) == (held.bytes, held.files)
    assert [sample.disk_used_bytes for sample in series.samples] == [10, held.bytes]
    assert counted.seconds == (0.0 if verdict else 1.0), "two hundredths of its time"


@pytest.mark.parametrize(
    ("shared", "clean_room", "user", "place"),
    [
        (False, True, "own", "clean room"),
        (True, True, "shared", "fresh room"),
        (False, False, "own", "task"),
        (True, False, "shared", "task"),
    ],
)
def test_a_room_is_clean_only_if_its_guest_has_a_uid_of_its_own(
    *, shared: bool, clean_room: bool, user: str, place: str, tmp_path: Path
) -> None:
    (tmp_path / "report").mkdir()
    account = replace(ACCOUNT, shared=shared)
    directories = CheckDirectories(
        tmp_path, tmp_path / "report", account, "a" * 40, clean_room=clean_room, task_id=None
    )
    run = Recorder(Scripted(b"", ending(0)), GUEST, tmp_path).run("run-1", CHECK, directories)
    assert (run.guest_user, run.place) == (user, place)
    assert run.model_copy(update={"guest_user": None}).place == ("clean room" if clean_room else "task")


FLOODED = Check(id="test", label="t", argv=("true",), limits=Limits(output_total_bytes=100))


@pytest.mark.parametrize(
    ("printed", "how", "verdict"),
    [
        (92, {"exit_code": 0}, Verdict.PASSED),
        (93, {"exit_code": 0}, Verdict.OUTPUT_LIMIT),
        (93, {"exit_code": 1}, Verdict.OUTPUT_LIMIT),
        (93, {"exit_code": 137, "timed_out": True}, Verdict.TIMED_OUT),
        (93, {"exit_code": 137, "stopped": Verdict.KILLED}, Verdict.KILLED),
        (93, {"exit_code": 0, "oom_killed": True}, Verdict.OOM_KILLED),
    ],
)
def test_too_much_output_of_both_streams_is_a_verdict_unless_something_else_ended_it(
    printed: int, how: dict[str, Any], verdict: Verdict, tmp_path: Path
) -> None:
    """8 bytes go to stderr."""
    (tmp_path / "report").mkdir()
    place = CheckDirectories(tmp_path, tmp_path / "report", ACCOUNT, "a" * 40, clean_room=False, task_id=None)
    run = Recorder(Scripted(b"x" * printed, ending(**how)), GUEST, tmp_path).run("run-1", FLOODED, place)
    assert (run.verdict, run.stdout_bytes) == (verdict, printed)


def test_a_check_is_told_to_end_once_it_has_printed_too_much(tmp_path: Path) -> None:
    """Control: before the last byte there is no reason, and a reason of the caller's goes first."""
    said: list[Verdict | None] = []

    class Asking(Scripted):
        def execute(
            self,
            run_id: str,
            check: Check,
            directories: CheckDirectories,
            streams: Streams,
            stop_condition: StopCondition,
        ) -> ContainerExit:
            said.append(stop_condition())
            streams.stdout(b"x" * 100)
            said.append(stop_condition())
            streams.stderr(b"x")
            said.append(stop_condition())
            return self.how

    (tmp_path / "report").mkdir()
    place = CheckDirectories(tmp_path, tmp_path / "report", ACCOUNT, "a" * 40, clean_room=False, task_id=None)
    Recorder(Asking(b"", ending(0)), GUEST, tmp_path).run("run-1", FLOODED, place)
    assert said == [None, None, Verdict.OUTPUT_LIMIT]


def test_a_heartbeat_goes_on_until_the_guest_has_ended(tmp_path: Path) -> None:
    """One with each question whether to stop, also after the answer was yes."""
    beats: list[int] = []
    said: list[Verdict | None] = []

    class Asking(Scripted):
        def execute(
            self, run_id: str, check: Check, place: CheckDirectories, streams: Streams, why_stop: StopCondition
        ) -> ContainerExit:
            said.extend(why_stop() for _ in range(3))
            return self.how

    (tmp_path / "report").mkdir()
    place = CheckDirectories(tmp_path, tmp_path / "report", ACCOUNT, "a" * 40, clean_room=False, task_id=None)
    recorder = Recorder(Asking(b"", ending(137, stopped=Verdict.KILLED)), GUEST, tmp_path)
    stops = with_heartbeat(lambda: Verdict.KILLED if len(beats) > 2 else None, lambda: beats.append(1))
    recorder.run("run-1", CHECK, place, None, stops)
    assert (said, len(beats)) == ([None, Verdict.KILLED, Verdict.KILLED], 4), "the first before it starts"


@pytest.mark.parametrize("how", [ending(137, timed_out=True), ending(0, oom_killed=True)], ids=["deadline", "memory"])
def test_what_we_or_the_kernel_killed_carries_its_signal(how: ContainerExit, tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    place = CheckDirectories(tmp_path, tmp_path / "report", ACCOUNT, "a" * 40, clean_room=False, task_id=None)
    assert Recorder(Scripted(b"", how), GUEST, tmp_path).run("run-1", CHECK, place).signal == 9
