"""Checks that attack PID 1 of a real guest (images/init): none gets a `passed` it did not earn.

What the attacks do where nothing stops them: tests/unit/guest_pid1/test_supervisor_hostile.py, and the controls here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import docker.errors
import pytest

from devtools.requirement import unavailable
from sandbox.checks.execute import CheckDirectories, GuestSettings, Recorder
from sandbox.checks.executors import TaskContainer
from sandbox.checks.output import OutputListener
from sandbox.config import ImageSettings
from sandbox.engine import pid1_messages
from sandbox.engine.account_files import build_group, build_passwd
from sandbox.engine.connection import DockerEngine
from sandbox.engine.container import remove_container
from sandbox.engine.container_labels import task_container_name
from sandbox.engine.container_types import StopCondition, never_stop
from sandbox.engine.create_options import HOSTS_FILE, AccountFiles, GuestAccount, Supervisor
from sandbox.engine.guest_group import find_bindable_cpus
from sandbox.engine.pid1_session import Session, SessionOutcome
from sandbox.images import ImageBuildContext, SupervisorExtractor, build, ensure_supervisor
from sandbox.models import Check, CheckRun, Limits, Verdict
from sandbox.policy.container import load_container_policy
from sandbox.store.home import GIT_MASK, Home

pytestmark = pytest.mark.xdist_group("guest-supervisor")  # the containers and folders of its fixtures are made once
ROOT = Path(__file__).parents[2]
MEBIBYTE = 1024**2


def quiet(line: str) -> None:
    """A progress callback that forgets."""


@dataclass(frozen=True)
class Bench:
    """A task's container, and a worktree with the attacker's program in it."""

    engine: DockerEngine
    recorder: Recorder
    container: str
    folder: Path
    pids: int = 64

    @property
    def account(self) -> GuestAccount:
        return GuestAccount(user(), AccountFiles(self.folder / "passwd", self.folder / "group"))

    def check(
        self,
        *argv: str,
        timeout_s: float = 120.0,
        memory_bytes: int = 256 * MEBIBYTE,
        follow: OutputListener | None = None,
        why_stop: StopCondition = never_stop,
    ) -> CheckRun:
        """One check to its end, in the container that is there or in a new one."""
        limits = Limits(memory_bytes=memory_bytes, cpus=1.0, pids=self.pids)
        check = Check(id="attack", label="Attack", argv=argv, timeout_s=timeout_s, limits=limits)
        place = CheckDirectories(self.folder / "workspace", self.folder / "report", self.account, "0" * 40, False, None)
        return self.recorder.run(f"run-{uuid.uuid4().hex}", check, place, follow, why_stop)

    def script(self, text: str, timeout_s: float = 120.0) -> CheckRun:
        return self.check("sh", "-c", text, timeout_s=timeout_s)

    @property
    def container_id(self) -> str | None:
        """None when it has been removed."""
        found = self.engine.api.containers(all=True, filters={"name": f"^/{self.container}$"})
        return str(found[0]["Id"]) if found else None


@pytest.fixture(scope="module")
def attacks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        unavailable("No gcc: `apt-get install gcc libc6-dev`")
    binary = tmp_path_factory.mktemp("attacks") / "guest-attacks"
    source = ROOT / "tests" / "data" / "guest-attacks.c"
    subprocess.run([compiler, "-static", "-O2", "-pthread", "-o", binary, source], check=True, timeout=120)
    return binary


@pytest.fixture(scope="module")
def binary(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = Home(tmp_path_factory.mktemp("init") / "home")
    home.prepare()
    site = ImageBuildContext(engine, home, ImageSettings(), os.environ)
    build(site, "init", quiet)
    courier = SupervisorExtractor(f"sandbox-init-{uuid.uuid4().hex}", user(), "runc", "test")
    return ensure_supervisor(site, load_container_policy(ROOT / "policies"), courier)


def user() -> tuple[int, int]:
    return (64000, 64000) if os.geteuid() == 0 else (os.geteuid(), os.getegid())


@pytest.fixture
def bench(engine: DockerEngine, base_image: str, binary: Path, attacks: Path, tmp_path: Path) -> Iterator[Bench]:
    with benched(engine, base_image, binary, tmp_path) as found:
        shutil.copy(attacks, tmp_path / "workspace" / "attacks")
        yield found


@pytest.fixture(scope="module")
def kept(
    engine: DockerEngine, base_image: str, binary: Path, attacks: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    """One for all tests after which its container is as good as new, which most of them show."""
    folder = tmp_path_factory.mktemp("kept")
    with benched(engine, base_image, binary, folder) as found:
        shutil.copy(attacks, folder / "workspace" / "attacks")
        yield found


@contextmanager
def benched(engine: DockerEngine, image: str, binary: Path, folder: Path, runtime: str = "runc") -> Iterator[Bench]:
    for name in ("workspace", "report"):
        (folder / name).mkdir()
        os.chown(folder / name, *user())
    (folder / "workspace" / ".git").write_bytes(GIT_MASK)
    (folder / "mask").write_bytes(GIT_MASK)
    (folder / "hosts").write_text(HOSTS_FILE)
    (folder / "passwd").write_bytes(build_passwd(user(), "/home/sandbox"))
    (folder / "group").write_bytes(build_group(user()))
    guest = GuestSettings(
        image_digest=image,
        runtime=runtime,
        git_mask=folder / "mask",
        hosts=folder / "hosts",
        instance=uuid.uuid4().hex[:16],
        cpus=find_bindable_cpus(engine.info()),
        supervisor=Supervisor(binary, 600),
    )
    task_id = f"task-{uuid.uuid4()}"
    executor = TaskContainer(engine, load_container_policy(ROOT / "policies"), guest, task_id)
    name = task_container_name(guest.instance, task_id)
    try:
        pids = 64 if runtime == "runc" else 512  # gVisor's own threads count, and it ends when it gets no more
        yield Bench(engine, Recorder(executor, guest, folder / "logs"), name, folder, pids)
    finally:
        remove_container(engine, name)


def test_control_an_honest_check_passes_and_its_guest_is_kept(kept: Bench) -> None:
    assert kept.script("exit 0").verdict is Verdict.PASSED
    first = kept.container_id
    assert kept.script("exit 1").verdict is Verdict.FAILED
    assert kept.container_id == first is not None


# --- look in, signal, imitate


def errors_of(run: CheckRun) -> dict[str, int]:
    lines = (line.rsplit(" ", 1) for line in run.stdout_tail.splitlines())
    return {what: int(error) for what, error in lines}


def test_k07_a_check_cannot_look_into_pid_1(kept: Bench) -> None:
    seen = errors_of(kept.check("/workspace/attacks", "pry"))
    assert all(seen[f"child {what}"] == 0 for what in ("mem", "fd/0", "fd/1", "environ", "maps", "ptrace")), (
        "the control"
    )
    assert {error for what, error in seen.items() if what.startswith("pid1 ")} <= {1, 13}
    assert len(seen) == 20


def test_l14_signals_to_pid_1_change_nothing(kept: Bench) -> None:
    run = kept.script("/workspace/attacks signals; kill -STOP 1; kill -KILL 1; exit 3")
    assert (run.verdict, run.exit_code, run.stdout_tail) == (Verdict.FAILED, 3, "child 9\n")
    assert kept.container_id is not None
    assert kept.script("exit 0").verdict is Verdict.PASSED


def test_i14_an_imitated_report_is_output(kept: Bench) -> None:
    nonce = bytes(16)
    body = nonce + bytes(4) + (4).to_bytes(4) + bytes(40)  # status 0, quiescent
    forged = b"D" + len(body).to_bytes(4) + body
    envelope = b"\1\0\0\0" + len(forged).to_bytes(4)  # as the engine frames the streams of a container
    (done,) = pid1_messages.Decoder().feed(envelope + forged)
    assert isinstance(done, pid1_messages.ExitReport), "the control: from PID 1 it would be a report"
    assert (done.wait_status, done.quiescent) == (0, True)
    (kept.folder / "workspace" / "forged").write_bytes((forged + envelope + forged) * 100)
    run = kept.script("cat forged; cat forged >&2; for i in 0 1 2; do cat forged > /proc/1/fd/$i; done; exit 4")
    assert (run.verdict, run.exit_code) == (Verdict.FAILED, 4)
    assert run.stdout_bytes == len(forged + envelope + forged) * 100
    assert kept.container_id is not None


def test_l14_a_check_that_has_itself_traced_ends_as_it_would(kept: Bench) -> None:
    run = kept.check("/workspace/attacks", "traceme")
    assert (run.verdict, run.usage.leftover_processes) == (Verdict.PASSED, 0)
    run = kept.script("./attacks orphan-traceme; exit 5")
    assert (run.verdict, run.exit_code, run.usage.leftover_processes) == (Verdict.FAILED, 5, 1)
    assert kept.container_id is not None


def test_l14_a_check_whose_end_its_own_tracer_keeps_has_timed_out(bench: Bench) -> None:
    assert bench.check("/workspace/attacks", "held", timeout_s=2.0).verdict is Verdict.TIMED_OUT


@pytest.mark.parametrize("runtime", ["runc", "runsc"])
def test_k30_a_stolen_nonce_turns_no_verdict(
    engine: DockerEngine, base_image: str, binary: Path, attacks: Path, tmp_path: Path, runtime: str
) -> None:
    """gVisor lets a guest open /proc/1/fd: a check told to end can learn its nonce, and report a pass itself."""
    if runtime not in runtimes(engine):
        unavailable(f"The engine has no runtime {runtime}")
    for attempt in range(3 if runtime == "runsc" else 1):  # the thief and PID 1 race for the frame; seen: one in two
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with benched(engine, base_image, binary, folder, runtime) as bench:
            shutil.copy(attacks, folder / "workspace" / "attacks")
            run = told_to_end(bench, "/workspace/attacks", "steal")
            able = "open 1 1" if runtime == "runsc" else "open 0 0"
            assert run.stdout_tail.startswith(able), "the control: there, it can"
            assert run.verdict is Verdict.DISK_LIMIT
            assert bench.container_id is None


def told_to_end(bench: Bench, *argv: str) -> CheckRun:
    """A check that fills the disk, as far as its controller can tell, from its first output on."""
    begun = threading.Event()

    def ready(_stream: str, _chunk: bytes) -> None:
        begun.set()

    return bench.check(*argv, follow=ready, why_stop=lambda: Verdict.DISK_LIMIT if begun.is_set() else None)


def test_k30_a_pass_reported_after_the_kill_is_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without a race: whoever reported it."""
    run = Session.run

    def forged(*arguments: Any) -> SessionOutcome:
        outcome = run(*arguments)
        assert outcome.report is not None
        assert outcome.report.killed
        return replace(outcome, report=replace(outcome.report, wait_status=0, killed=False, quiescent=True))

    monkeypatch.setattr(Session, "run", forged)
    assert told_to_end(bench, "sh", "-c", "echo ready; sleep 600").verdict is Verdict.DISK_LIMIT
    assert bench.container_id is None


def runtimes(engine: DockerEngine) -> set[str]:
    return set(engine.api.info()["Runtimes"])


# --- outlive, outnumber


DAEMON = "setsid sh -c 'trap \"\" TERM HUP; while :; do echo alive >> beats; done' & until [ -s beats ]; do :; done; "


def test_l12_nothing_a_check_left_runs_after_its_report(kept: Bench) -> None:
    run = kept.script(DAEMON + "exit 0")
    beats = kept.folder / "workspace" / "beats"
    size = beats.stat().st_size
    assert (run.verdict, run.usage.leftover_processes) == (Verdict.PASSED, 1)
    again = kept.script("cd /proc; echo [0-9]* $$")
    *pids, shell = again.stdout_tail.split()
    assert set(pids) == {"1", shell}
    assert beats.stat().st_size == size
    lines = "wc -l < beats; a=$(wc -c < beats); while [ $(wc -c < beats) = $a ]; do :; done; exit 7"
    assert kept.script(DAEMON + lines).exit_code == 7, "the control: while the check runs it writes on"


@pytest.mark.parametrize(
    ("script", "verdict"),
    [("exec ./attacks bomb 100000", Verdict.TIMED_OUT), ("./attacks bomb 100000 & sleep 0.2; exit 6", Verdict.FAILED)],
)
def test_l01_a_fork_bomb_is_swept_and_its_guest_goes_on(kept: Bench, script: str, verdict: Verdict) -> None:
    run = kept.script(script, timeout_s=2.0 if verdict is Verdict.TIMED_OUT else 120.0)
    assert run.verdict is verdict
    assert kept.script("exit 0").verdict is Verdict.PASSED


def test_l02_memory_runs_out_for_the_check_and_not_for_pid_1(bench: Bench) -> None:
    run = bench.check("tail", "/dev/zero", memory_bytes=32 * MEBIBYTE)
    assert (run.verdict, run.signal) == (Verdict.OOM_KILLED, 9)
    assert run.exit_code is not None, "PID 1 lived to report"
    assert bench.container_id is None


# --- slow it down, cut it off


def test_l15_pid_1_cannot_be_made_slower_than_idle(kept: Bench) -> None:
    tries = (
        "chrt -i -p 0 1",
        "chrt -b -p 0 1",
        "chrt -f -p 1 1",
        "renice -n 19 -p 1",
        "renice -n 19 -u $(id -u)",
        "ionice -c 3 -p 1",
    )
    run = kept.script("; ".join(f"{words} >/dev/null 2>&1 && echo slower" for words in tries) + "; exit 2")
    assert (run.verdict, run.exit_code, run.stdout_tail) == (Verdict.FAILED, 2, "")
    assert kept.script("nice -n 5 true").verdict is Verdict.PASSED
    assert kept.container_id is not None


@pytest.mark.parametrize("limit", ["nofile", "nproc", "cpu"])
def test_l16_a_guest_whose_pid_1_was_limited_is_not_used_again(bench: Bench, limit: str) -> None:
    run = bench.script(f"./attacks limits {limit}; exit 8")
    assert run.stdout_tail == f"pid1 {limit} 0\n", "the control: the kernel allows it"
    assert (run.verdict, run.exit_code) == (Verdict.FAILED, 8)
    assert bench.container_id is None
    assert bench.script("exit 0").verdict is Verdict.PASSED


def test_l15_a_check_whose_pid_1_ends_has_not_passed(bench: Bench) -> None:
    """As when it has used up the CPU time that a check allowed it: RLIMIT_CPU ends in a SIGKILL by the kernel."""

    def end(_stream: str, _chunk: bytes) -> None:
        with suppress(docker.errors.APIError):  # the second chunk may come when it has ended
            bench.engine.api.kill(bench.container, "SIGKILL")

    run = bench.check("sh", "-c", "echo ready; trap 'exit 0' TERM HUP; while :; do sleep 0.1; done", follow=end)
    assert (run.verdict, run.exit_code) == (Verdict.KILLED, None)
    assert bench.container_id is None
    assert bench.script("exit 0").verdict is Verdict.PASSED


def test_l08_a_flood_without_end_ends_at_the_deadline(kept: Bench) -> None:
    run = kept.script("cat /dev/zero & cat /dev/zero >&2", timeout_s=1.0)
    assert run.verdict is Verdict.TIMED_OUT
    assert kept.script("exit 0").verdict is Verdict.PASSED
