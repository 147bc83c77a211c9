"""Check requests, stop requests and queue tickets of dead processes. Other processes ignore them in any case."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sandbox.store.lockfile import is_abandoned, remove_abandoned
from sandbox.store.queue_tickets import parse_ticket
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler, list_folder

_STOP_SUFFIX = ".stop"


def find_dead_requests(reconciler: Reconciler) -> Iterator[Finding]:
    """Check requests of dead processes, stop requests without a check request, queue tickets of dead processes."""
    stops = list_folder(reconciler.services.home.stop_requests)
    for path in stops:
        if path.suffix != _STOP_SUFFIX and is_abandoned(path):
            yield Finding("request", path.name, partial(_remove, path))
    for path in stops:
        if path.suffix == _STOP_SUFFIX and not path.with_suffix("").exists():
            yield Finding("wish to stop", path.name, partial(_unlink, path))
    for path in list_folder(reconciler.services.home.run_queue):
        if parse_ticket(path.name) is not None and is_abandoned(path):
            yield Finding("ticket", path.name, partial(_remove, path))


def _remove(path: Path) -> str | None:
    if not remove_abandoned(path):
        return None
    path.with_name(path.name + _STOP_SUFFIX).unlink(missing_ok=True)
    return ""


def _unlink(path: Path) -> str:
    path.unlink(missing_ok=True)
    return ""
