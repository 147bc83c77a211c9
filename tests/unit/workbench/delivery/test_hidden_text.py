"""What is left of a text for its readers. Whole secrets: tests/attack/test_s_text.py."""

from __future__ import annotations

import html

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.workbench.delivery.hidden_text import letters_of, list_letters, list_readings
from sandbox.workbench.delivery.secret_scan import contains_secret

SECRET = "Zk3mQ9xW7vB1"


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("a<b>b</b>c", "abc"),
        ("a<!-- x > y -->b", "ab"),
        ('a<i title="x > y">b', "ab"),
        ("a<i title='<u>'>b", "ab"),
        ("&#97;&#x62;&amp;#99;", "abc"),
        ("&#0000000000000000097;b", "ab"),
        ("%61%2562", "ab"),
        ("\\u0061b", "ab"),
        ("a\\u200bb", "ab"),
        ("a\\ue0041b", "ab"),
        ("a\u00e9b", "ab"),
        ("a\u00e9b", "aeb"),
        ("\uff21\U0001d41b\u24d2", "abc"),
        ("[a](http://x)b", "ab"),
        ("a\\<b\\>c", "ac"),
    ],
    ids=ascii,
)
def test_letters_without_what_a_reader_does_not_see(text: str, letters: str) -> None:
    assert letters in list_letters(list_readings(text))


def test_ordinary_text_has_few_readings() -> None:
    assert list_readings("Fix it: 3 < 4 > 2, 100% (a & b)") == {"Fix it: 3 < 4 > 2, 100% (a & b)"}


def test_a_number_too_long_for_an_integer_is_no_error() -> None:
    assert "ab" in list_letters(list_readings(f"a&#{'9' * 5000};b&#x{'9' * 5000};"))


@given(st.text(max_size=40))
def test_the_text_as_written_is_always_searched(text: str) -> None:
    readings = list_readings(text)
    assert text in readings
    assert letters_of(text) in list_letters(readings)


def _escape_some(text: str, choices: list[bool]) -> str:
    return "".join(f"&#{ord(c)};" if chosen else html.escape(c) for c, chosen in zip(text, choices, strict=True))


BETWEEN = st.lists(
    st.sampled_from(
        ["", " ", "\u200b", "\u00ad", "<b>", "</b>", "<!---->", "&shy;", "&#8203;", "*", "\\_", "\u0301", "\n> "]
    ),
    min_size=len(SECRET) - 1,
    max_size=len(SECRET) - 1,
)


@settings(max_examples=150, deadline=None)
@given(BETWEEN, st.lists(st.booleans(), min_size=len(SECRET), max_size=len(SECRET)))
def test_s11_any_mixture_between_the_letters_of_a_secret_is_seen_through(
    between: list[str], chosen: list[bool]
) -> None:
    hidden = "".join(_escape_some(c, [e]) + b for c, e, b in zip(SECRET, chosen, [*between, ""], strict=True))
    assert contains_secret(f"x {hidden} y", SECRET)


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("<>&;#/!-'\"=x3mQ9[]()%\\`"), max_size=60))
def test_no_text_without_all_letters_of_a_secret_holds_it(text: str) -> None:
    assert not contains_secret(text, SECRET)
