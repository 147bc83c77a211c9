"""Go's `h1:` hashes of a module's zip and of its go.mod. https://pkg.go.dev/golang.org/x/mod/sumdb/dirhash#Hash1

The zip comes from outside: its list of files is bounded before Python's reader loads it, its content while it is read.
So is the content of all zips of a layer: half a megabyte may unpack to 500 MiB, and a go.sum may name 10,000 of them.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sandbox.byte_sizes import format_bytes
from sandbox.dependencies.layer_plan import Look, do_not_stop
from sandbox.errors import ErrorCode, SandboxError

CONTENT_BYTES = 500 * 1024**2  # of all files of a zip, as go allows (golang.org/x/mod/zip)
LIST_BYTES = 16 * 1024**2  # of its list of files; and of a go.mod, as go allows
ALL_BYTES = 8 * 1024**3  # of all files of all zips of a layer, a minute of work; the largest layer that hosts share
FILE_BYTES = 8 * 1024  # as many bytes as take the time that it takes to open a file, which may be empty
_END = struct.Struct("<4s4H2LH")  # the record at the end of a zip that says how large the list is
_COMMENT = 65_535
_ENTRY, _MAX_ENTRIES = b"PK\x01\x02", 65_535
"""What each entry of the list begins with, and how many a list has that is not zip64. Python's reader does not compare
them with the record at the end; it makes an object of 800 bytes of each, and opens each, also if all are one file.
"""
_ZIP64 = 20  # what stands before that record if the list is elsewhere
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""All that go reads. LZMA takes as much memory as the file says, 4 GiB at most."""


@dataclass
class ContentBudget:
    """What the zips and go.mod files of one layer may hold together. `look` is called for each file and MiB, and what
    it raises ends the work.
    """

    look: Look = do_not_stop
    left_bytes: int = ALL_BYTES

    def take(self, size_bytes: int) -> None:
        """Raises: `quota_exceeded`; what `look` raises."""
        self.look()
        self.left_bytes -= size_bytes
        if self.left_bytes < 0:
            raise SandboxError(
                ErrorCode.QUOTA_EXCEEDED,
                f"The modules of this project hold more than {format_bytes(ALL_BYTES)}, or too many files",
                hint="None of them was used. With `go mod vendor` the modules are in the repository, and no layer is "
                "made.",
            )


def hash_module_file(path: Path, budget: ContentBudget | None = None) -> str:
    """The hash of a go.mod. Raises: ValueError for one that is too large; as `ContentBudget.take`."""
    size = path.stat().st_size
    if size > LIST_BYTES:
        raise ValueError(f"more than {LIST_BYTES} bytes")
    (budget or ContentBudget()).take(size)
    return _combine([("go.mod", hashlib.sha256(path.read_bytes()).hexdigest())])


def hash_zip(path: Path, budget: ContentBudget | None = None) -> str:
    """The hash of a module's zip. Raises: ValueError for what is no zip within the limits; as `ContentBudget.take`."""
    budget = budget or ContentBudget()
    _require_small_list(path)
    try:
        with zipfile.ZipFile(path) as archive:
            rest = CONTENT_BYTES
            found = []
            budget.take(FILE_BYTES * len(archive.infolist()))
            for entry in archive.infolist():
                if entry.compress_type not in _METHODS:
                    raise ValueError("packed in a way that go does not read")
                digest = hashlib.sha256()
                budget.look()
                with archive.open(entry) as stream:
                    while block := stream.read(1 << 20):
                        budget.take(len(block))
                        digest.update(block)
                        rest -= len(block)
                        if rest < 0:
                            raise ValueError(f"more than {CONTENT_BYTES} bytes")
                found.append((entry.filename, digest.hexdigest()))
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise ValueError(f"no zip: {error}") from error
    return _combine(found)


def _require_small_list(path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as stream:
        stream.seek(max(0, size - _END.size - _COMMENT - _ZIP64))
        tail = stream.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size or b"PK\x06\x07" in tail:  # the latter: the list may be elsewhere (zip64)
        raise ValueError("no zip, or one for more than 4 GB")
    list_bytes = _END.unpack_from(tail, at)[5]
    if list_bytes > LIST_BYTES:
        raise ValueError(f"a list of files of more than {LIST_BYTES} bytes")
    with path.open("rb") as stream:
        stream.seek(max(0, size - len(tail) + at - list_bytes))
        if stream.read(list_bytes).count(_ENTRY) > _MAX_ENTRIES:
            raise ValueError(f"a list of more than {_MAX_ENTRIES} files")


def _combine(files: Iterable[tuple[str, str]]) -> str:
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(files))
    return f"h1:{base64.b64encode(hashlib.sha256(lines.encode()).digest()).decode()}"
