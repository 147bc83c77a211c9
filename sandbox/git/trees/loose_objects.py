"""Write objects as loose files, without a git process (gitrepository-layout(5)).

One git process costs as much as ten such files. They are written beside, synced and renamed, so a reader sees a whole
object or none, also after a power failure, and two writers of one object write the same bytes.
"""

from __future__ import annotations

import os
import secrets
import zlib
from contextlib import suppress
from pathlib import Path

from sandbox.errors import translate_shortage

_LEVEL = 1  # the fastest; `gc` packs the objects again
_MOST_OVERHEAD = 4096  # of a deflated file above its content: 5 bytes for each 16 KiB, and zlib's own 6
_MODE = 0o444
_PREFIX = "tmp_obj_"  # git deletes old files of this name


class LooseObjects:
    """The objects directory of one repository. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        """`folder`: absolute path of the objects directory."""
        self._folder = str(folder)

    def write(self, kind: bytes, content: bytes, oid: bytes) -> None:
        """Store an object, unless a loose file has it. Raises: `quota_exceeded` for a full disk."""
        digits = oid.hex()
        folder = f"{self._folder}/{digits[:2]}"
        path = f"{folder}/{digits[2:]}"
        if os.path.exists(path):  # noqa: PTH110 - a thousand calls a second; `Path` costs as much as the call
            return
        try:
            _publish(folder, path, zlib.compress(b"%b %d\0%b" % (kind, len(content), content), _LEVEL))
        except OSError as error:
            raise translate_shortage(error) or error from error

    def holds(self, kind: bytes, content: bytes, oid: bytes) -> bool | None:
        """Whether the loose file of an id is this object, byte for byte; None if there is no such file."""
        digits = oid.hex()
        try:
            fd = os.open(f"{self._folder}/{digits[:2]}/{digits[2:]}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        expected = b"%b %d\0%b" % (kind, len(content), content)
        inflate = zlib.decompressobj()
        with os.fdopen(fd, "rb", buffering=0) as file:
            try:
                found = inflate.decompress(file.read(len(expected) + _MOST_OVERHEAD), len(expected) + 1)
            except zlib.error:
                return False
        return found == expected and inflate.eof and not inflate.unused_data


def _publish(folder: str, path: str, data: bytes) -> None:
    temporary = f"{folder}/{_PREFIX}{secrets.token_hex(8)}"
    try:
        fd = _create(temporary)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o755)  # noqa: PTH102 - as above
        fd = _create(temporary)
    try:
        with os.fdopen(fd, "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())
        os.rename(temporary, path)  # noqa: PTH104 - as above
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108 - as above
        raise


def _create(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
