"""Types of ids: tasks, repositories, snapshots, checks, git objects, content hashes."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from sandbox.models.words import SIMPLE_NAME, SLUG_PATTERN, TASK_ID_PATTERN

ObjectId = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
"""A full git object id, SHA-1 or SHA-256."""

MAX_BRANCH_CHARS = 1024
"""Of a branch that a server names. git has no limit of its own; GitHub's is 255 bytes."""

Sha256 = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
"""Hash of the content of a whole file."""

TaskId = Annotated[str, StringConstraints(pattern=TASK_ID_PATTERN)]
RepoId = Annotated[str, StringConstraints(pattern=SLUG_PATTERN)]
SnapshotId = Annotated[str, StringConstraints(pattern=r"^snap-[0-9a-f]{13}-[0-9a-f]{6}$")]
PackageName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]{0,98}[a-z0-9+.]$")]
"""A Debian package (Debian policy 5.6.1). Never an option; apt would remove a package for a name that ends in `-`."""

SimpleName = Annotated[str, StringConstraints(pattern=f"^{SIMPLE_NAME}$")]
"""The name of a project or a parameter, and the id that a profile gives a check."""

CheckId = Annotated[str, StringConstraints(pattern=rf"^({SIMPLE_NAME}\.)?{SIMPLE_NAME}$")]
"""`test`, or `api.test` for the check `test` of the project `api`."""
