"""Whether the tree of a task's last commit may leave this host: asked of the verdicts that clean rooms left."""

from __future__ import annotations

from sandbox.errors import ErrorCode, SandboxError
from sandbox.gate import Step, refusal, required
from sandbox.git.objects import tree_of
from sandbox.models import CheckRun, Task, Verdict
from sandbox.profiles import Profile
from sandbox.store.verdicts import find_verdict
from sandbox.workbench import running
from sandbox.workbench.chains import chains_of
from sandbox.workbench.checklist import task_profile
from sandbox.workbench.parts import Parts
from sandbox.workbench.questions import bindings, made_of
from sandbox.workbench.repositories import cache_of


def require_open(parts: Parts, task: Task, step: Step) -> None:
    """Raises: `gate_closed` unless each check of the task's profile passed in a clean room on exactly this tree, with
    the image, checks, limits, policy and runtime of now; what asking the engine for the image raises. The caller holds
    the task, so that the tree stays the one that leaves.
    """
    if not required(step, parts.settings.gate.require):
        return
    tree = tree_of(cache_of(parts, task.repo_id)[1], task.head_commit)
    profile = task_profile(parts, task)
    missing = unverified(parts, profile, tree)
    if missing or not profile.checks:
        raise SandboxError(
            ErrorCode.GATE_CLOSED,
            refusal(step, tree, missing, profile.name),
            details=f"gate.require = {parts.settings.gate.require!r}; tree {tree}",
            hint=_hint(task) if profile.checks else _NO_CHECKS,
        )


_NO_CHECKS = "Give the profile checks (docs/profiles.md), or set gate.require = 'none'."


def _hint(task: Task) -> str:
    return f"sandbox verify {task.id}"


def unverified(parts: Parts, profile: Profile, tree: str) -> tuple[str, ...]:
    """Checks of the profile that no clean room has passed on this tree, as of now. Raises: as `require_open`."""
    known = known_runs(parts, profile, tree)
    return tuple(name for name, run in known.items() if run is None or run.verdict is not Verdict.PASSED)


def known_runs(parts: Parts, profile: Profile, tree: str) -> dict[str, CheckRun | None]:
    """What clean rooms said of this tree, by check of the profile, as of now. Raises: as `require_open`."""
    if not profile.checks:
        return {}
    made = made_of(parts, profile)
    found: dict[str, CheckRun | None] = {}
    for chain in chains_of(running.in_order(profile, [check.id for check in profile.checks])):
        for name, binding in bindings(parts, made, tree, chain).items():
            found[name] = find_verdict(parts.home, binding)
    return found
