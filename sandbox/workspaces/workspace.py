"""The protocol of workspaces: one tree of files that a caller reads, changes and records, wherever it is kept.

Paths are relative text with `/` between names, in the form of `sandbox.policy.paths`; '' is the root where a directory
may be named. Errors: `unsafe_path` for `..`, an absolute path, a control character, `.git` in any spelling, and
anything that a link would lead away; `not_found` for what is missing; `invalid_input` for a write onto a directory or
through a file, for removing a directory without `recursive`, for removing the root, and for what the kind has no
`Capability` for; `policy_violation` for a change of a workspace that is not writable; `conflict` after `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sandbox.models import Capability, Change, EntryType, WorkspaceEntry, WorkspaceKind, WorkspaceRequest

if TYPE_CHECKING:
    from sandbox.git.process import Git
    from sandbox.models import Repository, WorkspaceRecord
    from sandbox.store.home import Home
    from sandbox.store.liveness import LiveController

__all__ = ["Capability", "EntryType", "Workspace", "WorkspaceEntry", "WorkspaceKind", "WorkspaceRequest"]

PRISTINE = "pristine"
"""The snapshot of a workspace that has the content of its base."""


class Workspace(Protocol):
    """One tree of files. `root`: its directory on this host, None if it has none. `metadata`: `git.remote` (without
    credentials), `git.branch`, `git.commit` as far as they are known; other keys have a prefix of their own.
    """

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> WorkspaceKind: ...
    @property
    def root(self) -> Path | None: ...
    @property
    def metadata(self) -> Mapping[str, str]: ...
    @property
    def writable(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def capabilities(self) -> frozenset[Capability]: ...

    def read(self, path: str) -> bytes:
        """Whole content of a file. Raises: also `quota_exceeded` for one over 64 MiB (`READ_BYTES`)."""

    def write(self, path: str, content: bytes, *, executable: bool | None = None) -> None:
        """Create or replace a file; missing directories are created. `executable`: None keeps it; a new file is not.

        Raises: also `quota_exceeded` for more than 10 MiB (`WRITE_BYTES`); `invalid_input` for text.
        """

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file or link, or with `recursive` a directory; and directories above it that are empty then."""

    def list(self, path: str = "") -> Sequence[WorkspaceEntry]:
        """The entries of a directory, sorted by the bytes of their names. Raises: `not_found` also for a file."""

    def stat(self, path: str) -> WorkspaceEntry:
        """One entry. A link is not followed."""

    def exists(self, path: str) -> bool:
        """Whether there is an entry. Raises: `unsafe_path`, `conflict` only."""

    def walk(self, path: str = "") -> Iterator[WorkspaceEntry]:
        """Everything below a directory, sorted by the bytes of the paths. Raises: `quota_exceeded` past its bounds."""

    def diff(self) -> Sequence[Change]:
        """What differs from the base, sorted by path."""

    def snapshot(self) -> str:
        """Keep the content; returns `pristine` for that of the base, else its tree id."""

    def restore(self, snapshot: str) -> None:
        """Make the content that of a snapshot. Raises: `not_found`."""

    def commit(self, message: str, *, author: str | None = None) -> str:
        """Record the content as a commit on the workspace's branch; returns its id. Raises: `nothing_to_commit`."""

    def close(self) -> None:
        """End the use of this object. No file is deleted. May be called twice."""


class WorkspaceProvider(Protocol):
    """Gives out the workspaces of one kind. `hint_format`: what its hint means, for people."""

    @property
    def kind(self) -> str: ...
    @property
    def hint_format(self) -> str: ...

    def acquire(self, request: WorkspaceRequest) -> Workspace:
        """The workspace of this hint and tenant; it is created at the first time. Safe from threads and processes."""

    def release(self, workspace_id: str) -> None:
        """Give a workspace up; again is no error. Raises: `not_found` for an id that was never given out;
        `dirty_workspace` where work would be lost.
        """

    def list(self) -> Sequence[WorkspaceRecord]:
        """The workspaces that were acquired and not released, by id; those that cannot be used have a `problem`."""


class OpensRepositories(Protocol):
    """The registered repositories."""

    def open(self, repo_id: str) -> tuple[Repository, Git]:
        """A repository and git on its cache clone. Raises: `not_found`."""


class ProviderServices(Protocol):
    """What a provider may use of its controller."""

    @property
    def home(self) -> Home: ...
    @property
    def repositories(self) -> OpensRepositories: ...
    @property
    def presence(self) -> LiveController: ...


ProviderFactory = Callable[[ProviderServices], WorkspaceProvider]
"""What an entry point of the group `space_sandbox.workspaces` names."""
