"""Units of systemd: what the daemon relies on."""

from __future__ import annotations

import os
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path
from pwd import getpwuid

import pytest

from sandbox.daemon.units import make_unit

HOME = Path("/home/a user/space")


def read(kind: str) -> ConfigParser:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names of units have capitals
    parser.read_string(make_unit(kind, HOME, ["/usr/bin/python3", "--home", str(HOME), "serve"], "alice", {}))
    return parser


@pytest.mark.parametrize("kind", ["user", "system"])
def test_a_service_ends_without_its_commands_and_is_reloaded_by_a_new_program(kind: str) -> None:
    service = read(kind)["Service"]
    assert (service["Type"], service["KillMode"], service["ExecReload"]) == ("notify", "process", "kill -HUP $MAINPID")
    assert service["ExecStart"] == f'/usr/bin/python3 --home "{HOME}" serve'
    assert service.get("User") == ("alice" if kind == "system" else None)


def test_a_service_has_the_locale_of_the_shell_and_not_that_of_systemd() -> None:
    """By which the daemon is told from its clients (`Program.find_mismatch`); systemd has LANG=C.UTF-8 by itself."""
    environ = {"LC_TIME": 'a "b" 100%', "TZ": "Asia/Tokyo", "LC_ALL": "a\nb", "PATH": "/bin"}
    lines = make_unit("user", HOME, ["x"], "", environ).splitlines()
    assert [line for line in lines if line.startswith("Environment=")] == [
        'Environment="LC_TIME=a \\"b\\" 100%%"',
        'Environment="TZ=Asia/Tokyo"',
    ]
    (line,) = [line for line in lines if line.startswith("UnsetEnvironment=")]
    names = line.partition("=")[2].split()
    assert {"LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE"} <= set(names)
    assert not {"LC_TIME", "TZ", "PATH"} & set(names)


@pytest.mark.parametrize("kind", ["user", "system"])
def test_a_service_that_fails_at_each_start_is_given_up(kind: str) -> None:
    """By default systemd counts five starts in 10 s, which a start of a second and a pause of two never reach."""
    unit, service = read(kind)["Unit"], read(kind)["Service"]
    starts, pause_s = int(unit["StartLimitBurst"]), int(service["RestartSec"])
    longest_start_s = 8  # with a mistake in config.toml, on a machine that is ten times slower
    assert starts * (pause_s + longest_start_s) < int(unit["StartLimitIntervalSec"])


def test_the_sockets_are_those_that_clients_look_for() -> None:
    text = make_unit("socket", HOME, [], "alice", {})
    listed = [line.partition("=")[2] for line in text.splitlines() if line.startswith("ListenStream=")]
    assert listed == [f"{HOME}/serve/commands.sock", f"{HOME}/serve/api.sock"]
    assert read("socket")["Socket"].get("SocketUser") is None, "systemd would give away what a link names"


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("a b", '"a b"'),
        ("it's", '"it\'s"'),
        ('a"b', '"a\\"b"'),
        ("a\\tb", '"a\\\\tb"'),
        ("100%$A", "100%%$$A"),
        ("", '""'),
    ],
)
def test_a_word_of_the_command_is_what_systemd_reads_back(word: str, written: str) -> None:
    lines = make_unit("user", HOME, ["x", word], "", {}).splitlines()
    (line,) = [line for line in lines if line.startswith("ExecStart=")]
    assert line == f"ExecStart=x {written}"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here, so no unit either")
@pytest.mark.parametrize("kind", ["user", "system", "socket"])
def test_systemd_understands_each_unit(kind: str, tmp_path: Path) -> None:
    user = getpwuid(os.getuid()).pw_name
    names = {"user": "space-sandbox.service", "system": "space-sandbox.service", "socket": "space-sandbox.socket"}
    for one in {"user", kind}:  # a socket starts the service of its name
        text = make_unit(one, HOME, ["/bin/sh", "-c", "$HOME 100%"], user, {"LANG": "de_DE.UTF-8"})
        (tmp_path / names[one]).write_text(text)
    assert verify(tmp_path / names[kind], is_user=kind != "system") == ""
    (tmp_path / names[kind]).write_text(text.replace("Description=", "Descryption=", 1))
    assert "Descryption" in verify(tmp_path / names[kind], is_user=kind != "system"), "control: a wrong unit is noticed"


def verify(unit: Path, *, is_user: bool) -> str:
    """What systemd complains about."""
    scope = ["--user"] if is_user else []
    return subprocess.run(
        ["systemd-analyze", *scope, "--man=no", "verify", str(unit)],
        env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(unit.parent), "HOME": str(unit.parent)},
        capture_output=True,
        check=False,
        text=True,
    ).stderr
