"""Clean rooms and report folders of dead controllers, and probe mounts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sandbox.files.checkout import remove_tree
from sandbox.files.mount_points import unmount_below
from sandbox.files.overlay_mounts import PROBE_PREFIX
from sandbox.store.liveness import owner_of
from sandbox.store.quarantine import QuarantineNotes
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler, find_matching, is_left, list_folder


def find_dead_rooms(reconciler: Reconciler) -> Iterator[Finding]:
    """All entries of `rooms/` with a dead owner: checkouts, mounted or not, their layers, report folders.

    Guests are removed first: a room is not removed while a guest uses it (THREATS P10), also not while the engine
    cannot end that guest.
    """
    undead = {owner_of(name) for name in QuarantineNotes(reconciler.services.home.quarantine).names()}
    found = list_folder(reconciler.services.home.clean_room("any").parent)
    for path in found:
        if not reconciler.is_dead(owner_of(path.name)):
            continue
        if owner_of(path.name) in undead - {None}:
            yield Finding("room", path.name, note="the engine could not end its guest")
        elif reconciler.guests_unknown:
            yield Finding("room", path.name, note=f"its guest may still run: {reconciler.guests_unknown}")
        else:
            yield Finding("room", path.name, partial(_remove, path))


def _remove(path: Path) -> str:
    unmount_below(path)
    remove_tree(path)
    return ""


def find_probes(reconciler: Reconciler) -> Iterator[Finding]:
    """Directories in which overlay support was tested. A test is short and belongs to a live controller, or to another
    thread of this one: without its directory it finds that overlays do not work, and a task gets no disk of its own.
    """
    found = find_matching(reconciler.services.home.repositories, f"{PROBE_PREFIX}*")
    if found and reconciler.is_alone():
        for path in filter(is_left, found):
            yield Finding("probe", path.name, partial(_remove, path))
