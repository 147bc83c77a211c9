"""THREATS S22: services beside checks, hostile ones and hostile checks. Real guests."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devtools.guests import remove_guests_of
from devtools.user_ids import list_users
from sandbox.checks.service_guests import RunServices
from sandbox.engine import supervised
from sandbox.engine.connection import DockerEngine
from sandbox.engine.container_labels import SERVICE_LABEL
from sandbox.engine.container_types import ALONE
from sandbox.files.mount_points import unmount_below
from sandbox.models import CheckRun, Verdict
from sandbox.store.home import Home
from sandbox.workbench import VerifyOptions, Watch, Workbench
from tests.unit.conftest import initialised

pytestmark = [pytest.mark.must, pytest.mark.one_git]

HEAD = 'label = "attack"\nimage = "python"\npriority = 99\n[[detect.any]]\nfile = "attack"\n'
LIMITS = "limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }\n"
READY = "import socket; socket.create_connection(('127.0.0.1', 8000), 2)"
STORE = """
import http.server
class Store(http.server.BaseHTTPRequestHandler):
    held = "clean"
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(Store.held.encode())
        Store.held = self.path.strip("/") or Store.held
http.server.HTTPServer(("127.0.0.1", 8000), Store).serve_forever()
"""
SPY = """
import json, os, socket
def reach(place):
    with socket.socket() as s:
        s.settimeout(1)
        return s.connect_ex(place) == 0
def gain():
    try:
        os.setuid(0)
    except PermissionError:
        return False
    return True
places = PLACES
print(json.dumps({
    "reached": [place for place in places if reach(tuple(place))],
    "files": sorted(os.listdir("/workspace")) if os.path.isdir("/workspace") else [],
    "interfaces": sorted(os.listdir("/sys/class/net")),
    "many_processes": len([name for name in os.listdir("/proc") if name.isdigit()]) > 10,
    "uid": os.getuid(),
    "gained": gain(),
}), flush=True)
"""
IMPORTS = "import sys, urllib.request as u"
FETCH = "print(u.urlopen('http://127.0.0.1:8000/' + sys.argv[1], timeout=5).read().decode())"


def check(name: str, *argv: str, more: str = "") -> str:
    words = ", ".join(f"'''{word}'''" for word in argv)
    return f'[[check]]\nid = "{name}"\nlabel = "{name}"\nargv = [{words}]\ntimeout_s = 120\n{more}{LIMITS}'


def service(program: str, checks: str = "") -> str:
    return (
        f"[[service]]\nname = 'store'\nimage = 'python'\nargv = ['python3', '-c', '''{program}''']\n"
        f'ready = ["python3", "-c", "{READY}"]\nport = 8000\n{checks}\n{LIMITS}'
    )


class Bench:
    """A home with a repository whose profile has these checks and services."""

    def __init__(self, root: Path, *tables: str) -> None:
        self.home = root / "home"
        (self.home / "profiles").mkdir(parents=True)
        (self.home / "profiles" / "attack.toml").write_text(HEAD + "".join(tables))
        self.upstream = initialised(root / "upstream")
        self.upstream.write("attack", b"")
        self.upstream.commit()

    def open(self) -> Workbench:
        return Workbench(self.home, environ=dict(os.environ), allow_file=True)

    def run(self, options: VerifyOptions | None = None) -> dict[str, CheckRun]:
        with self.open() as workbench:
            found = workbench.run(str(self.upstream.root), watch=Watch(), options=options)
        return {run.check_id: run for run in found.runs}


@contextmanager
def home_of(root: Path, engine: DockerEngine, *tables: str) -> Iterator[Bench]:
    bench = Bench(root, *tables)
    try:
        yield bench
    finally:
        remove_guests_of(bench.home)
        unmount_below(bench.home)
    assert guests_of(bench, engine) == []


def guests_of(bench: Bench, engine: DockerEngine) -> list[str]:
    """The names of services, '' for other guests, of all containers of a home."""
    label = f"space.sandbox.instance={Home(bench.home).instance_id}"
    found = engine.api.containers(all=True, filters={"label": label})
    return sorted(guest["Labels"].get(SERVICE_LABEL, "") for guest in found)


@pytest.fixture
def listener() -> Iterator[int]:
    """A server on the host's loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_s22_a_service_has_no_way_out_no_file_of_the_check_and_no_more_rights(
    tmp_path: Path, engine: DockerEngine, listener: int
) -> None:
    """Control: the same program in an ordinary container in the host's network, with the files mounted, as root."""
    spy = SPY.replace("PLACES", json.dumps([["127.0.0.1", listener], ["8.8.8.8", 53], ["169.254.169.254", 80]]))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "attack").touch()
    careless = ["docker", "run", "--rm", "--user=0", "--network=host", "--pid=host"]
    files = ["--volume", f"{tmp_path}/files:/workspace"]
    control = subprocess.run(
        [*careless, *files, "space-sandbox/python", "python3", "-c", spy],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    seen = json.loads(control.stdout)
    assert ["127.0.0.1", listener] in seen["reached"], "void: the control did not reach the host"
    assert (seen["files"], seen["many_processes"], seen["gained"]) == (["attack"], True, True)

    own = check("go", "python3", "-c", "import os; print(os.getuid())")
    with home_of(tmp_path, engine, own, service(spy + STORE)) as bench:
        run = bench.run()["go"]
        assert run.verdict is Verdict.PASSED, run.stderr_tail
        with bench.open() as workbench:
            log = workbench.run_log(run.run_id, stream="service-store").content
    seen = json.loads(next(line for line in log.splitlines() if line.startswith("{")))
    uid = seen.pop("uid")
    assert seen == {"reached": [], "files": [], "interfaces": ["lo"], "many_processes": False, "gained": False}
    if os.geteuid() == 0:
        assert uid not in {0, int(run.stdout_tail)}


def test_s22_a_service_is_not_seen_in_another_room(tmp_path: Path, engine: DockerEngine) -> None:
    """Control: its own check finds it at the same address while the other one looks."""
    look = (
        "import socket, time; ends = time.monotonic() + 4\n"
        "while time.monotonic() < ends:\n"
        "    with socket.socket() as s:\n"
        "        if s.connect_ex(('127.0.0.1', 8000)) == 0: raise SystemExit('reached')\n"
        "    time.sleep(0.02)\n"
    )
    tables = (
        check("with", "python3", "-c", f"{IMPORTS}, time; {FETCH}; time.sleep(2)", "x"),
        check("without", "python3", "-c", look),
        service(STORE, 'checks = ["with"]'),
    )
    with home_of(tmp_path, engine, *tables) as bench:
        runs = bench.run(VerifyOptions(jobs=2, keep_going=True))
    assert runs["with"].stdout_tail == "clean\n", runs["with"].stderr_tail
    assert runs["without"].verdict is Verdict.PASSED, runs["without"].stderr_tail
    began, other = runs["with"].started_at, runs["without"].started_at
    assert abs((began - other).total_seconds()) < 4, "void: they did not run at the same time"


def test_s22_what_a_check_does_to_its_service_is_gone_for_the_next(tmp_path: Path, engine: DockerEngine) -> None:
    """Control: the check that poisons the service finds the poison there."""
    tables = (
        check("poison", "python3", "-c", f"{IMPORTS}; {FETCH}; {FETCH}", "poisoned"),
        check("read", "python3", "-c", f"{IMPORTS}; {FETCH}", "", more='requires = ["poison"]\n'),
        service(STORE),
    )
    with home_of(tmp_path, engine, *tables) as bench:
        runs = bench.run()
        assert runs["poison"].stdout_tail == "clean\npoisoned\n", runs["poison"].stderr_tail
        assert runs["read"].stdout_tail == "clean\n", runs["read"].stderr_tail


def test_s22_a_killed_controller_leaves_no_service(tmp_path: Path, engine: DockerEngine) -> None:
    """Control: the service still runs when its controller is dead."""
    tables = (check("go", "sleep", "100"), service(STORE))
    with home_of(tmp_path, engine, *tables) as bench:
        command = [str(Path(sys.executable).with_name("sandbox")), "--home", str(bench.home), "run"]
        victim = subprocess.Popen(
            [*command, str(bench.upstream.root)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            ends_at = time.monotonic() + 120
            while not (bench.home / "instance").exists() or guests_of(bench, engine) != ["", "store"]:
                assert victim.poll() is None, "void: the controller has ended"
                assert time.monotonic() < ends_at, "void: no service was started"
                time.sleep(0.05)
        finally:
            victim.kill()
            victim.wait()
        assert "store" in guests_of(bench, engine), "void: the service ended by itself"
        with bench.open() as workbench:
            workbench.collect()
            assert guests_of(bench, engine) == []
        assert not [home for home in list_users().values() if str(bench.home) in home]


FILLED_MIB = 60
FILLS = f"""
import socket, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
s.bind(("127.0.0.1", 0)); s.listen(4096)
kept, sent = [], 0
while sent < {FILLED_MIB} << 20:
    c = socket.socket(); c.connect(s.getsockname()); c.setblocking(False); kept.append(c)
    sent += c.send(b"x" * 150000)
ready = socket.create_server(("127.0.0.1", 8000)); time.sleep(60)
"""
HOLDS = """
import time
held = bytearray(80 << 20)
for i in range(0, len(held), 4096): held[i] = 1
waits = [line.split() for name in ("tcp", "udp") for line in open("/proc/net/" + name) if line.split()[3] == "01"]
print(sum(int(n, 16) for words in waits for n in words[4].split(":")) >> 20, flush=True)
time.sleep(3)  # on a busy host the watch may look after seconds only
"""


@pytest.mark.parametrize("limits_sockets", [True, False], ids=["a limit and the watch", "the watch alone"])
def test_s202_network_buffers_of_a_service_are_not_its_checks(
    engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits_sockets: bool
) -> None:
    """Both are within their limits. Control: without the list of neighbours, the check is ended for the service's."""
    if not limits_sockets:
        monkeypatch.setattr(supervised, "limit_socket_memory", lambda *_: None)
    with home_of(tmp_path, engine, check("go", "python3", "-c", HOLDS), service(FILLS)) as bench:
        found = bench.run()["go"]
        assert found.verdict is Verdict.PASSED, (found.verdict, found.usage.memory_peak_bytes)
        assert int(found.stdout_tail) >= FILLED_MIB, "void"
        assert [ran.ended_early for ran in found.services] == [False]
        monkeypatch.setattr(RunServices, "neighbours", ALONE)
        assert bench.run(VerifyOptions(cache=False))["go"].verdict is Verdict.OOM_KILLED
