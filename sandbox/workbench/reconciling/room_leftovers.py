"""Clean rooms and report folders of dead controllers, and probe mounts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sandbox.files.checkout import remove_tree
from sandbox.files.overlay_mounts import PROBE_PREFIX, unmount_overlay
from sandbox.store.liveness import owner_of
from sandbox.store.quarantine import QuarantineNotes
from sandbox.workbench.reconciling.survey import Finding, Survey, find_matching, list_folder


def find_dead_rooms(survey: Survey) -> Iterator[Finding]:
    """All entries of `rooms/` with a dead owner: checkouts, mounted or not, their layers, report folders.

    Guests are removed first: a room is not removed while a guest uses it (THREATS P10), also not while the engine
    cannot end that guest.
    """
    undead = {owner_of(name) for name in QuarantineNotes(survey.services.home.quarantine).names()}
    found = list_folder(survey.services.home.clean_room("any").parent)
    for path in found:
        if not survey.is_dead(owner_of(path.name)):
            continue
        if owner_of(path.name) in undead - {None}:
            yield Finding("room", path.name, note="the engine could not end its guest")
        elif survey.guests_unknown:
            yield Finding("room", path.name, note=f"its guest may still run: {survey.guests_unknown}")
        else:
            yield Finding("room", path.name, partial(_remove, path))


def _remove(path: Path) -> str:
    unmount_overlay(path)
    remove_tree(path)
    return ""


def find_probes(survey: Survey) -> Iterator[Finding]:
    """Directories in which overlay support was tested. A test is short and belongs to a live controller."""
    found = find_matching(survey.services.home.repositories, f"{PROBE_PREFIX}*")
    if found and survey.is_alone():
        for path in found:
            yield Finding("probe", path.name, partial(_remove_probe, path))


def _remove_probe(path: Path) -> str:
    unmount_overlay(path / "merged")
    remove_tree(path)
    return ""
