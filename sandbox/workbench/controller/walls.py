"""The walls of this host: which mechanism stands for each, and which promise is weaker for want of one.

A line of `sandbox doctor` for each wall. docs/hardening.md has the same list.
"""

from __future__ import annotations

import os
import platform
import re
import resource

from sandbox.config import Settings
from sandbox.engine.pressure import counts_pressure
from sandbox.errors import SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.memory import TRANSFER_BYTES, can_share_heap
from sandbox.models import Probe, ProbeLevel
from sandbox.policy.approvals import Decision
from sandbox.workbench.controller.policies_in_force import Policies
from sandbox.workspaces.comparison_limits import SMALL

_LIMIT_MEMORY_SINCE = (4, 7)  # RLIMIT_DATA counts private mappings since this version of Linux
_GIVES_OUT = ("space_repo_push", "space_repo_open_pr")


@dataclass(frozen=True)
class WallFacts:
    """What decides how strong the walls of this host are.

    `root`: of the controller. `runtime`: of checks. `kernel`: version of Linux. `limits_memory`: whether this process
    may limit the memory of its children. `fetch_memory_bytes`: `remotes.max_fetch_memory_bytes`. `gate`:
    `gate.require`. `plain_hosts`: those of the settings. `reserve_bytes`: `disk.reserve_bytes`. `file_remotes`: whether
    agents may clone local paths. `unasked`: tools that send data out and that agents may call without a question.
    `pressure`: whether the kernel counts how long tasks wait. `one_heap`: whether the threads of a server can share
    one heap.
    """

    root: bool
    runtime: str
    kernel: tuple[int, int]
    limits_memory: bool
    fetch_memory_bytes: int
    gate: str
    plain_hosts: tuple[str, ...]
    reserve_bytes: int
    file_remotes: bool
    unasked: tuple[str, ...]
    pressure: bool
    one_heap: bool


def find_wall_facts(settings: Settings, policies: Policies) -> WallFacts:
    """Collect the facts of this process and host. Never raises."""
    return WallFacts(
        root=os.geteuid() == 0,
        runtime=settings.container.runtime,
        kernel=_parse_kernel(platform.release()),
        limits_memory=_can_limit_memory(),
        fetch_memory_bytes=settings.remotes.max_fetch_memory_bytes,
        gate=settings.gate.require,
        plain_hosts=settings.remotes.plain_hosts,
        reserve_bytes=settings.disk.reserve_bytes,
        file_remotes=settings.remotes.allow_file,
        unasked=_list_unasked(policies),
        pressure=counts_pressure(),
        one_heap=can_share_heap(),
    )


def wall_probes(facts: WallFacts) -> tuple[Probe, ...]:
    """A line for each wall, in the order of docs/hardening.md. Pure."""
    first = (_users, _failures, _shared_memory, _looks, _admission, _git_memory)
    return tuple(probe(facts) for probe in (*first, _request_memory, _gate, _text, _local_remotes, _approvals))


def _users(facts: WallFacts) -> Probe:
    if facts.root:
        return _strong("users", "a uid and gid of its own for each task and room")
    return _weak(
        "users",
        "guests have your uid",
        "A guest can use up what the kernel counts by uid, for other guests and for your programs. Their rooms are "
        "called fresh, not clean. A controller that is root, with an engine that is, ends this.",
    )


def _failures(facts: WallFacts) -> Probe:
    """The repetition works everywhere, but with a shared uid one cause can last longer than two runs."""
    rule = "cached after two failures in rooms of their own"
    hints = []
    if not facts.root:
        hints.append("While guests share your uid, one neighbour can cause both failures.")
    if not facts.pressure:
        rule += "; the kernel counts no pressure"
        hints.append("Records do not say how busy the host was. Boot Linux with psi=1.")
    return _weak("failures", rule, " ".join(hints)) if hints else _strong("failures", rule)


def _shared_memory(facts: WallFacts) -> Probe:
    if facts.runtime.startswith("runsc"):
        return _strong("shared memory", "System V segments are gVisor's own and end with the guest")
    return _strong("shared memory", "System V segments end with their last process (kernel.shm_rmid_forced)")


def _looks(_facts: WallFacts) -> Probe:
    return _strong("looks", "objects of a look are in a store of its own, deleted with it")


def _admission(facts: WallFacts) -> Probe:
    rule = "every writer asks for room on the disk before it writes"
    if facts.reserve_bytes:
        return _strong("disk admission", rule)
    return _weak(
        "disk admission",
        f"{rule}, and no room is reserved",
        "On a full disk there may be no space left to close tasks and to run gc: disk.reserve_bytes is 0.",
    )


def _git_memory(facts: WallFacts) -> Probe:
    if facts.kernel < _LIMIT_MEMORY_SINCE:
        return _weak("git memory", "the kernel does not count private mappings", "Linux 4.7 or newer does.")
    if not facts.limits_memory:
        return _weak("git memory", "no limit can be set", "A security module denies prlimit(2) to the controller.")
    if facts.fetch_memory_bytes > TRANSFER_BYTES:
        return _weak(
            "git memory",
            f"a fetch may use {facts.fetch_memory_bytes} bytes",
            "A request can pass 300 MB, from any remote: remotes.max_fetch_memory_bytes was raised.",
        )
    return _strong("git memory", "each git command has a limit (RLIMIT_DATA), and all share two budgets")


def _request_memory(facts: WallFacts) -> Probe:
    rule = f"one task at a time with more than {SMALL.changed_files:,} changed files, large reports within the budget"
    if facts.one_heap:
        return _strong("request memory", f"{rule}; the threads of a server share one heap")
    return _weak(
        "request memory",
        rule,
        "The C library is not glibc: each thread of a server may keep what it freed, so it can pass 600 MB.",
    )


def _gate(facts: WallFacts) -> Probe:
    if facts.gate == "none":
        return _weak(
            "gate",
            'gate.require = "none": nothing has to be verified',
            "Trees that no check has seen can reach a ready pull request. The default is pr-ready.",
        )
    asked = "before a push the forge is asked for ready requests"
    unasked = f", but not {', '.join(facts.plain_hosts)}: remotes.plain_hosts" if facts.plain_hosts else ""
    return _strong("gate", f"gate.require = {facts.gate!r}; {asked}{unasked}")


def _text(_facts: WallFacts) -> Probe:
    return _strong("text", "what cannot be seen is spelled out; secrets are looked for between hidden characters, too")


def _local_remotes(facts: WallFacts) -> Probe:
    how = "read by the controller, not by git"
    return _strong("local remotes", f"{how}; agents may clone them" if facts.file_remotes else how)


def _approvals(facts: WallFacts) -> Probe:
    if facts.unasked:
        return _weak(
            "approvals",
            f"agents send out without a question: {', '.join(facts.unasked)}",
            "policies/approvals.toml of the home allows this. Remove the entry to be asked.",
        )
    return _strong("approvals", "each holds for the state it was asked about")


def _parse_kernel(release: str) -> tuple[int, int]:
    """A release without a version counts as new: limits are checked when they are set."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else _LIMIT_MEMORY_SINCE


def _can_limit_memory() -> bool:
    try:
        resource.prlimit(0, resource.RLIMIT_DATA, resource.prlimit(0, resource.RLIMIT_DATA))
    except (OSError, ValueError):
        return False
    return True


def _list_unasked(policies: Policies) -> tuple[str, ...]:
    """An operator's file that is invalid has a line of its own: agents are refused until it is mended."""
    try:
        tools = policies.approvals.tools
    except SandboxError:
        return ()
    return tuple(name for name in _GIVES_OUT if tools.get(name) is Decision.ALLOW)


def _strong(wall: str, value: str) -> Probe:
    return Probe(name=f"wall: {wall}", level=ProbeLevel.OK, value=value)


def _weak(wall: str, value: str, hint: str) -> Probe:
    return Probe(name=f"wall: {wall}", level=ProbeLevel.WARN, value=value, hint=hint)
