"""What `gc` removes of a cluster's tasks: those that this home lost to another host, and old answers.

Theory. A worker that was silent for too long keeps its files of a task, and the task goes on elsewhere. If the task
comes back, the files are replaced; if it does not, they would stay for ever. The hub says that a task has a later
epoch: what this home has is then an older state of what is there. Who writes to the hub can say so of every task, and
delete what is there. So the files stay for `keep.quarantine_days`, in which that is noticed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

from sandbox.git.push.hub_refs import ENDS
from sandbox.models import TaskStatus
from sandbox.store.home import Home
from sandbox.store.operation_answers import age_of_answers_s, forget_answers, list_asked_tasks
from sandbox.store.records import list_tasks
from sandbox.workbench.controller.services import Services
from sandbox.workbench.delivery import hub
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler

ENDS_DAYS = 7
"""How long the hub says how a task was closed. A caller asks for an operation again within minutes."""

_DAY_S = 24 * 3600.0


def find_moved_tasks(reconciler: Reconciler) -> Iterator[Finding]:
    """Tasks here that another host has now or has closed, and those that the hub does not know any more, which are
    kept; in the hub, how tasks were closed more than `ENDS_DAYS` ago. Asks the hub once, if there are tasks of a
    cluster here. Raises: network errors.
    """
    services = reconciler.services
    url = services.settings.cluster.hub
    opened = [task for task in list_tasks(services.home) if task.status is not TaskStatus.CLOSED]
    ours = [(task, epoch) for task in opened if (epoch := hub.find_sent_epoch(services.home, task.id)) is not None]
    if not url or not ours:
        return
    repo_id = ours[0][0].repo_id
    found = hub.look_at_hub(services, url, repo_id)
    days = services.settings.keep.quarantine_days
    for task, epoch in ours:
        if found.last.get(task.id, 0) > epoch or task.id in found.ends:
            is_due = time.time() - hub.sent_file(services.home, task.id).stat().st_mtime > days * _DAY_S
            remedy = partial(_give_up, services, url, task.id) if is_due else None
            note = "it went on on another host"
            if not is_due:
                note += f"; kept for {days:g} days since the last operation"
            yield Finding("task of a cluster", task.id, remedy, note=note)
        elif task.id not in found.last:
            note = f"the hub has no state of it; if it is not needed: sandbox task close {task.id} --delete --discard"
            yield Finding("task of a cluster", task.id, note=note)
    before = f"{ENDS}{datetime.now(UTC) - timedelta(days=ENDS_DAYS):%Y%m%d}/"
    if old := {ref: oid for ref, oid in found.ends.values() if ref < before}:
        forget = partial(_forget_ends, services, url, repo_id, old)
        yield Finding("closed tasks in the hub", f"{len(old)} refs", forget, note=f"older than {ENDS_DAYS} days")


def _forget_ends(services: Services, url: str, repo_id: str, old: Mapping[str, str]) -> str | None:
    hub.forget_ends(services, url, repo_id, old)
    return ""


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
