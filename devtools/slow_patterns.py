"""Regular expressions of the product that take more than linear time for what they read.

What they read was often made by an enemy, and `re` cannot be interrupted: a cubic pattern and 20 KB stop a controller
for hours. Each pattern is tried with texts made from itself: for each part that may repeat, what precedes it, that part
many times, and an end that does not fit. Only the methods are tried that the product calls.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import sandbox

METHODS = frozenset({"match", "fullmatch", "search", "finditer", "findall", "split", "sub", "subn"})
_MAKERS = frozenset({"compile", "lazy_pattern"})
_ENDS = ("\0", "\n\0", "x", "")
_LENGTHS = (20, 24, 28, 34, 42, 52, 64, 80, 100, 400, 1600, 6400)  # close together first: some grow exponentially
SLOW_S = 0.02
"""Of the longest text: a linear pattern takes a hundredth of it, a quadratic one ten times as long."""
_QUICK_S = SLOW_S / 50
"""Of a text of `_SURE`: a pattern that is so quick there does not grow as the square."""
_SURE = 1600


@dataclass(frozen=True)
class UsedPattern:
    """A pattern with its place, as `sandbox.module:NAME` or `sandbox.module:LINE`, and the methods that are called."""

    place: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]


@dataclass(frozen=True)
class SlowText:
    """`text` is the start of one of `length` characters that took `seconds`."""

    place: str
    method: str
    length: int
    seconds: float
    text: str


def find_patterns() -> Iterator[UsedPattern]:
    """Each pattern that a module of the product names, or gives to a function of `re`."""
    names = [found.name for found in pkgutil.walk_packages(sandbox.__path__, "sandbox.")]
    trees = {name: ast.parse(_find_source(name).read_text()) for name in names if name != "sandbox.__main__"}
    used = {name: list(_find_calls(tree)) for name, tree in trees.items()}
    for name, tree in trees.items():
        module = importlib.import_module(name)
        for target, line in _find_made(tree):
            value = getattr(module, target, None) if target else None
            calls = used[name] if target.startswith("_") else itertools.chain.from_iterable(used.values())
            methods = frozenset(method for owner, method in calls if owner == target)
            if value is not None and hasattr(value, "pattern") and hasattr(value, "flags"):
                yield UsedPattern(f"{name}:{target}", re.compile(value.pattern, value.flags), methods or METHODS)
            else:
                yield from _read_literals(name, line, METHODS)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name_of(node.func) in METHODS and _owner_of(node.func) == "re":
                yield from _read_literals(name, node, frozenset({_name_of(node.func)}))


def find_slow(used: UsedPattern) -> SlowText | None:
    """The first text found that takes a pattern too long; None: there is none."""
    is_binary = isinstance(used.pattern.pattern, bytes)
    for prefix, repeated in make_attacks(used.pattern):
        for method, end in itertools.product(sorted(used.methods), _ENDS):
            for length in _LENGTHS:
                text: Any = prefix + repeated * (length // len(repeated)) + end
                seconds = _measure(used.pattern, method, text.encode("latin-1", "replace") if is_binary else text)
                if seconds > SLOW_S:
                    return SlowText(used.place, method, len(text), seconds, text[:40])
                if seconds < _QUICK_S and length >= _SURE:
                    break
    return None


def make_attacks(pattern: re.Pattern[Any]) -> list[tuple[str, str]]:
    """For each part that may repeat without end: what may precede it, and some texts that it matches, not empty."""
    source = pattern.pattern
    parsed = parser.parse(source, pattern.flags & ~re.UNICODE if isinstance(source, bytes) else pattern.flags)
    found = dict.fromkeys(("", text) for text in (" ", "a", "1", ".a", "\n", " \n", "a "))
    found.update(dict.fromkeys(_find_repeats(parsed, "")))
    return list(found)


def _find_repeats(items: Iterable[Any], prefix: str) -> Iterator[tuple[str, str]]:
    for code, argument in items:
        if code in {codes.MAX_REPEAT, codes.MIN_REPEAT}:
            _, most, body = argument
            if most is codes.MAXREPEAT:
                yield from ((prefix, text) for text in _make_samples(body) if text)
            yield from _find_repeats(body, prefix)
        elif code is codes.SUBPATTERN:
            yield from _find_repeats(argument[-1], prefix)
        elif code is codes.BRANCH:
            for branch in argument[1]:
                yield from _find_repeats(branch, prefix)
        elif code in {codes.ASSERT, codes.ASSERT_NOT}:
            yield from _find_repeats(argument[1], prefix)
        elif code is codes.ATOMIC_GROUP:
            yield from _find_repeats(argument, prefix)
        prefix += next(iter(_make_samples([(code, argument)])), "")


def _make_samples(items: Iterable[Any], most: int = 6) -> list[str]:
    """Some texts that match; what cannot be made, such as the text of an earlier group, is left out."""
    texts = [""]
    for code, argument in items:
        parts = _sample(code, argument)
        texts = list(dict.fromkeys(a + b for b in parts for a in texts))[:most] if parts else texts
    return texts


def _sample(code: Any, argument: Any) -> list[str]:
    maker = _SAMPLERS.get(code)
    return maker(argument) if maker else []


_SAMPLERS: dict[Any, Callable[[Any], list[str]]] = {
    codes.LITERAL: lambda argument: [chr(argument)],
    codes.NOT_LITERAL: lambda argument: [text for text in "a \n1" if ord(text) != argument],
    codes.ANY: lambda _: ["a", " "],
    codes.IN: lambda argument: _sample_set(argument),
    codes.BRANCH: lambda argument: [text for branch in argument[1] for text in _make_samples(branch, 2)],
    codes.SUBPATTERN: lambda argument: _make_samples(argument[-1]),
    codes.ATOMIC_GROUP: lambda argument: _make_samples(argument),
    **dict.fromkeys(
        (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT),
        lambda argument: [text * max(1, argument[0]) for text in _make_samples(argument[2])],
    ),
}


_CATEGORIES = {
    codes.CATEGORY_SPACE: " \n", codes.CATEGORY_DIGIT: "1", codes.CATEGORY_WORD: "a1_",
    codes.CATEGORY_NOT_SPACE: "a1-", codes.CATEGORY_NOT_DIGIT: "a ", codes.CATEGORY_NOT_WORD: " \n-",
}  # fmt: skip


def _sample_set(members: list[Any]) -> list[str]:
    if members[0][0] is codes.NEGATE:
        pattern = re.compile("".join(["[^", *map(_write_member, members[1:]), "]"]))
        return [text for text in 'a 1\n-:.\t"(' if pattern.match(text)]
    found: list[str] = []
    for code, argument in members:
        if code is codes.LITERAL:
            found.append(chr(argument))
        elif code is codes.RANGE:
            found.append(chr(argument[0]))
        elif code is codes.CATEGORY:
            found.extend(_CATEGORIES[argument])
    return found


_WRITTEN = {
    codes.CATEGORY_SPACE: r"\s", codes.CATEGORY_DIGIT: r"\d", codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_SPACE: r"\S", codes.CATEGORY_NOT_DIGIT: r"\D", codes.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


def _write_member(member: tuple[Any, Any]) -> str:
    code, argument = member
    if code is codes.CATEGORY:
        return _WRITTEN[argument]
    if code is codes.RANGE:
        return "-".join(re.escape(chr(end)) for end in argument)
    return re.escape(chr(argument))


def _measure(pattern: re.Pattern[Any], method: str, text: Any) -> float:
    """Processor time in seconds, the lowest of three if the first is long."""
    times: list[float] = []
    while not times or (min(times) > SLOW_S and len(times) < 3):
        started = time.process_time()
        if method in {"sub", "subn"}:
            getattr(pattern, method)(text[:0], text)
        elif method == "finditer":
            for _ in pattern.finditer(text):
                pass
        else:
            getattr(pattern, method)(text)
        times.append(time.process_time() - started)
    return min(times)


def _find_source(module: str) -> Path:
    path = Path(sandbox.__path__[0]).parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _find_made(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """The name of each pattern, empty if it has none, and the call that makes it."""
    named = {
        node.value: target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name_of(node.func) in _MAKERS:
            yield named.get(node, ""), node


def _find_calls(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names of objects and of their methods, also of those that are only passed on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            yield _name_of(node.value), node.attr


def _read_literals(module: str, call: ast.Call, methods: frozenset[str]) -> Iterator[UsedPattern]:
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str | bytes):
        yield UsedPattern(f"{module}:{call.lineno}", re.compile(first.value), methods)


def _name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _owner_of(node: ast.expr) -> str:
    return _name_of(node.value) if isinstance(node, ast.Attribute) else ""
