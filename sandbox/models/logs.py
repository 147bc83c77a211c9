"""The kept output of a run, whole or by lines."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from sandbox.models.ids import CheckId
from sandbox.models.model import Model, SparseModel

StreamName = Literal["stdout", "stderr"]
LogName = StreamName | Annotated[str, StringConstraints(pattern=r"^service-[a-z][a-z0-9-]{0,23}$")]
"""A stream of the check, or all output of one of its services."""


class RunLog(Model):
    """The kept output of one stream of a run, or of one of its services.

    `content`: safe to show, or with encoding `base64` the exact bytes.
    `total_bytes`: what the run wrote. `truncated`: the middle was dropped; a line in its place says how much.
    `finished`: False while the check runs, or if the process that ran it was killed; `check_id` is then None.
    """

    run_id: str
    check_id: CheckId | None
    stream: LogName
    content: str
    encoding: Literal["utf-8", "base64"]
    total_bytes: int
    truncated: bool
    finished: bool = True


class LogQuery(Model):
    """What to read of one stream of a run, or of a service: the lines that match `pattern`, else the lines themselves.

    `pattern`: a Perl-compatible regular expression. `start_line`, `end_line`: from 1, inclusive; only these lines are
    read or searched. Without a start the last lines are read; without an end the lines from the start on; at most
    `max_bytes` of them as JSON. `max_results`, `timeout_s`: limits of a search.
    """

    stream: LogName = "stdout"
    pattern: str | None = None
    start_line: int | None = None
    end_line: int | None = None
    max_bytes: int = 32 * 1024
    max_results: int = 200
    timeout_s: float = 10.0


class LogMatch(SparseModel):
    """One line with a match. `cut`: the line is longer and `text` is the part around the match; absent: it is whole."""

    line: int
    text: str
    cut: Literal[True] | None = None


class LogLines(SparseModel):
    """Lines of one stream of a run, numbered as kept; guest text, safe to show.

    `content`: lines `start_line` to `end_line`; absent after a search, which returns `matches`. `finished`: False while
    the check runs: there may be more. `note`: that its process was killed, so that it has no result. `truncated`: the
    answer is incomplete. `stopped_by`: what ended a search early. `shown_from_byte`: offset of `content` in the stream.
    `total_bytes`: what the run wrote. `dropped_bytes`: how much of it, in the middle, was dropped.
    """

    run_id: str
    stream: LogName
    finished: bool
    note: str | None = None
    matches: tuple[LogMatch, ...] | None = None
    content: str | None = None
    start_line: int | None = None
    end_line: int | None = None
    total_lines: int
    truncated: bool
    stopped_by: Literal["max_results", "time", "pattern"] | None = None
    shown_from_byte: int | None = None
    total_bytes: int
    dropped_bytes: int
