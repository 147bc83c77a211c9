"""Ask one running git for many objects: sizes, and contents up to a limit.

Theory. `git cat-file --batch-command` (git 2.36) answers line by line, so a size is known before a content is read, and
a walk of a tree costs one process. The process holds memory of the budget that all commands share, so it lives as
long as a session: one operation, unless the caller opens a longer one. If it ends early, because of its deadline or its
limit on memory, the question is repeated once by another with more memory, that is ended at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import IO, TypeVar

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.blobs import too_large_error
from sandbox.git.memory_limits import LARGE
from sandbox.git.process import Git, GitProcess

_BATCH = 400
"""Questions that are sent before their answers are read: both sides fit into a pipe of 64 KiB."""
_DEADLINE_S = 120.0
_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Type and size of a stored object."""

    kind: bytes
    size: int


class ObjectReader:
    """Reads objects of one repository by full id. Thread-safe: requests take turns."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._lock = threading.RLock()
        self._sessions = 0
        self._running: _CatFile | None = None

    @contextmanager
    def session(self) -> Iterator[None]:
        """Keep the process between requests. Sessions may be nested and shared by threads."""
        with self._lock:
            self._sessions += 1
        try:
            yield
        finally:
            with self._lock:
                self._sessions -= 1
                if not self._sessions:
                    self._stop()

    def info(self, oids: Sequence[str]) -> list[ObjectInfo | None]:
        """Type and size of each object; None for one that is not stored."""
        return self._ask(lambda batch: batch.info(oids)) if oids else []

    def contents(self, oids: Sequence[str], kind: bytes, most: int) -> list[bytes | None]:
        """Content of each object of this kind; None for one that is not stored, or of another kind.

        Raises: `quota_exceeded` if one has more than `most` bytes, before it is read.
        """
        return self._ask(lambda batch: batch.contents(oids, kind, most)) if oids else []

    def first_contents(self, oids: Sequence[str], kind: bytes, most: int, together: int) -> list[bytes | None]:
        """As `contents`, of as many of the first objects as have at most `together` bytes, and at least of one."""
        return self._ask(lambda batch: batch.first_contents(oids, kind, most, together)) if oids else []

    def refresh(self) -> None:
        """End the process, so that the next one finds objects that were stored since it began."""
        with self._lock:
            self._stop()

    def _ask(self, question: Callable[[_CatFile], _ResultT]) -> _ResultT:
        with self.session(), self._lock:
            try:
                self._running = self._running or _CatFile(self._git)
                return question(self._running)
            except _EndedError:
                self._stop()
            except BaseException:
                self._stop()  # unread answers are in the pipe
                raise
            repeated = _CatFile(self._git.with_memory(LARGE))
            try:
                return question(repeated)
            except _EndedError as error:
                raise repeated.explain() from error
            finally:
                repeated.close()

    def _stop(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close()


class _EndedError(Exception):
    """git ended before it answered."""


class _CatFile:
    """One running process."""

    def __init__(self, git: Git) -> None:
        reads, writes = os.pipe()
        self._stack = ExitStack()
        self._questions: IO[bytes] = os.fdopen(writes, "wb", buffering=0)
        with os.fdopen(reads, "rb") as stdin:
            try:
                stream = git.stream("cat-file", "--batch-command", stdin=stdin, deadline_s=_DEADLINE_S)
                self._process: GitProcess = self._stack.enter_context(stream)
            except BaseException:
                self._questions.close()
                raise

    def info(self, oids: Sequence[str]) -> list[ObjectInfo | None]:
        """Ask for many at once."""
        found: list[ObjectInfo | None] = []
        for start in range(0, len(oids), _BATCH):
            part = oids[start : start + _BATCH]
            self._send("".join(f"info {oid}\n" for oid in part))
            found += [self._read_header(oid) for oid in part]
        return found

    def contents(self, oids: Sequence[str], kind: bytes, most: int) -> list[bytes | None]:
        """Sizes first, then each content."""
        found: list[bytes | None] = []
        for start in range(0, len(oids), _BATCH):
            part = oids[start : start + _BATCH]
            found += self._read_contents(part, self.info(part), kind, most)
        return found

    def first_contents(self, oids: Sequence[str], kind: bytes, most: int, together: int) -> list[bytes | None]:
        """Sizes first, then as many contents as may be in memory at once."""
        part = oids[:_BATCH]
        infos = self.info(part)
        sums = accumulate(info.size if info and info.kind == kind else 0 for info in infos)
        count = max(1, sum(total <= together for total in sums))
        return self._read_contents(part[:count], infos[:count], kind, most)

    def _read_contents(
        self, oids: Sequence[str], infos: Sequence[ObjectInfo | None], kind: bytes, most: int
    ) -> list[bytes | None]:
        large = next((info for info in infos if info and info.kind == kind and info.size > most), None)
        if large is not None:
            raise too_large_error(f"an object has {large.size} bytes, and may have {most}")
        readable = [oid for oid, info in zip(oids, infos, strict=True) if info and info.kind == kind]
        self._send("".join(f"contents {oid}\n" for oid in readable))
        read = {oid: self._read_content(oid) for oid in readable}
        return [read.get(oid) for oid in oids]

    def close(self) -> None:
        """End the process."""
        self._questions.close()
        try:
            self._stack.close()
        except SandboxError:  # that it was out of time or memory was seen as a missing answer
            return

    def explain(self) -> SandboxError:
        """Why there was no answer."""
        try:
            self._process.raise_if_cut()
        except SandboxError as error:
            return error
        return SandboxError(
            ErrorCode.INTERNAL, "git stopped while it read objects", details=self._process.stderr[:2000]
        )

    def _send(self, text: str) -> None:
        try:
            self._questions.write(text.encode())
        except BrokenPipeError as error:
            raise _EndedError from error

    def _read_header(self, oid: str) -> ObjectInfo | None:
        words = self._process.stdout.readline(200).split()
        if len(words) == 2 and words[1] == b"missing":
            return None
        if len(words) != 3 or words[0].decode() != oid:
            raise _EndedError
        return ObjectInfo(words[1], int(words[2]))

    def _read_content(self, oid: str) -> bytes:
        header = self._read_header(oid)
        if header is None:
            raise _EndedError
        content = self._process.stdout.read(header.size)
        if self._process.stdout.read(1) != b"\n":  # read apart: cutting it off would copy the content
            raise _EndedError
        return content
