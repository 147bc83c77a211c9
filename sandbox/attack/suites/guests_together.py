"""THREATS S155: idle guests that hold memory, each within its own limit, together more than all of them may have."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.attack.harness.attack_host import AttackHost
from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough, Void
from sandbox.attack.harness.scene import Scene, require_equal, require_hit
from sandbox.attack.suites.container_escapes import needs_shared_kernel
from sandbox.engine.cgroups import find_cgroups, read_held_memory
from sandbox.engine.guest_group import read_group_host, remove_guest_group

MIB = 1024**2
HELD, BOUND, LIMIT = 40 * MIB, 96 * MIB, 48 * MIB
TASKS = 3
COUNTED_S = 10.0
"""Version 1 of control groups counts memory of files up to two seconds late."""

_PROFILE = f"""
label = "attack"
image = "base"
priority = 9999
[[detect.any]]
file = "f.txt"
[[check]]
id = "holds"
label = "holds memory"
argv = {json.dumps(["sh", "-c", f"head -c {HELD} /dev/zero >/tmp/held && echo stored"])}
timeout_s = 60
limits = {{ memory_bytes = {LIMIT}, cpus = 1.0, pids = 64 }}
"""


def needs_group(site: AttackHost) -> str:
    """A need: a control group of this attack can be made, beside that of other guests."""
    if os.geteuid() != 0:
        return "only root makes a control group"
    if read_group_host(site.engine.info()) is None:
        return "the engine has no control groups"
    return "" if site.engine.is_local else "the engine is not on this host"


def _guests_pass_the_bound(scene: Scene) -> str:
    held = _hold_in_tasks(scene, "", lambda held: held > BOUND)
    require_hit(held > BOUND, f"{TASKS} guests held only {held // MIB} MiB")
    return f"without a group, {TASKS} idle guests held {held // MIB} MiB, with a bound of {BOUND // MIB} MiB"


def _guests_stay_within(scene: Scene) -> str:
    host = read_group_host(scene.host.engine.info())
    if host is None:
        raise Void("the engine has no control groups")
    name = f"spaceattack{secrets.token_hex(4)}"
    try:
        held = _hold_in_tasks(scene, name, lambda held: held >= 2 * HELD)
    finally:
        remove_guest_group(host, name)
    if held > BOUND:
        raise GotThrough(f"idle guests hold {held // MIB} MiB, with a bound of {BOUND // MIB} MiB")
    require_hit(held >= HELD, f"the guests held only {held // MIB} MiB")
    return f"{TASKS} guests with {HELD // MIB} MiB each held {held // MIB} MiB, with a bound of {BOUND // MIB} MiB"


def _hold_in_tasks(scene: Scene, group: str, is_enough: Callable[[int], bool]) -> int:
    """Run the check in tasks one after the other; their guests are kept. What they hold together then."""
    with _tasks_of_group(scene, group) as worktrees:
        for task_id in worktrees:
            (run,) = scene.workbench.run_checks(task_id, ["holds"])
            require_equal(run.stdout_tail.strip(), "stored", f"what the probe said ({run.verdict})")
        ends_at = time.monotonic() + COUNTED_S
        while not is_enough(held := sum(map(_read_held, worktrees.values()))) and time.monotonic() < ends_at:
            time.sleep(0.1)
        return held


@contextmanager
def _tasks_of_group(scene: Scene, group: str) -> Iterator[dict[str, Path]]:
    """New tasks of a controller with this group for all guests: their worktrees by id. They are closed afterwards."""
    for folder in ("profiles", "policies"):
        (scene.home / folder).mkdir(exist_ok=True)
    (scene.home / "profiles" / "attack.toml").write_text(_PROFILE)
    (scene.home / "policies" / "container.toml").write_text(f'group = "{group}"\nall_memory_bytes = {BOUND}\n')
    scene.close()
    scene.workbench = scene.open_workbench()
    worktrees: dict[str, Path] = {}
    try:
        for _ in range(TASKS):
            task = scene.new_task()
            worktrees[task.id] = scene.worktree
        yield worktrees
    finally:
        for task_id in worktrees:
            scene.workbench.close_task(task_id, delete_worktree=True, discard=True)


def _read_held(worktree: Path) -> int:
    """Memory that the guest of a task holds, by the user that only this guest has; 0 if it was removed."""
    owner = f"\nUid:\t{worktree.stat().st_uid}\t"
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if owner in (process / "status").read_text(encoding="utf-8", errors="replace"):
                paths = find_cgroups(int(process.name))
                return (read_held_memory(paths) if paths else None) or 0
    return 0


ENTRIES = (
    AttackEntry("S155", "memory of idle guests together", "check run", _guests_pass_the_bound, _guests_stay_within,
                needs=(needs_group, needs_shared_kernel), needs_engine=True),
)  # fmt: skip
