"""THREATS S03: a check fails once, by chance or because the host was busy, and the cache answers with it later."""

from __future__ import annotations

import time

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.scene import Scene, require_equal, require_hit
from sandbox.models import CheckRun, Verdict

WAITS_S = (3, 12, 40)
"""How far ahead the checks begin to pass; the next one if the host is so slow that the first run was too late."""
_CHECK = """
[[check]]
id = "{id}"
label = "{id}"
argv = ["sh", "-c", "test $(date +%s) -ge {passes_at}"]
deterministic = {deterministic}
limits = {{ memory_bytes = 134217728, cpus = 1.0, pids = 64, disk_bytes = 67108864 }}
"""


def _set_profile(scene: Scene, passes_at: int) -> None:
    """Two checks that fail until a moment. One failure is enough for one of them: the cache as landed at first."""
    profiles = scene.home / "profiles"
    profiles.mkdir(exist_ok=True)
    checks = "".join(
        _CHECK.format(id=name, passes_at=passes_at, deterministic=str(name == "kept").lower())
        for name in ("kept", "chance")
    )
    head = 'label = "attack"\nimage = "base"\npriority = 9999\n[[detect.any]]\nfile = "f.txt"\n'
    (profiles / "attack.toml").write_text(head + checks)


def _run(scene: Scene, *names: str) -> list[CheckRun]:
    return [*scene.workbench.run(str(scene.remote), check_ids=names).runs]


def _fail_once(scene: Scene) -> None:
    """Both checks fail in rooms of their own; then the moment comes at which they pass."""
    for wait_s in WAITS_S:
        passes_at = int(time.time()) + wait_s
        _set_profile(scene, passes_at)
        scene.workbench = scene.open_workbench()  # a controller reads profiles once
        runs = _run(scene, "kept", "chance")
        if all(run.verdict is Verdict.FAILED for run in runs):
            break
    require_hit(all(run.verdict is Verdict.FAILED for run in runs), f"verdicts {[run.verdict for run in runs]}")
    time.sleep(max(passes_at - time.time(), 0))


def _failure_is_served(scene: Scene) -> str:
    (run,) = _run(scene, "kept")
    require_hit(run.cached and run.verdict is Verdict.FAILED, f"it was run again: {run.verdict}")
    return "of a check that is marked deterministic, the one failure was answered from the cache"


def _failure_is_not_served(scene: Scene) -> str:
    (run,) = _run(scene, "chance")
    require_equal((run.verdict, run.cached), (Verdict.PASSED, False), "the second answer")
    return "after one failure the check ran again, and passed"


ENTRIES = (
    AttackEntry("S03", "a failure of one unlucky run", "run", _failure_is_served, _failure_is_not_served,
                _fail_once, scene="bare", needs_engine=True),
)  # fmt: skip
