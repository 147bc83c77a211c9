"""Whether the tree of a task's last commit may leave this host, decided from the cached verdicts of clean rooms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from sandbox.errors import ErrorCode, SandboxError
from sandbox.gate import Step, refusal, required
from sandbox.git.objects import tree_of
from sandbox.models import CheckRun, GateState, Task, Verdict
from sandbox.profiles import Profile
from sandbox.store import journal
from sandbox.store.verdicts import find_verdict
from sandbox.workbench.checks import run as running
from sandbox.workbench.checks.chains import chains_of
from sandbox.workbench.checks.guest_setup import GuestSetup, resolve_guest_setup
from sandbox.workbench.checks.verdict_keys import bindings
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.repositories.clone import cache_of
from sandbox.workbench.repositories.profile_checks import task_profile


def require_open(services: Parts, task: Task, step: Step) -> None:
    """Require that each check of the task's profile passed in a clean room on exactly this tree, with the current
    image, checks, limits, policy and runtime. The caller holds the lock of the task, so the tree that is sent is the
    one that was checked.

    Raises: `gate_closed`; as `resolve_guest_setup`.
    """
    if required(step, services.settings.gate.require):
        require_state(services, task, state_of(services, task, step))


def state_of(services: Parts, task: Task, step: Step) -> GateState:
    """What the gate says about a step. A step that needs no verified tree does not ask the engine; the answer is then
    the task's last verification of this tree. Raises: as `require_open_gate` if the step needs a verified tree, except
    `gate_closed`.
    """
    require = services.settings.gate.require
    tree = tree_of(cache_of(services, task.repo_id)[1], task.head_commit)
    if not required(step, require):
        verified = _last_verified(services, task.id, tree)
        unknown = "not_asked" if verified is None else ""
        return GateState(require=require, step=step.value, needed=False, verified=verified, unknown=unknown)
    found = known(services, task_profile(services, task), tree)
    return GateState(require=require, step=step.value, needed=True, verified=found.verified, missing=found.unverified)


def _last_verified(services: Parts, task_id: str, tree: str) -> bool | None:
    """Whether all checks passed when this tree of the task was last verified, according to the end of its journal."""
    for entry in islice(journal.recent(services.home, task_id), LOOKED_AT):
        if (entry.operation, entry.result, entry.after) == ("verify", "ok", tree):
            return bool(entry.names) and all(name.endswith(f" {Verdict.PASSED.value}") for name in entry.names)
    return None


def require_state(services: Parts, task: Task, state: GateState) -> None:
    """Raises: `gate_closed` if the step needs a verified tree and the tree is not verified."""
    if not state.needed or state.verified:
        return
    tree = tree_of(cache_of(services, task.repo_id)[1], task.head_commit)
    profile = task_profile(services, task)
    raise SandboxError(
        ErrorCode.GATE_CLOSED,
        refusal(Step(state.step), tree, state.missing, profile.name),
        details=f"gate.require = {state.require!r}; tree {tree}",
        hint=_hint(task) if profile.checks else _NO_CHECKS,
    )


LOOKED_AT = 500
"""Maximum number of journal entries that are searched for a verification."""

_NO_CHECKS = "Give the profile checks (docs/profiles.md), or set gate.require = 'none'."


def _hint(task: Task) -> str:
    return f"sandbox verify {task.id}"


@dataclass(frozen=True)
class Known:
    """The cached runs on a tree, by check of the profile; None: no verdict. `unknown`: the error code if the engine
    could not be asked. `setup`: the image and runtime that the verdicts are bound to; None if no engine was asked.
    """

    said: Mapping[str, CheckRun | None]
    unknown: str = ""
    made: GuestSetup | None = None

    @property
    def unverified(self) -> tuple[str, ...]:
        """Checks that did not pass in a clean room."""
        return tuple(name for name, run in self.said.items() if run is None or run.verdict is not Verdict.PASSED)

    @property
    def verified(self) -> bool | None:
        """Whether every check has passed, and there is at least one check. None: unknown."""
        return None if self.unknown else bool(self.said) and not self.unverified


def known(services: Parts, profile: Profile, tree: str) -> Known:
    """The current cached verdicts of a tree. Raises: as `resolve_guest_setup`."""
    if not profile.checks:
        return Known({})
    setup = resolve_guest_setup(services, profile)
    chains = chains_of(running.in_order(profile, [check.id for check in profile.checks]))
    asked = {name: b for chain in chains for name, b in bindings(services, setup, tree, chain).items()}
    return Known({name: find_verdict(services.home, binding) for name, binding in asked.items()}, made=setup)


def known_if_any(services: Parts, profile: Profile, tree: str) -> Known:
    """As `find_tree_verdicts`, for texts: an error of the engine becomes `unknown` and is not raised."""
    try:
        return known(services, profile, tree)
    except SandboxError as error:
        return Known({}, unknown=error.code.value)
