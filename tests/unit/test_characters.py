"""The table of invisible and look-alike characters against Python's Unicode data."""

from __future__ import annotations

import re
import sys
import unicodedata
from pathlib import Path

import pytest

from sandbox.characters import IGNORABLE, INVISIBLE, LOOK_ALIKES, SHAPING, char_class, describe_character

PAGE = Path(__file__).parents[2] / "docs/paths.md"
VISIBLE_FORMATS = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
"""Category Cf, but drawn around or above digits: signs of Arabic, Syriac and Kaithi."""


def test_every_format_character_of_unicode_is_in_the_table_but_those_that_are_drawn() -> None:
    formats = {c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in {"Cf", "Zl", "Zp"}}
    assert {ord(c) for c in formats - set(VISIBLE_FORMATS)} <= INVISIBLE
    assert not INVISIBLE & set(map(ord, VISIBLE_FORMATS))


@pytest.mark.parametrize(
    ("first", "last"),
    [
        *((0xAD, 0xAD), (0x34F, 0x34F), (0x115F, 0x1160), (0x180B, 0x180F), (0x200B, 0x200F), (0x2028, 0x202E)),
        *((0x2060, 0x206F), (0x2800, 0x2800), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0)),
        *((0xFFF9, 0xFFFB), (0xE0000, 0xE007F), (0xE0100, 0xE01EF)),
    ],
    ids=hex,
)
def test_selectors_fillers_tags_and_controls_are_in_the_table(first: int, last: int) -> None:
    assert set(range(first, last + 1)) <= INVISIBLE


def test_no_letter_mark_or_emoji_that_can_be_seen_is_in_the_table() -> None:
    assert (
        not {ord(c) for c in "aé ñ\u0301\u0e33\u0939\u0902 中 한글 עברית العربية 😀 ❤ \u2801 \u00a0\u3000"} & INVISIBLE
    )
    assert SHAPING < IGNORABLE < INVISIBLE


def test_a_class_matches_exactly_its_characters() -> None:
    pattern = re.compile(char_class({0x61, 0x62, 0x63, 0x5D, 0x1F600}))
    assert [c for c in map(chr, range(0x20000)) if pattern.match(c)] == ["]", "a", "b", "c", "\U0001f600"]


def test_a_look_alike_is_no_ascii_character_and_looks_like_one() -> None:
    assert all(code > 0x7F for code in LOOK_ALIKES)
    assert set("".join(LOOK_ALIKES.values())) == set("./\\ ")
    folded = {
        code
        for code in range(0x80, sys.maxunicode + 1)
        if unicodedata.normalize("NFKC", chr(code)) in {".", "..", "...", "/", "\\"}
    }
    assert folded <= set(LOOK_ALIKES)


def test_the_page_about_paths_lists_every_look_alike() -> None:
    rows = re.findall(r"^\| (`\S+`|a space) \| (U\+[0-9A-F U+]+) \|$", PAGE.read_text(), re.MULTILINE)
    listed = {int(code[2:], 16): seen.strip("`") for seen, codes in rows for code in codes.split()}
    assert listed == {code: seen.replace(" ", "a space") for code, seen in LOOK_ALIKES.items()}


def test_a_character_is_described_by_its_name() -> None:
    assert describe_character("\u200b") == "U+200B ZERO WIDTH SPACE"
    assert describe_character("\U000e0002") == "U+E0002 unassigned"
