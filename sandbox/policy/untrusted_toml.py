"""Read TOML of a repository or a guest, with a bound on the time and memory that `tomllib` takes.

`tomllib` is quadratic in the dots of a key: 64 KB of `a.a.a...` take 43 s and 4 GB (CPython 3.11). Files written by
people do not have such lines, so they are refused before parsing. Each dot of a shorter key takes 2.5 KB: 2 MiB of keys
with 180 dots take 2.7 GB. So the dots of a whole document are limited, too, without those of texts in quotes, such as
the addresses in a lock file. Any other 64 KB take a fraction of a second, and 2 MiB take 250 MB.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

LINE_CHARS, LINE_DOTS, LINE_BRACKETS = 8_000, 200, 200
BARE_DOTS = 50_000
"""Out of quotes, of a document. A lock file of 2 MiB has 5,000, as in `[package.dependencies]`."""

_QUOTED = re.compile(r'"[^"]*"|\'[^\']*\'')


def loads(text: str) -> dict[str, Any]:
    """Parse TOML. The caller limits its size. Raises: ValueError, also for lines with too many characters or dots."""
    bare_dots = 0
    for number, line in enumerate(text.split("\n"), 1):
        dots = line.count(".")
        if len(line) > LINE_CHARS or dots > LINE_DOTS or line.count("[") + line.count("{") > LINE_BRACKETS:
            raise ValueError(f"line {number} has too many characters, dots or brackets")
        if dots:
            bare_dots += _QUOTED.sub("", line).count(".")
    if bare_dots > BARE_DOTS:
        raise ValueError(f"more than {BARE_DOTS} dots out of quotes")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("too many brackets within brackets") from error
