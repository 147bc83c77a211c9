"""Write an image archive from the engine's `docker save` stream, in one pass and without a second copy.

The stream may be of any engine: before version 25 a folder for each layer, then blobs; compressed or not, and a link
where a layer is there twice. The digest of a layer is known when it was written, so the header before it, which has the
digest as its name, is written last.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import posixpath
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sandbox.document_errors import describe_errors
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images.archive_format import (
    BLOCK,
    COMPATIBLE,
    CONFIG_TYPE,
    CONTAINERD_ANNOTATION,
    INDEX,
    INDEX_TYPE,
    LAYER_TYPE,
    LAYOUT,
    LAYOUT_TEXT,
    MANIFEST_TYPE,
    MAX_BLOB_BYTES,
    NAME_ANNOTATION,
    ImageConfiguration,
    blob_path,
    digest_bytes,
    format_file,
    format_header,
    to_json,
)

_PIECE = 1024**2
_SMALL_BYTES = 1024**2  # such files are kept in memory: documents, small layers, and what the archive does not get
_GZIP = b"\x1f\x8b"
_UNKNOWN_FORMAT = (
    "Export again; no file was written. If it fails again, report the engine's version (`sandbox doctor`)."
)


@dataclass(frozen=True)
class WrittenImage:
    """One image in an archive. `config_digest`: its id in an engine with the classic image store."""

    tag: str
    config_digest: str
    config: ImageConfiguration


@dataclass(frozen=True)
class _Blob:
    digest: str
    size: int

    def describe(self, media_type: str) -> dict[str, object]:
        return {"mediaType": media_type, "digest": self.digest, "size": self.size}


class _SavedImage(BaseModel):
    """An entry of `manifest.json` in the engine's stream."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    config: str = Field(alias="Config")
    layers: list[str] = Field(alias="Layers")
    tags: list[str] | None = Field(None, alias="RepoTags")


class _BlobFile:
    """A tar file of blobs, each of them there once."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self._sizes: dict[str, int] = {}

    def add(self, content: IO[bytes]) -> _Blob:
        """Append a blob. Raises: `quota_exceeded` for more than `MAX_BLOB_BYTES`."""
        begin = self._target.tell()
        self._target.write(bytes(BLOCK))
        seen, size = hashlib.sha256(), 0
        while piece := content.read(_PIECE):
            seen.update(piece)
            size += len(piece)
            if size > MAX_BLOB_BYTES:
                raise SandboxError(
                    ErrorCode.QUOTA_EXCEEDED, f"A layer is larger than {MAX_BLOB_BYTES} bytes and cannot be exported"
                )
            self._target.write(piece)
        blob = _Blob(f"sha256:{seen.hexdigest()}", size)
        if blob.digest in self._sizes:
            self._target.seek(begin)
            self._target.truncate()
        else:
            self._sizes[blob.digest] = size
            self._target.write(bytes(-size % BLOCK))
            self._target.seek(begin)
            self._target.write(format_header(blob_path(blob.digest), size))
            self._target.seek(0, os.SEEK_END)
        return blob

    def add_bytes(self, content: bytes) -> _Blob:
        """Append a small blob."""
        blob = _Blob(digest_bytes(content), len(content))
        if blob.digest not in self._sizes:
            self._sizes[blob.digest] = blob.size
            self.add_file(blob_path(blob.digest), content)
        return blob

    def add_file(self, name: str, content: bytes) -> None:
        """Append a file with a name of its own."""
        self._target.write(b"".join(format_file(name, content)))

    def close(self) -> None:
        """Write the end of the tar file."""
        self._target.write(bytes(2 * BLOCK))


class _Saved:
    """The files of a save stream: large ones are written to the archive at once, as they can only be layers."""

    def __init__(self, stream: IO[bytes], blobs: _BlobFile) -> None:
        self._blobs = blobs
        self._small: dict[str, bytes] = {}
        self._large: dict[str, _Blob] = {}
        self._links: dict[str, str] = {}
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                self._add(archive, member)

    def _add(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        if member.issym():
            self._links[member.name] = posixpath.normpath(
                posixpath.join(posixpath.dirname(member.name), member.linkname)
            )
        content = archive.extractfile(member) if member.isreg() else None
        if content is None:
            return
        if member.size <= _SMALL_BYTES:
            self._small[member.name] = content.read()
        else:
            self._large[member.name] = self._blobs.add(_uncompressed(content, content.peek(2)))  # type: ignore[attr-defined]  # BufferedReader

    def read(self, name: str) -> bytes:
        """Return a small file. Raises: `internal` if the stream has none of this name."""
        try:
            return self._small[name]
        except KeyError:
            raise _unreadable(f"there is no {name}") from None

    def layer(self, name: str) -> _Blob:
        """Return a layer as a blob of the archive."""
        name = self._links.get(name, name)
        if name in self._large:
            return self._large[name]
        content = self.read(name)
        return self._blobs.add_bytes(gzip.decompress(content) if content.startswith(_GZIP) else content)


def _uncompressed(content: IO[bytes], begin: bytes) -> IO[bytes]:
    return gzip.GzipFile(fileobj=content) if begin.startswith(_GZIP) else content  # type: ignore[return-value]  # it reads


def write_archive(
    stream: IO[bytes], target: IO[bytes], tags: Mapping[str, str], plain_tag: Callable[[str], str] = str
) -> tuple[str, tuple[WrittenImage, ...]]:
    """Write the images of a save stream to an empty file; return the archive's digest, and the images by tag.

    `tags`: for each reference that was saved, the tag that the archive gives the image. `plain_tag`: the reference that
    a name in the stream stands for. The same images give the same archive digest. Raises: `internal` for a stream that
    is none or that lacks an image, `quota_exceeded` for a layer that is too large.
    """
    blobs = _BlobFile(target)
    try:
        saved = _Saved(stream, blobs)
        listed = TypeAdapter(tuple[_SavedImage, ...]).validate_json(saved.read("manifest.json"))
        named = [(name, entry) for entry in listed for name in entry.tags or ()]
        _require_all(tags, [name for name, _ in named], plain_tag)
        images = {
            tags[reference]: _add_image(saved, blobs, entry, tags[reference])
            for name, entry in named
            if (reference := plain_tag(name)) in tags
        }
    except (tarfile.TarError, ValidationError, OSError, EOFError) as error:
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
            raise
        raise _unreadable(describe_errors(error)) from error
    ordered = [images[tag] for tag in sorted(images)]
    index = to_json({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [entry for _, entry, _ in ordered]})
    blobs.add_file(LAYOUT, LAYOUT_TEXT)
    blobs.add_file(INDEX, index)
    blobs.add_file(COMPATIBLE, to_json([entry for _, _, entry in ordered]))
    blobs.close()
    return digest_bytes(index), tuple(image for image, _, _ in ordered)


def _require_all(tags: Mapping[str, str], names: Sequence[str], plain_tag: Callable[[str], str]) -> None:
    """Raises: `internal` unless the engine saved each image that it was asked for."""
    if tags.keys() - {plain_tag(name) for name in names}:
        expected, found = (", ".join(sorted(each)) or "none" for each in (tags, names))
        raise SandboxError(
            ErrorCode.INTERNAL,
            "The engine saved other images than those it was asked for",
            details=f"expected {expected}\nfound    {found[:2000]}",
            hint=_UNKNOWN_FORMAT,
        )


def _add_image(
    saved: _Saved, blobs: _BlobFile, entry: _SavedImage, tag: str
) -> tuple[WrittenImage, dict[str, object], dict[str, object]]:
    """Add the blobs of one image; return it, and what `index.json` and `manifest.json` say of it."""
    content = saved.read(entry.config)
    config = ImageConfiguration.model_validate_json(content)
    layers = [saved.layer(name) for name in entry.layers]
    if [layer.digest for layer in layers] != config.rootfs.diff_ids:
        raise _unreadable(f"the layers of {tag} are not those of its configuration")
    written = blobs.add_bytes(content)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": written.describe(CONFIG_TYPE),
        "layers": [layer.describe(LAYER_TYPE) for layer in layers],
    }
    described = blobs.add_bytes(to_json(manifest)).describe(MANIFEST_TYPE)
    described["annotations"] = {CONTAINERD_ANNOTATION: f"docker.io/{tag}", NAME_ANNOTATION: tag}
    compatible: dict[str, object] = {
        "Config": blob_path(written.digest),
        "RepoTags": [tag],
        "Layers": [blob_path(layer.digest) for layer in layers],
    }
    return WrittenImage(tag, written.digest, config), described, compatible


def _unreadable(why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INTERNAL, "The images that the engine saved cannot be read", details=why, hint=_UNKNOWN_FORMAT
    )
