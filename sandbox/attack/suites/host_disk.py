"""THREATS S07, S08: what the host itself writes, for a guest that rewrites its files and on a disk that is full."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.scene import (
    HOST_EDIT,
    Scene,
    hash_of,
    plain_clone,
    require_equal,
    require_hit,
    require_refusal,
)
from sandbox.errors import ErrorCode
from sandbox.files.disk_usage import FreeSpace
from sandbox.models import SearchQuery, TaskStatus

SIZE = 256 * 1024
TURNS = 4
MORE_THAN_ANY = 1 << 50
"""More bytes than the host has: with this floor its disk counts as full, and nothing has to be filled."""


def _count_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _plain_looks(scene: Scene) -> str:
    clone = plain_clone(scene)
    before = _count_bytes(clone / ".git")
    for _ in range(TURNS):
        (clone / "large").write_bytes(os.urandom(SIZE))
        scene.require_git("add", "large", cwd=clone)
    (clone / "large").unlink()
    scene.require_git("add", "-A", cwd=clone)
    scene.require_git("gc", "-q", cwd=clone)
    stored = _count_bytes(clone / ".git") - before
    require_hit(stored > TURNS * SIZE // 2, f"only {stored} bytes")
    return f"plain `git add` stored {stored >> 10} KiB, which `git gc` kept"


def _our_looks(scene: Scene) -> str:
    bench, task = scene.workbench, scene.task.id
    before = _count_bytes(scene.cache)
    for _ in range(TURNS):
        (scene.worktree / "large").write_bytes(os.urandom(SIZE))
        require_equal([c.path for c in bench.status(task).changes], ["large"], "status")
        bench.diff(task)
        bench.diff(task, "head")
        bench.search(task, SearchQuery(pattern="one"))
    bench.close_task(task, delete_worktree=True, discard=True)
    stored = _count_bytes(scene.cache) - before
    if stored > SIZE:
        raise GotThrough(f"{stored >> 10} KiB are left of files that were only looked at")
    return f"{TURNS * 4} looks at {TURNS * SIZE >> 10} KiB left {stored} bytes in the clone"


def _writers(scene: Scene) -> dict[str, Callable[[], object]]:
    bench, task = scene.workbench, scene.task.id
    return {
        "write": lambda: bench.write_file(task, "new", b"x\n", None),
        "patch": lambda: bench.apply_patch(task, HOST_EDIT, {"g.txt": hash_of(scene.files["g.txt"])}),
        "snapshot": lambda: bench.snapshot(task, "label"),
        "commit": lambda: bench.commit(task, "work"),
        "fork": lambda: bench.fork_task(task),
        "create": lambda: bench.create_task(scene.repo_id),
        "clone": lambda: bench.clone(str(scene.remote)),
        "fetch": lambda: bench.fetch(str(scene.remote)),
        "state": lambda: bench.send_task_state(str(scene.remote), task, 1),
    }


def _reopen(scene: Scene, **disk: int) -> None:
    """Another controller with these floors of the disk."""
    scene.close()
    scene.settings = {**scene.settings, "disk": {"min_free_files": 0, "reserve_files": 0, **disk}}
    scene.workbench = scene.open_workbench()


def _writes_unasked(scene: Scene) -> str:
    (scene.worktree / "guest").write_bytes(b"x\n")
    _reopen(scene, min_free_bytes=0, reserve_bytes=0)
    free = FreeSpace.of(scene.home).free_bytes
    require_hit(free < MORE_THAN_ANY, f"the disk has {free} free bytes")
    _writers(scene)["snapshot"]()
    return "with no floor, a snapshot was written"


def _writes_are_refused(scene: Scene) -> str:
    (scene.worktree / "guest").write_bytes(b"y\n")
    _reopen(scene, min_free_bytes=MORE_THAN_ANY, reserve_bytes=MORE_THAN_ANY)
    before = _count_bytes(scene.cache)
    for name, step in _writers(scene).items():
        error = require_refusal(step, ErrorCode.QUOTA_EXCEEDED)
        require_equal(error.reason, "disk", f"why {name} was refused")
    require_equal(_count_bytes(scene.cache), before, "bytes of the clone")
    require_equal((scene.worktree / "new").exists(), False, "a written file")
    close = partial(scene.workbench.close_task, scene.task.id, delete_worktree=True, discard=True)
    require_equal(close().status, TaskStatus.CLOSED, "closing on the full disk")
    return f"{len(_writers(scene))} writers refused before they wrote; the task could still be closed"


ENTRIES = (
    AttackEntry("S07", "looks at files that are rewritten again and again", "status, diff, search, close",
                _plain_looks, _our_looks),
    AttackEntry("S08", "the host's own writes on a full disk", "every writer, close", _writes_unasked,
                _writes_are_refused),
)  # fmt: skip
