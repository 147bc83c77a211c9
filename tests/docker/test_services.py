"""Services beside checks, with the real engine: found at 127.0.0.1, ready before the check, gone after it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.guests import remove_guests_of
from devtools.host_speed import slowness
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.models import CheckRun, LogQuery, Verdict
from sandbox.store.home import Home
from sandbox.workbench import Watch, Workbench
from tests.docker.conftest import image_digest
from tests.unit.conftest import initialised, refused

HEAD = 'label = "bench"\nimage = "python"\npriority = 99\n[[detect.any]]\nfile = "bench"\n'
LIMITS = "limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }\n"
CHECK = '[[check]]\nid = "ID"\nlabel = "ID"\nargv = ["python3", "ID.py"]\ntimeout_s = 120\n' + LIMITS
COUNTER = """\
import http.server
class Counter(http.server.BaseHTTPRequestHandler):
    count = 0
    def do_GET(self):
        Counter.count += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(Counter.count).encode())
print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", 8000), Counter).serve_forever()
"""
ASK = """\
import os, urllib.request
print(urllib.request.urlopen(os.environ["URL"], timeout=10).read().decode())
"""
ALONE = """\
import os, socket
assert "URL" not in os.environ
raise SystemExit(not socket.socket().connect_ex(("127.0.0.1", 8000)))
"""
READY = "import socket; socket.create_connection(('127.0.0.1', 8000), 2)"


def service(argv: str = COUNTER, ready: str = READY, more: str = "") -> str:
    return (
        f'[[service]]\nname = "counter"\nimage = "python"\nargv = ["python3", "-c", """{argv}"""]\n'
        f'ready = ["python3", "-c", "{ready}"]\nport = 8000\nchecks = ["ask"]\n{more}{LIMITS}'
        '[service.check_env]\nURL = "http://127.0.0.1:8000/"\n'
    )


class Bench:
    """A home with a repository of two checks: `ask` has the service, `alone` has none."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        (self.home / "profiles").mkdir(parents=True)
        self.define(service())
        self.upstream = initialised(root / "upstream")
        for name, text in (("bench", ""), ("ask.py", ASK), ("alone.py", ALONE)):
            self.upstream.write(name, text.encode())
        self.upstream.commit()

    def define(self, services: str) -> None:
        text = HEAD + CHECK.replace("ID", "ask") + CHECK.replace("ID", "alone") + services
        (self.home / "profiles" / "bench.toml").write_text(text)

    def open(self) -> Workbench:
        return Workbench(self.home, environ=dict(os.environ), allow_file=True)

    def run(self) -> tuple[CheckRun, ...]:
        with self.open() as workbench:
            return workbench.run(str(self.upstream.root), watch=Watch()).runs

    @property
    def logs(self) -> list[Path]:
        return sorted((self.home / "repositories" / "logs").glob("*/*.service-*"))


@pytest.fixture
def bench(tmp_path: Path, engine: DockerEngine) -> Iterator[Bench]:
    image_digest(engine, "python")
    found = Bench(tmp_path)
    yield found
    remove_guests_of(found.home)
    unmount_below(found.home)
    label = f"space.sandbox.instance={Home(found.home).instance_id}"
    assert engine.api.containers(all=True, filters={"label": label}) == []


def test_a_check_finds_its_service_and_another_check_does_not(bench: Bench) -> None:
    ask, alone = bench.run()
    assert (ask.verdict, alone.verdict) == (Verdict.PASSED, Verdict.PASSED), ask.stderr_tail + alone.stderr_tail
    assert ask.stdout_tail == "1\n"
    [ran] = ask.services
    assert (ran.name, ran.ended_early, alone.services) == ("counter", False, ())
    assert ran.image_digest == ask.image_digest
    with bench.open() as workbench:
        assert "serving\n" in workbench.run_log(ask.run_id, stream="service-counter").content
        lines = workbench.read_log(ask.run_id, LogQuery(stream="service-counter", pattern="^serving"))
        assert [match.text for match in lines.matches or ()] == ["serving"]
        with refused(ErrorCode.NOT_FOUND):
            workbench.read_log(ask.run_id, LogQuery(stream="service-other"))
    assert [run.cached for run in bench.run()] == [True, True]
    bench.define(service(more="ready_s = 50\n"))
    assert [run.cached for run in bench.run()] == [False, True]


def test_a_task_that_keeps_its_container_gets_a_new_service_for_each_check(bench: Bench, engine: DockerEngine) -> None:
    with bench.open() as workbench:
        task = workbench.create_task(workbench.clone(str(bench.upstream.root)).repository.id)
        guests = []
        for _ in range(2):
            [run] = workbench.run_checks(task.id, ["ask"])
            assert (run.verdict, run.stdout_tail) == (Verdict.PASSED, "1\n"), run.stderr_tail
            label = f"space.sandbox.task={task.id}"
            guests += [guest["Id"] for guest in engine.api.containers(filters={"label": label})]
        assert len(guests) == 2
        assert len(set(guests)) == 1, "the container was not kept"
        [run] = workbench.run_checks(task.id, ["alone"])
        assert run.verdict is Verdict.PASSED, "the service was there for a check that has none"
        workbench.close_task(task.id)


@pytest.mark.parametrize(
    ("defined", "brief", "details"),
    [
        (service(ready="raise SystemExit('never')", more="ready_s = 3\n"), "was not ready within 3 s", "never"),
        (service("raise SystemExit('broken configuration')"), "ended before it was ready, with", "broken config"),
    ],
    ids=["not ready", "ended"],
)
def test_a_service_that_fails_is_an_error_and_no_verdict(
    bench: Bench, engine: DockerEngine, defined: str, brief: str, details: str
) -> None:
    bench.define(defined)
    began = time.monotonic()
    with refused(ErrorCode.SERVICE_FAILED) as caught:
        bench.run()
    assert time.monotonic() - began < 60 * slowness()
    assert brief in caught.value.brief
    assert "'counter'" in caught.value.brief
    assert details in caught.value.details
    assert list((bench.home / "repositories" / "logs").glob("*/*.json")) == []
    assert bench.logs == []


@pytest.mark.slow
def test_a_shipped_service_answers(bench: Bench) -> None:
    """Its image is built here if it is missing, in 15 s. Those of postgres and mariadb take a minute each."""
    ready = 'ready = ["redis-cli", "ping"]'
    bench.define(f'[[service]]\nname = "db"\nimage = "redis"\n{ready}\nport = 6379\nchecks = ["alone"]\n')
    bench.upstream.write("alone.py", b"import socket; socket.create_connection(('127.0.0.1', 6379), 5)")
    bench.upstream.commit()
    with bench.open() as workbench:
        watch = Watch(building=lambda line: None)
        found = workbench.run(str(bench.upstream.root), check_ids=["alone"], watch=watch)
    assert [run.verdict for run in found.runs] == [Verdict.PASSED]
