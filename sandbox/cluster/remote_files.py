"""Files of the cluster's tasks: read, search, edit, compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sandbox.cluster.elsewhere import TasksElsewhere, elsewhere, encode
from sandbox.models import Diff, FileContent, Impact, PatchResult, RepoMap, SearchResult, Status
from sandbox.models.operations import OperationName

if TYPE_CHECKING:
    from sandbox.models import SearchQuery


class RemoteFiles(TasksElsewhere):
    """Methods of `ClusterWorkbench`."""

    @elsewhere
    def read_file(
        self,
        task_id: str,
        path: str,
        start_line: int | None = None,
        end_line: int | None = None,
        *,
        max_bytes: int = 10 * 1024**2,
    ) -> FileContent:
        """As in `Workbench`, but for `max_bytes`: an answer of the cluster has a limit of its own."""
        arguments = {"path": path, "start_line": start_line, "end_line": end_line}
        return self._asked.ask(task_id, OperationName.READ_FILE, arguments, FileContent)

    @elsewhere
    def search(self, task_id: str, query: SearchQuery) -> SearchResult:
        """As in `Workbench`."""
        return self._asked.ask(task_id, OperationName.SEARCH, query.model_dump(mode="json"), SearchResult)

    @elsewhere
    def apply_patch(self, task_id: str, patch: bytes, expected_hashes: Mapping[str, str | None]) -> PatchResult:
        """As in `Workbench`."""
        arguments = {"patch": encode(patch), "expected_hashes": dict(expected_hashes)}
        return self._asked.ask(task_id, OperationName.APPLY_PATCH, arguments, PatchResult)

    @elsewhere
    def edit_file(
        self, task_id: str, path: str, old: str | bytes, new: str | bytes, expected_sha256: str
    ) -> PatchResult:
        """As in `Workbench`."""
        arguments = {"path": path, **_describe_texts(old, new), "expected_sha256": expected_sha256}
        return self._asked.ask(task_id, OperationName.EDIT_FILE, arguments, PatchResult)

    @elsewhere
    def write_file(
        self,
        task_id: str,
        path: str,
        content: str | bytes,
        expected_sha256: str | None,
        *,
        executable: bool | None = None,
    ) -> PatchResult:
        """As in `Workbench`."""
        arguments = {
            "path": path,
            "content": encode(content),
            "expected_sha256": expected_sha256,
            "executable": executable,
        }
        return self._asked.ask(task_id, OperationName.WRITE_FILE, arguments, PatchResult)

    @elsewhere
    def delete_file(self, task_id: str, path: str, expected_sha256: str) -> PatchResult:
        """As in `Workbench`."""
        arguments = {"path": path, "expected_sha256": expected_sha256}
        return self._asked.ask(task_id, OperationName.DELETE_FILE, arguments, PatchResult)

    @elsewhere
    def rename_file(self, task_id: str, path: str, new_path: str, expected_sha256: str) -> PatchResult:
        """As in `Workbench`."""
        arguments = {"path": path, "new_path": new_path, "expected_sha256": expected_sha256}
        return self._asked.ask(task_id, OperationName.RENAME_FILE, arguments, PatchResult)

    @elsewhere
    def status(self, task_id: str) -> Status:
        """As in `Workbench`."""
        return self._asked.ask(task_id, OperationName.STATUS, {}, Status)

    @elsewhere
    def diff(self, task_id: str, against: str = "base") -> Diff:
        """As in `Workbench`."""
        return self._asked.ask(task_id, OperationName.DIFF, {"against": against}, Diff)

    @elsewhere
    def impact(self, task_id: str) -> Impact:
        """As in `Workbench`."""
        return self._asked.ask(task_id, OperationName.IMPACT, {}, Impact)

    @elsewhere
    def map(self, owner_id: str, token_budget: int = 1500, include_globs: Sequence[str] = ()) -> RepoMap:
        """As in `Workbench`, of a task's last commit on its worker."""
        arguments = {"token_budget": token_budget, "include_globs": list(include_globs)}
        return self._asked.ask(owner_id, OperationName.MAP, arguments, RepoMap)


def _describe_texts(old: str | bytes, new: str | bytes) -> dict[str, str]:
    """Text as text, which workers of an earlier version take, too."""
    try:
        texts = [one if isinstance(one, str) else one.decode() for one in (old, new)]
    except UnicodeDecodeError:
        return {"encoding": "base64", "old": encode(old), "new": encode(new)}
    return {"old": texts[0], "new": texts[1]}
