"""Read the part of YAML that lock files are written in: maps by indentation, plain and quoted text, short lists.

Not a YAML parser: it knows no anchors, tags or multi-line text, so no text expands or runs. What it does
not know is left out. Time and memory are linear in the text.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any

MAX_DEPTH = 12
_LINE_CHARS = 4_000
_ENTRY = re.compile(r"""( *)("[^"]*"|'[^']*'|[^\s'"#{}\[\]&*!|>-][^:]*(?::[^:\s][^:]*)*):(?: +(.*))?""", re.DOTALL)
_ITEM = re.compile(r"-\s+(\S.*)")
_INNER = re.compile(r"""("[^"]*"|'[^']*'|[^\s:]+):(.*)""")


def parse(text: str) -> dict[str, Any]:
    """The maps of a document; values are text, lists of text, or maps. Never raises."""
    root: dict[str, Any] = {}
    stack: list[tuple[int, dict[str, Any]]] = [(-1, root)]
    for line in text.split("\n"):
        match = _ENTRY.fullmatch(line.rstrip()) if len(line) <= _LINE_CHARS else None
        if match is None:
            continue
        indent, key, value = len(match[1]), _unquote(match[2]), match[3]
        while stack[-1][0] >= indent:
            stack.pop()
        here = stack[-1][1]
        if value:
            here[key] = _parse_value(value.strip())
        elif len(stack) <= MAX_DEPTH:
            here[key] = {}
            stack.append((indent, here[key]))
    return root


def read_list(text: str, key: str) -> list[str]:
    """The texts of a list at the top of a document, `[a, b]` or one a line. Never raises."""
    lines = iter(text.split("\n"))
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and len(line) <= _LINE_CHARS and _unquote(name.rstrip()) == key:
            break
    else:
        return []
    if value := _drop_comment(value):
        found = _parse_value(value)
        return found if isinstance(found, list) else []
    items = (_ITEM.fullmatch(rest) for line in lines if len(line) <= _LINE_CHARS and (rest := _drop_comment(line)))
    return [_unquote(item[1]) for item in takewhile(bool, items) if item]


def _drop_comment(text: str) -> str:
    return re.sub(r"(?:^|\s)#.*", "", text).strip()


def _parse_value(text: str) -> str | list[str] | dict[str, str]:
    if text[0] == "{" and text[-1] == "}":
        parts = (_INNER.fullmatch(part.strip()) for part in text[1:-1].split(","))
        return {_unquote(match[1]): _unquote(match[2].strip()) for match in parts if match}
    if text[0] == "[" and text[-1] == "]":
        return [_unquote(part.strip()) for part in text[1:-1].split(",")]
    return _unquote(text)


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
