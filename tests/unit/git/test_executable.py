"""Another git may be configured, and only one that nobody else can replace; each case runs or refuses a real file."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

import sandbox
from sandbox.config import load_settings
from sandbox.errors import ErrorCode
from sandbox.git.cache_clones import open_cache
from sandbox.git.process import Git, git_executable, git_version
from tests.unit.conftest import Upstream, refused


@pytest.fixture(autouse=True)
def unremembered() -> None:
    """What a path was found to be is remembered for the life of the process."""
    git_executable.cache_clear()


@pytest.fixture
def other_git(tmp_path: Path) -> Path:
    """A git that can be told from the installed one."""
    folder = tmp_path / "opt"
    folder.mkdir(mode=0o755)
    return program(folder / "git", f'echo ran >>{tmp_path}/ran; exec {shutil.which("git")} "$@"')


def program(path: Path, body: str = "exit 0") -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_the_configured_git_is_the_one_that_runs(other_git: Path, upstream: Upstream) -> None:
    upstream.commit()
    ran = other_git.parents[1] / "ran"
    assert Git(upstream.git_dir).run("rev-parse", "HEAD")
    assert not ran.exists()  # control: without the setting it does not run
    Git(upstream.git_dir, str(other_git)).run("rev-parse", "HEAD")
    open_cache(upstream.git_dir, str(other_git)).run("rev-parse", "HEAD")
    assert git_version(upstream.root, str(other_git)).startswith("git version 2.")
    assert ran.read_text() == "ran\n" * 3


def test_no_part_of_the_product_forgets_the_choice() -> None:
    """It has a default, for tests; in the product `Git(path)` alone would run the wrong one."""
    forgetful = re.compile(r"\b(?:Git|open_cache)\((?:[^(),]|\([^()]*\))*\)")
    assert forgetful.search("git = open_cache(parts.home.clone(repo_id))")  # control
    assert not forgetful.search("git = open_cache(parts.home.clone(repo_id), chosen)")
    sources = {path: path.read_text() for path in Path(sandbox.__file__).parent.rglob("*.py")}
    assert {path.name: found[0] for path, text in sources.items() if (found := forgetful.search(text))} == {}


def test_the_setting_comes_from_file_and_variable(tmp_path: Path) -> None:
    assert load_settings(tmp_path, {}).git.executable == ""
    assert load_settings(tmp_path, {"SANDBOX_GIT_EXECUTABLE": "/opt/git"}).git.executable == "/opt/git"


def test_a_relative_path_is_refused() -> None:
    with refused(ErrorCode.INVALID_INPUT):
        git_executable("git")


def test_a_missing_one_is_refused_not_replaced(tmp_path: Path) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        git_executable(str(tmp_path / "git"))
    assert git_version(tmp_path, str(tmp_path / "git")) == ""


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o644], ids=oct)
def test_a_file_that_others_write_or_nobody_runs_is_refused(other_git: Path, mode: int) -> None:
    assert git_executable(str(other_git)) == str(other_git)
    git_executable.cache_clear()
    other_git.chmod(mode)
    with refused(ErrorCode.INVALID_INPUT):
        git_executable(str(other_git))


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o2777], ids=oct)
def test_a_directory_in_which_others_replace_files_is_refused(other_git: Path, mode: int) -> None:
    other_git.parent.chmod(mode)
    with refused(ErrorCode.INVALID_INPUT):
        git_executable(str(other_git))
    other_git.parent.chmod(mode | 0o1000)  # sticky: nobody else moves what is ours
    assert git_executable(str(other_git)) == str(other_git)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("depth", [0, 1], ids=["file", "directory"])
def test_what_belongs_to_somebody_else_is_refused(other_git: Path, depth: int) -> None:
    os.chown([other_git, other_git.parent][depth], 64000, 64000)
    with refused(ErrorCode.INVALID_INPUT) as caught:
        git_executable(str(other_git))
    assert "uid 64000" in caught.value.details


def test_a_link_is_refused_and_its_target_named(other_git: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(other_git)
    (tmp_path / "dirlink").symlink_to(other_git.parent)
    for path in (tmp_path / "link", tmp_path / "dirlink" / "git", other_git.parent / ".." / "opt" / "git"):
        with refused(ErrorCode.INVALID_INPUT) as caught:
            git_executable(str(path))
        assert str(other_git) in caught.value.details
