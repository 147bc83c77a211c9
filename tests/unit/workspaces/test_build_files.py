"""Build files and folders with a project, by name."""

from __future__ import annotations

import pytest

from sandbox.workspaces.build_files import (
    MAX_FOLDERS,
    MAX_MANIFESTS,
    builds_one_project,
    find_build_files,
    find_deep_folder,
    find_first_fits,
    find_folder_markers,
)

NAMES = {"pyproject.toml", "Makefile"}


def test_build_files_are_those_at_the_top_and_one_folder_below() -> None:
    paths = ["web/package.json", "a/b/pom.xml", "Makefile", "src/App.csproj", "README.md"]
    assert find_build_files(paths) == ("Makefile", "src/App.csproj", "web/package.json")


@pytest.mark.parametrize(
    "name",
    ["noxfile.py", "WORKSPACE.bazel", "BUILD.bazel", "environment.yaml", "pixi.toml", "Project.toml", "A.fsproj"],
)
def test_a_build_file_of_a_kind_without_a_profile_is_seen(name: str) -> None:
    assert find_build_files([name, "README.md"]) == (name,)


def test_sessions_of_nox_at_the_top_may_be_those_of_a_project_in_a_folder() -> None:
    assert not builds_one_project("noxfile.py")
    for name in ("environment.yaml", "pixi.toml", "BUILD.bazel", "WORKSPACE.bazel", "Project.toml"):
        assert not builds_one_project(name), name


def test_build_files_further_down_count_where_there_are_none_above() -> None:
    deep = ["a/b/c/pyproject.toml", "a/b/c/d/Makefile", "vendor/x/y/Makefile", "a/b/tests/x/Makefile"]
    assert find_build_files(deep) == ("a/b/c/pyproject.toml", "a/b/c/d/Makefile")
    assert find_build_files([*deep, "services/api/pom.xml"])[0] == "services/api/pom.xml"
    assert find_build_files([*deep, "web/package.json"]) == ("web/package.json",)


def test_a_folder_that_is_too_deep_to_be_looked_at_is_named() -> None:
    assert find_deep_folder(("a/b/c/pom.xml", "a/b/d/pom.xml")) == "a/b/c"
    assert [find_deep_folder(files) for files in ((), ("a/b/pom.xml", "a/b/c/pom.xml"))] == ["", ""]


def test_folders_of_others_and_of_examples_are_no_projects() -> None:
    paths = ["vendor/Makefile", "examples/Makefile", ".ci/Makefile", "api/pyproject.toml", "api/x/Makefile"]
    assert find_folder_markers(paths, NAMES, ()) == {"api": {"pyproject.toml": "api/pyproject.toml"}}


def test_projects_are_looked_for_in_folders_of_folders_that_are_no_project() -> None:
    """Such as services/; the parts of a project are no projects."""
    paths = [
        "services/api/pyproject.toml",
        "services/tests/Makefile",
        "web/Makefile",
        "web/a/Makefile",
        "a/b/c/Makefile",
    ]
    assert list(find_folder_markers(paths, NAMES, ())) == ["web", "services/api"]


def test_a_declared_folder_is_looked_at_wherever_it_is() -> None:
    paths = ["tests/kit/Makefile", "tests/kit2/Makefile"]
    assert find_folder_markers(paths, NAMES, ["tests/kit"]) == {"tests/kit": {"Makefile": "tests/kit/Makefile"}}
    assert find_folder_markers([], NAMES, ["gone"]) == {"gone": {}}


def test_a_pattern_means_the_first_file_of_one_folder() -> None:
    paths = ["b_test.go", "a_test.go", "sub/0_test.go", "main.go"]
    assert find_first_fits(paths, ["*_test.go", "*.py", "main.go"]) == {"*_test.go": "a_test.go"}


def test_a_pattern_makes_no_project_of_a_folder_that_is_not_declared() -> None:
    paths = ["go.mod", "cli/a.go", "lib/b.go", "lib/c/d.go"]
    assert find_folder_markers(paths, ["*.go"], ["lib"]) == {"lib": {"*.go": "lib/b.go"}}


def test_a_tree_of_many_projects_costs_a_bounded_number_of_files() -> None:
    paths = [f"p{n:05}/Makefile" for n in range(5000)]
    assert len(find_folder_markers(paths, NAMES, ())) == MAX_FOLDERS
    assert len(find_build_files(paths)) == MAX_MANIFESTS
