"""One suite for whatever runs checks: the task's kept container, a fresh one, both under gVisor, and a reference.

The reference runs the command with the engine's `exec`, which the product never uses. It agrees on what a command says
and how it ends by itself; it can neither end one (its container is killed instead) nor tell that memory ran out.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from devtools.requirement import unavailable
from sandbox.checks.execute import CheckDirectories, GuestSettings
from sandbox.checks.executors import FreshContainer, TaskContainer
from sandbox.engine.cgroups import Counters
from sandbox.engine.connection import DockerEngine
from sandbox.engine.container import remove_container
from sandbox.engine.container_labels import INSTANCE_LABEL
from sandbox.engine.container_labels import task_container_name as container_name
from sandbox.engine.container_types import ContainerExit, StopCondition, Streams
from sandbox.engine.create_options import ContainerSpec, GuestAccount, Supervisor, create_options
from sandbox.engine.guest_group import find_bindable_cpus
from sandbox.engine.products import Product
from sandbox.engine.runtimes import list_runtimes
from sandbox.errors import SandboxError
from sandbox.images import resolve_image
from sandbox.images.supervisor import SupervisorExtractor, ensure_supervisor
from sandbox.models import Check, Verdict
from sandbox.policy.container import EffectiveContainerPolicy
from sandbox.testing import ExecutorContract, ExecutorRig
from sandbox.testing.executor_contract import DEADLINE_S
from sandbox.workbench.controller.guest_accounts import find_account
from sandbox.workbench.controller.services import Services, build_services

pytestmark = pytest.mark.xdist_group("executor")

LEASE_S = 600
HOG = "head -c 200000000 /dev/zero | tail"
"""Keeps 200 MB in memory: there is no line to print before the end."""


@dataclass(frozen=True)
class ExecReference:
    """What others do: a container that sleeps, and the engine's `exec` in it."""

    engine: DockerEngine
    policy: EffectiveContainerPolicy
    guest: GuestSettings
    host: Mapping[str, Any] = field(default_factory=dict)

    def execute(
        self, run_id: str, check: Check, directories: CheckDirectories, streams: Streams, stop_condition: StopCondition
    ) -> ContainerExit:
        name, api = f"sandbox-{run_id}", self.engine.api
        body = create_options(self._spec(name, check, directories), self.policy)
        body["HostConfig"].update(self.host)
        started_at, started = datetime.now(UTC), time.monotonic()
        try:
            api.create_container_from_config(body, name)
            api.start(name)
            cwd = str(PurePosixPath("/workspace") / check.cwd)
            made = api.exec_create(name, list(check.argv), environment=dict(check.env), workdir=cwd)["Id"]
            reader = threading.Thread(target=self._read, args=(made, streams), daemon=True)
            reader.start()
            timed_out, stopped = self._watch(reader, started + check.timeout_s, stop_condition, name)
            code = api.exec_inspect(made)["ExitCode"]
        finally:
            remove_container(self.engine, name)
        wall_time_s = time.monotonic() - started
        return ContainerExit(code, False, timed_out, started_at, wall_time_s, Counters(), stop_verdict=stopped)

    def _read(self, made: str, streams: Streams) -> None:
        frames: Any = self.engine.api.exec_start(made, stream=True, demux=True)
        with closing(frames._response):  # frames.close() leaves the descriptor to the garbage collector (docker 7.2)
            for out, err in frames:
                if out:
                    streams.stdout(out)
                if err:
                    streams.stderr(err)

    def _watch(
        self, reader: threading.Thread, ends_at: float, why_stop: StopCondition, name: str
    ) -> tuple[bool, Verdict | None]:
        while reader.is_alive():
            reader.join(0.05)
            stopped, timed_out = why_stop(), time.monotonic() > ends_at
            if reader.is_alive() and (timed_out or stopped is not None):
                self.engine.api.kill(name, "SIGKILL")
                reader.join(DEADLINE_S)
                return timed_out, stopped
        return False, None

    def _spec(self, name: str, check: Check, place: CheckDirectories) -> ContainerSpec:
        return ContainerSpec(
            name=name,
            image=self.guest.image_digest,
            argv=("sleep", "3600"),
            cwd=PurePosixPath("/workspace"),
            env={},
            limits=check.limits,
            workspace=place.workspace,
            workspace_read_only=check.workspace == "read-only",
            git_mask=self.guest.git_mask,
            report=place.report,
            user=place.account.user,
            runtime=self.guest.runtime,
            labels={INSTANCE_LABEL: self.guest.instance},
            cpuset="",
            hosts=self.guest.hosts,
        )


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    environ = {name: value for name, value in os.environ.items() if name.startswith("DOCKER_") or name == "PATH"}
    with closing(build_services(tmp_path_factory.mktemp("executor") / "home", environ, allow_file=True)) as made:
        try:
            assert isinstance(made.engine, DockerEngine)
            made.engine.api.ping()  # makes the SDK's client before the guard of the unit suite forbids it
            resolve_image(made.image_build_context, "base")
        except SandboxError as error:
            unavailable(f"{error.brief}: {error.details}")
        yield made
        for left in made.engine.list_containers({INSTANCE_LABEL: made.home.instance_id}):
            made.engine.remove_container(left.id)


def account(services: Services) -> GuestAccount:
    return find_account(services, services.policies.pristine_owner)


@pytest.fixture(scope="module")
def make_rig(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ExecutorRig]:
    def guest(runtime: str) -> GuestSettings:
        if runtime not in list_runtimes(services.engine):
            unavailable(f"The engine has no runtime '{runtime}': run `scripts/setup gvisor`")
        courier = SupervisorExtractor(
            f"sandbox-init-{services.presence.new_id()}", account(services).user, "runc", services.home.instance_id
        )
        return GuestSettings(
            image_digest=resolve_image(services.image_build_context, "base"),
            runtime=runtime,
            git_mask=services.home.git_mask,
            hosts=services.hosts_file,
            instance=services.home.instance_id,
            cpus=find_bindable_cpus(services.engine_facts),
            supervisor=Supervisor(
                ensure_supervisor(services.image_build_context, services.policies.container, courier), LEASE_S
            ),
        )

    def make(kind: str) -> ExecutorRig:
        folder = tmp_path_factory.mktemp(kind)
        for name in ("workspace", "report"):
            (folder / name).mkdir()
            os.chown(folder / name, *account(services).user)
        (folder / "workspace" / ".git").write_bytes(services.home.git_mask.read_bytes())
        task_id = f"task-{uuid.uuid4()}"
        made = guest("runsc" if kind.startswith("gvisor") else "runc")
        if kind.endswith("task"):
            kept = container_name(services.home.instance_id, task_id)
            return ExecutorRig(
                TaskContainer(services.engine, services.policies.container, made, task_id),
                made,
                folder,
                account(services),
                task_id,
                lambda: services.engine.remove_container(kept),
            )
        assert isinstance(services.engine, DockerEngine)
        kinds: dict[str, type[FreshContainer | ExecReference]] = {"exec": ExecReference}
        return ExecutorRig(
            kinds.get(kind, FreshContainer)(services.engine, services.policies.container, made),
            made,
            folder,
            account(services),
            idle=1 if kind == "exec" else 0,  # the reference sleeps
        )

    return make


@pytest.fixture(scope="module")
def rigs(make_rig: Callable[[str], ExecutorRig]) -> Callable[[str], ExecutorRig]:
    """One of each kind for the whole suite: what a test leaves must not matter to the next."""
    known: dict[str, ExecutorRig] = {}

    def find(kind: str) -> ExecutorRig:
        if kind not in known:
            known[kind] = make_rig(kind)
        return known[kind]

    return find


@pytest.fixture
def rig(request: pytest.FixtureRequest, rigs: Callable[[str], ExecutorRig]) -> ExecutorRig:
    return rigs(request.param)


REFERENCE = "exec"
"""Runs where it is the control, and by `make thorough`: what it does tells about this suite, not about the product."""


def on(*kinds: str) -> pytest.MarkDecorator:
    values = [pytest.param(kind, marks=pytest.mark.thorough) if kind == REFERENCE else kind for kind in kinds]
    return pytest.mark.parametrize("rig", values if len(kinds) > 1 else kinds, indirect=True)


OURS = ("fresh", "task")
EVERYWHERE = (*OURS, "gvisor-task", REFERENCE)


@pytest.fixture
def second_rig(request: pytest.FixtureRequest, rig: ExecutorRig, make_rig: Callable[[str], ExecutorRig]) -> ExecutorRig:
    """Another of the kind of `rig`."""
    return make_rig(request.node.callspec.params["rig"])


@on("fresh", "task", "gvisor-task", "exec")
class TestContract(ExecutorContract):
    """What other backends import, on all of ours and on the reference."""


# --- how a command ends by itself


@on(*EVERYWHERE)
def test_a_command_that_a_signal_ended_has_failed(rig: ExecutorRig) -> None:
    run = rig.sh("kill -SEGV $$")
    assert (run.verdict, run.exit_code) == (Verdict.FAILED, 139)
    assert run.signal == (None if isinstance(rig.executor, ExecReference) else 11)


@on(*OURS, "gvisor-task")
def test_a_command_that_is_not_there_says_so(rig: ExecutorRig) -> None:
    run = rig.run("/no/such/program")
    assert (run.verdict, run.exit_code) == (Verdict.FAILED, 127)
    assert "/no/such/program" in run.stderr_tail


# --- what goes in and out


@on(*EVERYWHERE)
def test_stdin_is_at_its_end(rig: ExecutorRig) -> None:
    assert rig.sh("cat; echo over").stdout_tail == "over\n"


@on(*EVERYWHERE)
def test_much_output_is_exact_and_streams_stay_apart(rig: ExecutorRig) -> None:
    size = 3_000_000
    run = rig.sh(f"head -c {size} /dev/zero | tr '\\0' o & head -c {size} /dev/zero | tr '\\0' e >&2; wait")
    for stream, byte in (("stdout", b"o"), ("stderr", b"e")):
        assert hashlib.sha256(rig.log(run, stream)).digest() == hashlib.sha256(byte * size).digest()
    assert (run.verdict, run.stdout_bytes, run.stderr_bytes) == (Verdict.PASSED, size, size)
    assert (run.truncated, run.stdout_shown_from_byte, run.stderr_shown_from_byte) == (True, size - 8192, size - 8192)


@on(*EVERYWHERE)
def test_environment_is_the_policys_and_the_checks(rig: ExecutorRig, services: Services) -> None:
    run = rig.run("/usr/bin/env", env={"GREETING": "hi there"})
    found = dict(line.split("=", 1) for line in run.stdout_tail.splitlines())
    assert found["GREETING"] == "hi there"
    image = services.engine.inspect_image(rig.guest.image_digest)
    assert image is not None
    expected = {"PATH", "HOME", "LANG", "TMPDIR", "GREETING", *services.policies.container.container.env}
    expected |= {entry.partition("=")[0] for entry in image.env}
    assert found.keys() - {"HOSTNAME"} == expected  # the engine adds that one to `exec`


@on(*EVERYWHERE)
def test_it_starts_in_the_checks_directory(rig: ExecutorRig) -> None:
    (rig.workspace / "sub dir").mkdir(exist_ok=True)
    assert rig.run("pwd", cwd="sub dir").stdout_tail == "/workspace/sub dir\n"


@on(*OURS)
def test_a_directory_that_is_a_link_is_refused(rig: ExecutorRig) -> None:
    link = rig.workspace / "link"
    if not link.is_symlink():
        link.symlink_to("/tmp")
    with pytest.raises(SandboxError, match="link"):
        rig.run("pwd", cwd="link")


# --- how it is ended


@on(*OURS, "exec")
def test_a_check_that_is_cancelled_before_it_starts_says_nothing(rig: ExecutorRig) -> None:
    run = rig.sh("echo begun", why_stop=lambda: Verdict.DISK_LIMIT)
    assert (run.verdict, run.stdout_bytes) == (Verdict.DISK_LIMIT, 0)


@on(*OURS)
@pytest.mark.parametrize("script", [HOG, f"{HOG}; exit 0"], ids=["its own", "a child's"])
def test_memory_that_runs_out_is_told_whatever_the_exit_code(rig: ExecutorRig, script: str) -> None:
    run = rig.sh(script, limits={"memory_bytes": 32 * 1024**2})
    assert run.verdict is Verdict.OOM_KILLED
    assert run.usage.oom_kills


@on("exec")
def test_the_reference_takes_memory_that_ran_out_for_success(rig: ExecutorRig) -> None:
    assert rig.sh(f"{HOG}; exit 0", limits={"memory_bytes": 32 * 1024**2}).verdict is Verdict.PASSED


@on(*OURS)
def test_no_more_processes_than_the_limit(rig: ExecutorRig) -> None:
    script = "i=0; while [ $i -lt 100 ]; do sleep 600 & i=$((i+1)); done"
    run = rig.sh(script, limits={"pids": 16})
    assert run.verdict is Verdict.FAILED
    assert (run.usage.pids_peak or 0) <= 16
    assert rig.sh(script).verdict is Verdict.PASSED  # control: with more it works


# --- walls


@on(*EVERYWHERE)
def test_the_workspace_is_writable_and_the_root_is_not(rig: ExecutorRig) -> None:
    run = rig.sh("echo made > made && cat made && ! echo no > /var/tmp/no")
    assert (run.verdict, run.stdout_tail) == (Verdict.PASSED, "made\n")
    assert (rig.workspace / "made").read_text() == "made\n"


@on("exec")
def test_control_a_root_that_is_writable_is_written(rig: ExecutorRig) -> None:
    assert isinstance(rig.executor, ExecReference)
    soft = replace(rig, executor=replace(rig.executor, host={"ReadonlyRootfs": False}))
    assert soft.sh("echo no > /var/tmp/no").verdict is Verdict.PASSED


@on(*EVERYWHERE)
def test_there_is_no_network_but_itself(rig: ExecutorRig) -> None:
    lines = rig.run("cat", "/proc/net/dev").stdout_tail.splitlines()[2:]
    assert {line.partition(":")[0].strip() for line in lines} <= {"lo"}


@on("exec")
def test_control_the_hosts_network_has_more(rig: ExecutorRig) -> None:
    assert isinstance(rig.executor, ExecReference)
    assert {line.partition(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]} > {"lo"}


# --- what stays


@on(*OURS, "gvisor-task")
def test_what_a_check_leaves_running_is_ended_and_counted(rig: ExecutorRig) -> None:
    run = rig.sh("sleep 600 & setsid sleep 600 & echo over")
    assert (run.verdict, run.stdout_tail) == (Verdict.PASSED, "over\n")
    assert run.usage.leftover_processes == 2
    assert rig.count_processes() == rig.idle


@on("fresh", "exec", "gvisor-fresh")
def test_no_container_is_left(rig: ExecutorRig, services: Services) -> None:
    before = {c.name for c in services.engine.list_containers({INSTANCE_LABEL: services.home.instance_id})}
    rig.sh("sleep 600 &")
    assert {c.name for c in services.engine.list_containers({INSTANCE_LABEL: services.home.instance_id})} <= before


def test_a_task_keeps_its_container_and_what_is_in_it(rigs: Callable[[str], ExecutorRig], services: Services) -> None:
    """Podman closes a guest's stdin when a controller disconnects: there each check has a new one (docs/adr/0104)."""
    assert isinstance(services.engine, DockerEngine)
    keeps = services.engine.product is not Product.PODMAN
    rig = rigs("task")
    name = container_name(services.home.instance_id, rig.task_id or "")
    assert rig.sh("echo kept > /tmp/kept").verdict is Verdict.PASSED
    run = rig.sh("cat /tmp/kept")
    assert (run.verdict, run.stdout_tail) == ((Verdict.PASSED, "kept\n") if keeps else (Verdict.FAILED, ""))
    left = {c.name for c in services.engine.list_containers({INSTANCE_LABEL: services.home.instance_id})}
    assert (name in left) is keeps


def test_a_container_that_ran_out_of_memory_is_not_used_again(rigs: Callable[[str], ExecutorRig]) -> None:
    rig = rigs("task")
    small = {"memory_bytes": 32 * 1024**2}
    assert rig.sh(f"echo kept > /tmp/kept; {HOG}", limits=small).verdict is Verdict.OOM_KILLED
    assert rig.sh("cat /tmp/kept", limits=small).verdict is Verdict.FAILED
