"""Containers of a dead controller, or of a task that is closed or gone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from sandbox.engine.container_labels import INSTANCE_LABEL, RUN_LABEL, TASK_LABEL
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import TaskStatus
from sandbox.store.home import Home
from sandbox.store.liveness import owner_of
from sandbox.store.quarantine import QuarantineNotes
from sandbox.store.records import find_task
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler, Remedy, find_matching, is_task_id, list_folder
from sandbox.workbench.tasks.guest_cleanup import remove_guest, remove_orphans

if TYPE_CHECKING:
    from sandbox.engine.container_types import ContainerSummary


def find_dead_guests(reconciler: Reconciler) -> Iterator[Finding]:
    """Containers of this home that no live controller uses. Those of another home are ignored.

    A home that never started a container does not need an engine for this.
    """
    services = reconciler.services
    if not (services.home.root / "instance").exists():
        return
    try:
        listed = services.engine.list_containers({INSTANCE_LABEL: services.home.instance_id})
    except SandboxError as error:
        reconciler.guests_unknown = f"{error.brief}: {error.details}"
        yield Finding("container", "", _build_failing_remedy(error))
        return
    held = QuarantineNotes(services.home.quarantine).names()  # handled by `find_quarantined`
    for guest in listed:
        found = None if guest.name in held or guest.id in held.values() else _judge(reconciler, guest)
        if found is not None:
            yield found


def _build_failing_remedy(error: SandboxError) -> Remedy:
    def fail() -> str:
        raise error

    return fail


def _judge(reconciler: Reconciler, guest: ContainerSummary) -> Finding | None:
    """A guest with a run belongs to the controller that waits for the run; a guest without a run to its task."""
    task_id = guest.labels.get(TASK_LABEL, "")
    run_id = guest.labels.get(RUN_LABEL, "")
    remove = partial(_remove, reconciler.services, guest)
    if not any(source.startswith(f"{reconciler.services.home.root}/") for source in guest.mount_sources):
        note = "it has our label, but no directory of this home is mounted: is this home a copy of another one?"
        return Finding("container", guest.name, note=note)
    if run_id:
        dead = reconciler.is_dead(owner_of(run_id))
        return Finding("container", guest.name, remove, note="its controller is dead") if dead else None
    if not is_task_id(task_id):
        return Finding("container", guest.name, note="it has our label, but no task and no run")
    if not _is_open(reconciler.services.home, task_id):
        return Finding("container", guest.name, remove, locks=(task_id,), note="its task is closed or gone")
    if not guest.running:
        return Finding("container", guest.name, remove, locks=(task_id,), note="it has ended")
    return None


def _is_open(home: Home, task_id: str) -> bool:
    """Whether a task is open. A task with an unreadable record may be open."""
    try:
        return find_task(home, task_id, allow_closed=True).status is not TaskStatus.CLOSED
    except SandboxError as error:
        return error.code is not ErrorCode.NOT_FOUND


def _remove(services: Services, guest: ContainerSummary) -> str:
    services.engine.remove_container(guest.id)
    if guest.name in QuarantineNotes(services.home.quarantine).names():
        raise SandboxError(ErrorCode.CONFLICT, "The engine cannot end the container")
    return ""


def find_guest_marks(reconciler: Reconciler) -> Iterator[Finding]:
    """Tasks in which a guest ran when its controller died. The mark slows down each scan of a plain worktree."""
    for mark in find_matching(reconciler.services.home.repositories, "tasks/*.guest"):
        if is_task_id(mark.stem):
            yield Finding("guest mark", mark.stem, partial(_unmark, reconciler.services, mark.stem), locks=(mark.stem,))


def _unmark(services: Services, task_id: str) -> str | None:
    if not services.home.guest_mark(task_id).exists():
        return None
    remove_orphans(services, task_id)
    return ""


def find_reports(reconciler: Reconciler) -> Iterator[Finding]:
    """Report directories of tasks that are closed or gone: closing was killed. The container is removed first."""
    services = reconciler.services
    for path in list_folder(services.home.report("any").parent):
        if is_task_id(path.name) and not _is_open(services.home, path.name):
            yield Finding("report folder", path.name, partial(_end, services, path.name), locks=(path.name,))


def _end(services: Services, task_id: str) -> str | None:
    if _is_open(services.home, task_id) or not services.home.report(task_id).exists():
        return None
    remove_guest(services, task_id)
    return ""
