"""Regular expressions of the product that take more than linear time for what they read.

What they read was often made by an enemy, and `re` cannot be interrupted: a cubic pattern and 20 KB stop a controller
for hours. Each pattern is tried with texts made from itself: for each part that may repeat, what precedes it, that part
many times, and an end that does not fit. Only the methods are tried that the product calls.

What modules make as they are imported is recorded in a process of its own, where `re.compile` and `lazy_pattern` note
each call: so it does not matter how a pattern is written or where it is kept. Functions make them of literals and of
variables of their modules; `find_untried` lists those that make them of what they are given.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import json
import pkgutil
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from types import FrameType, ModuleType
from typing import Any

import sandbox
from sandbox import lazy_pattern  # the module: the constructor of its class is replaced

METHODS = frozenset({"match", "fullmatch", "search", "finditer", "findall", "split", "sub", "subn"})
_MAY_USE = re.compile(rf"\.(?:{'|'.join(METHODS)})\b|\bre\b|lazy_pattern")
_LOOPS = frozenset({"search", "finditer", "findall", "split", "sub", "subn"})
"""They look for all matches, or for the first one: what `finditer` does takes as long, or longer."""
_MAKERS = frozenset({"compile", "lazy_pattern"})
_ENDS = ("\0", "\n\0", "x", "")
_LENGTHS = (20, 24, 28, 34, 42, 52, 64, 80, 100, 400, 1600, 6400)  # close together first: some grow exponentially
SLOW_S = 0.02
"""Of the longest text: a linear pattern takes a hundredth of it, a quadratic one ten times as long."""
_STEEP = 8
"""The longest text takes a linear pattern four times as long as the one before, a quadratic one sixteen times: so a
long part at each place, such as a path of at most 200 characters, does not count on a slow machine.
"""
_QUICK_S = SLOW_S / 50
"""Of a text of `_SURE`: a pattern that is so quick there does not grow as the square."""
_SURE = 1600


@dataclass(frozen=True)
class UsedPattern:
    """A pattern with its place, as `sandbox.module:NAME` or `sandbox.module:LINE`, and the methods that are called. One
    in a tuple or another value has a line.
    """

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


@dataclass(frozen=True)
class _MadePattern:
    """A pattern that was made while `module` was imported, at `line` of it. `name`: of the variable of the module that
    is the pattern, or has it in its value (`is_part`); '' for none. Bytes are text of as many characters.
    """

    module: str
    line: int
    name: str
    is_part: bool
    pattern: str
    is_bytes: bool
    flags: int

    def compile(self) -> re.Pattern[Any]:
        return re.compile(self.pattern.encode("latin-1") if self.is_bytes else self.pattern, self.flags)


@dataclass(frozen=True)
class _MakingCall:
    """A call that makes a pattern, or uses one that it is given as text. `function`: that it is in, '' for none."""

    module: str
    node: ast.Call
    function: str
    methods: frozenset[str]


@cache
def find_patterns() -> tuple[UsedPattern, ...]:
    """Each pattern that a module of the product makes as it is imported, and each that a function gives to `re`, if it
    is known before the function is called.
    """
    return tuple(_find_patterns())


def _find_patterns() -> Iterator[UsedPattern]:
    used = {name: frozenset(_find_calls(tree)) for name, tree in _read_trees().items()}
    for one in _record_patterns():
        yield UsedPattern(_name_place(one), one.compile(), _find_methods(one, used) or METHODS)
    for call in _find_unrecorded():
        pattern = _evaluate(call)
        if pattern is not None:
            yield UsedPattern(f"{call.module}:{call.node.lineno}", pattern, call.methods)


def find_untried() -> frozenset[str]:
    """The functions, as `sandbox.module:FUNCTION`, that make patterns of what they are given. A module without the name
    of a function makes one as it is imported, and that was not found.
    """
    return frozenset(f"{call.module}:{call.function}" for call in _find_unrecorded() if _evaluate(call) is None)


def _name_place(one: _MadePattern) -> str:
    return f"{one.module}:{one.name if one.name and not one.is_part else one.line}"


def _find_methods(one: _MadePattern, used: Mapping[str, frozenset[tuple[str, str]]]) -> frozenset[str]:
    """The methods that the product calls of this pattern; of a part of a private value, those that its module calls."""
    own = used[one.module]
    if one.is_part:
        return frozenset(method for _, method in own) if one.name.startswith("_") else METHODS
    calls = own if one.name.startswith("_") else itertools.chain.from_iterable(used.values())
    return frozenset(method for owner, method in calls if owner == one.name)


def find_slow(used: UsedPattern) -> SlowText | None:
    """The first text found that takes a pattern too long; None: there is none."""
    is_binary = isinstance(used.pattern.pattern, bytes)
    for prefix, repeated in make_attacks(used.pattern):
        for method, end in itertools.product(_choose_methods(used.methods), _ENDS):
            before = 0.0
            for length in _LENGTHS:
                text: Any = prefix + repeated * (length // len(repeated)) + end
                seconds = _measure(used.pattern, method, text.encode("latin-1", "replace") if is_binary else text)
                is_linear = length == _LENGTHS[-1] and seconds < _STEEP * before
                before = seconds
                if seconds > SLOW_S and not is_linear:
                    return SlowText(used.place, method, len(text), seconds, text[:40])
                if seconds < _QUICK_S and length >= _SURE:
                    break
    return None


def _choose_methods(methods: frozenset[str]) -> list[str]:
    """The methods to try: `finditer` for all that look at each place."""
    loops = methods & _LOOPS
    return sorted(methods - _LOOPS) + (["search"] if loops == {"search"} else ["finditer"] if loops else [])


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
        if method == "finditer":
            for _ in pattern.finditer(text):
                pass
        else:
            getattr(pattern, method)(text)
        times.append(time.process_time() - started)
    return min(times)


def _find_source(module: str) -> Path:
    path = Path(sandbox.__path__[0]).parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _name_modules() -> list[str]:
    found = [found.name for found in pkgutil.walk_packages(sandbox.__path__, "sandbox.")]
    return [name for name in found if name != "sandbox.__main__"]


@cache
def _read_trees() -> Mapping[str, ast.Module]:
    """The syntax trees of all modules; that of one which cannot make or use a pattern is empty: they are most."""
    texts = {name: _find_source(name).read_text() for name in _name_modules()}
    return {name: ast.parse(text if _MAY_USE.search(text) else "") for name, text in texts.items()}


@cache
def _record_patterns() -> tuple[_MadePattern, ...]:
    """What modules of the product make, in a process in which none of them was imported before."""
    command = [sys.executable, "-m", "devtools.slow_patterns"]
    root = Path(sandbox.__path__[0]).parent
    done = subprocess.run(command, capture_output=True, check=True, cwd=root, timeout=300)  # noqa: S603 - our own words
    return tuple(_MadePattern(**one) for one in json.loads(done.stdout))


@cache
def _find_unrecorded() -> tuple[_MakingCall, ...]:
    """The calls that made no pattern while their module was imported."""
    lines = {(one.module, one.line) for one in _record_patterns()}
    return tuple(
        call
        for name, tree in _read_trees().items()
        if name != lazy_pattern.__name__
        for call in _find_making(name, tree, "")
        if not lines & {(name, line) for line in _list_lines(call.node)}
    )


def _list_lines(node: ast.Call) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _find_making(module: str, node: ast.AST, function: str) -> Iterator[_MakingCall]:
    for child in ast.iter_child_nodes(node):
        inside = function or (child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else "")
        if isinstance(child, ast.Call):
            name, owner = _name_of(child.func), _owner_of(child.func)
            if name == "lazy_pattern" or (name in _MAKERS and owner == "re"):
                yield _MakingCall(module, child, function, METHODS)
            elif name in METHODS and owner == "re":
                yield _MakingCall(module, child, function, frozenset({name}))
        yield from _find_making(module, child, inside)


def _find_calls(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names of objects and of their methods, also of those that are only passed on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            yield _name_of(node.value), node.attr


_FLAGS_AT = {"compile": 1, "lazy_pattern": 1, "split": 3, "sub": 4, "subn": 4}


def _evaluate(call: _MakingCall) -> re.Pattern[Any] | None:
    """The pattern of a call, with its flags. None: it is made of arguments or variables of the function."""
    arguments, place = call.node.args, _FLAGS_AT.get(_name_of(call.node.func), 2)
    flags = [word.value for word in call.node.keywords if word.arg == "flags"] or arguments[place : place + 1]
    try:
        found = [_evaluate_one(call.module, node) for node in (*arguments[:1], *flags)]
    except NameError:
        return None
    return re.compile(*found)


def _evaluate_one(module: str, node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    code = compile(ast.Expression(node), module, "eval")
    return eval(code, dict(vars(importlib.import_module(module))))  # noqa: S307 - code of the product


def _name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _owner_of(node: ast.expr) -> str:
    return _name_of(node.value) if isinstance(node, ast.Attribute) else ""


class _Recorder:
    """Notes the patterns that modules of the product make, from `start` on."""

    def __init__(self) -> None:
        self._made: list[tuple[str, int, object, re.Pattern[Any]]] = []

    def start(self) -> None:
        """Replace what makes patterns, in this process."""
        compile_plainly, begin_lazily = re.compile, lazy_pattern.lazy_pattern.__init__

        def compile_noted(pattern: Any, flags: int = 0) -> re.Pattern[Any]:
            made: re.Pattern[Any] = compile_plainly(pattern, flags)
            self._note(sys._getframe(1), made, made)
            return made

        def begin_noted(lazy: Any, pattern: Any, flags: int = 0) -> None:
            begin_lazily(lazy, pattern, flags)  # type: ignore[call-arg]
            self._note(sys._getframe(1), lazy, compile_plainly(pattern, flags))

        vars(re)["compile"] = compile_noted
        setattr(lazy_pattern.lazy_pattern, "__init__", begin_noted)  # noqa: B010 - mypy takes it for `re.compile`

    def _note(self, frame: FrameType, made: object, pattern: re.Pattern[Any]) -> None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith("sandbox.") and module != lazy_pattern.__name__:
            self._made.append((module, frame.f_lineno, made, pattern))

    def describe(self) -> Iterator[_MadePattern]:
        """What was made, with the names that the modules have for it."""
        names = {module: _name_values(sys.modules[module]) for module in {module for module, *_ in self._made}}
        for module, line, made, pattern in self._made:
            name, is_part = names[module].get(id(made), ("", True))
            source = pattern.pattern
            text = source.decode("latin-1") if isinstance(source, bytes) else source
            yield _MadePattern(module, line, name, is_part, text, isinstance(source, bytes), pattern.flags)


def _name_values(module: ModuleType) -> dict[int, tuple[str, bool]]:
    """For each value by its `id` the variable that has it, and whether it is only a part of that."""
    found = {id(value): (name, False) for name, value in vars(module).items()}
    for name, value in list(vars(module).items()):
        for part in _walk_parts(value, 4):
            found.setdefault(id(part), (name, True))
    return found


def _walk_parts(value: object, depth: int) -> Iterator[object]:
    """The parts of a tuple, a list, a set, a mapping, or of an object or a class of the product."""
    parts: Iterable[object] = ()
    if isinstance(value, tuple | list | set | frozenset):
        parts = value
    elif isinstance(value, dict):
        parts = [*value, *value.values()]
    elif not isinstance(value, ModuleType) and _is_ours(value):
        parts = list(getattr(value, "__dict__", {}).values())
    for part in parts if depth else ():
        yield part
        yield from _walk_parts(part, depth - 1)


def _is_ours(value: object) -> bool:
    return str((value if isinstance(value, type) else type(value)).__module__).startswith("sandbox.")


_MAKE_LATE = (("sandbox.git.failures", "_compile_rules"),)
"""Functions without arguments that make the patterns of a module at their first call."""


def _print_made() -> None:
    """Import each module of the product, and print what it made, as JSON."""
    recorder = _Recorder()
    recorder.start()
    for name in _name_modules():
        importlib.import_module(name)
    for name, function in _MAKE_LATE:
        getattr(sys.modules[name], function)()
    sys.stdout.write(json.dumps([asdict(one) for one in recorder.describe()]))


if __name__ == "__main__":
    _print_made()
