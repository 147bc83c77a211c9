"""What a client is given to start this sandbox: the same installation, home and settings, from any directory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

import sandbox
from devtools.command import Command
from sandbox.agent.clients import CLIENTS, STARTUP_TIMEOUT_S, TOOL_TIMEOUT_S
from sandbox.agent.launch import KEPT_BY_CLIENTS, Launch, build_launch, find_command, split_environment
from sandbox.errors import ErrorCode, SandboxError

ROOT = Path(sandbox.__file__).parents[1]
PAGES = ROOT / "docs" / "clients"
SITE = Path(pytest.__file__).parents[1]
"""Where the libraries are installed."""
BARE = str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())
"""An interpreter that does not find this installation by itself."""
EXAMPLE = Launch("/home/you/.local/share/uv/tools/space-sandbox/bin/python", ("-I", "-m", "sandbox", "mcp"))


def reduced(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"]}


def version(argv: list[str], env: Mapping[str, str]) -> str:
    done = subprocess.run([*argv, "--version"], cwd="/", env=dict(env), capture_output=True, text=True, check=False)
    return done.stdout.strip()


def pointing_at_us(folder: Path) -> Path:
    """A directory of packages in which this installation is found."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ours.pth").write_text(f"{ROOT}\n{SITE}\n")
    return folder


# --- which command


def test_a_virtual_environment_is_started_isolated(tmp_path: Path) -> None:
    found = find_command(sys.executable, "/nonexistent", reduced(tmp_path))
    assert found == [sys.executable, "-I", "-m", "sandbox"]


def test_an_installation_of_the_user_is_found_by_way_of_the_home(tmp_path: Path) -> None:
    """As `pip install --user` makes it: `-I` would not look there."""
    release = "python{}.{}".format(*sys.version_info[:2])
    pointing_at_us(tmp_path / ".local" / "lib" / release / "site-packages")
    found = find_command(BARE, "/nonexistent", reduced(tmp_path))
    assert found == [BARE, "-E", "-P", "-m", "sandbox"]
    assert version(found, reduced(tmp_path)).endswith(sandbox.__version__)


def test_a_script_that_finds_its_own_packages_is_named_with_its_path(tmp_path: Path) -> None:
    """As package managers wrap programs, and zip files."""
    folder = pointing_at_us(tmp_path / "packages")
    script = tmp_path / "sandbox"
    script.write_text(
        f"#!{BARE}\nimport site, sys\nsite.addsitedir({str(folder)!r})\n"
        "from sandbox.__main__ import main\nsys.exit(main())\n"
    )
    script.chmod(0o755)
    found = build_launch(None, BARE, str(script), reduced(tmp_path))
    assert (found.command, found.arguments) == (str(script), ("mcp",))
    hostile = tmp_path / "opened"
    hostile.mkdir()
    (hostile / "click.py").write_text("raise SystemExit('imported')")
    for python_path in ("", ".", ":/x"):
        env = {**reduced(tmp_path), "PYTHONPATH": python_path, "PYTHONHOME": "", **found.env}
        done = subprocess.run([script, "--version"], cwd=hostile, env=env, capture_output=True, text=True, check=False)
        assert done.stdout.strip().endswith(sandbox.__version__), done.stderr


def test_one_that_only_variables_lead_to_cannot_be_given_to_a_client(tmp_path: Path) -> None:
    environ = {**reduced(tmp_path), "PYTHONPATH": f"{ROOT}:{SITE}"}
    assert version([BARE, "-m", "sandbox"], environ).endswith(sandbox.__version__), "void"
    with pytest.raises(SandboxError) as caught:
        find_command(BARE, str(ROOT / "sandbox" / "__main__.py"), environ)
    assert caught.value.code is ErrorCode.INVALID_INPUT


def test_another_installation_is_not_taken_for_this_one(tmp_path: Path) -> None:
    other = tmp_path / "other" / "sandbox" / "cli"
    other.mkdir(parents=True)
    for path in (other / "__init__.py", other / "app.py", other.parent / "__init__.py"):
        path.touch()
    release = "python{}.{}".format(*sys.version_info[:2])
    user_site = tmp_path / ".local" / "lib" / release / "site-packages"
    user_site.mkdir(parents=True)
    (user_site / "other.pth").write_text(f"{other.parents[1]}\n")
    with pytest.raises(SandboxError):
        find_command(BARE, "/nonexistent", reduced(tmp_path))


# --- home and settings


def test_settings_go_along_and_secrets_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env, left_out = split_environment(
        {
            "SANDBOX_GATE_REQUIRE": "pr",
            "SANDBOX_PROFILES_PYTHON_IMAGE": "mine",
            "SANDBOX_LOG": "debug",
            "SANDBOX_HOME": "/elsewhere",
            "SANDBOX_OF_ANOTHER_PROGRAM": "x",
            "SANDBOX_IMAGES_MIRROR": "https://me:hidden@mirror.example/debian",
            "DOCKER_HOST": "unix:///run/mine.sock",
            "DOCKER_CONFIG": "relative/docker",
            "DOCKER_CONTEXT": "",
            "XDG_RUNTIME_DIR": "/run/user/1000",
            "SSH_AUTH_SOCK": "/run/user/1000/keyring/ssh",
            "GITHUB_TOKEN": "hidden",
            "AWS_SECRET_ACCESS_KEY": "hidden",
            "PYTHONPATH": ".",
        }
    )
    assert env == {
        "SANDBOX_GATE_REQUIRE": "pr",
        "SANDBOX_PROFILES_PYTHON_IMAGE": "mine",
        "SANDBOX_LOG": "debug",
        "DOCKER_HOST": "unix:///run/mine.sock",
        "DOCKER_CONFIG": str(tmp_path / "relative" / "docker"),
        "XDG_RUNTIME_DIR": "/run/user/1000",
        "SSH_AUTH_SOCK": "/run/user/1000/keyring/ssh",
    }
    assert set(left_out) == {"SANDBOX_IMAGES_MIRROR", "GITHUB_TOKEN"}


def test_a_socket_of_one_login_is_named_and_left_out() -> None:
    env, left_out = split_environment({"SSH_AUTH_SOCK": "/tmp/ssh-x/agent.1"})
    assert env == {}
    assert "login" in left_out["SSH_AUTH_SOCK"]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("variable", ["SANDBOX_HOME", "XDG_DATA_HOME"])
def test_the_snippet_leads_to_the_home_of_the_environment(tmp_path: Path, client: str, variable: str) -> None:
    """What the client starts finds a repository list in the home that this command means; `~` and `..` are resolved."""
    home = tmp_path / "home" / ("" if variable == "SANDBOX_HOME" else "space")
    operator = tmp_path / "operator"
    command = [sys.executable, "-I", "-m", "sandbox", "mcp", "config", client]
    environ = {**reduced(operator), variable: "~/../home", "GITHUB_TOKEN": "hidden-token", "SANDBOX_GATE_REQUIRE": "pr"}
    if variable == "XDG_DATA_HOME":
        environ[variable] = str(tmp_path / "home")
    done = subprocess.run(command, cwd="/", env=environ, capture_output=True, text=True, check=False)
    assert "without GITHUB_TOKEN" in done.stderr
    assert "hidden-token" not in done.stdout + done.stderr
    document = tomllib.loads(done.stdout) if client == "codex" else json.loads(done.stdout)
    server = next(iter(document.values()))["space-sandbox"]
    assert server["env"] == {"SANDBOX_GATE_REQUIRE": "pr"}
    assert server["args"][:3] == ["-I", "-m", "sandbox"]
    named = Path(server["args"][server["args"].index("--home") + 1])
    assert named.is_absolute()
    assert named.resolve() == home.resolve()


def test_the_default_home_needs_no_word(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-m", "sandbox", "mcp", "config", "claude"]
    done = subprocess.run(command, cwd="/", env=reduced(tmp_path), capture_output=True, text=True, check=True)
    server = json.loads(done.stdout)["mcpServers"]["space-sandbox"]
    assert (server["args"], "env" in server) == (["-I", "-m", "sandbox", "mcp"], False)
    assert set(reduced(tmp_path)) <= set(KEPT_BY_CLIENTS)


def test_a_home_given_by_hand_is_made_absolute(tmp_path: Path) -> None:
    snippet = Command(Path("relative")).ok("mcp", "config", "codex")["snippet"]
    assert str(Path("relative").absolute()) in tomllib.loads(snippet)["mcp_servers"]["space-sandbox"]["args"]


# --- what clients read


@pytest.mark.parametrize("client", CLIENTS)
def test_a_clients_page_shows_the_snippet_it_gets(client: str) -> None:
    page = (PAGES / f"{client}.md").read_text()
    assert CLIENTS[client].snippet(EXAMPLE) in page


def test_names_of_any_kind_survive_the_format_of_each_client() -> None:
    odd = Launch('/a "b"\\c/ü\U0001f600\x7f\x01', ("-I", "é\t"), {"SANDBOX_X": 'a"\\\n'})
    for client, found in CLIENTS.items():
        text = found.snippet(odd)
        document = tomllib.loads(text) if client == "codex" else json.loads(text)
        server = next(iter(document.values()))["space-sandbox"]
        assert (server["command"], tuple(server["args"]), server["env"]) == (odd.command, odd.arguments, odd.env)


def test_each_client_is_told_to_wait_or_its_page_says_that_it_cannot_be() -> None:
    codex = tomllib.loads(CLIENTS["codex"].snippet(EXAMPLE))["mcp_servers"]["space-sandbox"]
    assert (codex["tool_timeout_sec"], codex["startup_timeout_sec"]) == (TOOL_TIMEOUT_S, STARTUP_TIMEOUT_S)
    claude = json.loads(CLIENTS["claude"].snippet(EXAMPLE))["mcpServers"]["space-sandbox"]
    assert claude["timeout"] == TOOL_TIMEOUT_S * 1000
    for client in ("cursor", "vscode", "claude"):
        assert "no setting for how long" in (PAGES / f"{client}.md").read_text(), client


# --- ourselves


def test_neither_we_nor_our_pages_start_this_package_with_the_working_directory_on_the_path() -> None:
    """`-m sandbox` without `-I` or `-P`, but where it is the control of an attack, and where a text warns of it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    careless = re.compile(r"""-m["', ]+sandbox\b""")
    found = []
    for name in filter(None, listed.split("\0")):
        text = (ROOT / name).read_text(errors="replace") if (ROOT / name).is_file() else ""
        lines = [line for line in text.splitlines() if careless.search(line)]
        found += [name for line in lines if not re.search(r"-I|-P", line)]
    assert set(found) <= {
        "sandbox/__main__.py",
        "sandbox/agent/launch.py",
        "sandbox/attack/suites/start.py",
        "sandbox/attack/threats.toml",
        "tests/attack/test_s_start.py",
        "tests/unit/agent/test_launch.py",
        "docs/threats.md",
        "docs/agents.md",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PROXY", "user:secret@proxy:3128"),
        ("HTTPS_PROXY", "http://TOKEN@proxy"),
        ("http_proxy", "http://u:pa/ss@proxy"),
        ("SANDBOX_ENGINE_HOST", "tcp://u:p@ss@host:1"),
        ("DOCKER_CONTEXT", "no\udcfftext"),
    ],
)
def test_what_may_hold_a_secret_or_is_no_text_stays_out_of_the_snippet(name: str, value: str) -> None:
    env, left_out = split_environment({name: value})
    assert (env, list(left_out)) == ({}, [name])
