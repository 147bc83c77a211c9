"""Layers that several homes share, in the store of the shared verdict cache.

layer-KEY.json         a signed statement: the record of the layer, and the digests of the parts of its content
layer-part-SHA256      8 MiB of the archive of a layer's tree, addressed by its content

Everyone who may write to the store can put any content under any name. So a statement counts if a key that this home
trusts signed it, for the very key that is asked for; and each part if its content has the digest in the statement. A
trusted key says that its home installed these archives, without a network, into this tree. What is refused is a miss,
with a warning: the layer is installed here.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Literal

from pydantic import Field

from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.files.sealing import TreeSize, seal_tree
from sandbox.files.tree_archive import pack_tree, unpack_tree
from sandbox.models.layers import Layer
from sandbox.models.model import Model
from sandbox.models.receipts import ReceiptRefusal
from sandbox.receipts.dsse_envelope import MOST_BYTES, sign_payload
from sandbox.receipts.receipt_refusals import refusal_error
from sandbox.store.layers import LayerStore, draw_folder
from sandbox.store.shared_store import SharedStore, open_store
from sandbox.workbench.checks.shared_parts import PART_BYTES, ChangedPartError, PartDigest, PartWriter, read_parts
from sandbox.workbench.checks.shared_statements import open_statement
from sandbox.workbench.controller import signing
from sandbox.workbench.controller.disk_admission import Demand, Writer
from sandbox.workbench.controller.services import Services

MOST_LAYER_BYTES = 8 * 1024**3
_ENTRY_BYTES = 1024
"""What a file adds to an archive beside its content: two blocks of a header, and filling."""

_KIND = "layer"
_log = logging.getLogger(__name__)


class SharedLayer(Model):
    """What a home signs about a layer. `parts`: sha256 of each part of the archive, in order, in hex."""

    type: Literal["space-sandbox/layer/v1"] = "space-sandbox/layer/v1"
    layer: Layer
    parts: Annotated[tuple[PartDigest, ...], Field(max_length=10_000)]


def open_shared_layers(services: Services) -> SharedLayers | None:
    """The store of `cache.url` if `cache.layers` is set. Raises: `invalid_input` for a URL that cannot be used."""
    cache = services.settings.cache
    return SharedLayers(services, open_store(cache.url)) if cache.url and cache.layers else None


@dataclass(frozen=True)
class SharedLayers:
    """Takes and adds layers. A store that does not answer is a miss, with a warning."""

    services: Services
    store: SharedStore

    def take(self, key: str, staging: Path) -> Layer | None:
        """Publish the shared layer with this key in this home; None if there is none that can be trusted. `staging`: a
        folder of ours in the home, for a moment.

        Raises: `invalid_input` for a trusted key that cannot be used; `quota_exceeded` if the disk has no room.
        """
        built = staging / "shared-layer"
        try:
            entry = self._find(key)
            if entry is None:
                return None
            size = _bound(entry.layer)
            admitted = self.services.disk.admit(Writer.LAYER, Demand(2 * size, entry.layer.files))
            with admitted, tempfile.TemporaryFile(dir=staging) as archive:
                self._fetch(entry, archive)
                unpack_tree(archive, built, size)
            found = seal_tree(built, (os.geteuid(), os.getegid()))
            if found != TreeSize(entry.layer.bytes, entry.layer.files):
                raise refusal_error(ReceiptRefusal.INCONSISTENT, "the tree has another size than the statement says")
            return self._publish(entry.layer, built)
        except OSError as error:
            _log.warning("the shared layer %s cannot be read: %s", key[:12], str(error)[:200])
        except SandboxError as error:
            if error.code not in {ErrorCode.RECEIPT_REFUSED, ErrorCode.POLICY_VIOLATION}:
                raise
            _log.warning("refused the shared layer %s: %s %s", key[:12], error.brief, error.details[:200])
        finally:
            if built.exists():
                remove_tree(built)
        return None

    def add(self, layer: Layer) -> None:
        """Add a layer, if this home writes. Raises: `invalid_input` for a signing key that cannot be used."""
        if not self.services.settings.cache.write or _bound(layer) > MOST_LAYER_BYTES:
            return
        signer = signing.find_signer(self.services, None)
        try:
            parts = PartWriter(self.store, _KIND)
            pack_tree(LayerStore(self.services.home).tree(layer), parts)
            payload = SharedLayer(layer=layer, parts=parts.finish()).model_dump(mode="json")
            content = sign_payload(json.dumps(payload, sort_keys=True).encode(), signer).encode()
            if len(content) <= MOST_BYTES:
                self.store.write(_name(layer.key), content)
        except OSError as error:
            _log.warning("the layer %s was not added to the shared store: %s", layer.key[:12], str(error)[:200])

    def _find(self, key: str) -> SharedLayer | None:
        content = self.store.read(_name(key), MOST_BYTES)
        if content is None:
            return None
        entry = open_statement(content, signing.load_trusted(self.services, ()), SharedLayer)
        is_large = max(_bound(entry.layer), len(entry.parts) * PART_BYTES) > MOST_LAYER_BYTES
        if entry.layer.key != key or is_large:
            raise refusal_error(
                ReceiptRefusal.INCONSISTENT, "it is about another layer, or about one that is too large"
            )
        return entry

    def _fetch(self, entry: SharedLayer, archive: IO[bytes]) -> None:
        try:
            for part in read_parts(self.store, _KIND, entry.parts):
                archive.write(part)
        except ChangedPartError as error:
            raise refusal_error(ReceiptRefusal.TAMPERED, str(error)) from error
        archive.seek(0)

    def _publish(self, shared: Layer, built: Path) -> Layer:
        layer = shared.model_copy(update={"folder": draw_folder(shared.key), "built_at": datetime.now(UTC)})
        return LayerStore(self.services.home).publish_unless_known(layer, built)


def _bound(layer: Layer) -> int:
    """The most that the content of its archive may have; a number of the statement, so a trusted one."""
    return layer.bytes + _ENTRY_BYTES * (layer.files + 1)


def _name(key: str) -> str:
    return f"layer-{key}.json"
