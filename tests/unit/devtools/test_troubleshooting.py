"""The troubleshooting page has a section with advice for every error code, and none for codes that do not exist."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SECTIONS: dict[str, str] = dict(re.findall(r"(?ms)^## (\w+)\n(.*?)(?=^## |\Z)", PAGE))


def test_the_sections_are_the_codes_in_their_order() -> None:
    assert list(SECTIONS) == [code.value for code in ErrorCode]


@pytest.mark.parametrize("code", list(ErrorCode), ids=[code.value for code in ErrorCode])
def test_a_section_says_what_to_do(code: ErrorCode) -> None:
    text = SECTIONS.get(code.value, "")
    assert re.search(r"(?m)^- |\]\([\w-]+\.md", text), f"docs/troubleshooting.md: what to do about {code.value}?"


_QUOTE = re.compile(r"(?m)(?<![\w*])\*([^*\s][^*]{2,200}?)\*(?![\w*])")
_JOINT = re.compile(r"""["']\s*\n\s*f?["']""")  # between two literals that are one text
_ENOUGH = 20  # modules with a text: one of them has it in a literal
OTHERS = {"Device or resource busy"}
"""Messages of other programs that no text of ours quotes."""


def find_unknown_quotes(page: str) -> list[str]:
    """Messages that the page quotes and no text of the source has. `...` stands for what a message fills in."""
    quotes = {" ".join(quote.split()) for quote in _QUOTE.findall(page)} - OTHERS
    parts = {quote: [part.strip() for part in quote.split("...") if part.strip()] for quote in quotes}
    longest = [max(found, key=len) for found in parts.values()]
    source = "\n".join(read_texts(path) for path in find_modules(longest))
    return sorted(quote for quote in quotes if not all(part in source for part in parts[quote]))


def find_modules(texts: list[str]) -> Iterator[Path]:
    """Modules that may have one of these texts, of a common one the first few: to parse a module takes long."""
    seen = Counter[str]()
    for path in sorted((ROOT / "sandbox").rglob("*.py")):
        source = _JOINT.sub("", path.read_text(encoding="utf-8"))
        found = [text for text in texts if seen[text] < _ENOUGH and text in source]
        seen.update(found)
        if found:
            yield path


def read_texts(source: Path) -> str:
    """All texts of a module, the holes of f-strings as NUL."""
    nodes = list(ast.walk(ast.parse(source.read_bytes())))
    plain = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    filled = [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
        for node in nodes
        if isinstance(node, ast.JoinedStr)
    ]
    return "\n".join([*plain, *filled])


def test_the_messages_that_the_page_quotes_exist() -> None:
    assert find_unknown_quotes("- *sets nothing at all*: no") == ["sets nothing at all"], "the control"
    assert find_unknown_quotes(PAGE) == []
