"""Image archives that `sandbox images export` would not write."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path

from sandbox.images import archive_format

_SHELL = b"".join(archive_format.format_file("bin/sh", b"exit 0")) + bytes(1024)


def write_archive(
    path: Path, tag: str, labels: dict[str, str], damage: bytes = b"", layers: Sequence[bytes] = (_SHELL,)
) -> Path:
    """An archive of one image, as its author likes it; `damage` replaces the first layer's first bytes."""
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    root = {"type": "layers", "diff_ids": [archive_format.digest_bytes(layer) for layer in layers]}
    config = json.dumps({"architecture": architecture, "os": "linux", "rootfs": root, "config": {"Labels": labels}})

    def describe(content: bytes, **more: object) -> dict[str, object]:
        return {"digest": archive_format.digest_bytes(content), "size": len(content), **more}

    manifest = {
        "schemaVersion": 2,
        "config": describe(config.encode(), mediaType=archive_format.CONFIG_TYPE),
        "layers": [describe(layer, mediaType=archive_format.LAYER_TYPE) for layer in layers],
    }
    blobs = [*layers, config.encode(), json.dumps(manifest).encode()]
    named = describe(blobs[-1], annotations={archive_format.NAME_ANNOTATION: tag})
    paths = [archive_format.blob_path(archive_format.digest_bytes(content)) for content in blobs]
    compatible = {"Config": paths[-2], "RepoTags": [tag], "Layers": paths[:-2]}
    files = {
        **dict(zip(paths, blobs, strict=True)),
        archive_format.LAYOUT: archive_format.LAYOUT_TEXT,
        archive_format.INDEX: json.dumps({"schemaVersion": 2, "manifests": [named]}).encode(),
        archive_format.COMPATIBLE: json.dumps([compatible]).encode(),
    }
    files[paths[0]] = damage + layers[0][len(damage) :]
    path.write_bytes(b"".join(b"".join(archive_format.format_file(*item)) for item in files.items()) + bytes(1024))
    return path
