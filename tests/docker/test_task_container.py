"""A task's kept container on the real engine: when it is used again, when it is made anew, and what proves it clean."""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import docker.errors
import pytest
from pydantic import ValidationError

from sandbox.checks.execute import CheckDirectories, GuestSettings, Recorder, judge
from sandbox.checks.executors import TaskContainer
from sandbox.engine import container, pid1_session, supervised
from sandbox.engine.connection import DockerEngine
from sandbox.engine.container_labels import INSTANCE_LABEL, task_container_name
from sandbox.engine.container_types import Streams, SupervisedCheck, never_stop
from sandbox.engine.create_options import ContainerSpec, GuestAccount, Supervisor, create_options
from sandbox.engine.guest_commands import build_command
from sandbox.engine.guest_group import find_bindable_cpus
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images import resolve_image
from sandbox.images.supervisor import SupervisorExtractor, ensure_supervisor
from sandbox.models import Check, CheckRun, Limits, Verdict
from sandbox.store.home import Home
from sandbox.store.quarantine import QuarantineNotes
from sandbox.workbench.controller.guest_accounts import find_account
from sandbox.workbench.controller.services import Services, build_services
from tests.docker.conftest import docker_api
from tests.docker.test_hardening import build
from tests.unit.conftest import refused

pytestmark = pytest.mark.xdist_group("task-container")  # the containers and folders of its fixtures are made once
DEADLINE_S = 120.0
LIMITS = Limits(memory_bytes=256 * 1024**2, cpus=1.0, pids=64, tmp_bytes=1024**2, home_bytes=1024**2)


@pytest.fixture(scope="module")
def services(engine: DockerEngine, base_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    assert engine.is_local
    assert base_image
    home = tmp_path_factory.mktemp("task-container") / "home"
    with closing(build_services(home, dict(os.environ), allow_file=True)) as made:
        yield made
        for left in made.engine.list_containers({INSTANCE_LABEL: made.home.instance_id}):
            made.engine.remove_container(left.id)


@pytest.fixture(scope="module")
def guest(services: Services) -> GuestSettings:
    courier = SupervisorExtractor(
        f"sandbox-init-{services.presence.new_id()}", account(services).user, "runc", services.home.instance_id
    )
    return GuestSettings(
        image_digest=resolve_image(services.image_build_context, "base"),
        runtime="runc",
        git_mask=services.home.git_mask,
        hosts=services.hosts_file,
        instance=services.home.instance_id,
        cpus=find_bindable_cpus(services.engine_facts),
        supervisor=Supervisor(
            ensure_supervisor(services.image_build_context, services.policies.container, courier), 600
        ),
    )


def account(services: Services) -> GuestAccount:
    return find_account(services, services.policies.pristine_owner)


@dataclass
class Bench:
    """A task's container and its folders. `guest` may be changed between checks, as settings are."""

    services: Services
    guest: GuestSettings
    folder: Path
    task_id: str
    keep: bool = True

    @property
    def name(self) -> str:
        return task_container_name(self.guest.instance, self.task_id)

    @property
    def api(self) -> Any:
        return docker_api(self.services.engine)

    def run(self, *argv: str, **changes: Any) -> CheckRun:
        limits = LIMITS.model_copy(update=changes.pop("limits", {}))
        check = Check(id="c", label="c", argv=argv, limits=limits, **{"timeout_s": DEADLINE_S, **changes})
        executor = TaskContainer(
            self.services.engine, self.services.policies.container, self.guest, self.task_id, self.keep
        )
        return Recorder(executor, self.guest, self.folder / "logs").run(f"run-{uuid.uuid4().hex}", check, self.place)

    @property
    def place(self) -> CheckDirectories:
        folders = self.folder / "workspace", self.folder / "report"
        return CheckDirectories(*folders, account(self.services), "0" * 40, False, self.task_id)

    def sh(self, script: str, **changes: Any) -> CheckRun:
        return self.run("sh", "-c", script, **changes)

    def container(self) -> str:
        """Its id, '' when there is none."""
        try:
            return str(self.api.inspect_container(self.name)["Id"])
        except docker.errors.NotFound:
            return ""


@pytest.fixture
def bench(services: Services, guest: GuestSettings, tmp_path: Path) -> Iterator[Bench]:
    for name in ("workspace", "report"):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, *account(services).user)
    (tmp_path / "workspace" / ".git").write_bytes(services.home.git_mask.read_bytes())
    found = Bench(services, guest, tmp_path, f"task-{uuid.uuid4()}")
    yield found
    services.engine.remove_container(found.name)


# --- used again


def test_two_checks_of_a_task_have_one_container_and_its_tmp_and_home(bench: Bench) -> None:
    assert bench.sh("echo kept > /tmp/a; echo kept > $HOME/a; echo kept > a").verdict is Verdict.PASSED
    first = bench.container()
    run = bench.sh("cat /tmp/a $HOME/a a; test $$ -gt 1")
    assert (run.verdict, run.stdout_tail) == (Verdict.PASSED, "kept\n" * 3)
    assert bench.container() == first != ""


def test_what_a_check_used_is_its_own_and_not_the_ones_before(bench: Bench) -> None:
    hungry = bench.sh("head -c 60000000 /dev/zero | tail -c 50000000 | wc -c")
    modest = bench.run("true")
    assert hungry.usage.memory_peak_bytes is not None
    assert hungry.usage.memory_peak_bytes > 45_000_000
    if os.geteuid() == 0:  # else the kernel's peak cannot be reset
        assert modest.usage.memory_peak_bytes is not None
        assert modest.usage.memory_peak_bytes < 30_000_000
    assert (modest.usage.cpu_time_s or 0) < (hungry.usage.cpu_time_s or 0)
    assert modest.usage.pids_peak is not None


def test_argv_directory_and_environment_are_exact_in_each_check(bench: Bench) -> None:
    (bench.folder / "workspace" / "deep er").mkdir()
    words = ("", "a b", "$HOME", "*", "-n", "\u00e9\n", "'\"")
    first = bench.run("printf", "%s\\0", *words, cwd="deep er", env={"ONCE": "1"})
    assert first.stdout_tail.encode() != b""
    log = (bench.folder / "logs" / f"{first.run_id}.stdout").read_bytes()
    assert log == b"".join(word.encode() + b"\0" for word in words)
    second = bench.run("env", "-0", env={"TWICE": "a=b\nc"})
    found = (bench.folder / "logs" / f"{second.run_id}.stdout").read_bytes().split(b"\0")
    assert b"TWICE=a=b\nc" in found
    assert not [entry for entry in found if entry.startswith(b"ONCE=")]
    assert len({entry.partition(b"=")[0] for entry in found}) == len(found)


def test_what_no_guest_takes_is_refused_before_it_runs(bench: Bench) -> None:
    with pytest.raises(SandboxError, match="1048576") as caught:
        bench.run("true", env={f"LONG{number}": "x" * 131_000 for number in range(9)})
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    with pytest.raises(ValidationError, match="131,071"):  # more than the kernel takes in one word
        bench.run("true", env={"LONG": "x" * 200_000})
    assert bench.run("true", env={"LONG": "x" * 131_000}).verdict is Verdict.PASSED


def test_no_descriptor_is_left_per_check(bench: Bench) -> None:
    for _ in range(3):
        bench.run("true")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        bench.run("true")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_container_that_is_not_to_be_kept_is_gone_after_its_check(bench: Bench) -> None:
    bench.run("true")  # one from before the setting was changed
    bench.keep = False
    assert bench.sh("test ! -e /tmp/a; r=$?; touch /tmp/a; exit $r").verdict is Verdict.PASSED
    assert bench.container() == ""
    assert bench.sh("test ! -e /tmp/a").verdict is Verdict.PASSED


# --- made anew


def other_image(bench: Bench) -> None:
    bench.guest = replace(bench.guest, image_digest=resolve_image(bench.services.image_build_context, "build"))


def other_lease(bench: Bench) -> None:
    bench.guest = replace(bench.guest, supervisor=replace(bench.guest.supervisor, lease_s=601))


def killed_from_outside(bench: Bench) -> None:
    bench.api.kill(bench.name, "SIGKILL")


def report_folder_of_its_own(bench: Bench) -> None:
    """What is mounted was deleted, and the path is somebody else's now."""
    (bench.folder / "report").rmdir()
    (bench.folder / "report").mkdir()
    os.chown(bench.folder / "report", *account(bench.services).user)


def foreign_container(bench: Bench) -> None:
    """One that has the name, and even our labels, and is not what we would make."""
    inspected = bench.api.inspect_container(bench.name)
    bench.services.engine.remove_container(bench.name)
    body = {
        "Image": inspected["Image"],
        "Entrypoint": ["sleep", "600"],
        "Labels": inspected["Config"]["Labels"],
        "HostConfig": {"NetworkMode": "none"},
    }
    bench.api.create_container_from_config(body, bench.name)
    bench.api.start(bench.name)


ANEW: dict[str, Callable[[Bench], None]] = {
    "another lease": other_lease,
    "another image": other_image,
    "killed from outside": killed_from_outside,
    "what is mounted is gone": report_folder_of_its_own,
    "somebody else's": foreign_container,
}


@pytest.mark.parametrize("change", ANEW.values(), ids=ANEW)
def test_a_container_that_is_not_as_asked_for_is_made_anew(bench: Bench, change: Callable[[Bench], None]) -> None:
    bench.sh("echo kept > /tmp/a")
    first = bench.container()
    change(bench)
    assert bench.sh("test ! -e /tmp/a").verdict is Verdict.PASSED
    assert first != bench.container() != ""


def test_other_limits_make_it_anew_and_the_same_do_not(bench: Bench) -> None:
    bench.run("true")
    first = bench.container()
    bench.run("true", limits={"pids": 32})
    second = bench.container()
    bench.run("true", limits={"pids": 32})
    assert (first == second, bench.container()) == (False, second)


def test_an_unused_container_ends_by_itself_and_the_next_check_has_a_new_one(bench: Bench) -> None:
    bench.guest = replace(bench.guest, supervisor=replace(bench.guest.supervisor, lease_s=8))
    bench.run("true")
    first = bench.container()
    assert bench.api.wait(first, timeout=DEADLINE_S)["StatusCode"] == 0
    assert bench.run("true").verdict is Verdict.PASSED
    assert first != bench.container() != ""


def test_a_check_whose_controller_was_silent_for_a_lease_has_no_verdict(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The silent one pings once. The control pings on, and its check outlives the lease."""
    bench.guest = replace(bench.guest, supervisor=replace(bench.guest.supervisor, lease_s=6, silence_s=6))
    assert bench.run("sleep", "8").verdict is Verdict.PASSED
    monkeypatch.setattr(pid1_session, "PING_INTERVAL_S", DEADLINE_S)
    with refused(ErrorCode.TIMEOUT) as error:
        bench.run("sleep", "600")
    assert error.value.reason == "controller_silent"
    assert bench.container() == ""


def test_a_guest_that_changed_its_first_process_is_thrown_away(bench: Bench) -> None:
    """It may: the same uid. The supervisor tells, by not calling itself quiescent."""
    assert bench.run("true").verdict is Verdict.PASSED
    run = bench.run("prlimit", "--pid", "1", "--nofile=100:100")
    assert run.verdict is Verdict.PASSED, run
    assert bench.container() == ""


def test_a_guest_that_ends_its_first_process_is_lost_and_never_passed(bench: Bench) -> None:
    """A limit on CPU time is the only way for the same uid: the kernel kills PID 1 when it next runs."""
    run = bench.sh("prlimit --pid 1 --cpu=0:0; while :; do echo flood; done")
    assert run.verdict is Verdict.KILLED, run
    assert bench.container() == ""
    assert bench.sh("echo again").stdout_tail == "again\n"


def test_a_container_that_somebody_removes_under_a_check_is_killed_and_never_an_error(bench: Bench) -> None:
    def remove_it(_: bytes) -> None:
        bench.services.engine.remove_container(bench.name)

    executor = TaskContainer(bench.services.engine, bench.services.policies.container, bench.guest, bench.task_id)
    check = Check(id="c", label="c", argv=("sh", "-c", "echo x; sleep 600"), limits=LIMITS, timeout_s=DEADLINE_S)
    ending = executor.execute("run-x", check, bench.place, Streams(remove_it, remove_it), never_stop)
    assert (ending.report_missing, judge(ending)) == (True, Verdict.KILLED)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError], ids=lambda e: e.__name__)
def test_an_interrupt_leaves_no_container(bench: Bench, error: type[BaseException]) -> None:
    bench.run("true")

    def interrupt(_: bytes) -> None:
        raise error

    executor = TaskContainer(bench.services.engine, bench.services.policies.container, bench.guest, bench.task_id)
    check = Check(id="c", label="c", argv=("sh", "-c", "echo x; sleep 600"), limits=LIMITS, timeout_s=DEADLINE_S)
    with pytest.raises(error):
        executor.execute("run-x", check, bench.place, Streams(interrupt, interrupt), never_stop)
    assert bench.container() == ""


# --- proven before anything foreign runs


SOFT: dict[str, tuple[dict[str, Any], str]] = {
    "capabilities": ({"CapDrop": [], "CapAdd": ["CHOWN"]}, "CapBnd"),
    "privileges to gain": ({"SecurityOpt": ["seccomp=unconfined"]}, "NoNewPrivs"),
    "no filter": ({"SecurityOpt": ["no-new-privileges", "seccomp=unconfined"]}, "Seccomp"),
    "a writable root": ({"ReadonlyRootfs": False}, "/ is writable"),
    "a group": ({"GroupAdd": ["998"]}, "groups 998"),
}


@pytest.mark.parametrize(
    ("host", "fault", "keep"),
    [
        *(pytest.param(*SOFT[name], True, id=f"kept-{name}") for name in SOFT),
        pytest.param(*SOFT["capabilities"], False, id="fresh-capabilities"),
        *(pytest.param(*SOFT[name], False, id=f"fresh-{name}", marks=pytest.mark.thorough) for name in [*SOFT][1:]),
    ],
)
def test_a_guest_that_is_softer_than_it_must_be_runs_nothing_and_is_removed(
    bench: Bench, host: dict[str, Any], fault: str, keep: bool
) -> None:
    """The engine makes exactly what is asked for, so only the guest's own words can tell. Control: the tests above."""
    options = create_options(_spec(bench), bench.services.policies.container)
    options["HostConfig"].update(host)
    said: list[bytes] = []
    work = SupervisedCheck(
        build_command=lambda created: build_command(
            ("sh", "-c", "echo ran; echo ran > ran"),
            PurePosixPath("/workspace"),
            {},
            bench.services.policies.container,
            created,
        ),
        streams=Streams(said.append, said.append),
        deadline_s=DEADLINE_S,
        stop_condition=never_stop,
    )
    with pytest.raises(SandboxError, match=fault) as caught:
        bench.services.engine.run_supervised(bench.name, options, work, keep=keep)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert (said, (bench.folder / "workspace" / "ran").exists()) == ([], False)
    assert bench.container() == ""


def test_p12_a_copied_home_ends_no_check_of_the_original(bench: Bench, tmp_path: Path) -> None:
    """Both have the file `instance` and the same task. Control: with the original's id, its container is replaced."""
    home = bench.services.home
    shutil.copytree(home.root, tmp_path / "copied", ignore=shutil.ignore_patterns("presence", "locks"))
    assert bench.run("true").verdict is Verdict.PASSED
    kept = bench.container()
    instance = Home(tmp_path / "copied").instance_id
    copy = replace(bench, folder=tmp_path / "other", guest=replace(bench.guest, instance=instance))
    for name in ("workspace", "report"):
        (copy.folder / name).mkdir(parents=True)
        os.chown(copy.folder / name, *account(bench.services).user)
    (copy.folder / "workspace" / ".git").write_bytes(home.git_mask.read_bytes())
    try:
        assert copy.run("true").verdict is Verdict.PASSED
        assert bench.container() == kept
        copy.guest = bench.guest
        assert copy.run("true").verdict is Verdict.PASSED
        assert bench.container() != kept
    finally:
        bench.services.engine.remove_container(copy.name)
        bench.services.engine.remove_containers({INSTANCE_LABEL: instance})


def test_an_engine_that_refuses_a_removal_costs_no_verdict(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The container is quarantined: no check runs in it again. Control: before the end, a refusal is an error."""
    quarantine = QuarantineNotes(bench.services.home.quarantine)
    with monkeypatch.context() as refusing:
        refusing.setattr(container, "remove_within", _refuse)
        assert bench.sh(HUNGRY).verdict is Verdict.OOM_KILLED
        assert quarantine.names() == {bench.name: bench.container()}
        with pytest.raises(SandboxError, match="could not be removed"):
            _start(bench, lambda _argv: ["/bin/false"], name=f"{bench.name}-other")
    bench.services.engine.remove_container(f"{bench.name}-other")
    bench.services.engine.retry_removal(bench.name)
    assert (quarantine.names(), bench.container()) == ({}, "")


def _refuse(*_: object) -> None:
    raise SandboxError(ErrorCode.INTERNAL, "The engine refused to remove the container")


HUNGRY = "(head -c 600M /dev/zero | tail -c 500M > /dev/null); exit 0"


def test_without_the_kernels_counter_the_engines_flag_is_read_when_the_guest_has_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker 20.10 sets the flag only then (THREATS L02)."""
    assert bench.sh(HUNGRY).verdict is Verdict.OOM_KILLED
    monkeypatch.setattr(supervised, "find_cgroups", lambda _: None)
    monkeypatch.setattr(supervised, "require_in_group", lambda *_: None)
    run = bench.sh(HUNGRY)
    assert (run.verdict, run.usage.oom_kills) == (Verdict.OOM_KILLED, None)
    assert bench.sh("exit 0").verdict is Verdict.PASSED
    assert bench.container() == ""  # it had to be ended to know


IN_ANOTHER_NAMESPACE = """
import base64, json, os, pickle, sys
from sandbox.engine import supervised
from sandbox.engine.connection import connect
from sandbox.engine.container_types import Streams, SupervisedCheck, never_stop
from sandbox.errors import SandboxError

request = json.load(sys.stdin)
if request["open"]:
    supervised.find_guest_pid = lambda _path, _timeout, inspected, _inspect: inspected["State"]["Pid"]
command = pickle.loads(base64.b64decode(request["command"]))
build = lambda _env: command
work = SupervisedCheck(build, Streams(lambda _: None, lambda _: None), 60.0, never_stop)
try:
    ending = connect("", os.environ, 60.0).run_supervised(request["name"], request["options"], work, keep=False)
    print("ran", ending.counters.oom_kills)
except SandboxError as error:
    print(error.code.value, "hostPID" in error.hint)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")
@pytest.mark.parametrize(
    ("is_apart", "is_open", "expected"),
    [(True, False, "engine_unavailable True"), (True, True, "ran None"), (False, False, "ran 0")],
    ids=["apart", "control-without-the-wall", "control-of-one-namespace"],
)
def test_s221_a_controller_that_sees_no_process_of_the_guest_runs_nothing(
    bench: Bench, is_apart: bool, is_open: bool, expected: str
) -> None:
    policy = bench.services.policies.container
    options = create_options(_spec(bench), policy)
    command = build_command(("sh", "-c", "echo ran > ran"), PurePosixPath("/workspace"), {}, policy, [])
    pickled = base64.b64encode(pickle.dumps(command)).decode()
    request = {"name": bench.name, "options": options, "command": pickled, "open": is_open}
    apart = ["unshare", "--pid", "--fork", "--mount-proc"] if is_apart else []
    done = subprocess.run(
        [*apart, sys.executable, "-c", IN_ANOTHER_NAMESPACE],
        input=json.dumps(request, default=str),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.stdout == f"{expected}\n", done.stderr
    assert (bench.folder / "workspace" / "ran").exists() is expected.startswith("ran")
    assert bench.container() == ""


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another uid")


def of_another(bench: Bench, name: str) -> None:
    """As under an engine that maps users, where whatever this host has belongs to somebody else."""
    os.chown(bench.folder / name, 64999, 64999)


@ROOT_ONLY
@pytest.mark.parametrize(
    ("name", "keep"),
    [
        pytest.param("workspace", True, id="kept-workspace"),
        pytest.param("report", False, id="fresh-report"),
        pytest.param("report", True, id="kept-report", marks=pytest.mark.thorough),
        pytest.param("workspace", False, id="fresh-workspace", marks=pytest.mark.thorough),
    ],
)
def test_a_guest_that_cannot_write_its_files_runs_nothing_and_is_removed(bench: Bench, name: str, keep: bool) -> None:
    bench.keep = keep
    assert bench.sh("echo hi > /workspace/a; echo hi > /report/a").verdict is Verdict.PASSED
    of_another(bench, name)
    with pytest.raises(SandboxError, match=f"write /{name} .Permission denied; it belongs to uid 64999") as caught:
        bench.sh("echo ran")
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert "`sandbox doctor`" in caught.value.hint
    assert bench.container() == ""


@ROOT_ONLY
def test_control_without_the_proof_a_check_that_ignores_errors_passes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "require_writable_folders", lambda *_: None)
    of_another(bench, "workspace")
    run = bench.sh("echo built > /workspace/result; true")
    assert (run.verdict, (bench.folder / "workspace" / "result").exists()) == (Verdict.PASSED, False)


def test_a_check_that_shuts_its_own_workspace_has_verdicts_still(bench: Bench) -> None:
    """What the guest did is no failure of ours."""
    assert bench.sh("chmod 500 /workspace").verdict is Verdict.PASSED
    assert bench.sh("echo x > /workspace/x").verdict is Verdict.FAILED


def test_the_proof_leaves_nothing_in_the_workspace(bench: Bench) -> None:
    before = (bench.folder / "workspace").stat()
    bench.run("true")
    bench.run("true")
    after = (bench.folder / "workspace").stat()
    assert sorted(path.name for path in (bench.folder / "workspace").iterdir()) == [".git"]
    assert after.st_mtime_ns == before.st_mtime_ns


def test_a_supervisor_of_another_version_is_told_from_a_broken_one(bench: Bench) -> None:
    """It is given arguments that it does not know, as one that was built before them."""
    with pytest.raises(SandboxError, match="another version") as caught:
        _start(bench, lambda argv: [*argv, "--of-tomorrow"])
    assert caught.value.code is ErrorCode.IMAGE_MISSING


@pytest.mark.parametrize("selinux", [True, False])
def test_where_selinux_may_be_why_no_supervisor_starts_doctor_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, selinux: bool
) -> None:
    """A stand-in for one that SELinux does not let run: a program that ends at once."""
    monkeypatch.setattr(supervised, "has_selinux", lambda: selinux)
    with pytest.raises(SandboxError, match="does not answer") as caught:
        _start(bench, lambda _argv: ["/bin/false"])
    assert ("sandbox doctor" in caught.value.hint) is selinux
    assert caught.value.code is (ErrorCode.ENGINE_UNAVAILABLE if selinux else ErrorCode.INTERNAL)


def _start(bench: Bench, change: Callable[[list[str]], list[str]], name: str = "") -> None:
    """Run `true` with another command line of PID 1."""
    options = create_options(_spec(bench), bench.services.policies.container)
    options["Entrypoint"] = change(options["Entrypoint"])
    sink: Callable[[bytes], None] = lambda _: None  # noqa: E731 - shorter than its name
    work = SupervisedCheck(lambda created: build_command(("true",), PurePosixPath("/workspace"), {},
          bench.services.policies.container, created),
                Streams(sink, sink), DEADLINE_S, never_stop)  # fmt: skip
    bench.services.engine.run_supervised(name or bench.name, options, work, keep=False)


def _spec(bench: Bench) -> ContainerSpec:
    return ContainerSpec(
        name=bench.name,
        image=bench.guest.image_digest,
        argv=(),
        cwd=PurePosixPath("/workspace"),
        env={},
        limits=LIMITS,
        workspace=bench.folder / "workspace",
        git_mask=bench.guest.git_mask,
        report=bench.folder / "report",
        user=account(bench.services).user,
        runtime="runc",
        labels={INSTANCE_LABEL: bench.guest.instance},
        cpuset="",
        hosts=bench.guest.hosts,
        account_files=account(bench.services).files,
        supervisor=bench.guest.supervisor,
    )


# --- an image decides nothing


@pytest.fixture(scope="module")
def hostile(engine: DockerEngine, base_image: str) -> Iterator[dict[str, str]]:
    assert base_image
    found = {
        name: build(engine, extra)
        for name, extra in {"config": "LABEL space.sandbox.task=x", "volume": "VOLUME /data"}.items()
    }
    yield found
    for digest in found.values():
        engine.api.remove_image(digest, force=True)


def test_an_images_configuration_does_not_reach_a_check(bench: Bench, hostile: dict[str, str]) -> None:
    bench.guest = replace(bench.guest, image_digest=hostile["config"])
    run = bench.sh("tr '\\0' '\\n' < /proc/self/environ; id -u; pwd; cat /proc/1/comm")
    lines = run.stdout_tail.splitlines()
    names = {line.partition("=")[0] for line in lines}
    assert not {"LD_PRELOAD", "GIT_DIR", "BASH_ENV", "NVIDIA_VISIBLE_DEVICES", "ENTRYPOINT-RAN"} & names
    assert {str(account(bench.services).user[0]), "/workspace", "HARMLESS=1", "sandbox-init"} <= {*lines}
    inspected = bench.api.inspect_container(bench.name)
    assert inspected["Config"]["Labels"]["space.sandbox.task"] == bench.task_id
    assert inspected["State"].get("Health") is None


def test_an_image_with_a_volume_is_refused(bench: Bench, hostile: dict[str, str]) -> None:
    bench.guest = replace(bench.guest, image_digest=hostile["volume"])
    with pytest.raises(SandboxError, match=r"Config\.Volumes"):
        bench.run("true")
    assert bench.container() == ""
