"""Units of systemd: what the daemon relies on."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

import pytest

from sandbox.daemon.units import make_unit

HOME = Path("/home/a user/space")


def read(kind: str) -> ConfigParser:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names of units have capitals
    parser.read_string(make_unit(kind, HOME, ["/usr/bin/python3", "--home", str(HOME), "serve"], "alice"))
    return parser


@pytest.mark.parametrize("kind", ["user", "system"])
def test_a_service_ends_without_its_commands_and_is_reloaded_by_a_new_program(kind: str) -> None:
    service = read(kind)["Service"]
    assert (service["Type"], service["KillMode"], service["ExecReload"]) == ("notify", "process", "kill -HUP $MAINPID")
    assert service["ExecStart"] == f"/usr/bin/python3 --home '{HOME}' serve"
    assert service.get("User") == ("alice" if kind == "system" else None)


def test_the_sockets_are_those_that_clients_look_for() -> None:
    text = make_unit("socket", HOME, [], "")
    listed = [line.partition("=")[2] for line in text.splitlines() if line.startswith("ListenStream=")]
    assert listed == [f"{HOME}/serve/commands.sock", f"{HOME}/serve/api.sock"]
    assert read("socket")["Socket"]["SocketMode"] == "0600"
