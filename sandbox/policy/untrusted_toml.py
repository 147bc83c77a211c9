"""Read TOML of a repository or a guest, with a bound on the time and memory that `tomllib` takes.

`tomllib` is quadratic in the dots of a key: 64 KB of `a.a.a...` take 43 s and 4 GB (CPython 3.11). Files written by
people do not have such lines, so they are refused before parsing.

Theory of the bound on a whole file. For each dot of a key `tomllib` keeps a tuple of all names up to there, those of
the table's header included; for each header, dot, and key of an array or table a few dictionaries. So 95 KiB with 200
dots in the header and in each key were 125 MB, and 2 MiB of short headers 350 MB. That is estimated line by line, never
too low: a line begins outside of all texts, or within one of several lines. In the first case its keys are found as
`tomllib` finds them, and a row of an array is no header: that has only names in its brackets. In the second case it has
keys only if it also ends that text; then all dots before them count.
"""

from __future__ import annotations

import tomllib
from typing import Any

from sandbox.lazy_pattern import lazy_pattern

LINE_CHARS, LINE_DOTS, LINE_BRACKETS = 8_000, 200, 200
MAX_PARSED_BYTES = 128 * 1024**2
"""Maximum estimate of what `tomllib` keeps besides the values: 120,000 headers, for example, or dots in keys. A lock
file of 2 MiB has a tenth of that.
"""

_NEST_BYTES = 1_100  # measured: of a name that can have others below it
_NAME_BYTES = 16  # of a name in a tuple, and as much again for the time to look it up
# A quote that is not closed is an error, or in a comment: what follows is no key. Else each would be tried.
_QUOTED = lazy_pattern(r""""(?:[^"\\]|\\.|\\$)*(?:"|$)|'[^']*(?:'|$)""")
_OPENED = lazy_pattern(r"=[ \t]*[\[{]")
_HEADER = lazy_pattern(r"[ \t]*\[[A-Za-z0-9_. \t\[-]*\][\] \t\r]*(?:#|$)")  # without texts
_LONG_QUOTES = ('"""', "'''")


class TomlLimitError(ValueError):
    """The text may be TOML, but costs too much to parse."""


def loads(text: str) -> dict[str, Any]:
    """Parse TOML. The caller limits its size. Raises: ValueError; of it `TomlLimitError` for lines with too many
    characters, dots or brackets, for too many headers, dots, or brackets within brackets in all, and for numbers with
    too many digits. Its message is a sentence for a person.
    """
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_CHARS or line.count(".") > LINE_DOTS or line.count("[") + line.count("{") > LINE_BRACKETS:
            raise TomlLimitError(
                f"line {number} has more than {LINE_CHARS} characters, {LINE_DOTS} dots or {LINE_BRACKETS} brackets"
            )
    if _estimate_bytes(lines) > MAX_PARSED_BYTES:
        raise TomlLimitError("it has too many headers, or dots in keys")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise TomlLimitError("it has too many brackets within brackets") from error
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:  # of `int`, about a setting of Python; the reader turns others into the one above
        raise TomlLimitError("it has a number with too many digits") from error


def _estimate_bytes(lines: list[str]) -> int:
    """What `tomllib` keeps in memory besides keys and values, estimated from above."""
    total = header = 0  # names in the longest header so far
    for line in lines:
        has_long_text = any(quotes in line for quotes in _LONG_QUOTES)
        plain = line if has_long_text else _QUOTED.sub("", line)
        if plain.lstrip(" \t").startswith("[") if has_long_text else _HEADER.match(plain):
            names = plain.count(".") + 1
            total += _NEST_BYTES * names + _NAME_BYTES * names**2
            header = max(header, names)
        if "=" in plain:  # also in a row of an array, or after a bracket in a text of several lines
            dots = plain.rpartition("=")[0].count(".")
            total += _NAME_BYTES * (dots + 1) * (header + dots) + _NEST_BYTES * (dots + bool(_OPENED.search(plain)))
    return total
