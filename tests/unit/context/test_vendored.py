"""What of a repository is code of others, decided by names, by its attributes and by use."""

from __future__ import annotations

import pytest

from sandbox.context.vendored import describe_folders, find_large_top, find_vendored, is_mentioned


@pytest.mark.parametrize(
    ("path", "attributes", "vendored"),
    [
        ("src/a.c", "", False),
        ("external/lib/a.c", "", True),
        ("tools/Third_Party/a.c", "", True),
        ("web/node_modules/x/i.js", "", True),
        ("vendor", "", False),  # a file
        ("deps.c", "", False),
        ("ours/a.c", "ours/** linguist-vendored\n", True),
        ("ours/a.c", "*.h linguist-vendored\n", False),
        ("vendor/a.c", "vendor/* -linguist-vendored\n", False),
        ("vendor/a.c", "vendor/** linguist-vendored=false\n", False),
        ("gen/a.pb.go", "*.pb.go linguist-generated=true\n", True),
        ("a.c", "*.c linguist-vendored\n*.c -linguist-vendored\n", False),
        ("a.c", "# *.c linguist-vendored\n", False),
        ("a.c", "*.c text eol=lf\n", False),
        ("a.c", "[attr]x linguist-vendored\n", False),
    ],
)
def test_names_and_attributes_decide_and_the_last_rule_of_several(path: str, attributes: str, vendored: bool) -> None:
    assert find_vendored([path], attributes) == ({path} if vendored else set())


def test_attributes_made_to_be_slow_are_given_up() -> None:
    paths = ["/".join("a" * 60) + f"/{n}" for n in range(3000)]
    attributes = "".join(f"{'**/a/' * 30}b{n} linguist-vendored\n" for n in range(2000))
    assert find_vendored(paths, attributes) == set()


def test_a_large_top_folder_counts_only_beside_a_project() -> None:
    bundled = [f"imgui/f{n}.c" for n in range(100)]
    own = [f"game/f{n}.c" for n in range(20)]
    assert find_large_top([*bundled, *own]) == "imgui"
    assert find_large_top([*bundled, *own[:19]]) is None
    assert find_large_top([*(f"src/f{n}.c" for n in range(100)), *own]) is None
    assert find_large_top([*bundled[:20], *own]) is None  # not more than half


@pytest.mark.parametrize(
    ("text", "mentioned"),
    [
        (b"add_subdirectory(imgui)", True),
        (b'#include "imgui/f1.h"', True),
        (b"from widgets import x", True),
        (b"import widgets.deep", True),
        (b"imguixx and f1", False),
        (b"", False),
    ],
)
def test_a_folder_is_mentioned_by_its_name_or_what_is_directly_in_it(text: bytes, mentioned: bool) -> None:
    assert is_mentioned("imgui", ["imgui/widgets.c", "imgui/f1.c", "imgui/deep/other.c"], [text]) is mentioned


def test_what_is_left_out_is_counted_by_its_highest_folder() -> None:
    paths = ["a/vendor/x/1", "a/vendor/y/2", "external/z", "gen/deep/a.pb.go"]
    assert describe_folders(paths) == {"a/vendor": 2, "external": 1, "gen": 1}
