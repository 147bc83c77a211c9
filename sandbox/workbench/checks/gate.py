"""Whether the tree of a task's last commit may leave this host, decided from the cached verdicts of clean rooms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from sandbox.errors import ErrorCode, SandboxError
from sandbox.gate import DeliveryStep, describe_refusal, needs_verification
from sandbox.git.objects import tree_of
from sandbox.models import CheckRun, GateState, Task, Verdict
from sandbox.profiles import Profile, project_of
from sandbox.store import journal
from sandbox.store.home import Home
from sandbox.store.verdicts import Binding, find_last_run
from sandbox.workbench.checks.chains import split_into_chains
from sandbox.workbench.checks.check_order import order_checks
from sandbox.workbench.checks.git_facts import add_git_facts
from sandbox.workbench.checks.guest_setup import GuestSetup, resolve_guest_setup
from sandbox.workbench.checks.layers import TreeOfCommit, add_known_layers
from sandbox.workbench.checks.verdict_keys import build_bindings
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.profile_checks import load_task_profile


@dataclass(frozen=True)
class TreeGate:
    """The gate for the tree of a task's last commit. It looks up each fact once; make a new one to look again."""

    services: Services
    task: Task

    @cached_property
    def tree(self) -> str:
        """The tree of the last commit."""
        return tree_of(self.services.repositories.open(self.task.repo_id)[1], self.task.head_commit)

    @property
    def _tree_of_commit(self) -> TreeOfCommit:
        return TreeOfCommit(self.services.repositories.open(self.task.repo_id)[1], self.tree, self.task.head_commit)

    @cached_property
    def profile(self) -> Profile:
        """The profile of the task, with its checks."""
        return load_task_profile(self.services, self.task)

    @cached_property
    def verdicts(self) -> TreeVerdicts:
        """The current cached verdicts. Raises: as `resolve_guest_setup`."""
        return find_tree_verdicts(self.services, self.profile, self._tree_of_commit)

    def try_verdicts(self) -> TreeVerdicts:
        """As `verdicts`, for texts: an error of the engine becomes `unknown` and is not raised."""
        _ = self.tree, self.profile  # their errors are raised: they are about the cache clone
        try:
            return self.verdicts
        except SandboxError as error:
            return TreeVerdicts({}, unknown=error.code.value)

    def find_state(self, step: DeliveryStep) -> GateState:
        """What the gate says about a step. A step that needs no verified tree does not ask the engine; the answer is
        then the task's last verification of this tree. Raises: as `resolve_guest_setup` if the step needs one.
        """
        require = self.services.settings.gate.require
        if not needs_verification(step, require):
            verified = _find_last_result(self.services.home, self.task.id, self.tree)
            unknown = "not_asked" if verified is None else ""
            return GateState(require=require, step=step.value, needed=False, verified=verified, unknown=unknown)
        known = self.verdicts
        return GateState(require=require, step=step.value, needed=True, verified=known.verified, missing=known.missing)

    def require_state(self, state: GateState) -> None:
        """Raises: `gate_closed` if the step needs a verified tree and the tree is not verified."""
        if not state.needed or state.verified:
            return
        raise SandboxError(
            ErrorCode.GATE_CLOSED,
            describe_refusal(DeliveryStep(state.step), self.tree, state.missing, self.profile.full_name),
            details=f"gate.require = {state.require!r}; tree {self.tree}",
            hint=_hint(self.task) if self.profile.checks else _NO_CHECKS,
        )

    def require_open(self, step: DeliveryStep) -> None:
        """Require that each check of the task's profile passed in a clean room on exactly this tree, with the current
        image, checks, limits, policy and runtime.

        Raises: `gate_closed`; as `resolve_guest_setup`.
        """
        if needs_verification(step, self.services.settings.gate.require):
            self.require_state(self.find_state(step))


def require_open_gate(services: Services, task: Task, step: DeliveryStep) -> None:
    """Look now and require that the gate is open. Raises: as `TreeGate.require_open`."""
    TreeGate(services, task).require_open(step)


def _find_last_result(home: Home, task_id: str, tree: str) -> bool | None:
    """Whether all checks passed when this tree of the task was last verified, according to the end of its journal."""
    for entry in islice(journal.read_recent_entries(home, task_id), MOST_ENTRIES):
        if (entry.operation, entry.result, entry.after) == ("verify", "ok", tree):
            return bool(entry.names) and all(name.endswith(f" {Verdict.PASSED.value}") for name in entry.names)
    return None


MOST_ENTRIES = 500
"""Maximum number of journal entries that are searched for a verification."""

_NO_CHECKS = "Give the profile checks (docs/profiles.md), or set gate.require = 'none'."


def _hint(task: Task) -> str:
    return f"sandbox verify {task.id}"


@dataclass(frozen=True)
class TreeVerdicts:
    """The cached runs on a tree, by check of the profile; None: no verdict. A check that failed once counts as failed.

    `unknown`: the error code if the engine could not be asked. `setups`: the image and runtime that the verdicts
    are bound to, by project, '' for the top; empty if no engine was asked. `bindings`: all that each verdict depends
    on, by check, in the order of their runs.
    """

    runs: Mapping[str, CheckRun | None]
    unknown: str = ""
    setups: Mapping[str, GuestSetup] = field(default_factory=dict)
    bindings: Mapping[str, Binding] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[str, ...]:
        """Checks that did not pass in a clean room."""
        return tuple(name for name, run in self.runs.items() if run is None or run.verdict is not Verdict.PASSED)

    @property
    def verified(self) -> bool | None:
        """Whether every check has passed, and there is at least one check. None: unknown."""
        return None if self.unknown else bool(self.runs) and not self.missing


def find_tree_verdicts(services: Services, profile: Profile, source: TreeOfCommit) -> TreeVerdicts:
    """The current cached verdicts of a tree. Raises: as `resolve_guest_setup`."""
    if not profile.checks:
        return TreeVerdicts({})
    profile = add_git_facts(profile, source.git, source.commit)
    setups = {
        part.project_name: add_known_layers(services, resolve_guest_setup(services, part), part, source)
        for part in profile.parts
    }
    policy = services.policies.container.container
    chains = split_into_chains(order_checks(profile, [check.id for check in profile.checks], policy))
    bound = [build_bindings(services.policies, setups[project_of(c[0].id)], source.tree, c) for c in chains]
    asked = {name: binding for bindings in bound for name, binding in bindings.items()}
    runs = {name: find_last_run(services.home, binding) for name, binding in asked.items()}
    return TreeVerdicts(runs, setups=setups, bindings=asked)
