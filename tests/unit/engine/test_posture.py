"""What a guest's PID 1 says of itself, captured (runc on Linux 6.18, runsc release-20221219), and one change each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.engine.create_options import create_options
from sandbox.engine.pid1_messages import Posture
from sandbox.engine.posture import find_posture_faults, require_posture
from sandbox.errors import ErrorCode, SandboxError
from tests.unit.engine.test_create_options import POLICY, SUPERVISED, replaced

DATA = Path(__file__).parents[2] / "data" / "posture"
CAPTURED = ("status", "mountinfo", "interfaces", "port_start")


def options(runtime: str) -> dict[str, Any]:
    """What the captured guests were asked to be."""
    spec = replaced(argv=(), env={}, supervisor=SUPERVISED.supervisor, user=(64000, 64000), runtime=runtime)
    return create_options(spec, POLICY)


def captured(runtime: str, **changes: tuple[str, str]) -> Posture:
    texts = {name: (DATA / f"{runtime}.{name}").read_text() for name in CAPTURED}
    for name, (old, new) in changes.items():
        assert old in texts[name], "void: there is nothing to change"
        texts[name] = texts[name].replace(old, new, 1)
    return Posture(bytes(16), texts["status"], texts["mountinfo"], texts["interfaces"], texts["port_start"], "")


@pytest.mark.parametrize("runtime", ["runc", "runsc"])
def test_a_guest_as_asked_for_has_no_faults(runtime: str) -> None:
    assert find_posture_faults(captured(runtime), options(runtime)) == []
    require_posture(captured(runtime), options(runtime))


def status(old: str, new: str) -> dict[str, tuple[str, str]]:
    return {"status": (old, new)}


def mounts(old: str, new: str) -> dict[str, tuple[str, str]]:
    return {"mountinfo": (old, new)}


ZERO = "0000000000000000"
SOME = "0000000000200000"
FAULTS: dict[str, tuple[dict[str, tuple[str, str]], str]] = {
    **{
        name: (status(f"{name}:\t{ZERO}", f"{name}:\t{SOME}"), f"{name} is {SOME}")
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    },
    "no capability sets": (status("CapBnd", "CapXyz"), "CapBnd is unknown"),
    "may gain privileges": (status("NoNewPrivs:\t1", "NoNewPrivs:\t0"), "NoNewPrivs is 0"),
    "no filter": (status("Seccomp:\t2", "Seccomp:\t0"), "Seccomp is 0"),
    "strict filter": (status("Seccomp:\t2", "Seccomp:\t1"), "Seccomp is 1"),
    "saved uid 0": (status("Uid:\t64000\t64000\t64000", "Uid:\t64000\t64000\t0"), "Uid is 64000 64000 0 64000"),
    "effective gid 0": (status("Gid:\t64000\t64000", "Gid:\t64000\t0"), "Gid is 64000 0 64000 64000"),
    "another group": (status("Groups:\t64000", "Groups:\t64000 998"), "it is in the groups 998"),
    "a network": (
        {"interfaces": ("    lo:", "  eth0:  1 2\n    lo:")},
        "it has the network interfaces eth0",
    ),
    "all ports": ({"port_start": ("1024", "0")}, "it may listen on ports from 0 on"),
    "writable root": (mounts("/ / ro,", "/ / rw,"), "/ is writable"),
    "writable mask": (mounts("/workspace/.git ro,", "/workspace/.git rw,"), "/workspace/.git is writable"),
    "writable hosts": (mounts("/etc/hosts ro,", "/etc/hosts rw,"), "/etc/hosts is writable"),
    "writable supervisor": (mounts("/sandbox-init ro,", "/sandbox-init rw,"), "/sandbox-init is writable"),
    "mask elsewhere": (mounts(" /workspace/.git ", " /workspace/sub/.git "), "no mount at /workspace/.git"),
    "no report": (mounts(" /report ", " /dev/report "), "no mount at /report"),
    "no home": (mounts(" /home/sandbox ", " /dev/home "), "no mount at /home/sandbox"),
    "one mount more": (mounts(" /etc/hostname ", " /var/run/docker.sock "), "something is mounted at /var/run"),
    "a place that only begins like one": (mounts(" /etc/hostname ", " /process "), "something is mounted at /process"),
    "mounts that spread": (
        mounts("/workspace rw,relatime -", "/workspace rw,relatime shared:7 -"),
        "propagate to other",
    ),
    "a deleted worktree": (
        mounts("/srv/sandbox/worktree ", "/srv/sandbox/worktree//deleted "),
        "/workspace shows a deleted directory",
    ),
    "tmp with devices": (
        mounts("/tmp rw,nosuid,nodev,", "/tmp rw,nosuid,"),
        "/tmp is not a tmpfs with nosuid and nodev",
    ),
    "tmp on a disk": (mounts("- tmpfs tmpfs rw,size=524288k", "- ext4 /dev/sda rw"), "/tmp is not a tmpfs"),
    "hidden root": (mounts("937 524 0:399 / / ro", "937 524 0:399 / / rw"), "/ is writable"),
}


@pytest.mark.parametrize(("changes", "fault"), FAULTS.values(), ids=FAULTS)
def test_one_change_is_one_fault_and_the_guest_is_refused(changes: dict[str, tuple[str, str]], fault: str) -> None:
    found = captured("runc", **changes)
    assert [fault in said for said in find_posture_faults(found, options("runc"))].count(True) == 1
    with pytest.raises(SandboxError) as caught:
        require_posture(found, options("runc"))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert fault in caught.value.brief


KERNEL_FAULTS: dict[str, tuple[dict[str, tuple[str, str]], str]] = {
    "a directory of the host as shared memory": (
        mounts("/ /dev/shm rw,nosuid,nodev,noexec,relatime - tmpfs", "/etc /dev/shm rw - ext4"),
        "/dev/shm shows files of the host (ext4)",
    ),
    "another's shared memory": (mounts("/ /dev/shm ", "/x /dev/shm "), "/dev/shm is not the guest's own"),
    "files of the host below a place of the kernel": (
        mounts("/ /proc/acpi ro,relatime - tmpfs", "/srv /proc/acpi ro - xfs"),
        "/proc/acpi shows files of the host (xfs)",
    ),
    "writable settings": (mounts(" /sys ro,", " /sys rw,"), "/sys is writable"),
}


@pytest.mark.parametrize(("changes", "fault"), KERNEL_FAULTS.values(), ids=KERNEL_FAULTS)
def test_s196_places_of_the_kernel_show_the_kernels_files(changes: dict[str, tuple[str, str]], fault: str) -> None:
    assert any(fault in said for said in find_posture_faults(captured("runc", **changes), options("runc")))


def test_limits_that_are_mounted_writable_are_no_fault() -> None:
    """As in a user namespace: `tests/docker/test_user_maps.py` has the real one."""
    changes = mounts("/sys/fs/cgroup/memory ro,", "/sys/fs/cgroup/memory rw,")
    assert find_posture_faults(captured("runc", **changes), options("runc")) == []


def test_k11_a_guest_that_owns_its_limits_may_not_write_them() -> None:
    """A rootless engine and its guests are one user, who owns the files. Control: as the runtime mounts them."""
    rootless = {**options("runc"), "User": "0:0"}
    ids = status("Uid:\t64000\t64000\t64000\t64000", "Uid:\t0\t0\t0\t0")
    others = find_posture_faults(captured("runc", **ids), rootless)
    assert not any("/sys/fs/cgroup" in fault for fault in others)
    changes = mounts("/sys/fs/cgroup/memory ro,", "/sys/fs/cgroup/memory rw,")
    assert {*find_posture_faults(captured("runc", **ids, **changes), rootless)} == {
        *others,
        "/sys/fs/cgroup/memory is writable",
    }


@pytest.mark.parametrize("name", CAPTURED)
@pytest.mark.parametrize("runtime", ["runc", "runsc"])
def test_a_text_that_is_missing_is_a_fault_where_it_says_something(runtime: str, name: str) -> None:
    """PID 1 sends a text that is too long empty, never cut."""
    if (runtime, name) == ("runsc", "port_start"):
        return  # its kernel does not say, and does not keep to it: docs/hardening.md
    texts = {other: (DATA / f"{runtime}.{other}").read_text() for other in CAPTURED} | {name: ""}
    found = Posture(bytes(16), texts["status"], texts["mountinfo"], texts["interfaces"], texts["port_start"], "")
    assert find_posture_faults(found, options(runtime))


OWN_KERNEL_FAULTS: dict[str, tuple[dict[str, tuple[str, str]], str]] = {
    "capabilities": (status(f"CapEff:\t{ZERO}", f"CapEff:\t{SOME}"), f"CapEff is {SOME}"),
    "root": (status("Uid:\t64000", "Uid:\t0"), "Uid is 0"),
    "a network": ({"interfaces": ("    lo:", "  eth0:  1 2\n    lo:")}, "eth0"),
    "writable root": (mounts(" / / ro ", " / / rw "), "/ is writable"),
    "writable mask": (mounts("/workspace/.git ro ", "/workspace/.git rw "), "/workspace/.git is writable"),
    "no mask": (mounts(" /workspace/.git ", " /x "), "no mount at /workspace/.git"),
}


@pytest.mark.parametrize(("changes", "fault"), OWN_KERNEL_FAULTS.values(), ids=OWN_KERNEL_FAULTS)
def test_a_guest_with_a_kernel_of_its_own_is_held_to_what_it_shows(
    changes: dict[str, tuple[str, str]], fault: str
) -> None:
    assert any(fault in said for said in find_posture_faults(captured("runsc", **changes), options("runsc")))


def test_what_gvisor_does_not_show_is_a_fault_under_runc() -> None:
    assert find_posture_faults(captured("runsc"), options("runc"))


@pytest.mark.parametrize("runtime", ["runc", "runsc"])
def test_a_workspace_that_should_be_read_only_and_is_not_is_a_fault(runtime: str) -> None:
    """The captured guests got a writable one."""
    asked = options(runtime)
    for mount in asked["HostConfig"]["Mounts"]:
        mount["ReadOnly"] = mount["ReadOnly"] or mount["Target"] == "/workspace"
    assert find_posture_faults(captured(runtime), asked) == ["/workspace is writable"]
