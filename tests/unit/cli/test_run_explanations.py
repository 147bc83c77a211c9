"""What people read about the end of a check: never a bare number."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
import pytest

from sandbox.checks.cause import EXIT_STATUS_ONLY
from sandbox.cli.invocation import Invocation
from sandbox.cli.run_explanations import explain
from sandbox.cli.verdicts import CheckProgress, show_runs
from sandbox.models import (
    Cause,
    CauseKind,
    CheckRun,
    Limits,
    Pressure,
    Report,
    ServiceLimits,
    ServiceRun,
    TestFailure,
    Usage,
    Verdict,
)

MIB = 1024**2
LIMITS = Limits(
    memory_bytes=64 * MIB,
    pids=32,
    file_bytes=MIB,
    output_bytes=1000,
    output_total_bytes=MIB,
    disk_bytes=50 * MIB,
    disk_files=10,
)


def run(verdict: Verdict, exit_code: int | None = 0, *, usage: dict[str, Any] | None = None, **more: Any) -> CheckRun:
    document = {
        "run_id": "run-" + "0" * 32,
        "check_id": "test",
        "task_id": None,
        "verdict": verdict,
        "exit_code": exit_code,
        "signal": None,
        "started_at": datetime(2026, 1, 2, tzinfo=UTC),
        "wall_time_s": 12.34,
        "usage": Usage(limits=LIMITS, **{"oom_kills": 0, **(usage or {})}),
        "stdout_tail": "",
        "stderr_tail": "",
        "stdout_bytes": 0,
        "stderr_bytes": 0,
        "truncated": False,
        "tree": "a" * 40,
        "clean_room": True,
        "cached": False,
        "image_digest": "sha256:" + "0" * 64,
        "runtime": "runc",
        "report": None,
    }
    return CheckRun(**{**document, **more})


P, F, T, M, K, D = (
    Verdict.PASSED,
    Verdict.FAILED,
    Verdict.TIMED_OUT,
    Verdict.OOM_KILLED,
    Verdict.KILLED,
    Verdict.DISK_LIMIT,
)
SERVICE = ServiceRun(
    name="db", image_digest="sha256:1", ready_after_s=0.1, ended_early=True, output_bytes=0, limits=ServiceLimits()
)
ENDINGS = {
    "passed": (run(P), []),
    "without-a-service": (run(P, services=(SERVICE,)), ["the service db ended before the check: this pass does not"]),
    "with-its-service": (run(P, services=(SERVICE.model_copy(update={"ended_early": False}),)), []),
    "failed": (run(F, 1), ["it ended with exit code 1"]),
    "no-signal": (run(F, 200), ["it ended with exit code 200"]),
    "not-found": (run(F, 127), ["exit code 127: ", "a command was not found"]),
    "not-executable": (run(F, 126), ["cannot be executed"]),
    "not-started": (run(F, None), ["could not be started"]),
    "signal": (run(F, None, signal=11), ["ended by signal 11 (SIGSEGV): it used memory that is not its own"]),
    "signal-in-a-shell": (run(F, 139), ["exit code 139: a program it ran was ended by SIGSEGV: it used memory"]),
    "137-is-not-memory": (run(F, 137), ["ended by SIGKILL: sent by one of its own processes"]),
    "137-and-nobody-counts": (run(F, 137, usage={"oom_kills": None}), ["SIGKILL", "by the kernel for lack of memory"]),
    "real-time-signal": (run(F, None, signal=40), ["ended by signal 40: "]),
    "file-size": (run(F, 153), ["SIGXFSZ: a file grew past 1 MiB (limits.file_bytes)"]),
    "forbidden-call": (run(F, None, signal=31), ["SIGSYS", "guests may not make"]),
    "deadline": (run(T, 137, signal=9), ["deadline after 12.3 s", "timeout_s"]),
    "memory": (
        run(M, 137, signal=9, usage={"oom_kills": 1, "memory_peak_bytes": 63 * MIB}),
        ["memory limit: its peak was 63 MiB, the limit is 64 MiB (limits.memory_bytes)", "/tmp"],
    ),
    "memory-unmeasured": (run(M, 0), ["memory limit: the limit is 64 MiB"]),
    "killed": (run(K, 137), ["stopped on request: by `check stop`"]),
    "memory-of-all": (
        run(K, 137, usage={"oom_kills": 1, "host_out_of_memory": True}),
        ["all guests of this host together", "all_memory_bytes"],
    ),
    "no-report": (run(K, None), ["without a report"]),
    "never-began": (run(K, None, wall_time_s=0.0), ["stopped on request before it started"]),
    "output": (run(Verdict.OUTPUT_LIMIT, None), ["more than 1 MiB, stdout and stderr", "(limits.output_total_bytes)"]),
    "disk-bytes": (
        run(D, None, usage={"disk_used_bytes": 51 * MIB, "disk_used_files": 3}),
        ["at least 51 MiB of 50 MiB (limits.disk_bytes)"],
    ),
    "disk-files": (run(D, None, usage={"disk_used_bytes": 0, "disk_used_files": 11}), ["more than 10 files"]),
    "disk-of-the-host": (run(D, None), ["host's disk is almost full", "disk.min_free_bytes"]),
    "disk-of-a-task": (
        run(D, None, clean_room=False),
        ["the files it wrote are still in the task", "`sandbox task clean "],
    ),
    "disk-of-a-passed": (
        run(P, usage={"disk_used_bytes": 51 * MIB, "disk_used_files": 3}),
        ["its files take 51 MiB in 3 files, more than its limit"],
    ),
    "disk-below": (run(P, usage={"disk_used_bytes": 50 * MIB, "disk_used_files": 10}), []),
    "processes": (run(F, 1, usage={"pids_peak": 32}), ["limit of 32 processes and threads", "limits.pids"]),
    "processes-of-a-passed": (run(P, usage={"pids_peak": 32}), ["limits.pids"]),
    "processes-and-enough": (run(P, usage={"pids_peak": 32, "forks_refused": 0}), []),
    "processes-refused": (run(F, 2, usage={"forks_refused": 7}), ["starting another one failed 7 times (limits.pids)"]),
    "refused-by-a-group": (run(P, usage={"forks_refused": 1, "own_pids_limit": False}), ["all_pids of all guests"]),
    "process-refused": (run(P, usage={"forks_refused": 1}), ["failed once"]),
    "fewer-processes": (run(P, usage={"pids_peak": 31}), []),
    "leftovers": (run(P, usage={"leftover_processes": 2}), ["2 processes were still running"]),
    "leftover": (run(P, usage={"leftover_processes": 1}), ["1 process was still running"]),
    "dropped": (
        run(P, stdout_bytes=1_000_000, truncated=True),
        ["stdout: 977 KiB, of which 976 KiB in the middle were dropped (limits.output_bytes)"],
    ),
    "full-tmp": (
        run(F, 1, stderr_tail="x: No space left on device\n"),
        ['its output says "No space', "512 MiB to /tmp"],
    ),
    "full-tmp-passed": (run(P, stderr_tail="x: No space left on device\n"), []),
    "host-was-busy": (
        run(F, 1, usage={"cpu_time_s": 2.0, "pressure": Pressure(of="host", cpu_s=9.1, memory_s=3.0, io_s=4.0)}),
        ["the host was busy: in 12.3 s its tasks waited 9.1 s for CPU, 4.0 s for I/O"],
    ),
    "guest-waited": (
        run(T, 137, signal=9, usage={"pressure": Pressure(of="guest", memory_s=6.0), "cpu_throttled_s": 5.0}),
        ["it was slowed down: in 12.3 s its tasks waited 6.0 s for memory", "held it back for 5.0 s", "limits.cpus"],
    ),
    "busy-and-passed": (run(P, usage={"pressure": Pressure(of="host", cpu_s=9.0), "cpu_throttled_s": 9.0}), []),
    "descriptors": (run(F, 1, stdout_tail="Too many open files"), ["4,096"]),
}


@pytest.mark.parametrize(("ended", "said"), ENDINGS.values(), ids=ENDINGS)
def test_how_a_check_ended_is_said_in_words(ended: CheckRun, said: list[str]) -> None:
    lines = explain(ended)
    text = "\n".join(lines)
    assert not [words for words in said if words not in text], text
    assert bool(lines) == bool(said), text
    assert not [line for line in lines if "\n" in line or len(line) > 160]


QUIET = {
    "unknown": {},
    "short": {"pressure": Pressure(of="host", cpu_s=3.0, memory_s=0.0, io_s=0.0), "cpu_throttled_s": 3.0},
    "waited-for-itself": {"cpu_time_s": 20.0, "pressure": Pressure(of="guest", cpu_s=12.0)},
}


@pytest.mark.parametrize("verdict", [F, T])
@pytest.mark.parametrize("usage", QUIET.values(), ids=QUIET)
def test_a_little_pressure_is_not_worth_a_line(verdict: Verdict, usage: dict[str, Any]) -> None:
    said = explain(run(verdict, 1, usage=usage))
    assert len(said) == 1 + (verdict is T and "cpu_time_s" in usage), "what it got of the CPU is said at a deadline"
    assert "slowed down" not in "".join(said)


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("exit_code", [None, 0, 1, 125, 128, 129, 137, 192, 193, 255])
def test_every_ending_but_a_pass_has_its_words(verdict: Verdict, exit_code: int | None) -> None:
    assert bool(explain(run(verdict, exit_code))) == (verdict is not Verdict.PASSED)


# --- a crash, and the cause


def printed(found: CheckRun, capsys: pytest.CaptureFixture[str]) -> list[str]:
    with click.Context(click.Command("run")):
        show_runs([found])
    return capsys.readouterr().out.splitlines()


SOME_FAILED = Report(tests=3, failures=1, errors=0, skipped=0, failed=(TestFailure(name="a::b", message="no"),))
CRASH = Cause(kind=CauseKind.CODE, sentence="a program it ran was ended by SIGSEGV")


@pytest.mark.parametrize("how", [{"exit_code": 139}, {"exit_code": 139, "signal": 11}, {"exit_code": 2}])
def test_a_report_of_tests_hides_no_crash(how: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    said = "make: *** [Makefile:2: test] Error 139\n" if how["exit_code"] == 2 else "Segmentation fault\n"
    lines = printed(run(F, **how, stderr_tail=said, report=SOME_FAILED, cause=CRASH), capsys)
    assert "3 tests, 1 failed reported before a crash" in lines[0]
    where = {words: next(i for i, line in enumerate(lines) if words in line) for words in (CRASH.sentence, said[:-1])}
    assert where[CRASH.sentence] < where[said[:-1]] < next(i for i, line in enumerate(lines) if "a::b" in line)


def test_tests_of_a_run_that_lost_results_are_not_called_all(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(run(F, exit_code=1, report=SOME_FAILED, results_lost=True), capsys)
    assert "3 tests, 1 failed (not all known)" in lines[0]


def test_a_part_of_a_check_is_shown_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(run(Verdict.PASSED, 0, arguments=("tests/a.py::b", "c")), capsys)
    assert "only tests/a.py::b c" in lines[0]


def test_a_warning_is_repeated_after_the_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    with click.Context(click.Command("run"), obj=Invocation()):
        CheckProgress().watch().warn("Without the packages")
        assert "note: Without" not in capsys.readouterr().err
    assert "note: Without the packages\n" in capsys.readouterr().err


def test_without_a_crash_the_failing_tests_are_enough(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(run(F, 1, stderr_tail="noise\n", report=SOME_FAILED), capsys)
    assert [line for line in lines if "a::b" in line]
    assert not [line for line in lines if "noise" in line or "crash" in line]


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (CauseKind.ENVIRONMENT, "failed (environment)"),
        (CauseKind.GUEST_INFRASTRUCTURE, "failed (a limit of the guest)"),
        (CauseKind.CODE, "failed  12.3 s"),
        (CauseKind.UNKNOWN, "failed  12.3 s"),
    ],
)
def test_the_cause_stands_in_the_summary_and_below_it(
    kind: CauseKind, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cause = Cause(kind=kind, sentence="there is no\n'x'")
    lines = printed(run(F, 1, cause=cause), capsys)
    assert shown in lines[0]
    assert f"      cause: {kind}: there is no\u2424'x'" in lines


def test_a_cause_that_explains_nothing_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(run(F, 1, cause=Cause(kind=CauseKind.UNKNOWN, sentence=EXIT_STATUS_ONLY)), capsys)
    assert not [line for line in lines if "cause" in line]


@pytest.mark.parametrize(("sizes", "stream"), [((0, 5), " --stream stderr"), ((5, 5), ""), ((5, 0), ""), ((0, 0), "")])
def test_the_command_for_the_whole_log_names_the_stream_that_has_it(
    sizes: tuple[int, int], stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(Verdict.FAILED, 1).model_copy(update={"stdout_bytes": sizes[0], "stderr_bytes": sizes[1]})
    with click.Context(click.Command("run")):
        show_runs([found], "ours")
    assert f"      full log: sandbox check log ours {found.run_id}{stream}" in capsys.readouterr().out.splitlines()


def test_the_first_error_is_shown_before_the_last_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Control: without an error above them there are only the last lines."""
    noise = [f"line {number}" for number in range(40)]
    for printed, first in ((noise, "line 25"), (["ok", "x.c:1: error: bad", *noise], "x.c:1: error: bad")):
        found = run(Verdict.FAILED, 1).model_copy(update={"stdout_tail": "\n".join(printed)})
        with click.Context(click.Command("run")):
            show_runs([found])
        shown = [line.partition(" | ")[2] for line in capsys.readouterr().out.splitlines() if " | " in line]
        assert (shown[0], shown[-1]) == (first, "line 39")
        assert ("..." in shown) == (first != "line 25")


def failing(count: int, message: str = "assert 1 == 2\n +1\n -2\nmore") -> Report:
    shown = tuple(TestFailure(name=f"t{n}", message=message, path="a.py", line=n) for n in range(min(count, 50)))
    return Report(tests=count + 5, failures=count, errors=0, skipped=0, failed=shown)


def test_failing_tests_say_what_they_asserted_and_where_at_most_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(run(F, 1, report=failing(2), stderr_tail="noise\n"), capsys)
    shown = [line.strip() for line in lines if line.startswith("      ")]
    place = shown.index("x t0 (a.py:0): assert 1 == 2")
    assert shown[place + 1 : place + 6] == ["+1", "-2", "x t1 (a.py:1): assert 1 == 2", "+1", "-2"]
    assert not [line for line in lines if "noise" in line or "more" in line]
    many = printed(run(F, 1, report=failing(300)), capsys)
    assert len(many) < 26
    assert any("and 294 more: sandbox check results run-" in line for line in many)


def test_findings_of_a_compiler_are_errors_and_no_tests(capsys: pytest.CaptureFixture[str]) -> None:
    report = failing(3).model_copy(update={"kind": "diagnostics", "tests": 3})
    assert "(3 errors" in printed(run(F, 1, report=report), capsys)[0]


@pytest.mark.parametrize(
    ("tests", "kind", "warns"), [(0, "tests", True), (1, "tests", False), (0, "diagnostics", False)]
)
def test_a_check_that_passed_without_a_test_says_so(tests: int, kind: Any, warns: bool) -> None:
    report = Report(tests=tests, failures=0, errors=0, skipped=0, failed=(), kind=kind)
    assert any("0 tests" in line for line in explain(run(Verdict.PASSED, 0, report=report))) is warns


@pytest.mark.parametrize(
    ("said", "warns"),
    [
        ("Ran 0 tests in 0.000s\n\nOK\n", True),
        ("Ran 0 tests in 0.000s\n\nOK\nRan 2 tests in 0.100s\n\nOK\n", False),
        ("compiled\n", False),
        (f"Ran {'9' * 5000} tests in 0.000s\n", False),
    ],
)
def test_a_check_that_passed_without_a_report_warns_if_unittest_ran_nothing(said: str, warns: bool) -> None:
    assert any("0 tests" in line for line in explain(run(Verdict.PASSED, 0, stderr_tail=said))) is warns


RECURSED = "Making check in src\nmake[1]: Entering directory '/workspace/src'\nmake  check-am\n"
NOTHING = "make[1]: Nothing to be done for 'check-am'.\nmake[1]: Leaving directory '/workspace/src'\n"


@pytest.mark.parametrize(
    ("printed", "check_id", "warns"),
    [
        (RECURSED + NOTHING, "test", True),
        (RECURSED, "test", False),
        ("make: 'test' is up to date.\n", "api.test", True),
        ("No tests defined for A::B extension.\n", "test", True),
        (RECURSED + "./t\n" + NOTHING, "test", False),
        ("", "test", False),
        (NOTHING, "build", False),
    ],
)
def test_a_make_that_ran_no_test_says_so(printed: str, check_id: str, warns: bool) -> None:
    lines = explain(run(Verdict.PASSED, 0, check_id=check_id, stdout_tail=printed))
    assert any("make had no test to run" in line for line in lines) is warns
    cut = run(Verdict.PASSED, 0, check_id=check_id, stdout_tail=printed, truncated=True)
    assert not any("no test to run" in line for line in explain(cut)), "the rest may be tests"


def launch(ended: Verdict, code: int | None, **last: Any) -> CheckRun:
    """A launch of which this was the last phase."""
    ready = {"phase": "ready", "verdict": "passed", "wall_time_s": 0.1}
    return run(ended, code, check_id="launch", phases=[ready, {"wall_time_s": 1.0, **last}])


PROBE: dict[str, Any] = {"phase": "probe", "name": "answer", "verdict": "failed"}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (launch(F, 1, **PROBE, why="its output does not match '42'", exit_code=0), []),
        (launch(F, 1, **PROBE, why="exit code 3 instead of 0", exit_code=3), []),
        (launch(F, 7, phase="soak", verdict="failed", why="the application ended", exit_code=7),
         ["it ended with exit code 7"]),
        (launch(T, None, phase="stop", verdict="timed_out"), ["deadline_s of [launch.stop]"]),
        (launch(T, None, phase="probe", name="a", verdict="timed_out"), ["deadline_s of the probe 'a'"]),
        (launch(T, None, phase="ready", verdict="timed_out"), ["deadline_s of [launch.ready]"]),
        (launch(T, None, phase="soak", verdict="timed_out", why="its guest ended"), ["all deadlines of [launch]"]),
    ],
)  # fmt: skip
def test_a_launch_is_blamed_on_the_phase_that_ended_it(found: CheckRun, said: list[str]) -> None:
    """Never on `timeout_s` of the check, which a launch does not have, nor on an exit code that no program had."""
    text = "\n".join(explain(found))
    assert "timeout_s" not in text
    assert all(part in text for part in said), text
    assert said or "exit code" not in text


def test_what_a_failed_probe_printed_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """As text of a guest. Control: what a probe printed that passed is not."""
    show_runs([launch(F, 1, **PROBE, why="exit code 1", output="first\nTraceback\x1b[2J\n")])
    assert "      | Traceback\n" in (shown := capsys.readouterr().out)
    assert "\x1b" not in shown
    show_runs([launch(P, 0, **{**PROBE, "verdict": "passed"}, output="fine\n")])
    assert "fine" not in capsys.readouterr().out
