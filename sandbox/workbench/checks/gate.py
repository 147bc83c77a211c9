"""Whether the tree of a task's last commit may leave this host, decided from the cached verdicts of clean rooms.

The base of a task says which checks there are, and what a comparison is with. An agent chooses where its task begins:
at a commit of its own, of a stranger's request, or of a time with other checks, it would choose what the gate asks. So
only a base counts that a branch or tag of the remote has, but for the branches of tasks, and that asks for each check
of the branch that the task goes to. It may ask for more. Nor does an old base excuse what fails: it may be mended on
that branch (docs/adr/0197).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from sandbox.errors import ErrorCode, SandboxError
from sandbox.gate import DeliveryStep, describe_refusal, has_excuses, needs_verification
from sandbox.git.cache_clones import find_target
from sandbox.git.log import is_published_except
from sandbox.git.objects import is_ancestor, tree_of
from sandbox.git.refs import resolve_ref
from sandbox.models import CheckRun, GateState, Task, TreeComparison, Verdict
from sandbox.models.words import LAUNCH
from sandbox.profiles import Profile
from sandbox.store import journal
from sandbox.store.home import Home
from sandbox.store.kept_comparisons import find_comparison
from sandbox.store.verdicts import Binding, find_last_run
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.tree_bindings import bind_launch, bind_tree
from sandbox.workbench.checks.verdict_ways import find_best_way
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import TreeSource, load_profile
from sandbox.workbench.repositories.profile_checks import load_task_profile
from sandbox.workbench.tasks.branch_names import ALL_BRANCHES


class _BaseRefusal(NamedTuple):
    """Why the base of a task opens no gate, as a clause, and what to do. `{sync}`: the command that moves the base to
    the branch that the task goes to.
    """

    clause: str
    hint: str


_OWN_BASE = _BaseRefusal(
    "is on no branch or tag of the remote but those of tasks",
    "Merge the branch that it goes to, which then is the base, and verify again: `{sync}`. Or begin a task at a branch "
    "of the remote.",
)
_OTHER_CHECKS = _BaseRefusal(
    "lacks a check of the branch that it goes to, or has another one of that name",
    "Merge that branch and verify again: `{sync}`. Or begin a task at that branch.",
)


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
    def _source(self) -> TreeSource:
        return self._find_tree(self.tree, self.task.head_commit)

    def _find_tree(self, tree: str, commit: str) -> TreeSource:
        repo_id = self.task.repo_id
        return TreeSource(repo_id, self.services.repositories.open(repo_id)[1], tree, commit)

    @cached_property
    def profile(self) -> Profile:
        """The profile of the task, with its checks."""
        return load_task_profile(self.services, self.task)

    @cached_property
    def verdicts(self) -> TreeVerdicts:
        """The current cached verdicts. Raises: as `resolve_guest_setup`."""
        required = self.services.settings.gate.require_candidate and self.profile.launch is not None
        found = find_tree_verdicts(self.services, self.profile, self._source)
        refusal = self._base_refusal
        return replace(found, candidate_required=required, base_refusal=refusal.clause if refusal else "")

    @cached_property
    def _goal(self) -> tuple[str, str]:
        """The branch that the task goes to, and its commit: the default branch for one that began at the branch of a
        task, or at a commit or tag.
        """
        repository, git = self.services.repositories.open(self.task.repo_id)
        named = self.task.base_branch.removeprefix("refs/heads/")
        is_of_task = fnmatchcase(named, ALL_BRANCHES)
        return find_target(git, repository.default_branch if is_of_task else named, repository.default_branch)

    @cached_property
    def _base_refusal(self) -> _BaseRefusal | None:
        """Why the task's base does not count; None if it does."""
        _, git = self.services.repositories.open(self.task.repo_id)
        base = self.task.base_commit
        if not is_published_except(git, base, ALL_BRANCHES):
            return _OWN_BASE
        goal = self._goal[1]
        if goal == base:
            return None
        asked = load_profile(self.services, self.task.repo_id, git, goal, self.task.profile)
        launches = self.services.settings.gate.require_candidate
        return None if has_checks_of(self.profile, asked, with_launch=launches) else _OTHER_CHECKS

    def try_verdicts(self) -> TreeVerdicts:
        """As `verdicts`, for texts: an error of the engine becomes `unknown` and is not raised."""
        _ = self.tree, self.profile  # their errors are raised: they are about the cache clone
        try:
            return self.verdicts
        except SandboxError as error:
            return TreeVerdicts({}, unknown=error.code.value)

    @cached_property
    def comparison(self) -> TreeComparison | None:
        """The last comparison of this tree with the tree that the task is based on, if what both are bound to is still
        the same and no check failed since; None if it was not compared. Raises: as `resolve_guest_setup`.
        """
        git = self.services.repositories.open(self.task.repo_id)[1]
        base = self.task.base_commit
        if not self.verdicts.keys or self.verdicts.base_refusal:
            return None
        before = bind_tree(self.services, self.profile, self._find_tree(tree_of(git, base), base))
        return find_comparison(self.services.home, before.keys, self.verdicts.keys, self.verdicts.runs)

    def try_comparison(self) -> TreeComparison | None:
        """As `comparison`, for texts: None if the engine could not be asked."""
        try:
            return self.comparison
        except SandboxError:
            return None

    @cached_property
    def _default(self) -> tuple[str, str]:
        """The default branch, and its commit at the last fetch."""
        repository, git = self.services.repositories.open(self.task.repo_id)
        return find_target(git, repository.default_branch, repository.default_branch)

    @property
    def _goal_excuses(self) -> bool:
        """Whether the branch that the task goes to excuses failures by itself."""
        named = self.services.settings.gate.excusing_branches
        goal = self._goal[0]
        return goal == self._default[0] or any(fnmatchcase(goal, pattern) for pattern in named)

    @cached_property
    def _stale_base(self) -> str:
        """Why the comparison, which excuses failures, does not count: the base has other files than the branch that the
        task goes to had at the last fetch, so what fails on both trees may be mended there. Nor does a branch excuse
        that is neither the default one nor named in the settings: an agent may have chosen it because it is red. Empty
        if it counts.
        """
        compared = self.comparison
        if compared is None or not compared.no_new_failures or not has_excuses(compared):
            return ""
        git = self.services.repositories.open(self.task.repo_id)[1]
        base = self.task.base_commit
        for name, tip in (self._goal,) if self._goal_excuses else (self._goal, self._default):
            if tree_of(git, base) != tree_of(git, tip):
                return f"failures are excused, but the base is {base[:12]}, and {name} is at {tip[:12]}"
        return ""

    @property
    def compared_well(self) -> bool:
        """Whether the comparison opens the gate, where `gate.accept` takes one. Raises: as `comparison`."""
        if self.comparison is None or LAUNCH in self.verdicts.missing:
            return False
        return self.comparison.no_new_failures and not self._stale_base

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
        state = GateState(require=require, step=step.value, needed=True, verified=known.verified, missing=known.missing)
        if known.verified or self.services.settings.gate.accept == "passed":
            return state
        return state.model_copy(update={"accept": "no-new-failures", "no_new_failures": self.compared_well})

    def require_state(self, state: GateState) -> None:
        """Raises: `gate_closed` if the step needs a verified tree, and the tree is neither verified nor, where the
        setting `gate.accept` takes that, compared with its base without new failures. Failures that the base excuses
        count as none only while it is the branch that the task goes to.
        """
        if not state.needed or state.verified or state.no_new_failures:
            return
        if (why := self._base_refusal) and BASE in state.missing:
            raise SandboxError(
                ErrorCode.GATE_CLOSED,
                f"The gate is closed: the task's base, which says what is checked, {why.clause}",
                details=f"gate.require = {state.require!r}; base {self.task.base_commit}",
                hint=why.hint.format(sync=self._sync_command),
            )
        accepts = state.accept == "no-new-failures"
        raise SandboxError(
            ErrorCode.GATE_CLOSED,
            describe_refusal(DeliveryStep(state.step), self.tree, state.missing, self.profile.full_name),
            details="\n".join(
                [f"gate.require = {state.require!r}; tree {self.tree}", *self._explain_comparison(state)]
            ),
            hint=self._hint(state.missing, compares=accepts) if self.profile.checks else _NO_CHECKS,
        )

    @property
    def _sync_command(self) -> str:
        """It names the branch if the task did not begin at it; not the default one for a task that began at a commit
        beside it or a tag, which may go to a branch of a release.
        """
        begun, (goal, tip) = self.task.base_branch.removeprefix("refs/heads/").removeprefix("refs/tags/"), self._goal
        git = self.services.repositories.open(self.task.repo_id)[1]
        is_beside = not is_ancestor(git, self.task.base_commit, tip) and is_published_except(
            git, self.task.base_commit, ALL_BRANCHES
        )
        if begun != goal and (resolve_ref(git, f"refs/tags/{begun}") or is_beside):
            return f"sandbox task sync {self.task.id} --onto BRANCH"
        return f"sandbox task sync {self.task.id}" + ("" if begun == goal else f" --onto {goal}")

    def _hint(self, missing: Sequence[str], *, compares: bool) -> str:
        if tuple(missing) == (LAUNCH,):
            return f"sandbox candidate {self.task.id}"
        if compares and self._stale_base:
            if not self._goal_excuses:
                goal = self._goal[0]
                return (
                    f"The task goes to {goal}, which excuses no failure: mend them. The default branch does, and those "
                    "that a person names in the setting gate.excusing_branches."
                )
            again = f"`{self._sync_command}`, then `sandbox verify {self.task.id} --against base`"
            return f"Merge that branch and compare again: {again}."
        if compares:  # no verdict of the shared cache answers a comparison
            return f"sandbox verify {self.task.id} --against base"
        return describe_verification(self.services, self.task.id, self.verdicts.runs)

    def _explain_comparison(self, state: GateState) -> Iterator[str]:
        if state.accept == "passed":
            return
        if self.comparison is None:
            yield "gate.accept = 'no-new-failures'; the tree was not compared with its base"
            return
        if self._stale_base:
            yield self._stale_base
        for check in self.comparison.checks:
            for reason in check.reasons:
                yield f"{check.check_id}: {reason}"

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
    """What the task's last verification of this tree said, according to the end of its journal. One with shuffled tests
    is of other checks. Entries of older versions do not say it: their names are not those of all checks.
    """
    for entry in islice(journal.read_recent_entries(home, task_id), MOST_ENTRIES):
        verified = entry.facts.get("verified")
        if (entry.operation, entry.result, entry.after) == ("verify", "ok", tree) and "shuffle" not in entry.facts:
            return None if verified is None else verified == "yes"
    return None


BASE = "(base)"
"""Among the checks that are missing: the task's base does not count. No check can have this id (`CheckId`)."""

MOST_ENTRIES = 500
"""Maximum number of journal entries that are searched for a verification."""

_NO_CHECKS = "Give the profile checks (docs/profiles.md), or set gate.require = 'none'."


def describe_verification(services: Services, task_id: str, runs: Mapping[str, CheckRun | None]) -> str:
    """How to get verdicts of this home, which alone open a gate. `runs`: of each check the last one here, if there is
    one. Where a shared cache may answer `verify`, so that no check would run here, it is left out.
    """
    command = f"sandbox verify {task_id}"
    if not services.settings.cache.url or all(runs.values()):
        return command
    return f"`{command} --no-cache` runs the checks here: verdicts of the shared cache do not count."


@dataclass(frozen=True)
class TreeVerdicts:
    """The cached runs on a tree, by check of the profile; None: no verdict. A check that failed once counts as failed.

    `unknown`: the error code if the engine could not be asked. `setups`: the image and runtime that the verdicts
    are bound to, by project, '' for the top; empty if no engine was asked. `bindings`: all that each verdict depends
    on, by check, in the order of their runs. `keys`: of all bindings that count. `base_refusal`: why the task's base
    does not count, as a clause; empty if it does. `candidate`: the launch of its application, None without one or if
    the profile has no `[launch]`.
    """

    runs: Mapping[str, CheckRun | None]
    unknown: str = ""
    setups: Mapping[str, GuestSetup] = field(default_factory=dict)
    candidate: CheckRun | None = None
    candidate_required: bool = False
    base_refusal: str = ""
    keys: tuple[str, ...] = ()
    bindings: Mapping[str, Binding] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[str, ...]:
        """Checks that did not pass in a clean room; `BASE` for a base that does not count."""
        asked = {**self.runs, **({LAUNCH: self.candidate} if self.candidate_required else {})}
        missing = tuple(name for name, run in asked.items() if run is None or run.verdict is not Verdict.PASSED)
        return (*missing, BASE) if self.base_refusal and self.runs else missing

    def describe_missing(self) -> str:
        """The checks that did not pass, for a line of text, and why the base does not count."""
        return ", ".join(f"the base {self.base_refusal}" if name == BASE else name for name in self.missing)

    @property
    def verified(self) -> bool | None:
        """Whether every check has passed, and there is at least one check. None: unknown."""
        return None if self.unknown else bool(self.runs) and not self.missing


def has_checks_of(base: Profile, goal: Profile, *, with_launch: bool) -> bool:
    """Whether a task with the checks of its base is asked for each check of its goal, as that one has it. It may have
    more. `with_launch`: also for the launch of its application. Pure.
    """
    launches = not with_launch or goal.launch is None or goal.launch == base.launch
    return launches and all(check in base.checks for check in goal.checks)


def find_tree_verdicts(services: Services, profile: Profile, source: TreeSource) -> TreeVerdicts:
    """The current cached verdicts of a tree. Raises: as `resolve_guest_setup`."""
    if not profile.checks:
        return TreeVerdicts({})
    bound = bind_tree(services, profile, source)
    ways = [find_best_way(services.home, ways) for ways in bound.chains]
    runs = {name: run for way in ways for name, run in way.runs.items()}
    bindings = {name: binding for way in ways for name, binding in way.bindings.items()}
    launched = None if profile.launch is None else bind_launch(services, profile, source)
    candidate = None if launched is None else find_last_run(services.home, launched)
    return TreeVerdicts(runs, setups=bound.setups, bindings=bindings, keys=bound.keys, candidate=candidate)
