"""What this host has: images, credentials, and the results of `doctor`."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from sandbox.models.model import HostPath, Model


class ImageInfo(Model):
    """One image of this home's recipes and whether the engine has it. `stale`: its base image was built again.

    `variant_of`: the image that this one extends with wheels. `problem`: why its folder is not a valid image.
    `derived_from`: the image that this one extends with the Debian packages `packages`.
    """

    name: str
    tag: str
    present: bool
    stale: bool
    digest: str | None = None
    size_bytes: int | None = None
    created_at: str | None = None
    variant_of: str = ""
    problem: str = ""
    derived_from: str = ""
    packages: tuple[str, ...] = ()


class TransferredImage(Model):
    """An image of an archive. `digest`: its id in this engine. `loaded`: the engine did not have it before.

    `usable`: it was built from this home's recipe; another version's image is kept, but no check uses it.
    """

    tag: str
    digest: str
    loaded: bool = False
    usable: bool = True


class ImageArchive(Model):
    """An archive of images. `digest`: stands for every byte of them; `sandbox images import --digest` compares it.
    `size_bytes`: of the file.
    """

    path: HostPath
    digest: str
    size_bytes: int
    images: tuple[TransferredImage, ...]


class CredentialInfo(Model):
    """A stored credential without its secret. `kind`: what it authenticates with. `store`: where the secret is."""

    host: str
    kind: Literal["secret", "ssh_key", "ca_only"]
    username: str = ""
    ssh_key: HostPath | None = None
    ca_file: HostPath | None = None
    store: Literal["file", "keyring"] = "file"


class ProbeLevel(StrEnum):
    """Severity of a doctor line."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Probe(Model):
    """One line of `sandbox doctor`."""

    name: str
    level: ProbeLevel
    value: str
    hint: str = ""
