"""Text for display and for decisions: one table of invisible characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.characters import INVISIBLE
from sandbox.text import (
    DisplayDecoder,
    decode_for_display,
    escape_invisible,
    escape_path,
    neutralise,
    neutralise_lines,
    one_line,
)

INVISIBLE_TEXT = st.text(st.sampled_from([*map(chr, sorted(INVISIBLE)), *"ab\n\\"]), max_size=12)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pass\u00adword", "pass\\u00adword"),
        ("{ timeout, \u3164 }", "{ timeout, \\u3164 }"),
        ("a\u115f\u1160\uffa0b", "a\\u115f\\u1160\\uffa0b"),
        ("a\u2800b", "a\\u2800b"),
        ("a\u034fb", "a\\u034fb"),
        ("a\u180b\u180e\u180fb", "a\\u180b\\u180e\\u180fb"),
        ("a\ufe00\U000e0100b", "a\\ufe00\\ue0100b"),
        ("\ufff9a\ufffab\ufffb", "\\ufff9a\\ufffab\\ufffb"),
        ("\u2764\ufe0f \u26a0\ufe0e", "\u2764 \u26a0"),
    ],
    ids=ascii,
)
def test_s12_what_cannot_be_seen_is_spelled_out_and_emoji_selectors_are_dropped(text: str, shown: str) -> None:
    assert neutralise(text) == one_line(text) == decode_for_display(text.encode()) == shown


@given(INVISIBLE_TEXT)
def test_s12_no_invisible_character_is_in_any_text_for_display(text: str) -> None:
    shower = DisplayDecoder()
    streamed = "".join(shower.feed(bytes([byte])) for byte in text.encode()) + shower.finish()
    assert streamed == neutralise(text)
    for shown in (streamed, one_line(text), escape_invisible(text), escape_path(text)):
        assert not INVISIBLE & set(map(ord, shown))


@given(INVISIBLE_TEXT, INVISIBLE_TEXT)
def test_s12_different_texts_are_different_questions(one: str, other: str) -> None:
    """A decision must not depend on a character that is dropped."""
    assert (escape_invisible(one) == escape_invisible(other)) == (one == other)


def test_s13_a_path_in_a_question_shows_which_characters_only_look_like_dots_and_separators() -> None:
    assert escape_path("\u2024\u2024/a\u2215b/\uff0egit") == "\\u{2024}\\u{2024}/a\\u{2215}b/\\u{ff0e}git"
    assert escape_path("docs/\u4e2d.md") == "docs/\u4e2d.md"
    assert escape_invisible("one\u2026 two\u3002") == "one\u2026 two\u3002", "in prose they are ordinary"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("-a\r\n+a\n", "-a\r\n+a\n"),
        ("+a\r-b\n", "+a\u240d-b\n"),
        ("+a\r\r\n\r", "+a\u240d\r\n\r"),
        ("+\x1b]0;a\n+evil()\n+\x07b\n", "+\n+evil()\n+\ufffdb\n"),
        ("+\u200b\U000e0100\x1b[31mred\t\n", "+\\u200b\\ue0100red\t\n"),
    ],
    ids=["line-ends", "one-line", "several", "hides-no-line", "neutral"],
)
def test_s12_each_line_of_a_diff_stays_one_line_with_its_line_end(text: str, shown: str) -> None:
    assert neutralise_lines(text) == shown
