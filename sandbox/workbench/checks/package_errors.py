"""What a package manager says about its failure, from the end of what it printed. Pure.

It is text of a registry and of package managers, so it explains and never decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sandbox.lazy_pattern import lazy_pattern

MOST_CHARS = 500
"""Of a reason, which stands in an error's brief."""

_NPM = lazy_pattern(r"npm (?:ERR!|error) ?(?:(?:\d{3}|notarget|ERESOLVE)(?: |$))?")
_TELLS = (
    lazy_pattern(r"('\S{1,300}' is not in (?:this|the npm) registry)"),
    lazy_pattern(r"(The requested resource '\S{1,300}' could not be found)"),
    lazy_pattern(r"(No matching version found for \S{1,300})"),
    lazy_pattern(r"(error: no matching package named .{1,300} found)$"),
    lazy_pattern(r"(?:Error: )?(a package asks for a repository: not fetched)$"),  # dependencies/node_fetch.js
    lazy_pattern(r"(no program is started in a fetch: .{1,250})"),
)
"""Lines that name a package that is not there, or is not fetched. The first group is what is shown."""
_PEERS = "Could not resolve dependency:"
_CONFLICT = lazy_pattern(r"(?:cause: |[\u251c\u2570]\u2500\u25b6 )(Because .*)")
_NOISE = lazy_pattern(r"$|at .{1,300}[:(]|A complete log of this run|/\S{1,300}\.log$")
_MOST_REASONS = 3


def describe_failure(tail: str) -> str:
    """Why it failed, on one line without a full stop: the packages that it names, else its last line; '' for none."""
    lines = [_NPM.sub("", line, count=1) if _NPM.match(line) else line for line in tail.splitlines()]
    reasons = list(dict.fromkeys(_find_reasons(lines)))[:_MOST_REASONS]
    said = "; ".join(reasons) or next((text for line in reversed(lines) if not _NOISE.match(text := line.strip())), "")
    said = said.rstrip(".")
    return said if len(said) <= MOST_CHARS else f"{said[: MOST_CHARS - 4].rstrip()} ..."


def _find_reasons(lines: list[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        text = line.strip()
        if found := next(filter(None, (pattern.match(text) for pattern in _TELLS)), None):
            yield found[1].rstrip(".")
        elif text == _PEERS:
            yield f"{_PEERS} {''.join(lines[number + 1 : number + 2]).strip()}"
        elif found := _CONFLICT.match(text):
            yield " ".join([found[1], *_continue(lines[number + 1 :])]).rstrip(".")


def _continue(lines: list[str]) -> Iterator[str]:
    """The further lines of a paragraph that uv has wrapped: it indents them."""
    for line in lines:
        if not re.match(r" {6,}\S", line):
            return
        yield line.strip()


def keep_whole_lines(text: str, most: int) -> str:
    """The end of a text, at most so many characters, from the start of a line; a part of a line that is longer."""
    if len(text) <= most:
        return text
    end = text[-most:]
    if text[-most - 1] == "\n":
        return end
    return end.partition("\n")[2] or end
