"""Ignore rules of the base commit, plus the profile's build output. The live tree's rules are the guest's to write.

Not a library: pathspec turns a rule into one backtracking expression, and `*a*a*a*a*a*a*b` from a repository then meets
a file name from the guest and runs for years on the host, with no deadline (THREATS I07). Here a rule is matched name
by name, each with an expression that never goes back over a `*`, and all matching together has a budget.
Grammar and precedence: gitignore(5); tests compare with `git check-ignore`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sandbox.errors import ErrorCode, SandboxError

BUDGET = 30_000_000
"""Comparisons of a name with a rule, for one walk: about 15 seconds."""

IGNORE_BYTES = 4 * 1024**2
"""Most bytes of `.gitignore` files, together."""

_COMPILING = 200  # what making an expression costs, in comparisons
_STEPS = 64  # characters times characters that cost as much as one comparison
_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \\t", "cntrl": "\\x00-\\x1f\\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": "\\s", "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_RULE_LENGTH = 4096  # a path is not longer
_SPECIAL = re.compile(r"[*?\[\\]")
_BRACKET = re.compile(r"\[([!^]?)(\]?(?:\[:[a-z]+:\]|\\.|[^\]\\])*)\]", re.DOTALL)
_IN_BRACKET = re.compile(r"\[:([a-z]+):\]|\\?(.)", re.DOTALL)


class IgnoreRules:
    """Which untracked paths are left out. `files`: text of each `.gitignore` by its directory ('' for the root).

    Keeps the verdicts on directories: one object serves one walk.
    """

    def __init__(self, files: Mapping[str, str], artifacts: Iterable[str] = ()) -> None:
        self._rules = {folder: _rules(text.removeprefix("\ufeff").split("\n")) for folder, text in files.items()}
        self._artifacts = _rules(artifacts)
        self._folders: dict[str, bool] = {}
        every = (rule for rules in (self._artifacts, *self._rules.values()) for rule in rules)
        self._left = BUDGET - sum(_COMPILING for rule in every for glob in rule.globs if glob.wild)

    def ignored(self, path: str, *, directory: bool) -> bool:
        """Whether git would ignore this path: by itself, or with a directory above it.

        Raises: `quota_exceeded` when the rules cost more than any honest repository's.
        """
        parts = path.split("/")
        if any(self._folder("/".join(parts[:depth])) for depth in range(1, len(parts))):
            return True
        return self._folder(path) if directory else self._verdict(parts, directory=False)

    def _folder(self, path: str) -> bool:
        if path not in self._folders:
            self._folders[path] = self._verdict(path.split("/"), directory=True)
        return self._folders[path]

    def _verdict(self, parts: list[str], *, directory: bool) -> bool:
        if self._last(self._artifacts, parts, directory):
            return True
        for depth in range(len(parts) - 1, -1, -1):
            rules = self._rules.get("/".join(parts[:depth]))
            verdict = self._last(rules, parts[depth:], directory) if rules else None
            if verdict is not None:
                return verdict
        return False

    def _last(self, rules: Sequence[_Rule], parts: list[str], directory: bool) -> bool | None:
        """What the last matching rule of one file says."""
        for rule in rules:  # kept in reverse
            if rule.directories_only and not directory:
                continue
            self._left -= rule.cost(parts)
            if self._left < 0:
                raise SandboxError(
                    ErrorCode.QUOTA_EXCEEDED,
                    "The repository's ignore rules take too long",
                    hint="Its .gitignore files hold too many or too costly rules for this many untracked files.",
                )
            if rule.matches(parts):
                return not rule.negated
        return None


@dataclass(frozen=True)
class _Glob:
    """One component of a rule."""

    text: str

    def matches(self, name: str) -> bool:
        return self._expression.match(name) is not None if self.wild else name == self.text

    @cached_property
    def wild(self) -> bool:
        return _SPECIAL.search(self.text) is not None

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        """Between stars stand pieces of fixed length, so the first place a piece fits is as good as any later one."""
        try:
            first, *rest = _pieces(self.text)
        except (ValueError, IndexError):
            return re.compile("(?!)")
        if not rest:
            return re.compile(first + r"\Z", re.DOTALL)
        middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1] if piece)
        return re.compile(f"{first}{middle}.*{rest[-1]}\\Z", re.DOTALL)


_ANY = _Glob("**")


@dataclass(frozen=True)
class _Rule:
    """One line. `globs` is matched against all components; `_ANY` stands for any number of them."""

    globs: tuple[_Glob, ...]
    negated: bool
    directories_only: bool

    def matches(self, parts: Sequence[str]) -> bool:
        if self._last_only:
            return self.globs[1].matches(parts[-1])
        states = self._reached({0})
        for name in parts:
            states = self._reached(
                {i if self.globs[i] is _ANY else i + 1 for i in states if i < len(self.globs) and self._fits(i, name)}
            )
        return len(self.globs) in states

    def cost(self, parts: Sequence[str]) -> int:
        if self._last_only:
            return 1 + (self._weight * len(parts[-1])) // _STEPS
        return len(self.globs) * len(parts) + (self._weight * sum(map(len, parts))) // _STEPS

    @cached_property
    def _last_only(self) -> bool:
        return len(self.globs) == 2 and self.globs[0] is _ANY and self.globs[1] is not _ANY

    @cached_property
    def _weight(self) -> int:
        return sum(len(g.text) for g in self.globs if g.wild)

    def _fits(self, index: int, name: str) -> bool:
        return self.globs[index] is _ANY or self.globs[index].matches(name)

    def _reached(self, states: set[int]) -> set[int]:
        """With what follows a `**` that stands for nothing. Two are never neighbours."""
        return states | {i + 1 for i in states if i < len(self.globs) and self.globs[i] is _ANY}


def _rules(lines: Iterable[str]) -> tuple[_Rule, ...]:
    """Last line first. A line that is no rule is skipped, as git does."""
    found = [rule for line in lines if (rule := _rule(line.removesuffix("\r"))) is not None]
    return tuple(reversed(found))


def _rule(line: str) -> _Rule | None:
    text = re.sub(r"(?<!\\)((?:\\\\)*) +\Z", r"\1", line)
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text.removeprefix("!")
    directories_only = text.endswith("/")
    text = text.removesuffix("/")
    if not text or len(text) > _RULE_LENGTH:
        return None
    anchored = "/" in text
    names = text.removeprefix("/").split("/") if anchored else [text]
    globs: list[_Glob] = [] if anchored else [_ANY]
    for name in names:
        glob = _ANY if anchored and name == "**" else _Glob(name)
        if glob is not _ANY or not globs or globs[-1] is not _ANY:
            globs.append(glob)
    if not globs:
        return None
    if globs[-1] is _ANY:
        globs.append(_Glob("*"))  # `a/**` is what is in a, not a
    return _Rule(tuple(globs), negated, directories_only)


def _pieces(glob: str) -> list[str]:
    """Expressions of the text between the stars, each of fixed length. Raises: ValueError for what matches nothing."""
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
                raise ValueError("a bracket stays open")
            pieces[-1] += _bracket(bracket[1], bracket[2])
            position = bracket.end() - 1
        else:
            position += char == "\\"
            pieces[-1] += re.escape(glob[position])  # IndexError: a backslash at the end
        position += 1
    return pieces


def _bracket(negation: str, inside: str) -> str:
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
