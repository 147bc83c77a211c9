"""User ids of guests that no worktree or clean room has any more, and those that were never recorded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sandbox.models import LeftoverAction
from sandbox.store.guest_users import UserLease
from sandbox.store.liveness import owner_of
from sandbox.workbench.controller.guest_users import find_guest_users, release_user
from sandbox.workbench.controller.services import Services
from sandbox.workbench.reconciling.survey import Finding, Survey, is_task_id, list_folder
from sandbox.workbench.tasks.worktrees import read_owner


def find_unused_users(survey: Survey) -> Iterator[Finding]:
    """Leases without files. Those of a task in use, or of a live controller, may be about to get some."""
    services = survey.services
    if services.pristine_owner is None:
        return
    leases = find_guest_users(services).list_leases()  # before looking at files
    in_use = _list_users(services)
    for lease in leases:
        if lease.uid in in_use:
            continue
        locks = (lease.owner,) if is_task_id(lease.owner) else ()
        if locks or survey.is_dead(owner_of(lease.owner)):
            yield Finding("user id", str(lease.uid), partial(_release, services, lease), locks=locks)


def find_unrecorded_users(survey: Survey) -> Iterator[Finding]:
    """Users of worktrees without a lease of this home, because it was moved or restored; leases of homes that are gone.

    Both are about other homes of this host: no guest may get an id that a file has.
    """
    services = survey.services
    if services.pristine_owner is None:
        return
    users = find_guest_users(services)
    known = {lease.uid for lease in users.list_leases()}
    for uid, owner in sorted(_list_users(services).items()):
        if uid not in known and uid in users.ids and is_task_id(owner):
            adopt = partial(_adopt, services, uid, owner)
            yield Finding("user id", str(uid), adopt, action=LeftoverAction.KEPT, note=f"recorded for {owner}")
    if not survey.dry_run:
        for uid in users.release_of_missing_homes():
            yield Finding("user id", str(uid), lambda: "", note="its home no longer exists")


def _release(services: Services, lease: UserLease) -> str | None:
    if lease.uid in _list_users(services):
        return None
    release_user(services, (lease.uid, lease.uid))
    return ""


def _adopt(services: Services, uid: int, owner: str) -> str:
    find_guest_users(services).adopt(uid, owner)
    return ""


def _list_users(services: Services) -> dict[int, str]:
    """The uids of all worktrees and clean rooms of this home, with the name of one that has it."""
    home = services.home
    rooms = home.clean_room("any").parent
    worktrees, layers = home.worktree("any", "any").parents[1], home.layers("any", "any").parents[1]
    found = {}
    for path in [
        *list_folder(rooms),
        *(p for top in (worktrees, layers) for r in list_folder(top) for p in list_folder(r)),
    ]:
        name = path.name.removesuffix(".layers")
        if (user := read_owner(path, path)) is not None:
            found[user[0]] = name
    return found
