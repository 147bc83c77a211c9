"""What `gc` removes of a cluster's tasks: those that this home lost to another host, and old answers.

Theory. A worker that was silent for too long keeps its files of a task, and the task goes on elsewhere. If the task
comes back, the files are replaced; if it does not, they would stay for ever. The hub says that a task has a later
epoch: what this home has is then an older state of what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sandbox.models import Task, TaskStatus
from sandbox.store.home import Home, read_json
from sandbox.store.operation_answers import age_of_answers_s, forget_answers, list_asked_tasks
from sandbox.store.records import list_tasks
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery import hub
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler

_DAY_S = 24 * 3600.0


def find_moved_tasks(reconciler: Reconciler) -> Iterator[Finding]:
    """Tasks here that have a later epoch in the hub, and those that it does not know any more, which are kept. Asks the
    hub once, if there are tasks of a cluster here. Raises: network errors.
    """
    services = reconciler.services
    url = services.settings.cluster.hub
    ours = [(task, epoch) for task in list_tasks(services.home) if (epoch := _find_epoch(services, task))]
    if not url or not ours:
        return
    last = hub.list_last_epochs(services, url, ours[0][0].repo_id)
    for task, epoch in ours:
        if last.get(task.id, 0) > epoch:
            remedy = partial(_give_up, services, url, task.id)
            yield Finding("task of a cluster", task.id, remedy, note="it goes on on another host")
        elif task.id not in last:
            note = f"the hub has no state of it: it was closed elsewhere; sandbox task close {task.id} --delete"
            yield Finding("task of a cluster", task.id, note=note)


def _find_epoch(services: Services, task: Task) -> int:
    """The epoch for which this home has an open task; 0 for a task of no cluster."""
    if task.status is TaskStatus.CLOSED:
        return 0
    sent = read_json(hub.sent_file(services.home, task.id))
    return int(sent["epoch"]) if sent else 0


def _give_up(services: Services, url: str, task_id: str) -> str | None:
    return "" if hub.give_up_moved(services, url, task_id) else None


def find_old_answers(reconciler: Reconciler) -> Iterator[Finding]:
    """Recorded answers of tasks that this home does not have any more, as old as closed tasks may be. By then the task
    has ended, or another host has it.
    """
    home, days = reconciler.services.home, reconciler.services.settings.keep.closed_tasks_days
    for task_id in list_asked_tasks(home) if days else ():
        if not home.task(task_id).exists() and age_of_answers_s(home, task_id) > days * _DAY_S:
            remedy = partial(_forget, home, task_id, days)
            yield Finding("answers", task_id, remedy, note=f"of a task that is not here; older than {days:g} days")


def _forget(home: Home, task_id: str, days: float) -> str | None:
    return "" if forget_answers(home, task_id, days * _DAY_S) else None
