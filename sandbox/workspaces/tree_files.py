"""Files of a tree value behind the interface of edits: an edit of a tree writes no file on disk (docs/adr/0096)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import READ_CAP, STREAM_CAP
from sandbox.git.trees.tree_format import EXECUTABLE_FILE
from sandbox.git.trees.tree_value import TreeValue
from sandbox.policy.paths import RepoPath, refused_path_error


class TreeFiles:
    """See `EditableFiles`. `value`: the content now; each change replaces it."""

    def __init__(self, value: TreeValue) -> None:
        self.value = value

    def read(self, path: RepoPath, cap: int = READ_CAP) -> bytes:
        """Whole content of a file. Raises: as `read_with_mode`."""
        return self.read_with_mode(path, cap)[0]

    def read_with_mode(self, path: RepoPath, cap: int = READ_CAP) -> tuple[bytes, bool]:
        """See `EditableFiles`."""
        with self._require_file(path):
            return self.value.read(path, cap), self.value.stat(path).mode == EXECUTABLE_FILE

    def stream(self, path: RepoPath, cap: int = STREAM_CAP) -> Iterator[bytes]:
        """A file in chunks, of which one is in memory. Raises: as `read_with_mode`, at once or at the first chunk."""
        with self._require_file(path):
            return self.value.stream(path, cap)

    def exists(self, path: RepoPath) -> bool:
        """See `EditableFiles`."""
        return self.value.exists(path)

    def write(
        self, path: RepoPath, content: bytes | Iterable[bytes], *, executable: bool, owner: tuple[int, int] | None
    ) -> None:
        """See `EditableFiles`. `owner`: has no meaning in a tree."""
        whole = content if isinstance(content, bytes) else b"".join(content)
        self.value = self.value.write(path, whole, executable=executable)

    def remove(self, path: RepoPath) -> None:
        """See `EditableFiles`."""
        self.value = self.value.remove(path)

    @contextmanager
    def _require_file(self, path: RepoPath) -> Iterator[None]:
        """While a path is read: the errors of a worktree for what is no file."""
        if not self.exists(path):
            raise SandboxError(ErrorCode.NOT_FOUND, f"There is no file {path}", reason="no_such_file")
        try:
            yield
        except SandboxError as error:
            if error.code is ErrorCode.INVALID_INPUT:
                raise refused_path_error(path, "regular", "it is not a regular file") from error
            raise
