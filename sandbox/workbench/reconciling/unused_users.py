"""User ids of guests that no worktree or clean room has any more, and those that were never recorded.

Ids are bookkeeping: none of this is reported, except an id that cannot be returned because its task is in use.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

from sandbox.store.guest_users import UserLease
from sandbox.store.liveness import owner_of
from sandbox.workbench.controller.guest_accounts import find_guest_users, release_user
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.reconciler import Finding, Reconciler, is_task_id, list_folder
from sandbox.workbench.tasks.worktrees import read_owner

_log = logging.getLogger(__name__)


def find_unused_users(reconciler: Reconciler) -> Iterator[Finding]:
    """Leases without files. Those of a task in use, or of a live controller, may be about to get some."""
    services = reconciler.services
    if services.policies.pristine_owner is None:
        return
    leases = find_guest_users(services).list_leases()  # before looking at files
    in_use = _list_users(services)
    for lease in leases:
        if lease.uid in in_use:
            continue
        locks = (lease.owner,) if is_task_id(lease.owner) else ()
        if locks or reconciler.is_dead(owner_of(lease.owner)):
            name = str(lease.uid)
            yield Finding("user id", name, partial(_release, services, lease), locks=locks, forecast=lambda: None)


def record_moved_users(reconciler: Reconciler) -> Iterator[Finding]:
    """Record the users of worktrees of a home that was moved or restored, and free those of homes that are gone: no
    guest may get an id that a file has. Finds no leftovers.
    """
    services = reconciler.services
    if services.policies.pristine_owner is not None and not reconciler.dry_run:
        users = find_guest_users(services)
        known = {lease.uid for lease in users.list_leases()}
        for uid, owner in _list_users(services).items():
            if uid not in known and uid in users.ids and is_task_id(owner):
                users.adopt(uid, owner)
        if freed := users.release_of_missing_homes():
            _log.info("%d user ids of homes that are gone are free again", len(freed))
    yield from ()


def _release(services: Services, lease: UserLease) -> None:
    if lease.uid not in _list_users(services):
        release_user(services, (lease.uid, lease.uid))


def _list_users(services: Services) -> dict[int, str]:
    """The uids of all worktrees and clean rooms of this home, with the name of one that has it."""
    home = services.home
    rooms = list_folder(home.clean_room("any").parent)
    tops = (home.worktree("any", "any").parents[1], home.layers("any", "any").parents[1])
    worktrees = [path for top in tops for repo in list_folder(top) for path in list_folder(repo)]
    found = {}
    for path in (*rooms, *worktrees):
        if (user := read_owner(path, path)) is not None:
            found[user[0]] = path.name.removesuffix(".layers")
    return found
