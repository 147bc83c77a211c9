"""`sandbox serve --unit` prints the daemon that its options describe."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devtools.command import Command


def test_a_unit_starts_the_daemon_with_the_options_beside_it(tmp_path: Path) -> None:
    sandbox = Command(tmp_path / "home")
    options = ("--http", "127.0.0.1:8765", "--token-file", str(tmp_path / "token"), "--approvals", "auto")
    for kind in ("user", "system"):
        [line] = [one for one in sandbox.ok("serve", "--unit", kind, *options)["unit"].splitlines() if "Exec" in one][
            :1
        ]
        for option, value in zip(options[::2], options[1::2], strict=True):
            assert f" {option} {value}" in line
        assert "--http" not in sandbox.ok("serve", "--unit", kind)["unit"], "the control"


def test_an_address_that_the_daemon_would_refuse_is_in_no_unit(tmp_path: Path) -> None:
    ended = Command(tmp_path / "home")("serve", "--unit", "user", "--http", "0.0.0.0:8765")
    assert ended.code != 0
    assert "--token-file" in ended.stderr


def test_the_unit_of_sockets_has_no_options(tmp_path: Path) -> None:
    sandbox = Command(tmp_path / "home")
    assert "commands.sock" in sandbox.ok("serve", "--unit", "socket")["unit"]
    ended = sandbox("serve", "--unit", "socket", "--http", "127.0.0.1:8765")
    assert ended.code != 0
    assert "--unit user" in ended.stderr


def test_the_folder_of_the_sockets_is_made_by_their_user_and_not_by_systemd(tmp_path: Path) -> None:
    sandbox = Command(tmp_path / "home")
    assert sandbox("serve", "--unit", "system").code == 0
    assert not (tmp_path / "home").exists(), "the control"
    text = sandbox.ok("serve", "--unit", "socket")["unit"]
    assert (tmp_path / "home/serve").stat().st_mode & 0o777 == 0o700
    assert "SocketMode=0666\n" in text
    assert sandbox("list").code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_home_of_another_user_is_not_made(tmp_path: Path) -> None:
    """As root one would leave folders there that are root's. Control: a home of one's own, above."""
    for place in (tmp_path, tmp_path / "home"):
        os.chown(tmp_path, 4242, 4242)
        ended = Command(place)("serve", "--unit", "socket")
        assert (ended.code, "as its user" in ended.stderr) == (2, True), ended.stderr
        assert not (tmp_path / "home").exists()
        assert "User=" in Command(place).ok("serve", "--unit", "system")["unit"]
