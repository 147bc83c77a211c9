"""What a CI shows of a run: annotations, collapsible logs, summary and outputs.

GitHub Actions reads commands from the output of a step (`::error::`, docs.github.com, "Workflow commands"). A guest
could write such lines: the streams of the command part them (`streams.py`), and commands are stopped with a random
token while a result or a log is printed, in case the runner knows others. GitLab folds
sections between two escape sequences (docs.gitlab.com, "Custom collapsible sections"); guest text has none left.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.cli.reports.findings import ReportedFailure, find_failures
from sandbox.cli.reports.markdown import write_markdown
from sandbox.cli.reports.report_data import ReportData, tails_of
from sandbox.cli.reports.report_files import write_outputs
from sandbox.cli.streams import commanding, drawing, is_job_of_github
from sandbox.models import CheckRun

Echo = Callable[[str], None]
_MOST_ANNOTATIONS = 10  # GitHub shows ten errors of a step
_SUMMARY_BYTES = 1024**2 - 1024  # of a step; GitHub refuses a larger one


@dataclass(frozen=True)
class GitHubActions:
    """`environ`: has the names of the files for the summary and the outputs. `echo`: prints commands. `echo_text`: text
    of guests.
    """

    environ: Mapping[str, str] = field(repr=False)
    echo: Echo
    echo_text: Echo
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    @contextmanager
    def guard(self) -> Iterator[None]:
        self.echo(f"::stop-commands::{self.token}")
        try:
            yield
        finally:
            self.echo(f"::{self.token}::")

    def show(self, data: ReportData) -> None:
        for run in data.summary.runs:
            self._show_log(run)
        for found in find_failures(data)[:_MOST_ANNOTATIONS]:
            self.echo(_annotate(found))
        self._append("GITHUB_STEP_SUMMARY", _clip(write_markdown(data)))
        self._append("GITHUB_OUTPUT", write_outputs(data))

    def _show_log(self, run: CheckRun) -> None:
        self.echo(f"::group::{run.check_id}: {run.verdict.value}")
        with self.guard():
            self.echo_text(tails_of(run) or "(no output)")
        self.echo("::endgroup::")

    def _append(self, variable: str, text: str) -> None:
        name = self.environ.get(variable)
        if name:
            with Path(name).open("a", encoding="utf-8") as file:
                file.write(text)


def _clip(text: str) -> str:
    """The beginning, in whole lines, that fits into a summary."""
    content = text.encode()
    if len(content) <= _SUMMARY_BYTES:
        return text
    return content[:_SUMMARY_BYTES].rpartition(b"\n")[0].decode(errors="ignore") + "\n"


def _annotate(found: ReportedFailure) -> str:
    place = f"file={_escape_property(found.path)}," if found.path else ""
    line = f"line={found.line}," if found.path and found.line else ""
    title = _escape_property(f"{found.check_id}: {found.title}"[:200])
    return f"::error {place}{line}title={title}::{_escape_data(found.message[:4000])}"


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


@dataclass(frozen=True)
class GitLabCi:
    """Collapsed sections. Annotations, summary and outputs of GitLab come from report files (ci/gitlab)."""

    echo: Echo
    now: Callable[[], float] = time.time

    @contextmanager
    def guard(self) -> Iterator[None]:
        yield

    def show(self, data: ReportData) -> None:
        for run in data.summary.runs:
            name = "sandbox_" + re.sub(r"[^a-zA-Z0-9_]", "_", run.check_id)
            started = f"\x1b[0Ksection_start:{int(self.now())}:{name}[collapsed=true]\r\x1b[0K"
            self.echo(f"{started}{run.check_id}: {run.verdict.value}")
            self.echo(tails_of(run) or "(no output)")
            self.echo(f"\x1b[0Ksection_end:{int(self.now())}:{name}\r\x1b[0K")


def detect_ci(environ: Mapping[str, str], *, to_stderr: bool) -> GitHubActions | GitLabCi | None:
    """The CI of this process by its documented variables; None outside of one."""
    stream = sys.stderr if to_stderr else sys.stdout

    def echo(text: str) -> None:
        stream.write(text + "\n")
        stream.flush()

    def echo_commands(text: str) -> None:
        with commanding(stream):
            echo(text)

    def echo_sections(text: str) -> None:
        with drawing(stream):
            echo(text)

    if is_job_of_github(environ):
        return GitHubActions(environ, echo_commands, echo)
    return GitLabCi(echo_sections) if environ.get("GITLAB_CI") == "true" else None


def current_ci(*, to_stderr: bool) -> GitHubActions | GitLabCi | None:
    """As `detect_ci`, for the environment of this process."""
    return detect_ci(os.environ, to_stderr=to_stderr)
