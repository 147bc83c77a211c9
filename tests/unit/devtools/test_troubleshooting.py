"""The troubleshooting page has a section with advice for every error code, and none for codes that do not exist."""

from __future__ import annotations

import ast
import re
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
OTHERS = {"Device or resource busy"}
"""Messages of other programs that no text of ours quotes."""


def find_unknown_quotes(page: str, source: str) -> list[str]:
    """Messages that the page quotes and no text of the source has. `...` stands for what a message fills in."""
    quotes = [" ".join(quote.split()) for quote in _QUOTE.findall(page)]
    parts = {quote: [part.strip() for part in quote.split("...") if part.strip()] for quote in quotes}
    return [q for q in quotes if q not in OTHERS and not all(part in source for part in parts[q])]


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
    source = "\n".join(map(read_texts, sorted((ROOT / "sandbox").rglob("*.py"))))
    assert find_unknown_quotes("- *sets nothing at all*: no", source) == ["sets nothing at all"], "the control"
    assert find_unknown_quotes(PAGE, source) == []
