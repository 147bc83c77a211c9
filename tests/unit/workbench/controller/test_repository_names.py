"""Names of repositories that people type."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import Host, Repository
from sandbox.store.records import save_repository
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "home")
    for owner, name in (("pytoolz", "toolz"), ("x", "click"), ("y", "click"), ("x", "a.b")):
        save_repository(
            desk.workbench._services.home,
            Repository(
                id=f"github.com-{owner}-{name}",
                remote_url=f"https://github.com/{owner}/{name}",
                host=Host.GITHUB,
                hostname="github.com",
                owner=owner,
                name=name,
                default_branch="main",
                profile="generic",
                created_at=datetime.now(UTC),
            ),
        )
    with desk.workbench:
        yield desk


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("toolz", "pytoolz-toolz"),
        ("pytoolz-toolz", "pytoolz-toolz"),
        ("PyToolz/Toolz", "pytoolz-toolz"),
        ("github.com/pytoolz/toolz", "pytoolz-toolz"),
        ("https://github.com/pytoolz/toolz.git", "pytoolz-toolz"),
        ("git@github.com:pytoolz/toolz", "pytoolz-toolz"),
        ("y/click", "y-click"),
        ("y-click", "y-click"),
        ("a.b", "x-a.b"),
        ("github.com-p", "pytoolz-toolz"),
    ],
)
def test_the_end_of_an_id_owner_and_name_or_the_url_is_enough(desk: Desk, name: str, found: str) -> None:
    assert desk.workbench.repository(name).id == f"github.com-{found}"


def test_several_repositories_are_named_with_their_remotes(desk: Desk) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        desk.workbench.repository("click")
    lines = [f"github.com-{owner}-click  https://github.com/{owner}/click" for owner in ("x", "y")]
    assert caught.value.details == "\n".join(lines)


@pytest.mark.parametrize("name", ["tool", "", "oolz", "ytoolz-toolz", "https", "-", "github.com", "github.com-"])
def test_a_part_of_a_word_is_no_name(desk: Desk, name: str) -> None:
    with refused(ErrorCode.NOT_FOUND):
        desk.workbench.repository(name)


def test_a_directory_is_the_repository_around_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk.upstream.root / "d")
    for name in (".", "..", "./e", str(desk.upstream.root)):
        assert desk.workbench.repository(name).id == desk.repo_id
    assert desk.workbench.checks(".") == ()
    assert desk.workbench.create_task(".", "x").repo_id == desk.repo_id, "records have the whole id"


def test_a_directory_that_is_not_registered_says_how_to_add_it(desk: Desk, tmp_path: Path) -> None:
    with refused(ErrorCode.NOT_FOUND) as caught:
        desk.workbench.repository(str(tmp_path))
    assert f"`sandbox repo clone {tmp_path}`" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "brief"),
    [
        ("nothing", "There is no directory {}"),
        ("file", "{} is not a directory"),
        ("file/below", "There is no directory {}"),
        ("folder", "{} is not a git repository"),
    ],
)
def test_a_path_that_is_no_repository_is_an_input_error(desk: Desk, tmp_path: Path, name: str, brief: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with refused(ErrorCode.INVALID_INPUT) as caught:
        desk.workbench.locate(str(tmp_path / name))
    assert caught.value.brief == brief.format(tmp_path / name)
    assert "Name the directory that contains .git" in caught.value.hint


def test_a_directory_without_its_path_is_named_with_it(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p" / "cleo").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with refused(ErrorCode.NOT_FOUND) as caught:
        desk.workbench.repository("p/cleo")
    assert "`./p/cleo`" in caught.value.hint
    with refused(ErrorCode.NOT_FOUND) as caught:
        desk.workbench.repository("p/cleu")
    assert "./" not in caught.value.hint
