"""What this host supports: the lines of `sandbox doctor`. Pure functions from facts to probes, and `doctor`, which
gathers the facts.

If the engine does not answer, its own line fails; lines that need the engine are warnings that say "unknown".
"""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox.byte_sizes import format_bytes
from sandbox.config import Settings, WorkspaceSettings
from sandbox.engine.cgroups import SOCKET_LIMIT
from sandbox.engine.guest_group import GuestGroup, read_group_host
from sandbox.engine.guest_process import PROCESSES_HINT
from sandbox.engine.mounts import INVISIBLE_FILES_HINT
from sandbox.engine.products import (
    has_containerd_store,
    has_security_option,
    how_to_get_runtime,
    is_podman,
    is_rootless,
)
from sandbox.engine.protocol import EngineInformation
from sandbox.engine.user_maps import find_first_ids
from sandbox.errors import SandboxError
from sandbox.files.disk_images import find_disk_obstacle
from sandbox.files.disk_usage import FreeSpace
from sandbox.files.idmap import IdMapping
from sandbox.files.mount_points import find_file_system_type
from sandbox.files.openat2 import require_openat2
from sandbox.files.overlay_mounts import find_overlay_obstacle
from sandbox.guest_labels import is_labelled, is_permissive
from sandbox.models import ImageInfo, Limits, Probe, ProbeLevel
from sandbox.policy.container import ContainerPolicy, UserIds
from sandbox.profiles import Profile
from sandbox.store.guest_users import subtract_ranges
from sandbox.store.home import GUEST_FOLDERS, Home
from sandbox.store.host_ids import read_reserved_ids
from sandbox.store.quarantine import QuarantineNotes

_OK, _WARN, _FAIL = ProbeLevel.OK, ProbeLevel.WARN, ProbeLevel.FAIL
_GIB = 1024**3
_LOW_FREE_BYTES = 20 * _GIB
_IN_MEMORY = ("tmpfs", "ramfs")
MIN_FREE_USERS = 256
_MIN_MEMORY_BYTES = 4 * _GIB
_CPU_SET = "CPUSet"
_LIMITS = ("MemoryLimit", "SwapLimit", "CpuCfsQuota", "CPUShares", _CPU_SET, "PidsLimit")
_DELEGATED = {"cpuset": "guests see all CPUs", "io": "reports lack the bytes written"}
"""Controllers that a rootless engine can do without, and what is missing then."""

_BUFFERS_ARE_LIMITED = (
    "they get limits of their own, half of a guest's memory, which the kernel may exceed, and are watched."
)
_BUFFERS_ARE_WATCHED = (
    "a guest is only watched, and for a moment can hold more (root also sets a limit, where the kernel has one)."
)

_GIT_FIXED = {43: 7, 44: 4, 45: 4, 46: 4, 47: 3, 48: 2, 49: 1, 50: 1}  # CVE-2025-48384: 2.<minor> is fixed at .<patch>
_GIT_DEBIAN_FIXED = 3  # 2.39.5-0+deb12u3
_RUNC_FIXED = {(1, 2): 8, (1, 3): 3}  # CVE-2025-31133, CVE-2025-52565, CVE-2025-52881
_RUNC_FIRST_SAFE = (1, 4)
_CONTAINERD_ROOT = Path("/var/lib/containerd")
_RUNC_FIRST_SAFE_CANDIDATE = 3  # 1.4.0-rc.3

Facts = Mapping[str, Any]
"""The engine's answer to `GET /info`, unchanged."""


def probe_host(
    engine: EngineInformation | SandboxError,
    settings: Settings,
    home: Path,
    *,
    policy: ContainerPolicy,
    images: tuple[ImageInfo, ...] = (),
    git_version: str = "",
) -> tuple[Probe, ...]:
    """Make all lines, in the order to show them. Never raises: a fact that cannot be read becomes a line that says so.

    `git_version`: the output of `git --version`, empty when git is missing.
    """
    info = _read_info(engine)
    reserved = read_reserved_ids(subordinate=not policy.users.mapped)
    overlay_obstacle = _find_overlay_obstacle(_nearest_existing(home), policy)
    disk = settings.disk
    floor_bytes = max(disk.min_free_bytes, disk.reserve_bytes)
    floor_files = max(disk.min_free_files, disk.reserve_files)
    return (
        engine_probe(engine, info),
        *engine_probes(info, settings, policy, home),
        *image_probes(images),
        home_disk_probe(
            disk_probe("disk: home", _nearest_existing(home), floor_bytes, floor_files, disk.reserve_bytes),
            _find_type(_nearest_existing(home)),
        ),
        disk_probe("disk: engine", _find_engine_root(engine, info), floor_bytes),
        uid_probe(
            os.geteuid(),
            policy,
            reserved,
            _find_obstacle(settings.container.users_folder),
            rootless=not isinstance(info, SandboxError) and is_rootless(info),
        ),
        git_probe(git_version, _read_debian_version("git"), settings.git.executable),
        openat2_probe(openat2_works(), platform.release()),
        worktrees_probe(settings.workspaces.worktree, overlay_obstacle),
        guest_disk_probe(settings.workspaces, find_disk_obstacle(_nearest_existing(home)) or overlay_obstacle),
        open_files_probe(_read_file_max(), Limits(), os.cpu_count() or 1),
        python_probe(platform.python_version_tuple()),
        *quarantine_probes(QuarantineNotes(Home(home).quarantine).names()),
    )


def engine_probe(engine: EngineInformation | SandboxError, info: Facts | SandboxError) -> Probe:
    """Whether an engine answers, at which endpoint, and where that endpoint was configured."""
    error = next((e for e in (engine, info) if isinstance(e, SandboxError)), None)
    if error is not None:
        return _fail("engine", error.details or error.brief, error.hint or "Start the engine, then try again.")
    assert not isinstance(engine, SandboxError)  # noqa: S101  # narrowed above
    where = f"{engine.version} at {engine.endpoint.url} ({engine.endpoint.source})"
    if not engine.is_local:
        return _warn(
            "engine", where, "It is not on this host, so worktrees cannot be mounted. Use a local unix socket."
        )
    return _ok("engine", where)


def engine_probes(
    info: Facts | SandboxError, settings: Settings, policy: ContainerPolicy, home: Path
) -> tuple[Probe, ...]:
    """The lines that are read from the engine's `GET /info`."""
    probes: dict[str, Callable[[Facts], Probe]] = {
        "cgroup": lambda facts: cgroup_probe(facts, _read_delegated(facts), limits_sockets=_can_limit_sockets(facts)),
        "limits": limits_probe,
        "storage": storage_probe,
        "runtime": lambda facts: runtime_probe(facts, settings, policy),
        "runc": lambda facts: runc_probe(facts, settings.container.runtime),
        "seccomp": seccomp_probe,
        "lsm": lambda facts: lsm_probe(facts, _find_unlabelled(home), records_only=is_permissive()),
        "userns": lambda facts: userns_probe(facts, policy.users),
        "init": init_probe,
        "memory": memory_probe,
        "cpus": cpus_probe,
    }
    if isinstance(info, SandboxError):
        return tuple(_warn(name, "unknown", "Needs an engine that answers.") for name in probes)
    return tuple(probe(info) for probe in probes.values())


def cgroup_probe(info: Facts, delegated: frozenset[str] | None = None, *, limits_sockets: bool = False) -> Probe:
    """Version 1 works; version 2 measures more. `delegated`: the controllers of a rootless engine; None: of others.
    `limits_sockets`: whether this process may limit the network buffers of guests on version 1.
    """
    version = str(info.get("CgroupVersion") or "")
    if version == "2" and (lacking := sorted(_DELEGATED.keys() - delegated) if delegated is not None else []):
        return _warn(
            "cgroup",
            f"version 2; not delegated to your user: {', '.join(lacking)}",
            f"Works, but {' and '.join(_DELEGATED[name] for name in lacking)}. To delegate: write `[Service]` and "
            "`Delegate=cpu cpuset io memory pids` to /etc/systemd/system/user@.service.d/delegate.conf, then restart.",
        )
    if version == "2":
        return _ok("cgroup", "version 2")
    if version == "1":
        buffers = _BUFFERS_ARE_LIMITED if limits_sockets else _BUFFERS_ARE_WATCHED
        return _warn(
            "cgroup",
            "version 1",
            f"Works, but reports lack the bytes written, and memory limits do not cover network buffers: {buffers} "
            "Boot with systemd.unified_cgroup_hierarchy=1 to use version 2.",
        )
    return _warn("cgroup", "unknown", "The engine does not report it; limits are verified for each container.")


def limits_probe(info: Facts) -> Probe:
    """Warn early: a limit that the kernel cannot enforce is refused when a container is created."""
    missing = [name for name in _LIMITS if info.get(name) is False]
    if missing == [_CPU_SET]:
        return _warn("limits", "memory, swap, cpu and pids", "No cpuset: guests see all CPUs, but use no more of them.")
    if not missing:
        return _ok("limits", "memory, swap, cpu and pids")
    return _fail(
        "limits",
        f"not supported: {', '.join(missing)}",
        "SwapLimit: boot with `swapaccount=1` or use cgroup version 2. Rootless: delegate the controllers.",
    )


def storage_probe(info: Facts) -> Probe:
    """The storage driver: `vfs` copies the whole image for each container."""
    driver = str(info.get("Driver") or "unknown")
    if driver in ("vfs", "unknown"):
        return _warn("storage", driver, "Use overlay2 (or overlayfs): it starts containers without copying the image.")
    return _ok("storage", driver)


def runtime_probe(info: Facts, settings: Settings, policy: ContainerPolicy) -> Probe:
    """The configured runtime and those of profiles must exist: there is no fallback."""
    configured = settings.container.runtime
    present = sorted(info.get("Runtimes") or {})
    value = f"{configured} (of {', '.join(present) or 'none'})"
    if configured not in policy.runtimes:
        return _fail("runtime", value, f"The policy allows {', '.join(policy.runtimes)}: change container.runtime.")
    if configured not in present:
        return _fail("runtime", value, how_to_get_runtime(info, configured))
    wanted = {name: profile.runtime for name, profile in settings.profiles.items() if profile.runtime}
    if lacking := {n: r for n, r in wanted.items() if r not in present or r not in policy.runtimes}:
        named = ", ".join(f"profiles.{name}.runtime = {runtime}" for name, runtime in sorted(lacking.items()))
        return _warn("runtime", value, f"The engine or the policy lacks a runtime of a profile: {named}.")
    return _ok("runtime", value)


def quarantine_probes(containers: Mapping[str, str]) -> tuple[Probe, ...]:
    """A line only if containers are in quarantine."""
    if not containers:
        return ()
    hint = "The engine could not stop these containers. Run `sandbox gc` to try again, or restart the engine."
    return (_warn("quarantine", ", ".join(sorted(containers)), hint),)


def runc_probe(info: Facts, configured: str) -> Probe:
    """THREATS K20: runc >= 1.2.8, 1.3.3 or 1.4.0, or a distribution's patched build."""
    text = str((info.get("RuncCommit") or {}).get("ID") or "")
    version = _parse_version(text)
    if configured != "runc":
        return _ok("runc", f"{text or 'unknown'}, not used")
    if version is None:
        return _warn("runc", text or "unknown", "Check `runc --version`: 1.2.8, 1.3.3, 1.4.0 or later.")
    if _is_fixed_runc(version, text):
        return _ok("runc", text)
    if re.search(r"\+deb|ubuntu|\+ds|\.el\d|\.fc\d", text):
        return _warn(
            "runc", text, "A distribution's build: keep it updated and check its changelog for CVE-2025-31133."
        )
    return _fail("runc", text, "Known container escapes: upgrade to runc 1.2.8, 1.3.3, 1.4.0 or later.")


def seccomp_probe(info: Facts) -> Probe:
    """Without seccomp our profile cannot be loaded, and no container starts."""
    if has_security_option(info, "seccomp"):
        return _ok("seccomp", "available")
    return _fail("seccomp", "missing", "Use a kernel with CONFIG_SECCOMP_FILTER and an engine built with seccomp.")


def lsm_probe(info: Facts, unlabelled: Sequence[Path] = (), *, records_only: bool = False) -> Probe:
    """AppArmor or SELinux, a second layer of defense where the distribution ships one. `unlabelled`: paths of the home
    that guests need and SELinux does not let them use. `records_only`: SELinux is in permissive mode.
    """
    # A rootless Podman names AppArmor because the kernel has it, and can give its guests no profile.
    modules = ("selinux",) if is_rootless(info) else ("apparmor", "selinux")
    found = [name for name in modules if has_security_option(info, name)]
    if "selinux" in found and (records_only or unlabelled):
        return _selinux_probe(", ".join(found), unlabelled, records_only)
    if found:
        return _ok("lsm", f"{', '.join(found)}; confirmed in each guest")
    if is_rootless(info):
        return _warn("lsm", "none", "A rootless engine cannot confine guests by AppArmor; seccomp still does.")
    return _warn(
        "lsm", "none", "Neither AppArmor nor SELinux confines guests; enable the one that your distribution ships."
    )


def _selinux_probe(found: str, unlabelled: Sequence[Path], records_only: bool) -> Probe:
    states, hints = [found], []
    if records_only:
        states.append("in permissive mode, which denies no access")
        hints.append(
            "SELinux only records what guests do. If the policy of this system is made for all of it, as Fedora's is "
            "and Debian's is not, set SELINUX=enforcing in /etc/selinux/config."
        )
    if unlabelled:
        states.append(f"{len(unlabelled)} paths of the home have no label for guests")
        hints.append(
            f"Paths are older than SELinux here, or were copied; where it denies, no check starts with them. Label "
            f"them once, with no check running: chcon -R -t container_file_t {shlex.join(map(str, unlabelled))}"
        )
    tell = _warn if records_only else _fail
    return tell("lsm", "; ".join(states), " ".join(hints))


def _find_unlabelled(home: Path) -> list[Path]:
    """What is there and has no label: folders that are made later get theirs then."""
    store = Home(home)
    names = ("gitmask", "hosts", "init", *(f"repositories/{name}" for name in (*GUEST_FOLDERS, "accounts")))
    return [path for path in (store.root / name for name in names) if path.exists() and not is_labelled(path)]


def userns_probe(info: Facts, users: UserIds) -> Probe:
    """Guests cannot write to their worktrees if the engine gives them ids that are not theirs: checks are refused."""
    try:
        first, _ = find_first_ids(info, users)
    except SandboxError as error:
        return _fail("userns", error.brief, error.hint)
    if is_rootless(info):
        return _ok("userns", f"rootless engine: guests are you (uid {first}), and root, without rights, of a namespace")
    if first:
        return _ok("userns", f"guests are in a user namespace: their 0 is {first} of this host")
    return _ok("userns", "guests have the uids of this host")


def init_probe(info: Facts) -> Probe:
    """docker-init is PID 1 of guests that run one tool and no checks. Guests of checks use our supervisor."""
    binary = str(info.get("InitBinary") or "")
    if is_podman(info):
        return _ok("init", "not used: with Podman the tool itself is PID 1")
    if binary:
        return _ok("init", binary)
    return _fail(
        "init", "missing", "Install docker-init (package `tini` on Debian): containers that extract symbols need it."
    )


def memory_probe(info: Facts) -> Probe:
    """Memory of the host; a check may use 4 GiB by default."""
    total = int(info.get("MemTotal") or 0)
    value = format_bytes(total)
    if total < _MIN_MEMORY_BYTES:
        return _warn("memory", value, "A check may use 4 GiB by default: lower memory_bytes in the profile's limits.")
    return _ok("memory", value)


def guest_memory_probe(group: GuestGroup | SandboxError) -> Probe:
    """The bound for the memory of all guests together, and what holds it."""
    name = "guest memory"
    if isinstance(group, SandboxError):
        return _warn(name, f"unknown: {group.brief}", "Needs an engine that answers and runs guests.")
    if group.memory_bytes is None:
        return _warn(
            name,
            f"each guest has its limit, all together have none: {group.obstacle}",
            "It is made by `sandbox doctor` as root, with a rootless engine by that of its user (docs/hardening.md).",
        )
    value = f"{format_bytes(group.memory_bytes)} for all guests together (control group {group.parent})"
    if group.obstacle:
        hint = "The group has another limit than this home's policy: run `sandbox doctor` as root while no check runs."
        return _warn(name, f"{value}; it could not be changed: {group.obstacle}", hint)
    return _ok(name, value)


def cpus_probe(info: Facts) -> Probe:
    """CPUs of the host; the engine refuses a higher limit."""
    cpus = int(info.get("NCPU") or 0)
    if cpus < 2:  # the default of Limits.cpus
        return _warn(
            "cpus", str(cpus), "Checks use 2 by default and the engine refuses more than the host has: lower `cpus`."
        )
    return _ok("cpus", str(cpus))


def image_probes(images: Iterable[ImageInfo]) -> tuple[Probe, ...]:
    """One line per image."""
    return tuple(_image_probe(image) for image in images)


def _image_probe(image: ImageInfo) -> Probe:
    name, build = f"image: {image.name}", f"Run `sandbox images build {image.name}`."
    if image.variant_of:
        build = (
            f"Run `sandbox images build {image.variant_of} --wheelhouse FILE --as {image.name}` with its requirements."
        )
    if image.problem:
        return _warn(name, image.problem, f"Correct or remove $SANDBOX_HOME/images/{image.name}/.")
    if not image.present:
        return _warn(name, "not built", build)
    if image.stale:
        return _warn(name, f"{image.tag} is older than its base image", build)
    return _ok(name, image.tag)


def visibility_probe(unknown: str = "", *, files: bool = True, mounts: bool = True) -> Probe:
    """Whether the engine sees the home's files and mounts. `unknown`: why this could not be tested."""
    if unknown:
        return _warn("files", f"unknown: {unknown}", "It could not be tested whether the engine sees the home's files.")
    if not files:
        return _fail("files", "the engine does not see the files of this home", INVISIBLE_FILES_HINT)
    if not mounts:
        hint = "The engine has its own mount namespace: set workspaces.worktree = 'plain', or start it in this host's."
        return _fail("files", "the engine does not see the mounts in this home", hint)
    return _ok("files", "the engine sees this home")


def processes_probe(*, seen: bool, unknown: str = "") -> Probe:
    """Whether this process sees the engine's, and so those of guests. `unknown`: why this could not be tested."""
    if unknown:
        return _warn("processes", f"unknown: {unknown}", "It could not be tested whether guests' processes are seen.")
    if not seen:
        return _fail(
            "processes", "this controller does not see those of the engine; checks are refused", PROCESSES_HINT
        )
    return _ok("processes", "those of guests are seen")


def profile_probes(profiles: Iterable[Profile]) -> tuple[Probe, ...]:
    """A line only for a profile with an error in its file."""
    hint = (
        "Repositories that need it, by name or rules, are refused. Correct the file; docs/profiles.md lists every key."
    )
    return tuple(
        _warn(f"profile: {profile.name}", f"{profile.source}: {profile.problem}", hint)
        for profile in profiles
        if profile.problem
    )


def disk_probe(name: str, folder: Path | None, floor_bytes: int, floor_files: int = 0, reserve_bytes: int = 0) -> Probe:
    """Free space on the file system of `folder`; None: not on this host. `floor_bytes`, `floor_files`: what must stay
    free; `reserve_bytes`: only for closing and gc.
    """
    try:
        room = FreeSpace.of(folder) if folder is not None else None
    except OSError as error:
        return _warn(name, f"unknown: {error.strerror}", f"Check {folder}.")
    if room is None:
        return _warn(name, "unknown", "Needs an engine on this host.")
    free = room.free_bytes
    reserve = f"; {format_bytes(reserve_bytes)} of it are reserved for closing and gc" if reserve_bytes else ""
    few_files = room.free_files is not None and room.free_files < floor_files
    files = f" and {room.free_files:,} files" if few_files else ""
    value = f"{format_bytes(free)}{files} free at {folder}{reserve}"
    if free < floor_bytes:
        names = "the larger of disk.min_free_bytes and disk.reserve_bytes"
        hint = f"{format_bytes(floor_bytes)} must stay free ({names}): `sandbox gc`, then `docker system df`."
        return _fail(name, value, hint)
    if few_files:
        names = "the larger of disk.min_free_files and disk.reserve_files"
        hint = f"{floor_files:,} files must stay free ({names}): delete many small files, or `sandbox gc`."
        return _fail(name, value, hint)
    if free < _LOW_FREE_BYTES:
        return _warn(name, value, "Builds of large projects need more; 20 GiB is recommended.")
    return _ok(name, value)


def home_disk_probe(space: Probe, kind: str) -> Probe:
    """The line of the home's disk. `space`: what its free space says. `kind`: the type of its file system."""
    if kind not in _IN_MEMORY or space.level is _FAIL:
        return space
    return _warn(
        space.name,
        f"{space.value}, in memory ({kind})",
        "What guests write there uses the memory of this host: a check is killed for its memory before it reaches its "
        "disk limit, and a restart deletes every task. Choose a home on a disk (--home, SANDBOX_HOME).",
    )


def _find_type(folder: Path) -> str:
    try:
        return find_file_system_type(folder)
    except OSError:
        return ""


def uid_probe(
    euid: int, policy: ContainerPolicy, reserved: Sequence[range], obstacle: str = "", *, rootless: bool = False
) -> Probe:
    """The uids of guests on this host. `reserved`: ids of its accounts and subordinate ranges. `obstacle`: why ids in
    use cannot be recorded, empty if they can. `rootless`: the engine is.
    """
    ids = policy.users.ids
    if euid != 0:
        return _warn(
            "guest uid",
            f"{euid}, your own",
            "Guests share your uid and what the kernel counts by it (inotify, pipes, keys), with each other and with "
            "your programs, and one that escapes has your rights: "
            + ("an engine and a controller that are root give" if rootless else "run the controller as root to give")
            + " each task and clean room a uid of its own.",
        )
    if obstacle:
        hint = "Set container.users_folder to a directory that all controllers of this host share."
        return _fail("guest uid", f"cannot be recorded: {obstacle}", hint)
    free = sum(len(part) for part in subtract_ranges(ids, reserved))
    value = f"{ids.start} to {ids.stop - 1}, one for each task and clean room"
    if free < MIN_FREE_USERS:
        hint = "Accounts or subordinate ids of this host overlap: set [users] in policies/container.toml."
        return _fail("guest uid", f"{value}; {free} of them may be used", hint)
    return _ok("guest uid", value)


def _find_obstacle(folder: Path) -> str:
    """Why a folder cannot be written to, which may not exist yet; empty if it can."""
    nearest = _nearest_existing(folder)
    return "" if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} cannot be written"


def _find_overlay_obstacle(folder: Path, policy: ContainerPolicy) -> str:
    """Why overlays for users of their own do not work below a folder; empty if they work."""
    if os.geteuid() != 0:
        return find_overlay_obstacle(folder)
    uid = policy.users.first
    return find_overlay_obstacle(folder, IdMapping((policy.user.uid, policy.user.gid), (uid, uid)))


def git_probe(version_line: str, debian: str, configured: str = "") -> Probe:
    """THREATS M09: CVE-2025-48384. `debian`: version of Debian's package, empty elsewhere. `configured`: a path."""
    version = _parse_version(version_line)
    if version is None:
        install = "Set git.executable to the real, absolute path of a git that only root or you can replace."
        return _fail("git", version_line or configured or "missing", install if configured else "Install git.")
    packaged = configured in ("", "/usr/bin/git") and _is_package_of(debian, version)
    value = debian if packaged else ".".join(map(str, version))
    fixed = _is_fixed_git(version) or (packaged and _is_fixed_debian_git(debian))
    value = f"{value} at {configured}" if configured else value
    if fixed:
        return _ok("git", value)
    return _warn("git", value, "Upgrade to git 2.43.7, 2.50.1 or later, or your distribution's security update.")


def safe_directory_probe(every_directory: bool) -> Probe:
    """THREATS A12: the product does not rely on git's check of who owns a worktree, but the user's own git should."""
    if every_directory:
        return _warn(
            "safe.directory",
            "* (every directory)",
            "Your git obeys configuration that a guest left in a worktree: remove this from your git configuration.",
        )
    return _ok("safe.directory", "not for every directory")


def openat2_probe(works: bool, release: str) -> Probe:
    """The only system call that opens files of worktrees."""
    if works:
        return _ok("openat2", f"available (kernel {release})")
    return _fail(
        "openat2",
        f"missing (kernel {release})",
        "Use Linux 5.6 or later; inside a container its seccomp profile must allow openat2.",
    )


def open_files_probe(file_max: int | None, limits: Limits, cpus: int) -> Probe:
    """The kernel counts open files of all programs together; a process that is root is not bound. `limits`: of a check
    that names none.
    """
    if file_max is None:
        return _warn("open files", "unknown", "/proc/sys/fs/file-max cannot be read.")
    guests = max(cpus, 2)
    if file_max >= guests * limits.pids * limits.open_files:
        return _ok("open files", f"enough for {guests} checks")
    return _warn(
        "open files",
        f"{file_max:,} for all programs together; one check may open {limits.pids * limits.open_files:,}",
        "Few checks can take all, and others then fail. Set fs.file-max=9223372036854775807 (sysctl.d), as systemd "
        "does: open files count as memory of a guest. Or lower limits.open_files or limits.pids in profiles.",
    )


def python_probe(version: tuple[str, str, str]) -> Probe:
    """Python 3.11 or later."""
    value = ".".join(version)
    if (int(version[0]), int(version[1])) >= (3, 11):
        return _ok("python", value)
    return _fail("python", value, "Use Python 3.11 or later.")


def openat2_works() -> bool:
    """Try the call: the kernel may have it while a seccomp profile around us denies it."""
    try:
        require_openat2()
    except SandboxError:
        return False
    return True


def worktrees_probe(configured: str, reason: str) -> Probe:
    """Which layout new worktrees get. `reason`: why overlays do not work here, empty when they do."""
    if configured == "plain":
        return _ok("worktrees", "plain, as configured")
    if reason and configured == "overlay":
        return _fail("worktrees", f"no overlays: {reason}", "Set workspaces.worktree = 'auto', or run as root.")
    if reason:
        return _warn("worktrees", f"plain ({reason})", "Works, but each task has a whole checkout, which is walked.")
    return _ok("worktrees", "overlay")


def guest_disk_probe(wanted: WorkspaceSettings, reason: str) -> Probe:
    """What limits the disk of guests. `reason`: why a worktree cannot have a disk of its own, empty if it can: only an
    overlay has one.
    """
    weaker = "Works, but a check can pass its limit until the watch notices, or with files that have no name."
    if wanted.disk == "watch" or wanted.worktree == "plain":
        setting = "workspaces.disk" if wanted.disk == "watch" else "workspaces.worktree"
        return _warn("guest disk", "watched, as configured", f"{weaker} Set {setting} = 'auto'.")
    if not reason:
        return _ok("guest disk", "a file system for each task, clean room and room of a layer")
    if wanted.disk == "image":
        return _fail("guest disk", f"no file systems: {reason}", "Set workspaces.disk = 'auto', or run as root.")
    return _warn("guest disk", f"watched ({reason})", f"{weaker} Run as root, with overlays, loop devices and mke2fs.")


def _read_info(engine: EngineInformation | SandboxError) -> Facts | SandboxError:
    if isinstance(engine, SandboxError):
        return engine
    try:
        return engine.info()
    except SandboxError as error:
        return error


def _read_delegated(info: Facts) -> frozenset[str] | None:
    """The controllers that a rootless engine has; None for another engine, which has all."""
    host = read_group_host(info) if is_rootless(info) else None
    return host.read_controllers() if host else None


def _read_file_max() -> int | None:
    try:
        return int(Path("/proc/sys/fs/file-max").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _can_limit_sockets(info: Facts) -> bool:
    """Whether version 1 of control groups has a limit for network buffers, and this process may set it."""
    host = read_group_host(info)
    return host is not None and os.access(host.find_hierarchy("memory") / SOCKET_LIMIT, os.W_OK)


def _nearest_existing(folder: Path) -> Path:
    """The nearest existing folder: the home may not exist yet. `Path.exists` raises if a parent cannot be searched."""
    return next((path for path in (folder, *folder.parents) if os.access(path, os.F_OK)), Path("/"))


def _find_engine_root(engine: EngineInformation | SandboxError, info: Facts | SandboxError) -> Path | None:
    if isinstance(engine, SandboxError) or isinstance(info, SandboxError) or not engine.is_local:
        return None
    return choose_engine_root(info)


def choose_engine_root(info: Facts, of_containerd: Path = _CONTAINERD_ROOT) -> Path:
    """Where images and layers are. No answer of the engine names the root of containerd; a rootless engine starts one
    of its own, below its own root.
    """
    if has_containerd_store(info) and not is_rootless(info) and os.access(of_containerd, os.F_OK):
        return of_containerd
    return Path(str(info.get("DockerRootDir") or "/var/lib/docker"))


def _parse_version(text: str) -> tuple[int, int, int] | None:
    found = re.search(r"(?<![\d.])(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def _is_fixed_runc(version: tuple[int, int, int], text: str) -> bool:
    branch = version[:2]
    candidate = re.search(r"(?<![\d.])1\.4\.0[-~]rc\.?(\d+)", text)
    if candidate is not None:
        return int(candidate[1]) >= _RUNC_FIRST_SAFE_CANDIDATE
    return branch >= _RUNC_FIRST_SAFE or version[2] >= _RUNC_FIXED.get(branch, 1_000)


def _is_fixed_git(version: tuple[int, int, int]) -> bool:
    major, minor, patch = version
    return (major, minor) > (2, max(_GIT_FIXED)) or (major == 2 and patch >= _GIT_FIXED.get(minor, 1_000))


def _is_fixed_debian_git(package: str) -> bool:
    """Debian 12 patched its 2.39.5; later releases ship a fixed version, which `_is_fixed_git` recognises."""
    found = re.search(r"2\.39\.\d+-\d+\+deb12u(\d+)$", package)
    return found is not None and int(found[1]) >= _GIT_DEBIAN_FIXED


def _is_package_of(package: str, version: tuple[int, int, int]) -> bool:
    return _parse_version(package.partition(":")[2] or package) == version if package else False


def _read_debian_version(name: str, status: Path = Path("/var/lib/dpkg/status")) -> str:
    """Version of an installed Debian package; empty elsewhere. `git --version` does not show the revision."""
    try:
        text = status.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(rf"^Package: {re.escape(name)}\n(?:.+\n)*?Version: (.+)$", text, re.MULTILINE)
    return found[1] if found else ""


def _ok(name: str, value: str) -> Probe:
    return Probe(name=name, level=_OK, value=value)


def _warn(name: str, value: str, hint: str) -> Probe:
    return Probe(name=name, level=_WARN, value=value, hint=hint)


def _fail(name: str, value: str, hint: str) -> Probe:
    return Probe(name=name, level=_FAIL, value=value, hint=hint)
