"""JUnit XML: a suite for each check.

The first case of a suite, `verdict`, is what the sandbox says; it decides. The others are what the check's own report
says of its tests, so they are the guest's word.
"""

from __future__ import annotations

from xml.etree import ElementTree

from sandbox.cli.reports.report_data import ReportData, describe_end, plain, tails_of
from sandbox.models import CheckRun, TestOutcome, TestResult, Verdict


def write_junit(data: ReportData) -> str:
    """The report as text."""
    root = ElementTree.Element("testsuites", name="space-sandbox")
    for run in data.summary.runs:
        root.append(_write_suite(run, data.tests.get(run.run_id, ())))
    for field in ("tests", "failures", "skipped"):
        root.set(field, str(sum(int(suite.get(field, "0")) for suite in root)))
    root.set("time", f"{sum(run.wall_time_s for run in data.summary.runs):.3f}")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _write_suite(run: CheckRun, tests: tuple[TestResult, ...]) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=run.check_id, time=f"{run.wall_time_s:.3f}")
    suite.set("timestamp", run.started_at.strftime("%Y-%m-%dT%H:%M:%S"))
    properties = ElementTree.SubElement(suite, "properties")
    for name in ("tree", "image_digest", "runtime", "run_id", "cached"):
        ElementTree.SubElement(properties, "property", name=name, value=str(getattr(run, name)))
    for clause in run.missing_packages:
        ElementTree.SubElement(properties, "property", name="missing_packages", value=plain(clause))
    suite.append(_write_verdict(run))
    suite.extend(_write_test(run.check_id, test) for test in tests)
    suite.set("tests", str(len(tests) + 1))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", "0")
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    return suite


def _write_verdict(run: CheckRun) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=run.check_id, name="verdict", time=f"{run.wall_time_s:.3f}")
    if run.verdict is not Verdict.PASSED:
        failure = ElementTree.SubElement(case, "failure", message=describe_end(run), type=run.verdict.value)
        failure.text = tails_of(run)
    return case


def _write_test(check_id: str, test: TestResult) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=check_id, name=plain(test.test), time=f"{test.time_s or 0.0:.3f}")
    if test.path is not None:
        case.set("file", plain(test.path))
    if test.line is not None:
        case.set("line", str(test.line))
    if test.outcome is TestOutcome.SKIPPED:
        ElementTree.SubElement(case, "skipped")
    elif test.outcome is not TestOutcome.PASSED:
        message = plain(test.message or "failed")
        failure = ElementTree.SubElement(case, "failure", message=message.partition("\n")[0], type="test")
        failure.text = message
    return case
