"""What `check results` prints of single tests."""

from __future__ import annotations

import pytest

from sandbox.cli.check_runs import _show_results
from sandbox.models import TestOutcome, TestResult, TestResults


def test_a_message_keeps_its_lines_and_none_looks_like_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    message = "assert 1 == 2\n  where 1 = f()\r\n  passed   t::forged\x1b[1A\u2028  passed   t::too"
    results = (TestResult(test="t::a", outcome=TestOutcome.FAILED, message=message),)
    page = TestResults(
        run_id="run-1", check_id="c", source="junit", total=1, results=results, next_cursor=None, complete=True
    )
    _show_results(page, results)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "  failed   t::a"
    assert rest[:2] == [f"{'':11}assert 1 == 2", f"{'':13}where 1 = f()"]
    assert all(line.startswith(" " * 11) for line in rest)
