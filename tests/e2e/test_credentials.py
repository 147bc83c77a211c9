"""`sandbox credentials`, and where a credential comes from: the real command against the real https server."""

from __future__ import annotations

import json
import stat
import subprocess
import uuid
from pathlib import Path

import pytest

from devtools.command import SANDBOX, Command
from devtools.gitserver import GitServer
from devtools.home_files import list_home_files

pytestmark = pytest.mark.xdist_group("gitserver")


@pytest.fixture
def url(git_server: GitServer, tmp_path: Path) -> str:
    folder = tmp_path / "content"
    folder.mkdir()
    (folder / "README.md").write_text("hello\n")
    name = f"private-{uuid.uuid4().hex[:8]}"
    git_server.seed("acme", name, folder)
    return git_server.https_url("acme", name)


def set_secret(home: Path, host: str, secret: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SANDBOX, "--home", str(home), "credentials", "set", host, *options, "--json"],
        input=secret,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_stored_credential_opens_the_remote_and_is_never_shown(
    git_server: GitServer, url: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    sandbox = Command(home)
    assert sandbox("repo", "clone", url, "--json").error["code"] in {"auth_failed", "network_error"}

    options = ["--username", git_server.username, "--ca-file", str(git_server.ca_file)]
    stored = set_secret(home, git_server.https_host, git_server.password + "\n", *options)

    assert stored.returncode == 0, stderr_of(stored)
    assert git_server.password not in stored.stdout + stored.stderr
    assert stat.S_IMODE((home / "credentials.toml").stat().st_mode) == 0o600
    assert sandbox.ok("repo", "clone", url)["repository"]["default_branch"] == "main"
    listed = sandbox("credentials", "list", "--json")
    assert [c["host"] for c in listed.json["credentials"]] == [git_server.https_host]
    assert git_server.password not in listed.stdout

    sandbox.ok("credentials", "remove", git_server.https_host)
    assert sandbox.ok("credentials", "list") == {"credentials": []}


def stderr_of(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


def test_the_users_own_helper_is_asked_when_we_know_nothing(git_server: GitServer, url: str, tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    (user / "helper").write_text(
        f"#!/bin/sh\necho username={git_server.username}\necho password={git_server.password}\n"
    )
    (user / "helper").chmod(0o700)
    (user / ".gitconfig").write_text(f"[credential]\n\thelper = {user}/helper\n")
    home = tmp_path / "home"
    set_secret(home, git_server.https_host, "", "--ca-file", str(git_server.ca_file))
    anonymous = Command(home, {"HOME": str(tmp_path / "nobody")})
    assert (
        anonymous("repo", "clone", url, "--json").error["code"] == "auth_failed"
    )  # control: the CA alone is not enough

    helped = Command(home, {"HOME": str(user)}).ok("repo", "clone", url)

    assert helped["repository"]["remote_url"] == url
    assert git_server.password not in json.dumps(helped)
    assert not [p for p in list_home_files(home) if git_server.password.encode() in p.read_bytes()]


def test_a_bad_credential_is_refused_and_not_echoed(tmp_path: Path) -> None:
    refused = set_secret(tmp_path / "home", "example.com", "two\nlines")

    assert refused.returncode == 2
    assert json.loads(refused.stdout)["error"]["code"] == "invalid_input"
    assert "two" not in refused.stdout + refused.stderr
