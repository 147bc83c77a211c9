"""What a hardened container is, on the real engine. Each probe also runs where it must fire: a plain container."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from docker.utils.socket import frames_iter

from sandbox.engine.account_files import build_group, build_passwd
from sandbox.engine.cgroups import Sampler, find_cgroups
from sandbox.engine.connection import DockerEngine
from sandbox.engine.create_options import HOSTS_FILE, AccountFiles, ContainerSpec, create_options
from sandbox.engine.verify_created import find_differences, require_same_options
from sandbox.errors import SandboxError
from sandbox.models import Limits
from sandbox.policy.container import EffectiveContainerPolicy, load_container_policy
from tests.docker.conftest import image_digest

pytestmark = pytest.mark.xdist_group("hardening")  # the containers and folders of its fixtures are made once
ROOT = Path(__file__).parents[2]
LABEL = "space.sandbox.test-hardening"
SESSION = uuid.uuid4().hex
LABELS = {LABEL: SESSION}
GUEST = 64000
EPERM, EINVAL, ENOSYS, EOPNOTSUPP, SIGSYS = 1, 22, 38, 95, 31
DEADLINE_S = 60

Body = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """How a container ended."""

    out: str
    exit_code: int
    state: dict[str, Any]

    def lines(self) -> list[str]:
        return self.out.split("\n")


def execute(
    engine: DockerEngine, body: Body, verify: bool, during: Callable[[dict[str, Any]], None] | None = None
) -> Outcome:
    """Create, verify, attach, start, wait, remove."""
    api = engine.api
    container = api.create_container_from_config(body, f"sandbox-{uuid.uuid4().hex}")["Id"]
    killer = threading.Timer(DEADLINE_S, lambda: api.kill(container, "SIGKILL"))
    stream: Any = None
    try:
        if verify:
            require_same_options(body, api.inspect_container(container))
        stream = api.attach_socket(container, {"stdout": 1, "stderr": 1, "stream": 1})
        api.start(container)
        killer.start()
        if during is not None:
            during(api.inspect_container(container))
        out = b"".join(data for _, data in frames_iter(stream, tty=False)).decode(errors="replace")
        exit_code = api.wait(container, timeout=DEADLINE_S)["StatusCode"]
        return Outcome(out.strip(), exit_code, api.inspect_container(container)["State"])
    finally:
        killer.cancel()
        if stream is not None:
            stream._response.close()
            stream.close()
        api.remove_container(container, force=True, v=True)


@dataclass(frozen=True)
class Lab:
    """One workspace, and two ways to run a command over it: as the product does, and as anybody does."""

    engine: DockerEngine
    policy: EffectiveContainerPolicy
    spec: ContainerSpec

    @property
    def workspace(self) -> Path:
        assert self.spec.workspace is not None
        return self.spec.workspace

    def hardened(self, *argv: str, **changes: Any) -> Outcome:
        return execute(self.engine, self.body(*argv, **changes), verify=True)

    def body(self, *argv: str, **changes: Any) -> Body:
        policy = changes.pop("policy", self.policy)
        return create_options(dataclasses.replace(self.spec, argv=argv, **changes), policy)

    def plain(self, *argv: str, **host: Any) -> Outcome:
        """The control: the engine's defaults, as root. No bridge, which would take longer than all else."""
        bind = {"Type": "bind", "Source": str(self.workspace), "Target": "/workspace"}
        body = {
            "Image": self.spec.image,
            "Entrypoint": list(argv),
            "User": "0",
            "WorkingDir": "/workspace",
            "Labels": LABELS,
            "AttachStdout": True,
            "AttachStderr": True,
            "HostConfig": {"NetworkMode": "none", "Mounts": [bind], **host},
        }
        return execute(self.engine, body, verify=False)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(engine: DockerEngine) -> Iterator[None]:
    yield
    left = engine.api.containers(all=True, filters={"label": f"{LABEL}={SESSION}"})
    for container in left:
        engine.api.remove_container(container["Id"], force=True, v=True)
    assert left == []


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("No gcc: `apt-get install gcc libc6-dev`")
    binary = tmp_path_factory.mktemp("probe") / "probe"
    source = ROOT / "tests" / "data" / "seccomp-probe.c"
    subprocess.run([compiler, "-static", "-O1", "-w", "-o", binary, source], check=True, timeout=60)
    return binary


@pytest.fixture
def lab(engine: DockerEngine, base_image: str, tmp_path: Path) -> Lab:
    return make_lab(engine, base_image, tmp_path)


def make_lab(engine: DockerEngine, image: str, folder: Path) -> Lab:
    user = (GUEST, GUEST) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    for name in ("workspace", "report"):
        (folder / name).mkdir()
        os.chown(folder / name, *user)
    (folder / "workspace" / ".git").write_text("gitdir: /nonexistent\n")
    os.chown(folder / "workspace" / ".git", *user)
    (folder / "mask").write_text("gitdir: /nonexistent\n")
    (folder / "hosts").write_text(HOSTS_FILE)
    spec = ContainerSpec(
        name="sandbox-hardening",
        image=image,
        argv=("true",),
        cwd=PurePosixPath("/workspace"),
        env={},
        limits=Limits(memory_bytes=512 * 1024**2, cpus=1.0, pids=64, tmp_bytes=1024**2, home_bytes=1024**2),
        workspace=folder / "workspace",
        git_mask=folder / "mask",
        report=folder / "report",
        user=user,
        runtime="runc",
        labels=LABELS,
        cpuset="0",
        hosts=folder / "hosts",
    )
    return Lab(engine, load_container_policy(ROOT / "policies"), spec)


@dataclass(frozen=True)
class Probed:
    """What each probe printed in one container that ran them all."""

    lab: Lab
    exit_code: int
    out: dict[str, str]

    def lines(self, probe: str) -> list[str]:
        return self.out[probe].split("\n")

    def status(self) -> dict[str, str]:
        return {line.partition(":")[0]: line.partition(":")[2].strip() for line in self.lines("status")}

    def interfaces(self) -> set[str]:
        return {line.partition(":")[0].strip() for line in self.lines("interfaces")[2:]}


WRITABLE = """
while read -r _ _ _ _ point _; do
  [ -d "$point" ] && (: > "$point/.write-probe") 2>/dev/null && echo "$point"
done < /proc/self/mountinfo
rm -f /tmp/.write-probe $HOME/.write-probe
"""
GIT_MASK = """
exec 2>&1; cd /workspace; export LC_ALL=C
rm -f .git; echo rm=$?
(echo x > .git); echo write=$?
mv .git x; echo mv=$?
"""
LIMIT_FLAGS = [("c", "0"), ("f", "2097152"), ("n", "4096"), ("l", "64"), ("r", "0"), ("q", "0")]
EXECUTE = "for d in /tmp $HOME; do printf '#!/bin/sh\\necho ran\\n' > $d/x; chmod +x $d/x; $d/x; rm $d/x; done"
INODES = "i=0; while (: > /tmp/$i) 2>/dev/null; do i=$((i+1)); [ $i = 200 ] && break; done; ls /tmp | wc -l"
FILL = "head -c 3000000 /dev/zero 2>/dev/null > {0}/big; stat -c %s {0}/big; rm {0}/big"
PROBES = {
    "status": "cat /proc/self/status",
    "user": "id -u; id -G",
    "pid 1": "cat /proc/1/comm",
    "interfaces": "cat /proc/net/dev",
    "resolver": "cat /etc/resolv.conf",
    "localhost": "getent hosts localhost",
    "mounts": "cat /proc/self/mountinfo",
    "writable": WRITABLE,
    "root": "LC_ALL=C touch /usr/x /var/x",
    "mask": GIT_MASK,
    "kernel": "cat /proc/keys /proc/timer_list /proc/interrupts /proc/latency_stats 2>/dev/null | wc -c",
    "processors": "nproc",
    "execute": EXECUTE,
    "inodes": f"{INODES}; rm -f /tmp/*",
    "fill /tmp": FILL.format("/tmp"),
    "fill /home/sandbox": FILL.format("$HOME"),
} | {f"ulimit {flag}": f"bash -c 'ulimit -H{flag}'" for flag, _ in LIMIT_FLAGS}
"""Each leaves room for the others in `/tmp` and the home."""
READ_INTERFACES = f"echo '== interfaces'; {PROBES['interfaces']}"
READ_ALL = "\n".join(f"echo '== {name}'\n( {text}\n) 2>&1" for name, text in PROBES.items()) + "\nexit 42"


def probed(lab: Lab, outcome: Outcome) -> Probed:
    parts = (part.partition("\n") for part in f"\n{outcome.out}".split("\n== ")[1:])
    return Probed(lab, outcome.exit_code, {name: text.strip() for name, _, text in parts})


@pytest.fixture(scope="module")
def hardened(engine: DockerEngine, base_image: str, tmp_path_factory: pytest.TempPathFactory) -> Probed:
    """All probes where the product runs a command."""
    lab = make_lab(engine, base_image, tmp_path_factory.mktemp("hardened"))
    return probed(lab, lab.hardened("sh", "-c", READ_ALL))


@pytest.fixture(scope="module")
def roomy(engine: DockerEngine, base_image: str, tmp_path_factory: pytest.TempPathFactory) -> Probed:
    """The same container with room in its folders, all processors, and without the mask and our hosts file."""
    lab = make_lab(engine, base_image, tmp_path_factory.mktemp("roomy"))
    limits = lab.spec.limits.model_copy(update={"tmp_bytes": 8 * 1024**2, "home_bytes": 8 * 1024**2})
    changes = {"limits": limits, "cpuset": "", "git_mask": None, "hosts": None}
    return probed(lab, lab.hardened("sh", "-c", READ_ALL, **changes))


@pytest.fixture(scope="module")
def plain(engine: DockerEngine, base_image: str, tmp_path_factory: pytest.TempPathFactory) -> Probed:
    """The control: the engine's defaults, as root. Without a network, for `resolv.conf` is the engine's there, too."""
    lab = make_lab(engine, base_image, tmp_path_factory.mktemp("plain"))
    return probed(lab, lab.plain("sh", "-c", READ_ALL, MaskedPaths=[]))


# --- who the guest is


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((f"Cap{name}", "0" * 16) for name in ("Eff", "Bnd", "Prm", "Inh", "Amb")),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
    ],
)
def test_process_status(hardened: Probed, field: str, value: str) -> None:
    assert hardened.status()[field] == value


def test_control_plain_container_has_capabilities_and_may_gain_privileges(plain: Probed) -> None:
    assert plain.status()["CapEff"] != "0" * 16
    assert plain.status()["NoNewPrivs"] == "0"


def test_guest_is_the_policys_user_without_groups(hardened: Probed, plain: Probed) -> None:
    uid, gid = hardened.lab.spec.user
    assert hardened.lines("user") == [str(uid), str(gid)]
    assert plain.lines("user")[0] == "0"


def test_pid_1_is_the_engines_init(hardened: Probed, plain: Probed) -> None:
    assert hardened.out["pid 1"] == "docker-init"
    assert plain.out["pid 1"] == "sh"


def test_exit_status_is_the_commands(hardened: Probed) -> None:
    assert hardened.exit_code == 42


# --- network


def test_only_loopback(hardened: Probed, lab: Lab) -> None:
    assert hardened.interfaces() == {"lo"}
    control = probed(lab, lab.plain("sh", "-c", READ_INTERFACES, NetworkMode="host"))
    assert control.interfaces() > {"lo"}


PORTS = """import socket
for port in (80, 1023, 1024, 8080):
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
            print(port, 0)
        except OSError as error:
            print(port, error.errno)
"""


def test_ports_below_1024_are_refused_as_on_an_ordinary_host(lab: Lab, engine: DockerEngine) -> None:
    image = image_digest(engine, "python")
    assert lab.hardened("python3", "-c", PORTS, image=image).lines() == ["80 13", "1023 13", "1024 0", "8080 0"]


def test_control_the_engine_opens_all_ports_to_a_plain_container(lab: Lab, engine: DockerEngine) -> None:
    plain = dataclasses.replace(lab, spec=dataclasses.replace(lab.spec, image=image_digest(engine, "python")))
    assert plain.plain("python3", "-c", PORTS, CapDrop=["ALL"]).lines() == ["80 0", "1023 0", "1024 0", "8080 0"]


def test_no_resolver_of_the_host_is_visible(hardened: Probed, plain: Probed) -> None:
    assert hardened.out["resolver"] == ""
    assert "nameserver" in plain.out["resolver"]


def test_guest_has_a_name(lab: Lab, tmp_path: Path) -> None:
    """Control: no image has an entry for the uid of one task."""
    uid = os.geteuid() or 66_017
    argv = (
        "sh",
        "-c",
        "id -un && id -gn && cd /tmp && git init -q r && cd r && git -c user.email=a@b commit -q --allow-empty -m x",
    )
    assert lab.hardened(*argv, user=(uid, uid)).exit_code != 0
    files = AccountFiles(tmp_path / "passwd", tmp_path / "group")
    files.passwd.write_bytes(build_passwd((uid, uid), "/home/sandbox"))
    files.group.write_bytes(build_group((uid, uid)))
    found = lab.hardened(*argv, user=(uid, uid), account_files=files)
    assert (found.lines()[:2], found.exit_code) == (["sandbox", "sandbox"], 0), found.out


def test_localhost_resolves_through_our_hosts_file(hardened: Probed, roomy: Probed) -> None:
    assert hardened.out["localhost"] != ""
    assert roomy.out["localhost"] == ""


# --- files


def test_writable_mounts_are_the_policys(hardened: Probed, plain: Probed) -> None:
    mounts = hardened.lab.policy.container.mounts
    expected = {"/tmp", "/dev/shm", mounts.home, mounts.workspace, mounts.report}
    assert set(hardened.lines("writable")) == expected
    assert "/" in plain.lines("writable")


def test_root_is_read_only(hardened: Probed, plain: Probed) -> None:
    refusals = hardened.lines("root")
    assert len(refusals) == 2
    assert all("Read-only file system" in line for line in refusals)
    assert plain.out["root"] == ""


def test_mount_table_shows_our_mounts_read_only_where_they_must_be(hardened: Probed) -> None:
    table = hardened.lines("mounts")
    options = {fields[4]: fields[5].split(",") for fields in (line.split(" ") for line in table)}
    assert {point for point in ("/", "/workspace/.git", "/etc/hosts") if "ro" in options[point]} == {
        "/", "/workspace/.git", "/etc/hosts",
    }  # fmt: skip
    assert all({"nosuid", "nodev"} <= {*options[point]} for point in ("/tmp", "/home/sandbox"))
    assert not any("shared:" in line for line in table)


def test_git_mask_holds(hardened: Probed) -> None:
    out = hardened.out["mask"]
    assert "rm: cannot remove '.git': Device or resource busy" in out
    assert "cannot create .git: Read-only file system" in out
    assert {"rm=1", "mv=1"} <= {*out.split("\n")}
    assert "write=0" not in out
    assert (hardened.lab.workspace / ".git").read_text() == "gitdir: /nonexistent\n"


def test_control_without_the_mask_git_file_is_the_guests(roomy: Probed) -> None:
    assert {"rm=0", "write=0", "mv=0"} <= {*roomy.lines("mask")}


def test_kernel_files_are_empty(hardened: Probed, plain: Probed) -> None:
    assert hardened.out["kernel"] == "0"
    assert int(plain.out["kernel"]) > 0


# --- limits


def test_pids_limit_contains_a_fork_bomb(lab: Lab, probe: Path) -> None:
    shutil.copy(probe, lab.workspace / "probe")
    count, error = lab.hardened("/workspace/probe", "forks", "200").out.split("\n")[0].split()
    assert int(count) < 64
    assert error == "11"  # EAGAIN
    assert lab.plain("/workspace/probe", "forks", "200", Init=True).out.split("\n")[0] == "200 0"


@pytest.mark.parametrize("folder", ["/tmp", "/home/sandbox"])
def test_tmpfs_is_limited(hardened: Probed, roomy: Probed, folder: str) -> None:
    assert hardened.lines(f"fill {folder}")[-1] == str(1024**2)
    assert roomy.lines(f"fill {folder}")[-1] == "3000000"


def test_tmpfs_inodes_are_limited(lab: Lab, hardened: Probed) -> None:
    tight = lab.policy.model_copy(update={"container": lab.policy.container.model_copy(update={"tmp_inodes": 64})})
    assert int(lab.hardened("sh", "-c", INODES, policy=tight).lines()[-1]) < 64
    assert hardened.lines("inodes")[-1] == "200"


def test_tmp_and_home_are_executable_for_builds(hardened: Probed) -> None:
    assert hardened.lines("execute") == ["ran", "ran"]


@pytest.mark.parametrize(
    ("flag", "value"), LIMIT_FLAGS, ids=["core", "fsize", "nofile", "memlock", "rtprio", "msgqueue"]
)
def test_hard_ulimit(hardened: Probed, plain: Probed, flag: str, value: str) -> None:
    wanted = {"f": str(hardened.lab.spec.limits.file_bytes // 1024)}.get(flag, value)
    assert hardened.out[f"ulimit {flag}"] == wanted
    assert plain.out[f"ulimit {flag}"] != wanted or flag in "rl"  # this engine's own default agrees on these two


def test_cpuset_shows_in_nproc(hardened: Probed, roomy: Probed) -> None:
    assert hardened.out["processors"] == "1"
    if (os.cpu_count() or 1) > 1:
        assert roomy.out["processors"] != "1"


HUNGRY = ("sh", "-c", "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c")


def test_memory_limit_kills(lab: Lab) -> None:
    small = lab.spec.limits.model_copy(update={"memory_bytes": 64 * 1024**2})
    assert lab.hardened(*HUNGRY, limits=small).lines()[-1] != "200000000"
    roomy = lab.spec.limits.model_copy(update={"memory_bytes": 1024**3})
    assert lab.hardened(*HUNGRY, limits=roomy).lines()[-1] == "200000000"


def test_counters_of_a_running_container(lab: Lab) -> None:
    samplers = []

    def sample(inspected: dict[str, Any]) -> None:
        sampler = Sampler(find_cgroups(inspected["State"]["Pid"]))
        samplers.append(sampler.__enter__())

    busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; (sleep 0.3 & sleep 0.3 & wait)"
    execute(lab.engine, lab.body("sh", "-c", busy), True, sample)
    samplers[0].__exit__(None, None, None)
    counters = samplers[0].counters
    assert 0.05 < (counters.cpu_time_s or 0) < 30
    assert (counters.memory_peak_bytes or 0) > 100_000
    assert 3 <= (counters.pids_peak or 0) <= 64
    assert counters.oom_kills == 0


def test_counter_shows_an_oom_kill_that_the_command_survives(lab: Lab) -> None:
    """PID 1 exits 0: the exit status alone would say passed (THREATS L02)."""
    small = lab.spec.limits.model_copy(update={"memory_bytes": 64 * 1024**2})
    samplers: list[Sampler] = []
    body = lab.body("sh", "-c", f"{HUNGRY[2]}; sleep 0.5; exit 0", limits=small)

    def sample(inspected: dict[str, Any]) -> None:
        samplers.append(Sampler(find_cgroups(inspected["State"]["Pid"])).__enter__())

    outcome = execute(lab.engine, body, True, sample)
    samplers[0].__exit__(None, None, None)
    assert outcome.exit_code == 0
    assert (samplers[0].counters.oom_kills or 0) >= 1


# --- system calls


CAPABILITIES = """
    DAC_READ_SEARCH NET_ADMIN NET_RAW SYS_ADMIN SYS_BOOT SYS_CHROOT SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE
    SYS_TIME SYSLOG
""".split()  # noqa: SIM905  # a table of words. Not ALL: this host's engine has no SYS_RESOURCE to give


@pytest.fixture(scope="module")
def calls(
    engine: DockerEngine, base_image: str, probe: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, int]]:
    """The same probe three times: hardened, hardened but with the engine's own profile, root without any wall."""
    lab = make_lab(engine, base_image, tmp_path_factory.mktemp("calls"))
    shutil.copy(probe, lab.workspace / "probe")
    command = ("/workspace/probe", "calls")
    engine_default = lab.body(*command)
    engine_default["HostConfig"]["SecurityOpt"] = ["no-new-privileges"]
    return {
        "hardened": _errors(lab.hardened(*command)),
        "engine": _errors(execute(engine, engine_default, verify=True)),
        "open": _errors(lab.plain(*command, CapAdd=CAPABILITIES, SecurityOpt=["seccomp=unconfined"])),
    }


def _errors(outcome: Outcome) -> dict[str, int]:
    pairs = (line.rpartition(" ") for line in outcome.lines())
    return {name: int(error) for name, _, error in pairs}


DENIED = """
    io_uring_setup io_uring_enter io_uring_register keyctl add_key request_key bpf perf_event_open userfaultfd
    mount umount2 open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr pivot_root chroot setns unshare
    clone(CLONE_NEWNS) clone(CLONE_NEWUSER) open_by_handle_at kexec_load init_module finit_module delete_module reboot
    swapon swapoff settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname process_vm_readv
    process_vm_writev kcmp pidfd_getfd quotactl acct fanotify_init mbind migrate_pages move_pages vmsplice syslog
    personality(ADDR_NO_RANDOMIZE) personality(READ_IMPLIES_EXEC)
    socket(AF_ALG) socket(AF_VSOCK) socket(AF_PACKET) socket(AF_KEY) socket(AF_RDS) socket(AF_TIPC)
    socket(AF_BLUETOOTH) socket(AF_XDP)
""".split()  # noqa: SIM905  # a table of words
DENIED += ["socket(AF_INET, SOCK_RAW)", "socket(AF_INET, SCTP)", "socket(AF_INET, MPTCP)"]
DENIED += ["socket(AF_NETLINK, NETFILTER)", "socket(AF_NETLINK, XFRM)", "socket(AF_NETLINK, GENERIC)"]
DENIED += [f"sched_setscheduler({policy})" for policy in ("SCHED_IDLE", "SCHED_BATCH", "SCHED_FIFO", "high SCHED_IDLE")]
DENIED += [f"ioctl({name})" for name in ("FS_IOC_RESVSP", "FS_IOC_RESVSP64", "FS_IOC_ZERO_RANGE", "FS_IOC_FSSETXATTR")]
DENIED += ["ioctl(high FS_IOC_RESVSP64)"]
DENIED += [f"setsockopt({o})" for o in ("SO_ATTACH_FILTER", "high SO_ATTACH_FILTER", "SO_ATTACH_REUSEPORT_CBPF")]
DENIED += ["setsockopt(TCP_MD5SIG)", "setsockopt(TCP_MD5SIG_EXT)"]
LOCKS_OF_OPEN_FILES = ["fcntl(F_OFD_SETLK)", "fcntl(high F_OFD_SETLKW)"]
DENIED += ["sched_setattr", "ioprio_set(other)", "ioprio_set(user)"]
DENIED += [f"setpriority({whose})" for whose in ("other", "high other", "other group", "user")]
ALLOWED = """
    socket(AF_UNIX) socket(TCP) socket(UDP) socket(TCP6) socketpair(AF_UNIX) memfd_create openat2 statx faccessat2
    close_range copy_file_range epoll_create1 inotify_init1 eventfd2 timerfd_create pidfd_open landlock_create_ruleset
    seccomp prctl ptrace personality(query) rseq sched_setscheduler(SCHED_OTHER) sched_setaffinity
    setpriority(self) ioprio_set(self)
""".split()  # noqa: SIM905  # a table of words
ALLOWED += ["socket(AF_NETLINK, ROUTE)", "setpriority(own group)", "fallocate(hole)", "ioctl(FIONREAD)"]
ALLOWED += ["setsockopt(SO_RCVBUF)", "setsockopt(TCP_NODELAY)", "setsockopt(IPV6_V6ONLY)"]
ALLOWED += ["fcntl(F_SETLK)", "fcntl(F_DUPFD_CLOEXEC)"]
ALLOCATING = ["fallocate(disk)", "fallocate(beyond the end)"]
KERNEL_AIO = ["io_setup", "io_destroy", "io_submit", "io_cancel", "io_getevents", "io_pgetevents"]


@pytest.mark.parametrize("name", DENIED)
def test_system_call_is_denied(calls: dict[str, dict[str, int]], name: str) -> None:
    assert calls["hardened"][name] == EPERM
    assert calls["open"][name] != EPERM, "the control must reach the kernel"


@pytest.mark.parametrize("name", ALLOWED)
def test_system_call_reaches_the_kernel(calls: dict[str, dict[str, int]], name: str) -> None:
    assert calls["hardened"][name] not in (EPERM, ENOSYS)


def test_clone3_falls_back(calls: dict[str, dict[str, int]]) -> None:
    assert calls["hardened"]["clone3"] == ENOSYS
    assert calls["open"]["clone3"] != ENOSYS


@pytest.mark.parametrize("name", KERNEL_AIO)
def test_s203_kernel_aio_falls_back(calls: dict[str, dict[str, int]], name: str) -> None:
    """Its contexts are counted for the whole host."""
    assert calls["hardened"][name] == ENOSYS
    assert calls["open"][name] not in (ENOSYS, EPERM)


@pytest.mark.parametrize("name", LOCKS_OF_OPEN_FILES)
def test_s236_locks_of_open_files_fall_back(calls: dict[str, dict[str, int]], name: str) -> None:
    """No control group is charged for them, and they outlive each descriptor."""
    assert calls["hardened"][name] == EINVAL
    assert calls["open"][name] != EINVAL


@pytest.mark.parametrize("name", ALLOCATING)
def test_l06_allocating_falls_back_to_writing(calls: dict[str, dict[str, int]], name: str) -> None:
    assert calls["hardened"][name] == EOPNOTSUPP
    assert calls["open"][name] not in (EOPNOTSUPP, EPERM)


def test_every_probe_is_in_a_table(calls: dict[str, dict[str, int]]) -> None:
    known = {*DENIED, *ALLOWED, *ALLOCATING, *KERNEL_AIO, *LOCKS_OF_OPEN_FILES, "clone3"}
    assert calls["hardened"].keys() == known


@pytest.mark.parametrize("name", ["io_uring_setup", "socket(AF_VSOCK)", "socket(AF_ALG)", "vmsplice"])
def test_profile_denies_more_than_the_engines_own(
    engine: DockerEngine, calls: dict[str, dict[str, int]], name: str
) -> None:
    if not engine.version.startswith("20.10"):
        pytest.skip("newer engines deny some of these themselves")
    assert calls["engine"][name] != EPERM
    assert calls["hardened"][name] == EPERM


def test_32_bit_calls_kill(lab: Lab, probe: Path) -> None:
    shutil.copy(probe, lab.workspace / "probe")
    control = lab.plain("/workspace/probe", "int80").out
    if control == "none":  # such as Apple silicon
        pytest.skip("this processor has no 32-bit calls")
    assert control == "exit"
    assert lab.hardened("/workspace/probe", "int80").out == f"signal {SIGSYS}"


# --- builds work


MAKEFILE = """
all: hello asan threads
\t./hello && ./asan && ./threads
hello: hello.c ; gcc -o $@ $<
asan: hello.c ; gcc -fsanitize=address -o $@ $<
threads: threads.c ; gcc -pthread -o $@ $<
"""
HELLO = '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n'
THREADS = """#include <pthread.h>
#include <stdio.h>
static void *run(void *x) { return x; }
int main(void) { pthread_t t; int e = pthread_create(&t, 0, run, 0); pthread_join(t, 0); puts("threads"); return e; }
"""
CMAKE = "cmake_minimum_required(VERSION 3.18)\nproject(x C)\nadd_executable(x hello.c)\n"


@pytest.fixture
def project(engine: DockerEngine, build_image: str, tmp_path: Path) -> Lab:
    lab = make_lab(engine, build_image, tmp_path)
    for name, text in {
        "Makefile": MAKEFILE, "hello.c": HELLO, "threads.c": THREADS, "CMakeLists.txt": CMAKE,
    }.items():  # fmt: skip
        (lab.workspace / name).write_text(text)
    roomy = lab.spec.limits.model_copy(update={"tmp_bytes": 64 * 1024**2, "memory_bytes": 1024**3})
    return dataclasses.replace(lab, spec=dataclasses.replace(lab.spec, limits=roomy))


def test_make_threads_and_the_leak_sanitizer_work(project: Lab) -> None:
    outcome = project.hardened("make")
    assert outcome.exit_code == 0, outcome.out
    assert outcome.lines()[-3:] == ["hello", "hello", "threads"]


def test_cmake_works(project: Lab) -> None:
    outcome = project.hardened("sh", "-c", "cmake -B /tmp/b . && cmake --build /tmp/b && /tmp/b/x")
    assert outcome.exit_code == 0, outcome.out


# --- a hostile image


HOSTILE = """
FROM {base}
ENV LD_PRELOAD=/evil.so GIT_DIR=/evil BASH_ENV=/evil.sh NVIDIA_VISIBLE_DEVICES=all HARMLESS=1
ENTRYPOINT ["/bin/echo", "ENTRYPOINT-RAN"]
CMD ["image-command"]
HEALTHCHECK --interval=1s CMD touch /tmp/healthcheck-ran
STOPSIGNAL SIGCONT
WORKDIR /var
USER 0
{extra}
"""


def build(engine: DockerEngine, extra: str) -> str:
    """From the base image; no RUN, so that it is a matter of milliseconds. Made again if another test's `gc` removed an
    image between two of its steps.
    """
    text = HOSTILE.format(base="space-sandbox/base:latest", extra=extra)
    tag = f"space-sandbox-test-{uuid.uuid4().hex}"
    for _ in range(3):
        lines = engine.api.build(fileobj=io.BytesIO(text.encode()), tag=tag, rm=True, forcerm=True, labels=LABELS)
        answer = b"".join(lines)
        if b"Successfully tagged" in answer:
            return str(engine.api.inspect_image(tag)["Id"])
    raise AssertionError(answer)


@pytest.fixture(scope="module")
def hostile_images(engine: DockerEngine, base_image: str) -> Iterator[dict[str, str]]:
    images = {
        name: build(engine, extra)
        for name, extra in {"config": "", "volume": "VOLUME /data", "linker": "ENV LD_BIND_NOT=1"}.items()
    }
    yield images
    for digest in images.values():
        engine.api.remove_image(digest, force=True)


ENVIRONMENT = ("sh", "-c", "tr '\\0' '\\n' < /proc/self/environ; id -u; pwd; sleep 1.5; ls /tmp")


def test_image_configuration_does_not_win(lab: Lab, hostile_images: dict[str, str]) -> None:
    out = lab.hardened(*ENVIRONMENT, image=hostile_images["config"]).lines()
    names = {line.partition("=")[0] for line in out}
    assert (
        not {"LD_PRELOAD", "GIT_DIR", "BASH_ENV", "NVIDIA_VISIBLE_DEVICES", "ENTRYPOINT-RAN", "healthcheck-ran"} & names
    )
    assert {str(lab.spec.user[0]), "/workspace", "HARMLESS=1", "HOME=/home/sandbox"} <= {*out}


def test_control_image_configuration_wins_in_a_plain_container(lab: Lab, hostile_images: dict[str, str]) -> None:
    body: Body = {"Image": hostile_images["config"], "Labels": LABELS, "AttachStdout": True, "AttachStderr": True}
    body["HostConfig"] = {"NetworkMode": "none"}
    assert "ENTRYPOINT-RAN image-command" in execute(lab.engine, body, verify=False).out
    wait = "for i in $(seq 300); do [ -e /tmp/healthcheck-ran ] && break; sleep 0.1; done"  # the engine's timer is free
    body["Entrypoint"] = [*ENVIRONMENT[:-1], f"{wait}; {ENVIRONMENT[-1]}"]
    out = execute(lab.engine, body, verify=False).out
    assert {"LD_PRELOAD=/evil.so", "GIT_DIR=/evil", "0", "/var", "healthcheck-ran"} <= {*out.split("\n")}


def test_emptied_variable_would_stay_in_the_environment(lab: Lab, hostile_images: dict[str, str]) -> None:
    """Why a bare `NAME` is sent and not `NAME=`."""
    body = lab.body("sh", "-c", "tr '\\0' '\\n' < /proc/self/environ", image=hostile_images["config"])
    body["Env"] = ["GIT_DIR=", "LD_PRELOAD"]
    names = {line.partition("=")[0] for line in execute(lab.engine, body, verify=True).lines()}
    assert "GIT_DIR" in names
    assert "LD_PRELOAD" not in names


@pytest.mark.parametrize(("image", "field"), [("volume", "Config.Volumes"), ("linker", "Config.Env")])
def test_image_that_cannot_be_overridden_is_refused(
    lab: Lab, hostile_images: dict[str, str], image: str, field: str
) -> None:
    with pytest.raises(SandboxError, match=field):
        lab.hardened("true", image=hostile_images[image])


def test_engine_answer_matches_what_the_unit_tests_replay(lab: Lab) -> None:
    """The captured answer has the fields this engine gives."""
    captured = json.loads((ROOT / "tests" / "data" / "inspect-20.10.json").read_text())
    assert find_differences(lab.body("true"), captured) != ()
    unsent = {name for name, value in lab.body("true")["HostConfig"].items() if not value}
    assert lab.body("true")["HostConfig"].keys() - captured["HostConfig"].keys() <= unsent
