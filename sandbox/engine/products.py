"""Which product answers at an engine's address, and whether it can be used. Pure.

Podman serves Docker's API, and its own beside it. It names itself in `GET /version`, which is read to connect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any

_PODMAN = "Podman Engine"
_FIRST_PODMAN = (4, 3)
_VERSION = re.compile(r"(\d+)\.(\d+)")
_RUNC = re.compile(r"OCI Runtime \((.*/)?runc\)")
_DEBIAN_PACKAGE = re.compile(r"runc_([^_]+)_[a-z0-9]+")
_CPU_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_RUNC_VERSION = re.compile(r"runc version (\S+)")

_STORE_KEY, _CONTAINERD_STORE = "driver-type", "io.containerd.snapshotter.v1"

_CONTROLLERS = {
    "MemoryLimit": "memory",
    "SwapLimit": "memory",
    "CpuCfsQuota": "cpu",
    "CPUShares": "cpu",
    "CPUSet": "cpuset",
    "PidsLimit": "pids",
}
"""What enforces the limits of `GET /info` in control groups of version 2."""

UNSUPPORTED_HINT = (
    "Podman is supported from version 4.3 on, at a unix socket of this host (docs/hardening.md). Or use "
    "Docker Engine 20.10 or newer: point engine.host or DOCKER_HOST at its socket."
)


class Product(StrEnum):
    """A product with an API that this package speaks; `dialects.py` has what differs."""

    DOCKER = "Docker"
    PODMAN = "Podman"


def find_product(version: Mapping[str, Any]) -> Product:
    """From `GET /version`. What does not name itself is an engine of Docker's kind."""
    return Product.PODMAN if _find_podman(version) is not None else Product.DOCKER


def find_unsupported_product(version: Mapping[str, Any], *, is_local: bool) -> str:
    """Name and version of a product that is known not to work here; '' for any other. `is_local`: at a unix socket."""
    podman = _find_podman(version)
    if podman is None:
        return ""
    found = _VERSION.match(podman)
    is_old = found is None or (int(found[1]), int(found[2])) < _FIRST_PODMAN
    name = f"Podman {podman}".rstrip()
    return name if is_old or not is_local else ""


def is_podman(info: Mapping[str, Any]) -> bool:
    """Whether `GET /info` is Podman's: it names the builder that it has inside."""
    return "BuildahVersion" in info


def has_security_option(info: Mapping[str, Any], name: str) -> bool:
    """Whether `SecurityOptions` of `GET /info` has this name; they are strings as `name=seccomp,profile=default`."""
    return any(f"name={name}" in str(option).split(",") for option in info.get("SecurityOptions") or ())


def is_rootless(info: Mapping[str, Any]) -> bool:
    """Whether an ordinary user runs the engine, from `GET /info`."""
    return has_security_option(info, "rootless") or info.get("Rootless") is True  # Podman 4.3 says only the latter


def has_containerd_store(info: Mapping[str, Any]) -> bool:
    """Whether containerd keeps the images and layers of containers (the default of Docker 29), from `GET /info`."""
    return [_STORE_KEY, _CONTAINERD_STORE] in [list(pair) for pair in info.get("DriverStatus") or ()]


def list_bindable_cpus(info: Mapping[str, Any], effective: str) -> tuple[int, ...]:
    """The CPUs of which a guest can get its own, from `GET /info` and those of the group above it (`0-3,6`). None where
    the engine cannot bind it to any (a rootless one without the controller `cpuset`), or has others than the group
    and so refuses some: then a guest sees all of its engine's.
    """
    found = [range(int(a), int(b or a) + 1) for a, b in _CPU_RANGE.findall(effective)]
    cpus = tuple(number for numbers in found for number in numbers)
    return () if info.get("CPUSet") is False or len(cpus) != info.get("NCPU") else cpus


def complete_podman_info(
    info: Mapping[str, Any],
    version: Mapping[str, Any],
    has_file: Callable[[str], bool],
    controllers: Collection[str] = (),
) -> dict[str, Any]:
    """Add to Podman's `GET /info` what Docker's says: the version of runc, from `GET /version`, only the runtime that
    guests can have, and the limits. Podman lists all runtimes that it knows, takes the name of one with a request, and
    gives each guest its default (seen: 4.3.1, 5.8.6). For limits it looks for the files of control groups of version 1
    (containers/common, pkg/sysinfo; seen: 5.4.2), so it says on version 2 that there are none, and of a rootless one on
    version 1 (seen: 4.3.1) that there are all, where it may use none.

    `has_file`: whether a path is that of a file of its host. `controllers`: of version 2, those that it may use.
    """
    default = info.get("DefaultRuntime")
    runtimes = {
        name: runtime
        for name, runtime in (info.get("Runtimes") or {}).items()
        if default in (None, name) and isinstance(runtime, dict) and has_file(str(runtime.get("path")))
    }
    is_told = str(info.get("CgroupVersion")) != "2" and not is_rootless(info)
    limits = {} if is_told else {name: controller in controllers for name, controller in _CONTROLLERS.items()}
    return {**info, **limits, "Runtimes": runtimes, "RuncCommit": {"ID": _find_runc(version)}}


def how_to_get_runtime(info: Mapping[str, Any], name: str) -> str:
    """A hint for a runtime that `GET /info` does not list."""
    if is_podman(info):
        return (
            f'Podman gives all guests its default runtime: set `runtime = "{name}"` below [engine] in '
            "/etc/containers/containers.conf and restart podman.socket and podman.service, or choose the default with "
            "container.runtime, if the container policy allows it (docs/hardening.md)."
        )
    return (
        f"Install '{name}' and register it in the engine's daemon.json (docs/hardening.md), or choose another with "
        "--runtime or container.runtime."
    )


def _find_runc(version: Mapping[str, Any]) -> str:
    """The version of Debian's package where there is one, else the program's own."""
    for component in version.get("Components") or ():
        if isinstance(component, dict) and _RUNC.fullmatch(str(component.get("Name"))):
            package = str((component.get("Details") or {}).get("Package") or "")
            found = _DEBIAN_PACKAGE.fullmatch(package) or _RUNC_VERSION.match(str(component.get("Version") or ""))
            return found[1] if found else ""
    return ""


def _find_podman(version: Mapping[str, Any]) -> str | None:
    """The version of Podman; None for another product."""
    components = version.get("Components")
    for component in components if isinstance(components, list) else ():
        if isinstance(component, dict) and component.get("Name") == _PODMAN:
            return str(component.get("Version") or "")
    return None
