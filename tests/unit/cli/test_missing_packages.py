"""A run without packages that its project asks for says so wherever its verdict is shown: it may have passed with those
of the image.
"""

from __future__ import annotations

import json

import pytest

from sandbox.agent.run_results import run_result
from sandbox.cli.reports.junit import write_junit
from sandbox.cli.reports.markdown import write_markdown
from sandbox.cli.reports.report_data import ReportData
from sandbox.cli.reports.report_files import write_outputs
from sandbox.cli.reports.sarif import write_sarif
from sandbox.cli.verdicts import qualify, show_runs
from sandbox.cli.verification_view import show_verification
from sandbox.models import CheckRun, Verification
from sandbox.workbench.checks.guest_setup import GuestSetup
from tests.unit.cli.test_reports import made
from tests.unit.receipt_samples import TREE, made_run

CLAUSE = "left out, for the registry has no version that fits: ms@^99.0.0"


def data_of(*missing: str) -> ReportData:
    data = made()
    runs = tuple(made_run(name, missing_packages=missing) for name in ("build", "test"))
    return ReportData(data.summary.model_copy(update={"runs": runs, "verified": True}), {})


def test_each_report_says_what_was_missing_once() -> None:
    """Control: a run with all its packages says no word about them."""
    for write in (write_junit, write_markdown, write_sarif):
        assert "the registry has no version that fits: ms" in write(data_of(CLAUSE)), write
        assert "missing" not in write(data_of()), write
    text = write_markdown(data_of(CLAUSE))
    assert "### Space Sandbox: verified, without packages that the project asks for\n" in text
    assert text.count("the registry has no version that fits: ms") == 1
    (run,) = json.loads(write_sarif(data_of(CLAUSE)))["runs"]
    assert [each["level"] for each in run["invocations"][0]["toolExecutionNotifications"]] == ["warning"]


def test_the_outputs_of_a_job_say_so() -> None:
    assert "packages_missing=true\n" in write_outputs(data_of(CLAUSE))
    assert "packages_missing=false\n" in write_outputs(data_of())


def test_the_line_that_sums_up_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    runs = data_of(CLAUSE).summary.runs
    show_runs(runs)
    assert capsys.readouterr().out.count(f"packages missing: {CLAUSE}") == 1
    show_verification(Verification(runs=runs, verified=True, tree=TREE), "local-1")
    assert f"verified, without packages that the project asks for: tree {TREE}" in capsys.readouterr().out
    assert qualify(data_of().summary.runs) == ""


def test_an_agent_is_given_it_as_a_note() -> None:
    assert run_result(made_run("test", missing_packages=(CLAUSE,))).notes == (f"packages missing: {CLAUSE}",)


def test_the_json_of_a_run_has_the_field_only_if_something_is_missing() -> None:
    """Programs of older versions that read the records of a home refuse fields that they do not know."""
    assert "missing_packages" not in made_run("test").model_dump(mode="json")
    dumped = made_run("test", missing_packages=(CLAUSE,)).model_dump_json()
    assert CheckRun.model_validate_json(dumped).missing_packages == (CLAUSE,)


def test_a_setup_names_what_is_missing_and_why() -> None:
    plain = GuestSetup("sha256:1", "runc")
    assert plain.missing_packages == ()
    setup = GuestSetup(
        "sha256:1",
        "runc",
        without_layers="the packages that the project asks for could not be fetched (404)",
        absent=("ms@^99.0.0",),
        unbuilt=tuple(f"p{number}.tar.gz" for number in range(7)),
    )
    assert setup.missing_packages == (
        "the packages that the project asks for could not be fetched (404)",
        CLAUSE,
        "left out, for it cannot be built: p0.tar.gz, p1.tar.gz, p2.tar.gz, p3.tar.gz, p4.tar.gz and 2 more",
    )
