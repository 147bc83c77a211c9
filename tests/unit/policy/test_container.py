"""The shipped policy and seccomp profile, and what the loader refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Limits
from sandbox.policy.container import ContainerPolicy, load_container_policy

SHIPPED = Path(__file__).parents[3] / "policies"
NEW_NAMESPACES = 0x20000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

NEVER = """
    acct add_key adjtimex bpf chroot clock_adjtime clock_settime create_module delete_module fanotify_init
    fanotify_mark finit_module fsconfig fsmount fsopen fspick get_mempolicy init_module io_uring_enter
    io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind
    memfd_secret migrate_pages modify_ldt mount mount_setattr move_mount move_pages nfsservctl
    open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root process_madvise process_vm_readv
    process_vm_writev quotactl quotactl_fd reboot request_key set_mempolicy setdomainname sethostname setns
    settimeofday socketcall stime swapoff swapon sysfs syslog umount umount2 unshare uselib userfaultfd ustat
    vhangup vm86 vm86old vmsplice
"""
KERNEL_AIO = "io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit"


def names(text: str) -> list[str]:
    return text.split()


@pytest.fixture(scope="module")
def profile() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(load_container_policy(SHIPPED).seccomp_json)
    return loaded


def rules(profile: dict[str, Any], syscall: str) -> list[dict[str, Any]]:
    return [rule for rule in profile["syscalls"] if syscall in rule["names"]]


def test_shipped_policy_loads() -> None:
    policy = load_container_policy(SHIPPED).container
    assert policy.user.uid == 64000
    assert policy.runtimes == ("runc", "runsc")


def test_default_limits_are_below_the_shipped_ceiling() -> None:
    ceiling = load_container_policy(SHIPPED).container.ceiling
    assert all(getattr(Limits(), name) <= getattr(ceiling, name) for name in Limits.model_fields)


def test_every_key_of_the_policy_is_in_the_shipped_file() -> None:
    policy = load_container_policy(SHIPPED).container
    assert policy.model_fields_set == ContainerPolicy.model_fields.keys()


def test_profile_denies_by_default_with_eperm(profile: dict[str, Any]) -> None:
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 1)


def test_profile_knows_native_64_bit_calls_only(profile: dict[str, Any]) -> None:
    assert {a["architecture"]: a["subArchitectures"] for a in profile["archMap"]} == {
        "SCMP_ARCH_X86_64": [],
        "SCMP_ARCH_AARCH64": [],
    }


@pytest.mark.parametrize("syscall", names(NEVER))
def test_syscall_is_never_allowed(profile: dict[str, Any], syscall: str) -> None:
    assert rules(profile, syscall) == []


def test_only_these_rules_look_at_arguments(profile: dict[str, Any]) -> None:
    limited = {name for rule in profile["syscalls"] if rule.get("args") for name in rule["names"]}
    open_ended = {name for rule in profile["syscalls"] if not rule.get("args") for name in rule["names"]}
    assert limited == {
        "clone", "personality", "socket", "socketpair", "sched_setscheduler", "setpriority", "ioprio_set", "fallocate",
        "ioctl", "setsockopt", "fcntl",
    }  # fmt: skip
    assert not limited & open_ended


def test_clone_refuses_every_new_namespace(profile: dict[str, Any]) -> None:
    (rule,) = rules(profile, "clone")
    assert rule["args"] == [{"index": 0, "value": NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]


def test_clone3_is_enosys_so_that_libc_falls_back(profile: dict[str, Any]) -> None:
    (rule,) = rules(profile, "clone3")
    assert (rule["action"], rule["errnoRet"]) == ("SCMP_ACT_ERRNO", 38)


@pytest.mark.parametrize("syscall", names(KERNEL_AIO))
def test_s203_kernel_aio_is_enosys_so_that_programs_fall_back(profile: dict[str, Any], syscall: str) -> None:
    """THREATS S203: its contexts are counted for the whole host (fs.aio-max-nr)."""
    (rule,) = rules(profile, syscall)
    assert (rule["action"], rule["errnoRet"], rule.get("args")) == ("SCMP_ACT_ERRNO", 38, None)


def lets_through(profile: dict[str, Any], syscall: str, index: int, value: int) -> list[tuple[str, int | None]]:
    """What the rules that look at one argument say of a value: action and error of each that matches."""
    found = []
    for rule in rules(profile, syscall):
        (arg,) = rule["args"]
        assert (arg["index"], arg["op"]) == (index, "SCMP_CMP_MASKED_EQ")
        if value & arg["value"] == arg["valueTwo"]:
            found.append((rule["action"], rule.get("errnoRet")))
    return found


LEVELS = (*range(1100), 1 << 31, 0xFFFFFFFF)
OPTIONS = (*range(300), 1 << 31, 0xFFFFFFFF)
DENIED_OPTIONS = {
    1: {26, 50, 51},  # SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF: asm-generic/socket.h
    6: {14, 32, 38, 39, 40, 41},  # TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_*: linux/tcp.h
}


def fits(rule: dict[int, tuple[int, int]], index: int, value: int) -> bool:
    mask, wanted = rule.get(index, (0, 0))
    return value & mask == wanted


@pytest.mark.parametrize("high", [0, 1 << 32, 0xFFFFFFFF << 32], ids=hex)
def test_s237_options_of_sockets_that_the_host_pays_for_are_denied(profile: dict[str, Any], high: int) -> None:
    """All other options of levels below 1024 reach the kernel, which reads the lower half of each argument."""
    masks = [{arg["index"]: (arg["value"], arg["valueTwo"]) for arg in r["args"]} for r in rules(profile, "setsockopt")]
    for level in LEVELS:
        found = [rule for rule in masks if fits(rule, 1, level | high)]
        if level not in DENIED_OPTIONS:
            assert any(2 not in rule for rule in found) == (level < 1024), level
            continue
        for option in OPTIONS:
            allowed = any(fits(rule, 2, option | high) for rule in found)
            assert allowed == (option < 256 and option not in DENIED_OPTIONS[level]), (level, option)


@pytest.mark.parametrize("high", [0, 1 << 32], ids=hex)
def test_s236_no_locks_of_open_files(profile: dict[str, Any], high: int) -> None:
    """They can be kept where no descriptor shows them. EINVAL, as before Linux 3.15: programs use other locks then."""
    for command in (*range(1100), 2047, 2048, 0xFFFFFFFF):
        expected = list[tuple[str, int | None]]()
        if command <= 36 or 1024 <= command < 2048:
            expected = [("SCMP_ACT_ALLOW", None)]
        elif command in {37, 38}:
            expected = [("SCMP_ACT_ERRNO", 22)]
        assert lets_through(profile, "fcntl", 1, command | high) == expected, command


@pytest.mark.parametrize("mode", range(0x80))
def test_fallocate_makes_holes_and_nothing_else(profile: dict[str, Any], mode: int) -> None:
    """FALLOC_FL_PUNCH_HOLE is 2; the kernel takes it with FALLOC_FL_KEEP_SIZE only, which allocates nothing."""
    allowed, refused = ("SCMP_ACT_ALLOW", None), ("SCMP_ACT_ERRNO", 95)
    assert lets_through(profile, "fallocate", 1, mode) == [allowed if mode & 2 else refused]


# FS_IOC_RESVSP, FS_IOC_RESVSP64, FS_IOC_ZERO_RANGE: linux/falloc.h. FS_IOC_FSSETXATTR, which moves a file to another
# project and so to another quota: linux/fs.h.
DENIED_IOCTLS = [0x40305828, 0x4030582A, 0x40305839, 0x401C5820]


@pytest.mark.parametrize("high", [0, 1 << 32, 0xFFFFFFFF << 32])
def test_ioctl_is_no_way_round_fallocate_or_a_quota(profile: dict[str, Any], high: int) -> None:
    """Every command but the writes of type X goes through, whatever the half of the register that the kernel does not
    read.
    """
    assert not [c for c in range(0x40305800, 0x40305900) if lets_through(profile, "ioctl", 1, high | c)]
    assert not [c for c in DENIED_IOCTLS if lets_through(profile, "ioctl", 1, high | c)]
    others = [0x5401, 0x541B, 0x5421, 0x80086601, 0xC0306201, 0x40305700, 0x40305900, 0, 0xFFFFFFFF]
    others += [command ^ (1 << bit) for command in DENIED_IOCTLS for bit in (*range(8, 16), 30, 31)]
    assert all(lets_through(profile, "ioctl", 1, high | command) for command in others)


def test_personality_cannot_turn_off_randomisation(profile: dict[str, Any]) -> None:
    values = {rule["args"][0]["value"] for rule in rules(profile, "personality")}
    assert values == {0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF}


def test_socket_families(profile: dict[str, Any]) -> None:
    families = {rule["args"][0]["value"] for rule in rules(profile, "socket")}
    assert families == {1, 2, 10, 16}  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
    assert {rule["args"][0]["value"] for rule in rules(profile, "socketpair")} == {1}


def test_netlink_is_for_routes_only(profile: dict[str, Any]) -> None:
    (rule,) = [rule for rule in rules(profile, "socket") if rule["args"][0]["value"] == 16]
    assert rule["args"][1] == {"index": 2, "value": 0, "op": "SCMP_CMP_EQ"}


def low_half(index: int, value: int) -> dict[str, Any]:
    """All the kernel reads of an int: the upper half of a register must not make it another value for the filter."""
    return {"index": index, "value": 0xFFFFFFFF, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


@pytest.mark.parametrize(("syscall", "kinds"), [("setpriority", (0, 1)), ("ioprio_set", (1, 2))])
def test_priority_is_ones_own_process_or_group(profile: dict[str, Any], syscall: str, kinds: tuple[int, int]) -> None:
    assert [rule["args"] for rule in rules(profile, syscall)] == [[low_half(0, k), low_half(1, 0)] for k in kinds]


def test_scheduling_policy_is_the_plain_one(profile: dict[str, Any]) -> None:
    assert [rule["args"] for rule in rules(profile, "sched_setscheduler")] == [[low_half(1, 0)]]
    assert rules(profile, "sched_setattr") == []


def test_tracing_needs_a_kernel_that_keeps_seccomp(profile: dict[str, Any]) -> None:
    (rule,) = rules(profile, "ptrace")
    assert rule["includes"] == {"minKernel": "4.8"}


def test_no_syscall_is_listed_twice(profile: dict[str, Any]) -> None:
    listed = [name for rule in profile["syscalls"] if not rule.get("args") for name in rule["names"]]
    assert len(listed) == len(set(listed))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED, tmp_path / "policies"))


def refused(folder: Path) -> SandboxError:
    with pytest.raises(SandboxError) as caught:
        load_container_policy(folder)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    return caught.value


@pytest.mark.parametrize(
    "line",
    [
        "privileged = true",
        'runtimes = "runc"',
        "cpu_shares = 4096",
        "oom_score_adj = -1000",
        "user = {uid = 0}",
        'mounts = {workspace = "/etc"}',
        "ulimits = {core = -1}",
        "ceiling = {memory_bytes = 0}",
        "not toml",
    ],
)
def test_policy_that_loosens_or_mistypes_is_refused(folder: Path, line: str) -> None:
    (folder / "container.toml").write_text(line + "\n")
    refused(folder)


@pytest.mark.parametrize("name", ["container.toml", "seccomp.json"])
def test_missing_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"defaultAction": "SCMP_ACT_ALLOW"}', '{"defaultAction": "SCMP_ACT_LOG"}']
)
def test_profile_that_does_not_deny_by_default_is_refused(folder: Path, text: str) -> None:
    (folder / "seccomp.json").write_text(text)
    refused(folder)


def test_profile_outside_the_folder_is_not_read(folder: Path) -> None:
    (folder.parent / "seccomp2.json").write_text('{"defaultAction": "SCMP_ACT_ERRNO"}')
    (folder / "container.toml").write_text('seccomp = "../seccomp2.json"\n')
    refused(folder)


GIB = 1024**3


@pytest.mark.parametrize(
    ("host", "chosen", "expected"),
    [(GIB, 0, GIB // 2), (4 * GIB, 0, 3 * GIB), (64 * GIB, 0, 56 * GIB), (4 * GIB, 7 * GIB, 7 * GIB)],
    ids=["half of a small host", "all but a GiB", "all but an eighth", "as the operator says"],
)
def test_all_guests_together_leave_memory_to_the_host(host: int, chosen: int, expected: int) -> None:
    assert ContainerPolicy(all_memory_bytes=chosen).memory_of_all_guests(host) == expected


@pytest.mark.parametrize("name", ["/docker", "a/b", "..", "A", "a-", "a.slice", "1a", "a b"])
def test_a_group_has_a_plain_name(name: str) -> None:
    with pytest.raises(ValidationError):
        ContainerPolicy(group=name)
    assert ContainerPolicy(group="").group == ""


def test_by_default_a_file_may_pass_four_gib_and_the_disk_bounds_it_first() -> None:
    """Suites of compressors and archivers write a sparse file past what 32 bits address. All files have one bound."""
    limits = Limits()
    assert 5 * 1024**3 < limits.file_bytes < limits.disk_bytes
