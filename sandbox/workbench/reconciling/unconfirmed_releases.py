"""Releases that were promoted, and not confirmed in time: the controller that waited was killed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sandbox.models import LeftoverAction
from sandbox.store.release_folder import list_release_owners, open_releases
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler


def find_unconfirmed_releases(reconciler: Reconciler) -> Iterator[Finding]:
    """Opening them also completes a switch that a kill interrupted."""
    home = reconciler.services.home
    for repo_id in list_release_owners(home):
        with open_releases(home, repo_id) as releases:
            if releases.is_overdue():
                note = "confirmed" if releases.is_confirmed else "switched back: not confirmed in time"
                remedy = partial(_settle, reconciler, repo_id)
                yield Finding("release", repo_id, remedy, LeftoverAction.RESTORED, note=note)


def _settle(reconciler: Reconciler, repo_id: str) -> str | None:
    with open_releases(reconciler.services.home, repo_id) as releases:
        if not releases.is_overdue():
            return None
        releases.settle()  # confirms, where the launcher did
        return ""
