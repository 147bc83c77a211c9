"""Contents of changed files, between being read from a worktree and being stored by git.

A guest can change a file at any time, so it is read once, and what git stores are the bytes that were hashed. A few
small files stay in memory; everything else goes to one file without a name, on the disk of the clone. The kernel
removes it when it is closed, also after a kill.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

from sandbox.errors import translate_shortage
from sandbox.git.entries import Content
from sandbox.git.objects import blob_id, hash_chunks
from sandbox.git.process import Git
from sandbox.git.scratch_objects import FOLDER

MEMORY_BYTES = 1024**2
"""Contents that one spool holds in memory. Reached: further contents go to its file."""
_CHUNK = 1 << 18


class _Position(NamedTuple):
    end: int
    memory_left: int


def spool_contents(git: Git) -> ContentSpool:
    """A new spool on the disk of the repository: a temporary directory of the host may be in memory."""
    return ContentSpool(git.git_dir.absolute() / FOLDER)


class ContentSpool:
    """Holds the contents of one look at a worktree until the `with` block ends. Not for several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._position = _Position(0, MEMORY_BYTES)

    def __enter__(self) -> ContentSpool:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def position(self) -> _Position:
        """Where the next content will be. Later contents can be dropped with `rewind`."""
        return self._position

    def rewind(self, position: _Position) -> None:
        """Drop the contents that were added since."""
        self._position = position

    def add(self, chunks: Iterable[bytes], size: int, oid_length: int) -> Content:
        """Store a content that should have `size` bytes; a file may change while it is read.

        Raises: `quota_exceeded` for a full disk.
        """
        source = iter(chunks)
        first, second = next(source, b""), next(source, None)
        if second is None and len(first) <= self._position.memory_left:
            self._position = self._position._replace(memory_left=self._position.memory_left - len(first))
            return content_of(first, oid_length)
        start = self._position.end
        oid = hash_chunks(self._write(chain((first, second or b""), source)), size, oid_length)
        size = self._position.end - start
        read = partial(self._read, start, size)
        return Content(oid or str(hash_chunks(read(), size, oid_length)), size, read)

    def _write(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Write the chunks, and pass each on."""
        file = self._open()
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                try:
                    written = os.pwrite(file.fileno(), view, self._position.end)
                except OSError as error:
                    raise translate_shortage(error) or error from error
                view = view[written:]
                self._position = self._position._replace(end=self._position.end + written)
            yield chunk

    def _open(self) -> IO[bytes]:
        if self._file is None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._file = tempfile.TemporaryFile(buffering=0, dir=self._folder)  # noqa: SIM115 - closed by __exit__
        return self._file

    def _read(self, start: int, size: int) -> Iterator[bytes]:
        end = start + size
        while start < end:
            chunk = os.pread(self._open().fileno(), min(_CHUNK, end - start), start)
            start += len(chunk)
            yield chunk


def content_of(data: bytes, oid_length: int = 40) -> Content:
    """A content that is held in memory."""
    return Content(blob_id(data, oid_length), len(data), partial(iter, (data,)))
