"""Whether the tree of a task's last commit may leave this host, decided from the cached verdicts of clean rooms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from sandbox.errors import ErrorCode, SandboxError
from sandbox.gate import DeliveryStep, describe_refusal, needs_verification
from sandbox.git.objects import tree_of
from sandbox.models import CheckRun, GateState, Task, Verdict
from sandbox.profiles import Profile
from sandbox.store import journal
from sandbox.store.home import Home
from sandbox.store.verdicts import find_verdict
from sandbox.workbench.checks import run as running
from sandbox.workbench.checks.chains import split_into_chains
from sandbox.workbench.checks.guest_setup import GuestSetup, resolve_guest_setup
from sandbox.workbench.checks.verdict_keys import build_bindings
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.profile_checks import load_task_profile


def require_open_gate(services: Services, task: Task, step: DeliveryStep) -> None:
    """Require that each check of the task's profile passed in a clean room on exactly this tree, with the current
    image, checks, limits, policy and runtime. The caller holds the lock of the task, so the tree that is sent is the
    one that was checked.

    Raises: `gate_closed`; as `resolve_guest_setup`.
    """
    if needs_verification(step, services.settings.gate.require):
        require_gate_state(services, task, find_gate_state(services, task, step))


def find_gate_state(services: Services, task: Task, step: DeliveryStep) -> GateState:
    """What the gate says about a step. A step that needs no verified tree does not ask the engine; the answer is then
    the task's last verification of this tree. Raises: as `require_open_gate` if the step needs a verified tree, except
    `gate_closed`.
    """
    require = services.settings.gate.require
    tree = tree_of(services.repositories.open(task.repo_id)[1], task.head_commit)
    if not needs_verification(step, require):
        verified = _find_last_result(services.home, task.id, tree)
        unknown = "not_asked" if verified is None else ""
        return GateState(require=require, step=step.value, needed=False, verified=verified, unknown=unknown)
    found = find_tree_verdicts(services, load_task_profile(services, task), tree)
    return GateState(require=require, step=step.value, needed=True, verified=found.verified, missing=found.unverified)


def _find_last_result(home: Home, task_id: str, tree: str) -> bool | None:
    """Whether all checks passed when this tree of the task was last verified, according to the end of its journal."""
    for entry in islice(journal.read_recent_entries(home, task_id), MOST_ENTRIES):
        if (entry.operation, entry.result, entry.after) == ("verify", "ok", tree):
            return bool(entry.names) and all(name.endswith(f" {Verdict.PASSED.value}") for name in entry.names)
    return None


def require_gate_state(services: Services, task: Task, state: GateState) -> None:
    """Raises: `gate_closed` if the step needs a verified tree and the tree is not verified."""
    if not state.needed or state.verified:
        return
    tree = tree_of(services.repositories.open(task.repo_id)[1], task.head_commit)
    profile = load_task_profile(services, task)
    raise SandboxError(
        ErrorCode.GATE_CLOSED,
        describe_refusal(DeliveryStep(state.step), tree, state.missing, profile.name),
        details=f"gate.require = {state.require!r}; tree {tree}",
        hint=_hint(task) if profile.checks else _NO_CHECKS,
    )


MOST_ENTRIES = 500
"""Maximum number of journal entries that are searched for a verification."""

_NO_CHECKS = "Give the profile checks (docs/profiles.md), or set gate.require = 'none'."


def _hint(task: Task) -> str:
    return f"sandbox verify {task.id}"


@dataclass(frozen=True)
class TreeVerdicts:
    """The cached runs on a tree, by check of the profile; None: no verdict. `unknown`: the error code if the engine
    could not be asked. `setup`: the image and runtime that the verdicts are bound to; None if no engine was asked.
    """

    runs: Mapping[str, CheckRun | None]
    unknown: str = ""
    setup: GuestSetup | None = None

    @property
    def unverified(self) -> tuple[str, ...]:
        """Checks that did not pass in a clean room."""
        return tuple(name for name, run in self.runs.items() if run is None or run.verdict is not Verdict.PASSED)

    @property
    def verified(self) -> bool | None:
        """Whether every check has passed, and there is at least one check. None: unknown."""
        return None if self.unknown else bool(self.runs) and not self.unverified


def find_tree_verdicts(services: Services, profile: Profile, tree: str) -> TreeVerdicts:
    """The current cached verdicts of a tree. Raises: as `resolve_guest_setup`."""
    if not profile.checks:
        return TreeVerdicts({})
    setup = resolve_guest_setup(services, profile)
    chains = split_into_chains(running.order_checks(profile, [check.id for check in profile.checks]))
    asked = {name: b for chain in chains for name, b in build_bindings(services.policies, setup, tree, chain).items()}
    return TreeVerdicts({name: find_verdict(services.home, binding) for name, binding in asked.items()}, setup=setup)


def try_tree_verdicts(services: Services, profile: Profile, tree: str) -> TreeVerdicts:
    """As `find_tree_verdicts`, for texts: an error of the engine becomes `unknown` and is not raised."""
    try:
        return find_tree_verdicts(services, profile, tree)
    except SandboxError as error:
        return TreeVerdicts({}, unknown=error.code.value)
