"""An engine that stands still for some seconds: what waits goes on, and no verdict is lost or made up."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath

import pytest

from devtools.host_speed import slowness
from devtools.privateengine import PrivateEngine
from devtools.requirement import unavailable
from sandbox import Workbench
from sandbox.config import find_resources
from sandbox.engine.connection import connect
from sandbox.engine.container import run_to_end
from sandbox.engine.container_types import Streams
from sandbox.engine.create_options import ContainerSpec, create_options
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CheckRun, Limits, Verdict
from sandbox.policy.container import load_container_policy
from sandbox.workbench.reconciling.reconciler import find_matching

pytestmark = pytest.mark.xdist_group("slow-engine")  # one engine, which takes longest to load its images

STILL_S = 5.0


@pytest.fixture(scope="module")
def slow_engine() -> Iterator[PrivateEngine]:
    if reason := PrivateEngine.why_not():
        unavailable(reason)
    with PrivateEngine() as engine:
        for image in ("base", "init"):
            engine.load(f"space-sandbox/{image}:latest")
        yield engine


@contextmanager
def standing_still(engine: PrivateEngine, seconds: float = STILL_S) -> Iterator[None]:
    """The engine's own process is stopped; its containers run on."""
    os.kill(engine.pid, signal.SIGSTOP)
    timer = threading.Timer(seconds, os.kill, (engine.pid, signal.SIGCONT))
    timer.start()
    try:
        yield
    finally:
        timer.join()


def test_an_engine_that_listens_is_waited_for(slow_engine: PrivateEngine) -> None:
    with standing_still(slow_engine):
        started = time.monotonic()
        with closing(connect(slow_engine.url, {}, 60.0)):
            assert time.monotonic() - started > STILL_S / 2


def test_one_that_stays_silent_is_not_asked_to_be_started(slow_engine: PrivateEngine) -> None:
    with standing_still(slow_engine, 3.0), pytest.raises(SandboxError) as raised:
        connect(slow_engine.url, {}, 1.0)
    assert raised.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert "within 1 s" in raised.value.brief
    assert "The engine is stuck or very busy" in raised.value.hint
    assert "Start it" not in raised.value.hint


def test_where_nothing_listens_the_answer_is_fast_and_says_how_to_start_one(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(tmp_path / "sock"))
    started = time.monotonic()
    for path in (tmp_path / "sock", tmp_path / "none"):
        with pytest.raises(SandboxError) as raised:
            connect(f"unix://{path}", {}, 60.0)
        assert raised.value.code is ErrorCode.ENGINE_UNAVAILABLE
        assert "Start it" in raised.value.hint
    assert time.monotonic() - started < 2.0 * slowness()


def repository(folder: Path, seconds: float) -> Path:
    folder.mkdir()
    (folder / "Makefile").write_text(
        f"build:\n\ttouch started\n\tsleep {seconds}\n\techo built\ntest:\n\techo tested\n"
    )
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-C", str(folder)]
    for argv in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *argv], check=True)
    return folder


PROFILE = """
label = "small"
image = "space-sandbox/base:latest"
priority = 1000
[detect]
all = [{ file = "Makefile" }]
[[check]]
id = "build"
label = "build"
argv = ["make", "build"]
timeout_s = TIMEOUT
[[check]]
id = "test"
label = "test"
argv = ["make", "test"]
timeout_s = TIMEOUT
requires = ["build"]
"""


def verdicts(
    engine: PrivateEngine, tmp_path: Path, *, check_s: float, timeout_s: int, still_s: float
) -> list[CheckRun]:
    """`sandbox run` of a small project, the engine standing still from the moment that its first check runs."""
    home = tmp_path / "home"
    with Workbench(home, settings={"engine": {"host": engine.url}}, allow_file=True) as workbench:
        (home / "profiles").mkdir(exist_ok=True)
        (home / "profiles" / "small.toml").write_text(PROFILE.replace("TIMEOUT", str(timeout_s)))
        url = str(repository(tmp_path / "project", check_s))
        rooms = home / "repositories" / "rooms"
        stopper = threading.Timer(0.0, _stop_when, (engine, still_s, lambda: bool(find_matching(rooms, "**/started"))))
        stopper.start()
        runs = workbench.run(url).runs
        stopper.join()
        return list(runs)


def _stop_when(engine: PrivateEngine, still_s: float, is_time: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 60.0
    while time.monotonic() < ends_at and not is_time():
        time.sleep(0.05)
    with standing_still(engine, still_s):
        pass


@pytest.mark.thorough  # the next test asks for more
def test_checks_of_a_run_pass_though_the_engine_stands_still(slow_engine: PrivateEngine, tmp_path: Path) -> None:
    found = verdicts(slow_engine, tmp_path, check_s=2, timeout_s=60, still_s=STILL_S)
    assert [(run.check_id, run.verdict) for run in found] == [("build", Verdict.PASSED), ("test", Verdict.PASSED)]


def test_check_that_ended_in_time_did_not_time_out_though_its_report_came_late(
    slow_engine: PrivateEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.engine.pid1_session.GRACE_S", 1.0)
    found = verdicts(slow_engine, tmp_path, check_s=2, timeout_s=4, still_s=9.0)
    assert [(run.check_id, run.verdict) for run in found] == [("build", Verdict.PASSED), ("test", Verdict.PASSED)]


def test_check_that_does_not_end_times_out_on_such_an_engine_too(
    slow_engine: PrivateEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.engine.pid1_session.GRACE_S", 1.0)
    found = verdicts(slow_engine, tmp_path, check_s=300, timeout_s=4, still_s=9.0)
    assert [(run.check_id, run.verdict) for run in found][:1] == [("build", Verdict.TIMED_OUT)]


def test_container_that_ended_in_time_did_not_time_out(slow_engine: PrivateEngine, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with closing(connect(slow_engine.url, {}, 60.0)) as engine:
        spec = ContainerSpec(
            name="sandbox-test-slow",
            image=str(engine.api.inspect_image("space-sandbox/base:latest")["Id"]),
            argv=("sleep", "1"),
            cwd=PurePosixPath("/workspace"),
            env={},
            limits=Limits(cpus=1.0),
            workspace=tmp_path,
            git_mask=None,
            report=None,
            user=(64000, 64000),
            runtime="runc",
            labels={},
            cpuset="",
        )
        options = create_options(spec, load_container_policy(find_resources("policies")))
        stopper = threading.Timer(0.0, _stop_when, (slow_engine, 4.0, lambda: bool(engine.api.containers())))
        stopper.start()
        heard = bytearray()
        ending = run_to_end(engine, spec.name, options, Streams(heard.extend, heard.extend), deadline_s=3.0)
        stopper.join()
    assert (ending.timed_out, ending.exit_code) == (False, 0)
