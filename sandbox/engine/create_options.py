"""Translate a policy and a container spec to the body of `POST /containers/create`.

Every setting that an image could make is overridden, and everything a guest must not have is sent as an explicit empty
value, so that `verify_created` can compare the container field by field. docs/hardening.md has a row for each option.
Fields: https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerCreate
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import Limits
from sandbox.models.checks import describe_small_limit, describe_unusable_word
from sandbox.policy.container import EffectiveContainerPolicy

HOSTS_FILE = "127.0.0.1\tlocalhost\n::1\tlocalhost\n"
"""Content for `ContainerSpec.hosts`."""

_LEAST_OPEN_FILES = {"runc": 11}  # of the guest, which the runtime needs to start it: measured with runc 1.1
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

PROTECTED_ENV = frozenset(
    {
        "BASHOPTS",
        "BASH_ENV",
        "ENV",
        "GCONV_PATH",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_ASKPASS",
        "GIT_ATTR_SOURCE",
        "GIT_COMMON_DIR",
        "GIT_CONFIG",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_PARAMETERS",
        "GIT_CONFIG_SYSTEM",
        "GIT_DIR",
        "GIT_EDITOR",
        "GIT_EXEC_PATH",
        "GIT_EXTERNAL_DIFF",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PAGER",
        "GIT_PROXY_COMMAND",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_TEMPLATE_DIR",
        "GIT_TRACE",
        "GIT_WORK_TREE",
        "GLIBC_TUNABLES",
        "HOSTALIASES",
        "LD_AUDIT",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LOCALDOMAIN",
        "LOCPATH",
        "NLSPATH",
        "NOTIFY_SOCKET",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_VISIBLE_DEVICES",
        "PROMPT_COMMAND",
        "RESOLV_HOST_CONF",
        "RES_OPTIONS",
        "SHELLOPTS",
        "SSH_AUTH_SOCK",
    }
)
"""Names an image may not set: they change which code the guest's PID 1, its shells or its git start, or ask a runtime
hook for a device. Each is removed from an image's environment; a check that sets one is refused."""

INHERITED_PREFIXES = ("LD_", "BASH_FUNC_", "_LIBCONTAINER_")
"""Families with too many names to list: `verify_created` refuses an image that adds such a name."""

PROTECTED_PREFIXES = (*INHERITED_PREFIXES, "GIT_")

MASKED_PATHS = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
)
"""Sent explicitly: engine 20.10 does not mask interrupts and powercap yet. Paths that a kernel lacks are skipped."""

READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

FIRST_PORT_SYSCTL = "net.ipv4.ip_unprivileged_port_start"
SYSCTLS = {FIRST_PORT_SYSCTL: "1024", "kernel.shm_rmid_forced": "1"}
"""Ports as on an ordinary host: engines since 20.10 open all of them to a container with its own network namespace.
System V shared memory goes with the last process that uses it: it would stay, and count, while its container is kept.
"""

_NAME = lazy_pattern(r"[a-z0-9][a-z0-9-]{7,80}")
_IMAGE = lazy_pattern(r"sha256:[0-9a-f]{64}")
_CPUSET = lazy_pattern(r"(\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*)?")
_CONTAINER_ID = lazy_pattern(r"[0-9a-f]{64}")
_CGROUP_PARENT = lazy_pattern(r"(/[a-z0-9-]{1,160}|[a-z0-9-]{1,160}\.slice)?")
_ENV_NAME = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


SERVICE_DIRECTORY = PurePosixPath("/tmp")  # noqa: S108  # the guest's own tmpfs
"""Where services run: they have no workspace."""

SUPERVISOR_TARGET = "/sandbox-init"
MAX_LEASE_S = 31_536_000  # the maximum that images/init/init.c accepts


@dataclass(frozen=True)
class Supervisor:
    """Our PID 1 (images/init), mounted into any image. It takes commands over stdin, and exits after `lease_s` without
    one, or after `silence_s` if a check is not over: a controller that was held up so long keeps its check.

    `lease_s`: at most a year. `silence_s`: not shorter than the lease is. `binary`: static, at a path with content that
    never changes: the guest keeps the file it was started with.
    """

    binary: Path
    lease_s: int
    silence_s: int = 60

    def argv(self, folders: Sequence[str]) -> tuple[str, ...]:
        """Return its command. `folders`: where checks write; PID 1 first tries to write to each (ownership.py)."""
        return (SUPERVISOR_TARGET, f"{self.lease_s},{max(self.lease_s, self.silence_s)}", *folders)


@dataclass(frozen=True)
class AccountFiles:
    """Host paths of the guest's /etc/passwd and /etc/group: no image has an entry for a uid of one task."""

    passwd: Path
    group: Path


@dataclass(frozen=True)
class GuestAccount:
    """The user that a guest runs as, uid and gid on this host, and the files that name it.

    `shared`: programs of the controller's user and other guests have the same uid. `first_ids`: the host's uid and gid
    of the guest's 0 (user_maps.py).
    """

    user: tuple[int, int]
    files: AccountFiles
    shared: bool = False
    first_ids: tuple[int, int] = (0, 0)

    @property
    def guest_user(self) -> tuple[int, int]:
        """Its uid and gid as the guest sees them."""
        return self.user[0] - self.first_ids[0], self.user[1] - self.first_ids[1]


EGRESS_SOCKET_TARGET = "/sandbox-egress"
RELAY_TARGET = "/sandbox-relay"
CA_FILE_TARGET = "/sandbox-ca.pem"


@dataclass(frozen=True)
class EgressMounts:
    """What a guest that fetches packages gets in addition; no guest that runs foreign code ever gets it.

    `socket`: of the proxy (sandbox/egress). `relay`: our static program that offers it as an HTTP proxy on loopback.
    `ca_file`: the CA certificates of the registries.
    """

    socket: Path
    relay: Path
    ca_file: Path

    @property
    def binds(self) -> tuple[tuple[Path, str], ...]:
        """Host and guest paths, all read-only: a socket accepts connections nevertheless."""
        return (self.socket, EGRESS_SOCKET_TARGET), (self.relay, RELAY_TARGET), (self.ca_file, CA_FILE_TARGET)


@dataclass(frozen=True)
class LayerMount:
    """A tree of packages, read-only at `target` in the guest (docs/dependencies.md)."""

    tree: Path
    target: PurePosixPath


@dataclass(frozen=True)
class ContainerSpec:
    """One container to create. Host paths are absolute; no value comes from a repository.

    The caller has checked that `cwd` is a directory of the workspace reached without a symlink: the runtime resolves it
    as root inside the container, and creates it there when it is missing (CVE-2024-21626, CVE-2019-16884).
    A supervised guest has no own command: `argv` and `env` are empty, each check has its own (see guest_commands.py).
    """

    name: str
    image: str  # sha256:...
    argv: tuple[str, ...]
    cwd: PurePosixPath  # inside policy.mounts.workspace
    env: Mapping[str, str]  # the check's additions
    limits: Limits
    workspace: Path | None  # read-write at /workspace; None: only for a guest that joins another
    git_mask: Path | None  # read-only at /workspace/.git, which must exist there and be a file
    report: Path | None  # read-write at /report
    user: tuple[int, int]  # as the guest sees it
    runtime: str
    labels: Mapping[str, str]
    cpuset: str  # "0-1"; "": every CPU
    workspace_read_only: bool = False  # for guests that only read
    hosts: Path | None = None  # read-only at /etc/hosts: without a network the engine leaves that file empty
    account_files: AccountFiles | None = None  # read-only at /etc/passwd and /etc/group; None: the image's
    cgroup_parent: str = ""  # the control group of all guests (guest_group.py); "": the engine's own
    supervisor: Supervisor | None = None  # its binary read-only at /sandbox-init; None: the engine's init is PID 1
    egress: EgressMounts | None = None  # only of a guest that fetches; it has no network either
    layers: tuple[LayerMount, ...] = ()  # read-only
    first_ids: tuple[int, int] = (0, 0)  # uid and gid on this host of the guest's 0 (user_maps.py)
    joins: str = ""  # id of the guest that shares its network namespace, which has no way out, with a service


def create_options(spec: ContainerSpec, policy: EffectiveContainerPolicy) -> dict[str, Any]:
    """Translate to `POST /containers/create`: pure, so each hardening flag is unit-tested. The name is a URL query.

    Raises: `policy_violation` when the spec asks for more than the policy allows; `invalid_input` for limits with which
    no guest starts.
    """
    _require_identity(spec, policy)
    _require_paths(spec, policy)
    _require_limits(spec.limits, policy.container.ceiling, spec.runtime)
    return {
        **_command_options(spec, policy),
        "Image": spec.image,
        "Labels": dict(spec.labels),
        "HostConfig": {
            **_isolation_options(spec, policy),
            **_device_options(),
            **_network_options(spec),
            **_resource_options(spec, policy),
            **_file_options(spec, policy),
        },
    }


def require_environment(env: Mapping[str, str]) -> None:
    """Raises: `policy_violation` for a variable that a check may not set; `invalid_input` for one that no program can
    be started with.
    """
    for name, value in env.items():
        if not _ENV_NAME.fullmatch(name) or is_protected_variable(name):
            raise _violation(f"A check may not set the environment variable {name!r}")
        if "\0" in value:
            raise _violation("An environment variable holds a NUL byte")
        if why := describe_unusable_word(f"{name}={value}"):
            raise _unusable(f"The environment variable {name} cannot be set: {why}")


def require_command(argv: Sequence[str]) -> None:
    """Raises: `policy_violation` for an empty command or NUL bytes; `invalid_input` for a word that no program can be
    started with.
    """
    if not argv or not argv[0] or any("\0" in word for word in argv):
        raise _violation("A check needs a command without NUL bytes")
    for number, word in enumerate(argv):
        if why := describe_unusable_word(word):
            raise _unusable(f"The word {number + 1} of the command cannot be used: {why}")


def require_directory(cwd: PurePosixPath, policy: EffectiveContainerPolicy) -> None:
    """Raises: `policy_violation` unless the path is inside the workspace."""
    if ".." in cwd.parts or not cwd.is_relative_to(policy.container.mounts.workspace) or "\0" in str(cwd):
        raise _violation(f"A check runs inside {policy.container.mounts.workspace}, not in {cwd}")


def is_protected_variable(name: str) -> bool:
    """Whether only the policy may set this environment variable."""
    return name in PROTECTED_ENV or name.startswith(PROTECTED_PREFIXES)


def _command_options(spec: ContainerSpec, policy: EffectiveContainerPolicy) -> dict[str, Any]:
    uid, gid = spec.user
    talks = spec.supervisor is not None
    return {
        # The whole command: with an empty entrypoint the engine uses the image's own.
        "Entrypoint": list(spec.supervisor.argv(_writable_folders(spec, policy)) if spec.supervisor else spec.argv),
        "Cmd": [],
        "User": f"{uid}:{gid}",
        "WorkingDir": str(spec.cwd),
        "Env": _environment(spec, policy),
        **({} if spec.joins else {"Hostname": "sandbox"}),  # the engine gives a joined guest that of the other
        "Domainname": "",
        "StopSignal": "SIGKILL",
        "StopTimeout": 1,
        "Healthcheck": {"Test": ["NONE"]},
        "Volumes": {},
        "Tty": False,
        "OpenStdin": talks,
        "StdinOnce": False,  # a later controller connects to the same guest
        "AttachStdin": talks,
        "AttachStdout": True,
        "AttachStderr": True,
        "NetworkDisabled": not spec.joins,  # it would make a namespace of its own instead of joining the other
    }


def _writable_folders(spec: ContainerSpec, policy: EffectiveContainerPolicy) -> list[str]:
    """List the mounted host folders that a check writes to, by their guest paths."""
    mounts = policy.container.mounts
    workspace = [] if spec.workspace is None or spec.workspace_read_only else [mounts.workspace]
    return [*workspace, *([mounts.report] if spec.report else [])]


def _environment(spec: ContainerSpec, policy: EffectiveContainerPolicy) -> list[str]:
    """`NAME=value` sets a variable; a bare `NAME` removes the image's (seen on 20.10; `NAME=` leaves it empty)."""
    require_environment(spec.env)
    chosen = {
        "PATH": PATH,
        "HOME": policy.container.mounts.home,
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",  # noqa: S108  # the guest's own tmpfs
        **policy.container.env,
        **spec.env,
    }
    return [f"{name}={value}" for name, value in chosen.items()] + sorted(PROTECTED_ENV - chosen.keys())


def _isolation_options(spec: ContainerSpec, policy: EffectiveContainerPolicy) -> dict[str, Any]:
    return {
        "Runtime": spec.runtime,
        "Init": spec.supervisor is None,  # our supervisor is PID 1 itself: it reaps, and must not have a parent
        "Privileged": False,
        "CapDrop": ["ALL"],
        "CapAdd": [],
        "GroupAdd": [],
        "SecurityOpt": ["no-new-privileges", f"seccomp={policy.seccomp_json}"],
        "ReadonlyRootfs": True,
        "MaskedPaths": list(MASKED_PATHS),
        "ReadonlyPaths": list(READONLY_PATHS),
        "PidMode": "",
        "IpcMode": "private",
        "UTSMode": "",
        "UsernsMode": "",
        "CgroupnsMode": "private",
        "CgroupParent": spec.cgroup_parent,
        "Cgroup": "",
        "Sysctls": dict(SYSCTLS),
        "AutoRemove": False,  # would lose the exit status
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "LogConfig": {"Type": "none", "Config": {}},  # we attach before the start; a log file has no useful limit
    }


def _device_options() -> dict[str, Any]:
    return {"Devices": [], "DeviceRequests": [], "DeviceCgroupRules": []}


def _network_options(spec: ContainerSpec) -> dict[str, Any]:
    return {
        "NetworkMode": f"container:{spec.joins}" if spec.joins else "none",
        "PublishAllPorts": False,
        "PortBindings": {},
        "Dns": [],
        "DnsOptions": [],
        "DnsSearch": [],
        "ExtraHosts": [],
        "Links": [],
    }


def _resource_options(spec: ContainerSpec, policy: EffectiveContainerPolicy) -> dict[str, Any]:
    limits, container = spec.limits, policy.container
    return {
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,  # memory plus swap: no swap beyond the limit
        "OomKillDisable": False,
        "OomScoreAdj": container.oom_score_adj,
        "NanoCpus": round(limits.cpus * 1e9),
        "CpusetCpus": spec.cpuset,  # the quota alone leaves `nproc` at the host's count
        "CpuShares": container.cpu_shares,
        "PidsLimit": limits.pids,
        "ShmSize": container.shm_bytes,
        "Ulimits": [
            {"Name": name, "Soft": value, "Hard": value}
            for name, value in (
                ("core", container.ulimits.core),
                ("fsize", limits.file_bytes),
                ("memlock", container.ulimits.memlock_bytes),
                ("msgqueue", container.ulimits.msgqueue_bytes),
                ("nofile", limits.open_files),
                ("rtprio", container.ulimits.rtprio),
            )
        ],
    }


def _file_options(spec: ContainerSpec, policy: EffectiveContainerPolicy) -> dict[str, Any]:
    mounts, inodes = policy.container.mounts, policy.container.tmp_inodes
    uid, gid = spec.user
    tmpfs = f"rw,exec,nosuid,nodev,nr_inodes={inodes}"  # exec: builds run programs that they write there
    home = f"{tmpfs},size={spec.limits.home_bytes},mode=0700,uid={uid},gid={gid}"
    binds = (
        (spec.workspace, mounts.workspace, spec.workspace_read_only),
        (spec.git_mask, f"{mounts.workspace}/.git", True),
        (spec.report, mounts.report, False),
        (spec.hosts, "/etc/hosts", True),
        *((path, target, True) for path, target in _account_mounts(spec.account_files)),
        (spec.supervisor.binary if spec.supervisor else None, SUPERVISOR_TARGET, True),
        *((path, target, True) for path, target in (spec.egress.binds if spec.egress else ())),
        *((layer.tree, str(layer.target), True) for layer in spec.layers),
    )
    return {
        "Binds": [],
        "VolumesFrom": [],
        "VolumeDriver": "",
        "Tmpfs": {"/tmp": f"{tmpfs},size={spec.limits.tmp_bytes},mode=1777", mounts.home: home},  # noqa: S108
        "Mounts": [_bind_mount(source, target, read_only) for source, target, read_only in binds if source is not None],
    }


def _account_mounts(files: AccountFiles | None) -> tuple[tuple[Path, str], ...]:
    return () if files is None else ((files.passwd, "/etc/passwd"), (files.group, "/etc/group"))


def _bind_mount(source: Path, target: str, read_only: bool) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": str(source),
        "Target": target,
        "ReadOnly": read_only,
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
    }


def _require_identity(spec: ContainerSpec, policy: EffectiveContainerPolicy) -> None:
    if not _NAME.fullmatch(spec.name):
        raise _violation(f"Not a valid container name: {spec.name!r}")
    if not _IMAGE.fullmatch(spec.image):
        raise _violation(f"An image must be given by its digest, not as {spec.image!r}")
    _require_command_or_supervisor(spec)
    if any(seen < 0 or seen + first < 1 for seen, first in zip(spec.user, spec.first_ids, strict=True)):
        raise _violation("A guest must not run as uid or gid 0 of this host")
    if spec.runtime not in policy.container.runtimes:
        raise _violation(
            f"The policy does not allow the runtime {spec.runtime!r}",
            f"It allows {', '.join(policy.container.runtimes)}; see container.runtime and policies/container.toml.",
        )
    if not _CPUSET.fullmatch(spec.cpuset):
        raise _violation(f"Not a valid CPU set: {spec.cpuset!r}")
    if not _CGROUP_PARENT.fullmatch(spec.cgroup_parent):
        raise _violation(f"Not a valid control group: {spec.cgroup_parent!r}")


def _require_command_or_supervisor(spec: ContainerSpec) -> None:
    """Require either a command or a supervisor that receives commands later: with both it is unclear which runs."""
    if spec.supervisor is None:
        require_command(spec.argv)
    elif spec.argv or spec.env or not 1 <= spec.supervisor.lease_s <= MAX_LEASE_S:
        raise _violation(f"A supervised guest must have no command and a lease of 1 to {MAX_LEASE_S} s")


def _require_paths(spec: ContainerSpec, policy: EffectiveContainerPolicy) -> None:
    _require_no_worktree_if_joined(spec)
    if not spec.joins:
        require_directory(spec.cwd, policy)
    binary = spec.supervisor.binary if spec.supervisor else None
    accounts = (path for path, _ in _account_mounts(spec.account_files))
    if spec.egress is not None and spec.git_mask is not None:
        raise _violation("A guest with a way out must not have a worktree")
    egress = (path for path, _ in spec.egress.binds) if spec.egress else ()
    layers = (layer.tree for layer in spec.layers)
    for path in (spec.workspace, spec.git_mask, spec.report, spec.hosts, *accounts, binary, *egress, *layers):
        if path is not None and not _is_bindable(path):
            raise _violation(f"{path} may not be mounted into a guest")


def _require_no_worktree_if_joined(spec: ContainerSpec) -> None:
    """A service gets no file of the check: neither can reach the other but through the loopback interface."""
    if not spec.joins:
        if spec.workspace is None:
            raise _violation("A guest needs a workspace unless it joins another")
        return
    if not _CONTAINER_ID.fullmatch(spec.joins):
        raise _violation(f"Not the id of a container: {spec.joins!r}")
    if spec.workspace or spec.git_mask or spec.report or spec.layers or spec.egress:
        raise _violation("A service must have neither a worktree nor a way out")
    if spec.cwd != SERVICE_DIRECTORY:
        raise _violation(f"A service runs in {SERVICE_DIRECTORY}, not in {spec.cwd}")


def _is_bindable(path: Path) -> bool:
    shallow = path.parent == path.parent.parent  # the root, or a folder directly below it
    return path.is_absolute() and not shallow and ".." not in path.parts and path.name != "docker.sock"


def _require_limits(limits: Limits, ceiling: Limits, runtime: str) -> None:
    for name in Limits.model_fields:
        asked, most = getattr(limits, name), getattr(ceiling, name)
        if asked > most:
            raise _violation(
                f"The limit {name}={asked} is above the policy's ceiling of {most}",
                "Lower it in the profile, or raise [ceiling] in policies/container.toml.",
            )
    why, files = describe_small_limit(dict(limits)), _LEAST_OPEN_FILES.get(runtime, 1)
    if not why and limits.open_files < files:
        why = f"open_files must be at least {files}: {runtime} starts no guest with less"
    if why:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The limit {why}",
            hint="Raise it where it is set: in the profile, in config.toml, or with `sandbox repo set REPO --unset "
            f"limits.{why.split()[0]}`.",
        )


def _unusable(brief: str) -> SandboxError:
    return SandboxError(ErrorCode.INVALID_INPUT, brief, hint="Put such a value into a file of the repository.")


def _violation(brief: str, hint: str = "") -> SandboxError:
    return SandboxError(ErrorCode.POLICY_VIOLATION, brief, hint=hint)
