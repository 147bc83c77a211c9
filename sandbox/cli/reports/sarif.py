"""SARIF 2.1.0 (docs.oasis-open.org/sarif): the failures, for code scanning."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

from sandbox.checks.missing_packages import describe_missing_packages
from sandbox.cli.reports.findings import ReportedFailure, find_failures
from sandbox.cli.reports.report_data import ReportData, plain
from sandbox.version import __version__

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BRACKETS = re.compile(r"[\\\[\]]")


def write_sarif(data: ReportData) -> str:
    """The report as text."""
    summary = data.summary
    rules = [{"id": run.check_id, "name": run.check_id} for run in summary.runs]
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "space-sandbox", "version": __version__, "rules": rules}},
        "automationDetails": {"id": f"space-sandbox/{summary.profile}/"},
        "columnKind": "unicodeCodePoints",
        "results": [_write_result(found) for found in find_failures(data)],
    }
    if lacks := describe_missing_packages(summary.runs):
        said = [{"level": "warning", "message": _write_message(plain(line))} for line in lacks]
        run["invocations"] = [{"executionSuccessful": True, "toolExecutionNotifications": said}]
    if summary.repository.remote_url.startswith("https://"):
        source = {"repositoryUri": summary.repository.remote_url, "revisionId": summary.commit}
        run["versionControlProvenance"] = [source]
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _write_result(found: ReportedFailure) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": found.check_id,
        "level": "error",
        "message": _write_message(f"{found.title}: {found.message}"),
        "partialFingerprints": {"spaceSandbox/v1": found.fingerprint},
    }
    if found.path is not None:
        place: dict[str, Any] = {"artifactLocation": {"uri": quote(found.path)}}
        if found.line is not None and found.line > 0:
            place["region"] = {"startLine": found.line}
        result["locations"] = [{"physicalLocation": place}]
    return result


def _write_message(text: str) -> dict[str, str]:
    """A message without links: `[text](target)` is one in plain text, too (2.1.0, 3.11.6)."""
    return {"text": _BRACKETS.sub(r"\\\g<0>", text)}


def write_code_quality(data: ReportData) -> str:
    """GitLab's code quality report: only failures with a place in a file."""
    rows = [
        {
            "description": f"{found.title}: {found.message}",
            "check_name": found.check_id,
            "fingerprint": found.fingerprint,
            "severity": "major",
            "location": {"path": found.path, "lines": {"begin": max(1, found.line or 1)}},
        }
        for found in find_failures(data)
        if found.path is not None
    ]
    return json.dumps(rows, indent=1) + "\n"
