"""Read the contents of blobs in chunks, so that a file of any size costs one chunk of memory, here and in git.

Theory. git streams a blob that is stored as a whole and is larger than `core.bigFileThreshold`. One that is stored as a
difference is built in memory, together with the object it is a difference of, which no list of the repository's files
has to name. So each command starts with little memory, under a limit of the kernel. If that is not enough, the sizes
of all objects that the blob is built from are asked, and only then it is read with the largest allowed memory (ADR 47).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import IO

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.failures import OutOfMemory
from sandbox.git.memory_limits import LARGE
from sandbox.git.process import Git, GitProcess

FILE_BYTES = 512 * 1024**2
"""Default limit for one blob that is read in chunks."""
READ_BYTES = 64 * 1024**2
"""Default limit for one blob that is read into memory."""
STREAM_SETTINGS = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.bigFileThreshold",
    "GIT_CONFIG_VALUE_0": "1m",
}
_CHUNK = 1 << 18
_TOO_LARGE_HINT = (
    "No file was written. No setting raises this limit: keep large files in Git LFS, or generated ones out of the "
    "repository, and choose a commit without them."
)
_CHAIN = 4096  # git makes chains of up to 50 differences, and at most this many (pack.depth)


class BlobReader:
    """One blob of a running `cat-file`. Its chunks can be read once, before the next blob is asked for."""

    def __init__(self, process: GitProcess, oid: str, size: int) -> None:
        self.oid = oid
        self.size = size
        self._process = process
        self._left = size
        self._first = b""
        self._first = self._take()  # git has built the object when it prints the first bytes

    def chunks(self) -> Iterator[bytes]:
        """The content that was not read yet. Raises: `internal`, `timeout` if git stopped."""
        while self._first:
            chunk, self._first = self._first, b""
            self._first = self._take()
            yield chunk

    def read(self) -> bytes:
        """The whole content."""
        return b"".join(self.chunks())

    def _take(self) -> bytes:
        if not self._left:
            return b""
        chunk = self._process.stdout.read(min(_CHUNK, self._left))
        self._left -= len(chunk)
        if not chunk or (not self._left and self._process.stdout.read(1) != b"\n"):
            self._process.raise_if_cut()
            raise SandboxError(ErrorCode.INTERNAL, f"git stopped while object {self.oid[:12]} was read")
        return chunk


def stream_blobs(git: Git, oids: Sequence[str], *, limit: int = FILE_BYTES) -> Iterator[BlobReader]:
    """The blobs in the order of `oids`, from one process. Memory: one chunk.

    Raises: `not_found` for a missing object; `quota_exceeded` for one above `limit` bytes, or one that git cannot build
    within its memory.
    """
    done = 0
    try:
        for blob in _stream(git, oids, limit):
            yield blob
            done += 1
    except OutOfMemory:
        _require_buildable(git, oids[done])
        yield from _stream(git.with_memory(LARGE), oids[done:], limit)


def stream_blob(git: Git, oid: str, *, limit: int = FILE_BYTES) -> Iterator[bytes]:
    """One blob in chunks. Its git runs until the last chunk was read, or the iterator is closed.

    Raises: as `stream_blobs`, at the first chunk.
    """
    for blob in stream_blobs(git, [oid], limit=limit):  # held here: a reader outlives no generator it came from
        yield from blob.chunks()


def read_blobs(git: Git, oids: Sequence[str], *, limit: int = READ_BYTES) -> Iterator[bytes]:
    """Contents in the order of `oids`, from one process, each held whole. Raises: as `stream_blobs`."""
    return (blob.read() for blob in stream_blobs(git, oids, limit=limit))


def _stream(git: Git, oids: Sequence[str], limit: int) -> Iterator[BlobReader]:
    if not oids:
        return
    with tempfile.TemporaryFile() as spool:
        spool.write("".join(f"{oid}\n" for oid in oids).encode())
        spool.seek(0)
        with git.stream("cat-file", "--batch", stdin=spool, env=STREAM_SETTINGS, deadline_s=600) as process:
            for oid in oids:
                blob = BlobReader(process, oid, _read_header(process.stdout, oid, limit))
                yield blob
                for _ in blob.chunks():  # what the caller did not read
                    pass


def _read_header(stream: IO[bytes], oid: str, limit: int) -> int:
    """The size of the next blob."""
    header = stream.readline(200).split()
    if len(header) != 3 or header[0].decode() != oid or header[1] != b"blob":
        raise missing_object_error(f"Object {oid[:12]} is not a blob of the cache clone")
    size = int(header[2])
    if size > limit:
        raise too_large_error(f"an object has {size} bytes, and may have {limit}")
    if not size:
        stream.read(1)  # the line break after an empty content
    return size


def _require_buildable(git: Git, oid: str) -> None:
    """Require that a blob, and each object that it is a difference of, fit into the memory of git together.

    Raises: `quota_exceeded`.
    """
    own, largest = 0, 0
    base = oid
    for _ in range(_CHAIN):
        answer = git.run("cat-file", "--batch-check=%(objectsize) %(deltabase)", stdin=f"{base}\n".encode()).split()
        size = int(answer[0])
        own, largest = own or size, max(largest, size)
        if own + largest > LARGE.limit_bytes:
            break
        base = answer[1].decode()
        if not base.strip("0"):
            return
    raise SandboxError(
        ErrorCode.QUOTA_EXCEEDED,
        f"Object {oid[:12]} of {own} bytes is stored as a difference from an object of {largest} bytes",
        details=f"git may use {LARGE.limit_bytes} bytes to build a file.",
        hint="Files of this size belong outside git's objects, for example in Git LFS.",
    )


def missing_object_error(brief: str, details: str = "") -> SandboxError:
    """`not_found` for an object that a complete cache clone contains."""
    return SandboxError(
        ErrorCode.NOT_FOUND,
        brief,
        details=details[:2000],
        hint="Run `sandbox repo clone URL`: it fetches new commits and repairs a damaged clone.",
    )


def too_large_error(what: str) -> SandboxError:
    """`quota_exceeded` for a tree or file above a limit."""
    brief = f"This tree is too large to check out: {what}"
    return SandboxError(ErrorCode.QUOTA_EXCEEDED, brief, hint=_TOO_LARGE_HINT)
