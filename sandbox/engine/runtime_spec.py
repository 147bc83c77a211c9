"""Compare the configuration of an OCI runtime with the options of a container. Pure.

The file config.json of a container is what the runtime (runc, crun) makes it from. An engine whose answer to `inspect`
leaves out options is compared by this file instead: each option that we send is looked for in it, and what we did not
ask for must not be there. https://github.com/opencontainers/runtime-spec/blob/main/config.md
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sandbox.engine.create_options import INHERITED_PREFIXES
from sandbox.engine.podman_request import (
    OWN_VARIABLES,
    read_seccomp,
    resource_limits,
    split_environment,
)

_OWN_MOUNTS = {
    "/proc": "proc",
    "/sys": "sysfs",
    "/dev": "tmpfs",
    "/dev/pts": "devpts",
    "/dev/mqueue": "mqueue",
    "/dev/shm": "bind",  # noqa: S108  # the engine's tmpfs for the guest
    "/sys/fs/cgroup": "cgroup",
}
_OWN_FILES = frozenset({"/run/.containerenv", "/etc/hostname"})
"""Files of the engine, read-only: which engine it is, and the guest's name."""

_NAMESPACES = frozenset({"pid", "network", "ipc", "uts", "mount", "cgroup"})
_OWN_SYSCTLS = frozenset({"net.ipv4.ping_group_range"})
_OWN_LIMITS = frozenset({"RLIMIT_NPROC"})
_DEVICE_RULES = {"allow": False, "access": "rwm"}

Spec = Mapping[str, Any]


def find_spec_differences(options: Mapping[str, Any], spec: Spec, *, rootless: bool = False) -> tuple[str, ...]:
    """List the fields of config.json that are not as requested or not safe; empty: all match. `rootless`: whether the
    engine is. It may not set rules for devices: none can be made there, and its user may open the host's in any case.
    """
    return tuple(
        [
            *_process_differences(options, spec.get("process") or {}),
            *_mount_differences(options["HostConfig"], spec.get("mounts") or []),
            *_linux_differences(options["HostConfig"], spec.get("linux") or {}, rootless=rootless),
            *_other_differences(options, spec),
        ]
    )


def _other_differences(options: Mapping[str, Any], spec: Spec) -> Iterator[str]:
    if (spec.get("root") or {}).get("readonly") is not True:
        yield "root.readonly"
    if spec.get("hooks"):  # programs that the runtime starts on the host, as root
        yield "hooks"
    if "Hostname" in options and spec.get("hostname") != options["Hostname"]:
        yield "hostname"


def _process_differences(options: Mapping[str, Any], process: Spec) -> Iterator[str]:
    uid, gid = (int(part) for part in options["User"].split(":"))
    user = process.get("user") or {}
    wanted = {
        "args": options["Entrypoint"],
        "cwd": options["WorkingDir"],
        "noNewPrivileges": True,
        "oomScoreAdj": options["HostConfig"]["OomScoreAdj"],
    }
    yield from (f"process.{name}" for name, value in wanted.items() if process.get(name) != value)
    if process.get("terminal"):
        yield "process.terminal"
    if (user.get("uid", 0), user.get("gid", 0)) != (uid, gid) or set(user.get("additionalGids") or ()) - {gid}:
        yield "process.user"
    if any((process.get("capabilities") or {}).values()):
        yield "process.capabilities"
    if process.get("apparmorProfile") == "unconfined":
        yield "process.apparmorProfile"
    if not _same_environment(options["Env"], process.get("env") or []):
        yield "process.env"
    if not _same_limits(options["HostConfig"]["Ulimits"], process.get("rlimits") or []):
        yield "process.rlimits"


def _same_environment(wanted: list[str], found: list[str]) -> bool:
    """An image may add variables, except names that make programs start other code."""
    set_variables, removed = split_environment(wanted)
    names = [entry.partition("=")[0] for entry in found]
    added = set(names) - set_variables.keys() - set(OWN_VARIABLES)
    if len(names) != len(set(names)) or added & set(removed):
        return False
    if any(name.startswith(INHERITED_PREFIXES) for name in added):
        return False
    return {f"{name}={value}" for name, value in set_variables.items()} <= set(found)


def _same_limits(wanted: list[dict[str, Any]], found: list[dict[str, Any]]) -> bool:
    seen = {limit["type"]: (limit.get("soft"), limit.get("hard")) for limit in found}
    asked = {f"RLIMIT_{limit['Name'].upper()}": (limit["Soft"], limit["Hard"]) for limit in wanted}
    return len(seen) == len(found) and {n: v for n, v in seen.items() if n not in _OWN_LIMITS} == asked


def _mount_differences(host: Mapping[str, Any], mounts: list[dict[str, Any]]) -> Iterator[str]:
    found = {mount["destination"]: mount for mount in mounts}
    binds = {mount["Target"]: mount for mount in host["Mounts"]}
    if len(found) != len(mounts):
        yield "mounts: two at one place"
    missing = (binds.keys() | host["Tmpfs"].keys()) - found.keys()
    yield from (f"mounts: none at {target}" for target in sorted(missing))
    for target, mount in found.items():
        if not _is_wanted_mount(mount, binds.get(target), host["Tmpfs"].get(target)):
            yield f"mounts: {target}"


def _is_wanted_mount(mount: Spec, bind: Mapping[str, Any] | None, tmpfs: str | None) -> bool:
    kind, options = mount.get("type"), set(mount.get("options") or ())
    if bind is not None:
        wanted = {"ro" if bind["ReadOnly"] else "rw", bind["BindOptions"]["Propagation"]}
        contrary = {"rw" if bind["ReadOnly"] else "ro", "rbind"}
        same = kind == "bind" and mount.get("source") == bind["Source"]
        return same and wanted <= options and not contrary & options
    if tmpfs is not None:
        size = next(option for option in tmpfs.split(",") if option.startswith("size="))
        return kind == "tmpfs" and {"nosuid", "nodev", size} <= options
    if mount["destination"] in _OWN_FILES:
        return kind == "bind" and "ro" in options
    return kind == _OWN_MOUNTS.get(mount["destination"])


def _linux_differences(host: Mapping[str, Any], linux: Spec, *, rootless: bool) -> Iterator[str]:
    yield from _namespace_differences(host, linux.get("namespaces") or [])
    for name, wanted in (("maskedPaths", host["MaskedPaths"]), ("readonlyPaths", host["ReadonlyPaths"])):
        if not set(wanted) <= set(linux.get(name) or ()):
            yield f"linux.{name}"
    sysctls = linux.get("sysctl") or {}
    if {n: v for n, v in sysctls.items() if n not in _OWN_SYSCTLS} != host["Sysctls"]:
        yield "linux.sysctl"
    if linux.get("devices"):
        yield "linux.devices"
    yield from _resource_differences(host, linux.get("resources") or {}, rootless=rootless)
    if not _is_below(str(linux.get("cgroupsPath") or ""), host["CgroupParent"]):
        yield "linux.cgroupsPath"
    if not is_same_filter(json.loads(read_seccomp({"HostConfig": host})), linux.get("seccomp") or {}):
        yield "linux.seccomp"


def _namespace_differences(host: Mapping[str, Any], namespaces: list[dict[str, Any]]) -> Iterator[str]:
    found = {space.get("type"): str(space.get("path") or "") for space in namespaces}
    joins = host["NetworkMode"] != "none"
    if found.keys() != _NAMESPACES:
        yield "linux.namespaces"
    elif any(path for kind, path in found.items() if kind != "network") or bool(found["network"]) is not joins:
        yield "linux.namespaces: not its own"


def _resource_differences(host: Mapping[str, Any], found: Spec, *, rootless: bool) -> Iterator[str]:
    for kind, limits in resource_limits(host).items():
        seen = found.get(kind) or {}
        yield from (f"linux.resources.{kind}.{name}" for name, value in limits.items() if seen.get(name) != value)
    if (found.get("memory") or {}).get("disableOOMKiller"):
        yield "linux.resources.memory.disableOOMKiller"
    if found.get("devices") != [_DEVICE_RULES] and (found.get("devices") or not rootless):
        yield "linux.resources.devices"


def _is_below(path: str, parent: str) -> bool:
    """With the driver systemd the path is `slice:prefix:name`."""
    return path.startswith((f"{parent.rstrip('/')}/", f"{parent}:")) if parent else True


def is_same_filter(profile: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether the filter that the runtime loads is the one of a seccomp profile.

    A rule of the profile with a condition (kernel, architecture) may be missing; nothing may be in it that no rule of
    the profile allows, nor another architecture's table of system calls.
    """
    if (found.get("defaultAction"), found.get("defaultErrnoRet")) != (
        profile["defaultAction"],
        profile.get("defaultErrnoRet"),
    ):
        return False
    known = {each["architecture"] for each in profile["archMap"]}
    if not found.get("architectures") or not set(found["architectures"]) <= known:
        return False
    always = [rule for rule in profile["syscalls"] if not rule.get("includes") and not rule.get("excludes")]
    seen = _calls(found.get("syscalls") or [])
    return _calls(always) <= seen <= _calls(profile["syscalls"])


def _calls(rules: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """One entry for each system call and rule."""
    return {
        (name, rule["action"], rule.get("errnoRet"), tuple(sorted(_argument(a) for a in rule.get("args") or ())))
        for rule in rules
        for name in rule["names"]
    }


def _argument(argument: Mapping[str, Any]) -> tuple[int, int, int, str]:
    value, second = argument.get("value", 0), argument.get("valueTwo", 0)
    return argument.get("index", 0), value, second, argument["op"]
