"""Commands with a daemon: the same result, in a fork of it; and the daemon's life."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from devtools.command import SANDBOX, Command
from devtools.daemon import RunningDaemon, ask, serving
from devtools.loaded_modules import find_loaded
from devtools.ready_daemon import find_daemon

pytestmark = pytest.mark.xdist_group("serve")  # one daemon for most of them

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60
ENDED = {0, 130}
"""`watch` ends with 0, or before it has begun as any command."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def daemon(place: Path) -> Iterator[RunningDaemon]:
    with serving(place / "home") as running:
        yield running


@pytest.fixture(scope="module")
def task(place: Path, daemon: RunningDaemon) -> Iterator[str]:
    """A task on a repository of this host, made through the daemon."""
    task_id = create_task(place / "up", daemon.home)
    yield task_id
    Command(daemon.home).ok("task", "close", task_id, "--delete", "--discard", "--no-daemon")


def create_task(remote: Path, home: Path) -> str:
    git = ["git", "-C", str(remote), "-c", "user.name=A", "-c", "user.email=a@example.invalid"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(remote)], check=True)
    (remote / "f").write_bytes(b"one\ntwo\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
    sandbox = Command(home)
    repository = sandbox.ok("repo", "clone", str(remote))["repository"]["id"]
    return str(sandbox.ok("task", "create", "--offline", repository)["task"]["id"])


def run(home: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [*SANDBOX, "--home", str(home), *arguments]
    return subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False, **options)  # type: ignore[call-overload, no-any-return]


def test_a_client_loads_next_to_nothing_and_its_command_runs_in_the_daemon(daemon: RunningDaemon, task: str) -> None:
    loaded = find_loaded("--home", str(daemon.home), "status", task)
    assert loaded.code == 0
    assert loaded.libraries == frozenset()
    assert loaded.ours <= {"sandbox", "sandbox.__main__", "sandbox.command_client", "sandbox.version"}
    alone = find_loaded("--home", str(daemon.home), "status", task, "--no-daemon")
    assert "pydantic" in alone.libraries, "the control"
    assert alone.stdout == loaded.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "TASK"],
        pytest.param(["status", "TASK", "--json"], marks=pytest.mark.thorough),
        ["file", "read", "TASK", "f"],
        pytest.param(["file", "read", "TASK", "missing"], marks=pytest.mark.thorough),
        ["task", "show", "task-00000000-0000-4000-8000-000000000000", "--json"],
        ["frobnicate"],
        ["task", "list", "--help"],
        ["commit", "TASK", "-m", "nothing"],
        ["status", "-"],
    ],
    ids=" ".join,
)
def test_output_and_exit_code_are_those_of_the_command_alone(
    daemon: RunningDaemon, task: str, arguments: list[str]
) -> None:
    words = [task if word == "TASK" else word for word in arguments]
    there, here = run(daemon.home, *words), run(daemon.home, *words, "--no-daemon")
    assert (there.returncode, there.stdout, there.stderr) == (here.returncode, here.stdout, here.stderr)


def test_standard_input_and_directory_are_the_clients(daemon: RunningDaemon, tmp_path: Path) -> None:
    task = create_task(tmp_path / "up", daemon.home)
    patch = b"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
    found = Command(daemon.home).ok("file", "read", task, "f")
    done = run(daemon.home, "file", "patch", task, "-", "--expect", f"f={found['sha256']}", input=patch)
    assert done.returncode == 0, done.stderr
    assert Command(daemon.home).ok("file", "read", task, "f")["content"] == "one\nthree\n"
    Command(daemon.home).ok("task", "close", task, "--delete", "--discard")
    (tmp_path / "file").write_text("x")
    assert str(tmp_path / "file").encode() in run(daemon.home, "repo", "clone", "./file", cwd=tmp_path).stderr


def test_a_dash_means_the_task_of_the_clients_terminal(daemon: RunningDaemon, task: str) -> None:
    """One script is one session: the daemon's own session, or that of another client, is another terminal."""
    words = " ".join([*SANDBOX, "--home", str(daemon.home)])
    script = f"{words} use {task} && {words} status - && {words} status - --no-daemon"
    done = subprocess.run(["setsid", "-w", "sh", "-c", script], capture_output=True, check=False, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    other = f"{words} status -"
    assert subprocess.run(["setsid", "-w", "sh", "-c", other], capture_output=True, check=False).returncode == 2


def test_a_process_with_another_environment_for_python_runs_its_command_itself(
    daemon: RunningDaemon, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(daemon.home, "status", task) == b"R", "the control"
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    assert ask(daemon.home, "status", task) == b"Nits variable PYTHONWARNINGS differs"
    assert run(daemon.home, "status", task).returncode == 0


@contextmanager
def watch(home: Path, task: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that lasts, in the daemon."""
    command = ["env", "--default-signal=INT,HUP,TERM", *SANDBOX, "--home", str(home), "watch", task]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as watching:
        try:
            assert watching.stderr is not None
            assert b"watching" in watching.stderr.readline()
            yield watching
        finally:
            watching.kill()


def descendants(process: int) -> set[int]:
    found: set[int] = set()
    todo = [process]
    while todo:
        for child in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            new = set(map(int, child.read_text().split())) - found
            found |= new
            todo += new
    return found


def wait_until_gone(processes: set[int]) -> None:
    until = time.monotonic() + DEADLINE_S
    while any(Path(f"/proc/{process}/exe").exists() and is_alive(process) for process in processes):
        assert time.monotonic() < until
        time.sleep(0.02)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_ends_a_command_as_it_does_without_a_daemon(daemon: RunningDaemon, task: str) -> None:
    before = descendants(daemon.process.pid)
    with watch(daemon.home, task) as watching:
        new = descendants(daemon.process.pid) - before
        assert len(new) == 2, "a shepherd and the command"
        watching.send_signal(signal.SIGINT)
        assert watching.wait(DEADLINE_S) in ENDED
        wait_until_gone(new)


def test_a_command_ends_when_its_client_is_killed(daemon: RunningDaemon, task: str) -> None:
    before = descendants(daemon.process.pid)
    with watch(daemon.home, task) as watching:
        new = descendants(daemon.process.pid) - before
        watching.kill()
        watching.wait()
        wait_until_gone(new)


def test_a_command_whose_shepherd_is_killed_ends_and_its_client_says_so(daemon: RunningDaemon, task: str) -> None:
    before = descendants(daemon.process.pid)
    with watch(daemon.home, task) as watching:
        new = descendants(daemon.process.pid) - before
        (shepherd,) = (one for one in new if descendants(one))
        os.kill(shepherd, signal.SIGKILL)
        assert watching.wait(DEADLINE_S) == 5
        assert watching.stderr is not None
        assert b"the daemon was killed" in watching.stderr.read()
        wait_until_gone(new)


def test_a_stopped_client_stops_its_command(daemon: RunningDaemon, task: str) -> None:
    before = descendants(daemon.process.pid)
    with watch(daemon.home, task) as watching:
        new = descendants(daemon.process.pid) - before
        watching.send_signal(signal.SIGTSTP)
        until = time.monotonic() + DEADLINE_S
        while not any(Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[0] == "T" for one in new):
            assert time.monotonic() < until
            time.sleep(0.02)
        watching.send_signal(signal.SIGCONT)
        watching.send_signal(signal.SIGTERM)
        watching.wait(DEADLINE_S)
        wait_until_gone(new)


def test_a_second_daemon_is_refused_and_names_the_first(daemon: RunningDaemon) -> None:
    done = run(daemon.home, "serve")
    assert done.returncode == 4
    assert f"Process {daemon.process.pid}".encode() in done.stderr
    assert Command(daemon.home).ok("serve", "--status")["daemon"]["pid"] == daemon.process.pid


def test_a_command_outlives_the_new_program_of_the_daemon(daemon: RunningDaemon, task: str) -> None:
    with watch(daemon.home, task) as watching:
        daemon.replace_program()
        assert ask(daemon.home, "status", task) == b"R"
        assert watching.poll() is None
        watching.send_signal(signal.SIGINT)
        assert watching.wait(DEADLINE_S) in ENDED


def test_more_requests_for_the_new_program_do_not_end_it_while_it_loads(tmp_path: Path) -> None:
    """As several clients send them that notice an upgrade at once."""
    home = tmp_path / "home"
    with serving(home) as running:
        before, until = running.record.started_at, time.monotonic() + DEADLINE_S
        while (found := find_daemon(home)) is None or found.started_at == before:
            assert time.monotonic() < until
            assert running.process.poll() is None
            running.process.send_signal(signal.SIGHUP)
            time.sleep(0.02)
        assert ask(home, "task", "list") == b"R"
        assert running.process.poll() is None


def test_the_first_client_after_an_upgrade_has_the_daemon_start_the_new_program(tmp_path: Path) -> None:
    """A command, a request over HTTP, and an agent's, each the first of its kind. An installation of its own, of which
    one file is replaced as an installer does it.
    """
    installation, home = tmp_path / "installation", tmp_path / "home"
    installation.mkdir()
    other = shutil.ignore_patterns(
        "version.*.pyc", "*.pyc.*"
    )  # the latter are being written; compiled modules go along
    shutil.copytree(ROOT / "sandbox", installation / "sandbox", ignore=other)
    for name in ("images", "policies"):
        (installation / name).symlink_to(ROOT / name)
    program = [sys.executable, "-P", "-m", "sandbox"]
    environ = {**os.environ, "PYTHONPATH": str(installation)}

    def install(version: str) -> None:
        newer = installation / "newer.py"
        newer.write_text(f'__version__ = "{version}"\n')
        newer.replace(installation / "sandbox/version.py")

    def list_tasks() -> bool:
        command = [*program, "--home", str(home), "task", "list"]
        done = subprocess.run(command, env=environ, capture_output=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr
        found = find_daemon(home)
        return found is not None and found.version == "99.0"

    def request(method: str, path: str) -> httpx2.Response:
        transport = httpx2.HTTPTransport(uds=str(home / "serve/api.sock"))
        with httpx2.Client(transport=transport, timeout=DEADLINE_S) as client:
            while True:
                with suppress(httpx2.TransportError):  # the older program ends
                    return client.request(method, f"http://sandbox{path}")

    with serving(home, environ=environ, program=program) as running:
        assert not list_tasks(), "the control"
        install("99.0")
        until = time.monotonic() + DEADLINE_S
        while not list_tasks():
            assert time.monotonic() < until, running.log.read_text()
        install("99.1")
        assert request("GET", "/healthz").json()["version"] == "99.1"
        install("99.2")
        refused = request("POST", "/mcp")
        assert (refused.status_code, "replaced by the newer program" in refused.text) == (503, True)
        while (answer := request("POST", "/mcp")).status_code == 503:
            assert time.monotonic() < until, running.log.read_text()
        assert answer.status_code in {400, 406, 415}, "the control: no message of MCP"
        assert request("GET", "/healthz").json()["version"] == "99.2"
        assert running.process.poll() is None, "it keeps its process"


def test_a_daemon_that_is_stopped_leaves_no_socket(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with serving(home):
        assert Command(home)("serve", "--stop").code == 0
        assert not (home / "serve/commands.sock").exists()
        assert Command(home)("serve", "--status").code == 1


def test_a_command_outlives_a_killed_daemon_and_the_next_one_serves(tmp_path: Path) -> None:
    """Sampled: at rest, with a command, and again right after the start."""
    home = tmp_path / "home"
    task = create_task(tmp_path / "up", home)
    for _ in range(2):
        with serving(home) as running, watch(home, task) as watching:
            running.process.kill()
            running.process.wait()
            assert ask(home, "status", task) == b"", "the socket is there, but nobody answers"
            assert run(home, "status", task).returncode == 0
            assert watching.poll() is None
            watching.send_signal(signal.SIGINT)
            assert watching.wait(DEADLINE_S) in ENDED
    with serving(home):
        assert ask(home, "status", task) == b"R"
    assert set(os.listdir(home / "serve")) - {"receivers"} == {"lock"}  # noqa: PTH208 - names only
    Command(home).ok("task", "close", task, "--delete", "--discard")
