"""The secret of a remote is in no process list, file, log, container or answer, while we work or afterwards."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import docker
import pytest

from devtools.command import Command, Ended
from devtools.gitserver import Answer, GitServer, Tunnel, introduce
from devtools.gitserver.tunnel import Break
from devtools.home_files import list_home_files
from sandbox.store.home import Home

pytestmark = pytest.mark.xdist_group("gitserver")

DEADLINE_S = 180
LOUD = {
    "SANDBOX_LOG": "debug",
    "GIT_TRACE": "1",
    "GIT_TRACE_CURL": "1",
    "GIT_TRACE_PACKET": "1",
    "GIT_TRACE_REDACT": "0",
    "GIT_CURL_VERBOSE": "1",
}
CHECK = "all:\n\ntest:\n\t@env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; while [ ! -e go ]; do sleep 0.1; done\n"


def spellings(username: str, secret: str) -> list[bytes]:
    """How a secret shows up: plain, in a URL, in a basic authorization, in TOML or JSON."""
    basic = base64.b64encode(f"{username}:{secret}".encode())
    return [secret.encode(), quote(secret, safe="").encode(), basic, quote(basic, safe="").encode()]


def hits(text: bytes, needles: list[bytes]) -> list[bytes]:
    return [needle for needle in needles if needle in text]


def descendants(pid: int) -> set[int]:
    """Processes that `pid` started, and theirs."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found, todo = set(), [pid]
    while todo:
        current = todo.pop()
        found.add(current)
        todo += children.get(current, [])
    return found


def visible(pid: int) -> dict[str, bytes]:
    """What the process list shows of `pid` and its descendants."""
    shown = {}
    for process in descendants(pid):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                shown[f"{process}/{name}"] = Path("/proc", str(process), name).read_bytes()
    return shown


class Watch:
    """Looks at the process list of a command again and again; keeps what showed the secret, and who was seen."""

    def __init__(self, needles: list[bytes]) -> None:
        self.needles = needles
        self.found: set[str] = set()
        self.seen: set[bytes] = set()

    def look(self, pid: int) -> None:
        for place, text in visible(pid).items():
            self.seen |= {Path(os.fsdecode(part)).name.encode() for part in text.split(b"\0")[:1]}
            if hits(text, self.needles):
                self.found.add(f"{place}: {text[:40]!r}")

    def until_held(self, process: subprocess.Popen[str], stop: Break) -> None:
        """Until the transfer hangs at the chosen byte."""
        deadline = time.monotonic() + DEADLINE_S
        while not stop.tripped.is_set():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            self.look(process.pid)
        self.look(process.pid)


@contextmanager
def started(sandbox: Command, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that a failing test takes along."""
    with sandbox.start(*arguments, "--json") as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
                process.communicate()


def finished(process: subprocess.Popen[str]) -> Ended:
    stdout, stderr = process.communicate(timeout=DEADLINE_S)
    return Ended(process.returncode, stdout, stderr)


def files_with(folder: Path, needles: list[bytes]) -> list[str]:
    return [str(p) for p in list_home_files(folder) if hits(p.read_bytes(), needles) or hits(os.fsencode(p), needles)]


@pytest.fixture
def tunnel(git_server: GitServer) -> Iterator[Tunnel]:
    with Tunnel(git_server.https_port) as tunnel:
        yield tunnel


@pytest.fixture
def needles(git_server: GitServer) -> list[bytes]:
    return spellings(git_server.username, git_server.password)


@pytest.fixture
def sandbox(git_server: GitServer, tmp_path: Path) -> Command:
    """As loud as it gets, with a directory for temporary files that is its own."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    home = introduce(tmp_path / "home", git_server)
    return Command(home, {**LOUD, "TMPDIR": str(temporary)})


@pytest.fixture
def project(git_server: GitServer, tmp_path: Path) -> str:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Makefile").write_text(CHECK)
    (folder / ".gitignore").write_text("/go\n")
    (folder / "noise").write_bytes(os.urandom(300_000))
    name = f"secret-{uuid.uuid4().hex[:8]}"
    git_server.seed("acme", name, folder)
    return name


@pytest.mark.parametrize("where", ["argv", "environ"])
@pytest.mark.parametrize("spelling", range(4), ids=["plain", "url", "basic", "basic-in-url"])
def test_control_the_scan_finds_a_secret_given_to_a_grandchild(where: str, spelling: int, needles: list[bytes]) -> None:
    secret = needles[spelling].decode()
    argv = ["sh", "-c", "echo; read _; :", secret] if where == "argv" else ["sh", "-c", "echo; read _; :"]
    env = {"PATH": os.defpath} | ({"TOKEN": secret} if where == "environ" else {})
    command = ["sh", "-c", '"$@"; :', "sh", "env", "-i", *(f"{k}={v}" for k, v in env.items()), *argv]
    watch = Watch(needles)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        watch.look(process.pid)
        process.communicate("\n", timeout=DEADLINE_S)

    assert [place for place in watch.found if where.replace("argv", "cmdline") in place]


def test_the_secret_is_nowhere_during_and_after_the_main_job(
    sandbox: Command, git_server: GitServer, tunnel: Tunnel, project: str, needles: list[bytes]
) -> None:
    watch, ended = Watch(needles), []
    temporary = Path(sandbox.env["TMPDIR"])
    url = f"https://127.0.0.1:{tunnel.port}/acme/{project}.git"

    # A clone, held in the middle of the pack.
    with started(sandbox, "repo", "clone", url) as process:
        with tunnel.breaking("stall", after=60_000, times=1) as hold:
            watch.until_held(process, hold)
            assert list(temporary.iterdir())  # the positive control for the end: it does use this directory
        ended.append(finished(process))
    assert b"git-remote-https" in watch.seen

    # A check that shows everything a guest can see, inspected from outside while it runs.
    task = sandbox.ok("task", "create", ended[0].json["repository"]["id"])["task"]
    with started(sandbox, "check", "run", task["id"], "test") as process:
        outside = inspected(sandbox.home, task["id"])
        (Path(task["worktree_path"]) / "go").touch()
        ended.append(finished(process))
    assert "PATH=" in ended[-1].stdout + "".join(p.read_text(errors="replace") for p in logs(sandbox.home))

    # A push, held in the middle of the pack.
    (Path(task["worktree_path"]) / "more").write_bytes(os.urandom(300_000))
    sandbox.ok("commit", task["id"], "-m", "More")
    with started(sandbox, "push", task["id"]) as process:
        with tunnel.breaking("stall", after=60_000, times=1) as hold:
            watch.until_held(process, hold)
        ended.append(finished(process))

    assert [e.code for e in ended] == [0, 0, 0], ended
    assert task["branch"] in git_server.branches("acme", project)
    assert watch.found == set()
    assert hits(outside, needles) == []
    assert_nowhere(sandbox, ended, needles)


def inspected(home: Path, task_id: str) -> bytes:
    """What engine and kernel tell about a task's container while a check runs in it: its definition and processes."""
    deadline = time.monotonic() + DEADLINE_S
    instance = home / "instance"
    with contextlib.closing(docker.from_env()) as engine:
        while time.monotonic() < deadline:
            owner = Home(home).instance_id if instance.exists() else "nobody"
            labels = [f"space.sandbox.instance={owner}", f"space.sandbox.task={task_id}"]
            for container in engine.containers.list(filters={"label": labels}):
                pid = container.attrs["State"]["Pid"]
                shown = visible(pid)
                check = {name: text for name, text in shown.items() if not name.startswith(f"{pid}/")}
                if any(b"PATH=" in text for text in check.values()):
                    return str(container.attrs).encode() + b"".join(shown.values())  # it keeps no log
            time.sleep(0.05)
    pytest.fail("the check never started")


def logs(home: Path) -> list[Path]:
    return [p for p in (home / "repositories" / "logs").rglob("*") if p.is_file()]


def assert_nowhere(sandbox: Command, ended: list[Ended], needles: list[bytes]) -> None:
    """Not in what commands said, nor in any file but the one it comes from; no temporary file is left."""
    said = "".join(e.stdout + e.stderr for e in ended).encode()
    assert hits(said, needles) == []
    assert files_with(sandbox.home, needles) == [str(sandbox.home / "credentials.toml")]
    assert list(Path(sandbox.env["TMPDIR"]).iterdir()) == []


def test_the_secret_is_nowhere_after_failures(
    sandbox: Command, git_server: GitServer, tunnel: Tunnel, project: str, needles: list[bytes]
) -> None:
    url = f"https://127.0.0.1:{tunnel.port}/acme/{project}.git"
    ended = [sandbox("repo", "clone", url.replace(project, "nothing"), "--json")]
    with tunnel.breaking("reset", after=60_000):
        ended.append(sandbox("run", url))
    with git_server.failing(Answer(403, text="no\n")):
        ended.append(sandbox("run", url, "--json"))

    assert [e.code for e in ended] == [5, 5, 5], ended
    assert_nowhere(sandbox, ended, needles)


def test_a_server_that_sends_the_secret_back_does_not_get_it_shown(
    sandbox: Command, git_server: GitServer, tunnel: Tunnel, project: str, needles: list[bytes]
) -> None:
    echo = b" ".join(needles).decode()
    with git_server.failing(Answer(403, text=f"I know {echo}\n")):
        ended = sandbox("repo", "clone", f"https://127.0.0.1:{tunnel.port}/acme/{project}.git", "--json")

    assert ended.error["code"] == "auth_failed"
    assert "I know" in ended.error["details"]
    assert_nowhere(sandbox, [ended], needles)
