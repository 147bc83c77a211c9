"""JSON with comments is read as its editors read it."""

from __future__ import annotations

import pytest

from sandbox.suggestions.json_comments import loads


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, // one\n "b": [1, 2,], /* two */}', {"a": 1, "b": [1, 2]}),
        ('{"url": "https://x/*y*/", "c": ",]", "q": "\\"//"}', {"url": "https://x/*y*/", "c": ",]", "q": '"//'}),
        ('["", "", ""]', ["", "", ""]),
    ],
)
def test_comments_and_last_commas_go_and_texts_stay(text: str, value: object) -> None:
    assert loads(text) == value


@pytest.mark.parametrize("text", ["", "{", '"a', "/*", "[" * 60_000, "1 2", "x" * 70_000, '"\n"'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(text)
