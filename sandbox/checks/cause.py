"""Why a check did not pass: the code, its environment, or the guest itself. Pure, except that `is_declared` reads the
project's files. A cause explains a verdict and never changes it.

Facts come first: those of the kernel, the engine and PID 1, and the exit status of our own helper. Then comes the test
report, then the output (symptoms.py). Without any of these only the exit status is known.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sandbox.checks.crash import find_crash, find_crash_place
from sandbox.lazy_module import LazyModule
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import Cause, CauseKind, Check, CheckRun, Report, Verdict

if TYPE_CHECKING:
    from sandbox.checks import symptoms
    from sandbox.checks.symptoms import IsDeclared
else:  # loaded for a check that failed (docs/adr/0089)
    symptoms = LazyModule("sandbox.checks.symptoms")

EXIT_STATUS_ONLY = "only its exit status is known; its output may say more"
"""The sentence of a cause without an explanation."""

HELPER = "sandbox-python-check"
"""The helper of the image `python`, which documents its exit statuses (images/python)."""
_NOTHING_TO_BUILD, _NOT_IN_WHEELHOUSE, _NO_BACKEND = 65, 69, 72
_NO_SCRIPT = 65
_NOT_EXECUTABLE = 126
_LACKS = lazy_pattern(
    rf"^{HELPER}: ([A-Za-z0-9][\w.,<>=!~;\[\] -]{{0,100}}?)(?: \(from [^)]{{1,100}}\))? is not in the "
)
_COLLECTING = "collection failure"  # pytest's message for a module that it could not import; the output has details
FILE_FAILED = "the file failed outside of its tests; the output has the error"
"""Our message for a file that `node --test` could not load, or that ended with an error of its own."""

NO_TEST_RAN = "it ran 0 tests: that it passed says nothing about the code"
NO_COMMAND_RAN = "make had no test to run: its status is not about the code"
"""Remarks about a run that passed, see `find_empty_pass`."""
_MAKE_RECURSES = lazy_pattern(  # make, and automake's recursion; whether a silent test ran in between is not said
    r"Making [\w-]+ in \S+|make +[\w-]+|make(?:\[\d+\])?: (?:Entering|Leaving) directory '.*'"
)
_MAKE_IS_IDLE = lazy_pattern(  # make and ExtUtils::MakeMaker
    r"make(?:\[\d+\])?: (?:Nothing to be done for '.*'\.|'.*' is up to date\.)|No tests defined for .* extension\."
)
_RAN = lazy_pattern(r"^Ran (\d{1,9}) tests? in \d+\.\d{3}s$", re.MULTILINE)  # unittest, also of Django

_NODE_HELPER = "sandbox-node-check"
_ONCE_MORE = f"{_NODE_HELPER}: a package writes into its own folder: "
_REFUSED_WRITE = lazy_pattern(
    r"(?:EROFS|EACCES): [\w -]{1,30}, \w{1,20} '(?:/sandbox-layers/|(?:[^']{0,200}/)?node_modules/)"
)
_PLACEHOLDER = f"{_NODE_HELPER}: package.json has only npm's placeholder as its script `test`"

_ENVIRONMENT, _GUEST, _CODE, _UNKNOWN = (
    CauseKind.ENVIRONMENT,
    CauseKind.GUEST_INFRASTRUCTURE,
    CauseKind.CODE,
    CauseKind.UNKNOWN,
)
_LIMIT_SENTENCES = {
    Verdict.OOM_KILLED: "it reached its memory limit (limits.memory_bytes)",
    Verdict.OUTPUT_LIMIT: "it printed more than its limit (limits.output_total_bytes)",
    Verdict.DISK_LIMIT: "it reached its disk limit, or the host's disk is nearly full",
}


def find_cause(check: Check, run: CheckRun, is_declared: IsDeclared, without: str = "") -> Cause | None:
    """Explain why a check did not pass; None if it passed. `without`: as `find_symptom`."""
    if run.verdict is Verdict.PASSED:
        return None
    if run.verdict is not Verdict.FAILED:
        return _cause_from_end(run)
    known = (
        _cause_from_facts(check, run, is_declared, without)
        or _cause_from_tests(run, is_declared, without)
        or symptoms.find_symptom(_lines(check, run), is_declared, without)
        or symptoms.find_empty_run(_lines(check, run), run.exit_code)
        or _cause_from_counts(run)
        or symptoms.find_stop(_lines(check, run))
        or _cause_from_build(check, run)
        or _cause_from_collecting(run)
    )
    return known or Cause(kind=_UNKNOWN, sentence=EXIT_STATUS_ONLY)


def find_empty_pass(run: CheckRun) -> str:
    """A remark about a check that passed without a test; '' for others. A runner that finds no test may succeed: its
    report has none then. Without a report unittest says so, or a check `test` printed only what make says without a
    command.
    """
    if run.verdict is not Verdict.PASSED:
        return ""
    if run.report is not None:
        return NO_TEST_RAN if run.report.kind == "tests" and not run.report.tests else ""
    if run.truncated:  # the rest may be tests
        return ""
    counts = _RAN.findall(run.stderr_tail)
    if counts and not any(map(int, counts)):
        return NO_TEST_RAN
    is_test = run.check_id.rpartition(".")[2] == "test"
    lines = run.stdout_tail.splitlines() if is_test else []
    said = [line for line in lines if not _MAKE_RECURSES.fullmatch(line)]
    return NO_COMMAND_RAN if said and all(map(_MAKE_IS_IDLE.fullmatch, said)) else ""


def _cause_from_end(run: CheckRun) -> Cause:
    if run.verdict is Verdict.TIMED_OUT:
        return Cause(
            kind=_UNKNOWN,
            sentence=f"it did not end before its deadline: it hangs, or needs longer (timeout_s){describe_cpu(run)}",
        )
    if run.verdict in _LIMIT_SENTENCES:
        return Cause(kind=_GUEST, sentence=_LIMIT_SENTENCES[run.verdict])
    if run.usage.host_out_of_memory and run.verdict is Verdict.KILLED:
        return Cause(kind=_GUEST, sentence="all guests of the host together had no memory left (all_memory_bytes)")
    if run.exit_code is None and run.wall_time_s:
        return Cause(kind=_GUEST, sentence="its guest ended without a report")
    return Cause(kind=_ENVIRONMENT, sentence="it was stopped on request")


def describe_cpu(run: CheckRun) -> str:
    """How much CPU a run got and how long it waited for one, as a clause after a semicolon; '' if it is not known.

    A run that hangs used little and waited little; one on a busy host used little and waited long.
    """
    usage, pressure = run.usage, run.usage.pressure
    if usage.cpu_time_s is None:
        return ""
    text = f"; it got {usage.cpu_time_s:.1f} s of CPU in {run.wall_time_s:.1f} s, of {usage.limits.cpus:g} CPU(s)"
    if pressure is None or pressure.cpu_s is None:
        return text
    who = "its tasks" if pressure.of == "guest" else "tasks of the host"
    return f"{text}, and {who} waited {pressure.cpu_s:.1f} s for one"


def _cause_from_facts(check: Check, run: CheckRun, is_declared: IsDeclared, without: str) -> Cause | None:
    return (
        _cause_from_processes(run)
        or _cause_from_crash(run)
        or _cause_from_helper(check, run, without)
        or _cause_from_start(check, run, is_declared, without if check.argv[0] in {HELPER, _NODE_HELPER} else "")
    )


def _cause_from_processes(run: CheckRun) -> Cause | None:
    usage = run.usage
    uncounted = usage.forks_refused is None and (usage.pids_peak or 0) >= usage.limits.pids
    if usage.forks_refused or uncounted:
        also = ", or all guests together that of all (all_pids)" if usage.own_pids_limit is False else ""
        return Cause(kind=_GUEST, sentence=f"it reached its limit of processes and threads (limits.pids){also}")
    return None


def _cause_from_crash(run: CheckRun) -> Cause | None:
    crash = find_crash(run)
    if crash is None:
        return None
    if crash.name == "SIGXFSZ":
        return Cause(kind=_GUEST, sentence="a file reached the size limit (limits.file_bytes)")
    if crash.name == "SIGSYS":
        return Cause(kind=_ENVIRONMENT, sentence="it made a system call that is denied to guests (docs/hardening.md)")
    at = f" at {place}" if (place := find_crash_place(run)) else ""
    return Cause(kind=_CODE if crash.own_fault else _UNKNOWN, sentence=f"{crash.subject} was ended by {crash.name}{at}")


def _cause_from_helper(check: Check, run: CheckRun, without: str) -> Cause | None:
    if check.argv[0] == _NODE_HELPER and run.exit_code == _NO_SCRIPT:
        said = "only npm's placeholder as its" if _PLACEHOLDER in _lines(check, run) else "no"
        return Cause(kind=_UNKNOWN, sentence=f"package.json has {said} script 'test': there is no test to run")
    if check.argv[0] != HELPER:
        return None
    if run.exit_code == _NOTHING_TO_BUILD:
        return Cause(
            kind=_UNKNOWN, sentence="it has no file that describes a package, and no Python file: no build is possible"
        )
    if run.exit_code not in {_NOT_IN_WHEELHOUSE, _NO_BACKEND}:
        return None
    name = next((match[1] for line in _lines(check, run) if (match := _LACKS.match(line))), "")
    what = f"'{name}'" if name else "a requirement"
    use = "needed to build the project" if run.exit_code == _NO_BACKEND else "a declared dependency"
    where = f"there: {without}" if without else "in the wheel-house of the image (docs/images.md)"
    return Cause(kind=_ENVIRONMENT, sentence=f"{what}, {use}, is not {where}")


def _cause_from_start(check: Check, run: CheckRun, is_declared: IsDeclared, without: str) -> Cause | None:
    """Interpret the exit statuses of shells and PID 1 for missing commands and files that cannot be executed."""
    if run.exit_code == _NOT_EXECUTABLE:
        return Cause(kind=_UNKNOWN, sentence="a file cannot be executed: check its mode and its architecture")
    return symptoms.find_missing_command(_lines(check, run), run.exit_code, is_declared, without)


def _cause_from_tests(run: CheckRun, is_declared: IsDeclared, without: str) -> Cause | None:
    """Use only the failed tests' own messages: other output may be about tests that passed."""
    report = run.report
    if (
        report is None
        or report.kind != "tests"
        or not report.failed
        or any(failure.message in {_COLLECTING, FILE_FAILED} for failure in report.failed)
    ):
        return None
    found = [symptoms.find_symptom(failure.message.splitlines()[:1], is_declared, without) for failure in report.failed]
    first = found[0]
    complete = report.failures + report.errors <= len(found)
    if complete and first is not None and all(cause is not None and cause.kind is first.kind for cause in found):
        return first
    text = _describe_failures(report)
    if first is not None and not complete and all(cause == first for cause in found):
        text = f"{text}, the first {len(found)} because {first.sentence}"
    elif common := Counter(cause.sentence for cause in found if cause is not None).most_common(1):
        (sentence, number), of = common[0], f"{len(found)}" if complete else f"the first {len(found)}"
        text = f"{text}, {number} of {of} because {sentence}" if number * 2 > len(found) else text
    return Cause(kind=_CODE, sentence=text)


def _cause_from_counts(run: CheckRun) -> Cause | None:
    """For files that failed outside of their tests, if the output says no more."""
    report = run.report
    if report is None or all(failure.message != FILE_FAILED for failure in report.failed):
        return None
    return Cause(kind=_CODE, sentence=_describe_failures(report))


def _cause_from_collecting(run: CheckRun) -> Cause | None:
    """For modules of tests that pytest could not import, where no pattern knows the error."""
    failed = run.report.failed if run.report is not None else ()
    names = [failure.path or failure.name for failure in failed if failure.message == _COLLECTING]
    if not names or len(names) < len(failed):
        return None
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return Cause(kind=_UNKNOWN, sentence=f"pytest could not load {names[0]}{more}; its output says why")


def _cause_from_build(check: Check, run: CheckRun) -> Cause | None:
    """For a package that cannot be built, where no pattern knows the error."""
    if check.argv[0] != HELPER or f"{HELPER}: the wheel cannot be built" not in _lines(check, run):
        return None
    said = "its package cannot be built; what its build back-end printed says why, and may name what the image lacks"
    return Cause(kind=_UNKNOWN, sentence=f"{said} (docs/images.md, Debian packages)")


def _describe_failures(report: Report) -> str:
    bad = report.failures + report.errors
    return f"{bad} of {report.tests} tests failed" if report.tests > 1 else "its test failed"


def _lines(check: Check, run: CheckRun) -> Iterator[str]:
    """What it printed; of a script that the node helper ran once more, not what made it do so."""
    again, errors = "", run.stderr_tail
    if check.argv[0] == _NODE_HELPER:
        _, again, errors = errors.rpartition(_ONCE_MORE)
    yield from errors.splitlines()
    yield from (line for line in run.stdout_tail.splitlines() if not (again and _REFUSED_WRITE.search(line)))
