"""Which folders of a tree a pattern of a workspace means."""

from __future__ import annotations

import posixpath

import pytest

from sandbox.dependencies.collection import Collection
from sandbox.dependencies.folder_patterns import find_folders, resolve_folder
from tests.unit.dependencies.manifest_trees import reader

FOLDERS = ("a", "a/b", "a/b/c", "a/.h/c", "a/node_modules/c", "b/c", "x/b/y/c")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a", ["a"]),
        ("a/*", ["a/b"]),
        ("*/c", ["b/c"]),
        ("a/.h/*", ["a/.h/c"]),
        ("**", ["a", "a/b", "a/b/c", "b/c", "x/b/y/c"]),
        ("a/**", ["a", "a/b", "a/b/c"]),
        ("./a//**/**/", ["a", "a/b", "a/b/c"]),
        ("**/c", ["a/b/c", "b/c", "x/b/y/c"]),
        ("**/**/c", ["a/b/c", "b/c", "x/b/y/c"]),
        ("**/b/**", ["a/b", "a/b/c", "b/c", "x/b/y/c"]),
        ("**/b/**/c", ["a/b/c", "b/c", "x/b/y/c"]),
        ("[ab]/?", ["a/b", "b/c"]),
        ("**/none", []),
        ("../a/*", None),
        ("/a/*", None),
        ("*/*/*/*/*", None),
        ("a" * 101, None),
    ],
)
def test_a_pattern_means_the_folders_that_fit(pattern: str, found: list[str] | None) -> None:
    collection = Collection(reader({posixpath.join(folder, "m.toml"): "" for folder in ("", *FOLDERS)}))
    assert find_folders(collection, pattern, "m.toml") == found


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("../b", "b"),
        ("..", ""),
        ("b/", "a/b"),
        ("c/../" * 1_000 + "b", "a/b"),
        ("b" * 299, None),
        ("b" * 298, f"a/{'b' * 298}"),
        ("../../b", None),
        ("/b", None),
        (["b"], None),
    ],
    ids=lambda text: str(text)[:20],
)
def test_a_path_leads_to_a_folder_of_the_tree_or_to_none(path: object, found: str | None) -> None:
    assert resolve_folder("a", path) == found
