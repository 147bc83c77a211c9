"""Read TOML of a repository or a guest, with a bound on the time and memory that `tomllib` takes.

`tomllib` is quadratic in the dots of a key: 64 KB of `a.a.a...` take 43 s and 4 GB (CPython 3.11). Files written by
people do not have such lines, so they are refused before parsing. Any other 64 KB take a fraction of a second.
"""

from __future__ import annotations

import tomllib
from typing import Any

LINE_CHARS, LINE_DOTS, LINE_BRACKETS = 8_000, 200, 200


def loads(text: str) -> dict[str, Any]:
    """Parse TOML. The caller limits its size. Raises: ValueError, also for lines with too many characters or dots."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LINE_CHARS or line.count(".") > LINE_DOTS or line.count("[") + line.count("{") > LINE_BRACKETS:
            raise ValueError(f"line {number} has too many characters, dots or brackets")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("too many brackets within brackets") from error
