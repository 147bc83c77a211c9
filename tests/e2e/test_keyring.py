"""Secrets in the system keyring: a real Secret Service, the real command, a real https server."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from devtools import keyring
from devtools.command import SANDBOX, Command
from devtools.gitserver import GitServer
from devtools.home_files import list_home_files
from devtools.requirement import unavailable
from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench.controller.services import build_services
from sandbox.workbench.delivery import secret_scan

pytestmark = pytest.mark.xdist_group("gitserver")
NO_SESSION = {"DBUS_SESSION_BUS_ADDRESS": "", "XDG_RUNTIME_DIR": ""}


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    absent = keyring.missing()
    if absent:
        unavailable(f"no {', '.join(absent)}: run `scripts/setup tools`")
    return tmp_path_factory.mktemp("k")


@pytest.fixture
def unlocked(folder: Path) -> Iterator[dict[str, str]]:
    """Environment of a session with an unlocked keyring."""
    with keyring.session(folder) as environ:
        yield environ | {"SANDBOX_CREDENTIALS_STORE": "keyring"}


@pytest.fixture
def url(git_server: GitServer, tmp_path: Path) -> str:
    content = tmp_path / "content"
    content.mkdir()
    (content / "f.txt").write_text("one\n")
    name = f"kept-{uuid.uuid4().hex[:8]}"
    git_server.seed("acme", name, content)
    return git_server.https_url("acme", name)


def set_secret(git_server: GitServer, home: Path, environ: Mapping[str, str], host: str = "") -> tuple[int, str]:
    """Exit code and all output of `credentials set`."""
    argv = [*SANDBOX, "--home", str(home), "credentials", "set"]
    options = ["--username", git_server.username, "--ca-file", str(git_server.ca_file), "--json"]
    done = subprocess.run(
        [*argv, *options, "--", host or git_server.https_host],
        input=git_server.password,
        capture_output=True,
        text=True,
        env={**environ, "PATH": "/usr/bin:/bin"},
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def on_disk(secret: str, *places: Path) -> list[Path]:
    files = (p for place in places for p in list_home_files(place))
    return [p for p in files if secret.encode() in p.read_bytes()]


def in_keyring(environ: Mapping[str, str]) -> str:
    """All that the keyring holds of ours, as its own command shows it."""
    argv = ["secret-tool", "search", "--all", "application", "space-sandbox"]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=30).stdout


def test_a_secret_in_the_keyring_opens_the_remote_and_is_in_no_file(
    git_server: GitServer, url: str, unlocked: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    code, said = set_secret(git_server, home, unlocked)
    assert code == 0, said
    assert json.loads(said)["credential"]["store"] == "keyring"
    assert git_server.password not in said
    assert git_server.password in in_keyring(unlocked)
    assert on_disk(git_server.password, home, folder) == []
    sandbox = Command(home, unlocked)

    assert sandbox.ok("repo", "clone", url)["repository"]["remote_url"] == url
    assert on_disk(git_server.password, home, folder) == []
    listed = sandbox("credentials", "list", "--json")
    assert git_server.password not in listed.stdout
    without = Command(home, NO_SESSION)("repo", "clone", url, "--json")  # control: nothing else opens it
    assert without.error["code"] == "auth_failed"
    assert "session bus" in without.error["details"]

    sandbox.ok("credentials", "remove", git_server.https_host)
    assert in_keyring(unlocked) == ""
    assert sandbox.ok("credentials", "list") == {"credentials": []}


def test_the_secret_is_in_no_argument_and_no_environment(
    git_server: GitServer, unlocked: dict[str, str], tmp_path: Path
) -> None:
    """Every program that the command starts, as Python tells its auditors."""
    log = tmp_path / "started"
    script = (
        "import runpy, sys; log = open(sys.argv.pop(1), 'w')\n"
        "sys.addaudithook(lambda event, told: event == 'subprocess.Popen' and print(told, file=log, flush=True))\n"
        "runpy.run_module('sandbox', run_name='__main__', alter_sys=True)"
    )
    words = ["--home", str(tmp_path / "home"), "credentials", "set", "example.com"]
    argv = [sys.executable, "-c", script, str(log), *words]
    subprocess.run(argv, input="s3cr3t-of-the-test", text=True, env=unlocked, check=True, timeout=60)

    assert "s3cr3t-of-the-test" in in_keyring(unlocked)
    assert log.read_text().count("secret-tool") >= 2  # store and read back
    assert "s3cr3t-of-the-test" not in log.read_text()


def test_a_secret_that_vanished_from_the_keyring_is_told(
    git_server: GitServer, url: str, unlocked: dict[str, str], tmp_path: Path
) -> None:
    set_secret(git_server, tmp_path / "home", unlocked)
    subprocess.run(["secret-tool", "clear", "application", "space-sandbox"], env=unlocked, check=True, timeout=30)

    ended = Command(tmp_path / "home", unlocked)("repo", "clone", url, "--json")

    assert ended.error["code"] == "auth_failed"
    assert "credentials set" in ended.error["hint"]


def test_a_secret_of_the_keyring_leaves_in_no_text_and_nothing_leaves_while_nobody_knows_it(
    git_server: GitServer, unlocked: dict[str, str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    set_secret(git_server, home, unlocked)
    secret_scan.require_no_secret(build_services(home, unlocked, allow_file=True).credentials, "a text")
    with pytest.raises(SandboxError) as found:
        secret_scan.require_no_secret(
            build_services(home, unlocked, allow_file=True).credentials, f"a text: {git_server.password}"
        )
    assert found.value.code is ErrorCode.POLICY_VIOLATION
    with pytest.raises(SandboxError) as unknown:
        secret_scan.require_no_secret(build_services(home, NO_SESSION, allow_file=True).credentials, "a text")
    assert unknown.value.code is ErrorCode.AUTH_FAILED


def test_two_homes_do_not_share_and_a_file_entry_replaces(
    git_server: GitServer, unlocked: dict[str, str], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        set_secret(git_server, tmp_path / name, unlocked, "--odd-host")
    assert in_keyring(unlocked).count("secret = ") == 2

    code, said = set_secret(
        git_server, tmp_path / "one", unlocked | {"SANDBOX_CREDENTIALS_STORE": "file"}, "--odd-host"
    )

    assert (code, json.loads(said)["credential"]["store"]) == (0, "file")
    assert in_keyring(unlocked).count("secret = ") == 1
    assert [p.parent.name for p in on_disk(git_server.password, tmp_path)] == ["one"]


@contextmanager
def nobody_answers(kind: str, folder: Path) -> Iterator[dict[str, str]]:
    if kind == "no session":
        yield NO_SESSION
    else:
        with keyring.session(folder, "locked" if kind == "locked" else "none") as environ:
            yield environ


@pytest.mark.parametrize("kind", ["no session", "no keyring on the bus", "locked"])
def test_without_a_keyring_auto_is_the_file_and_keyring_is_an_error(
    git_server: GitServer, folder: Path, tmp_path: Path, kind: str
) -> None:
    home = tmp_path / "home"
    with nobody_answers(kind, folder) as environ:
        code, said = set_secret(git_server, home, environ | {"SANDBOX_CREDENTIALS_STORE": "keyring"})
        assert (code, json.loads(said)["error"]["code"]) == (5, "auth_failed")
        assert git_server.password not in said
        assert not (home / "credentials.toml").exists()
        code, said = set_secret(git_server, home, environ | {"SANDBOX_CREDENTIALS_STORE": "auto"})
    assert (code, json.loads(said)["credential"]["store"]) == (0, "file")
    assert [p.name for p in on_disk(git_server.password, home)] == ["credentials.toml"]


def test_nothing_of_the_keyring_is_asked_when_the_store_is_the_file(
    git_server: GitServer, unlocked: dict[str, str], tmp_path: Path
) -> None:
    code, said = set_secret(git_server, tmp_path / "home", unlocked | {"SANDBOX_CREDENTIALS_STORE": "file"})

    assert (code, json.loads(said)["credential"]["store"]) == (0, "file")
    assert in_keyring(unlocked) == ""
