"""S115, S116, S118, S119, S184: the daemon's sockets and its HTTP server."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx2
import pytest

from devtools.daemon import RunningDaemon, ask, serving
from devtools.requirement import unavailable
from sandbox.cli import serve
from sandbox.daemon.api_client import post
from sandbox.daemon.event_stream import format_event
from sandbox.daemon.place import DaemonRecord, find_owner, write_record
from sandbox.errors import ErrorCode
from sandbox.models import HomeEvent, HomeEventKind, JournalEntry
from tests.unit.conftest import refused

pytestmark = pytest.mark.xdist_group("s-serve")  # one daemon

_PR_SET_NO_NEW_PRIVS = 38
_NOBODY = 65534
_CONFINED = """
import ctypes, sys
ctypes.CDLL(None).prctl({prctl}, 1, 0, 0, 0)
sys.path.insert(0, {root!r})
from pathlib import Path
from devtools.daemon import ask
print(ask(Path({home!r}), "task", "list").decode())
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    with serving(tmp_path_factory.mktemp("serve") / "home", "--http", "127.0.0.1:0") as running:
        yield running


@pytest.fixture(scope="module")
def token(daemon: RunningDaemon) -> str:
    return (daemon.home / "mcp-token").read_text()


def _read_all(path: Path, uid: int) -> bytes:
    """What a process of a user gets from a socket in its directory."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.chdir(path.parent)  # the modes of the directories above do not matter
            if uid:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(30)
                client.connect(path.name)
                client.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                while chunk := client.recv(4096):
                    os.write(writes, chunk)
        except OSError as error:
            os.write(writes, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as stream:
        found = stream.read()
    os.waitpid(child, 0)
    return found


def test_s115_another_user_gets_nothing_even_where_modes_let_it_in(daemon: RunningDaemon) -> None:
    if os.geteuid() != 0:
        unavailable("only root can be another user")
    folder = daemon.home / "serve"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all((folder / name).stat().st_mode & 0o777 == 0o600 for name in ("api.sock", "commands.sock"))
    assert _read_all(folder / "api.sock", _NOBODY) == b"PermissionError"
    sockets = (folder / "api.sock", folder / "commands.sock")
    try:
        folder.chmod(0o711)
        for path in sockets:
            path.chmod(0o666)
        assert b"200 OK" in _read_all(sockets[0], 0), "the control"
        for path in sockets:
            assert _read_all(path, _NOBODY) in {b"", b"ConnectionResetError", b"BrokenPipeError"}
    finally:
        folder.chmod(0o700)
        for path in sockets:
            path.chmod(0o600)


def test_s115_a_more_confined_process_does_not_act_through_the_daemon(daemon: RunningDaemon) -> None:
    """`no_new_privs` stands for every confinement that is compared; each of them is inherited and cannot be undone."""
    assert ask(daemon.home, "task", "list") == b"R", "the control"
    program = _CONFINED.format(prctl=_PR_SET_NO_NEW_PRIVS, root=str(Path(__file__).parents[2]), home=str(daemon.home))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "Nits NoNewPrivs"


_FILTERED = """
import ctypes, os, socket, struct, sys
sys.path.insert(0, {root!r})
from sandbox.daemon.peers import find_difference, identify_peer

libc, allow = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))

def confine():
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 1, ctypes.addressof(allow)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0

confine()  # the daemon is in a container, as are its clients
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind({socket!r})
    listener.listen()
    for more in (0, 1):
        child = os.fork()
        if not child:
            [confine() for _ in range(more)]
            with socket.socket(socket.AF_UNIX) as client:
                client.connect({socket!r})
                client.recv(1)
            os._exit(0)
        connection, _ = listener.accept()
        with connection:
            print(repr(find_difference(connection, identify_peer(connection))))
        os.waitpid(child, 0)
"""


def test_s115_a_process_with_more_filters_does_not_act_through_a_daemon_with_some(tmp_path: Path) -> None:
    program = _FILTERED.format(root=str(Path(__file__).parents[2]), socket=str(tmp_path / "s"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split("\n")[:2] == ["''", "'its Seccomp_filters'"], "the first is the control"


def test_s115_a_client_sends_its_environment_to_no_other_user(tmp_path: Path) -> None:
    """A home that another user made may have a socket of that user."""
    if os.geteuid() != 0:
        unavailable("only root can be another user")
    folder = tmp_path / "home/serve"
    folder.mkdir(parents=True)
    tmp_path.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "commands.sock"))
        listener.listen()
        assert ask_and_hang_up(folder.parent, listener) is True, "the control"
        child = os.fork()
        if not child:  # the peer's credentials are those of who called listen(2)
            os.setuid(_NOBODY)
            listener.listen()
            os._exit(0)
        os.waitpid(child, 0)
        assert ask_and_hang_up(folder.parent, listener) is False


def ask_and_hang_up(home: Path, listener: socket.socket) -> bool:
    """Whether a client sent anything to the listener."""
    client = subprocess.Popen([sys.executable, "-I", "-m", "sandbox", "--home", str(home), "frobnicate"], stderr=-3)
    listener.settimeout(60)
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(60)
        sent = connection.recv(10)
    client.wait(60)
    return sent != b""


_SET_IDS = """
import os, sys, time
os.setgroups([])
os.setresuid(*map(int, sys.argv[1:]))
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("ids", "is_own"),
    [
        ((_NOBODY, _NOBODY, _NOBODY), True),
        ((0, 0, 0), False),
        ((0, _NOBODY, 0), False),
        ((_NOBODY, _NOBODY, 0), False),
    ],
    ids=["own", "root", "seteuid", "saved"],
)
def test_s115_root_ends_no_process_that_another_users_home_names(
    tmp_path: Path, ids: tuple[int, int, int], *, is_own: bool
) -> None:
    """The home's user holds its lock and names a process in it. Control: one of that user's own."""
    folder = make_home_of_nobody(tmp_path)
    with naming(folder, ids) as named:
        end_named(folder, named, is_refused=not is_own)


@pytest.mark.parametrize("linked", ["folder", "lock"])
def test_s115_a_home_lends_no_record_of_root(tmp_path: Path, linked: str) -> None:
    """Its user puts a link to another home, which is root's and names a process of root, in place of a name in it."""
    folder = make_home_of_nobody(tmp_path)
    other = tmp_path / "other" / "serve"
    other.mkdir(parents=True, mode=0o700)
    with naming(other, (0, 0, 0)) as named:
        if linked == "folder":
            folder.rmdir()
            folder.symlink_to(other)
        else:
            os.link(other / "lock", folder / "lock")
        end_named(folder, named, is_refused=True)
        end_named(other, named, is_refused=False)


def make_home_of_nobody(path: Path) -> Path:
    """The folder `serve` of a home of another user."""
    if os.geteuid() != 0:
        unavailable("only root can end the processes of others")
    folder = path / "home" / "serve"
    folder.mkdir(parents=True, mode=0o700)
    for made in (folder.parent, folder):
        os.chown(made, _NOBODY, _NOBODY)
    return folder


@contextmanager
def naming(folder: Path, ids: tuple[int, int, int]) -> Iterator[subprocess.Popen[str]]:
    """A process with these ids (real, effective, saved), and a lock that names it, of the owner of its folder."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    os.fchown(lock, folder.stat().st_uid, -1)
    fcntl.flock(lock, fcntl.LOCK_EX)
    argv = [sys.executable, "-I", "-c", _SET_IDS, *map(str, ids)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as named:
        try:
            assert named.stdout is not None
            assert named.stdout.readline() == "ready\n"
            write_record(lock, DaemonRecord(pid=named.pid, version="1", started_at=datetime.now(UTC)))
            yield named
        finally:
            os.close(lock)
            named.kill()


def end_named(folder: Path, named: subprocess.Popen[str], *, is_refused: bool) -> None:
    found = find_owner(folder.parent)
    assert found is not None
    with refused(ErrorCode.POLICY_VIOLATION) if is_refused else nullcontext():
        serve._end(folder.parent, found)
    assert (named.poll() is None) is is_refused


def test_s116_no_other_user_gets_the_link_of_the_dashboard(daemon: RunningDaemon) -> None:
    """Browsers lead `*.localhost` to `[::1]` first, where another user may listen at our port."""
    port = int(daemon.record.url.rpartition(":")[2])
    with socket.socket(socket.AF_INET6) as thief:
        try:
            thief.bind(("::1", port))  # the control: it is free until there is a link
        except OSError:
            unavailable("this host has no [::1]")
        thief.listen()
        answer = post(daemon.home, "/dashboard/link")
        assert (answer["url"], "get the link" in answer["why"]) == (None, True)
    assert "/login?link=" in post(daemon.home, "/dashboard/link")["url"]
    with socket.socket(socket.AF_INET6) as thief, pytest.raises(OSError, match="in use"):
        thief.bind(("::1", port))
    assert "/login?link=" in post(daemon.home, "/dashboard/link")["url"], "also with the port held"


_OPEN_LINK = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
with socket.create_connection((b"127.0.0.1", int(sys.argv[2])), timeout=60) as connection:
    connection.sendall(f"GET {sys.argv[4]} HTTP/1.1\\r\\nhost: {sys.argv[3]}\\r\\n\\r\\n".encode())
    print(connection.recv(1000).split()[1].decode())
"""


def test_s116_a_link_that_another_user_reads_opens_no_session(tmp_path: Path) -> None:
    """Among the arguments of a browser, which all users see. Control: the same link opens one for our own user.

    A daemon of its own: from its first link on it holds `[::1]`, which another test takes before.
    """
    if os.geteuid() != 0:
        unavailable("only root can be another user")

    def open_link(user: int) -> str:
        argv = [sys.executable, "-I", "-c", _OPEN_LINK, str(user), str(url.port), url.netloc, f"{url.path}?{url.query}"]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    with serving(tmp_path / "home", "--http", "127.0.0.1:0") as daemon:
        url = urlsplit(post(daemon.home, "/dashboard/link")["url"])
        assert [open_link(user) for user in (_NOBODY, os.geteuid())] == ["403", "303"]


def _get(daemon: RunningDaemon, path: str = "/metrics", **headers: str) -> int:
    with httpx2.Client(timeout=60) as client:
        return client.get(daemon.record.url + path, headers=headers).status_code


def test_s116_every_path_needs_the_token_our_host_and_our_origin(daemon: RunningDaemon, token: str) -> None:
    bearer = f"Bearer {token}"
    port = daemon.record.url.rpartition(":")[2]
    assert _get(daemon, authorization=bearer) == 200, "the control"
    assert _get(daemon, authorization=bearer, origin=f"http://localhost:{port}", host=f"localhost:{port}") == 200
    paths = ("/metrics", "/api/v1/openapi.json", "/api/v1/events", "/mcp", "/", "/nothing")
    for path in paths:
        assert _get(daemon, path) == 401
        assert _get(daemon, path, authorization=f"Bearer {token[:-1]}x") == 401
        assert _get(daemon, path, authorization=bearer, host=f"attacker.example:{port}") == 421
        assert _get(daemon, path, authorization=bearer, host="127.0.0.1") == 421
        assert _get(daemon, path, authorization=bearer, origin="http://attacker.example") == 403
        assert _get(daemon, path, authorization=bearer, origin="null") == 403
    assert _get(daemon, "/healthz") == 200
    assert _get(daemon, "/healthz", host=f"attacker.example:{port}") == 421, "a rebound name learns nothing"


_SAME_TO_SOME = (
    "/metrics/",
    "//metrics",
    "/Metrics",
    "/metrics/..",
    "/metrics/../healthz",
    "/metrics%00",
    "/metrics%2f..",
)
_OTHERS = ("/", "/mcp", "/api", "/api/v1/events", "/api/v1/openapi.json", "/tasks/x", "/approvals/x", "/dashboard/link")


def _ask(daemon: RunningDaemon, method: str, path: str, token: str) -> int:
    """As it is written: a client would normalize the path."""
    with closing(HTTPConnection("127.0.0.1", int(daemon.record.url.rpartition(":")[2]), timeout=60)) as connection:
        connection.request(method, path, headers={"authorization": f"Bearer {token}"})
        return connection.getresponse().status


def test_s184_the_token_for_metrics_opens_nothing_but_metrics(daemon: RunningDaemon, token: str) -> None:
    """Control: the token of agents gets past the same check for every path."""
    path = daemon.home / "metrics-token"
    assert path.stat().st_mode & 0o777 == 0o600
    metrics = path.read_text()
    assert [_ask(daemon, "GET", one, metrics) for one in ("/metrics", "/healthz")] == [200, 200]
    assert _ask(daemon, "GET", "/metrics", f"{metrics[:-1]}x") == 401
    with httpx2.Client(timeout=60, headers={"authorization": f"Bearer {token}"}) as client:
        tools = list(client.get(f"{daemon.record.url}/api/v1/openapi.json").json()["paths"])
    assert len(tools) > 10
    for one in (*tools, *_OTHERS, *_SAME_TO_SOME, "/?/metrics", "/mcp?path=/metrics#/metrics"):
        for method in ("GET", "POST", "DELETE"):
            assert _ask(daemon, method, one, metrics) == 403, (method, one)
    assert _ask(daemon, "POST", "/metrics", metrics) == 405
    assert _ask(daemon, "POST", "/api/v1/space_repo_list", token) == 200
    assert all(_ask(daemon, "POST", one, token) not in {401, 403} for one in (*tools, *_SAME_TO_SOME))


@pytest.mark.parametrize(
    "name",
    [
        "../../../../etc/passwd",
        "task-00000000-0000-4000-8000-000000000000/../../registry",
        "..%2f..%2fregistry",
        "a\0b",
    ],
)
def test_s118_an_id_is_no_path(daemon: RunningDaemon, token: str, name: str) -> None:
    with httpx2.Client(timeout=60, headers={"authorization": f"Bearer {token}"}) as client:
        url = f"{daemon.record.url}/api/v1/"
        for tool, field in (("space_repo_status", "task_id"), ("space_repo_wait_run", "run_id")):
            answer = client.post(url + tool, json={field: name})
            assert answer.status_code in {400, 404}, answer.text
            assert set(answer.json()) == {"error"}
        assert client.get(f"{url}{quote(name)}").status_code in {404, 405}
        assert client.post(f"{url}space_repo_list").json() == {"repositories": []}, "the control"


def test_s119_a_name_cannot_begin_another_event_of_the_stream() -> None:
    name = "a\n\ndata: {}\r\revent: push\u2028\u0085\u202e"
    entry = JournalEntry.model_validate(
        {
            "at": "2026-01-01T00:00:00Z",
            "actor": "agent",
            "operation": "write",
            "arguments": f"sha256:{'0' * 64}",
            "names": [name],
            "result": "ok",
            "duration_s": 0,
        }
    )
    event = HomeEvent(id="home/1", at=entry.at, kind=HomeEventKind.TASK, operation=entry)
    text = format_event(event)
    assert text.isascii()
    assert [line.partition(":")[0] for line in text.splitlines()] == ["id", "event", "data", ""][:3] + [""] * 1
    plain = f"data: {event.operation.names[0]}\n\n"
    assert len(plain.splitlines()) > 3, "the control: the name by itself has other fields"
