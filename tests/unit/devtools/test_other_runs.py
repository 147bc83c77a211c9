"""What is left behind is this run's, not that of another one beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.other_runs import is_of_another_run


@pytest.mark.parametrize(
    ("place", "other"),
    [
        ("pytest-7/popen-gw0/arena0/home", False),
        ("pytest-7", False),
        ("pytest-70/popen-gw0/arena0/home", True),
        ("garbage-1/arena0/home", True),
        ("../elsewhere/home", False),
        ("", False),
    ],
)
def test_only_what_lies_in_the_directory_of_another_run_is_its(place: str, other: bool, tmp_path: Path) -> None:
    runs = tmp_path / "pytest-of-someone"
    assert is_of_another_run(str((runs / place).resolve()), runs / "pytest-7") is other


def test_a_container_without_a_path_is_ours(tmp_path: Path) -> None:
    assert not is_of_another_run("", tmp_path / "pytest-7")


def test_a_run_in_a_chosen_directory_has_no_neighbours(tmp_path: Path) -> None:
    assert not is_of_another_run(str(tmp_path / "tmpabc" / "home"), tmp_path / "chosen")
