"""Globs of gitignore(5), matched name by name without backtracking over a `*`.

A pattern comes from a repository or an operator, the names from a guest. Libraries translate a whole rule to one
expression with backtracking: `*a*a*a*a*a*b` and a long name then run for years, without a deadline (THREATS I07). Here
the time is at most the length of the name times the length of the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern

_STEPS = 64  # this product of characters costs as much as one comparison
_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \\t", "cntrl": "\\x00-\\x1f\\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": "\\s", "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_LENGTH = 4096  # the maximum length of a path
_SPECIAL = lazy_pattern(r"[*?\[\\]")
_BRACKET = lazy_pattern(r"\[([!^]?)(\]?(?:\[:[a-z]+:\]|\\.|[^\]\\])*)\]", re.DOTALL)
_IN_BRACKET = lazy_pattern(r"\[:([a-z]+):\]|\\?(.)", re.DOTALL)


@dataclass(frozen=True)
class Glob:
    """One path component of a rule."""

    text: str

    def matches(self, name: str) -> bool:
        if not self.has_wildcard:
            return name == self.text
        return self._expression is not None and self._expression.match(name) is not None

    @cached_property
    def has_wildcard(self) -> bool:
        return _SPECIAL.search(self.text) is not None

    @property
    def cannot_match(self) -> bool:
        """Whether this can never match: a bracket is not closed, or a backslash is at the end."""
        return self.has_wildcard and self._expression is None

    @cached_property
    def _expression(self) -> re.Pattern[str] | None:
        """Pieces between stars have a fixed length, so it is enough to try the first place where a piece matches."""
        try:
            first, *rest = _translate_pieces(self.text)
        except (ValueError, IndexError):
            return None
        if not rest:
            return re.compile(first + r"\Z", re.DOTALL)
        middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1] if piece)
        return re.compile(f"{first}{middle}.*{rest[-1]}\\Z", re.DOTALL)


_ANY = Glob("**")


@dataclass(frozen=True)
class Pattern:
    """One line of gitignore(5). `globs` is matched against all components; `_ANY` matches any number of them."""

    globs: tuple[Glob, ...]
    is_negated: bool
    directories_only: bool

    def covers(self, parts: Sequence[str]) -> bool:
        """Whether it matches this file, or a directory above it."""
        if any(self.matches(parts[:depth]) for depth in range(1, len(parts))):
            return True
        return not self.directories_only and self.matches(parts)

    def matches(self, parts: Sequence[str]) -> bool:
        """Whether it matches the whole path, for any kind of file."""
        if self._is_name_only:
            return self.globs[1].matches(parts[-1])
        states = self._skip_empty_any({0})
        for name in parts:
            states = self._skip_empty_any(
                {i if self.globs[i] is _ANY else i + 1 for i in states if i < len(self.globs) and self._fits(i, name)}
            )
        return len(self.globs) in states

    def cost(self, parts: Sequence[str]) -> int:
        """The cost of a match, in comparisons of a name with a name."""
        if self._is_name_only:
            return 1 + (self._weight * len(parts[-1])) // _STEPS
        return len(self.globs) * len(parts) + (self._weight * sum(map(len, parts))) // _STEPS

    @cached_property
    def _is_name_only(self) -> bool:
        return len(self.globs) == 2 and self.globs[0] is _ANY and self.globs[1] is not _ANY

    @cached_property
    def _weight(self) -> int:
        return sum(len(g.text) for g in self.globs if g.has_wildcard)

    def _fits(self, index: int, name: str) -> bool:
        return self.globs[index] is _ANY or self.globs[index].matches(name)

    def _skip_empty_any(self, states: set[int]) -> set[int]:
        """Add the states after a `**` that matches no component. Two `**` are never adjacent."""
        return states | {i + 1 for i in states if i < len(self.globs) and self.globs[i] is _ANY}


class PatternSet:
    """Patterns that are matched together. Nearly all begin with a plain name, so only few apply to a path."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._anywhere: dict[str, list[Pattern]] = {}  # by the plain name at any depth
        self._at_top: dict[str, list[Pattern]] = {}  # by the plain first name
        self._others: list[Pattern] = []
        for pattern in patterns:
            self._find_bucket(pattern).append(pattern)

    def _find_bucket(self, pattern: Pattern) -> list[Pattern]:
        first, *rest = pattern.globs
        if first is not _ANY:
            return self._others if first.has_wildcard else self._at_top.setdefault(first.text, [])
        if rest and rest[0] is not _ANY and not rest[0].has_wildcard:
            return self._anywhere.setdefault(rest[0].text, [])
        return self._others

    def covers(self, parts: Sequence[str]) -> bool:
        """Whether any pattern matches this file, or a directory above it."""
        asked = [*self._others, *self._at_top.get(parts[0], ())]
        for name in parts:
            asked += self._anywhere.get(name, ())
        return any(pattern.covers(parts) for pattern in asked)


def parse_pattern(line: str) -> Pattern | None:
    """Parse one line of gitignore(5); None for an empty line, a comment, or a line longer than any path."""
    text = _strip_trailing_blanks(line)
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text.removeprefix("!")
    directories_only = text.endswith("/")
    text = text.removesuffix("/")
    if not text or len(text) > _LENGTH:
        return None
    anchored = "/" in text
    names = text.removeprefix("/").split("/") if anchored else [text]
    globs: list[Glob] = [] if anchored else [_ANY]
    for name in names:
        glob = _ANY if anchored and name == "**" else Glob(name)
        if glob is not _ANY or not globs or globs[-1] is not _ANY:
            globs.append(glob)
    if not globs:
        return None
    if globs[-1] is _ANY:
        globs.append(Glob("*"))  # `a/**` matches the content of a, not a
    return Pattern(tuple(globs), negated, directories_only)


def _strip_trailing_blanks(line: str) -> str:
    """Remove blanks at the end, but keep one that a backslash quotes (`trim_trailing_spaces` in git's dir.c).

    Not an expression: a search would start at each blank of a run, and 1 MB of blanks would take half an hour.
    """
    text = line.rstrip(" ")
    backslashes = len(text) - len(text.rstrip("\\"))
    return line[: len(text) + backslashes % 2]


def _translate_pieces(glob: str) -> list[str]:
    """Translate the text between the stars to expressions of fixed length. Raises: ValueError if it cannot match."""
    pieces, position = [""], 0
    while position < len(glob):
        char = glob[position]
        if char == "*":
            pieces.append("")
        elif char == "?":
            pieces[-1] += "."
        elif char == "[":
            bracket = _BRACKET.match(glob, position)
            if bracket is None:
                raise ValueError("a bracket is not closed")
            pieces[-1] += _translate_bracket(bracket[1], bracket[2])
            position = bracket.end() - 1
        else:
            position += char == "\\"
            pieces[-1] += re.escape(glob[position])  # IndexError: a backslash at the end
        position += 1
    return pieces


def _translate_bracket(negation: str, inside: str) -> str:
    tokens = [(m[1], m[2], m[0]) for m in _IN_BRACKET.finditer(inside)]
    out, index = "", 0
    while index < len(tokens):
        name, char, _ = tokens[index]
        is_range = index + 2 < len(tokens) and tokens[index + 1][2] == "-" and char and tokens[index + 2][1]
        if name:
            out += _CLASSES.get(name, "")
        elif is_range:
            last = tokens[index + 2][1]
            out += f"{re.escape(char)}-{re.escape(last)}" if char <= last else ""
            index += 2
        else:
            out += re.escape(char)
        index += 1
    if not out:
        return "." if negation else "(?!)"
    return f"[{'^' if negation else ''}{out}]"
