"""Use-case: try several ways to change a task, verify them side by side, and keep the best (docs/adr/0108).

Theory. A way is a tree: a patch makes it from the task's working state in memory, without a worktree; another task
gives its own. So a fork is an assignment, there is no leftover when a controller is killed, and each way is
verified in clean rooms by the same cached verdicts as any commit. The task itself changes once, at the end, and only
if it is as it was at the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import sha256_of
from sandbox.git.diff import compare_trees
from sandbox.git.objects import tree_of
from sandbox.git.process import Git
from sandbox.models import Check, CheckRun, Exploration, ExploredWay, Repository, Snapshot, Task, Verdict
from sandbox.profiles import Profile
from sandbox.store import runs as stored_runs
from sandbox.store.home import Home
from sandbox.store.records import find_task
from sandbox.store.result_files import open_test_results, parse_result
from sandbox.workbench.checks.callbacks import Watch, label_checks, share_watch
from sandbox.workbench.checks.chains import is_verified
from sandbox.workbench.checks.check_order import order_checks
from sandbox.workbench.checks.clean_rooms import VerifyRequest, run_in_rooms
from sandbox.workbench.checks.git_facts import add_git_facts
from sandbox.workbench.checks.ranking import (
    CheckOutcome,
    choose_winner,
    compare_outcomes,
    count_results,
    describe_base,
    rank_ways,
)
from sandbox.workbench.checks.verify_options import ExploreOptions, VerifyOptions
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import TreeSource
from sandbox.workbench.repositories.profile_checks import load_task_profile
from sandbox.workbench.repositories.seen_facts import advise_owner
from sandbox.workbench.tasks.approved_state import (
    SIBLINGS,
    Facts,
    describe_record,
    digest_siblings,
    require_approved_state,
)
from sandbox.workbench.tasks.lifecycle import find_working_tree
from sandbox.workbench.tasks.patched_trees import PatchOfTree, patch_tree
from sandbox.workbench.tasks.snapshots import keep_tree, restore_state, take_snapshot

MAX_WAYS = 32
"""How many ways one exploration takes."""

NAMED_TESTS = 20
"""How many newly failing tests are named for each way; all are counted."""

BASE = "base"


@dataclass(frozen=True)
class ExploreRequest:
    """`patches`: unified diffs by name, each for the task's working state. `task_ids`: tasks of the same repository and
    base, each with its working state.
    """

    patches: Mapping[str, bytes]
    task_ids: tuple[str, ...]
    options: ExploreOptions

    def __post_init__(self) -> None:
        count = len(self.patches) + len(self.task_ids)
        if not 1 <= count <= MAX_WAYS:
            brief = "No patch and no task was named" if not count else f"{count} ways; at most {MAX_WAYS} can be tried"
            raise SandboxError(ErrorCode.INVALID_INPUT, brief, hint="Name patches, or tasks of the same repository.")


def describe_request(request: ExploreRequest) -> dict[str, object]:
    """The request as JSON, for the journal and for comparing two requests: patches by their hash."""
    return {
        "patches": {name: sha256_of(text) for name, text in request.patches.items()},
        "task_ids": list(request.task_ids),
        **asdict(request.options),
    }


def find_trees(services: Services, task_id: str, request: ExploreRequest) -> dict[str, str]:
    """The working states that an exploration begins from, by task.

    Raises: `not_found`; `conflict` for a closed task.
    """
    return {name: find_working_tree(services, name) for name in (task_id, *request.task_ids)}


@dataclass(frozen=True)
class _Exploring:
    """What all ways have in common. `base`: the task's own state. `profile`: with its checks in order."""

    services: Services
    task: Task
    repository: Repository
    git: Git
    base: Snapshot
    profile: Profile
    checks: tuple[Check, ...]


def explore(
    services: Services, task_id: str, request: ExploreRequest, watch: Watch, expected_tree: str | None = None
) -> Exploration:
    """Try all ways, rank them, and restore the best into the task. `expected_tree`: the state that was approved.

    Raises: `not_found`; `conflict` for another state, a closed task or a busy one; `invalid_input` for tasks of another
    repository or base; as `run_in_rooms` for the task's own state. A way that cannot be tried has its error as
    `problem`; if that is each of them, the error of the first.
    """
    question = _ask(services, task_id)
    tasks = [_require_sibling(question, name) for name in request.task_ids]
    makers: list[tuple[str, Callable[[], Snapshot]]] = [
        *((name, partial(_keep_patched, question, name, text, request)) for name, text in request.patches.items()),
        *((task.id, partial(_keep_other, question, task)) for task in tasks),
    ]

    def find_facts(asked: Facts, kept: Sequence[ExploredWay] = ()) -> Facts:
        trees = {way.name: way.tree or "" for way in kept if way.name in request.task_ids}
        siblings = {SIBLINGS: digest_siblings(trees) if kept else asked[SIBLINGS]} if SIBLINGS in asked else {}
        return describe_record(services.home, question.task, **siblings)

    require_approved_state("tree", question.base.tree, expected_tree, find_facts)  # before other tasks are read
    kept = _keep_all(makers)
    require_approved_state("tree", question.base.tree, expected_tree, partial(find_facts, kept=kept))
    base_outcomes, found = _verify_all(question, kept, request.options.jobs, watch)
    ways = rank_ways([_describe(question, way, base_outcomes, runs) for way, runs in zip(kept, found, strict=True)])
    result = Exploration(
        task_id=question.task.id,
        base_tree=question.base.tree,
        base_failing=compare_outcomes({}, base_outcomes).failing,
        ways=ways,
        note=describe_base(base_outcomes),
    )
    return _finish(question, result, request, is_cancelled=watch.cancelled())


def _ask(services: Services, task_id: str) -> _Exploring:
    base = take_snapshot(services, task_id, "before an exploration")
    task = find_task(services.home, task_id)
    repository, git = services.repositories.open(task.repo_id)
    profile = add_git_facts(load_task_profile(services, task), git, base.commit)
    policy = services.policies.container.container
    checks = order_checks(profile, [c.id for c in profile.checks], policy, lambda: advise_owner(services, task.id))
    return _Exploring(services, task, repository, git, base, profile, checks)


def _require_sibling(question: _Exploring, task_id: str) -> Task:
    other, task = find_task(question.services.home, task_id), question.task
    if (other.repo_id, other.base_commit) != (task.repo_id, task.base_commit) or other.id == task.id:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"{other.id} cannot be compared with {task.id}",
            details="It is the same task." if other.id == task.id else "It has another repository or base commit.",
            hint=f"`sandbox task fork {task.id}` makes tasks that can; `sandbox task sync` moves one to a newer base.",
        )
    return other


def _keep_patched(question: _Exploring, name: str, text: bytes, request: ExploreRequest) -> Snapshot:
    wanted = PatchOfTree(question.task, question.repository, question.git, question.base.commit)
    tree = patch_tree(question.services, wanted, text, request.options.expected_hashes)
    return keep_tree(question.services, question.git, question.task, tree, f"explored: {name}")


def _keep_other(question: _Exploring, other: Task) -> Snapshot:
    tree = take_snapshot(question.services, other.id, f"explored for {question.task.id}").tree
    return keep_tree(question.services, question.git, question.task, tree, f"explored: {other.id}")


def _keep_all(makers: Sequence[tuple[str, Callable[[], Snapshot]]]) -> list[ExploredWay]:
    """The ways with their trees, or with the reason why one cannot be tried. Raises: that reason if none can."""
    ways, errors = list[ExploredWay](), list[SandboxError]()
    for name, make in makers:
        try:
            snapshot = make()
        except SandboxError as error:
            errors.append(error)
            ways.append(ExploredWay(name=name, problem=_describe_problem(error)))
        else:
            ways.append(ExploredWay(name=name, snapshot=snapshot.id, tree=snapshot.tree))
    if len(errors) < len(ways):
        return ways
    raise errors[0].with_changes(
        brief="No way can be tried, so no check was run",
        details="\n".join(f"{way.name}: {way.problem}" for way in ways),
    ) from errors[0]


def _describe_problem(error: SandboxError) -> str:
    details = f" ({error.details.splitlines()[0]})" if error.details else ""
    return f"{error.code}: {error.brief}{details}"


def _verify_all(
    question: _Exploring, ways: Sequence[ExploredWay], jobs: int, watch: Watch
) -> tuple[dict[str, CheckOutcome], list[tuple[CheckRun, ...] | SandboxError]]:
    """The outcomes of the task's own state, and the runs or the error of each way. A defect in one way ends all."""

    def verify(name: str, tree: str) -> tuple[CheckRun, ...]:
        try:
            return _verify(question, name, tree, shared)
        except SandboxError:
            raise
        except BaseException:  # no error of this way: the others have no answer to give
            cancellation.set()
            raise

    with share_watch(watch) as (shared, cancellation), ThreadPoolExecutor(jobs, "explore") as pool:
        base = pool.submit(verify, BASE, question.base.tree)
        started = [None if way.tree is None else pool.submit(verify, way.name, way.tree) for way in ways]
        try:
            before = _read_outcomes(question, base.result())
        except BaseException:
            cancellation.set()
            raise
        found: list[tuple[CheckRun, ...] | SandboxError] = []
        for future in started:
            try:
                found.append(() if future is None else future.result())
            except SandboxError as error:
                found.append(error)
    return before, found


def _verify(question: _Exploring, name: str, tree: str, watch: Watch) -> tuple[CheckRun, ...]:
    if watch.cancelled():
        return ()
    task = question.task
    source = TreeSource(task.repo_id, question.git, tree, task.head_commit, tree_of(question.git, task.base_commit))
    compared = [check.id for check in question.checks]
    request = VerifyRequest(question.profile, question.checks, task.id, tests_of=compared)
    heard = replace(label_checks(watch, f"{name}/"), follow=None)
    return run_in_rooms(question.services, source, request, heard, VerifyOptions(keep_going=True))


def _read_outcomes(question: _Exploring, runs: Sequence[CheckRun]) -> dict[str, CheckOutcome]:
    """By check. A check without a run has no verdict."""
    by_check = {run.check_id: run for run in runs}
    return {
        check.id: read_outcome(question.services.home, run) if (run := by_check.get(check.id)) else CheckOutcome(None)
        for check in question.checks
    }


def read_outcome(home: Home, run: CheckRun) -> CheckOutcome:
    """What a run said of each test. Results that are gone, damaged, or were lost as they were read are not complete, as
    for a comparison (`compared_sides`).
    """
    without = CheckOutcome(run.verdict, None, complete=run.report is None and not run.results_lost)
    try:
        owner = stored_runs.find_owner(home, run.run_id)  # a cached verdict may be of another task
        with open_test_results(home, owner, run.run_id) as found:
            if found is None:
                return without
            results = count_results(parse_result(line) for line in found.lines)
            is_complete = found.complete or not found.compared
            return CheckOutcome(run.verdict, results, complete=is_complete and not run.results_lost)
    except SandboxError:  # pruned, or damaged: the verdict is there
        return without


def _describe(
    question: _Exploring, way: ExploredWay, before: Mapping[str, CheckOutcome],
    runs: tuple[CheckRun, ...] | SandboxError,
) -> ExploredWay:  # fmt: skip
    if way.tree is None:
        return way
    if isinstance(runs, SandboxError):
        return way.model_copy(update={"problem": f"{runs.code}: {runs.brief}"})
    if any(run.verdict is Verdict.KILLED for run in runs) or not runs:
        return way.model_copy(update={"problem": "it was stopped"})
    difference = compare_outcomes(before, _read_outcomes(question, runs))
    peaks = [run.usage.memory_peak_bytes for run in runs if run.usage.memory_peak_bytes is not None]
    return way.model_copy(
        update={
            "verified": is_verified(runs, question.checks),
            "verdicts": {run.check_id: run.verdict for run in runs},
            "runs": {run.check_id: run.run_id for run in runs},
            "newly_failing": len(difference.newly_failing),
            "newly_failing_tests": difference.newly_failing[:NAMED_TESTS],
            "failing": difference.failing,
            "missing": difference.missing,
            "wall_time_s": round(sum(run.wall_time_s for run in runs), 3),
            "memory_peak_bytes": max(peaks) if peaks else None,
            **_measure_difference(question, way.tree),
        }
    )


def _measure_difference(question: _Exploring, tree: str) -> dict[str, int]:
    found = compare_trees(question.git, question.base.tree, tree)
    counts = found.counts.values()
    return {
        "files": len(found.changes),
        "additions": sum(added or 0 for added, _ in counts),
        "deletions": sum(removed or 0 for _, removed in counts),
    }


def _finish(question: _Exploring, result: Exploration, request: ExploreRequest, *, is_cancelled: bool) -> Exploration:
    """The result, after the winner's state was restored into the task."""
    best = choose_winner(result.ways)
    if best is None or best.snapshot is None or is_cancelled:
        return _add_note(result, "it was stopped" if is_cancelled else _describe_failure(result.ways))
    won = result.model_copy(update={"winner": best.name})
    if not request.options.restore:
        return _add_note(won, f"`sandbox task restore {result.task_id} {best.snapshot}` takes it")
    try:
        restore_state(question.services, question.task.id, best.snapshot, expected_tree=question.base.tree)
    except SandboxError as error:
        if error.code is not ErrorCode.CONFLICT:
            raise
        return _add_note(won, f"the task was changed meanwhile, and is as it is: {error.brief}")
    return won.model_copy(update={"restored": True})


def _describe_failure(ways: Sequence[ExploredWay]) -> str:
    """Why no way was taken. Those that were not tried say why themselves."""
    untried = [way.name for way in ways if way.tree is None]
    named = f" (not tried: {', '.join(untried)}; see `problem`)" if untried else ""
    return f"no way leaves all tests as they are{named}; the task is unchanged"


def _add_note(result: Exploration, text: str) -> Exploration:
    return result.model_copy(update={"note": "; ".join(filter(None, (result.note, text)))})
