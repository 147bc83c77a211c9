"""Compare the mounts of config.json with the request. Pure. See `runtime_spec.py`.

A mount of ours has the options that were asked for, and those that Podman adds: `nosuid`, `nodev` and `noexec` if the
source's file system has them (pkg/util/mount_opts.go, 4.3 to 5.8). A mount of the engine has the source and the options
that the same versions write (pkg/specgen/generate/oci_linux.go, libpod/container_internal_common.go): with another
source `/dev/shm` could be any directory of the host, and a writable `/sys/fs/cgroup` changes limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern

Spec = Mapping[str, Any]

_KEYS = frozenset({"destination", "type", "source", "options"})
_LESS = frozenset({"nosuid", "nodev", "noexec", "relatime"})
"""Options that only take something away."""

_PRIVATE = frozenset({"private", "rprivate"})
_BOTH = frozenset({"nosuid", "noexec"})
_TMPFS_VALUES = ("uid=", "gid=")
"""Podman gives a tmpfs with `U` to the guest's user."""


@dataclass(frozen=True)
class _OwnMount:
    """A mount of the engine. `file`: its source's name in the container's directory, if it is a bind.

    `wanted`: options that it must have. `allowed`: those that it may have beside `_LESS` and `_PRIVATE`.
    """

    kind: str
    wanted: frozenset[str]
    allowed: frozenset[str] = frozenset()
    file: str = ""


def _file(name: str) -> _OwnMount:
    return _OwnMount("bind", frozenset({"bind", "ro"}), file=name)


_PTS = frozenset({"newinstance", "ptmxmode=0666", "mode=0620", "gid=5"})
# Podman 5.4 makes `/dev` and `/dev/shm` of a read-only container read-only, too.
_OWN_MOUNTS: Mapping[str, _OwnMount] = {
    "/proc": _OwnMount("proc", _BOTH | {"nodev"}),
    "/sys": _OwnMount("sysfs", _BOTH | {"nodev", "ro"}),
    "/dev": _OwnMount("tmpfs", frozenset({"nosuid"}), frozenset({"strictatime", "mode=755", "size=65536k", "ro"})),
    "/dev/pts": _OwnMount("devpts", _BOTH | {"newinstance"}, _PTS),
    "/dev/mqueue": _OwnMount("mqueue", _BOTH | {"nodev"}),
    "/dev/shm": _OwnMount("bind", _BOTH | {"bind", "nodev"}, frozenset({"rw", "ro"}), "shm"),  # noqa: S108  # the guest's
    "/sys/fs/cgroup": _OwnMount("cgroup", _BOTH | {"nodev", "ro"}),
    "/run/.containerenv": _file(".containerenv"),  # which engine it is
    "/etc/hostname": _file("hostname"),
}
_OWN_SOURCE = lazy_pattern(r"(?:/[^/]+)*/[a-z0-9]+-containers/([0-9a-f]{64})/userdata/([^/]+)")
"""A file of one container, in the storage of Podman or below its runtime directory, whichever driver it uses."""


def find_mount_differences(host: Mapping[str, Any], mounts: list[dict[str, Any]], container: str) -> Iterator[str]:
    """`container`: the id of the container; '' if the file does not say it."""
    found = {mount["destination"]: mount for mount in mounts}
    binds = {mount["Target"]: mount for mount in host["Mounts"]}
    if len(found) != len(mounts):
        yield "mounts: two at one place"
    missing = (binds.keys() | host["Tmpfs"].keys()) - found.keys()
    yield from (f"mounts: none at {target}" for target in sorted(missing))
    for target, mount in found.items():
        has_more = any(value for name, value in mount.items() if name not in _KEYS)  # such as maps of ids
        if has_more or not _is_wanted_mount(mount, binds.get(target), host["Tmpfs"].get(target), container):
            yield f"mounts: {target}"


def _is_wanted_mount(mount: Spec, bind: Mapping[str, Any] | None, tmpfs: str | None, container: str) -> bool:
    options = frozenset(mount.get("options") or ())
    if bind is not None:
        wanted = {"ro" if bind["ReadOnly"] else "rw", bind["BindOptions"]["Propagation"]}
        same = mount.get("type") == "bind" and mount.get("source") == bind["Source"]
        return same and wanted <= options <= _LESS | {"bind"} | wanted
    if tmpfs is not None:
        return mount.get("type") == "tmpfs" and _is_wanted_tmpfs(frozenset(tmpfs.split(",")), options)
    own = _OWN_MOUNTS.get(mount["destination"])
    return own is not None and _is_own_mount(mount, own, options, container)


def _is_wanted_tmpfs(asked: frozenset[str], options: frozenset[str]) -> bool:
    size = {option for option in asked if option.startswith("size=")}
    more = {option for option in options if option.startswith(_TMPFS_VALUES)}
    return {"nosuid", "nodev"} | size <= options <= asked | _LESS | _PRIVATE | more


def _is_own_mount(mount: Spec, own: _OwnMount, options: frozenset[str], container: str) -> bool:
    if mount.get("type") != own.kind or not own.wanted <= options <= own.wanted | own.allowed | _LESS | _PRIVATE:
        return False
    return not own.file or _is_own_source(str(mount.get("source")), own.file, container)


def _is_own_source(source: str, file: str, container: str) -> bool:
    found = _OWN_SOURCE.fullmatch(source)
    return found is not None and found[2] == file and found[1] == (container or found[1])
