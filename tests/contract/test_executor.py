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
from sandbox.checks.execute import CheckDirectories, Executor, GuestSettings, Recorder
from sandbox.checks.executors import FreshContainer, TaskContainer
from sandbox.engine.cgroups import Counters
from sandbox.engine.connection import DockerEngine
from sandbox.engine.container import remove_container
from sandbox.engine.container_labels import INSTANCE_LABEL
from sandbox.engine.container_labels import task_container_name as container_name
from sandbox.engine.container_types import ContainerExit, StopCondition, Streams, never_stop
from sandbox.engine.create_options import ContainerSpec, GuestAccount, Supervisor, create_options
from sandbox.engine.runtimes import list_runtimes
from sandbox.errors import SandboxError
from sandbox.images import resolve_image
from sandbox.images.supervisor import SupervisorExtractor, ensure_supervisor
from sandbox.models import Check, CheckRun, Limits, Verdict
from sandbox.policy.container import EffectiveContainerPolicy
from sandbox.workbench.controller.guest_accounts import find_account
from sandbox.workbench.controller.services import Services, build_services

pytestmark = pytest.mark.xdist_group("executor")

DEADLINE_S = 120.0
LEASE_S = 600
GENEROUS = Limits(memory_bytes=512 * 1024**2, cpus=1.0, pids=256, tmp_bytes=16 * 1024**2, home_bytes=1024**2)
STUBBORN = "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & while :; do sleep 1; done"
"""Ignores what it can, and has a process in another session."""

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
            git_mask=self.guest.git_mask,
            report=place.report,
            user=place.account.user,
            runtime=self.guest.runtime,
            labels={INSTANCE_LABEL: self.guest.instance},
            cpuset="",
            hosts=self.guest.hosts,
        )


@dataclass(frozen=True)
class Rig:
    """An executor with a workspace. `task_id`: of the container that is kept, if it keeps one."""

    executor: Executor
    guest: GuestSettings
    folder: Path
    account: GuestAccount
    task_id: str | None

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def idle(self) -> int:
        """Processes beside PID 1 when nothing runs: the reference sleeps."""
        return 1 if isinstance(self.executor, ExecReference) else 0

    def run(
        self,
        *argv: str,
        why_stop: StopCondition = never_stop,
        follow: Callable[[str, bytes], None] | None = None,
        **changes: Any,
    ) -> CheckRun:
        limits = GENEROUS.model_copy(update=changes.pop("limits", {}))
        check = Check(id="c", label="c", argv=argv, limits=limits, **{"timeout_s": DEADLINE_S, **changes})
        place = CheckDirectories(
            self.workspace, self.folder / "report", self.account, "0" * 40, clean_room=False, task_id=self.task_id
        )
        recorder = Recorder(self.executor, self.guest, self.folder / "logs")
        return recorder.run(f"run-{uuid.uuid4().hex}", check, place, follow, why_stop)

    def sh(self, script: str, **changes: Any) -> CheckRun:
        return self.run("sh", "-c", script, **changes)

    def log(self, run: CheckRun, stream: str) -> bytes:
        return (self.folder / "logs" / f"{run.run_id}.{stream}").read_bytes()


@dataclass
class Signal:
    """Asks a check to end as soon as it has said something, and as often as it is asked."""

    heard: threading.Event = field(default_factory=threading.Event)
    asked: int = 0

    def follow(self, _stream: str, _chunk: bytes) -> None:
        self.heard.set()

    def why_stop(self) -> Verdict | None:
        self.asked += 1
        return Verdict.KILLED if self.heard.is_set() else None


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    environ = {name: value for name, value in os.environ.items() if name.startswith("DOCKER_") or name == "PATH"}
    with closing(build_services(tmp_path_factory.mktemp("executor") / "home", environ, allow_file=True)) as made:
        try:
            made.engine.info()
            resolve_image(made.image_build_context, "base")
        except SandboxError as error:
            unavailable(f"{error.brief}: {error.details}")
        yield made
        for left in made.engine.list_containers({INSTANCE_LABEL: made.home.instance_id}):
            made.engine.remove_container(left.id)


def account(services: Services) -> GuestAccount:
    return find_account(services, services.policies.pristine_owner)


@pytest.fixture(scope="module")
def make_rig(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Rig]:
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
            cpus=os.cpu_count() or 1,
            supervisor=Supervisor(
                ensure_supervisor(services.image_build_context, services.policies.container, courier), LEASE_S
            ),
        )

    def make(kind: str) -> Rig:
        folder = tmp_path_factory.mktemp(kind)
        for name in ("workspace", "report"):
            (folder / name).mkdir()
            os.chown(folder / name, *account(services).user)
        (folder / "workspace" / ".git").write_bytes(services.home.git_mask.read_bytes())
        task_id = f"task-{uuid.uuid4()}"
        made = guest("runsc" if kind.startswith("gvisor") else "runc")
        if kind.endswith("task"):
            return Rig(
                TaskContainer(services.engine, services.policies.container, made, task_id),
                made,
                folder,
                account(services),
                task_id,
            )
        assert isinstance(services.engine, DockerEngine)
        kinds: dict[str, type[FreshContainer | ExecReference]] = {"exec": ExecReference}
        return Rig(
            kinds.get(kind, FreshContainer)(services.engine, services.policies.container, made),
            made,
            folder,
            account(services),
            None,
        )

    return make


@pytest.fixture(scope="module")
def rigs(make_rig: Callable[[str], Rig]) -> Callable[[str], Rig]:
    """One of each kind for the whole suite: what a test leaves must not matter to the next."""
    known: dict[str, Rig] = {}

    def find(kind: str) -> Rig:
        if kind not in known:
            known[kind] = make_rig(kind)
        return known[kind]

    return find


@pytest.fixture
def rig(request: pytest.FixtureRequest, rigs: Callable[[str], Rig]) -> Rig:
    return rigs(request.param)


def on(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rig", kinds, indirect=True)


OURS = ("fresh", "task")
EVERYWHERE = (*OURS, "gvisor-task", "exec")


# --- how a command ends by itself


@on(*EVERYWHERE, "gvisor-fresh")
def test_success(rig: Rig) -> None:
    run = rig.sh("echo said; echo complained >&2")
    assert (run.verdict, run.exit_code, run.signal) == (Verdict.PASSED, 0, None)
    assert (run.stdout_tail, run.stderr_tail) == ("said\n", "complained\n")


@on(*EVERYWHERE)
def test_an_exit_code_is_the_commands(rig: Rig) -> None:
    run = rig.sh("exit 42")
    assert (run.verdict, run.exit_code) == (Verdict.FAILED, 42)


@on(*EVERYWHERE)
def test_a_command_that_a_signal_ended_has_failed(rig: Rig) -> None:
    run = rig.sh("kill -SEGV $$")
    assert (run.verdict, run.exit_code) == (Verdict.FAILED, 139)
    assert run.signal == (None if isinstance(rig.executor, ExecReference) else 11)


@on(*OURS, "gvisor-task")
def test_a_command_that_is_not_there_says_so(rig: Rig) -> None:
    run = rig.run("/no/such/program")
    assert (run.verdict, run.exit_code) == (Verdict.FAILED, 127)
    assert "/no/such/program" in run.stderr_tail


# --- what goes in and out


@on(*EVERYWHERE)
def test_stdin_is_at_its_end(rig: Rig) -> None:
    assert rig.sh("cat; echo over").stdout_tail == "over\n"


@on(*EVERYWHERE)
def test_much_output_is_exact_and_streams_stay_apart(rig: Rig) -> None:
    size = 3_000_000
    run = rig.sh(f"head -c {size} /dev/zero | tr '\\0' o & head -c {size} /dev/zero | tr '\\0' e >&2; wait")
    for stream, byte in (("stdout", b"o"), ("stderr", b"e")):
        assert hashlib.sha256(rig.log(run, stream)).digest() == hashlib.sha256(byte * size).digest()
    assert (run.verdict, run.stdout_bytes, run.stderr_bytes) == (Verdict.PASSED, size, size)
    assert (run.truncated, run.stdout_shown_from_byte, run.stderr_shown_from_byte) == (True, size - 8192, size - 8192)


@on(*OURS, "exec")
def test_output_past_its_limit_is_dropped_and_counted(rig: Rig) -> None:
    run = rig.sh("echo first; head -c 100000 /dev/zero | tr '\\0' x; echo last", limits={"output_bytes": 1000})
    assert (run.verdict, run.truncated, run.stdout_bytes) == (Verdict.PASSED, True, 100_011)
    log = rig.log(run, "stdout")
    assert log.startswith(b"first\n")
    assert log.endswith(b"last\n")
    assert len(log) < 2000


@on(*EVERYWHERE)
def test_environment_is_the_policys_and_the_checks(rig: Rig, services: Services) -> None:
    run = rig.run("/usr/bin/env", env={"GREETING": "hi there"})
    found = dict(line.split("=", 1) for line in run.stdout_tail.splitlines())
    assert found["GREETING"] == "hi there"
    image = services.engine.inspect_image(rig.guest.image_digest)
    assert image is not None
    expected = {"PATH", "HOME", "LANG", "TMPDIR", "GREETING", *services.policies.container.container.env}
    expected |= {entry.partition("=")[0] for entry in image.env}
    assert found.keys() - {"HOSTNAME"} == expected  # the engine adds that one to `exec`


@on(*EVERYWHERE)
def test_it_starts_in_the_checks_directory(rig: Rig) -> None:
    (rig.workspace / "sub dir").mkdir(exist_ok=True)
    assert rig.run("pwd", cwd="sub dir").stdout_tail == "/workspace/sub dir\n"


@on(*OURS)
def test_a_directory_that_is_a_link_is_refused(rig: Rig) -> None:
    link = rig.workspace / "link"
    if not link.is_symlink():
        link.symlink_to("/tmp")
    with pytest.raises(SandboxError, match="link"):
        rig.run("pwd", cwd="link")


# --- how it is ended


@on(*EVERYWHERE)
def test_a_deadline_ends_what_ignores_signals_and_leaves_the_session(rig: Rig) -> None:
    run = rig.sh(f"echo begun; {STUBBORN}", timeout_s=1.0)
    assert run.verdict is Verdict.TIMED_OUT
    assert processes(rig) == rig.idle


@on(*EVERYWHERE)
def test_a_cancelled_check_is_killed_however_often_it_is_asked(rig: Rig) -> None:
    signal = Signal()
    run = rig.sh(f"echo begun; {STUBBORN}", why_stop=signal.why_stop, follow=signal.follow)
    assert run.verdict is Verdict.KILLED
    assert run.stdout_tail == "begun\n"
    assert signal.asked > 0
    assert processes(rig) == rig.idle


@on(*OURS, "exec")
def test_a_check_that_is_cancelled_before_it_starts_says_nothing(rig: Rig) -> None:
    run = rig.sh("echo begun", why_stop=lambda: Verdict.DISK_LIMIT)
    assert (run.verdict, run.stdout_bytes) == (Verdict.DISK_LIMIT, 0)


@on(*OURS)
@pytest.mark.parametrize("script", [HOG, f"{HOG}; exit 0"], ids=["its own", "a child's"])
def test_memory_that_runs_out_is_told_whatever_the_exit_code(rig: Rig, script: str) -> None:
    run = rig.sh(script, limits={"memory_bytes": 32 * 1024**2})
    assert run.verdict is Verdict.OOM_KILLED
    assert run.usage.oom_kills


@on("exec")
def test_the_reference_takes_memory_that_ran_out_for_success(rig: Rig) -> None:
    assert rig.sh(f"{HOG}; exit 0", limits={"memory_bytes": 32 * 1024**2}).verdict is Verdict.PASSED


@on(*OURS)
def test_no_more_processes_than_the_limit(rig: Rig) -> None:
    script = "i=0; while [ $i -lt 100 ]; do sleep 600 & i=$((i+1)); done"
    run = rig.sh(script, limits={"pids": 16})
    assert run.verdict is Verdict.FAILED
    assert (run.usage.pids_peak or 0) <= 16
    assert rig.sh(script).verdict is Verdict.PASSED  # control: with more it works


# --- walls


@on(*EVERYWHERE)
def test_the_workspace_is_writable_and_the_root_is_not(rig: Rig) -> None:
    run = rig.sh("echo made > made && cat made && ! echo no > /var/tmp/no")
    assert (run.verdict, run.stdout_tail) == (Verdict.PASSED, "made\n")
    assert (rig.workspace / "made").read_text() == "made\n"


@on("exec")
def test_control_a_root_that_is_writable_is_written(rig: Rig) -> None:
    assert isinstance(rig.executor, ExecReference)
    soft = replace(rig, executor=replace(rig.executor, host={"ReadonlyRootfs": False}))
    assert soft.sh("echo no > /var/tmp/no").verdict is Verdict.PASSED


@on(*EVERYWHERE)
def test_there_is_no_network_but_itself(rig: Rig) -> None:
    lines = rig.run("cat", "/proc/net/dev").stdout_tail.splitlines()[2:]
    assert {line.partition(":")[0].strip() for line in lines} <= {"lo"}


@on("exec")
def test_control_the_hosts_network_has_more(rig: Rig) -> None:
    assert isinstance(rig.executor, ExecReference)
    assert {line.partition(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]} > {"lo"}


@pytest.mark.parametrize("kind", ["task", "gvisor-task"])
def test_two_tasks_at_once_do_not_see_each_other(
    make_rig: Callable[[str], Rig], rigs: Callable[..., Rig], kind: str
) -> None:
    """Seen from one while the other's process is there beyond doubt: it has spoken, and ends when we say so."""
    signal, token = Signal(), uuid.uuid4().hex
    first, second = rigs(kind), make_rig("task")
    ended: list[CheckRun] = []
    hold = threading.Event()
    script = f"echo {token} > /tmp/{token}; echo begun; exec -a {token} sleep 600 || exec sleep 600"

    def stop() -> Verdict | None:
        return Verdict.KILLED if hold.is_set() else None

    runner = threading.Thread(
        target=lambda: ended.append(first.run("bash", "-c", script, why_stop=stop, follow=signal.follow)), daemon=True
    )
    runner.start()
    try:
        assert signal.heard.wait(DEADLINE_S)
        seen = second.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls /tmp /dev/shm; ls -d /proc/[0-9]*").stdout_tail
    finally:
        hold.set()
        runner.join(DEADLINE_S)
        remove_kept(second)
    assert token not in seen
    assert "/proc/1\n" in seen
    assert [run.verdict for run in ended] == [Verdict.KILLED]


# --- what stays


def processes(rig: Rig) -> int:
    """How many processes a new check sees beside PID 1 and itself: a shell, which counts with its own words."""
    run = rig.sh("n=0; for p in /proc/[0-9]*; do [ -e $p/stat ] && n=$((n+1)); done; echo $((n-2))")
    return int(run.stdout_tail)


def remove_kept(rig: Rig) -> None:
    """Take away a task's container, as closing the task does."""
    assert isinstance(rig.executor, TaskContainer)
    rig.executor.engine.remove_container(container_name(rig.guest.instance, rig.executor.task_id))


@on(*OURS, "gvisor-task")
def test_what_a_check_leaves_running_is_ended_and_counted(rig: Rig) -> None:
    run = rig.sh("sleep 600 & setsid sleep 600 & echo over")
    assert (run.verdict, run.stdout_tail) == (Verdict.PASSED, "over\n")
    assert run.usage.leftover_processes == 2
    assert processes(rig) == rig.idle


@on("fresh", "exec", "gvisor-fresh")
def test_no_container_is_left(rig: Rig, services: Services) -> None:
    before = {c.name for c in services.engine.list_containers({INSTANCE_LABEL: services.home.instance_id})}
    rig.sh("sleep 600 &")
    assert {c.name for c in services.engine.list_containers({INSTANCE_LABEL: services.home.instance_id})} <= before


def test_a_task_keeps_its_container_and_what_is_in_it(rigs: Callable[[str], Rig], services: Services) -> None:
    rig = rigs("task")
    assert rig.sh("echo kept > /tmp/kept").verdict is Verdict.PASSED
    assert rig.sh("cat /tmp/kept").stdout_tail == "kept\n"
    name = container_name(services.home.instance_id, rig.task_id or "")
    assert name in {c.name for c in services.engine.list_containers({INSTANCE_LABEL: services.home.instance_id})}


def test_removing_a_tasks_container_twice_is_fine_and_the_next_check_has_a_new_one(
    make_rig: Callable[[str], Rig],
) -> None:
    rig = make_rig("task")
    assert rig.sh("echo kept > /tmp/kept").verdict is Verdict.PASSED
    remove_kept(rig)
    remove_kept(rig)
    assert rig.sh("cat /tmp/kept").verdict is Verdict.FAILED
    remove_kept(rig)


def test_a_container_that_ran_out_of_memory_is_not_used_again(rigs: Callable[[str], Rig]) -> None:
    rig = rigs("task")
    small = {"memory_bytes": 32 * 1024**2}
    assert rig.sh(f"echo kept > /tmp/kept; {HOG}", limits=small).verdict is Verdict.OOM_KILLED
    assert rig.sh("cat /tmp/kept", limits=small).verdict is Verdict.FAILED
