"""How the tests of a report are named to their runner, so that it runs only these again. Pure.

What cannot be named for sure is not: the caller then runs the whole check. The arguments go through the check's own
pattern like those of any caller, for the names are the guest's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sandbox.models import Check, FailedTest, TestOutcome, TestResult
from sandbox.models.checks import TestSelector

FileExists = Callable[[str], bool]
"""Whether the checked tree has this file, by its path from the top."""

_PLAIN = re.compile(r"[\w.:/-]+", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)


def select_tests(check: Check, tests: Sequence[TestResult], exists: FileExists) -> tuple[str, ...] | None:
    """The arguments that run only these tests; None if its runner does not take them."""
    parameter = next((p for p in check.parameters if p.selects is not None), None)
    if parameter is None or parameter.selects is None or len(check.parameters) > 1:
        return None
    folder = "" if check.cwd == "." else f"{check.cwd}/"
    return _SELECTORS[parameter.selects](tests, lambda path: exists(folder + path))


def add_arguments(check: Check, failures: Sequence[FailedTest], exists: FileExists) -> tuple[FailedTest, ...]:
    """The failed tests, each with the argument that runs it, where its runner takes one."""

    def name(failure: FailedTest) -> str | None:
        result = TestResult(test=failure.test, outcome=TestOutcome.FAILED, path=failure.path)
        return next(iter(select_tests(check, [result], exists) or ()), None)

    return tuple(failure.model_copy(update={"argument": name(failure)}) for failure in failures)


def _select_pytest(tests: Sequence[TestResult], exists: FileExists) -> tuple[str, ...] | None:
    """`tests.test_a.TestB::test_c[1]` is `tests/test_a.py::TestB::test_c[1]`."""
    found = [_name_for_pytest(result.test, exists) for result in tests]
    return None if None in found else tuple(dict.fromkeys(filter(None, found)))


def _name_for_pytest(test: str, exists: FileExists) -> str | None:
    module, mark, name = test.partition("::")
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        path = "/".join(parts[:end]) + ".py"
        if mark and exists(path):
            return "::".join([path, *parts[end:], name])
    return None


def _select_ctest(tests: Sequence[TestResult], _exists: FileExists) -> tuple[str, ...] | None:
    """A regular expression of CMake for names: ctest reports each as class and as name."""
    names = [result.test.partition("::")[2] or result.test for result in tests]
    if not all(_PLAIN.fullmatch(name) for name in names):
        return None
    return (f"^({'|'.join(name.replace('.', '[.]') for name in names)})$",)


def _select_cargo(tests: Sequence[TestResult], _exists: FileExists) -> tuple[str, ...] | None:
    """cargo takes one part of a name."""
    names = {result.test for result in tests}
    return tuple(names) if len(names) == 1 and all(map(_PLAIN.fullmatch, names)) else None


def _select_files(tests: Sequence[TestResult], exists: FileExists) -> tuple[str, ...] | None:
    """The files of the tests: by the location, or by the class, where a runner writes the file's name."""
    found = []
    for result in tests:
        named = (result.path or "", result.test.partition("::")[0])
        path = next((path for path in named if path and exists(path)), None)
        if path is None:
            return None
        found.append(path)
    return tuple(dict.fromkeys(found))


def _select_surefire(tests: Sequence[TestResult], _exists: FileExists) -> tuple[str, ...] | None:
    """`com.example.ParserTest::reads` is `com.example.ParserTest#reads`."""
    found = []
    for result in tests:
        name = _split_method(result.test)
        if name is None:
            return None
        found.append("#".join(name))
    return (",".join(dict.fromkeys(found)),)


def _select_gradle(tests: Sequence[TestResult], _exists: FileExists) -> tuple[str, ...] | None:
    """The check takes one pattern."""
    names = {_split_method(result.test) for result in tests}
    name = names.pop() if len(names) == 1 else None
    return None if name is None else (".".join(name),)


def _split_method(test: str) -> tuple[str, str] | None:
    class_name, _, rest = test.partition("::")
    method = _IDENTIFIER.match(rest)
    return (class_name, method[0]) if method and _PLAIN.fullmatch(class_name) else None


_SELECTORS: dict[TestSelector, Callable[[Sequence[TestResult], FileExists], tuple[str, ...] | None]] = {
    "pytest": _select_pytest,
    "ctest": _select_ctest,
    "cargo": _select_cargo,
    "files": _select_files,
    "surefire": _select_surefire,
    "gradle": _select_gradle,
}
