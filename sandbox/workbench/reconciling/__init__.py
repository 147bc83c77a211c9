"""Find and remove what a killed controller left behind. Work that exists only here is never deleted.

A finder lists one kind of leftover and how to remove it. The tables below list all finders in the order in which they
run: guests before the rooms they use, worktrees before their branches, locks and the records of dead controllers last.
docs/reconciliation.md describes what can be left and why; docs/adr/0026 why it is done this way.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sandbox.errors import SandboxError
from sandbox.models import Reconciliation
from sandbox.store.liveness import absent
from sandbox.workbench.controller.services import Parts
from sandbox.workbench.reconciling.dead_containers import dead_guests, guest_marks, reports
from sandbox.workbench.reconciling.dead_requests import dead_requests
from sandbox.workbench.reconciling.edit_leftovers import cut_off_edits
from sandbox.workbench.reconciling.lost_worktrees import lost_worktrees, worktrees
from sandbox.workbench.reconciling.old_images import unused_images
from sandbox.workbench.reconciling.quarantined_containers import quarantined
from sandbox.workbench.reconciling.refs import refs, to_forget
from sandbox.workbench.reconciling.room_leftovers import dead_rooms, probes
from sandbox.workbench.reconciling.survey import Finder, Survey
from sandbox.workbench.reconciling.task_notes import controllers, locks, making_marks, stat_indexes
from sandbox.workbench.reconciling.temporary_files import (
    courier_folders,
    half_checkouts,
    half_clones,
    half_removals,
    temporary_files,
    unfinished_objects,
)

_log = logging.getLogger(__name__)
_LOCK = "reconciliation"
WAIT_S = 60.0

AFTER_A_KILL: tuple[Finder, ...] = (dead_guests, guest_marks, dead_rooms, temporary_files, controllers)
"""Run by the next controller before its first operation: guests that still run, and leftovers that use disk space."""

ALL: tuple[Finder, ...] = (
    quarantined,
    dead_guests,
    guest_marks,
    reports,
    dead_requests,
    dead_rooms,
    probes,
    unused_images,
    temporary_files,
    courier_folders,
    half_checkouts,
    half_clones,
    half_removals,
    worktrees,
    lost_worktrees,
    cut_off_edits,
    refs,
    unfinished_objects,
    stat_indexes,
    making_marks,
    locks,
    controllers,
)


def collect(services: Parts, *, dry_run: bool = False) -> Reconciliation:
    """Run all finders and remove what they find; with `dry_run` only report it. Does not wait for tasks in use.

    Raises: `conflict` when another reconciliation takes longer than a minute.
    """
    with services.home.locked(_LOCK, WAIT_S):
        survey = _went_through(Survey(services, dry_run), ALL)
    return Reconciliation(dry_run=dry_run, leftovers=tuple(survey.done))


def forget(services: Parts, names: Sequence[str]) -> Reconciliation:
    """Permanently delete kept states that `collect` lists. Raises: `not_found` before any is deleted; `conflict` when
    another reconciliation takes longer than a minute.
    """
    with services.home.locked(_LOCK, WAIT_S):
        findings = to_forget(services, names)
        survey = _went_through(Survey(services), [lambda _: iter(findings)])
    return Reconciliation(dry_run=False, leftovers=tuple(survey.done))


def after_a_kill(services: Parts) -> None:
    """Clean up after killed controllers. Does not raise: what cannot be removed is left to `gc`."""
    try:
        with services.home.locked(_LOCK, 0.0):
            _tidy_up(services)
    except SandboxError as error:
        _log.info("leftovers of killed controllers were kept for now: %s", error)


def _tidy_up(services: Parts) -> None:
    dead = [d for d in absent(services.home.presence) if not d.is_left]
    survey = Survey(services)
    finders = [f for f in AFTER_A_KILL if f not in {dead_guests, guest_marks} or any(d.used_engine for d in dead)]
    for leftover in _went_through(survey, finders).done:
        _log.info("left by a killed controller: %s %s: %s", leftover.kind, leftover.name, leftover.action.value)
    if survey.guests_unknown:
        for each in dead:
            each.leave()


def _went_through(survey: Survey, finders: tuple[Finder, ...] | list[Finder]) -> Survey:
    survey.parts.presence  # noqa: B018 - marks this controller as alive from here on
    for finder in finders:
        survey.settle(finder)
    return survey
