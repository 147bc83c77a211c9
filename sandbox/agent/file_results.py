"""Files as shown to an agent: exact, so that an edit can name their text, with a warning about what cannot be seen.

Elsewhere invisible characters are spelled out. Here that would be other text than the hash binds.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from typing import Any

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


def end_cut_content(document: dict[str, Any]) -> str:
    """End the content of a file, which was cut anywhere, after a whole line if it has one, and correct `end_line`.

    Changes the document of a `FileResult`. Returns how to read on, if it is possible.
    """
    content, is_base64 = document["content"], document["encoding"] == "base64"
    content = content[: len(content) // 4 * 4] if is_base64 else content
    document["content"] = content
    if document["total_lines"] is None:
        return "The file is not UTF-8 text, so it has no line ranges: no tool reads on. A check can read all of it."
    raw = base64.b64decode(content) if is_base64 else content.encode("utf-8", "surrogatepass")
    if lines := raw.count(b"\n"):
        raw = raw[: raw.rfind(b"\n") + 1]
        document["content"] = base64.b64encode(raw).decode() if is_base64 else raw.decode("utf-8", "surrogatepass")
    document["end_line"] = last = (document["start_line"] or 1) + max(lines, 1) - 1
    after = f"Read on with start_line {last + 1}." if last < document["total_lines"] else ""
    if lines:
        return after
    long = f"Line {last} does not fit, and no tool reads on within it. A search shows text around a match."
    return f"{long} {after}".rstrip()


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
