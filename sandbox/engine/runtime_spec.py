"""Compare the configuration of an OCI runtime with the options of a container. Pure.

The file config.json of a container is what the runtime (runc, crun) makes it from. An engine whose answer to `inspect`
leaves out options is compared by this file instead: each option that we send is looked for in it, and what we did not
ask for must not be there: a field that is not known here and says something is a difference. So is an annotation, but
for Podman's own and those that describe the image, for a runtime may act by it: `run.oci.handler` of crun runs the
guest otherwise, and `org.systemd.property.*` changes the limits of its group.
https://github.com/opencontainers/runtime-spec/blob/main/config.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sandbox.engine.create_options import INHERITED_PREFIXES
from sandbox.engine.podman_request import OWN_VARIABLES, read_seccomp, resource_limits, split_environment
from sandbox.engine.spec_mounts import Spec, find_mount_differences
from sandbox.lazy_pattern import lazy_pattern

_NAMESPACES = frozenset({"pid", "network", "ipc", "uts", "mount", "cgroup"})
_OWN_SYSCTLS = frozenset({"net.ipv4.ping_group_range"})
_OWN_LIMITS = frozenset({"RLIMIT_NPROC"})
_DEVICE_RULES = {"allow": False, "access": "rwm"}

_FIELDS: Mapping[str, frozenset[str]] = {
    "": frozenset({"ociVersion", "process", "root", "hostname", "mounts", "annotations", "linux", "hooks"}),
    "root": frozenset({"path", "readonly"}),
    "process": frozenset(
        {"terminal", "user", "args", "env", "cwd", "capabilities", "rlimits", "noNewPrivileges", "apparmorProfile"}
        | {"oomScoreAdj", "selinuxLabel"}
    ),
    "process.user": frozenset({"uid", "gid", "umask", "additionalGids"}),
    "linux": frozenset(
        {"namespaces", "maskedPaths", "readonlyPaths", "sysctl", "devices", "resources", "cgroupsPath", "seccomp"}
        | {"rootfsPropagation", "mountLabel"}
    ),
    "linux.resources": frozenset({"memory", "cpu", "pids", "devices"}),
    "linux.resources.memory": frozenset({"limit", "swap", "disableOOMKiller"}),
    "linux.resources.cpu": frozenset({"shares", "quota", "period", "cpus"}),
    "linux.resources.pids": frozenset({"limit"}),
    "linux.seccomp": frozenset({"defaultAction", "defaultErrnoRet", "architectures", "syscalls", "flags"}),
}
"""The fields that are compared, or are Podman's own (seen: 4.3.1, 5.4.2, 5.8.6)."""

_PRIVATE = frozenset({"", "private", "rprivate"})
_ANNOTATIONS = lazy_pattern(
    r"io\.container\.manager=libpod|io\.kubernetes\.cri-o\.Created=.*|io\.buildah\.version=.*"
    r"|org\.opencontainers\.image\.[A-Za-z.]+=.*"
    r"|io\.podman\.annotations\.(?:autoremove|init|privileged|publish-all)=FALSE"
    r"|io\.podman\.annotations\.(?:seccomp|apparmor)=.*"
    r"|org\.systemd\.property\.KillSignal=[0-9]+|org\.systemd\.property\.TimeoutStopUSec=uint64 [0-9]+",
    re.DOTALL,
)
"""Of Podman 4.3 to 5.8: what its `inspect` says, and with the driver systemd how a unit is stopped. What describes an
image is copied from it: the specification of images has these names, and no runtime acts by them.
"""

_CONTAINER = lazy_pattern(r"[0-9a-f]{64}\Z")


def find_spec_differences(options: Mapping[str, Any], spec: Spec, *, rootless: bool = False) -> tuple[str, ...]:
    """List the fields of config.json that are not as requested or not safe; empty: all match. `rootless`: whether the
    engine is. It may not set rules for devices: none can be made there, and its user may open the host's in any case.
    """
    return tuple(
        [
            *_process_differences(options, spec.get("process") or {}),
            *find_mount_differences(options["HostConfig"], spec.get("mounts") or [], _find_container(spec)),
            *_linux_differences(options["HostConfig"], spec.get("linux") or {}, rootless=rootless),
            *_other_differences(options, spec),
            *_unknown_fields(spec),
        ]
    )


def _unknown_fields(spec: Spec) -> Iterator[str]:
    """Fields that say something (not empty, 0 or false) and are none of `_FIELDS`, and annotations."""
    for path, known in _FIELDS.items():
        part: Any = spec
        for name in filter(None, path.split(".")):
            part = part.get(name) or {}
        yield from (f"{path}.{name}".lstrip(".") for name, value in part.items() if value and name not in known)
    for name, value in (spec.get("annotations") or {}).items():
        if not _ANNOTATIONS.fullmatch(f"{name}={value}"):
            yield f"annotations.{name}"


def _find_container(spec: Spec) -> str:
    """The id at the end of the path of the container's group."""
    found = _CONTAINER.search(str((spec.get("linux") or {}).get("cgroupsPath") or ""))
    return found[0] if found else ""


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
    if (linux.get("rootfsPropagation") or "") not in _PRIVATE:
        yield "linux.rootfsPropagation"
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
    the profile allows, nor another architecture's table of system calls, nor a flag. (A listener, which another program
    answers calls by, is a field that `_FIELDS` does not know.)
    """
    if not set(found.get("flags") or ()) <= set(profile.get("flags") or ()):
        return False
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
