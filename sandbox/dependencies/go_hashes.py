"""Go's `h1:` hashes of a module's zip and of its go.mod. https://pkg.go.dev/golang.org/x/mod/sumdb/dirhash#Hash1

The zip comes from outside: its list of files is bounded before Python's reader loads it, its content while it is read.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

CONTENT_BYTES = 500 * 1024**2  # of all files of a zip, as go allows (golang.org/x/mod/zip)
LIST_BYTES = 16 * 1024**2  # of its list of files; and of a go.mod, as go allows
_END = struct.Struct("<4s4H2LH")  # the record at the end of a zip that says how large the list is
_COMMENT = 65_535
_ENTRY, _MAX_ENTRIES = b"PK\x01\x02", 65_535
"""What each entry of the list begins with, and how many a list has that is not zip64. Python's reader does not compare
them with the record at the end; it makes an object of 800 bytes of each, and opens each, also if all are one file.
"""
_ZIP64 = 20  # what stands before that record if the list is elsewhere
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""All that go reads. LZMA takes as much memory as the file says, 4 GiB at most."""


def hash_module_file(path: Path) -> str:
    """The hash of a go.mod. Raises: ValueError for one that is too large."""
    if path.stat().st_size > LIST_BYTES:
        raise ValueError(f"more than {LIST_BYTES} bytes")
    return _combine([("go.mod", hashlib.sha256(path.read_bytes()).hexdigest())])


def hash_zip(path: Path) -> str:
    """The hash of a module's zip. Raises: ValueError for what is no zip within the limits."""
    _require_small_list(path)
    try:
        with zipfile.ZipFile(path) as archive:
            rest = CONTENT_BYTES
            found = []
            for entry in archive.infolist():
                if entry.compress_type not in _METHODS:
                    raise ValueError("packed in a way that go does not read")
                digest = hashlib.sha256()
                with archive.open(entry) as stream:
                    while block := stream.read(1 << 20):
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
