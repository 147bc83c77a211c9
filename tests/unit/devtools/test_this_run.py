"""What is left behind is this run's, not that of another one or of a user of the product beside it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from devtools.this_run import is_of_this_run, may_be_of_this_run


@pytest.mark.parametrize(
    ("place", "is_ours"),
    [
        ("pytest-7/popen-gw0/arena0/home", True),
        ("pytest-7", True),
        ("pytest-70/popen-gw0/arena0/home", False),
        ("garbage-1/arena0/home", False),
        ("../elsewhere/home", False),
        ("", False),
    ],
)
def test_only_what_lies_in_the_directory_of_this_run_is_its(place: str, is_ours: bool, tmp_path: Path) -> None:
    runs = tmp_path / "pytest-of-someone"
    assert is_of_this_run(str((runs / place).resolve()), runs / "pytest-7") is is_ours


@pytest.mark.parametrize("base", ["pytest-of-someone/pytest-7", "chosen"])
def test_the_home_of_a_user_of_the_product_is_not_this_runs(base: str, tmp_path: Path) -> None:
    for home in ("/home/someone/.local/share/sandbox/repositories", str(tmp_path / "tmpabc" / "home")):
        assert not is_of_this_run(home, tmp_path / base)
        assert not may_be_of_this_run([home], tmp_path / base)


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [("sandbox-engine-12345678/data", True), ("sandbox-test-abc", True), ("home", False), ("", False)],
)
def test_a_folder_that_tests_have_outside_counts(name: str, is_ours: bool, tmp_path: Path) -> None:
    assert is_of_this_run(str(Path(tempfile.gettempdir()).resolve() / name), tmp_path / "pytest-7") is is_ours


def test_a_container_is_this_runs_by_one_of_its_mounts_or_if_it_has_none(tmp_path: Path) -> None:
    ours = str(tmp_path / "home" / "repositories")
    assert may_be_of_this_run([], tmp_path)
    assert may_be_of_this_run([""], tmp_path)
    assert may_be_of_this_run(["/usr/share/zoneinfo", ours], tmp_path)
    assert not may_be_of_this_run(["/usr/share/zoneinfo", ""], tmp_path)
