"""Which class of a profile a changed path belongs to, and the line that says so."""

from __future__ import annotations

import pytest

from sandbox.models import FileClass
from sandbox.policy.class_patterns import classify_changes, describe_impact, is_class_pattern

RESTART = FileClass(name="restart", paths=("/src/", "*.h"), effect="takes effect after restart", checks=("build",))
RELOAD = FileClass(name="hot-reload", paths=("/assets/", "/src/ui/"), effect="takes effect at once")


def test_the_first_class_of_the_profile_that_matches_counts() -> None:
    (one,) = classify_changes([RESTART, RELOAD], ["src/ui/a.c"])
    assert (one.name, one.files, one.checks) == ("restart", ("src/ui/a.c",), ("build",))
    (other,) = classify_changes([RELOAD, RESTART], ["src/ui/a.c"])
    assert other.name == "hot-reload"


def test_patterns_are_those_of_gitignore() -> None:
    paths = ["assets/lua/x.fnl", "lib/assets/y", "deep/down/a.h", "srcs/z", "src/a b"]
    found = classify_changes([RESTART, RELOAD], paths)
    assert {one.name: one.files for one in found} == {
        "restart": ("deep/down/a.h", "src/a b"),
        "hot-reload": ("assets/lua/x.fnl",),
    }


def test_a_class_says_how_many_files_and_names_the_first() -> None:
    found = classify_changes([RESTART], [f"src/{i:02}" for i in range(30)])
    assert found[0].count == 30
    assert len(found[0].files) == 20
    assert describe_impact(found) == (
        "30 files of class restart (src/00, src/01, src/02, ...): takes effect after restart",
    )
    assert describe_impact(classify_changes([RESTART], ["src/jobs.cpp"])) == (
        "1 file of class restart (src/jobs.cpp): takes effect after restart",
    )


def test_no_change_of_a_class_is_no_line() -> None:
    assert classify_changes([RESTART, RELOAD], ["README"]) == ()
    assert classify_changes([], ["src/a"]) == ()


@pytest.mark.parametrize("text", ["", "# comment", "!src/"])
def test_a_pattern_that_matches_no_path_is_known(text: str) -> None:
    assert not is_class_pattern(text)
    assert is_class_pattern("src/")
