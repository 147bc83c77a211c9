"""The troubleshooting page has a section with advice for every error code, and none for codes that do not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode

PAGE = (Path(__file__).parents[3] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SECTIONS: dict[str, str] = dict(re.findall(r"(?ms)^## (\w+)\n(.*?)(?=^## |\Z)", PAGE))


def test_the_sections_are_the_codes_in_their_order() -> None:
    assert list(SECTIONS) == [code.value for code in ErrorCode]


@pytest.mark.parametrize("code", list(ErrorCode), ids=[code.value for code in ErrorCode])
def test_a_section_says_what_to_do(code: ErrorCode) -> None:
    text = SECTIONS.get(code.value, "")
    assert re.search(r"(?m)^- |\]\([\w-]+\.md", text), f"docs/troubleshooting.md: what to do about {code.value}?"
