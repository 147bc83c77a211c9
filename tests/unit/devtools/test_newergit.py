"""The newer git of the attack suite: who offers none is told apart from what went wrong. (Fetching it is set-up's.)"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from devtools import newergit
from devtools.newergit import NotOffered, find


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("NEWER_GIT", raising=False)
    monkeypatch.setattr(newergit, "FOLDER", tmp_path / "newer-git")
    monkeypatch.setattr(newergit, "_NOT_OFFERED", tmp_path / "newer-git.absent")
    return tmp_path / "newer-git"


def test_nobody_fetched_it(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match="scripts/setup tools"):
        find()


def test_nobody_offers_it(folder: Path) -> None:
    folder.with_suffix(".absent").write_text("The archive has none\n")
    with pytest.raises(NotOffered, match="The archive has none"):
        find()


def test_it_is_there_or_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "git").touch()
    assert find() == newergit.fetch() == folder / "bin" / "git"  # at once, without any network
    (tmp_path / "mine").touch()
    monkeypatch.setenv("NEWER_GIT", str(tmp_path / "mine"))
    assert find() == tmp_path / "mine"


def test_one_that_we_fetched_is_started_from_elsewhere_without_a_program_between(folder: Path, tmp_path: Path) -> None:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "git").write_text("#!/bin/sh\nhere=${0%/*}\necho $0 $here $@\n")
    mine = tmp_path / "mine's git"
    mine.symlink_to("/bin/echo")
    for git, said in ((folder / "bin" / "git", f"{tmp_path}/starter {folder}/bin version\n"), (mine, "version\n")):
        newergit.write_starter(tmp_path / "starter", git)
        done = subprocess.run([tmp_path / "starter", "version"], check=True, capture_output=True, text=True)
        assert done.stdout == said


@pytest.mark.parametrize(
    "record", ["", "Version: 1:2.47.3-0+deb13u1", "Version: 2.54.9-1"], ids=["nothing", "older", "just older"]
)
def test_a_git_that_is_not_new_enough_is_not_offered(record: str) -> None:
    newergit._require_new("Package: git\nVersion: 1:2.55.0-1\n")
    with pytest.raises(NotOffered):
        newergit._require_new(f"Package: git\n{record}\n")


def test_a_machine_that_is_no_debian_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newergit, "KEYRING", Path("/nonexistent"))
    with pytest.raises(NotOffered, match="NEWER_GIT"):
        newergit._archive()
