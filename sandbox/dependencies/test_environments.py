"""Read what tox and nox install for tests: tox's settings wherever it keeps them, noxfile.py by its syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from configparser import ConfigParser
from dataclasses import dataclass
from typing import Any

from sandbox.dependencies.collection import Collection
from sandbox.dependencies.folder_patterns import resolve_folder
from sandbox.dependencies.pyproject import FILE as PYPROJECT
from sandbox.dependencies.pyproject import add_group, classify_list
from sandbox.dependencies.requirement_files import add_folder, add_itself, read_named_file
from sandbox.dependencies.setup_files import (
    list_lines,
    name_of_call,
    parse_ini,
    parse_ini_text,
    parse_python,
)
from sandbox.models.dependencies import RefusalReason
from sandbox.models.dependencies import RequirementRole as Role

_FACTORS = re.compile(r"((?:[!A-Za-z0-9_.,-]|\{[A-Za-z0-9_.,-]*\})+):(?!//)\s*(.*)")
_INCLUDE = re.compile(r"-(?:r|c)\s*(?:\{toxinidir\}/)?(\S+)")
_JOINED_FILE = re.compile(r"(?:-r|--requirement=)([^-\s].*)")
_JOINED_PACKAGE = re.compile(r"(?:-e|--editable=)([^-\s].*)")
RECIPES = ("justfile", "Justfile", "Makefile")
_OF_SECTION = re.compile(r"\{\[([\w:.-]{1,100})\]([\w.-]{1,100})\}")
_OF_ENVIRONMENT = re.compile(r"\{env:\w{1,100}(?::([^{}]{0,1000}))?\}")
_ROOT = re.compile(r"\{(?:toxinidir|tox_root)\}")
_MAX_DEPTH = 3
_MAX_LINES = 20_000  # of all environments of a file: each has the lines of `[DEFAULT]`
_EACH = 32  # characters that a setting costs which is put into another, beside its own
_INSTALLS = re.compile(r"\b(?:uv|poetry|pdm)\b.{0,100}? (?:sync|run|install)\b")
_LINE_CHARS = 300  # of a recipe: more of a line is not looked at
_NOT_FOR_CHECKS = frozenset({"doc", "docs", "documentation", "lint", "typing"})
_OF_EVERY_TEST = frozenset({"py", "py3", "unit", "full", "all"})


def read_tox(collection: Collection) -> None:
    """Add the `deps`, `extras` and `dependency_groups` of tox's `testenv` and of its test environments."""
    table = _table(_table(collection.load_toml(PYPROJECT), "tool"), "tox")
    legacy = table.get("legacy_tox_ini")
    _read_sections(collection, parse_ini(collection, "tox.ini"), "tox.ini")
    _read_sections(
        collection, parse_ini_text(collection, legacy if isinstance(legacy, str) else "", PYPROJECT), PYPROJECT
    )
    _read_sections(collection, parse_ini(collection, "setup.cfg"), "setup.cfg")
    _read_tables(collection, collection.load_toml("tox.toml"), "tox.toml")
    _read_tables(collection, table, PYPROJECT)


def _read_sections(collection: Collection, parser: ConfigParser, path: str) -> None:
    sections = _Sections(parser)
    for section in parser.sections():
        kind, _, name = section.partition(":")
        if section == "testenv" or (kind == "testenv" and classify_list(name) is Role.TEST):
            if sections.lines_left < 0:
                return collection.refuse(f"more than {_MAX_LINES} lines", RefusalReason.LIMIT, path)
            lines = {key: list(sections.list_lines(parser[section].get(key, ""))) for key in _KEYS}
            _read_environment(collection, lines, f"{path}: {section}")
    return None


@dataclass
class _Sections:
    """The sections of a file of tox, and how many more characters may be taken from one into another, and how many more
    lines may be read. A file of 5,000 lines could otherwise ask for millions.
    """

    parser: ConfigParser
    left: int = 64 * 1024
    lines_left: int = _MAX_LINES

    def list_lines(self, text: str, depth: int = 0) -> Iterator[str]:
        """The lines for tests, with the lines for tests of other sections in the place of `{[core]deps}`, and the
        default in that of `{env:NAME:DEFAULT}`, as tox does where no such variable is set. What is not there, or is too
        much, stays and is refused as a line.
        """
        lines = list_lines(text)
        self.lines_left -= len(lines)
        for line in _select_lines(lines):
            found = [self._find(match) for match in _OF_SECTION.finditer(line)]
            self.left -= sum(len(one) + _EACH for one in found)
            is_much = depth >= _MAX_DEPTH or self.left < 0
            if found and not is_much:
                yield from self.list_lines(_OF_SECTION.sub(self._find, line), depth + 1)
            elif text := _OF_ENVIRONMENT.sub(lambda default: default[0] if default[1] is None else default[1], line):
                yield text

    def _find(self, match: re.Match[str]) -> str:
        """An environment has what `testenv` says where it says nothing itself."""
        is_environment = match[1].startswith("testenv:")
        general = self.parser.get("testenv", match[2], fallback=match[0]) if is_environment else match[0]
        return self.parser.get(match[1], match[2], fallback=general)


def _read_tables(collection: Collection, tables: Mapping[str, Any], path: str) -> None:
    """The same in TOML, where each line is an element of a list."""
    tests = {name: found for name, found in _table(tables, "env").items() if classify_list(name) is Role.TEST}
    for name, table in {"env_run_base": tables.get("env_run_base"), **tests}.items():
        listed = {key: _list(_table({"": table}, "").get(key)) for key in _KEYS}
        for other in (one for lines in listed.values() for one in lines if not isinstance(one, str)):
            collection.refuse(str(type(other).__name__), RefusalReason.SYNTAX, f"{path}: {name}")
        texts = {key: [one for one in lines if isinstance(one, str)] for key, lines in listed.items()}
        _read_environment(collection, texts, f"{path}: {name}")


_KEYS = ("deps", "extras", "dependency_groups")


def _read_environment(collection: Collection, lines: Mapping[str, list[str]], origin: str) -> None:
    _read_deps(collection, lines["deps"], origin)
    extras, groups = (
        [name.strip() for line in _select_lines(lines[key]) for name in line.split(",")] for key in _KEYS[1:]
    )
    collection.want_extras(extras, Role.TEST)
    for name in groups:
        add_group(collection, name, Role.TEST)


def _table(tables: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = tables.get(key)
    return found if isinstance(found, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _read_deps(collection: Collection, lines: Iterable[str], origin: str) -> None:
    """Substitutions are refused, but for the root of the tree. images/python/declared.py reads the folders, too."""
    for line in _select_lines(lines):
        include, local = _INCLUDE.fullmatch(line), _ROOT.sub(".", line)
        if include and line.startswith("-r"):
            read_named_file(collection, include[1], Role.TEST, origin)
        elif not (include or add_itself(collection, local, Role.TEST) or _add_folder(collection, local)):
            collection.add_text(line, Role.TEST, origin)


def _add_folder(collection: Collection, line: str) -> bool:
    return add_folder(collection, line, Role.TEST, "tox.ini")


def _select_lines(lines: Iterable[str]) -> Iterator[str]:
    """Those without factors, and those with factors that mean tests: `test: pytest`, `!py37: x`, but not `py37: y`."""
    for line in lines:
        found = _FACTORS.fullmatch(line)
        if found is None:
            yield line
        elif any(_means_tests(alternative) for alternative in re.split(r"[,{}]", found[1]) if alternative):
            yield found[2]


def _means_tests(factors: str) -> bool:
    return all(
        factor.startswith("!") or factor in _OF_EVERY_TEST or classify_list(factor) is Role.TEST
        for factor in factors.split("-")
        if factor
    )


def read_all_extras(collection: Collection) -> None:
    """Select all extras if a recipe of a justfile or Makefile installs the project with all of them."""
    lines = (line for path in RECIPES for line in collection.load_text(path).split("\n"))
    if any("--all-extras" in line and _INSTALLS.search(line[:_LINE_CHARS]) for line in lines):
        wanted = (name for name in collection.extras if name not in _NOT_FOR_CHECKS and classify_list(name) is None)
        collection.want_extras(wanted, Role.DEVELOPMENT)


def read_noxfile(collection: Collection) -> None:
    """Add the literal arguments of `session.install()` in test sessions of noxfile.py."""
    for function in parse_python(collection, "noxfile.py").body:
        if not isinstance(function, ast.FunctionDef) or not _is_for_tests(function.name):
            continue
        for call, folder in _SessionCalls(function).list():
            if name_of_call(call) == "install":
                _Installation(collection, folder, f"noxfile.py: {function.name}").read(call.args)


def _is_for_tests(session: str) -> bool:
    """Whether the name of a session says so; images/python/run_tests.py runs those that the pattern fits."""
    return classify_list(session) is Role.TEST or re.fullmatch(r"unit_?tests?", session) is not None


_Folder = str | None
"""Where a session is, from the root of the tree, '' for the root itself; None for a folder that is not known."""


_BRANCHES = (ast.If, ast.For, ast.While, ast.Try, ast.TryStar, ast.Match)


class _SessionCalls:
    """The calls of a session in the order of the text, each with the folder that `session.chdir()` has led to. After
    one that may be done or not, it is not known.
    """

    def __init__(self, session: ast.FunctionDef) -> None:
        self._function = session
        self._session = session.args.args[0].arg if session.args.args else ""
        self._changing = self._find_changing()

    def list(self) -> Iterator[tuple[ast.Call, _Folder]]:
        folder: _Folder = ""
        pending: list[ast.AST | tuple[_Folder]] = [self._function]
        while pending:
            node = pending.pop()
            if isinstance(node, tuple):  # the end of `with session.chdir():`
                (folder,) = node
                continue
            if folder is not None and isinstance(node, _BRANCHES) and node in self._changing:
                folder = None
            if isinstance(node, ast.With) and any(self._is_change(item.context_expr) for item in node.items):
                pending.append((folder,))
            if isinstance(node, ast.Call):
                yield node, folder
                folder = _enter(folder, node) if self._is_change(node) else folder
            pending += reversed(list(ast.iter_child_nodes(node)))

    def _find_changing(self) -> set[ast.AST]:
        """The nodes with a change of the folder in them. Found once: an `elif` is within the one before it, so that a
        walk from each of them would take a time that grows with the square of their number.
        """
        above = {child: node for node in ast.walk(self._function) for child in ast.iter_child_nodes(node)}
        found: set[ast.AST] = set()
        for change in filter(self._is_change, ast.walk(self._function)):
            node: ast.AST | None = change
            while node is not None and node not in found:
                found.add(node)
                node = above.get(node)
        return found

    def _is_change(self, node: ast.AST) -> bool:
        found = node.func if isinstance(node, ast.Call) else None
        return (
            isinstance(found, ast.Attribute)
            and found.attr in {"chdir", "cd"}
            and isinstance(found.value, ast.Name)
            and found.value.id == self._session
        )


def _enter(folder: _Folder, call: ast.Call) -> _Folder:
    target = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    return resolve_folder(folder, target) if folder is not None and isinstance(target, str) else None


@dataclass(frozen=True)
class _Installation:
    """A call of `session.install()`. `folder`: where it runs; it is taken for the root where it is not known."""

    collection: Collection
    folder: _Folder
    origin: str

    def read(self, arguments: Iterable[ast.expr]) -> None:
        """Add its literal arguments."""
        option = ""
        for argument in arguments:
            text = argument.value if isinstance(argument, ast.Constant) else None
            if not isinstance(text, str):
                option = ""
            elif option in {"-r", "--requirement"}:
                self._read_file(text)
                option = ""
            elif joined := _JOINED_FILE.fullmatch(text):
                self._read_file(joined[1])
                option = ""
            elif joined := _JOINED_PACKAGE.fullmatch(text):
                self._add(joined[1])
                option = ""
            elif text.startswith("-"):
                option = text
            else:
                if option not in {"-c", "--constraint"}:
                    self._add(text)
                option = ""

    def _read_file(self, path: str) -> None:
        read_named_file(self.collection, path, Role.TEST, self.origin, self.folder or "")

    def _add(self, text: str) -> None:
        is_itself = not self.folder and add_itself(self.collection, text, Role.TEST)
        if not is_itself:
            self.collection.add_text(text, Role.TEST, self.origin)
