"""The format of image archives: an OCI image layout in one uncompressed tar file, which `docker load` reads as well.

Theory. Every blob is a file named by its sha256. `index.json` names the manifests, a manifest its configuration and its
layers, and the configuration the same layers again. So the digest of `index.json`, the archive's digest, stands for
every byte that a guest can see. Layers are not compressed: the digest of a layer in the configuration is that of its
tar file, and such an archive has no second form that the reader would have to unpack to compare.

`manifest.json` is for engines before 25 alone. The reader ignores it, so that each fact is said once.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sandbox.engine.image_types import Image
from sandbox.images.catalogue import IMAGE_NAME, LATEST_TAG, TAG_DIGITS, TAG_PREFIX
from sandbox.images.debian import BOOTSTRAPPED
from sandbox.images.lookup import FOLDER_LABEL, NAME_LABEL, RECIPE_LABEL

BLOCK = 512
"""Headers and contents in a tar file begin at a multiple of it."""
INDEX, LAYOUT, COMPATIBLE = "index.json", "oci-layout", "manifest.json"
LAYOUT_TEXT = b'{"imageLayoutVersion":"1.0.0"}'
BLOBS = "blobs/sha256/"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
NAME_ANNOTATION = "org.opencontainers.image.ref.name"
CONTAINERD_ANNOTATION = "io.containerd.image.name"

MAX_JSON_BYTES, MAX_ALL_JSON_BYTES = 1024**2, 8 * 1024**2
MAX_JSON_VALUES, MAX_ALL_JSON_VALUES = 20_000, 100_000
"""Of one document, and of all. A configuration of ours has 10 KB and 200 values; each may take 300 bytes of memory."""
MAX_BLOB_BYTES = 8 * 1024**3 - 1  # what eleven octal digits of a tar header can say
MAX_IMAGES = 64
MAX_LAYERS = 127  # of one image: the engine's own limit
MAX_FILES = 1024

_DIGEST = r"^sha256:[0-9a-f]{64}$"
_TAG = re.compile(rf"{TAG_PREFIX}(?P<name>{IMAGE_NAME.pattern}):(?P<version>{LATEST_TAG}|[0-9a-f]{{{TAG_DIGITS}}})")


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Descriptor(_Document):
    """What a document says of a blob."""

    media_type: str = Field("", alias="mediaType")
    digest: str = Field(pattern=_DIGEST)
    size: int = Field(ge=0, le=MAX_BLOB_BYTES)
    annotations: dict[str, str] = Field(default_factory=dict)


class Index(_Document):
    """`index.json`."""

    manifests: list[Descriptor] = Field(min_length=1, max_length=MAX_IMAGES)


class ImageManifest(_Document):
    """The manifest of one image."""

    config: Descriptor
    layers: list[Descriptor] = Field(min_length=1, max_length=MAX_LAYERS)


class _LayerDigests(_Document):
    diff_ids: list[str]


class _GuestDefaults(_Document):
    labels: dict[str, str] | None = Field(None, alias="Labels")
    env: list[str] | None = Field(None, alias="Env")
    volumes: dict[str, Any] | None = Field(None, alias="Volumes")
    user: str = Field("", alias="User")
    entrypoint: list[str] | None = Field(None, alias="Entrypoint")
    arguments: list[str] | None = Field(None, alias="Cmd")


class ImageConfiguration(_Document):
    """What we read of an image's configuration."""

    architecture: str
    os: str
    rootfs: _LayerDigests
    settings: _GuestDefaults = Field(default_factory=lambda: _GuestDefaults.model_validate({}), alias="config")

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.settings.labels or {}


def is_same_image(image: Image, configuration: ImageConfiguration) -> bool:
    """Whether an image of the engine has these files, labels and defaults. Its id differs in another store. Pure."""
    defaults = configuration.settings
    command = (*(defaults.entrypoint or ()), *(defaults.arguments or ()))
    return (
        image.layers == tuple(configuration.rootfs.diff_ids)
        and dict(image.labels) == configuration.labels
        and (image.env, image.user, image.command) == (tuple(defaults.env or ()), defaults.user, command)
        and image.has_volumes == bool(defaults.volumes)
    )


def digest_bytes(content: bytes) -> str:
    """Return `sha256:<hex>`."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def blob_path(digest: str) -> str:
    """Return the path of a blob in the archive."""
    return BLOBS + digest.removeprefix("sha256:")


def format_header(name: str, size: int) -> bytes:
    """Return the tar header of a plain file."""
    header = tarfile.TarInfo(name)
    header.size, header.mode = size, 0o644
    return header.tobuf(tarfile.USTAR_FORMAT)


def format_file(name: str, content: bytes) -> tuple[bytes, ...]:
    """Return a small file as it is in the tar file."""
    return format_header(name, len(content)), content, bytes(-len(content) % BLOCK)


def to_json(document: object) -> bytes:
    """Return canonical JSON: the same document gives the same bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def is_our_name(tag: str, labels: dict[str, str]) -> bool:
    """Whether an image with these labels may get this tag: of a recipe, a variant, a list of packages, or Debian. Pure.

    The labels must say what the tag says; otherwise an image could pass for one of another recipe.
    """
    if tag == BOOTSTRAPPED:
        return RECIPE_LABEL not in labels
    found = _TAG.fullmatch(tag)
    if found is None or labels.get(NAME_LABEL) != found["name"]:
        return False
    if found["version"] == LATEST_TAG:  # a variant with a name that the operator chose
        return labels.get(FOLDER_LABEL, found["name"]) != found["name"]
    return labels.get(RECIPE_LABEL, "").startswith(found["version"])
