"""Split the text of a Perl program into words, as data: no line is run.

A string without interpolation and a number are values. All that Perl would compute or read as text of another kind
(variables, interpolated strings, lists of `qw`, patterns, here-documents) is one opaque word, so that what it holds is
taken for no statement. A text that does not end is opaque to the end of the file. Time and memory are linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

_VALUE_CHARS = 300
_TOKEN = re.compile(
    r"""(?P<newline>\n(?P<pod>=[a-zA-Z][^\n]*(?:\n(?!=cut)[^\n]*)*+(?:\n=cut[^\n]*)?)?)
      | (?P<skip>[^\S\n]+|\#[^\n]*)
      | (?P<single>'(?:[^'\\]|\\.)*+'?)
      | (?P<double>"(?:[^"\\]|\\.)*+"?)
      | (?P<variable>\$(?:\#?\${0,4}(?:::)?\w+(?:::\w+)*+|\^\w|\$(?![\w{$])|\#(?=[{$])|[^\w\s{$])|[@%&]\w+(?:::\w+)*+)
      | (?P<number>v?[0-9](?:\w|\.(?!\.))*+)
      | (?P<word>[A-Za-z_]\w*+(?:::\w+)*+)
      | <<(?P<indented>~?)(?:(?P<heredoc>[A-Za-z_]\w*+)|[ ]?(?P<quote>['"])(?P<name>[^'"\n]{0,100})(?P=quote))
      | (?P<mark>=>|->|=~|!~|.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_NUMBER = re.compile(r"v?[0-9][0-9_]*+(?:\.[0-9_]++)*+", re.ASCII)
_PARTS = {"q": 1, "qq": 1, "qw": 1, "qx": 1, "qr": 1, "m": 1, "s": 2, "tr": 2, "y": 2}
"""Operators that quote, and how many texts follow them."""
_OPENING = re.compile(
    r"""(?:(?!\s*=>)(?P<close>[!"#$%&'*+,./:<=?@\\^`{|~(\[-])|\s+(?P<apart>[{(\[</|!'"]))""", re.ASCII
)
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_PATTERN = re.compile(r"/(?:[^\\/\n]|\\[^\n])*+/[a-z]*+", re.ASCII)
_BEFORE_PATTERN = frozenset("(,=!{;&|?:") | {"=~", "!~", "=>", "split", "grep", "if", "unless", "and", "or", "not"}
_SPACE = re.compile(r"\s*+")
_FLAGS = re.compile(r"[a-z]*+")
_ESCAPES = re.compile(r"\\([\\'])")


@dataclass(frozen=True)
class PerlWord:
    """`value`: a string or number. `opaque`: what is not read."""

    kind: Literal["value", "word", "mark", "opaque"]
    text: str


@dataclass
class _PerlText:
    """`at`: where the next word begins. `documents`: the ends of here-documents that begin after this line."""

    text: str
    at: int = 0
    last: str = ""
    documents: list[tuple[str, bool]] = field(default_factory=list)


def list_words(text: str) -> Iterator[PerlWord]:
    """The words of a program; `text` ends before `__END__` or `__DATA__`."""
    reader = _PerlText(f"\n{text}")  # a block of POD begins after a newline
    while reader.at < len(reader.text):
        if word := _read_next(reader):
            reader.last = word.text
            yield word


def _read_next(reader: _PerlText) -> PerlWord | None:
    """Go behind the next word, or behind what is between words."""
    match = _TOKEN.match(reader.text, reader.at)
    if match is None:  # pragma: no cover -- the last alternative takes any character
        raise AssertionError(reader.at)
    reader.at = match.end()
    if match["newline"]:
        reader.at = reader.at if match["pod"] else _skip_documents(reader)
        return None
    return None if match["skip"] else _read_word(reader, match)


def _read_word(reader: _PerlText, match: re.Match[str]) -> PerlWord:
    kind, found = match.lastgroup, match[0]
    if kind in {"single", "double"}:
        return _read_string(found)
    if kind == "word":
        return _read_quoted(reader, found) or PerlWord("word", found)
    if kind in {"heredoc", "name"}:
        reader.documents.append((match["heredoc"] or match["name"] or "", bool(match["indented"])))
    elif found == "/" and reader.last in _BEFORE_PATTERN and (pattern := _PATTERN.match(reader.text, match.start())):
        reader.at = pattern.end()
    elif kind == "mark":
        return PerlWord("mark", found)
    return PerlWord("value" if kind == "number" and _NUMBER.fullmatch(found) else "opaque", found)


def _read_string(found: str) -> PerlWord:
    """A text in quotes; one that interpolates, is long, or does not end is opaque."""
    inner = found[1:-1]
    is_whole = len(found) > 1 and found[-1] == found[0] and len(inner) <= _VALUE_CHARS
    if not is_whole or (found[0] == '"' and re.search(r"[\\$@]", inner)):
        return PerlWord("opaque", found[:_VALUE_CHARS])
    return PerlWord("value", _ESCAPES.sub(r"\1", inner).strip())


def _read_quoted(reader: _PerlText, operator: str) -> PerlWord | None:
    """What follows `q`, `qw`, `s` and such; None if this is a usual word: a key, a method, a test of files."""
    opening = _OPENING.match(reader.text, reader.at) if operator in _PARTS else None
    if opening is None or reader.last in {"->", "-", "sub", "package"}:
        return None
    begin = reader.at = opening.end()
    mark = opening["close"] or opening["apart"]
    end = _skip_text(reader, mark)
    for _ in range(1, _PARTS[operator]):
        if mark in _CLOSING:
            _skip(reader, _SPACE)
            mark = reader.text[reader.at : reader.at + 1]
            reader.at += 1
        _skip_text(reader, mark)
    if operator in {"m", "qr", "s", "tr", "y"}:
        _skip(reader, _FLAGS)
    inner = reader.text[begin:end] if end - begin <= _VALUE_CHARS else "\\"
    if operator == "q" and "\\" not in inner and end < len(reader.text):
        return PerlWord("value", inner.strip())
    return PerlWord("opaque", f"{operator}{mark}")


def _skip(reader: _PerlText, pattern: re.Pattern[str]) -> None:
    if match := pattern.match(reader.text, reader.at):
        reader.at = match.end()


def _skip_text(reader: _PerlText, mark: str) -> int:
    """Go behind the end of a text that `mark` began, which may nest if it is a bracket. Returns where it ends."""
    depth = 1
    for found in _find_marks(mark).finditer(reader.text, reader.at) if mark.isascii() and mark else ():
        if found[0][0] == "\\" and mark != "\\":
            continue
        depth += 1 if mark in _CLOSING and found[0] == mark else -1
        if not depth:
            reader.at = found.end()
            return found.start()
    reader.at = len(reader.text)
    return reader.at


@cache
def _find_marks(mark: str) -> re.Pattern[str]:
    """At most one for each ASCII character."""
    return re.compile(rf"\\.|{re.escape(mark)}|{re.escape(_CLOSING.get(mark, mark))}", re.DOTALL)


def _skip_documents(reader: _PerlText) -> int:
    """Where the text goes on after the here-documents that the line before began."""
    at = reader.at
    for end, is_indented in reader.documents:
        while at < len(reader.text):
            stop = reader.text.find("\n", at)
            line = reader.text[at : stop if stop >= 0 else len(reader.text)]
            at += len(line) + 1
            if (line.strip() if is_indented else line) == end:
                break
    if reader.documents:
        reader.documents.clear()
        return at - 1 if at <= len(reader.text) else len(reader.text)  # the newline: POD may follow
    return at
