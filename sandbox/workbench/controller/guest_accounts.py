"""A user for each guest: lease and return uids, and write the files that give the user a name in the guest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.engine.account_files import build_group, build_passwd
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.store.guest_users import GuestUsers
from sandbox.store.home import write_atomically
from sandbox.store.host_ids import read_reserved_ids
from sandbox.workbench.controller.services import Services

if TYPE_CHECKING:
    from sandbox import guest_labels
    from sandbox.engine import create_options, user_maps
    from sandbox.engine.create_options import GuestAccount
else:  # loaded at first use (docs/adr/0080)
    create_options = LazyModule("sandbox.engine.create_options")
    user_maps = LazyModule("sandbox.engine.user_maps")
    guest_labels = LazyModule("sandbox.guest_labels")

Owner = tuple[int, int] | None
"""uid and gid of a worktree's files; None for those of the controller, which may not give files away."""


def find_guest_users(services: Services) -> GuestUsers:
    """The uids of this host's guests, for this home.

    With an operator's policy that cannot be used they are of the shipped range: no guest runs until the file is mended,
    and what needs no guest goes on.
    """
    try:
        policy = services.policies.container
    except SandboxError:
        policy = services.policies.shipped_container
    users = policy.container.users
    # Mapped ids are of a subordinate range on purpose.
    read_reserved = partial(read_reserved_ids, subordinate=not users.mapped)
    return GuestUsers(services.settings.container.users_folder, users.ids, services.home.root, read_reserved)


def lease_user(services: Services, owner: str) -> Owner:
    """A uid for a task or clean room that is about to be created; None if this controller is not root.

    Raises: `quota_exceeded` when no uid is free, `internal`.
    """
    if services.policies.pristine_owner is None:
        return None
    uid = find_guest_users(services).lease(owner, synced=owner.startswith("task-"))
    return uid, uid


def release_user(services: Services, user: Owner) -> None:
    """Return a uid, once no file and no guest of it is left. The uid that older worktrees share is no lease."""
    if user is None or user == services.policies.pristine_owner:
        return
    for path in _account_files(services, user[0]):
        path.unlink(missing_ok=True)
    find_guest_users(services).release(user[0])


@contextmanager
def lease_account(services: Services, owner: str) -> Iterator[GuestAccount]:
    """The account of a guest without files of its own."""
    user = lease_user(services, owner)
    try:
        yield find_account(services, user)
    finally:
        release_user(services, user)


def find_account(services: Services, owner: Owner) -> GuestAccount:
    """The account of a guest that works on files of `owner`.

    Raises: `engine_unavailable` for an owner that the engine gives no guest.
    """
    user = owner or (os.geteuid(), os.getegid())
    passwd, group = _account_files(services, user[0])
    files = create_options.AccountFiles(passwd, group)
    account = create_options.GuestAccount(user, files, owner is None, find_first_ids(services, owner))
    guest_labels.make_guest_folder(passwd.parent)
    home = services.policies.shipped_container.container.mounts.home
    seen = account.guest_user
    for path, content in ((passwd, build_passwd(seen, home)), (group, build_group(seen))):
        if not path.exists() or path.read_bytes() != content:
            write_atomically(path, content, mode=0o444, synced=False)
    return account


def find_first_ids(services: Services, owner: Owner) -> tuple[int, int]:
    """The host's uid and gid of the guests' 0. The engine is asked only where it may map ids: where the policy says so,
    and of a controller that is not root, whose engine may be rootless.

    Raises: `engine_unavailable` for an owner that the engine gives no guest.
    """
    users, user = services.policies.container.container.users, owner or (os.geteuid(), os.getegid())
    if owner is not None and not users.mapped:
        return 0, 0
    first = user_maps.find_first_ids(services.engine_facts, users)
    if users.mapped and not first[0] < user[0] <= first[0] + user_maps.MAX_GUEST_ID:
        raise SandboxError(
            ErrorCode.ENGINE_UNAVAILABLE,
            f"These files belong to uid {user[0]}, which the engine gives no guest",
            details=f"Its guests have ids from {first[0]} to {first[0] + user_maps.MAX_GUEST_ID}.",
            hint="Create the task again: with a controller that is root, a new one gets an id of [users].",
        )
    return first


def _account_files(services: Services, uid: int) -> tuple[Path, Path]:
    folder = services.home.account_files
    return folder / f"{uid}.passwd", folder / f"{uid}.group"
