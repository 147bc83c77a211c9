"""A tree of plain files, directories and links as one tar file, and back, from an archive that may be hostile.

No entry is written through a link: it is made only in a directory that this module has made, and no entry twice.
What a link leads to is not looked at: the tree is read by guests, in their own file system.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol, Self

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.sealing import MAX_DEPTH, MAX_FILES

_COPY_BYTES = 1024**2
_MAX_NOTE_BYTES = 64 * 1024
"""Of what an archive says before an entry: long names and the like. tarfile reads it into memory."""

_NOTES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
"""Not GNU's sparse files, which hold less than they say."""


class _BoundedEntry(tarfile.TarInfo):
    """Of an archive that may be hostile: its header is refused before tarfile believes its size."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """As that of tarfile, which calls it with each header. Raises: `policy_violation`."""
        entry = super().frombuf(buf, encoding, errors)
        if entry.size < 0 or (entry.type in _NOTES and entry.size > _MAX_NOTE_BYTES):
            raise _refusal("a header of an impossible size")
        if entry.type == tarfile.GNUTYPE_SPARSE:
            raise _refusal("a sparse file")
        return entry

    def _proc_gnusparse_10(self, *_: object) -> None:
        """In the place of tarfile's own, which reads a map of any length before the entry is seen: 8 bytes of memory
        for each of it, and 4 minutes a gigabyte.
        """
        raise _refusal("a sparse file")


class ArchiveTarget(Protocol):
    """What an archive is written to, in order."""

    def write(self, content: bytes, /) -> int:
        """Take all of it."""
        ...


def pack_tree(root: Path, target: ArchiveTarget) -> None:
    """Write the tree, sorted and without owners. Times are whole seconds. Raises: OSError."""
    stream: Any = target  # typeshed asks for more than the mode of streams calls
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        archive.add(root, ".", filter=_without_owner)


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = int(entry.mtime)
    return entry


def unpack_tree(source: IO[bytes], target: Path, most_bytes: int) -> None:
    """Make `target` with the tree of an archive. On an error the caller removes it.

    Raises: `policy_violation` for anything but plain entries with plain names, or for more than `most_bytes` or than
    a sealed tree may hold; OSError.
    """
    made: set[PurePosixPath] = set()
    try:
        with tarfile.open(fileobj=source, mode="r|", tarinfo=_BoundedEntry) as archive:
            for count, entry in enumerate(archive, start=1):
                most_bytes -= entry.size
                # The top is an entry, too. A note can say a size below zero.
                if count > MAX_FILES + 1 or most_bytes < 0 or entry.size < 0:
                    raise _refusal("more than it may hold")
                _unpack_entry(archive, entry, target, made)
    except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
        # Times that no number has; a note before a note before a note, each of which tarfile reads within the other
        raise _refusal(f"what cannot be read: {ascii(str(error))[:200]}") from error
    if PurePosixPath() not in made:
        raise _refusal("no directory at its top")


def _unpack_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, target: Path, made: set[PurePosixPath]) -> None:
    name = PurePosixPath(entry.name)
    most_parts = MAX_DEPTH if entry.isdir() else MAX_DEPTH + 1  # a file may be in the deepest directory
    if name.is_absolute() or ".." in name.parts or len(name.parts) > most_parts:
        raise _refusal(f"the name {entry.name[:200]!a}")
    if name != PurePosixPath() and name.parent not in made:
        raise _refusal(f"an entry outside its directories: {entry.name[:200]!a}")
    path = target / name
    try:
        if entry.isdir():
            path.mkdir(mode=0o755)
            made.add(name)
        elif entry.issym():
            path.symlink_to(entry.linkname)
        elif entry.type in _FILES:
            _write_file(archive, entry, path)
        else:
            raise _refusal(f"an entry that is no file, directory or link: {entry.name[:200]!a}")
    except FileExistsError as error:
        raise _refusal(f"the name {entry.name[:200]!a} twice") from error


def _write_file(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    content = archive.extractfile(entry)
    if content is None:
        raise _refusal(f"a file without content: {entry.name[:200]!a}")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        shutil.copyfileobj(content, file, _COPY_BYTES)
        os.fchmod(fd, 0o555 if entry.mode & 0o111 else 0o444)
        file.flush()
        os.utime(fd, (entry.mtime, entry.mtime))  # compiled files of Python name the time of their source


def _refusal(what: str) -> SandboxError:
    return SandboxError(
        ErrorCode.POLICY_VIOLATION, f"The archive of a tree holds {what}", hint="It was not used; remove the archive."
    )
