"""One row an option: a flag that is dropped or loosened fails by its own name."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from sandbox.engine.create_options import (
    HOSTS_FILE,
    PROTECTED_ENV,
    ContainerSpec,
    EgressMounts,
    Supervisor,
    create_options,
    is_protected_variable,
)
from sandbox.engine.verify_created import find_differences, require_same_options
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Limits
from sandbox.policy.container import ContainerPolicy, EffectiveContainerPolicy

DATA = Path(__file__).parents[2] / "data"
SECCOMP = '{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[]}'
POLICY = EffectiveContainerPolicy(container=ContainerPolicy(env={"CI": "true"}), seccomp_json=SECCOMP)
SPEC = ContainerSpec(
    name="sandbox-0123456789",
    image="sha256:" + "ab" * 32,
    argv=("make", "-j2", "test"),
    cwd=PurePosixPath("/workspace/src"),
    env={"CFLAGS": "-O1"},
    limits=Limits(
        memory_bytes=256 * 1024**2, cpus=1.5, pids=100, file_bytes=1024, open_files=512, tmp_bytes=4096, home_bytes=8192
    ),
    workspace=Path("/srv/sandbox/worktree"),
    git_mask=Path("/srv/sandbox/git-mask"),
    report=Path("/srv/sandbox/report"),
    user=(64000, 64001),
    runtime="runc",
    labels={"space.sandbox.run": "r1"},
    cpuset="0-1",
    hosts=Path("/srv/sandbox/hosts"),
)
PRIVATE = {"Propagation": "rprivate", "NonRecursive": True}


def bind(source: str, target: str, read_only: bool) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": f"/srv/sandbox/{source}",
        "Target": target,
        "ReadOnly": read_only,
        "BindOptions": PRIVATE,
    }


CONFIG: dict[str, Any] = {
    "Image": SPEC.image,
    "Entrypoint": ["make", "-j2", "test"],
    "Cmd": [],
    "User": "64000:64001",
    "WorkingDir": "/workspace/src",
    "Hostname": "sandbox",
    "Domainname": "",
    "StopSignal": "SIGKILL",
    "StopTimeout": 1,
    "Healthcheck": {"Test": ["NONE"]},
    "Volumes": {},
    "Tty": False,
    "OpenStdin": False,
    "StdinOnce": False,
    "AttachStdin": False,
    "AttachStdout": True,
    "AttachStderr": True,
    "NetworkDisabled": True,
    "Labels": {"space.sandbox.run": "r1"},
}
HOST_CONFIG: dict[str, Any] = {
    "Runtime": "runc",
    "Init": True,
    "Privileged": False,
    "CapDrop": ["ALL"],
    "CapAdd": [],
    "GroupAdd": [],
    "SecurityOpt": ["no-new-privileges", f"seccomp={SECCOMP}"],
    "ReadonlyRootfs": True,
    "ReadonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    "PidMode": "",
    "IpcMode": "private",
    "UTSMode": "",
    "UsernsMode": "",
    "CgroupnsMode": "private",
    "CgroupParent": "",
    "Cgroup": "",
    "Sysctls": {"net.ipv4.ip_unprivileged_port_start": "1024", "kernel.shm_rmid_forced": "1"},
    "AutoRemove": False,
    "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
    "LogConfig": {"Type": "none", "Config": {}},
    "Devices": [],
    "DeviceRequests": [],
    "DeviceCgroupRules": [],
    "NetworkMode": "none",
    "PublishAllPorts": False,
    "PortBindings": {},
    "Dns": [],
    "DnsOptions": [],
    "DnsSearch": [],
    "ExtraHosts": [],
    "Links": [],
    "Memory": 256 * 1024**2,
    "MemorySwap": 256 * 1024**2,
    "OomKillDisable": False,
    "OomScoreAdj": 500,
    "NanoCpus": 1_500_000_000,
    "CpusetCpus": "0-1",
    "CpuShares": 512,
    "PidsLimit": 100,
    "ShmSize": 64 * 1024**2,
    "Binds": [],
    "VolumesFrom": [],
    "VolumeDriver": "",
    "Tmpfs": {
        "/tmp": "rw,exec,nosuid,nodev,nr_inodes=65536,size=4096,mode=1777",
        "/home/sandbox": "rw,exec,nosuid,nodev,nr_inodes=65536,size=8192,mode=0700,uid=64000,gid=64001",
    },
    "Mounts": [
        bind("worktree", "/workspace", False),
        bind("git-mask", "/workspace/.git", True),
        bind("report", "/report", False),
        bind("hosts", "/etc/hosts", True),
    ],
}
ULIMITS = {"core": 0, "fsize": 1024, "memlock": 65536, "msgqueue": 0, "nofile": 512, "rtprio": 0}
MASKED = [
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
]


SUPERVISED = dataclasses.replace(
    SPEC, argv=(), env={}, cwd=PurePosixPath("/workspace"), supervisor=Supervisor(Path("/srv/sandbox/init"), 600)
)
OF_SUPERVISED = {
    "Entrypoint": ["/sandbox-init", "600,600", "/workspace", "/report"],
    "OpenStdin": True,
    "StdinOnce": False,
    "AttachStdin": True,
    "WorkingDir": "/workspace",
}
OF_SUPERVISED_HOST = {"Init": False, "Mounts": [*HOST_CONFIG["Mounts"], bind("init", "/sandbox-init", True)]}


def replaced(**changes: Any) -> ContainerSpec:
    return dataclasses.replace(SPEC, **changes)


@pytest.mark.parametrize(("field", "value"), CONFIG.items(), ids=CONFIG)
def test_config_option_is(field: str, value: Any) -> None:
    assert create_options(SPEC, POLICY)[field] == value


@pytest.mark.parametrize(("field", "value"), HOST_CONFIG.items(), ids=HOST_CONFIG)
def test_host_option_is(field: str, value: Any) -> None:
    assert create_options(SPEC, POLICY)["HostConfig"][field] == value


@pytest.mark.parametrize(("name", "value"), ULIMITS.items(), ids=ULIMITS)
def test_ulimit_is(name: str, value: int) -> None:
    ulimits = create_options(SPEC, POLICY)["HostConfig"]["Ulimits"]
    assert {"Name": name, "Soft": value, "Hard": value} in ulimits


@pytest.mark.parametrize("path", MASKED)
def test_kernel_file_is_masked(path: str) -> None:
    assert path in create_options(SPEC, POLICY)["HostConfig"]["MaskedPaths"]


def test_every_option_sent_has_a_row_above() -> None:
    body = create_options(SPEC, POLICY)
    assert body.keys() - CONFIG.keys() == {"Env", "HostConfig"}
    assert body["HostConfig"].keys() - HOST_CONFIG.keys() == {"Ulimits", "MaskedPaths"}


@pytest.mark.parametrize(("field", "value"), {**CONFIG, **OF_SUPERVISED}.items(), ids=CONFIG)
def test_config_option_of_a_supervised_guest_is(field: str, value: Any) -> None:
    assert create_options(SUPERVISED, POLICY)[field] == value


@pytest.mark.parametrize(("field", "value"), {**HOST_CONFIG, **OF_SUPERVISED_HOST}.items(), ids=HOST_CONFIG)
def test_host_option_of_a_supervised_guest_is(field: str, value: Any) -> None:
    assert create_options(SUPERVISED, POLICY)["HostConfig"][field] == value


def test_supervised_guest_is_sent_the_same_options() -> None:
    mine, other = create_options(SUPERVISED, POLICY), create_options(SPEC, POLICY)
    assert (mine.keys(), mine["HostConfig"].keys()) == (other.keys(), other["HostConfig"].keys())
    assert mine["Env"] == [entry for entry in other["Env"] if entry != "CFLAGS=-O1"]


SUPERVISED_REFUSED: dict[str, dict[str, Any]] = {
    "a command as well": {"argv": ("true",)},
    "an environment of its own": {"env": {"A": "1"}},
    "no lease": {"supervisor": Supervisor(Path("/srv/sandbox/init"), 0)},
    "a lease of more than a year": {"supervisor": Supervisor(Path("/srv/sandbox/init"), 31_536_001)},
    "negative lease": {"supervisor": Supervisor(Path("/srv/sandbox/init"), -1)},
    "relative binary": {"supervisor": Supervisor(Path("init"), 600)},
    "climbing binary": {"supervisor": Supervisor(Path("/srv/sandbox/../../init"), 600)},
}


@pytest.mark.parametrize("changes", SUPERVISED_REFUSED.values(), ids=SUPERVISED_REFUSED)
def test_supervised_guest_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SandboxError) as caught:
        create_options(dataclasses.replace(SUPERVISED, **changes), POLICY)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_environment_is_the_allowlist_then_bare_names_that_remove_what_the_image_sets() -> None:
    env = create_options(SPEC, POLICY)["Env"]
    assert env[:6] == [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/home/sandbox",
        "LANG=C.UTF-8",
        "TMPDIR=/tmp",
        "CI=true",
        "CFLAGS=-O1",
    ]
    assert env[6:] == sorted(PROTECTED_ENV)
    assert {"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GIT_DIR", "BASH_ENV", "ENV", "NVIDIA_VISIBLE_DEVICES"} <= {
        *env
    }


def test_check_may_choose_its_own_path() -> None:
    env = create_options(replaced(env={"PATH": "/workspace/bin"}), POLICY)["Env"]
    assert [entry for entry in env if entry.startswith("PATH")] == ["PATH=/workspace/bin"]


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "LD_ANYTHING", "GIT_DIR", "GIT_CONFIG_KEY_0", "BASH_ENV", "BASH_FUNC_ls%%"]
)
def test_protected_names_are_the_policys(name: str) -> None:
    assert is_protected_variable(name)


def test_optional_mounts_are_absent_when_not_given() -> None:
    host = create_options(replaced(git_mask=None, report=None, hosts=None), POLICY)["HostConfig"]
    assert [mount["Target"] for mount in host["Mounts"]] == ["/workspace"]


EGRESS = EgressMounts(*(Path("/srv/sandbox/room") / name for name in ("egress.sock", "relay", "ca.pem")))


def test_way_out_is_three_read_only_mounts_and_no_network() -> None:
    plain, fetching = (create_options(replaced(git_mask=None, egress=way), POLICY) for way in (None, EGRESS))
    mounts = fetching["HostConfig"].pop("Mounts")
    assert mounts == [
        *plain["HostConfig"].pop("Mounts"),
        bind("room/egress.sock", "/sandbox-egress", True),
        bind("room/relay", "/sandbox-relay", True),
        bind("room/ca.pem", "/sandbox-ca.pem", True),
    ]
    assert fetching == plain
    assert fetching["HostConfig"]["NetworkMode"] == "none"


JOINED: dict[str, Any] = {
    "joins": "0" * 64,
    "workspace": None,
    "git_mask": None,
    "report": None,
    "cwd": PurePosixPath("/tmp"),
}


def test_service_differs_from_a_check_in_its_network_files_and_directory_alone() -> None:
    plain, service = (create_options(replaced(**changes), POLICY) for changes in ({}, JOINED))
    wrong = {name for name in plain if name != "HostConfig" and plain[name] != service.get(name)}
    assert wrong == {"Hostname", "NetworkDisabled", "WorkingDir"}
    host, joined = plain["HostConfig"], service["HostConfig"]
    assert {name for name in host if host[name] != joined[name]} == {"NetworkMode", "Mounts"}
    assert joined["NetworkMode"] == f"container:{'0' * 64}"
    assert [mount["Target"] for mount in joined["Mounts"]] == ["/etc/hosts"]


def test_options_are_json_and_do_not_share_state() -> None:
    one, other = create_options(SPEC, POLICY), create_options(SPEC, POLICY)
    one["HostConfig"]["MaskedPaths"].clear()
    assert json.loads(json.dumps(other)) == other
    assert other["HostConfig"]["MaskedPaths"]


REFUSED: dict[str, dict[str, Any]] = {
    "no workspace": {"workspace": None, "git_mask": None},
    "service in the host's network": {**JOINED, "joins": "host"},
    "service beside a short id": {**JOINED, "joins": "0" * 12},
    "service with a worktree": {**JOINED, "workspace": SPEC.workspace},
    "service with a report": {**JOINED, "report": SPEC.report},
    "service with a way out": {**JOINED, "egress": EGRESS},
    "service in another directory": {**JOINED, "cwd": PurePosixPath("/etc")},
    "name with a slash": {"name": "sandbox/0123456"},
    "short name": {"name": "s"},
    "name with a newline": {"name": "sandbox-0123456789\n"},
    "image by tag": {"image": "space-sandbox/base:latest"},
    "image by short id": {"image": "sha256:abcd"},
    "no command": {"argv": ()},
    "empty command": {"argv": ("",)},
    "NUL in the command": {"argv": ("a\0b",)},
    "uid 0": {"user": (0, 64000)},
    "gid 0": {"user": (64000, 0)},
    "negative uid": {"user": (-1, 64000)},
    "unknown runtime": {"runtime": "kata"},
    "cwd outside": {"cwd": PurePosixPath("/etc")},
    "cwd a sibling": {"cwd": PurePosixPath("/workspace2")},
    "cwd climbing out": {"cwd": PurePosixPath("/workspace/../proc/self/fd/7")},
    "cwd relative": {"cwd": PurePosixPath("src")},
    "cwd with NUL": {"cwd": PurePosixPath("/workspace/a\0")},
    "root as workspace": {"workspace": Path("/")},
    "top folder as workspace": {"workspace": Path("/home")},
    "relative workspace": {"workspace": Path("work/tree")},
    "climbing workspace": {"workspace": Path("/srv/sandbox/../..")},
    "engine socket as report": {"report": Path("/var/run/docker.sock")},
    "engine socket as way out": {
        "git_mask": None,
        "egress": dataclasses.replace(EGRESS, socket=Path("/run/docker.sock")),
    },
    "relative way out": {"git_mask": None, "egress": dataclasses.replace(EGRESS, relay=Path("relay"))},
    "way out beside a worktree": {"egress": EGRESS},
    "env LD_PRELOAD": {"env": {"LD_PRELOAD": "x"}},
    "env GIT_DIR": {"env": {"GIT_DIR": "x"}},
    "env name with =": {"env": {"A=B": "x"}},
    "env empty name": {"env": {"": "x"}},
    "env value with NUL": {"env": {"A": "x\0y"}},
    "group of another": {"cgroup_parent": "/docker/../system.slice"},
    "group not at the top": {"cgroup_parent": "docker"},
    "group 0 of the host": {"user": (0, 0), "first_ids": (1000, 0)},
    "an id below those of the engine": {"user": (-1, 1), "first_ids": (1000, 1000)},
    "cpuset text": {"cpuset": "all"},
    "cpuset newline": {"cpuset": "0\n"},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SandboxError) as caught:
        create_options(replaced(**changes), POLICY)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_a_guest_may_be_root_of_a_namespace_that_is_not_the_hosts() -> None:
    assert create_options(replaced(user=(0, 0), first_ids=(1000, 1000)), POLICY)["User"] == "0:0"


@pytest.mark.parametrize("group", ["/space-sandbox", "space-sandbox.slice"])
def test_a_guest_is_put_into_the_group_of_all_guests(group: str) -> None:
    assert create_options(replaced(cgroup_parent=group), POLICY)["HostConfig"]["CgroupParent"] == group


@pytest.mark.parametrize("name", Limits.model_fields)
def test_limit_at_the_ceiling_is_given_and_above_it_refused(name: str) -> None:
    ceiling = getattr(POLICY.container.ceiling, name)
    create_options(replaced(limits=Limits(**{name: ceiling})), POLICY)
    with pytest.raises(SandboxError) as caught:
        create_options(replaced(limits=Limits(**{name: ceiling + 1})), POLICY)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert name in caught.value.brief


@pytest.mark.parametrize("cpus", [0.001, float("nan"), float("inf")])
def test_cpus_that_would_mean_no_limit_are_refused(cpus: float) -> None:
    with pytest.raises(SandboxError):
        create_options(replaced(limits=Limits(cpus=1).model_copy(update={"cpus": cpus})), POLICY)


@pytest.mark.parametrize(("name", "value"), [("cpus", 0.001), ("memory_bytes", 6 * 1024**2 - 1), ("open_files", 10)])
def test_a_limit_with_which_no_guest_starts_is_bad_input_and_can_be_taken_back(name: str, value: float) -> None:
    """runc with Docker 20.10 starts no guest with 10 open files, and each with 11."""
    with pytest.raises(SandboxError) as caught:
        create_options(replaced(limits=Limits(**{name: value})), POLICY)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert f"The limit {name} must be at least" in caught.value.brief
    assert f"--unset limits.{name}" in caught.value.hint


def test_only_runc_needs_open_files_of_the_guest_to_start_it() -> None:
    create_options(replaced(limits=Limits(open_files=11)), POLICY)
    policy = EffectiveContainerPolicy(container=ContainerPolicy(runtimes=("runc", "runsc")), seccomp_json=SECCOMP)
    create_options(replaced(limits=Limits(open_files=5), runtime="runsc"), policy)


def test_hosts_name_only_this_machine() -> None:
    assert [line.split()[1:] for line in HOSTS_FILE.splitlines()] == [["localhost"], ["localhost"]]


# --- verify: against what Docker Engine 20.10.24 answered for exactly this request


@pytest.fixture
def inspected() -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((DATA / "inspect-20.10.json").read_text())
    return answer


def test_what_the_engine_created_is_what_was_asked(inspected: dict[str, Any]) -> None:
    assert find_differences(create_options(SPEC, POLICY), inspected) == ()
    require_same_options(create_options(SPEC, POLICY), inspected)


def mutated(value: Any) -> Any:
    """A value of the same shape that says something else."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, dict):
        return {**value, "extra": "1", "Test": ["CMD", "x"]}
    return [*value, "extra"] if isinstance(value, list) else f"{value or ''}x"


REQUESTED = create_options(SPEC, POLICY)
FIELDS = [("Config", name) for name in REQUESTED if name not in ("HostConfig", "Env", "Labels")]
FIELDS += [("HostConfig", name) for name in REQUESTED["HostConfig"] if name != "Ulimits"]


@pytest.mark.parametrize(("section", "field"), FIELDS, ids=[".".join(f) for f in FIELDS])
def test_changed_field_is_caught(inspected: dict[str, Any], section: str, field: str) -> None:
    requested = REQUESTED["HostConfig"][field] if section == "HostConfig" else REQUESTED[field]
    inspected[section][field] = mutated(inspected[section].get(field) or requested)
    assert find_differences(REQUESTED, inspected) == (f"{section}.{field}",)


@pytest.mark.parametrize(("section", "field"), FIELDS, ids=[".".join(f) for f in FIELDS])
def test_lost_field_is_caught_unless_it_asked_for_nothing(inspected: dict[str, Any], section: str, field: str) -> None:
    requested = REQUESTED["HostConfig"][field] if section == "HostConfig" else REQUESTED[field]
    inspected[section][field] = None
    assert find_differences(REQUESTED, inspected) == ((f"{section}.{field}",) if requested else ())


def change(*path: str, to: Any) -> tuple[tuple[str, ...], Any]:
    return path, to


UNSAFE = {
    "privileged": change("HostConfig", "Privileged", to=True),
    "added capability": change("HostConfig", "CapAdd", to=["SYS_ADMIN"]),
    "kept capabilities": change("HostConfig", "CapDrop", to=["MKNOD"]),
    "device": change("HostConfig", "Devices", to=[{"PathOnHost": "/dev/vda", "PathInContainer": "/dev/vda"}]),
    "gpu": change("HostConfig", "DeviceRequests", to=[{"Driver": "nvidia", "Count": -1}]),
    "bind": change("HostConfig", "Binds", to=["/:/host"]),
    "volumes from": change("HostConfig", "VolumesFrom", to=["other"]),
    "host pids": change("HostConfig", "PidMode", to="host"),
    "host network": change("HostConfig", "NetworkMode", to="host"),
    "default network": change("HostConfig", "NetworkMode", to="default"),
    "host ipc": change("HostConfig", "IpcMode", to="host"),
    "host uts": change("HostConfig", "UTSMode", to="host"),
    "host users": change("HostConfig", "UsernsMode", to="host"),
    "host cgroups": change("HostConfig", "CgroupnsMode", to="host"),
    "sysctl": change("HostConfig", "Sysctls", to={"kernel.core_pattern": "|/x"}),
    "group": change("HostConfig", "GroupAdd", to=["docker"]),
    "oom immune": change("HostConfig", "OomKillDisable", to=True),
    "unlimited swap": change("HostConfig", "MemorySwap", to=-1),
    "no pids limit": change("HostConfig", "PidsLimit", to=None),
    "restarts": change("HostConfig", "RestartPolicy", to={"Name": "always", "MaximumRetryCount": 0}),
    "unconfined": change("HostConfig", "SecurityOpt", to=["no-new-privileges", "seccomp=unconfined"]),
    "label disable": change("HostConfig", "SecurityOpt", to=[*REQUESTED["HostConfig"]["SecurityOpt"], "label=disable"]),
    "unmasked": change("HostConfig", "MaskedPaths", to=[]),
    "writable proc": change("HostConfig", "ReadonlyPaths", to=[]),
    "no ulimits": change("HostConfig", "Ulimits", to=None),
    "published port": change("HostConfig", "PortBindings", to={"80/tcp": [{"HostPort": "80"}]}),
    "root": change("Config", "User", to="0"),
    "image user": change("Config", "User", to=""),
    "image volume": change("Config", "Volumes", to={"/data": {}}),
    "image health check": change("Config", "Healthcheck", to={"Test": ["CMD", "x"]}),
    "other image": change("Image", to="sha256:" + "cd" * 32),
    "AppArmor off": change("AppArmorProfile", to="unconfined"),
    "no environment": change("Config", "Env", to=None),
    "no labels": change("Config", "Labels", to=None),
    "other label": change("Config", "Labels", to={"space.sandbox.run": "r2"}),
    "no mounts": change("Mounts", to=[]),
    "no mounts at all": change("Mounts", to=None),
}


@pytest.mark.parametrize(("path", "to"), UNSAFE.values(), ids=UNSAFE)
def test_unsafe_container_is_refused(inspected: dict[str, Any], path: tuple[str, ...], to: Any) -> None:
    target = inspected
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = to
    with pytest.raises(SandboxError) as caught:
        require_same_options(REQUESTED, inspected)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert ".".join(path) in caught.value.brief


@pytest.mark.parametrize("name", ULIMITS)
@pytest.mark.parametrize("key", ["Soft", "Hard"])
def test_raised_ulimit_is_caught(inspected: dict[str, Any], name: str, key: str) -> None:
    limit = next(limit for limit in inspected["HostConfig"]["Ulimits"] if limit["Name"] == name)
    limit[key] += 1
    assert find_differences(REQUESTED, inspected) == ("HostConfig.Ulimits",)


def test_second_ulimit_of_one_name_is_caught(inspected: dict[str, Any]) -> None:
    inspected["HostConfig"]["Ulimits"].insert(0, {"Name": "core", "Soft": -1, "Hard": -1})
    assert find_differences(REQUESTED, inspected) == ("HostConfig.Ulimits",)


@pytest.mark.parametrize("key", ["Type", "Source", "Destination", "RW", "Propagation"])
@pytest.mark.parametrize("index", range(4))
def test_changed_mount_is_caught(inspected: dict[str, Any], index: int, key: str) -> None:
    inspected["Mounts"][index][key] = mutated(inspected["Mounts"][index][key])
    assert find_differences(REQUESTED, inspected) == ("Mounts",)


@pytest.mark.parametrize("key", ["Type", "Source", "Target", "ReadOnly", "BindOptions"])
def test_changed_requested_mount_is_caught(inspected: dict[str, Any], key: str) -> None:
    mount = inspected["HostConfig"]["Mounts"][0]
    mount[key] = mutated(mount.get(key, False))
    assert find_differences(REQUESTED, inspected) == ("HostConfig.Mounts",)


def test_anonymous_volume_of_the_image_is_caught(inspected: dict[str, Any]) -> None:
    inspected["Mounts"].append({"Type": "volume", "Source": "", "Destination": "/data", "RW": True, "Propagation": ""})
    assert find_differences(REQUESTED, inspected) == ("Mounts",)


@pytest.mark.parametrize("entry", ["LD_PRELOAD=/x", "LD_BIND_NOT=1", "BASH_FUNC_make%%=() { x; }", "PATH=/x"])
def test_dangerous_variable_of_the_image_is_caught(inspected: dict[str, Any], entry: str) -> None:
    inspected["Config"]["Env"].append(entry)
    assert find_differences(REQUESTED, inspected) == ("Config.Env",)


def test_harmless_additions_of_image_and_engine_are_accepted(inspected: dict[str, Any]) -> None:
    inspected["Config"]["Env"].append("PYTHON_VERSION=3.13")
    inspected["Config"]["Healthcheck"]["Interval"] = 1_000_000_000
    inspected["Config"]["Labels"]["org.opencontainers.image.title"] = "x"
    inspected["HostConfig"]["Ulimits"].append({"Name": "stack", "Soft": 1, "Hard": 1})
    inspected["HostConfig"]["OomKillDisable"] = None  # what version 2 of cgroups answers
    inspected["AppArmorProfile"] = "docker-default"
    assert find_differences(REQUESTED, inspected) == ()


def test_answer_without_any_field_is_refused() -> None:
    wrong = find_differences(REQUESTED, {})
    assert {"Image", "Mounts", "Config.User", "HostConfig.CapDrop", "HostConfig.SecurityOpt"} <= {*wrong}


def test_verification_changes_neither_side(inspected: dict[str, Any]) -> None:
    before = copy.deepcopy((REQUESTED, inspected))
    find_differences(REQUESTED, inspected)
    assert (REQUESTED, inspected) == before
