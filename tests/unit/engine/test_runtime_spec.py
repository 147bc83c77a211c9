"""The runtime's configuration as Podman 4.3.1 wrote it, and each way in which it may differ from the request."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.engine.podman_request import MAX_UID_PROCESSES, OWN_VARIABLES, build_request
from sandbox.engine.runtime_spec import find_spec_differences, is_same_filter

DATA = Path(__file__).parents[2] / "data" / "podman-4.3.1"
PROFILE = json.loads((Path(__file__).parents[3] / "policies" / "seccomp.json").read_text())
Change = Callable[[dict[str, Any]], object]


def loaded_rules() -> list[dict[str, Any]]:
    """The rules as Podman gives them to the runtime: without conditions and comments."""
    kept = ("names", "action", "errnoRet", "args")
    return [{name: rule[name] for name in kept if name in rule} for rule in copy.deepcopy(PROFILE["syscalls"])]


@pytest.fixture
def options() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / "options.json").read_text())
    found["HostConfig"]["SecurityOpt"] = ["no-new-privileges", f"seccomp={json.dumps(PROFILE)}"]
    return found


@pytest.fixture
def spec() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / "config.json").read_text())
    found["linux"]["seccomp"]["syscalls"] = loaded_rules()
    return found


def test_what_podman_made_of_the_request_is_the_request(options: dict[str, Any], spec: dict[str, Any]) -> None:
    assert find_spec_differences(options, spec) == ()


@pytest.mark.parametrize(("rootless", "asked"), [(True, []), (False, [MAX_UID_PROCESSES])])
def test_a_rootless_engine_is_asked_for_no_limit_that_its_runtime_may_not_set(
    rootless: bool, asked: list[int], options: dict[str, Any]
) -> None:
    """It may not raise that of its user (seen: Podman 5.4.2, runc 1.1.15), whose own it sets unasked."""
    request = build_request("sandbox-x", options, "/tmp/profile.json", rootless=rootless)
    assert [limit["hard"] for limit in request["r_limits"] if limit["type"] == "nproc"] == asked


def test_a_rootless_engine_has_no_rules_for_devices(options: dict[str, Any], spec: dict[str, Any]) -> None:
    """Control: without them any other guest may open what it finds or makes."""
    del spec["linux"]["resources"]["devices"]
    assert find_spec_differences(options, spec) == ("linux.resources.devices",)

    assert find_spec_differences(options, spec, rootless=True) == ()
    spec["linux"]["resources"]["devices"] = [{"allow": True, "access": "rwm"}]
    assert find_spec_differences(options, spec, rootless=True) == ("linux.resources.devices",)


def find_mount(spec: dict[str, Any], target: str) -> dict[str, Any]:
    found: dict[str, Any] = next(mount for mount in spec["mounts"] if mount["destination"] == target)
    return found


CHANGES: dict[str, tuple[str, Change]] = {
    "another program": ("process.args", lambda s: s["process"].update(args=["sh"])),
    "another directory": ("process.cwd", lambda s: s["process"].update(cwd="/")),
    "root": ("process.user", lambda s: s["process"].update(user={"uid": 0, "gid": 0})),
    "a group": ("process.user", lambda s: s["process"]["user"].update(additionalGids=[0])),
    "a capability": ("process.capabilities", lambda s: s["process"].update(capabilities={"bounding": ["CAP_CHOWN"]})),
    "new privileges": ("process.noNewPrivileges", lambda s: s["process"].update(noNewPrivileges=False)),
    "a terminal": ("process.terminal", lambda s: s["process"].update(terminal=True)),
    "apparmor off": ("process.apparmorProfile", lambda s: s["process"].update(apparmorProfile="unconfined")),
    "a loader": ("process.env", lambda s: s["process"]["env"].append("LD_PRELOAD=/workspace/x.so")),
    "a variable twice": ("process.env", lambda s: s["process"]["env"].append("HOME=/root")),
    "a variable that is missing": ("process.env", lambda s: s["process"]["env"].remove("HOME=/home/sandbox")),
    "a removed variable": ("process.env", lambda s: s["process"]["env"].append("BASH_ENV=/workspace/x")),
    "no limit of files": ("process.rlimits", lambda s: s["process"]["rlimits"].pop(0)),
    "killed last": ("process.oomScoreAdj", lambda s: s["process"].update(oomScoreAdj=-1000)),
    "a writable root": ("root.readonly", lambda s: s["root"].update(readonly=False)),
    "hooks on the host": ("hooks", lambda s: s.update(hooks={"prestart": [{"path": "/usr/bin/nvidia"}]})),
    "another name": ("hostname", lambda s: s.update(hostname="host")),
    "a mount more": (
        "mounts: /run/secrets",
        lambda s: s["mounts"].append({"destination": "/run/secrets", "type": "bind", "source": "/x", "options": []}),
    ),
    "a mount less": ("mounts: none at /report", lambda s: s["mounts"].remove(find_mount(s, "/report"))),
    "another source": ("mounts: /report", lambda s: find_mount(s, "/report").update(source="/etc")),
    "all below the source": ("mounts: /report", lambda s: find_mount(s, "/report")["options"].append("rbind")),
    "a writable mask": (
        "mounts: /workspace/.git",
        lambda s: find_mount(s, "/workspace/.git").update(options=["bind", "rprivate", "rw"]),
    ),
    "propagation": ("mounts: /report", lambda s: find_mount(s, "/report").update(options=["bind", "rshared", "rw"])),
    "no size": ("mounts: /tmp", lambda s: find_mount(s, "/tmp").update(options=["nosuid", "nodev"])),
    "a writable file of the engine": (
        "mounts: /run/.containerenv",
        lambda s: find_mount(s, "/run/.containerenv").update(options=["bind", "rw"]),
    ),
    "the host's processes": (
        "linux.namespaces",
        lambda s: s["linux"]["namespaces"].remove({"type": "pid"}),
    ),
    "another's network": (
        "linux.namespaces: not its own",
        lambda s: s["linux"]["namespaces"][1].update(path="/proc/1/ns/net"),
    ),
    "another's processes": (
        "linux.namespaces: not its own",
        lambda s: s["linux"]["namespaces"][0].update(path="/proc/1/ns/pid"),
    ),
    "no masks": ("linux.maskedPaths", lambda s: s["linux"].update(maskedPaths=[])),
    "writable proc": ("linux.readonlyPaths", lambda s: s["linux"].update(readonlyPaths=["/proc/bus"])),
    "a setting": ("linux.sysctl", lambda s: s["linux"]["sysctl"].update({"net.ipv4.ip_forward": "1"})),
    "a device": ("linux.devices", lambda s: s["linux"].update(devices=[{"path": "/dev/kvm"}])),
    "all devices": ("linux.resources.devices", lambda s: s["linux"]["resources"].update(devices=[{"allow": True}])),
    "more memory": ("linux.resources.memory.limit", lambda s: s["linux"]["resources"]["memory"].update(limit=0)),
    "swap": ("linux.resources.memory.swap", lambda s: s["linux"]["resources"]["memory"].update(swap=-1)),
    "no kill": (
        "linux.resources.memory.disableOOMKiller",
        lambda s: s["linux"]["resources"]["memory"].update(disableOOMKiller=True),
    ),
    "more CPUs": ("linux.resources.cpu.quota", lambda s: s["linux"]["resources"]["cpu"].update(quota=-1)),
    "no limit of processes": ("linux.resources.pids.limit", lambda s: s["linux"]["resources"].pop("pids")),
    "another group": ("linux.cgroupsPath", lambda s: s["linux"].update(cgroupsPath="/space-sandbox-2/x")),
    "no filter": ("linux.seccomp", lambda s: s["linux"].pop("seccomp")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_s131_a_difference_is_named(options: dict[str, Any], spec: dict[str, Any], name: str) -> None:
    field, change = CHANGES[name]
    change(spec)
    assert field in find_spec_differences(options, spec)


GAPS: dict[str, tuple[str, Change]] = {
    "another runtime": ("annotations.run.oci.handler", lambda s: s["annotations"].update({"run.oci.handler": "krun"})),
    "the groups of its user": (
        "annotations.run.oci.keep_original_groups",
        lambda s: s["annotations"].update({"run.oci.keep_original_groups": "1"}),
    ),
    "another limit of the unit": (
        "annotations.org.systemd.property.MemoryMax",
        lambda s: s["annotations"].update({"org.systemd.property.MemoryMax": "uint64 18446744073709551615"}),
    ),
    "another value in the words of systemd": (
        "annotations.org.systemd.property.KillSignal",
        lambda s: s["annotations"].update({"org.systemd.property.KillSignal": "9; x"}),
    ),
    "privileged": (
        "annotations.io.podman.annotations.privileged",
        lambda s: s["annotations"].update({"io.podman.annotations.privileged": "TRUE"}),
    ),
    "limits in other words": (
        "linux.resources.unified",
        lambda s: s["linux"]["resources"].update(unified={"memory.max": "max", "pids.max": "max"}),
    ),
    "another limit of memory": (
        "linux.resources.memory.kernelTCP",
        lambda s: s["linux"]["resources"]["memory"].update(kernelTCP=-1),
    ),
    "mounts that spread": ("linux.rootfsPropagation", lambda s: s["linux"].update(rootfsPropagation="shared")),
    "a map of ids": (
        "linux.uidMappings",
        lambda s: s["linux"].update(uidMappings=[{"containerID": 0, "hostID": 0, "size": 1}]),
    ),
    "a map of ids of a mount": (
        "mounts: /report",
        lambda s: find_mount(s, "/report").update(uidMappings=[{"containerID": 0, "hostID": 0, "size": 1}]),
    ),
    "another ABI": ("linux.personality", lambda s: s["linux"].update(personality={"domain": "LINUX32"})),
    "before all others": (
        "process.scheduler",
        lambda s: s["process"].update(scheduler={"policy": "SCHED_FIFO", "priority": 99}),
    ),
    "a virtual machine": ("vm", lambda s: s.update(vm={"kernel": {"path": "/x"}})),
    "one who answers calls": (
        "linux.seccomp.listenerPath",
        lambda s: s["linux"]["seccomp"].update(listenerPath="/run/x.sock"),
    ),
    "a flag of the filter": (
        "linux.seccomp",
        lambda s: s["linux"]["seccomp"].update(flags=["SECCOMP_FILTER_FLAG_SPEC_ALLOW"]),
    ),
    "a directory of the host as shared memory": (
        "mounts: /dev/shm",
        lambda s: find_mount(s, "/dev/shm").update(source="/etc"),
    ),
    "another's shared memory": (
        "mounts: /dev/shm",
        lambda s: find_mount(s, "/dev/shm").update(source=f"/s/overlay-containers/{'0' * 64}/userdata/shm"),
    ),
    "another file of the engine": (
        "mounts: /etc/hostname",
        lambda s: find_mount(s, "/etc/hostname").update(source=find_mount(s, "/run/.containerenv")["source"]),
    ),
    "writable limits": (
        "mounts: /sys/fs/cgroup",
        lambda s: find_mount(s, "/sys/fs/cgroup")["options"].remove("ro"),
    ),
    "writable and not": ("mounts: /sys/fs/cgroup", lambda s: find_mount(s, "/sys/fs/cgroup")["options"].append("rw")),
    "writable settings": ("mounts: /sys", lambda s: find_mount(s, "/sys").update(options=["rw"])),
    "devices below proc": ("mounts: /proc", lambda s: find_mount(s, "/proc").update(options=["rw", "suid", "dev"])),
    "programs of root in a worktree": ("mounts: /report", lambda s: find_mount(s, "/report")["options"].append("suid")),
    "the image's files in a tmpfs": ("mounts: /tmp", lambda s: find_mount(s, "/tmp")["options"].append("tmpcopyup")),
}


@pytest.mark.parametrize("name", GAPS)
def test_s196_what_was_not_asked_for_is_named(options: dict[str, Any], spec: dict[str, Any], name: str) -> None:
    field, change = GAPS[name]
    change(spec)
    assert find_spec_differences(options, spec) == (field,)


def test_what_other_versions_and_drivers_of_podman_write_is_no_difference(
    options: dict[str, Any], spec: dict[str, Any]
) -> None:
    """5.x has fewer annotations, the driver systemd two more; a source on a file system with options passes them on."""
    spec["annotations"] = {
        "io.container.manager": "libpod",
        "org.opencontainers.image.stopSignal": "9",
        "org.opencontainers.image.base.digest": f"sha256:{'ab' * 32}",
        "org.opencontainers.image.description": "of an image\nin two lines",
        "io.buildah.version": "1.28.2",
        "org.systemd.property.KillSignal": "9",
        "org.systemd.property.TimeoutStopUSec": "uint64 1000000",
    }
    spec["process"]["selinuxLabel"] = "system_u:system_r:container_t:s0:c1,c2"
    spec["linux"].update(mountLabel="system_u:object_r:container_file_t:s0:c1,c2", uidMappings=[], rootfsPropagation="")
    spec["linux"]["resources"]["memory"]["checkBeforeUpdate"] = False
    find_mount(spec, "/report")["options"] += ["nosuid", "nodev", "noexec"]
    find_mount(spec, "/dev")["options"] = ["nosuid", "strictatime", "mode=755", "size=65536k", "ro"]  # seen: 5.4.2
    shared = ["bind", "rprivate", "ro", "nosuid", "noexec", "nodev", "nosuid", "noexec", "nodev"]
    find_mount(spec, "/dev/shm")["options"] = shared  # the guest's
    pts = find_mount(spec, "/dev/pts")
    pts["options"] = ["rprivate", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]
    for mount in spec["mounts"]:
        mount["source"] = mount["source"].replace("/run/containers/storage/overlay-", "/run/user/9/containers/vfs-")
    assert find_spec_differences(options, spec) == ()


def test_a_service_joins_one_network_namespace(options: dict[str, Any], spec: dict[str, Any]) -> None:
    options["HostConfig"]["NetworkMode"] = f"container:{'ab' * 32}"
    assert find_spec_differences(options, spec) == ("linux.namespaces: not its own",)
    next(space for space in spec["linux"]["namespaces"] if space["type"] == "network")["path"] = "/proc/9/ns/net"
    assert find_spec_differences(options, spec) == ()


def test_the_slice_of_systemd_is_in_front_of_the_name(options: dict[str, Any], spec: dict[str, Any]) -> None:
    options["HostConfig"]["CgroupParent"] = "space-sandbox.slice"
    spec["linux"]["cgroupsPath"] = "space-sandbox.slice:libpod:0123"
    assert find_spec_differences(options, spec) == ()


FILTERS: dict[str, Change] = {
    "it allows by default": lambda f: f.update(defaultAction="SCMP_ACT_ALLOW"),
    "another error": lambda f: f.update(defaultErrnoRet=38),
    "a call more": lambda f: f["syscalls"][0]["names"].append("mount"),
    "a rule less": lambda f: f["syscalls"].pop(0),
    "an argument less": lambda f: next(rule for rule in f["syscalls"] if rule.get("args")).pop("args"),
    "another action": lambda f: f["syscalls"][0].update(action="SCMP_ACT_LOG"),
    "x32 beside x86-64": lambda f: f["architectures"].append("SCMP_ARCH_X32"),
    "no architecture": lambda f: f.update(architectures=[]),
}


@pytest.mark.parametrize("name", FILTERS)
def test_s131_another_filter_is_not_the_same(spec: dict[str, Any], name: str) -> None:
    found = spec["linux"]["seccomp"]
    assert is_same_filter(PROFILE, found)
    FILTERS[name](found)
    assert not is_same_filter(PROFILE, found)


def test_a_rule_with_a_condition_may_be_missing(spec: dict[str, Any]) -> None:
    conditional = next(rule for rule in PROFILE["syscalls"] if rule.get("includes"))
    spec["linux"]["seccomp"]["syscalls"].remove(
        {name: value for name, value in conditional.items() if name not in {"comment", "includes"}}
    )
    assert is_same_filter(PROFILE, spec["linux"]["seccomp"])


def test_the_request_says_all_that_podman_would_choose_itself(options: dict[str, Any]) -> None:
    request = build_request("sandbox-x", options, "/tmp/profile.json")
    assert (request["cap_drop"], request["no_new_privileges"], request["read_only_filesystem"]) == (["ALL"], True, True)
    assert (request["seccomp_profile_path"], request["netns"]) == ("/tmp/profile.json", {"nsmode": "none"})
    assert set(OWN_VARIABLES) | {"BASH_ENV"} <= set(request["unsetenv"])
    home = next(mount for mount in request["mounts"] if mount["destination"] == "/home/sandbox")
    assert home["options"][-1] == "U"
    assert not any(option.startswith(("uid=", "nr_inodes=")) for option in home["options"])
