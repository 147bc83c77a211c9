from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from sandbox.checks import parameters
from sandbox.checks.parameters import fill_parameters
from sandbox.errors import ErrorCode
from sandbox.models import Check
from tests.unit.conftest import refused

TESTS = {"name": "tests", "pattern": "[^-].*", "many": True}


def build(argv: list[str], *parameters: dict[str, object]) -> Check:
    return Check.model_validate({"id": "test", "label": "", "argv": argv, "parameter": parameters})


def test_the_whole_check_has_no_place_left() -> None:
    whole = fill_parameters(build(["pytest", "<tests>", "-q"], TESTS))
    assert (whole.argv, whole.parameters, whole.arguments) == (("pytest", "-q"), (), ())


def test_arguments_stand_where_the_profile_puts_them() -> None:
    part = fill_parameters(build(["pytest", "<tests>", "-q"], TESTS), ["a b.py::c[1 2]", "d"])
    assert part.argv == ("pytest", "a b.py::c[1 2]", "d", "-q")
    assert part.arguments == ("a b.py::c[1 2]", "d")


def test_one_parameter_after_the_other_takes_its_arguments() -> None:
    check = build(["run", "<kind>", "<tests>"], {"name": "kind", "pattern": "fast|slow", "default": ["fast"]}, TESTS)
    assert fill_parameters(check).argv == ("run", "fast")
    assert fill_parameters(check, ["slow", "a", "b"]).argv == ("run", "slow", "a", "b")


def test_an_option_stands_before_arguments_only() -> None:
    check = build(["ctest", "<tests>"], {"name": "tests", "pattern": ".+", "option": "-R"})
    assert fill_parameters(check).argv == ("ctest",)
    assert fill_parameters(check, ["x"]).argv == ("ctest", "-R", "x")


@pytest.mark.parametrize(
    "arguments", [["-p", "evil"], ["ok", "--rootdir=/"], [""], ["a\nb"], ["a\0b"], ["x" * 1001], ["a"] * 101]
)
def test_what_the_pattern_does_not_allow_is_refused(arguments: list[str]) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        fill_parameters(build(["pytest", "<tests>"], TESTS), arguments)


@pytest.mark.parametrize("arguments", [["x"], ["-x"], [""]])
def test_a_check_without_parameters_takes_nothing(arguments: list[str]) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        fill_parameters(build(["make"]), arguments)


@pytest.mark.parametrize(
    ("argv", "parameters"),
    [
        (["x"], [TESTS]),
        (["x", "<tests>", "<tests>"], [TESTS]),
        (["x", "a<tests>"], [TESTS]),
        (["x", "<tests>"], [TESTS, TESTS]),
        (["x", "<tests>", "<b>"], [TESTS, {"name": "b", "pattern": "."}]),
        (["x", "<tests>"], [{**TESTS, "pattern": "("}]),
    ],
)
def test_a_parameter_needs_one_place(argv: list[str], parameters: list[dict[str, object]]) -> None:
    with pytest.raises(ValueError, match=r"argv needs|only the last|not a regular"):
        build(argv, *parameters)


def test_a_path_from_the_top_is_one_from_the_folder_of_the_check() -> None:
    """As the failures of the check name it."""
    check = build(["pytest", "<tests>"], TESTS)
    below = fill_parameters(check.model_copy(update={"cwd": "api"}), ["api/tests/a.py::b", "tests/a.py", "./api/x"])
    assert below.argv == ("pytest", "tests/a.py::b", "tests/a.py", "./api/x")
    assert below.arguments == ("api/tests/a.py::b", "tests/a.py", "./api/x")
    assert fill_parameters(check, ["./..."]).argv == ("pytest", "./...")
    with refused(ErrorCode.INVALID_INPUT):
        fill_parameters(check.model_copy(update={"cwd": "api"}), ["api/-p"])


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"(?:safe){e}", "safe{e}", "rm -rf"),
        (r"(?!-)[\w./:\[\]-]+", "a.py::b[1]", "-x"),
        (r"[a-z]+[0-9]{2}", "a12", "a1"),
    ],
    ids=["braces", "lookahead", "plain"],
)
def test_a_pattern_means_what_it_means_to_python(pattern: str, good: str, bad: str) -> None:
    check = build(["x", "<tests>"], {"name": "tests", "pattern": pattern, "many": True})
    assert fill_parameters(check, [good]).argv == ("x", good)
    with refused(ErrorCode.INVALID_INPUT):
        fill_parameters(check, [good, bad])


@pytest.mark.parametrize("before", ["", r"\["], ids=["plain", "bracket"])
def test_a_pattern_that_takes_very_long_matches_nothing(before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository may suggest it, and name a test for it. Control: Python's own matcher does not end in half a second
    of a processor. A bracket that is escaped begins no class, which would hide the group up to the next one.
    """
    start = before.replace("\\", "")
    pattern, name = f"{before}(?:a|a?b?)+c]?", start + "a" * 40
    program = f"import re, signal; signal.setitimer(signal.ITIMER_PROF, 0.5); re.fullmatch({pattern!r}, {name!r})"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGPROF
    check = build(["pytest", "<tests>"], {"name": "tests", "pattern": pattern, "many": True})
    with monkeypatch.context() as patched, refused(ErrorCode.INVALID_INPUT) as raised:
        patched.setattr(parameters, "_DEADLINE_S", 1.0)
        fill_parameters(check, [name])
    assert "takes too long" in raised.value.details
    assert fill_parameters(check, [f"{start}aac"]).argv == ("pytest", f"{start}aac")
