"""Reports of a run: what other programs read from them, and that guest text in them is data."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from cmarkgfm import github_flavored_markdown_to_html
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from defusedxml.ElementTree import fromstring

from sandbox.cli import main
from sandbox.cli.ci import GitHubActions, GitLabCi, detect_ci
from sandbox.cli.reports.junit import write_junit
from sandbox.cli.reports.markdown import write_markdown
from sandbox.cli.reports.report_data import ReportData
from sandbox.cli.reports.report_files import KINDS, parse_reports, write_outputs
from sandbox.cli.reports.sarif import write_code_quality, write_sarif
from sandbox.models import FailedTest, Host, Repository, RunSummary, TestOutcome, TestResult, Verdict
from sandbox.workbench import Workbench
from tests.unit.cli.runner_commands import commands_of
from tests.unit.receipt_samples import COMMIT, PRODUCT, TREE, Signer, made_run

RSA = generate_private_key(65537, 2048).private_bytes(*PRODUCT)
EVIL = "::error::x\x1b[31m\x00 <b> @everyone [a](http://evil) | `x` ##[warning]y"
FAILURES = (
    FailedTest(test="test_sum", message="1 != 2\nmore", path="src/a b.py", line=7),
    FailedTest(test=EVIL, message=f"{EVIL}\n::set-output name=verified::true", path="../../etc/passwd", line=1),
)
TESTS = (
    TestResult(test="test_fine", outcome=TestOutcome.PASSED, time_s=0.5),
    TestResult(test="test_later", outcome=TestOutcome.SKIPPED),
    TestResult(test="test_sum", outcome=TestOutcome.FAILED, message="1 != 2", path="src/a b.py", line=7),
    TestResult(test=EVIL, outcome=TestOutcome.FAILED, message=EVIL),
)


def made(verdict: Verdict = Verdict.FAILED) -> ReportData:
    test = made_run("test", verdict, stdout_tail=f"line\n{EVIL}\n::error::y", failures=FAILURES)
    repository = Repository(
        id="github.com-owner-name",
        remote_url="https://github.com/owner/name",
        host=Host.GITHUB,
        hostname="github.com",
        owner="owner",
        name="name",
        default_branch="main",
        profile="make",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    summary = RunSummary(
        repository=repository,
        ref="HEAD",
        commit=COMMIT,
        profile="make",
        runs=(made_run("build"), test),
        verified=verdict is Verdict.PASSED,
        tree=TREE,
    )
    return ReportData(summary, {test.run_id: TESTS})


def test_the_verdict_is_a_case_of_its_own_and_decides_whatever_the_tests_say() -> None:
    root = fromstring(write_junit(made()))
    build, test = root.findall("testsuite")
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("6", "3", "1")
    assert [case.get("name") for case in build] == [None, "verdict"]
    assert build.find("testcase/failure") is None
    assert [each.get("type") for each in test.findall("testcase[@name='verdict']/failure")] == ["failed"]
    killed = fromstring(write_junit(made(Verdict.OOM_KILLED)))
    assert [each.get("type") for each in killed.findall("testsuite/testcase[1]/failure")] == ["oom_killed"]


def test_no_control_character_of_a_guest_is_in_a_report() -> None:
    data = made()
    for write in (write_junit, write_sarif, write_markdown, write_code_quality, write_outputs):
        text = write(data)
        assert "\x1b" not in text, write
        assert "\x00" not in text, write
        assert "\\u001b" not in text, write


def test_sarif_names_places_inside_the_repository_alone() -> None:
    document = json.loads(write_sarif(made()))
    (run,) = document["runs"]
    first, second = run["results"]
    assert document["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["build", "test"]
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "src/a%20b.py"},
        "region": {"startLine": 7},
    }
    assert "locations" not in second
    assert first["partialFingerprints"] != second["partialFingerprints"]
    assert run["versionControlProvenance"] == [{"repositoryUri": "https://github.com/owner/name", "revisionId": COMMIT}]
    assert [row["location"]["path"] for row in json.loads(write_code_quality(made()))] == ["src/a b.py"]


def links_of(message: str) -> list[str]:
    """The links of a message of SARIF (2.1.0, 3.11.6): a bracket after a backslash is one of the text."""
    return re.findall(r"\]\(([^)]*)\)", re.sub(r"\\[\\\[\]]", "", message))


def test_text_of_a_guest_is_no_link_in_sarif() -> None:
    data = made()
    lacks = {"missing_packages": ("[a](http://evil)",)}
    runs = (data.summary.runs[0].model_copy(update=lacks), *data.summary.runs[1:])
    (run,) = json.loads(write_sarif(ReportData(data.summary.model_copy(update={"runs": runs}), {})))["runs"]
    texts = [result["message"]["text"] for result in run["results"]]
    texts += [said["message"]["text"] for said in run["invocations"][0]["toolExecutionNotifications"]]
    assert links_of(EVIL) == ["http://evil"], "void"
    assert [text for text in texts if links_of(text)] == []
    assert sum(r"\[a\](http://evil)" in text for text in texts) == 2
    assert links_of(r"\\[a](http://evil)") == ["http://evil"], "void"


def test_markdown_makes_guest_text_inert() -> None:
    text = write_markdown(made())
    assert "| `test` | \u274c failed | 1.5 s |" in text
    shown = github_flavored_markdown_to_html(text)
    assert "<a " not in shown
    assert "<b>" not in shown
    assert "evil" in shown, "void"
    assert "not verified" in text
    assert "not verified" not in write_markdown(made(Verdict.PASSED))


def test_outputs_are_words_of_ours() -> None:
    assert write_outputs(made()) == (
        f"verified=false\npassed=false\nnothing_changed=false\ntree={TREE}\ncommit={COMMIT}\n"
        "packages_missing=false\nfailed=test\n"
    )


@pytest.mark.parametrize("value", ["junit", "=x", "html=x", "junit=", "junit=missing/x"])
def test_a_report_of_an_unknown_kind_or_place_is_refused_before_anything_runs(value: str) -> None:
    with pytest.raises(click.UsageError):
        parse_reports([value])


def test_every_kind_is_taken(tmp_path: Path) -> None:
    assert [kind for kind, _ in parse_reports([f"{kind}={tmp_path / kind}" for kind in KINDS])] == list(KINDS)


def test_github_obeys_our_commands_and_none_of_a_guest(tmp_path: Path) -> None:
    """Control: without the token the runner would obey what the guest printed."""
    lines: list[str] = []
    files = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary"), "GITHUB_OUTPUT": str(tmp_path / "output")}
    ci = GitHubActions(files, lines.append, lines.append)

    with ci.guard():
        lines.append("::error::y")
    ci.show(made())

    plain = [line for line in lines if "stop-commands" not in line and ci.token not in line]
    assert commands_of(plain).count("::error::y") == 2, "void"
    assert "##[warning]y" in commands_of([EVIL.removeprefix("::")]), "void"
    obeyed = commands_of(lines)
    assert "::error::y" not in obeyed
    assert obeyed[:4] == ["::group::build: passed", "::endgroup::", "::group::test: failed", "::endgroup::"]
    assert obeyed[4] == "::error file=src/a b.py,line=7,title=test%3A test_sum::1 != 2%0Amore"
    assert obeyed[5].startswith("::error title=test%3A %3A%3Aerror")
    assert len(obeyed) == 6
    assert (tmp_path / "output").read_text() == write_outputs(made())
    assert (tmp_path / "summary").read_text() == write_markdown(made())


def test_a_summary_fits_into_what_github_takes(tmp_path: Path) -> None:
    summary = tmp_path / "summary"
    many = tuple(FailedTest(test="t" * 4000, message="m" * 30_000) for _ in range(50))
    data = made()
    runs = (data.summary.runs[0], data.summary.runs[1].model_copy(update={"failures": many}))
    big = ReportData(data.summary.model_copy(update={"runs": runs}), {})
    GitHubActions({"GITHUB_STEP_SUMMARY": str(summary)}, lambda _: None, lambda _: None).show(big)
    assert summary.stat().st_size < 1024**2


def test_gitlab_folds_the_logs_and_a_guest_cannot_end_a_section() -> None:
    lines: list[str] = []
    GitLabCi(lines.append, now=lambda: 7.0).show(made())
    text = "\n".join(lines)
    assert text.count("\x1b[0Ksection_start:7:sandbox_test[collapsed=true]\r\x1b[0Ktest: failed") == 1
    assert text.count("section_end:") == 2
    assert text.count("\x1b") == 8


def test_a_ci_is_known_by_its_documented_variable() -> None:
    assert isinstance(detect_ci({"GITHUB_ACTIONS": "true"}, to_stderr=True), GitHubActions)
    assert isinstance(detect_ci({"GITLAB_CI": "true"}, to_stderr=False), GitLabCi)
    assert detect_ci({"CI": "true"}, to_stderr=False) is None


class Runs:
    """`sandbox run` of a repository where no check really runs."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, key: bytes) -> None:
        self.root, self.ran = root, 0
        (root / "key.pem").write_bytes(key)
        monkeypatch.setenv("SANDBOX_RECEIPTS_SIGNING_KEY", str(root / "key.pem"))
        for name in ("GITHUB_ACTIONS", "GITLAB_CI"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(Workbench, "run", self._answer)

    def _answer(self, *_: object) -> RunSummary:
        self.ran += 1
        return made(Verdict.PASSED).summary

    def run(self, *words: str) -> int:
        reports = [f"--report=receipt={self.root / 'r.json'}", f"--report=outputs={self.root / 'outputs'}"]
        return main(["--home", str(self.root / "home"), "run", "https://example.com/o/n", *reports, *words])


def test_a_report_that_fails_keeps_no_other_from_being_written_and_there_is_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The runs have no binding here, so there is no receipt."""
    runs = Runs(tmp_path, monkeypatch, Signer().pem)
    assert runs.run("--json") == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["verified"] is True
    assert "[not_found] What the verdict of 'build' depends on" in said.err
    assert "verified=true" in (tmp_path / "outputs").read_text()


@pytest.mark.parametrize("key", [b"", RSA], ids=["empty", "RSA"])
def test_a_key_that_cannot_sign_is_refused_before_the_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: bytes
) -> None:
    runs = Runs(tmp_path, monkeypatch, key)
    assert runs.run("--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "invalid_input"
    assert runs.ran == 0
