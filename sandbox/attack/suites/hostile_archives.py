"""THREATS S166, S167, S187: an archive with one meaning for the reader that checks it, another for one that unpacks it.

The careless reader is Python's library, which reads a directory with content as the engines' library does.
"""

from __future__ import annotations

import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.scene import Scene, require_hit, require_refusal
from sandbox.dependencies.go_hashes import hash_zip
from sandbox.errors import ErrorCode
from sandbox.images.archive_format import BLOCK, format_file, format_header
from sandbox.images.archive_reader import require_no_sparse_files, require_uncompressed

_LARGE = 64 * 1024**2
_ENTRIES = 1000
_LONGEST_COMMENT = 65_535


def hide_in_directory(hidden: bytes) -> bytes:
    """A tar file with a directory that has a size, in the oldest format: what is in it may be read as headers."""
    header = bytearray(format_header("directory/", len(hidden)))
    header[156:157] = b"\0"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + hidden + bytes(-len(hidden) % BLOCK) + bytes(2 * BLOCK)


def make_sparse_file(size: int) -> bytes:
    """The headers of a file of zeros, without content."""
    records = {"major": "0", "minor": "1", "name": "bomb", "size": str(size), "numblocks": "1", "map": "0,0"}
    bomb = tarfile.TarInfo("bomb")
    bomb.pax_headers = {f"GNU.sparse.{name}": value for name, value in records.items()}
    return bomb.tobuf(tarfile.PAX_FORMAT)


def make_compressed_tar(hidden: bytes) -> bytes:
    """A layer that is a tar file with one file, and a gzip file of `hidden`.

    The file's name begins a gzip header; its optional field (RFC 1952, FEXTRA) is the rest of the tar header.
    """
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    content = packer.compress(hidden) + packer.flush() + struct.pack("<2L", zlib.crc32(hidden), len(hidden))
    file = tarfile.TarInfo((b"\x1f\x8b\x08\x04" + b"time" + b"\x02\x03" + struct.pack("<H", 500)).decode("latin-1"))
    file.size = len(content)
    return file.tobuf(tarfile.USTAR_FORMAT, "latin-1") + content


def _write_compressed(scene: Scene) -> None:
    hidden = b"".join(format_file("hidden", bytes(_LARGE))) + bytes(2 * BLOCK)
    (scene.root / "bomb.tar").write_bytes(make_compressed_tar(hidden))
    _write_honest(scene)


def _is_two_files(scene: Scene) -> str:
    path = scene.root / "bomb.tar"
    with tarfile.open(path, "r:") as plain, tarfile.open(path) as unpacked:
        first, hidden = plain.next(), unpacked.next()
    require_hit(first is not None and first.size < path.stat().st_size, "it is no tar file")
    require_hit(hidden is not None and hidden.size >= _LARGE, f"it contains {hidden}")
    return f"{path.stat().st_size:,} bytes become {_LARGE:,} for a reader that looks for compression"


def _write_honest(scene: Scene) -> None:
    (scene.root / "honest.tar").write_bytes(b"".join(format_file("bin/sh", b"exit 0")) + bytes(2 * BLOCK))


def _write_layers(scene: Scene) -> None:
    (scene.root / "bomb.tar").write_bytes(hide_in_directory(make_sparse_file(_LARGE)))
    _write_honest(scene)


def _unpacks_more(scene: Scene) -> str:
    path = scene.root / "bomb.tar"
    with tarfile.open(path) as archive:
        found = sum(member.size for member in archive)
    require_hit(found >= _LARGE, f"it has {found} bytes")
    return f"{path.stat().st_size:,} bytes become {found:,}"


def _refuses_layer(scene: Scene) -> str:
    _read_layer(scene.root / "honest.tar")
    require_refusal(lambda: _read_layer(scene.root / "bomb.tar"), ErrorCode.INVALID_INPUT)
    return "the layer is refused, and one without it is taken"


def _read_layer(path: Path) -> None:
    with path.open("rb") as file:
        require_uncompressed(file, 0, path.stat().st_size)
        require_no_sparse_files(file, 0, path.stat().st_size)


def make_distant_list(entries: int) -> bytes:
    """A zip with its list of files in zip64, behind the longest comment."""
    one = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    size = len(one) * entries
    end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, entries, entries, size, 0)
    place = struct.pack("<4sLQL", b"PK\6\7", 0, size, 1)
    last = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 46, 0xFFFFFFFF, _LONGEST_COMMENT)
    return one * entries + end + place + last + b"x" * _LONGEST_COMMENT


def _write_modules(scene: Scene) -> None:
    (scene.root / "list.zip").write_bytes(make_distant_list(_ENTRIES))
    for name, method in (("method.zip", zipfile.ZIP_LZMA), ("honest.zip", zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(scene.root / name, "w", method) as archive:
            archive.writestr("a", b"0" * 1000)


def _reads_modules(scene: Scene) -> str:
    with zipfile.ZipFile(scene.root / "list.zip") as archive:
        count = len(archive.infolist())
    with zipfile.ZipFile(scene.root / "method.zip") as archive:
        content = archive.read("a")
    require_hit(count == _ENTRIES and content, "they cannot be read")
    return f"{count} files of a list that says 46 bytes, and a method that takes as much memory as the file says"


def _refuses_modules(scene: Scene) -> str:
    hash_zip(scene.root / "honest.zip")
    for name in ("list.zip", "method.zip"):
        try:
            hash_zip(scene.root / name)
        except ValueError:
            continue
        raise GotThrough(f"{name} has a hash")
    return "both are no zip of a module, and one without them has a hash"


ENTRIES = (
    AttackEntry("S166", "a layer with a sparse file in a directory", "images import", _unpacks_more, _refuses_layer,
          _write_layers, scene="bare"),
    AttackEntry("S167", "a module with a distant list", "layers build", _reads_modules, _refuses_modules,
          _write_modules, scene="bare"),
    AttackEntry("S187", "a layer that is a tar file and compressed", "images import", _is_two_files, _refuses_layer,
          _write_compressed, scene="bare"),
)  # fmt: skip
