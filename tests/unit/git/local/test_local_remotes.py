"""Which repository a directory belongs to, as plain git looks for it, and where we stop looking."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.requirement import unavailable
from sandbox.errors import ErrorCode
from sandbox.git.local.local_remotes import find_enclosing_repository
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, refused, run


def give_away(path: Path) -> None:
    if os.geteuid() != 0:
        unavailable("Only root can give files away")
    os.chown(path, 12345, 12345)


@pytest.fixture
def project(upstream: Upstream) -> Upstream:
    upstream.write("a/b/file", b"x\n")
    upstream.commit()
    return upstream


@pytest.mark.parametrize("below", ["", "a", "a/b"])
def test_a_directory_belongs_to_the_repository_around_it(project: Upstream, below: str) -> None:
    folder = project.root / below
    by_git = run(["git", "rev-parse", "--show-toplevel"], cwd=folder).decode().strip()
    assert find_enclosing_repository(folder) == Path(by_git) == project.root


def test_the_closest_repository_is_taken(project: Upstream) -> None:
    inner = project.root / "a"
    run(["git", "init", "-q", str(inner)])
    assert find_enclosing_repository(inner / "b") == inner


def test_a_linked_worktree_is_a_repository(project: Upstream, tmp_path: Path) -> None:
    project.git("worktree", "add", "-q", str(tmp_path / "linked"))
    assert find_enclosing_repository(tmp_path / "linked" / "a") == tmp_path / "linked"


def test_through_a_link_the_real_place_counts(project: Upstream, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project.root / "a")
    assert find_enclosing_repository(tmp_path / "link") == project.root


@pytest.mark.parametrize("what", ["nothing around", "a file", "not there", "bare"])
def test_what_is_in_no_repository_stays_as_it_is(project: Upstream, tmp_path: Path, what: str) -> None:
    place = tmp_path / "place"
    if what == "bare":
        project.git("clone", "-q", "--bare", ".", str(place))
    elif what == "a file":
        place = project.root / "a" / "b" / "file"
    elif what == "nothing around":
        place.mkdir()
    assert find_enclosing_repository(place) == place


@pytest.mark.parametrize("whose", [".git", "."])
def test_s14_a_repository_that_another_user_put_above_is_not_taken(project: Upstream, whose: str) -> None:
    """Control: as ours it is. A directory like /tmp is everybody's."""
    folder = project.root / "a"
    assert find_enclosing_repository(folder) == project.root
    give_away(project.root / whose)
    assert find_enclosing_repository(folder) == folder


def test_a_repository_of_the_directorys_owner_is_taken(project: Upstream) -> None:
    """Root looks at the work of a user."""
    for path in (project.root, project.git_dir, project.root / "a"):
        give_away(path)
    assert find_enclosing_repository(project.root / "a") == project.root


def test_the_command_says_which_repository_it_took(project: Upstream, tmp_path: Path) -> None:
    command = Command(tmp_path / "home")

    inside = command("repo", "clone", str(project.root / "a" / "b"))
    itself = command("repo", "clone", str(project.root))

    assert (inside.code, itself.code) == (0, 0)
    assert f"note: {project.root}/a/b is inside {project.root}\n" in inside.stderr
    assert "is inside" not in itself.stderr
    assert inside.stdout == itself.stdout


def test_a_program_names_the_repository_itself(project: Upstream, tmp_path: Path) -> None:
    """And so does an agent: an approval is for the path that it shows."""
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(tmp_path / "home", environ=environ, allow_file=True) as workbench:
        place = str(project.root / "a")
        with refused(ErrorCode.REMOTE_NOT_FOUND):
            workbench.clone(place)
        assert workbench.locate(place) == f"file://{project.root}"
        assert workbench.locate("https://example.invalid/o/r") == "https://example.invalid/o/r"
