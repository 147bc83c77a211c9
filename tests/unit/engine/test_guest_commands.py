"""A check's command for a supervised guest: its own words, and an environment made of three parts."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from sandbox.engine.create_options import PROTECTED_ENV, create_options
from sandbox.engine.guest_commands import build_command
from sandbox.errors import ErrorCode, SandboxError
from tests.unit.engine.test_create_options import POLICY, SUPERVISED

CWD = PurePosixPath("/workspace/src")
CREATED = [*create_options(SUPERVISED, POLICY)["Env"], "JAVA_HOME=/opt/java", "PS1=a=b"]
"""As the engine reports it: what was asked for, then what the image adds."""


def test_the_environment_is_the_policys_the_images_and_the_checks() -> None:
    found = build_command(["make", "test"], CWD, {"PATH": "/workspace/bin", "MINE": ""}, POLICY, CREATED)
    assert (found.argv, found.cwd) == (("make", "test"), CWD)
    assert found.env == {
        "PATH": "/workspace/bin",
        "HOME": "/home/sandbox",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        "CI": "true",
        "JAVA_HOME": "/opt/java",
        "PS1": "a=b",
        "MINE": "",
    }


def test_names_that_are_only_removed_are_not_in_it() -> None:
    assert not PROTECTED_ENV & build_command(["true"], CWD, {}, POLICY, CREATED).env.keys()


@pytest.mark.parametrize("name", ["LD_PRELOAD", "GIT_DIR", "BASH_ENV", "A=B", "", "BASH_FUNC_ls%%"])
def test_a_check_sets_no_name_that_is_the_policys(name: str) -> None:
    with pytest.raises(SandboxError) as caught:
        build_command(["true"], CWD, {name: "x"}, POLICY, CREATED)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    ("argv", "cwd", "env"),
    [
        ([], CWD, {}),
        ([""], CWD, {}),
        (["a\0b"], CWD, {}),
        (["true"], PurePosixPath("/etc"), {}),
        (["true"], PurePosixPath("/workspace/../etc"), {}),
        (["true"], PurePosixPath("/workspace2"), {}),
        (["true"], CWD, {"A": "\0"}),
        (["true"], CWD, {f"A{n}": "x" * 100_000 for n in range(11)}),
    ],
    ids=["none", "empty", "NUL", "outside", "climbing", "sibling", "NUL in a value", "long in all"],
)
def test_what_is_no_command_is_refused(argv: list[str], cwd: PurePosixPath, env: dict[str, str]) -> None:
    with pytest.raises(SandboxError) as caught:
        build_command(argv, cwd, env, POLICY, CREATED)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    ("argv", "env", "named"),
    [
        (["true"], {"A": "x" * 128 * 1024}, "variable A"),
        (["true"], {"A": "\ud83d"}, "variable A"),
        (["true", "x" * 128 * 1024], {}, "word 2"),
        (["true", "\ud83d"], {}, "word 2"),
    ],
    ids=["long value", "half a character", "long word", "half a character in a word"],
)
def test_what_no_program_can_be_started_with_is_named(argv: list[str], env: dict[str, str], named: str) -> None:
    with pytest.raises(SandboxError) as caught:
        build_command(argv, CWD, env, POLICY, CREATED)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert named in caught.value.brief
    assert caught.value.hint
