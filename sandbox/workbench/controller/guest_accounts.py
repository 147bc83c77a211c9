"""A user for each guest: lease and return uids, and write the files that give the user a name in the guest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.engine.account_files import build_group, build_passwd
from sandbox.errors import SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.store.guest_users import GuestUsers
from sandbox.store.home import write_atomically
from sandbox.workbench.controller.services import Services

if TYPE_CHECKING:
    from sandbox.engine import create_options
    from sandbox.engine.create_options import GuestAccount
else:  # loaded at first use (docs/adr/0080)
    create_options = LazyModule("sandbox.engine.create_options")

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
    return _guest_users(services, policy.container.users.ids)


def _guest_users(services: Services, ids: range) -> GuestUsers:
    return GuestUsers(services.settings.container.users_folder, ids, services.home.root)


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
    _guest_users(services, range(0)).release(user[0])  # whatever the policy: closing works with a file that is wrong


@contextmanager
def lease_account(services: Services, owner: str) -> Iterator[GuestAccount]:
    """The account of a guest without files of its own."""
    user = lease_user(services, owner)
    try:
        yield find_account(services, user)
    finally:
        release_user(services, user)


def find_account(services: Services, owner: Owner) -> GuestAccount:
    """The account of a guest that works on files of `owner`."""
    user = owner or (os.geteuid(), os.getegid())
    passwd, group = _account_files(services, user[0])
    passwd.parent.mkdir(mode=0o700, exist_ok=True)
    home = services.policies.shipped_container.container.mounts.home
    for path, content in ((passwd, build_passwd(user, home)), (group, build_group(user))):
        if not path.exists() or path.read_bytes() != content:
            write_atomically(path, content, mode=0o444, synced=False)
    return create_options.GuestAccount(user, create_options.AccountFiles(passwd, group), shared=owner is None)


def _account_files(services: Services, uid: int) -> tuple[Path, Path]:
    folder = services.home.account_files
    return folder / f"{uid}.passwd", folder / f"{uid}.group"
