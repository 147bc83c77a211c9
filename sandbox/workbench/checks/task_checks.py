"""Use-cases on checks in a task's own worktree."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.checks.cancellation import defer_interrupts
from sandbox.checks.execute import CheckDirectories, Recorder
from sandbox.errors import SandboxError
from sandbox.files.git_mask import require_mask
from sandbox.files.stamps import coarse_now_ns
from sandbox.files.tree import WorktreeFiles
from sandbox.git.scratch_trees import compute_tree_id
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.models import Check, CheckRun, Task, Verdict, WorkspaceKind
from sandbox.policy.paths import parse_repo_path
from sandbox.profiles import Profile, project_of
from sandbox.store.guest_times import mark_guest_running
from sandbox.store.home import GIT_MASK
from sandbox.store.records import find_task
from sandbox.workbench.checks import run as running
from sandbox.workbench.checks.callbacks import Watch
from sandbox.workbench.checks.check_order import order_checks
from sandbox.workbench.checks.git_facts import add_git_facts
from sandbox.workbench.checks.layers import find_last_tree, hold_layers, prepare_setups
from sandbox.workbench.controller.disk_admission import Writer
from sandbox.workbench.controller.disk_demands import demand_of_objects
from sandbox.workbench.controller.guest_accounts import find_account
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import profile_from_facts
from sandbox.workbench.repositories.seen_facts import advise
from sandbox.workbench.tasks.impact import advise_check
from sandbox.workbench.tasks.lifecycle import TaskBase, compare_task, lock_task, read_base, require_approved_task
from sandbox.workbench.tasks.worktrees import require_writable_disk
from sandbox.workspaces.own_disk import settle_disk

if TYPE_CHECKING:
    from sandbox.checks import runner_arguments
    from sandbox.workbench.tasks import tree_tasks
else:  # loaded for failed tests, and for a task of this kind (docs/adr/0080)
    runner_arguments = LazyModule("sandbox.checks.runner_arguments")
    tree_tasks = LazyModule("sandbox.workbench.tasks.tree_tasks")


@dataclass(frozen=True)
class TaskRun:
    """How checks run in a task. `last_run_id`: the id for the run of the last check. `arguments`: for the only check.
    `expected_tree`: the working state that was approved.
    """

    last_run_id: str | None = None
    arguments: Sequence[str] = ()
    expected_tree: str | None = None


def run_checks(
    services: Services,
    task_id: str,
    check_ids: Sequence[str],
    watch: Watch,
    wanted: TaskRun | None = None,
) -> tuple[CheckRun, ...]:
    """Run checks in the task's own worktree, required ones first; stop at the first that does not pass.

    Raises: as `order_checks`, `build_task_recorder` and `run_one`; `conflict` for a closed task, for another state than
    the approved one, or while another operation holds it.
    """
    wanted = wanted or TaskRun()
    task = find_task(services.home, task_id)
    require_approved_task(services, task, wanted.expected_tree)  # before images are built; again under the lock
    base = read_base(services, task)
    profile = profile_from_facts(services, task.repo_id, base.facts, task.profile)
    profile = add_git_facts(profile, base.git, task.head_commit)
    checks = order_checks(
        profile,
        check_ids,
        services.policies.container.container,
        lambda: advise(services, task.repo_id, base.facts, profile),
        wanted.arguments,
    )
    setups = prepare_setups(services, profile.parts_of(checks), find_last_tree(services, task), watch)
    recorders = {name: running.build_task_recorder(services, setup, task_id) for name, setup in setups.items()}
    with hold_layers(services, task.id, *setups.values()), lock_task(services, task, waiting=watch.waiting) as locked:
        is_tree = locked.workspace_kind is WorkspaceKind.TREE
        task = tree_tasks.lay_out_files(services, locked) if is_tree else locked
        require_approved_task(services, task, wanted.expected_tree)
        ids = [running.new_run_id(services.presence) for _ in checks[1:]] + [
            wanted.last_run_id or running.new_run_id(services.presence)
        ]
        chain = list(zip(ids, checks, strict=True))
        return tuple(_run_in_task(services, (task, base, profile), recorders, chain, watch))


def _run_in_task(
    services: Services,
    of: tuple[Task, TaskBase, Profile],
    recorders: Mapping[str, Recorder],
    checks: Sequence[tuple[str, Check]],
    watch: Watch,
) -> Iterator[CheckRun]:
    task, base, profile = of
    for run_id, check in checks:
        with (
            compare_task(services, task, task_base=base) as opened,
            services.disk.admit(Writer.LOOK, demand_of_objects(opened.changes.tree)),
        ):
            require_writable_disk(services.home, task)
            tree = compute_tree_id(opened.git, task.head_commit, opened.changes.tree)
            notes = advise_check(services, opened, profile, check)
        require_mask(opened.root, GIT_MASK)
        report = running.prepare_task_report(services.home, task.id, opened.site)
        account = find_account(services, opened.owner)
        place = CheckDirectories(opened.root, report, account, tree, clean_room=False, task_id=task.id)
        mark = services.home.guest_mark(task.id)
        with defer_interrupts(), mark_guest_running(mark, coarse_now_ns, run_id):
            recorder = recorders[project_of(check.id)]
            run = running.run_one(services, recorder, (run_id, check, place), watch, owner=task.id)
            os.utime(services.home.report(task.id))  # when the container was used last (memory_admission.py)
        run = _add_arguments(run, profile, opened.root)
        settle_disk(opened.site.layers)
        yield run.model_copy(update={"notes": (*run.notes, *notes)}) if notes else run
        if run.verdict is not Verdict.PASSED:
            return


def _add_arguments(run: CheckRun, profile: Profile, root: Path) -> CheckRun:
    """The run, with what runs each of its failed tests alone. The names of tests are the guest's: a path that is none,
    or leads through a link, is no file.
    """
    if not run.failures:
        return run
    check = next((check for check in profile.checks if check.id == run.check_id), None)
    if check is None:
        return run
    with WorktreeFiles(root) as files:

        def exists(path: str) -> bool:
            try:
                return files.kind(parse_repo_path(path)) is not None
            except SandboxError:
                return False

        return run.model_copy(update={"failures": runner_arguments.add_arguments(check, run.failures, exists)})
