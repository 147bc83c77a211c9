"""Objects of Git LFS on this host: files by their SHA-256, in a folder of each repository.

No repository reads another's: an object id is a hash that anybody can write into a pointer, and only a server decides
who may have the object. Bytes count when their size and hash are right, also when they are read again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError, translate_shortage
from sandbox.git.lfs_pointers import Pointer
from sandbox.lazy_dataclass import dataclass
from sandbox.private_folders import make_private

_CHUNK = 1 << 18
_INCOMING = "incoming"


@dataclass(frozen=True)
class LfsObjects:
    """The objects of one repository. `add` and `remove_unused` need the lock of this folder."""

    folder: Path

    def has(self, pointer: Pointer) -> bool:
        """Whether the object is here; marks it as used now."""
        path = self._locate(pointer)
        try:
            os.utime(path)
            return path.stat().st_size == pointer.size
        except FileNotFoundError:
            return False

    def read(self, pointer: Pointer) -> Iterator[bytes]:
        """The object in chunks. Raises: `internal` at the end if its bytes are not those of the pointer: the caller
        must then drop what it wrote. The damaged object is removed. Also if there is none.
        """
        path, digest = self._locate(pointer), hashlib.sha256()
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
                    yield chunk
        except FileNotFoundError as error:
            raise _damaged_error(pointer, "It is missing.") from error
        if digest.hexdigest() != pointer.oid:
            path.unlink(missing_ok=True)
            raise _damaged_error(pointer, "Its bytes were damaged; it was removed.")

    def add(self, pointer: Pointer, receive: Callable[[Callable[[bytes], None]], None]) -> None:
        """Store one object. `receive` is given a function that takes the bytes in chunks, which raises as soon as
        there are too many.

        Raises: `remote_broken` for a wrong size or hash, `quota_exceeded` for a full disk, and what `receive` raises;
        nothing is stored then.
        """
        incoming = self.folder / _INCOMING
        shutil.rmtree(incoming, ignore_errors=True)  # of a controller that was killed
        make_private(incoming)
        path, digest, size = incoming / pointer.oid, hashlib.sha256(), 0

        def take(chunk: bytes) -> None:
            nonlocal size
            size += len(chunk)
            if size > pointer.size:
                raise _wrong_error(pointer, f"more than {pointer.size} bytes")
            digest.update(chunk)
            file.write(chunk)

        try:
            with path.open("xb") as file:
                os.fchmod(file.fileno(), 0o600)  # whatever the umask
                receive(take)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise translate_shortage(error) or error from error
        finally:
            if size != pointer.size or digest.hexdigest() != pointer.oid:
                path.unlink(missing_ok=True)
        if size != pointer.size:
            raise _wrong_error(pointer, f"{size} bytes, not {pointer.size}")
        if digest.hexdigest() != pointer.oid:
            raise _wrong_error(pointer, f"bytes with the SHA-256 {digest.hexdigest()}")
        target = self._locate(pointer)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        path.replace(target)

    def remove_unused(self, unused_s: float) -> None:
        """Remove objects that were not asked for since so many seconds. They can be fetched again."""
        for path in self.find_unused(unused_s):
            path.unlink(missing_ok=True)

    def find_unused(self, unused_s: float) -> list[Path]:
        """The objects that `remove_unused` would remove."""
        objects = self.folder.glob("[0-9a-f][0-9a-f]/*")
        return [path for path in objects if time.time() - path.stat().st_mtime > unused_s]

    def _locate(self, pointer: Pointer) -> Path:
        return self.folder / pointer.oid[:2] / pointer.oid


def _wrong_error(pointer: Pointer, sent: str) -> SandboxError:
    return SandboxError(
        ErrorCode.REMOTE_BROKEN,
        f"The server of Git LFS sent something else than the object {pointer.oid[:12]}",
        details=f"it sent {sent}; the pointer says {pointer.size} bytes, sha256:{pointer.oid}",
        hint="The object is damaged on the server. `sandbox run --lfs no` leaves the pointers in place.",
    )


def _damaged_error(pointer: Pointer, what: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INTERNAL,
        f"The object {pointer.oid[:12]} of Git LFS cannot be read from this host's store",
        details=what,
        hint="Repeat the operation: it is fetched again.",
    )
