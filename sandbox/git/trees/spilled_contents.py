"""Contents of written files that a value does not hold in memory, in files without a name.

They are not objects of the repository: no ref leads to them, so packing it would delete them while a value waits to be
committed. The kernel frees such a file when the last content in it is stored or given up, also when the process ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from pathlib import Path

from sandbox.errors import translate_shortage

FILE_BYTES = 64 * 1024**2
"""A file with as much takes no further contents: its space is free once all of them are."""


class SpilledContent:
    """One content. It keeps its file open."""

    __slots__ = ("_file", "_offset", "_size")

    def __init__(self, file: _SpillFile, offset: int, size: int) -> None:
        self._file, self._offset, self._size = file, offset, size

    def read(self) -> bytes:
        """The content."""
        return self._file.read(self._offset, self._size)


class SpilledContents:
    """The contents that the values of one repository do not hold in memory. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        """`folder`: on the file system that has the space."""
        self._folder = folder
        self._last: weakref.ref[_SpillFile] | None = None
        self._lock = threading.Lock()

    def add(self, content: bytes) -> SpilledContent:
        """Write a content. Raises: `quota_exceeded` for a full disk."""
        try:
            with self._lock:
                file = self._last() if self._last is not None else None
                if file is None or file.size >= FILE_BYTES:
                    file = _SpillFile(self._folder)
                    self._last = weakref.ref(file)
                return SpilledContent(file, file.append(content), len(content))
        except OSError as error:
            raise translate_shortage(error) or error from error


class _SpillFile:
    def __init__(self, folder: Path) -> None:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            self._fd = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._fd)
        self.size = 0

    def append(self, content: bytes) -> int:
        """Returns where it begins. After an error it takes no space: the next content is written there."""
        at, view = self.size, memoryview(content)
        while view:
            view = view[os.pwrite(self._fd, view, at + len(content) - len(view)) :]
        self.size += len(content)
        return at

    def read(self, offset: int, size: int) -> bytes:
        parts = []
        while size and (part := os.pread(self._fd, size, offset)):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)
