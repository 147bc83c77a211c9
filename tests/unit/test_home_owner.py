"""A home of another user: root does not break it, and its user learns what is wrong. Only root can test both."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from sandbox.cli import main
from sandbox.credentials import read_entries
from sandbox.errors import ErrorCode
from sandbox.home_owner import describe_user
from sandbox.store.home import Home, denied_error, read_json
from sandbox.workbench import Workbench
from tests.unit.conftest import refused

USER = 12345

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can own files of two users")


def give(home: Path, user: int) -> None:
    for path in (home, *home.rglob("*")):
        os.chown(path, user, user)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    return home


def test_root_does_not_use_the_home_of_another_user(home: Home) -> None:
    """Control: its own is used, before and after."""
    give(home.root, USER)
    with refused(ErrorCode.INVALID_INPUT) as caught:
        home.prepare()
    assert f"uid {USER}" in caught.value.brief
    assert f"chown -R root {home.root}" in caught.value.hint
    give(home.root, 0)
    home.prepare()


def test_root_uses_a_home_where_its_new_files_are_of_the_same_owner(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of network files, or a mount, gives each file one owner. Control: without it root is refused."""

    def give_away(*args: Any, **named: Any) -> Any:
        file = make(*args, **named)
        os.fchown(file.fileno(), USER, USER)
        return file

    make = tempfile.TemporaryFile
    give(home.root, USER)
    with refused(ErrorCode.INVALID_INPUT):
        home.prepare()
    assert sorted(path.name for path in home.repositories.iterdir() if path.is_file()) == [], "a probe was left"
    monkeypatch.setattr(tempfile, "TemporaryFile", give_away)
    home.prepare()


def test_a_new_home_may_be_in_a_directory_of_another_user(tmp_path: Path) -> None:
    """A volume that was made for root, or a directory of a CI."""
    (tmp_path / "home").mkdir()
    os.chown(tmp_path / "home", USER, USER)
    for _ in range(2):
        Home(tmp_path / "home").prepare()


@pytest.mark.parametrize("name", ["repositories/registry.json", "credentials.toml"])
def test_the_user_learns_who_owns_a_file_and_how_to_get_it_back(home: Home, name: str) -> None:
    path = home.root / name
    path.write_text("{}")
    error = denied_error(path, PermissionError(13, "Permission denied"))
    assert error is not None
    assert (error.code, describe_user(0) in error.details) == (ErrorCode.INVALID_INPUT, True)
    assert error.hint.endswith(f"chown -R 0 {home.root}")
    assert denied_error(path, OSError(5, "Input/output error")) is None


def test_only_a_home_is_to_be_handed_over_and_by_its_exact_path(tmp_path: Path) -> None:
    """A hint to hand over `/` or `/srv` destroys a machine. Control: a home below a folder `repositories`."""
    denied = PermissionError(13, "Permission denied")
    (tmp_path / "locks").mkdir()
    home = Home(tmp_path / "repositories/my home")
    new = tmp_path / "new"
    for path, root in ((new, new), (new, None), (home.registry, home.root), (home.registry, None)):
        error = denied_error(path, denied, root)
        assert error is not None
        assert error.hint == "Set a writable directory with --home or SANDBOX_HOME."
    home.root.parent.mkdir()
    home.prepare()
    for root in (home.root, None):
        error = denied_error(home.registry, denied, root)
        assert error is not None
        assert error.hint.endswith(f"chown -R 0 '{home.root}'")
    error = denied_error(home.root / "new", denied, home.root / "new")
    assert error is not None
    assert "chown" not in error.hint, "another home that a new one would be in"


def test_root_is_not_told_to_take_what_is_no_home(tmp_path: Path) -> None:
    root = tmp_path / "srv"
    (root / "repositories").mkdir(parents=True)
    give(root, USER)
    with refused(ErrorCode.INVALID_INPUT) as caught:
        Home(root).prepare()
    assert "chown" not in caught.value.hint


def test_unreadable_state_is_no_damage(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object, **__: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    home.registry.write_text("{}")
    (home.root / "credentials.toml").write_text("")
    (home.root / "credentials.toml").chmod(0o600)
    monkeypatch.setattr("sandbox.store.home._read_trusted", deny)
    monkeypatch.setattr(Path, "read_text", deny)
    for read in (lambda: read_json(home.registry), lambda: read_entries(home.root)):
        with refused(ErrorCode.INVALID_INPUT) as caught:
            read()
        assert caught.value.reason == "other_owner"
        assert "chown" in caught.value.hint


def test_the_command_calls_a_file_of_another_user_no_bug(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Control: another file that cannot be used is one."""

    def deny(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    for path, code in ((home.repositories / "locks/home.lock", 2), (Path("/elsewhere/repositories/f"), 5)):
        monkeypatch.setattr(Workbench, "repositories", lambda *_, path=path: deny(path))
        assert main(["--home", str(home.root), "repo", "list"]) == code
        assert ("bug in the sandbox" in capsys.readouterr().err) is (code == 5)
