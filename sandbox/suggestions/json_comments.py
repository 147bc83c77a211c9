"""Read JSON with comments and trailing commas, as `devcontainer.json` has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from sandbox.lazy_pattern import lazy_pattern

MAX_CHARS = 64 * 1024
# What is not closed ends the reading: else each quote in it would be tried up to the end of the text.
_PIECE = lazy_pattern(
    r'(?P<text>"(?:[^"\\]|\\.)*")|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<open>"|/\*)|(?P<other>[^"/]+|/)', re.DOTALL
)
_TRAILING_COMMA = lazy_pattern(r",(\s*[}\]])")


def loads(text: str) -> object:
    """Parse the text. Raises: ValueError, also for more than `MAX_CHARS` and for too many levels."""
    if len(text) > MAX_CHARS:
        raise ValueError(f"more than {MAX_CHARS} characters")
    pieces = list(_split(text))
    strings = [found for found, _ in pieces if found is not None]
    # Each text is replaced by `""` while commas are removed, so that a comma in a text is never taken for one.
    plain = "".join('""' if found is not None else other for found, other in pieces)
    kept = iter(strings)
    try:
        return json.loads(re.sub('""', lambda _: next(kept), _TRAILING_COMMA.sub(r"\1", plain)))
    except RecursionError as error:
        raise ValueError("too many levels") from error
    except StopIteration as error:
        raise ValueError("no valid JSON") from error


def _split(text: str) -> Iterator[tuple[str | None, str]]:
    """The texts in quotes, and what is between them without comments. Raises: ValueError for what is not closed."""
    for found in _PIECE.finditer(text):
        if found["open"] is not None:
            raise ValueError("a quote or comment is not closed")
        if found["comment"] is None:
            yield found["text"], found["other"]
