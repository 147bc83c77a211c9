"""Read what tox.ini and noxfile.py install for tests: the former as an .ini file, the latter by its syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from sandbox.dependencies.collection import Collection
from sandbox.dependencies.pyproject import classify_list
from sandbox.dependencies.requirement_files import add_itself, read_requirement_file
from sandbox.dependencies.setup_files import list_lines, name_of_call, parse_ini, parse_python
from sandbox.models.dependencies import RefusalReason
from sandbox.models.dependencies import RequirementRole as Role

_FACTORS = re.compile(r"((?:[!A-Za-z0-9_.,-]|\{[A-Za-z0-9_.,-]*\})+):(?!//)\s*(.*)")
_INCLUDE = re.compile(r"-(?:r|c)\s*(?:\{toxinidir\}/)?(\S+)")
_OF_EVERY_TEST = frozenset({"py", "py3", "unit", "full", "all"})


def read_tox(collection: Collection) -> None:
    """Add the `deps` and `extras` of tox.ini's `testenv` and of its test environments."""
    parser = parse_ini(collection, "tox.ini")
    for section in parser.sections():
        kind, _, name = section.partition(":")
        if section == "testenv" or (kind == "testenv" and classify_list(name) is Role.TEST):
            _read_deps(collection, list_lines(parser[section].get("deps", "")), f"tox.ini: {section}")
            extras = _select_lines(list_lines(parser[section].get("extras", "")))
            collection.want_extras((name for line in extras for name in line.split(",")), Role.TEST)


def _read_deps(collection: Collection, lines: Iterable[str], origin: str) -> None:
    """Substitutions are refused."""
    for line in _select_lines(lines):
        include = _INCLUDE.fullmatch(line)
        if include is None and not add_itself(collection, line, Role.TEST):
            collection.add_text(line, Role.TEST, origin)
        elif include and line.startswith("-r"):
            _read_include(collection, include[1], origin)


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


def _read_include(collection: Collection, path: str, origin: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./-]*", path) or ".." in path:
        collection.refuse(path, RefusalReason.PATH, origin)
    elif path not in collection.files:
        read_requirement_file(collection, path, Role.TEST)


def read_noxfile(collection: Collection) -> None:
    """Add the literal arguments of `session.install()` in test sessions of noxfile.py."""
    for function in parse_python(collection, "noxfile.py").body:
        if not isinstance(function, ast.FunctionDef) or classify_list(function.name) is not Role.TEST:
            continue
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            if name_of_call(call) == "install":
                _read_arguments(collection, call.args, f"noxfile.py: {function.name}")


def _read_arguments(collection: Collection, arguments: list[ast.expr], origin: str) -> None:
    option = ""
    for argument in arguments:
        text = argument.value if isinstance(argument, ast.Constant) else None
        if not isinstance(text, str):
            option = ""
        elif option in {"-r", "--requirement"}:
            _read_include(collection, text, origin)
            option = ""
        elif text.startswith("-"):
            option = text
        elif option not in {"-c", "--constraint"} and not add_itself(collection, text, Role.TEST):
            collection.add_text(text, Role.TEST, origin)
            option = ""
        else:
            option = ""
