"""The id of a request whose line is too long to be parsed, from its beginning and its end.

Theory. Clients write `id` before the long member, or as the last one. Members at the beginning are read one after the
other until one is cut. At the end of a line only the last member is sure to be one of the message itself. An answer to
a question of ours has our id, so the beginning has to have the name of a method.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

ENDS_BYTES = 4096
"""How much of each end is read."""

_SPACE = re.compile(r"[ \t\r]*")
_LAST_ID = re.compile(rb'[,{][ \t]*"id"[ \t]*:[ \t]*(-?[0-9]{1,18}|"[^"\\\x00-\x1f]{1,200}")[ \t]*}[ \t\r]*\Z')


def find_request_id(line: bytes) -> int | str | None:
    """The id of a request, of which the middle may be missing; None if it is none, or cannot be found. Pure."""
    found = dict(_read_members(line[:ENDS_BYTES].decode("utf-8", errors="surrogateescape")))
    if not isinstance(found.get("method"), str):
        return None
    try:
        if "id" not in found and (last := _LAST_ID.search(line[-ENDS_BYTES:])) is not None:
            found["id"] = json.loads(last[1])
        number = found.get("id")
        json.dumps(number, ensure_ascii=False).encode()
    except ValueError:
        return None
    return number if isinstance(number, (int, str)) and not isinstance(number, bool) else None


def _read_members(text: str) -> Iterator[tuple[str, object]]:
    """The members of an object that are whole in its beginning."""
    decoder, at = json.JSONDecoder(), _skip(text, 0)
    mark = "{"
    while text[at : at + 1] == mark:
        try:
            name, at = decoder.raw_decode(text, _skip(text, at + 1))
            at = _skip(text, at)
            if not isinstance(name, str) or text[at : at + 1] != ":":
                return
            value, at = decoder.raw_decode(text, _skip(text, at + 1))
        except (ValueError, RecursionError):
            return
        at, mark = _skip(text, at), ","
        if text[at : at + 1] in {",", "}"}:  # else a number may be cut
            yield name, value


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
