"""THREATS A12: `safe.directory = *` in the user's configuration is seen, by the real git, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.git.user_config import trusts_every_directory
from tests.unit.conftest import run


@pytest.mark.parametrize(
    ("values", "trusted"),
    [
        ([], False),
        (["/srv/one"], False),
        (["*"], True),
        (["/srv/one", "*", "/srv/two"], True),
        (["*", ""], False),
        (["*", "", "/srv/one"], False),
        (["", "*"], True),
    ],
    ids=["none", "one", "all", "all among others", "taken back", "taken back, then one", "taken back before"],
)
@pytest.mark.parametrize("where", ["home", "xdg"])
def test_a12_trust_in_every_directory_is_found(tmp_path: Path, values: list[str], trusted: bool, where: str) -> None:
    config = tmp_path / (".gitconfig" if where == "home" else "git/config")
    config.parent.mkdir(exist_ok=True)
    config.touch()
    for value in values:
        run(["git", "config", "--file", str(config), "--add", "safe.directory", value])
    environ = {"HOME": str(tmp_path)} if where == "home" else {"XDG_CONFIG_HOME": str(tmp_path)}
    assert trusts_every_directory(environ) is trusted


def test_a_broken_configuration_or_git_is_no_crash(tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text("[safe\n")
    assert not trusts_every_directory({"HOME": str(tmp_path)})
    assert not trusts_every_directory({}, str(tmp_path / "no-git"))


def test_the_repository_around_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(["git", "init", "-q", str(tmp_path)])
    run(["git", "config", "safe.directory", "*"], cwd=tmp_path)
    assert run(["git", "config", "--get-all", "safe.directory"], cwd=tmp_path) == b"*\n"  # control: it is there
    monkeypatch.chdir(tmp_path)
    assert not trusts_every_directory({"HOME": str(tmp_path), "GIT_DIR": str(tmp_path / ".git")})
