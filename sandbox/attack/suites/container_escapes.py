"""THREATS K: what a guest can do. One run of the probe in the product's guest, one in a soft container."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path

from sandbox.attack.harness.attack_host import AttackHost
from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.guests import ProbeOutput, guests_of
from sandbox.attack.harness.outcomes import GotThrough, NotSupported
from sandbox.attack.harness.scene import SECRET, Scene, remove, require_equal, require_hit, require_refusal
from sandbox.attack.suites.nested import needs_root
from sandbox.engine.products import is_rootless
from sandbox.engine.unhardened import Bind
from sandbox.errors import ErrorCode
from sandbox.git.unhardened import run_unhardened
from sandbox.shipped_files import find_resources

PROBE = "a probe as a check"
CAPABILITIES = ("CapPrm", "CapEff", "CapBnd", "chown", "setuid 0", "chroot", "raw socket")
CALLS = (
    *("mknod", "nice -5"),
    *("mount tmpfs", "remount /", "umount", "pivot_root", "fsopen", "open_tree", "move_mount", "setns"),
    *("open_by_handle_at", "process_vm_readv", "init_module", "finit_module", "delete_module", "kexec_load", "bpf"),
    *("perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl", "settimeofday", "clock_settime"),
    *("sethostname", "reboot", "swapon", "acct", "quotactl", "syslog", "fanotify_init"),
)
SOCKETS = ("AF_ALG", "AF_VSOCK", "AF_PACKET", "AF_KEY", "AF_XDP", "netfilter", "xfrm", "SCTP", "AF_TIPC")
WRITES = ("core_pattern", "modprobe", "sysrq-trigger", "uevent_helper", "overcommit", "binfmt_misc")
SOCKET_FILES = tuple(
    f"socket {path}"
    for path in (
        *("/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock"),
        "/run/containerd/containerd.sock",
    )
)
ORDINARY = {"LANG": "C.UTF-8", "SHLVL": "0"}
"""Variables that a guest and a controller may share by chance; so may those that the policy sets."""
SUPERVISOR = ("memory", "descriptors", "environment", "program")
ROOT_OF_NAMESPACE = ("setuid 0", "setuid helper", "create /dev")
"""What a guest may do that is root, without capabilities, of the namespace of a rootless engine (docs/adr/0090): it
stays root, and owns /dev, which is memory of its own.
"""
READS = ("kcore", "keys", "timer_list", "interrupts", "kmsg", "mem", "sched_debug")
FOLDERS = (
    "/",
    "/etc",
    "/usr",
    "/usr/bin",
    "/var",
    "/root",
    "/home",
    "/lib",
    "/opt",
    "/mnt",
    "/run",
    "/dev",
)


def needs_shared_kernel(site: AttackHost) -> str:
    """A need: the guest uses this host's kernel."""
    return "" if site.runtime == "runc" else f"under {site.runtime} the guest has its own kernel"


def needs_other_users(site: AttackHost) -> str:
    """A need: guests are other users than the root of their namespace."""
    return (
        "on a rootless engine guests are root of a namespace without rights" if is_rootless(site.engine.info()) else ""
    )


def require_complete(output: ProbeOutput, where: str) -> ProbeOutput:
    """Raises: `Void` when the probe did not finish: an attempt that was not made proves no denial."""
    require_hit(output.complete, f"the probe did not finish in {where}")
    return output


def some_allowed(*names: str) -> Callable[[Scene], str]:
    """A control: some of these attempts worked in the soft container."""

    def control(scene: Scene) -> str:
        items = require_complete(guests_of(scene).soft_output, "the soft container").items
        worked = [name for name in names if name in items and items[name].allowed]
        require_hit(worked, f"a soft container could not do it either: {', '.join(names)}")
        return f"allowed in a soft container: {', '.join(worked)}"

    return control


def all_denied(*names: str) -> Callable[[Scene], str]:
    """The attack: none of these attempts worked in the guest."""

    def attack(scene: Scene) -> str:
        guests = guests_of(scene)
        items = require_complete(guests.hardened_output, "the guest").items
        expected = [name for name in names if name in ROOT_OF_NAMESPACE and needs_other_users(guests.host)]
        could = [name for name in names if name in items and items[name].allowed and name not in expected]
        if could:
            raise GotThrough(f"the guest could: {', '.join(f'{name} ({items[name].why})' for name in could)}")
        soft = guests.soft_output.items
        missing = [name for name in names if name not in items and name in soft]
        require_hit(not missing, f"the probe did not try {', '.join(missing)}")
        unproven = [name for name in names if name not in soft or not soft[name].allowed]
        denied = f"denied: {', '.join(name for name in names if name not in expected)}"
        notes = (("this host offers no", unproven), ("as root of a rootless engine's namespace:", expected))
        return "; ".join((denied, *(f"{what} {', '.join(named)}" for what, named in notes if named)))

    return attack


def probe_entry(name: str, title: str, *items: str, needs: tuple[Callable[[AttackHost], str], ...] = ()) -> AttackEntry:
    """An entry that consists of items of the probe."""
    return AttackEntry(name, title, PROBE, some_allowed(*items), all_denied(*items), needs=needs, scene="guests")


def _engine_socket(scene: Scene) -> str:
    address = guests_of(scene).host.engine.endpoint.url
    path = Path("/" + address.removeprefix("unix://").lstrip("/"))
    require_hit(address.startswith("unix://") and path.is_socket(), f"the engine has no socket on this host: {address}")
    return f"the controller reaches {path}"


def _host_reaches_listeners(scene: Scene) -> str:
    reached = guests_of(scene).listeners.reach_all()
    require_hit(sorted(reached) == ["TCP", "UDP", "abstract socket"], f"a process of the host reached only {reached}")
    return "a process of the host reaches TCP, UDP and an abstract socket"


def _no_listener_reached(scene: Scene) -> str:
    guests = guests_of(scene)
    denials = _denials(scene, "host 127.0.0.1", "abstract socket")
    require_equal(guests.reached, [], "the guest reached")
    return f"no listener was reached: {denials}"


def _denials(scene: Scene, *names: str) -> str:
    """Why these attempts failed. Raises: `GotThrough` when one worked."""
    items = require_complete(guests_of(scene).hardened_output, "the guest").items
    if through := [f"{name} ({items[name].why})" for name in names if items[name].allowed]:
        raise GotThrough(f"the guest could: {', '.join(through)}")
    return ", ".join(sorted({items[name].why for name in names}))


def _host_has_network(_scene: Scene) -> str:
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    names = [line.split(":")[0].strip() for line in lines]
    if names == ["lo"]:
        raise NotSupported("this host has no network either")
    return f"the host has {', '.join(name for name in names if name != 'lo')}"


def _no_route(scene: Scene) -> str:
    _denials(scene, "interfaces", "routes", "internet", "metadata", "bridge")
    return "one interface, lo; no route"


def _binds_show(scene: Scene) -> str:
    mounts = require_complete(guests_of(scene).soft_output, "the soft container").facts["mount"]
    require_hit(any(" /scratch " in line for line in mounts), "a mount of the host is not in the table")
    return "a soft container's mount table names its host directory"


def _only_ours(scene: Scene) -> str:
    """Check the roots of bind mounts in the guest's mount table."""
    home = str(scene.home)
    bad = ("/clones", "/outside", "/operator", "docker.sock", "/tasks/", "/journal", "/logs")
    for line in require_complete(guests_of(scene).hardened_output, "the guest").facts["mount"]:
        source, target = line.split()[:2]
        inside = source.removeprefix(home)
        if source == home or target.startswith(("/scratch", home)) or any(part in inside for part in bad):
            raise GotThrough(f"the guest's mount table names {source} at {target}")
    return "worktree, report, mask and hosts; no other file of the home"


def _writes_without_mask(scene: Scene) -> str:
    items = require_complete(guests_of(scene).hardened_output, "the guest").items
    names = [f"deeper {what}" for what in ("write", "rename", "remove", "replace")]
    require_hit(all(items[name].allowed for name in names), "it also fails one directory deeper")
    return "the same works one directory deeper"


def _mask_holds(scene: Scene) -> str:
    items = require_complete(guests_of(scene).hardened_output, "the guest").items
    if through := [name for name in items if name.startswith("mask ") and items[name].allowed]:
        raise GotThrough(f"the guest's `.git`: {', '.join(through)}")
    require_equal(len([name for name in items if name.startswith("mask ")]), 4, "attempts at the mask")
    return "write, rename, remove and replace are refused"


def _own_process(scene: Scene) -> str:
    items = require_complete(guests_of(scene).hardened_output, "the guest").items
    open_ = [what for what in SUPERVISOR if items[f"own {what}"].allowed]
    require_hit(open_, "the guest cannot even open its own process")
    return f"a process of the guest's own: {', '.join(open_)}"


def _supervisor(scene: Scene) -> str:
    return f"denied: {_denials(scene, *(f'pid 1 {what}' for what in SUPERVISOR))}"


def _inherits(scene: Scene) -> str:
    """The scene's controller has a token in its environment, as the user's controller may."""
    done = run_unhardened(["/usr/bin/env"], cwd=scene.root, home=scene.root, env=scene.build_environment())
    require_hit(SECRET.strip() in done.stdout, "a child has another environment")
    return "a child of the controller inherits its token"


def _clean_environment(scene: Scene) -> str:
    guests = guests_of(scene)
    (text,), (image,) = (
        require_complete(guests.hardened_output, "the guest").facts["env"],
        guests.soft_output.facts["env"],
    )
    if SECRET.decode().strip() in text or str(scene.home) in text:
        raise GotThrough("the guest's environment holds the controller's token, or names its home")
    policy = tomllib.loads((find_resources("policies") / "container.toml").read_text())
    meant = {*image.split(","), *(f"{k}={v}" for k, v in (ORDINARY | policy["env"]).items())}
    ours = {f"{name}={value}" for name, value in os.environ.items() if name not in {"PATH", "HOME", "TMPDIR", "PWD"}}
    require_equal(sorted((ours & set(text.split(","))) - meant), [], "variables of the controller in the guest")
    return f"{text.count(',') + 1} variables, none of the controller's"


def _decoy(scene: Scene) -> None:
    remove(scene.worktree / ".git")
    (scene.worktree / "decoy").write_text("")
    (scene.worktree / ".git").symlink_to("decoy")


def _careless_mask(scene: Scene) -> str:
    victim, mask = scene.root / "careless", scene.root / "mask"
    victim.mkdir()
    victim.chmod(0o777)  # root of a container may be another user of this host
    mask.write_text("gitdir: /nonexistent\n")
    (victim / "decoy").write_text("")
    (victim / ".git").symlink_to("decoy")
    binds = (Bind(victim, "/w", read_only=False), Bind(mask, "/w/.git"))
    ended = guests_of(scene).run_soft("sh", "-c", "rm /w/.git && mkdir /w/.git", binds=binds)
    require_hit(ended.exit_code == 0, "a mask over a planted link was effective")
    return "a mask mounted over a planted link was bypassed"


def _refuses_link(scene: Scene) -> str:
    scene.seed(scene.remote, scene.files)
    (scene.home / "profiles").mkdir()
    (scene.home / "profiles" / "attack.toml").write_text(
        'label = "a"\nimage = "base"\npriority = 9999\n[[detect.any]]\nfile = "f.txt"\n'
        '[[check]]\nid = "go"\nlabel = "go"\nargv = ["true"]\n'
        "limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }\n"
    )
    with scene.open_workbench() as workbench:
        require_refusal(lambda: workbench.run_checks(scene.task.id, ["go"]), ErrorCode.UNSAFE_REPOSITORY)
    return "no container is created for such a worktree"


ENTRIES = (
    AttackEntry("A07", "a mask mounted over a planted link", "check run", _careless_mask, _refuses_link, _decoy,
          (needs_root,), needs_engine=True),
    AttackEntry("A08", "the mask over `.git`, attacked from inside", PROBE, _writes_without_mask, _mask_holds,
          scene="guests"),
    AttackEntry("K02", "the engine's socket in a guest", PROBE, _engine_socket, lambda s: _denials(s, *SOCKET_FILES),
          scene="guests"),
    probe_entry("K03", "capabilities", *CAPABILITIES),
    probe_entry("K04", "gaining privileges by a setuid program", "may gain privileges", "setuid helper",
           needs=(needs_shared_kernel,)),
    probe_entry("K05", "root in the guest", "uid 0", "gid 0", needs=(needs_other_users,)),
    probe_entry("K06", "new namespaces", "unshare user", "unshare mount", "unshare net", "unshare pid",
           needs=(needs_shared_kernel,)),
    probe_entry("K07", "system calls that affect the host's kernel", *CALLS, needs=(needs_shared_kernel,)),
    probe_entry("K08", "io_uring", "io_uring", needs=(needs_shared_kernel,)),
    probe_entry("K09", "socket families with past vulnerabilities", *SOCKETS, needs=(needs_shared_kernel,)),
    probe_entry("K10", "the kernel's files in /proc and /sys", *WRITES, *READS),
    probe_entry("K11", "new control groups", "mount cgroup", "make a cgroup"),
    AttackEntry("K12", "a network", PROBE, _host_has_network, _no_route, scene="guests"),
    AttackEntry("K13", "listeners of the host", PROBE, _host_reaches_listeners, _no_listener_reached, scene="guests"),
    probe_entry("K16", "writing outside of the workspace", *(f"create {folder}" for folder in FOLDERS)),
    AttackEntry("K17", "other directories of the host", PROBE, _binds_show, _only_ours, scene="guests"),
    probe_entry("K22", "core dumps, which a host may pipe into a program", "core dumps"),
    AttackEntry("L14", "memory and descriptors of the guest's supervisor", PROBE, _own_process, _supervisor,
          needs=(needs_shared_kernel,), scene="guests"),
    AttackEntry("K24", "the controller's environment", PROBE, _inherits, _clean_environment, scene="guests"),
    probe_entry("S203", "kernel AIO, which is counted for the whole host", "kernel AIO", needs=(needs_shared_kernel,)),
    probe_entry("K25", "system calls without a filter", "no filter", needs=(needs_shared_kernel,)),
)  # fmt: skip
