"""Files as shown to an agent: exact, so that an edit can name their text, with a warning about what cannot be seen.

Elsewhere invisible characters are spelled out. Here that would be other text than the hash binds.
"""

from __future__ import annotations

import base64
import re
from collections import Counter

from sandbox.agent.outputs import FileResult
from sandbox.characters import EMOJI_SELECTORS, INVISIBLE, TAGS, char_class, describe_character
from sandbox.models import FileContent

_LF = "\n"
MOST_CHARACTERS = 10
"""Different invisible characters that are listed."""

# A terminal obeys control characters. Tag characters are an alphabet that models read and people do not see.
_NOT_AS_TEXT = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]|" + char_class(TAGS))
_UNSEEN = re.compile(char_class(INVISIBLE - EMOJI_SELECTORS))


def file_result(found: FileContent) -> FileResult:
    """A file as read. Text with control or tag characters becomes base64. Pure."""
    if found.encoding != "utf-8":
        return FileResult(**dict(found))
    fields = {**dict(found), "invisible": _list_invisible(found.content, found.start_line or 1)}
    if _NOT_AS_TEXT.search(found.content):
        encoded = base64.b64encode(found.content.encode("utf-8", "surrogateescape")).decode()
        fields.update(content=encoded, encoding="base64")
    return FileResult(**fields)


def _list_invisible(text: str, first_line: int) -> tuple[str, ...]:
    """Each invisible character with its number and first line; the most frequent ones first."""
    first: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for match in _UNSEEN.finditer(text):
        counts[match[0]] += 1
        first.setdefault(match[0], match.start())
    return tuple(
        f"{describe_character(c)}: {count}, first in line {first_line + text.count(_LF, 0, first[c])}"
        for c, count in counts.most_common(MOST_CHARACTERS)
    )
