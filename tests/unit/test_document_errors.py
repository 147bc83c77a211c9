"""What is wrong with a file that somebody wrote: the key, what it holds, what is expected; no jargon of a library."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from sandbox.errors import ErrorCode
from sandbox.policy.approvals import load_approval_policy
from sandbox.policy.writes import load_path_policy
from sandbox.profiles import load_profiles, require_usable
from tests.unit.conftest import refused

HEAD = 'label = "x"\nimage = "base"\n'
CHECK = HEAD + '[[check]]\nid = "one"\nlabel = "x"\nargv = ["true"]\n'
JARGON = ("pydantic", "type=", "input_value", "Value error", "Input should")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("label = 'x'\n", "image: is missing"),
        (HEAD + "lable = 'x'\n", "lable: there is no such key; did you mean label?"),
        (CHECK + "timeout = 3\n", "timeout of check 1: there is no such key; did you mean timeout_s?"),
        (CHECK + "limits.pid = 3\n", "limits.pid of check 1: there is no such key; did you mean pids?"),
        (HEAD + "[detect]\nal = []\n", "detect.al: there is no such key; did you mean all?"),
        (HEAD + "zzzz = 1\n", "zzzz: there is no such key"),
        (CHECK + "timeout_s = 'soon'\n", "timeout_s of check 1: should be a valid number, not 'soon'"),
        (CHECK + "timeout_s = -1\n", "timeout_s of check 1: should be greater than 0, not -1"),
        (CHECK + "limits.pids = 0\n", "limits.pids of check 1: should be greater than 0, not 0"),
        (CHECK + "argv = 'make'\n", "It is not TOML: Cannot overwrite a value"),
        (CHECK.replace('["true"]', "'make'"), "argv of check 1: should be a list, not 'make'"),
        (CHECK + "requires = ['two']\n", "unknown check 'two'"),
        (HEAD + "[[detect.all]]\nfile = 'x'\nmatches = '('\n", "matches of detect.all 1: missing )"),
        ("label", "It is not TOML: "),
    ],
)
def test_a_profile_that_cannot_be_used_says_why_in_words(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with refused(ErrorCode.INVALID_INPUT) as caught:
        require_usable(load_profiles([tmp_path], PurePosixPath("/workspace"))["mine"])
    assert said in caught.value.details
    assert str(tmp_path / "mine.toml") in caught.value.brief
    assert "docs/profiles.md" in caught.value.hint
    assert not [word for word in JARGON if word in caught.value.details]


def test_no_more_than_ten_mistakes_are_told(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(HEAD + "".join(f"key{n} = 1\n" for n in range(14)))
    with refused(ErrorCode.INVALID_INPUT) as caught:
        require_usable(load_profiles([tmp_path], PurePosixPath("/workspace"))["mine"])
    lines = caught.value.details.splitlines()
    assert (len(lines), lines[-1]) == (11, "... and 4 more")


def test_policies_say_it_in_the_same_words(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text("[limits]\ndepth = 900\n")
    with refused(ErrorCode.INVALID_INPUT) as caught:
        load_path_policy(_empty(tmp_path), own)
    assert caught.value.details == "limits.depth: should be less than or equal to 127, not 900"
    own.write_text("expires_s = 0\n")
    with refused(ErrorCode.POLICY_VIOLATION) as caught:
        load_approval_policy(_empty(tmp_path), own)
    assert caught.value.details == "expires_s: should be greater than 0, not 0"
    assert str(own) in caught.value.brief


def _empty(folder: Path) -> Path:
    path = folder / "empty.toml"
    path.touch()
    return path
