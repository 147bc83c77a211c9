"""Find and remove what killed controllers left behind, and what is older than the settings keep it.

Work that exists only here is never deleted.

A finder lists one kind of leftover and how to remove it. The tables below list all finders in the order in which they
run: guests before the rooms they use, worktrees before their branches, locks and the records of dead controllers last.
docs/reconciliation.md describes what can be left and why; docs/adr/0026 why it is done this way.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sandbox.errors import SandboxError
from sandbox.models import Leftover, LeftoverAction, Reconciliation
from sandbox.store.liveness import list_dead_controllers
from sandbox.workbench.controller import release_watch
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.clone_objects import find_clones_set_aside, find_unpacked_clones
from sandbox.workbench.reconciling.dead_containers import find_dead_guests, find_guest_marks, find_reports
from sandbox.workbench.reconciling.dead_requests import find_dead_requests
from sandbox.workbench.reconciling.edit_leftovers import find_cut_off_edits
from sandbox.workbench.reconciling.evictions import find_over_budget
from sandbox.workbench.reconciling.leftover_refs import find_forgettable, find_refs
from sandbox.workbench.reconciling.lost_worktrees import find_lost_worktrees, find_worktrees
from sandbox.workbench.reconciling.old_caches import find_old_caches
from sandbox.workbench.reconciling.old_images import find_old_images, find_step_images
from sandbox.workbench.reconciling.quarantined_containers import find_quarantined
from sandbox.workbench.reconciling.reconciler import Finder, Reconciler
from sandbox.workbench.reconciling.retention import (
    find_large_journals,
    find_large_logs,
    find_old_artifacts,
    find_old_journals,
    find_old_runs,
    find_old_tasks,
    find_old_verdicts,
)
from sandbox.workbench.reconciling.room_leftovers import find_dead_rooms, find_probes
from sandbox.workbench.reconciling.task_notes import (
    find_controllers,
    find_creation_marks,
    find_locks,
    find_pending_moves,
    find_stat_indexes,
)
from sandbox.workbench.reconciling.temporary_files import (
    find_courier_folders,
    find_disk_templates,
    find_half_checkouts,
    find_half_clones,
    find_half_removals,
    find_scratch_objects,
    find_temporary_files,
    find_temporary_folders,
    find_unfinished_objects,
)
from sandbox.workbench.reconciling.unconfirmed_releases import find_unconfirmed_releases
from sandbox.workbench.reconciling.unused_layers import find_unused_layers
from sandbox.workbench.reconciling.unused_users import find_unused_users, record_moved_users
from sandbox.workbench.reconciling.workspace_leftovers import find_workspace_leftovers

_log = logging.getLogger(__name__)
_LOCK = "reconciliation"
WAIT_S = 60.0

AFTER_A_KILL: tuple[Finder, ...] = (
    find_dead_guests,
    find_quarantined,
    find_guest_marks,
    find_dead_rooms,
    find_unused_users,
    find_unconfirmed_releases,
    find_temporary_files,
    find_scratch_objects,
    find_temporary_folders,
    find_controllers,
)
"""Run by the next controller before its first operation: guests that still run, and leftovers that use disk space."""

_OF_ENGINE = frozenset({find_dead_guests, find_quarantined, find_guest_marks})

_PAST_LIMITS: tuple[Finder, ...] = (
    find_old_tasks,
    find_old_runs,
    find_large_logs,
    find_old_verdicts,
    find_old_artifacts,
    find_old_caches,
    find_large_journals,
    find_old_journals,
    find_unpacked_clones,
    find_over_budget,
)

ALL: tuple[Finder, ...] = (
    find_quarantined,
    find_dead_guests,
    find_guest_marks,
    find_reports,
    find_dead_requests,
    find_dead_rooms,
    find_probes,
    find_old_images,
    find_step_images,
    find_unused_layers,
    find_temporary_files,
    find_courier_folders,
    find_disk_templates,
    find_half_checkouts,
    find_half_clones,
    find_clones_set_aside,
    find_half_removals,
    find_workspace_leftovers,
    find_worktrees,
    find_lost_worktrees,
    find_cut_off_edits,
    find_pending_moves,
    find_refs,
    find_scratch_objects,
    find_temporary_folders,
    find_unfinished_objects,
    find_stat_indexes,
    find_creation_marks,
    find_unused_users,
    record_moved_users,
    *_PAST_LIMITS,
    find_unconfirmed_releases,
    find_locks,
    find_controllers,
)

FINISHED: tuple[Finder, ...] = (
    find_old_images,
    find_unused_layers,
    find_half_checkouts,
    find_half_clones,
    find_clones_set_aside,
    find_half_removals,
    *_PAST_LIMITS,
)
"""Those of `ALL` that free space of finished work, in their order."""


def collect(services: Services, *, dry_run: bool = False, more: Sequence[Finder] = ()) -> Reconciliation:
    """Run all finders and remove what they find; with `dry_run` only report it. Does not wait for tasks in use.
    `more`: finders of rooms above this one.

    Raises: `conflict` when another reconciliation takes longer than a minute.
    """
    with services.home.locked(_LOCK, WAIT_S):
        reconciler = _run_finders(Reconciler(services, dry_run), [*ALL, *more])
    if not dry_run:
        release_watch.take_over_releases(services)  # those with time left: this controller may live until then
    return Reconciliation(dry_run=dry_run, leftovers=tuple(reconciler.done))


def keep_to_limits(services: Services, *, dry_run: bool = False) -> Reconciliation:
    """As `collect`, but only what `storage.*` asks for. Without a limit it does not look."""
    return _collect_only(services, find_over_budget, dry_run=dry_run)


def forecast_storage(services: Services, engine_fault: str) -> tuple[Leftover, ...]:
    """What `collect` would do now to finished work and to what can be made again. It does not change them.

    `engine_fault`: why the engine cannot be asked about images.
    """
    reconciler = _run_finders(Reconciler(services, dry_run=True, guests_unknown=engine_fault), FINISHED)
    return tuple(left for left in reconciler.done if left.action is not LeftoverAction.FAILED)


def collect_layers(services: Services, *, dry_run: bool = False) -> Reconciliation:
    """As `collect`, for layers of dependencies only."""
    return _collect_only(services, find_unused_layers, dry_run=dry_run)


def _collect_only(services: Services, finder: Finder, *, dry_run: bool) -> Reconciliation:
    with services.home.locked(_LOCK, WAIT_S):
        reconciler = _run_finders(Reconciler(services, dry_run), [finder])
    return Reconciliation(dry_run=dry_run, leftovers=tuple(reconciler.done))


def forget(services: Services, names: Sequence[str]) -> Reconciliation:
    """Permanently delete kept states that `collect` lists. Raises: `not_found` before any is deleted; `conflict` when
    another reconciliation takes longer than a minute.
    """
    with services.home.locked(_LOCK, WAIT_S):
        findings = find_forgettable(services.home, services.settings, names)
        reconciler = _run_finders(Reconciler(services), [lambda _: iter(findings)])
    return Reconciliation(dry_run=False, leftovers=tuple(reconciler.done))


def clean_up_after_kill(services: Services) -> None:
    """Clean up after killed controllers. Does not raise: what cannot be removed is left to `gc`."""
    try:
        with services.home.locked(_LOCK, 0.0):
            _tidy_up(services)
    except SandboxError as error:
        _log.info("leftovers of killed controllers were kept for now: %s", error.brief)


def _tidy_up(services: Services) -> None:
    dead = [d for d in list_dead_controllers(services.home.liveness) if not d.is_marked_failed]
    reconciler = Reconciler(services)
    finders = [f for f in AFTER_A_KILL if f not in _OF_ENGINE or any(d.used_engine for d in dead)]
    for leftover in _run_finders(reconciler, finders).done:
        _log.info("left by a killed controller: %s %s: %s", leftover.kind, leftover.name, leftover.action.value)
    if reconciler.guests_unknown:
        for each in dead:
            each.mark_failed()


def _run_finders(reconciler: Reconciler, finders: tuple[Finder, ...] | list[Finder]) -> Reconciler:
    reconciler.services.presence  # noqa: B018 - marks this controller as alive from here on
    for finder in finders:
        reconciler.run_finder(finder)
    return reconciler
