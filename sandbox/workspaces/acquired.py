"""Records of the workspaces that were acquired and not released, one file each, shared by all processes of a home.

An id is derived from kind, tenant and hint. So acquiring is idempotent without a search, and two tenants never get the
same id. A released workspace leaves an empty file for a week: releasing it again is no error, an unknown id is one.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Model, WorkspaceRequest
from sandbox.private_folders import make_private
from sandbox.store.home import Home, damaged_file_error, read_json, write_json

_HINT_LENGTH, _TENANT_LENGTH = 4096, 200
_RELEASED = ".released"
_KEPT_S = 7 * 86_400.0
_DIGITS = 24


class AcquiredWorkspace(Model):
    """One acquired workspace. `facts`: what its provider has to know, by names of its own."""

    id: str
    hint: str | None
    tenant: str
    facts: dict[str, str] = Field(default_factory=dict)


def _find_time(path: Path) -> int | None:
    """When a file was changed, in nanoseconds; None if there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


class AcquiredWorkspaces:
    """The records of one kind in a home."""

    def __init__(self, home: Home, kind: str) -> None:
        self._home = home
        self._kind = kind
        self._folder = home.workspaces(kind)
        self._id = re.compile(rf"^{re.escape(kind)}-[0-9a-f]{{{_DIGITS}}}\Z")

    def id_of(self, request: WorkspaceRequest) -> str:
        """The id of the workspace that a request means. Raises: `invalid_input` for text that no id can stand for."""
        for name, text, most in (
            ("hint", request.hint or "", _HINT_LENGTH),
            ("tenant", request.tenant, _TENANT_LENGTH),
        ):
            if len(text) > most or not text.isprintable():
                raise SandboxError(
                    ErrorCode.INVALID_INPUT,
                    f"The {name} of a workspace must be printable text of at most {most} characters",
                    details=ascii(text[:100]),
                    hint="Use letters, digits, spaces and punctuation on one line.",
                )
        document = json.dumps([self._kind, request.tenant, request.hint])
        return f"{self._kind}-{hashlib.sha256(document.encode()).hexdigest()[:_DIGITS]}"

    def folder_of(self, workspace_id: str) -> Path:
        """The directory for the files of a workspace. Raises: `not_found` for what is no id of this kind."""
        if not self._id.fullmatch(workspace_id):
            raise self._unknown_error(workspace_id)
        return self._folder / workspace_id

    def locked(self, workspace_id: str) -> AbstractContextManager[None]:
        """Hold the lock of one workspace against other threads and processes."""
        return self._home.locked(self.folder_of(workspace_id).name)

    def watch(self, workspace_id: str) -> Callable[[], bool]:
        """A function that says whether a workspace that was acquired just now is not released since, also if it was
        acquired again.
        """
        record, mark = self._path(workspace_id), self._path(workspace_id).with_suffix(_RELEASED)
        before = _find_time(mark)
        return lambda: record.exists() and _find_time(mark) in {before, None}

    def find(self, workspace_id: str) -> AcquiredWorkspace | None:
        """One record; None if it is not acquired. Raises: `internal` for a damaged file."""
        path = self._path(workspace_id)
        document = read_json(path)
        try:
            return None if document is None else AcquiredWorkspace.model_validate(document)
        except ValidationError as error:
            raise damaged_file_error(path, f"{error.error_count()} fields are not as expected") from error

    def save(self, request: WorkspaceRequest, **facts: str) -> AcquiredWorkspace:
        """Record the workspace of a request. The caller holds its lock."""
        record = AcquiredWorkspace(id=self.id_of(request), hint=request.hint, tenant=request.tenant, facts=facts)
        make_private(self._folder)
        write_json(self._path(record.id), record.model_dump(mode="json"))
        return record

    def list(self) -> Iterator[AcquiredWorkspace | SandboxError]:
        """All records by id; in the place of a damaged one its error, with the id in `data`."""
        for path in sorted(self._folder.glob(f"{self._kind}-*.json")):
            try:
                found = self.find(path.stem)
            except SandboxError as error:
                yield error.with_changes(data={"id": path.stem})
                continue
            if found is not None:
                yield found

    def release(self, workspace_id: str, give_up: Callable[[AcquiredWorkspace], Any]) -> None:
        """Call `give_up` with the record, then forget it; no call if it was released before.

        Raises: `not_found` for an id that was never acquired.
        """
        with self.locked(workspace_id):
            record = self.find(workspace_id)
            mark = self._path(workspace_id).with_suffix(_RELEASED)
            if record is None:
                if not mark.exists():
                    raise self._unknown_error(workspace_id)
                return
            give_up(record)
            self.forget(workspace_id)

    def forget(self, workspace_id: str) -> None:
        """Delete a record, and note for a while that it was there. The caller holds its lock."""
        self._path(workspace_id).with_suffix(_RELEASED).touch(mode=0o600)
        self._path(workspace_id).unlink(missing_ok=True)
        for old in self._folder.glob(f"*{_RELEASED}"):
            with suppress(FileNotFoundError):  # another process removes it, too
                if old.stat().st_mtime < time.time() - _KEPT_S:
                    old.unlink()

    def _path(self, workspace_id: str) -> Path:
        return self.folder_of(workspace_id).with_suffix(".json")

    def _unknown_error(self, workspace_id: str) -> SandboxError:
        return SandboxError(
            ErrorCode.NOT_FOUND,
            f"There is no workspace '{workspace_id[:100]}' of kind {self._kind}",
            hint="`Workbench.list_workspaces` lists those that were acquired.",
        )
