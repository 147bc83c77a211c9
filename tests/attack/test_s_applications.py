"""THREATS S18, S20, S100 to S103: candidates and releases of hostile applications. Real guests, real files."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from sandbox.agent.agent import Agent
from sandbox.agent.permission import must_ask
from sandbox.agent.tools import TOOLS
from sandbox.approvals import AgentCall, covers
from sandbox.checks.artifacts import CollectedArtifacts, collect_artifacts
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Approval, ApprovalScope, ApprovalState, ReleaseManifest, ReleaseRule, Risk, Verdict
from sandbox.policy.approvals import ApprovalPolicy, Decision
from sandbox.store.candidates import find_candidate
from sandbox.store.home import Home
from sandbox.store.release_folder import open_releases, staged_release
from sandbox.workbench import Watch, Workbench
from tests.docker.conftest import image_digest
from tests.unit.conftest import initialised

pytestmark = [pytest.mark.must, pytest.mark.one_git]

PORT = 18391
SERVER = f"""
import hashlib, os, pathlib, socket, sys
pathlib.Path("out/app.py").write_text("print('changed while it ran')")
inside = socket.create_server(("0.0.0.0", {PORT}))
path = socket.socket(socket.AF_UNIX); path.bind(sys.argv[1] + "/control.sock"); path.listen()
while True:
    connection, _ = inside.accept()
    try:
        connection.sendall(b"evaluated")
    except OSError:
        pass
    connection.close()
"""
PROBE = f"""
import pathlib, socket
with socket.create_connection(("127.0.0.1", {PORT})) as found:
    print(found.recv(100).decode(), pathlib.Path("out/app.py").read_text())
"""
UEVENTS = """
import os, socket
try:
    heard = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)
    heard.bind((0, 1))
    print("listens")
except OSError as error:
    print("refused", error.errno)
"""
PROFILE = f"""
label = "attack"
image = "python"
priority = 99
[[detect.any]]
file = "server.py"
[[check]]
id = "build"
label = "build"
argv = ["sh", "-c", "mkdir out && cp server.py out/app.py && python3 uevents.py"]
[launch]
argv = ["python3", "server.py", "<run>"]
requires = ["build"]
workspace = "read-write"
soak_s = 1
[launch.ready]
port = {PORT}
deadline_s = 20
[launch.stop]
exit_code = 143
[[launch.probe]]
id = "inside"
argv = ["python3", "probe.py"]
output = "^evaluated print\\\\('changed"
deadline_s = 20
[promote]
artifacts = ["out"]
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A repository with an application whose endpoint evaluates code, and which rewrites its own program."""
    upstream = initialised(tmp_path / "upstream")
    for name, text in (("server.py", SERVER), ("probe.py", PROBE), ("uevents.py", UEVENTS)):
        upstream.write(name, text.encode())
    upstream.commit("add")
    (tmp_path / "home" / "profiles").mkdir(parents=True)
    (tmp_path / "home" / "profiles" / "attack.toml").write_text(PROFILE)
    return upstream.root


def reaches(host: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, PORT), 1) as found:
        return found.recv(100) == b"evaluated"
    return False


@contextlib.contextmanager
def ordinary_container(image: str, folder: Path, *argv: str) -> Iterator[Container]:
    """The same files in a container as the engine makes one by default."""
    with contextlib.closing(docker.from_env()) as engine:
        name = f"space-sandbox-control-{uuid.uuid4().hex[:12]}"
        volumes = {str(folder): {"bind": "/workspace", "mode": "rw"}}
        started = engine.containers.run(
            image, list(argv), name=name, detach=True, volumes=volumes, working_dir="/workspace", user="0"
        )
        try:
            yield started
        finally:
            started.remove(force=True)


def listen(stop: threading.Event, found: list[str]) -> None:
    while not stop.wait(0.05):
        found += [host for host in ("127.0.0.1", "172.17.0.2", "172.17.0.3") if reaches(host)]


def test_s20_s103_a_candidate_is_not_reachable_and_releases_what_was_built(
    engine: DockerEngine, hostile: Path, tmp_path: Path
) -> None:
    image = image_digest(engine, "python")
    stop, reached = threading.Event(), list[str]()
    watcher = threading.Thread(target=listen, args=(stop, reached))
    with Workbench(tmp_path / "home", environ=os.environ, allow_file=True) as workbench:
        repository = workbench.clone(hostile.as_uri()).repository
        watcher.start()
        try:
            result = workbench.candidate(repository.id, Watch())
        finally:
            stop.set()
            watcher.join()
        launch = result.runs[-1]
        assert launch.verdict is Verdict.PASSED, [phase.describe() for phase in launch.phases]
        assert "changed while it ran" in launch.phases[1].output, "the control: it did change its program"
        assert reached == []
        home = Home(tmp_path / "home")
        (key,) = (path.name for path in home.candidates(repository.id).iterdir())
        kept = find_candidate(home, repository.id, key)
        assert kept is not None
        assert (kept[0] / "out" / "app.py").read_text() == SERVER, "what was built and started, not what it became"
        assert result.runs[0].stdout_tail.splitlines()[-1].startswith("refused "), "S18: no uevents"
    shutil.copytree(hostile, tmp_path / "control")
    (tmp_path / "control" / "out").mkdir()
    with ordinary_container(image, tmp_path / "control", "python3", "server.py", "/tmp") as started:
        address = ""
        for _ in range(200):
            started.reload()
            address = started.attrs["NetworkSettings"]["IPAddress"]
            if address and reaches(address):
                break
        assert reaches(address), "the control: an ordinary container's endpoint is reached"


def test_s18_a_guest_does_not_hear_the_kernels_events(engine: DockerEngine, hostile: Path, tmp_path: Path) -> None:
    """The guest's side is in the test above. Control: under the engine's own profile it listens."""
    shutil.copytree(hostile, tmp_path / "control")
    with ordinary_container(image_digest(engine, "python"), tmp_path / "control", "python3", "uevents.py") as started:
        started.wait(timeout=60)
        assert started.logs().decode().strip() == "listens"


# --- S100: what a build leaves in the place of its artifacts


def refused(folder: Path, target: Path, *artifacts: str, **limits: int) -> ErrorCode:
    rule = ReleaseRule(artifacts=artifacts, **limits)
    with pytest.raises(SandboxError) as caught:
        collect_artifacts(folder, rule, target)
    return caught.value.code


def test_s100_links_devices_and_odd_names_are_no_artifacts(tmp_path: Path) -> None:
    room, target, secret = tmp_path / "room", tmp_path / "target", tmp_path / "secret"
    (room / "out").mkdir(parents=True)
    target.mkdir()
    secret.write_text("secret")
    (room / "link").symlink_to(secret)
    shutil.copy(room / "link", tmp_path / "copied")
    assert (tmp_path / "copied").read_text() == "secret", "the control: a plain copy follows the link"
    assert refused(room, target, "link") is ErrorCode.UNSAFE_PATH
    (room / "up").symlink_to(tmp_path)
    assert refused(room, target, "up/secret") is ErrorCode.UNSAFE_PATH
    (room / "out" / "inner").symlink_to(secret)
    assert refused(room, target, "out") is ErrorCode.UNSAFE_PATH
    (room / "out" / "inner").unlink()
    os.mkfifo(room / "out" / "pipe")
    assert refused(room, target, "out") is ErrorCode.UNSAFE_PATH
    (room / "out" / "pipe").unlink()
    (room / "out" / "a\nb").touch()
    assert refused(room, target, "out") is ErrorCode.UNSAFE_PATH
    (room / "out" / "a\nb").unlink()
    (room / "out" / "a").write_bytes(b"x" * 11)
    assert refused(room, target, "../secret") is ErrorCode.UNSAFE_PATH
    assert refused(room, target, "out", max_bytes=10) is ErrorCode.QUOTA_EXCEEDED
    assert refused(room, tmp_path, "missing") is ErrorCode.NOT_FOUND
    (room / "out" / "b").write_bytes(b"\x7fELF" + b"\xff" * 200)
    assert refused(room, tmp_path / "target", "out/b") is ErrorCode.POLICY_VIOLATION
    assert not any(path.read_bytes() == b"secret" for path in target.rglob("*") if path.is_file())


def test_s100_set_id_bits_and_write_permissions_end_in_the_room(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "target").mkdir()
    program = tmp_path / "room" / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o6777)
    shutil.copy2(program, tmp_path / "copied")
    assert (tmp_path / "copied").stat().st_mode & 0o222, "the control: a plain copy keeps them"
    collected = collect_artifacts(tmp_path / "room", ReleaseRule(artifacts=("program",)), tmp_path / "target")
    info = (tmp_path / "target" / "program").stat()
    assert (stat.S_IMODE(info.st_mode), info.st_uid, info.st_nlink) == (0o555, os.geteuid(), 1)
    assert collected.files[0].executable


# --- S101: where releases are written


def test_s101_a_link_in_the_place_of_releases_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    outside = tmp_path / "outside"
    outside.mkdir()
    home.releases("r").parent.mkdir()
    home.releases("r").symlink_to(outside)
    (home.releases("r") / "written").touch()
    assert (outside / "written").exists(), "the control: a plain write goes through the link"
    with pytest.raises(SandboxError) as caught, open_releases(home, "r"):
        pass
    assert caught.value.code is ErrorCode.UNSAFE_PATH
    assert sorted(path.name for path in outside.iterdir()) == ["written"]


# --- S102: an agent promotes without a person


def test_s102_no_setting_promotes_without_a_person(tmp_path: Path) -> None:
    """Control: the same settings let another tool pass."""
    everything = ApprovalPolicy(risk=dict.fromkeys(Risk, Decision.ALLOW), tools={"space_repo_promote": Decision.ALLOW})
    tool, other = TOOLS["space_repo_promote"], TOOLS["space_repo_candidate"]
    assert everything.decide(other.name, other.risk) is Decision.ALLOW
    assert everything.decide(tool.name, tool.risk) is Decision.ASK
    with Workbench(tmp_path / "home") as workbench:
        trusting = Agent(workbench, tmp_path / "home", approvals="auto")
        assert not must_ask(trusting, TOOLS["space_repo_push"])
        assert must_ask(trusting, tool)
    now = datetime.now(UTC)
    task_id = f"task-{uuid.uuid4()}"
    standing = Approval(
        id="apr-" + "a" * 26, tool="", fingerprint=f"sha256:{'0' * 64}", policy="p", arguments="{}", task_id=task_id,
        repo_id="r",
        question=(), state=ApprovalState.APPROVED, scope=ApprovalScope.TASK, created_at=now,
        expires_at=now + timedelta(hours=1),
    )  # fmt: skip
    for name, allowed in ((other.name, True), (tool.name, False)):
        call = AgentCall(name, {}, "p", task_id, "r")
        assert covers(standing.model_copy(update={"tool": name}), call, now) is allowed


def test_s20_a_release_is_never_started(tmp_path: Path) -> None:
    """Taken, published, put in use, confirmed, rolled back: a program that would leave a mark."""
    home = Home(tmp_path / "home")
    home.prepare()
    mark, room = tmp_path / "mark", tmp_path / "room"
    room.mkdir()
    program = room / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    for tree in ("1" * 40, "2" * 40):
        with staged_release(home, "r") as staged, open_releases(home, "r") as releases:
            collected = collect_artifacts(room, ReleaseRule(artifacts=("program",)), staged)
            releases.publish(staged, manifest(tree, collected))
            releases.promote(tree, datetime.now(UTC) + timedelta(hours=1))
            releases.confirm()
    with open_releases(home, "r") as releases:
        releases.roll_back()
        assert releases.state.current == "1" * 40
    assert not mark.exists()
    subprocess.run([home.releases("r") / "current" / "program"], check=True, timeout=30)
    assert mark.exists(), "the control: it would"


def manifest(tree: str, collected: CollectedArtifacts) -> ReleaseManifest:
    return ReleaseManifest(
        repo_id="r", tree=tree, commit=tree, key="k", image_digest="", run_id="run-1", created_at=datetime.now(UTC),
        files=collected.files,
    )  # fmt: skip
