"""Read an image archive that anyone may have written: every byte is checked before the engine gets one.

Only what `archive_writer` writes is accepted: plain files with plain headers, in no order. It is not unpacked here. A
tar file in a layer may say that a small file is large (a sparse file), which an engine would write out, or be
compressed data as well, which an engine would unpack. Such layers are refused, so that no image is larger than its
archive.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TypeVar

from pydantic import BaseModel, ValidationError

from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images.archive_format import (
    BLOBS,
    BLOCK,
    COMPATIBLE,
    INDEX,
    INDEX_TYPE,
    LAYER_TYPE,
    LAYOUT,
    LAYOUT_TEXT,
    MAX_ALL_JSON_BYTES,
    MAX_ALL_JSON_VALUES,
    MAX_BLOB_BYTES,
    MAX_FILES,
    MAX_JSON_BYTES,
    MAX_JSON_VALUES,
    NAME_ANNOTATION,
    Descriptor,
    ImageConfiguration,
    ImageManifest,
    Index,
    blob_path,
    digest_bytes,
    format_file,
    format_header,
    is_our_name,
    to_json,
)

_PIECE = 1024**2
_DATA_TYPES, _EMPTY_TYPES = b"07", b"\x00123456"
_EXTENSIONS = b"xgLK"
_MAX_EXTENSION_BYTES = 1024**2
_REDEFINING = (b"GNU.sparse", b" size=")  # pax records that change how much a file has
_NAME = re.compile(rf"{INDEX}|{LAYOUT}|{COMPATIBLE}|{BLOBS}[0-9a-f]{{64}}")
_SIZE, _CHECKSUM, _TYPE = slice(124, 136), slice(148, 156), slice(156, 157)
# What engines take for compressed data: `Detect` of moby/go-archive (compression_detect.go), `DetectCompression` of
# containerd and of containers/storage, and pkg/compression of containers/image. They want gzip's third byte, 8, too.
_COMPRESSED = re.compile(rb"\x1f\x8b|BZh|\xfd7zXZ\0|\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
_MAGIC_BYTES = 6

DocumentT = TypeVar("DocumentT", bound=BaseModel)


@dataclass(frozen=True)
class _File:
    offset: int
    size: int


@dataclass(frozen=True)
class ArchivedImage:
    """An image of an archive that was read. `size_bytes`: of its layers."""

    tag: str
    manifest: Descriptor
    config_digest: str
    config: ImageConfiguration
    size_bytes: int

    @property
    def layers(self) -> tuple[str, ...]:
        """The digests of its layers."""
        return tuple(self.config.rootfs.diff_ids)


class ImageArchiveReader:
    """An open archive. Reading checks all of it; `stream` gives it to an engine."""

    def __init__(self, file: IO[bytes], expected: str | None = None) -> None:
        """Check the archive. `expected`: its digest, `sha256:<hex>`, if the caller knows it; None: any.

        Raises: `invalid_input` for anything that `archive_writer` does not write, and for another digest.
        """
        self._file = file
        self._files = _list_files(file)
        self._used = {COMPATIBLE}
        self._documents = _Documents()
        index = self._read(INDEX)
        self.digest = digest_bytes(index)
        if expected is not None and expected != self.digest:
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                "This is another archive than the one that was expected",
                details=f"expected {expected}\nfound    {self.digest}",
                hint="`sandbox images export` printed the digest of its archive; no image was imported.",
            )
        if self._read(LAYOUT) != LAYOUT_TEXT:
            raise _refused("it has no layout that is known")
        entries = self._documents.parse(Index, self.digest, index).manifests
        _require_names_once(entries)
        self.images = tuple(map(self._read_image, entries))
        self._require_all_used()
        for layer in sorted({layer for image in self.images for layer in image.layers}):
            self._check_layer(layer)

    @property
    def size_bytes(self) -> int:
        """Of all its files."""
        return sum(file.size for file in self._files.values())

    @property
    def file_bytes(self) -> int:
        """Of the archive itself, as `ImageArchive.size_bytes` has it after an export."""
        return os.fstat(self._file.fileno()).st_size

    def _read_image(self, entry: Descriptor) -> ArchivedImage:
        tag = _name_of(entry)
        manifest = self._documents.parse(ImageManifest, entry.digest, self._read_blob(entry))
        config = self._documents.parse(ImageConfiguration, manifest.config.digest, self._read_blob(manifest.config))
        size = sum(layer.size for layer in manifest.layers)
        image = ArchivedImage(tag, entry, manifest.config.digest, config, size)
        if not is_our_name(tag, config.labels):
            raise _refused(f"{tag[:100]!r} is not the name of an image of ours, or not of this one")
        if [layer.digest for layer in manifest.layers] != config.rootfs.diff_ids:
            raise _refused(f"the layers of {tag} are not those of its configuration")
        for layer in manifest.layers:
            if layer.media_type != LAYER_TYPE:
                raise _refused(f"a layer of {tag} is {layer.media_type[:100]!r}, not an uncompressed tar file")
            self._find(blob_path(layer.digest), layer.size)
        return image

    def _require_all_used(self) -> None:
        if unused := sorted(self._files.keys() - self._used):
            raise _refused(f"it contains {unused[0]!r}, which no image of it uses")

    def _find(self, name: str, size: int | None = None) -> _File:
        found = self._files.get(name)
        if found is None or (size is not None and found.size != size):
            raise _refused(f"{name} is missing or has another size")
        self._used.add(name)
        return found

    def _read(self, name: str) -> bytes:
        found = self._find(name)
        if found.size > MAX_JSON_BYTES:
            raise _refused(f"{name} is larger than {MAX_JSON_BYTES} bytes")
        return _read_exactly(self._file, found.offset, found.size)

    def _read_blob(self, entry: Descriptor) -> bytes:
        self._find(blob_path(entry.digest), entry.size)
        content = self._read(blob_path(entry.digest))
        if digest_bytes(content) != entry.digest:
            raise _refused(f"{entry.digest} has other bytes")
        return content

    def _check_layer(self, digest: str) -> None:
        file = self._files[blob_path(digest)]
        require_uncompressed(self._file, file.offset, file.size)
        require_no_sparse_files(self._file, file.offset, file.size)
        for _ in self._pieces(digest):
            pass

    def _pieces(self, digest: str) -> Iterator[bytes]:
        """Read a blob in pieces. Raises: `invalid_input` after the last one if they are not those of its digest."""
        file, seen = self._files[blob_path(digest)], hashlib.sha256()
        for begin in range(0, file.size, _PIECE):
            piece = _read_exactly(self._file, file.offset + begin, min(_PIECE, file.size - begin))
            seen.update(piece)
            yield piece
        if f"sha256:{seen.hexdigest()}" != digest:
            raise _refused(f"{digest} has other bytes")

    def stream(self) -> Iterator[bytes]:
        """Give the archive to an engine: blobs, checked once more, and indexes that do not name the images.

        So the engine changes no tag. Raises: `invalid_input` if the file changed meanwhile: the engine then gets no
        complete archive.
        """
        for name in (name for name in self._files if name.startswith(BLOBS)):
            yield format_header(name, self._files[name].size)
            yield from self._pieces(f"sha256:{name.removeprefix(BLOBS)}")
            yield bytes(-self._files[name].size % BLOCK)
        unnamed = [image.manifest.model_dump(by_alias=True, exclude={"annotations"}) for image in self.images]
        compatible = [
            {"Config": blob_path(image.config_digest), "RepoTags": None, "Layers": list(map(blob_path, image.layers))}
            for image in self.images
        ]
        yield from format_file(LAYOUT, LAYOUT_TEXT)
        yield from format_file(INDEX, to_json({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": unnamed}))
        yield from format_file(COMPATIBLE, to_json(compatible))
        yield bytes(2 * BLOCK)


class _Documents:
    """The JSON documents of an archive. What an engine wrote is small, but three bytes of JSON may take 300 of memory.
    So values are counted before they are parsed, in each document and in all, and a document is parsed once, however
    many images name it.
    """

    def __init__(self) -> None:
        self._parsed: dict[tuple[type[BaseModel], str], BaseModel] = {}
        self._bytes, self._values = 0, 0

    def parse(self, shape: type[DocumentT], digest: str, content: bytes) -> DocumentT:
        """Raises: `invalid_input` past a limit, or for a document of another shape."""
        found = self._parsed.get((shape, digest))
        if not isinstance(found, shape):
            self._count(digest, content)
            found = self._parsed[shape, digest] = _parse(shape, content)
        return found

    def _count(self, digest: str, content: bytes) -> None:
        """A value, or the key before it, follows one of three bytes. Commas in texts count, too."""
        values = 1 + sum(map(content.count, (b",", b"[", b"{")))
        self._bytes += len(content)
        self._values += values
        if values > MAX_JSON_VALUES or self._values > MAX_ALL_JSON_VALUES:
            raise _refused(
                f"{digest} has more values than {MAX_JSON_VALUES}, or all together more than {MAX_ALL_JSON_VALUES}"
            )
        if self._bytes > MAX_ALL_JSON_BYTES:
            raise _refused(f"its documents are larger than {MAX_ALL_JSON_BYTES} bytes")


def _name_of(entry: Descriptor) -> str:
    return entry.annotations.get(NAME_ANNOTATION, "")


def _require_names_once(entries: Sequence[Descriptor]) -> None:
    if len(set(map(_name_of, entries))) != len(entries):
        raise _refused("two images have the same name")


def _list_files(file: IO[bytes]) -> dict[str, _File]:
    """List the files of a tar file by their headers, without their contents."""
    found: dict[str, _File] = {}
    offset = 0
    while (header := _read_exactly(file, offset, BLOCK)) != bytes(BLOCK):
        offset += BLOCK
        name, size = _read_header(header)
        if name in found or len(found) == MAX_FILES:
            raise _refused("it has two files of one name, or too many")
        found[name] = _File(offset, size)
        offset += size + -size % BLOCK
    if os.fstat(file.fileno()).st_size != offset + 2 * BLOCK or any(_read_exactly(file, offset, 2 * BLOCK)):
        raise _refused("it does not end where its files end")
    return found


def _read_header(header: bytes) -> tuple[str, int]:
    try:
        seen = tarfile.TarInfo.frombuf(header, "ascii", "strict")
    except (tarfile.TarError, ValueError) as error:
        raise _refused("it is damaged, or no tar file") from error
    if seen.type != tarfile.REGTYPE or not 0 <= seen.size <= MAX_BLOB_BYTES or not _NAME.fullmatch(seen.name):
        raise _refused(f"{seen.name[:100]!r} does not belong into it")
    return seen.name, seen.size


def require_uncompressed(file: IO[bytes], offset: int, size: int) -> None:
    """Refuse a layer that begins as compressed data does: gzip, bzip2, xz, zstd (also with a frame to skip).

    Engines unpack such a layer whatever the archive says of it. In a tar file, these bytes are the first file's name,
    so one layer can be a small tar file here and another, large one for an engine. Raises: `invalid_input`.
    """
    if _COMPRESSED.match(_read_exactly(file, offset, min(size, _MAGIC_BYTES))):
        raise _refused("a layer of it is compressed, or begins as compressed data does")


def require_no_sparse_files(file: IO[bytes], offset: int, size: int) -> None:
    """Refuse a layer that is no tar file, in which a file has more bytes than the layer has of it, or whose headers are
    unusual.

    An engine reads tar files with Go's archive/tar (1.24): a sparse file has the type `S`, or a pax record before it
    says so. A record may also replace the size in a header, and a directory may have one in the oldest format (type 0,
    a name that ends with `/`): Go would then look for the next header elsewhere than this function. Engines write none
    of these for files below 8 GiB. As Go does, it takes a layer without empty blocks at its end, or with only a part of
    the last file's padding. Raises: `invalid_input`.
    """
    end = offset + size
    while offset < end and (header := _read_layer_block(file, offset, end)) != bytes(BLOCK):
        offset += BLOCK
        if not _has_checksum(header):
            raise _no_tar_error()
        kind, length = header[_TYPE], _read_size(header[_SIZE])
        if kind in _EMPTY_TYPES and length == 0:
            continue
        if kind not in _DATA_TYPES + _EXTENSIONS or length > end - offset:
            raise _refused("a layer of it has a file of an unknown kind")
        if kind in _EXTENSIONS:
            records = _read_exactly(file, offset, min(length, _MAX_EXTENSION_BYTES + 1))
            if length > _MAX_EXTENSION_BYTES or any(word in records for word in _REDEFINING):
                raise _refused("a layer of it has a sparse file, or too much about a file")
        offset += length + -length % BLOCK
    after = offset + BLOCK
    if after < end and _read_layer_block(file, after, end) != bytes(BLOCK):
        raise _no_tar_error()


def _read_layer_block(file: IO[bytes], offset: int, end: int) -> bytes:
    if end - offset < BLOCK:
        raise _no_tar_error()
    return _read_exactly(file, offset, BLOCK)


def _has_checksum(header: bytes) -> bool:
    """Whether a header has its sum; some old systems counted signed bytes."""
    found = sum(header) - sum(header[_CHECKSUM]) + sum(b" " * 8)
    stated = _read_size(header[_CHECKSUM])
    return stated == found or stated == found - 256 * sum(byte > 127 for byte in header)


def _no_tar_error() -> SandboxError:
    return _refused("a layer of it is no tar file, or a damaged one")


def _read_size(field: bytes) -> int:
    """Read a size in a header; a huge number for one that is not octal, which is refused."""
    digits = field.strip(b" \0")
    return int(digits or b"0", 8) if not digits.strip(b"01234567") else MAX_BLOB_BYTES + 1


def _read_exactly(file: IO[bytes], offset: int, size: int) -> bytes:
    try:
        content = os.pread(file.fileno(), size, offset)
    except OSError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The archive {file.name} cannot be read",
            details=f"at byte {offset}: {error.strerror}",
            hint="Look at the disk or the network that it is on, or copy it again; no image was imported.",
        ) from error
    if len(content) != size:
        raise _refused("it ends too early")
    return content


def _parse(shape: type[DocumentT], content: bytes) -> DocumentT:
    try:
        return shape.model_validate_json(content)
    except ValidationError as error:
        raise _refused(describe_errors(error)) from error


def _refused(why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        "This is not an archive of images that can be imported",
        details=why,
        hint="Only files of `sandbox images export` are accepted, and as it wrote them; no image was imported.",
    )
