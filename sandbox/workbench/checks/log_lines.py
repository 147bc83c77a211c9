"""Use-case: read or search the lines of a run's output, also while it runs.

Lines are those of the stored log: where its middle was dropped, two or three lines stand for it. They are text of the
guest. The log is split at LF first and each line is made safe to show afterwards, so that no escape sequence in one
line can hide the next.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate, islice, takewhile
from operator import sub
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.checks.output import CONTINUATION, MARK_BYTES, head_bytes, read_drop_mark
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.grep import LineMatch, PatternTooCostly, Query, grep_log
from sandbox.git.process import Git
from sandbox.models import CheckRun, LogLines, LogMatch, LogQuery
from sandbox.store import runs
from sandbox.store.log_file import LogFile, LogPiece
from sandbox.text import one_line
from sandbox.workbench.checks.history import measure_log
from sandbox.workbench.controller.services import Services
from sandbox.workbench.tasks.search import MAX_RESULTS, MAX_TIMEOUT_S, PATTERN_LENGTH, StopReason, excerpt

if TYPE_CHECKING:
    from sandbox.config import Settings

MAX_BYTES = 8 * 1024**2
"""Maximum size of the content of one answer, in bytes of JSON."""

_MOST_COST = 6  # bytes of JSON for one byte of the log: an invalid byte is shown as U+FFFD, `\ufffd` in JSON
_NO_REPOSITORY = Path("/nonexistent")


def read_lines(services: Services, run_id: str, query: LogQuery | None = None) -> LogLines:
    """Lines of a run of any task or repository. Reaching a limit is not an error.

    Raises: `not_found` for an unknown run, `invalid_input` for a range beyond the log or an unusable pattern.
    """
    query = query or LogQuery()
    _require_valid_query(query)
    owner = runs.find_owner(services.home, run_id)
    record, is_over = runs.look_at_run(services.home, owner, run_id)  # before the log: it is complete if that is over
    if record is not None:
        measure_log(record, query.stream)  # a service that did not run has no log
    with runs.open_log(services.home, owner, run_id, query.stream) as file:
        log = LogFile(file)
        first, last = _range(query, log.lines)
        kept = _find_gap(log, record, query)
        answer = _build_answer(run_id, query, log, kept)
        if is_over and record is None:
            answer = answer.model_copy(update={"finished": True, "note": runs.describe_without_result(run_id)})
        if query.pattern is None:
            return _add_content(answer, query, log, (first, last), kept)
        path = runs.log_path(services.home, owner, run_id, query.stream)
        searched = _search(services.settings, path, query, range(first, last + 1))
        return answer.model_copy(
            update=searched | {"truncated": kept.dropped > 0 or searched["stopped_by"] is not None}
        )


def _require_valid_query(query: LogQuery) -> None:
    pattern = query.pattern
    if query.start_line is not None and query.start_line < 1:
        raise _query_error("start_line must be at least 1")
    if query.end_line is not None and query.end_line < (query.start_line or 1):
        raise _query_error("end_line must not be before start_line")
    if not 1 <= query.max_bytes <= MAX_BYTES:
        raise _query_error(f"max_bytes must be from 1 to {MAX_BYTES}")
    if not 1 <= query.max_results <= MAX_RESULTS or not 0 < query.timeout_s <= MAX_TIMEOUT_S:
        limits = f"max_results must be from 1 to {MAX_RESULTS}, timeout_s above 0 and at most {MAX_TIMEOUT_S:g}"
        raise _query_error(limits)
    if pattern is not None and (not 0 < len(pattern) <= PATTERN_LENGTH or set(pattern) & {"\0", "\n"}):
        raise _query_error(f"the pattern must have 1 to {PATTERN_LENGTH} characters, on one line")
    if pattern is not None and pattern.encode(errors="replace").decode() != pattern:
        raise _query_error("the pattern must not have lone surrogates")


def _query_error(why: str) -> SandboxError:
    return SandboxError(ErrorCode.INVALID_INPUT, f"This part of a log cannot be read: {why}")


def _range(query: LogQuery, lines: int) -> tuple[int, int]:
    """First and last line of the range, limited to the lines of the log."""
    first = query.start_line or 1
    if first > max(lines, 1):
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"This log has {lines} lines: line {first} does not exist",
            hint="Read a range that starts within the log; without a range, the last lines are returned.",
        )
    return first, min(query.end_line or lines, lines)


@dataclass(frozen=True)
class _LogGap:
    """How a log differs from its stream: `mark` bytes at offset `gap` stand for `dropped` bytes. `run`: None while the
    check runs, and if it was killed.
    """

    run: CheckRun | None
    total: int
    gap: int
    mark: int = 0
    dropped: int = 0

    def in_stream(self, offset: int) -> int:
        """Convert an offset in the log into an offset in the stream."""
        return offset if offset <= self.gap else max(self.gap, offset - self.mark) + self.dropped


def _find_gap(log: LogFile, run: CheckRun | None, query: LogQuery) -> _LogGap:
    if run is None:
        return _LogGap(None, log.size, log.size)
    total, limit = measure_log(run, query.stream)
    if total > limit and (mark := read_drop_mark(log.read(head_bytes(limit), MARK_BYTES))) is not None:
        return _LogGap(run, total, head_bytes(limit), mark[1], mark[0])
    return _LogGap(run, total, log.size, 0, max(0, total - log.size))  # the disk was full


def _build_answer(run_id: str, query: LogQuery, log: LogFile, gap: _LogGap) -> LogLines:
    return LogLines(
        run_id=run_id,
        stream=query.stream,
        finished=gap.run is not None,
        total_lines=log.lines,
        truncated=False,
        total_bytes=gap.total,
        dropped_bytes=gap.dropped,
    )


# --- a range


def _add_content(answer: LogLines, query: LogQuery, log: LogFile, lines: tuple[int, int], gap: _LogGap) -> LogLines:
    first, last = lines
    backwards = query.start_line is None
    read = log.read_backward(last, query.max_bytes) if backwards else log.read_forward(first, last, query.max_bytes)
    piece = fit_piece(read, query.max_bytes, backwards=backwards)
    whole = (piece.offset, piece.end) == (log.offset_of_line(first), log.offset_of_line(last + 1))
    spans_gap = gap.dropped > 0 and piece.offset <= gap.gap <= piece.end
    given = {
        "content": "".join(f"{show_line(line)}\n" for line in piece.lines),
        "start_line": piece.first if piece.lines else None,
        "end_line": piece.first + len(piece.lines) - 1 if piece.lines else None,
        "truncated": spans_gap or not whole,
        "shown_from_byte": gap.in_stream(piece.offset),
    }
    return answer.model_copy(update=given)


def fit_piece(piece: LogPiece, max_bytes: int, *, backwards: bool) -> LogPiece:
    """The lines of a piece that fit into `most` bytes of JSON, from the start or from the end. If even one line does
    not fit, a part of it.
    """
    ordered = piece.lines[::-1] if backwards else piece.lines
    fitting = sum(1 for left in accumulate(map(_cost, ordered), sub, initial=max_bytes) if left >= 0) - 1
    if fitting == len(ordered):
        return piece
    given, left_out = ordered[: max(fitting, 1)], ordered[max(fitting, 1) :]
    skipped = sum(len(line) + 1 for line in left_out)
    if fitting == 0:
        given = (_cut(ordered[0], max(1, max_bytes // _MOST_COST), backwards=backwards),)
        skipped += len(ordered[0]) - len(given[0])
    if not backwards:
        return LogPiece(piece.first, given, piece.offset, piece.end - skipped)
    return LogPiece(piece.first + len(left_out), given[::-1], piece.offset + skipped, piece.end)


def _cut(line: bytes, max_bytes: int, *, backwards: bool) -> bytes:
    return line[len(line) - max_bytes :].lstrip(CONTINUATION) if backwards else line[:max_bytes]


def _cost(line: bytes) -> int:
    return len(json.dumps(show_line(line)))


def show_line(line: bytes) -> str:
    """One line of a log, safe to show. Pure."""
    return one_line(line.removesuffix(b"\r").decode("utf-8", errors="replace"))


# --- a search


def _search(settings: Settings, path: Path, query: LogQuery, lines: range) -> dict[str, object]:
    """Fields of the answer: the matches in this range of lines, and the limit that ended the search early."""
    matches: list[LogMatch] = []
    stopped_by: StopReason | None = None
    git = Git(_NO_REPOSITORY, settings.git.executable)
    try:
        with closing(grep_log(git, path, Query(query.pattern or "", regex=True), query.timeout_s)) as hits:
            inside = takewhile(lambda m: m.line < lines.stop, filter(lambda m: m.line >= lines.start, hits))
            matches += map(_match, islice(inside, query.max_results))
            stopped_by = "max_results" if next(inside, None) is not None else None
    except PatternTooCostly:
        stopped_by = "pattern"
    except SandboxError as error:
        if error.code is ErrorCode.INVALID_INPUT:
            raise _pattern_error(error) from error
        if error.code is not ErrorCode.TIMEOUT:
            raise
        stopped_by = "time"
    return {"matches": tuple(matches), "stopped_by": stopped_by}


def _match(found: LineMatch) -> LogMatch:
    text, cut = excerpt(found.text, found.column)
    return LogMatch(line=found.line, text=one_line(text), cut=cut or None)


def _pattern_error(error: SandboxError) -> SandboxError:
    hint = r"The pattern is a Perl-compatible regular expression: write \[ for a literal bracket."
    return error.with_hint(hint)
