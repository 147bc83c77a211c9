"""What stays of an agent's Markdown, and how text is shown. That nothing else comes through: tests/attack/test_o_*."""

from __future__ import annotations

import pytest

from sandbox.forges.escape import BREAK, as_code, as_code_block, as_prose
from sandbox.forges.sanitize import sanitize_markdown

KEPT = {
    "paragraphs": ("one\ntwo\n\nthree", "one\ntwo\n\nthree"),
    "emphasis": ("*a* _b_ **c** __d__ ***e***", "*a* *b* **c** **d** ***e***"),
    "headings go below ours": ("# a\n\nb\n===\n\n##### c #", "### a\n\n### b\n\n###### c"),
    "bullets": ("* a\n* b", "- a\n- b"),
    "bullets apart": ("* a\n\n* b", "- a\n\n- b"),
    "numbers": ("3. a\n3. b", "3. a\n4. b"),
    "lists in lists": ("- a\n  - b\n  - c", "- a\n\n  - b\n  - c"),
    "more than a paragraph in an item": ("10. a\n\n    b", "10. a\n\n    b"),
    "quotes": ("> a\nb\n> > c", "> a\n> b\n>\n> > c"),
    "code": ("`a` `` `b` ``", "`a` `` `b` ``"),
    "fences": ("```py\na\n\n  b\n```", ">     a\n>\n>       b"),
    "a rule": ("a\n\n---", "a\n\n* * *"),
    "links": ("see [x](https://e.org/a) now", f"see {BREAK}x{BREAK} (`https://e.org/a`) now"),
    "URLs": ("see https://e.org/a_b now", "see `https://e.org/a_b` now"),
    "images": ("![what it shows](https://e.org/a)", f"{BREAK}what it shows{BREAK}"),
    "HTML": ("a <b>c</b>", "a `<b>`c`</b>`"),
    "what only looks like a list, heading or rule": (
        "1986\\. a\n\\- b\n\\+ c\n\\# d\n\\---",
        "1986\\. a\n\\- b\n\\+ c\n\\# d\n\\---",
    ),
    "characters that mean something": ("a_b <c & d|e 1. f", "a\\_b \\<c & d\\|e 1. f".replace("&", "\\&")),
}


@pytest.mark.parametrize(("written", "stays"), KEPT.values(), ids=KEPT)
def test_tame_markdown_stays(written: str, stays: str) -> None:
    assert sanitize_markdown(written, 5000) == stays
    assert sanitize_markdown("", 5000) == ""


@pytest.mark.parametrize("text", ["x" * 3000, "* \n" * 800, "a\n\n" * 900, "*" * 2500], ids=["a", "b", "c", "d"])
def test_a_long_text_is_cut_and_says_so(text: str) -> None:
    made = sanitize_markdown(text, 2000)
    assert len(made) <= 2000
    assert made.endswith("too long._")


@pytest.mark.parametrize(
    ("text", "span"),
    [("a", "`a`"), ("`", "`` ` ``"), ("a``b", "```a``b```"), (" a", "`  a `"), ("", "` `"), ("a\nb", "`a␤b`")],
)
def test_a_code_span_holds_any_text(text: str, span: str) -> None:
    assert as_code(text) == span


def test_a_code_span_says_that_it_was_cut() -> None:
    assert as_code("abcdef", 4) == "`abc…`"


def test_verbatim_lines_are_counted_where_there_are_too_many() -> None:
    assert as_code_block("a\nb\nc\n", 20) == ">     a\n>     b\n>     … and 1 more"
    assert as_code_block(" \n\n", 20) == ""


def test_words_that_close_or_skip_are_broken_in_code_too() -> None:
    assert as_code("Fixes #1") == f"`Fixes{BREAK} #1`"
    assert as_code("fixes the file a#b") == "`fixes the file a#b`"
    assert as_code("[skip ci]") == f"`[{BREAK}skip ci]`"


def test_ordinary_text_is_left_alone() -> None:
    for text in ("It works, mostly (see above).", "a - b: c; d = e?", "é 日本 ✓", "50 % of 3 * 4"):
        assert as_prose(text).replace("\\", "") == text
