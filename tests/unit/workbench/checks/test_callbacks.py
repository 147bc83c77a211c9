"""What a caller hears of a step that takes long."""

from __future__ import annotations

import threading

from sandbox.workbench.checks.callbacks import report_step


def test_a_long_step_is_reported_again_and_not_after_its_end() -> None:
    lines: list[str] = []
    twice = threading.Event()

    def report(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            twice.set()

    with report_step(report, "Fetching", every_s=0.01):
        assert twice.wait(10)
    assert lines[:3] == ["Fetching", "Fetching: 0 s so far", "Fetching: 0 s so far"]
    assert not any(thread.name == "step" for thread in threading.enumerate())
