"""The texts that a reader may find in a text: its letters without what is invisible, and without markup.

Theory. A text reaches its readers through decoders: a forge renders Markdown, a browser removes tags and replaces
entities, a URL is decoded when it is followed. Each takes characters out or puts others in, and they can be nested.
So a search for a secret looks at every result of up to `_STEPS` of these transformations, in any order, not only at
the text as written. It compares ASCII letters and digits only. So invisible characters, spaces and punctuation do not
count, and characters that are compatible with letters (fullwidth, mathematical) are read as those.

Every step is linear in the text, and a step that changes no character ends its branch: ordinary text has few readings,
hostile text at most eighty.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import unquote

from sandbox.characters import INVISIBLE, char_class

_STEPS = 3
_INVISIBLE = re.compile(char_class(INVISIBLE))
_BACKSLASH = re.compile(r"\\(?=[!-/:-@[-`{-~])")
_OTHER = re.compile(r"[^a-z0-9]+")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TAG = re.compile(r"<[a-z/!?][^>]*>", re.IGNORECASE)
_QUOTED_VALUE = re.compile(r"=\s?(?:\"[^\"]*\"|'[^']*')")
_ESCAPED_BRACKET = re.compile(r"\\[()<>\[\]]")
# In Markdown (CommonMark 6.3: in angle brackets, with balanced parentheses, by reference; footnotes), and as
# `forges.sanitize` writes it.
_LINK_TARGET = re.compile(
    r"\]\(\s?<[^<>]*>[^()]*\)|\]\((?:[^()]|\([^()]*\))*\)|\]\[[^\[\]]*\]|\[\^[^\[\]]*\]| \(`[^`]*`\)"
)
# Python refuses to convert a long decimal number, and Unicode ends at seven digits.
_LEADING_ZEROS = re.compile(r"&#0+(?=[0-9])")
_LONG_NUMBER = re.compile(r"&#[0-9]{8,};?")
_JSON_ESCAPE = re.compile(r"\\u([0-9a-f]{4})", re.IGNORECASE)
_SPELLED_OUT = re.compile("u([0-9a-f]{4,5})")


def list_readings(text: str) -> frozenset[str]:
    """The text and what is left of it without markup and encodings. Pure."""
    newest = {_unescape(text), _unescape(_ESCAPED_BRACKET.sub("", text))}  # an escaped bracket ends no link
    found = {text} | newest
    for _ in range(_STEPS):
        newest = {step(reading) for reading in newest for step in (_decode, _remove_markup, _remove_values)} - found
        found |= newest
    return frozenset(found)


def list_letters(readings: Iterable[str]) -> frozenset[str]:
    """ASCII letters and digits of readings, in lower case. Pure.

    Once without any other character, once with those that are compatible with a letter; and each without the invisible
    characters that we spell out (`u200b`).
    """
    found = {letters for reading in readings for letters in (letters_of(reading), letters_of(_fold(reading)))}
    return frozenset(found | {_SPELLED_OUT.sub(_remove_invisible_code, letters) for letters in found})


def letters_of(text: str) -> str:
    """ASCII letters and digits in lower case; other characters are left out. Pure."""
    return _OTHER.sub("", text.lower())


def _fold(text: str) -> str:
    """Replace characters by the letters that they are compatible with."""
    if text.isascii():
        return text
    # Marks go first: to sort a long run of them takes quadratic time.
    kept = "".join(c for c in text if not unicodedata.combining(c))
    return unicodedata.normalize("NFKD", kept).casefold()


def _unescape(text: str) -> str:
    """Remove invisible characters, which may be breaks of ours, and the backslashes of Markdown."""
    return _BACKSLASH.sub("", _INVISIBLE.sub("", text))


def _decode(text: str) -> str:
    """Replace entities, percent-encoding and the escapes of JSON."""
    unquoted = text.replace("`", "")  # escaping of ours puts long numbers into code spans
    bounded = _LONG_NUMBER.sub("", _LEADING_ZEROS.sub("&#", unquoted))
    plain = unquote(html.unescape(bounded), errors="replace")
    return _unescape(_JSON_ESCAPE.sub(lambda m: chr(int(m[1], 16)), plain))


def _remove_markup(text: str) -> str:
    """Remove comments, tags and link targets. Only text before the last end is searched, else each start without an
    end would be searched to the end of the text.
    """
    return _LINK_TARGET.sub("", _remove_before(_TAG, ">", _remove_before(_COMMENT, "-->", text)))


def _remove_before(pattern: re.Pattern[str], end: str, text: str) -> str:
    last = text.rfind(end) + len(end)
    return text if last < len(end) else pattern.sub("", text[:last]) + text[last:]


def _remove_values(text: str) -> str:
    """Remove quoted values of attributes, in which a tag does not end."""
    return _QUOTED_VALUE.sub("", text)


def _remove_invisible_code(match: re.Match[str]) -> str:
    digits = match[1]
    if int(digits, 16) in INVISIBLE:
        return ""
    return digits[4:] if int(digits[:4], 16) in INVISIBLE else match[0]
