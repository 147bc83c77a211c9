"""What a task's changes mean for the application that they belong to: classes of files, and checks that they need."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.errors import SandboxError
from sandbox.git.diff import diff_trees
from sandbox.git.scratch_objects import scratch_objects
from sandbox.git.scratch_trees import build_scratch_tree
from sandbox.models import Change, Check, DiffFile, Impact, NeededCheck, Task, Verdict
from sandbox.models.file_classes import ClassImpact
from sandbox.policy.class_patterns import classify_changes, describe_impact
from sandbox.policy.paths import show_path
from sandbox.profiles import Profile
from sandbox.store import runs
from sandbox.store.records import find_task
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.disk_demands import demand_of_objects
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.profile_checks import load_task_profile
from sandbox.workbench.tasks.lifecycle import TaskComparison, compare_task

RUNS_LOOKED_AT = 200
"""How many of a task's newest runs are searched for one on its present files."""


def read_impact(services: Services, task_id: str) -> Impact:
    """The classes that the task changed since its base, committed or not, and the checks that they need.

    Raises: `not_found`, `conflict` for a closed task, `invalid_input` for a profile with a mistake, `quota_exceeded`.
    """
    task = find_task(services.home, task_id, allow_closed=True)
    profile = load_task_profile(services, task)
    with compare_task(services, task) as opened:
        tree, paths = _find_changed_paths(services, opened)
    classes = classify_changes(profile.classes, paths)
    checks = _find_needed(services, task, profile, classes, tree)
    return Impact(
        task_id=task.id,
        classes=classes,
        unclassified=len(paths) - sum(one.count for one in classes),
        checks=checks,
        lines=(*describe_impact(classes), *_describe_checks(checks)),
    )


def advise_check(services: Services, opened: TaskComparison, profile: Profile, check: Check) -> tuple[str, ...]:
    """A line for each class of changed files that needs a check before this one, and that has not passed on them."""
    if not profile.classes:
        return ()
    tree, paths = _find_changed_paths(services, opened)
    classes = classify_changes(profile.classes, paths)
    order = [needed.id for needed in profile.order_checks({check.id, *(i for one in classes for i in one.checks)})]
    first = set(order[: order.index(check.id)]) - {c.id for c in profile.order_checks([check.id])}
    passed = {n.check_id for n in _find_needed(services, opened.task, profile, classes, tree) if n.passed}
    return tuple(
        f"{line}; run {' and '.join(missing)} first"
        for one, line in zip(classes, describe_impact(classes), strict=True)
        if (missing := [check_id for check_id in one.checks if check_id in first - passed])
    )


def _find_changed_paths(services: Services, opened: TaskComparison) -> tuple[str, set[str]]:
    """The tree of the task's present files, and the paths in which it differs from the base."""
    changes = opened.changes.tree
    with services.disk.admit(Writer.LOOK, demand_of_objects(changes)), scratch_objects(opened.git) as aside:
        tree = build_scratch_tree(aside, opened.task.head_commit, changes)
        return tree, {show_path(change.path) for change in diff_trees(aside, opened.task.base_commit, tree)}


def describe_changes(services: Services, task: Task, files: Iterable[Change | DiffFile]) -> tuple[str, ...]:
    """A line for each class of these files; none if the profile has no classes, or cannot be used."""
    try:
        profile = load_task_profile(services, task)
    except SandboxError:
        return ()
    return describe_files(profile, files)


def describe_files(profile: Profile, files: Iterable[Change | DiffFile]) -> tuple[str, ...]:
    """A line for each class of these files. Pure."""
    if not profile.classes:
        return ()
    paths = {path for file in files for path in (file.path, file.old_path) if path is not None}
    return describe_impact(classify_changes(profile.classes, paths))


def _find_needed(
    services: Services, task: Task, profile: Profile, classes: Iterable[ClassImpact], tree: str
) -> tuple[NeededCheck, ...]:
    wanted = list(dict.fromkeys(check_id for one in classes for check_id in one.checks))
    newest: dict[str, bool] = {}
    for run in runs.list_runs(services.home, task.id, RUNS_LOOKED_AT) if wanted else ():
        if run.tree == tree and not run.arguments:
            newest.setdefault(run.check_id, run.verdict is Verdict.PASSED)
    ordered = (check.id for check in profile.order_checks(wanted))
    return tuple(NeededCheck(check_id=name, passed=newest.get(name)) for name in ordered)


def _describe_checks(checks: Iterable[NeededCheck]) -> tuple[str, ...]:
    words = {True: "passed", False: "did not pass", None: "not run on these files"}
    said = ", ".join(f"{check.check_id} ({words[check.passed]})" for check in checks)
    return (f"needs {said}",) if said else ()
