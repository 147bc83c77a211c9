"""Releases: artifacts of candidates that passed, on this host; `current` is the one in use."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import AwareDatetime

from sandbox.models.ids import ObjectId, RepoId, Sha256
from sandbox.models.model import HostPath, Model


class ReleaseFile(Model):
    """A file of a release. `path`: relative to it."""

    path: str
    size: int
    sha256: Sha256
    executable: bool = False


class ReleaseManifest(Model):
    """What a release is and where it comes from. `key`: digest of all that the candidate's verdict is bound to.

    `libraries`: shared libraries that its programs name and that are not part of it; `interpreters`: what starts its
    programs, such as the dynamic linker; `machines`: of its programs, as ELF numbers: class, byte order, architecture.
    `artifacts`: what `[promote]` asked for then, of which `files` are the files; empty in manifests of older versions.
    `problem`: why the artifacts cannot be a release; '' if they can.
    """

    repo_id: RepoId
    tree: ObjectId
    commit: ObjectId
    key: str
    image_digest: str
    run_id: str
    created_at: datetime
    artifacts: tuple[str, ...] = ()
    files: tuple[ReleaseFile, ...] = ()
    libraries: tuple[str, ...] = ()
    interpreters: tuple[str, ...] = ()
    machines: tuple[tuple[int, int, int], ...] = ()
    problem: str = ""


class ReleaseEvent(StrEnum):
    """What happened to `current`."""

    PROMOTED = "promoted"
    CONFIRMED = "confirmed"
    SWITCHED_BACK = "switched_back"
    ROLLED_BACK = "rolled_back"


class ReleaseEntry(Model):
    """One line of a repository's history of releases. `previous`: what was in use before; '' for none."""

    at: datetime
    event: ReleaseEvent
    release: str
    previous: str = ""


class PendingConfirmation(Model):
    """A promoted release that is in use and not confirmed yet. After `until` it is switched back to `previous`.

    `previous_before`: what `previous` was before the promotion.
    """

    release: str
    previous: str
    previous_before: str
    until: AwareDatetime


class ReleaseState(Model):
    """The releases of a repository. `current`, `previous`: their names, '' for none; `folder`: where they are, with a
    link `current` that always leads to a whole release. `confirm`: creating this file confirms the pending one.
    `history`: oldest first. `uncommitted`: of a promotion of a task, how many changes it had beside the commit then.
    """

    repo_id: RepoId
    folder: HostPath
    current: str = ""
    previous: str = ""
    pending: PendingConfirmation | None = None
    confirm: HostPath | None = None
    history: tuple[ReleaseEntry, ...] = ()
    uncommitted: int | None = None
