"""Translate the options of a container to Podman's own request, `POST /libpod/containers/create`. Pure.

Podman's translation of Docker's request loses options (masked paths, sysctls), adds writable file systems (`/run`,
`/var/tmp`), and refuses others (`nr_inodes` and `uid` of a tmpfs; seen: 4.3.1). Its own request has a field for each.
What the runtime got in the end is compared in `runtime_spec.py`.

Four options have no counterpart: the number of files of a tmpfs (they count as the guest's memory), an init of the
engine (a package of its own; guests of checks have our PID 1, others run one program), a missing limit on the
processes of a uid, which gets the highest value that Podman can give, and the runtime: a request may name one, and
gets Podman's default. That it is the wanted one is asked before (runtimes.py) and compared afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

PERIOD_US = 100_000
MAX_UID_PROCESSES = 32_768
"""Podman lowers its own limit to it, and sets 1,048,576 for guests, which a host without CAP_SYS_RESOURCE refuses."""

OWN_VARIABLES = ("container", "TERM", "HOSTNAME")
"""Environment variables that Podman adds."""

_UID_LIMIT = {"type": "nproc", "soft": MAX_UID_PROCESSES, "hard": MAX_UID_PROCESSES}
_SIGKILL = 9
_NOT_FOR_TMPFS = ("nr_inodes=", "uid=", "gid=")
_OWN_TMPFS = "mode=0700"
_JOINED = "container:"


def build_request(
    name: str, options: Mapping[str, Any], seccomp_file: str, *, rootless: bool = False
) -> dict[str, Any]:
    """`seccomp_file`: holds the profile of `options`; Podman reads it while it creates the container. `rootless`:
    whether Podman is. It gives guests the limit on processes that its user has, and its runtime may not give more.
    """
    host = options["HostConfig"]
    return {
        "name": name,
        **_command_fields(options),
        **_namespace_fields(options),
        **_security_fields(options, seccomp_file),
        "mounts": [*_tmpfs_mounts(host["Tmpfs"]), *_bind_mounts(host["Mounts"])],
        "image_volume_mode": "ignore",
        "shm_size": host["ShmSize"],
        "cgroup_parent": host["CgroupParent"],
        "resource_limits": resource_limits(host),
        "r_limits": [*_ulimits(host["Ulimits"]), *([] if rootless else [_UID_LIMIT])],
        "oom_score_adj": host["OomScoreAdj"],
        "restart_policy": "no",
        "log_configuration": {"driver": "none"},
    }


def read_seccomp(options: Mapping[str, Any]) -> str:
    """The seccomp profile of the options, as JSON."""
    prefix = "seccomp="
    found: list[str] = options["HostConfig"]["SecurityOpt"]
    return next(option.removeprefix(prefix) for option in found if option.startswith(prefix))


def split_environment(entries: list[str]) -> tuple[dict[str, str], list[str]]:
    """The variables to set, and those to remove: a bare name removes the image's."""
    pairs = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    return pairs, [entry for entry in entries if "=" not in entry]


def resource_limits(host: Mapping[str, Any]) -> dict[str, Any]:
    """The limits of `HostConfig` in the words of the OCI runtime specification."""
    cpu = {"shares": host["CpuShares"], "quota": round(host["NanoCpus"] * PERIOD_US / 1e9), "period": PERIOD_US}
    return {
        "memory": {"limit": host["Memory"], "swap": host["MemorySwap"]},
        "cpu": {**cpu, **({"cpus": host["CpusetCpus"]} if host["CpusetCpus"] else {})},
        "pids": {"limit": host["PidsLimit"]},
    }


def _command_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    set_variables, removed = split_environment(options["Env"])
    own = [name for name in OWN_VARIABLES if name not in set_variables]
    return {
        "image": options["Image"],
        "entrypoint": options["Entrypoint"],
        "command": [],
        "env": set_variables,
        "unsetenv": [*removed, *own],
        "httpproxy": False,
        "labels": options["Labels"],
        "user": options["User"],
        "manage_password": False,  # no /etc/passwd of its own
        "work_dir": options["WorkingDir"],
        "terminal": False,
        "stdin": options["OpenStdin"],
        "stop_signal": _SIGKILL,
        "stop_timeout": options["StopTimeout"],
        "systemd": "false",
        "sdnotifyMode": "ignore",
        "init": False,
    }


def _namespace_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    network = options["HostConfig"]["NetworkMode"]
    joined = {"nsmode": "container", "value": network.removeprefix(_JOINED)}
    own = {"nsmode": "private"}
    return {
        "pidns": own,
        "ipcns": own,
        "utsns": own,
        "cgroupns": own,
        "userns": {"nsmode": "host"},
        "netns": joined if network.startswith(_JOINED) else {"nsmode": "none"},
        "use_image_hosts": True,  # none of its own
        "use_image_resolve_conf": True,
        **({"hostname": options["Hostname"]} if "Hostname" in options else {}),
        "sysctl": options["HostConfig"]["Sysctls"],
    }


def _security_fields(options: Mapping[str, Any], seccomp_file: str) -> dict[str, Any]:
    host = options["HostConfig"]
    return {
        "privileged": False,
        "groups": [],
        "cap_add": [],
        "cap_drop": ["ALL"],
        "no_new_privileges": True,
        "seccomp_profile_path": seccomp_file,
        "read_only_filesystem": True,
        "mask": host["MaskedPaths"],
        "devices": [],
    }


def _tmpfs_mounts(wanted: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """`U`: it belongs to the guest's user."""
    for target, text in wanted.items():
        options = [option for option in text.split(",") if not option.startswith(_NOT_FOR_TMPFS)]
        own = ["U"] if _OWN_TMPFS in options else []
        yield {
            "destination": target,
            "type": "tmpfs",
            "source": "tmpfs",
            "options": [*options, "notmpcopyup", *own],
        }


def _bind_mounts(wanted: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for mount in wanted:
        access = "ro" if mount["ReadOnly"] else "rw"
        options = ["bind", mount["BindOptions"]["Propagation"], access]
        yield {"destination": mount["Target"], "type": "bind", "source": mount["Source"], "options": options}


def _ulimits(wanted: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for limit in wanted:
        yield {"type": limit["Name"], "soft": limit["Soft"], "hard": limit["Hard"]}
