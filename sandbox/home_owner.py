"""Who owns a home. Files of another user are no damage: the texts here name the owner, and how to hand a home over."""

from __future__ import annotations

import os
import pwd
import shlex
import tempfile
from pathlib import Path
from typing import TypedDict

_NOBODY = 65534  # root's files on a network file system that squashes root, and users that a namespace does not map


class OtherOwner(TypedDict):
    """The texts of an error, by their names there."""

    brief: str
    details: str
    hint: str
    reason: str


def find_other_owner(root: Path, repositories: Path) -> OtherOwner | None:
    """Why root, whom no permission stops, must not use a home of another user: new files would not be that user's.
    None: it may.

    Where a new file has the owner of the home, as on a mount or network file system that gives all files one, it may.
    A directory without state of ours may be anyone's, such as a volume that was made for root.
    """
    try:
        owner = repositories.stat().st_uid
    except OSError:
        return None
    if os.geteuid() != 0 or owner in {0, _NOBODY} or _find_new_owner(repositories) in {None, owner}:
        return None
    take = f" To use it as root from now on: chown -R root {shlex.quote(str(root))}" if _is_home(root) else ""
    return OtherOwner(
        brief=f"The sandbox home {root} belongs to {describe_user(owner)}, and this command runs as root",
        details="New files in it would be another user's: its user could no longer use it.",
        hint=f"Run the command as its user: sudo -u '#{owner}' sandbox ...{take}",
        reason="other_owner",
    )


def describe_denied(path: Path, error: OSError, root: Path | None) -> OtherOwner | None:
    """Why we may not read or write a file of the home; None for other failures. `root`: of the home, if it is known;
    else it is the nearest folder above the file that is a home.
    """
    if not isinstance(error, PermissionError):
        return None
    owner = _find_owner(path)
    home = next(filter(_is_home, (root,) if root else path.parents), None)
    belongs = f"it belongs to {describe_user(owner)}, " if owner is not None else ""
    return OtherOwner(
        brief=f"{path} cannot be used: {error.strerror}",
        details=f"{belongs}this command runs as {describe_user(os.geteuid())}",
        hint="A command as another user, such as root, may have made it. "
        f"To take the files of the home back: sudo chown -R {os.geteuid()} {shlex.quote(str(home))}"
        if home
        else "Set a writable directory with --home or SANDBOX_HOME.",
        reason="other_owner",
    )


def describe_user(uid: int) -> str:
    """Name and number of a user."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _find_owner(path: Path) -> int | None:
    """The owner of a file; of the nearest folder that can be looked at, if it is hidden from us or not there."""
    for place in (path, *path.parents):
        try:
            return place.stat().st_uid
        except OSError:
            continue
    return None


def _find_new_owner(folder: Path) -> int | None:
    """The owner of a file that we make in a folder; None if we can make none. The file is removed at once."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            return os.fstat(probe.fileno()).st_uid
    except OSError:
        return None


def _is_home(folder: Path) -> bool:
    """Whether a folder is seen to be a sandbox home. All files of any other one stay with their owners."""
    try:
        return (folder / "repositories/locks").is_dir()
    except OSError:  # hidden from us
        return False
