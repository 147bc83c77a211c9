"""Releases that were promoted, and not confirmed in time: the controller that waited ended, or was killed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sandbox.models import LeftoverAction
from sandbox.store.release_folder import list_unsettled, open_releases
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler


def find_unconfirmed_releases(reconciler: Reconciler) -> Iterator[Finding]:
    """No lock is held while a remedy runs: it takes the same one. Opening releases also completes an interrupted
    switch, in a dry run as well.
    """
    for found in list_unsettled(reconciler.services.home):
        if found.is_due:
            remedy = partial(_settle, reconciler, found.repo_id)
            forecast = partial(_settle, reconciler, found.repo_id, dry_run=True)
            yield Finding("release", found.repo_id, remedy, LeftoverAction.RESTORED, forecast=forecast)


def _settle(reconciler: Reconciler, repo_id: str, *, dry_run: bool = False) -> str | None:
    with open_releases(reconciler.services.home, repo_id) as releases:
        if not releases.is_overdue():
            return None
        note = "confirmed" if releases.is_confirmed else "switched back: not confirmed in time"
        if not dry_run:
            releases.settle()  # confirms, where the launcher did
        return note
