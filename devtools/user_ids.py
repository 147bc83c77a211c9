"""User ids of guests of homes that tests leave: a home in a temporary directory is given up as a whole."""

from __future__ import annotations

from pathlib import Path

from sandbox.config import ContainerSettings
from sandbox.policy.container import UserIds
from sandbox.store.guest_users import GuestUsers


def list_users() -> dict[str, str]:
    """The homes of all ids in use on this host, by id."""
    return {str(lease.uid): lease.home for lease in _users(Path("/")).list_all()}


def release_users_below(folder: Path) -> None:
    """Free the ids of every home below a directory."""
    for lease in _users(Path("/")).list_all():
        if Path(lease.home).is_relative_to(folder):
            _users(Path(lease.home)).release(lease.uid)


def _users(home: Path) -> GuestUsers:
    return GuestUsers(ContainerSettings().users_folder, UserIds().ids, home)
