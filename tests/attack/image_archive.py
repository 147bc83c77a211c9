"""Image archives that `sandbox images export` would not write."""

from __future__ import annotations

import json
import platform
from pathlib import Path

from sandbox.images import archive_format

_SHELL = b"".join(archive_format.format_file("bin/sh", b"exit 0")) + bytes(1024)


def write_archive(path: Path, tag: str, labels: dict[str, str], damage: bytes = b"", layer: bytes = _SHELL) -> Path:
    """An archive of one image, as its author likes it; `damage` replaces the layer's first bytes."""
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    digest = archive_format.digest_bytes(layer)
    root = {"type": "layers", "diff_ids": [digest]}
    config = json.dumps({"architecture": architecture, "os": "linux", "rootfs": root, "config": {"Labels": labels}})
    blobs = [layer, config.encode()]

    def describe(content: bytes, **more: object) -> dict[str, object]:
        return {"digest": archive_format.digest_bytes(content), "size": len(content), **more}

    layers = [describe(layer, mediaType=archive_format.LAYER_TYPE)]
    blobs.append(
        json.dumps(
            {"schemaVersion": 2, "config": describe(blobs[1], mediaType=archive_format.CONFIG_TYPE), "layers": layers}
        ).encode()
    )
    named = describe(blobs[2], annotations={archive_format.NAME_ANNOTATION: tag})
    paths = [archive_format.blob_path(archive_format.digest_bytes(content)) for content in blobs]
    files = {
        **dict(zip(paths, blobs, strict=True)),
        archive_format.LAYOUT: archive_format.LAYOUT_TEXT,
        archive_format.INDEX: json.dumps({"schemaVersion": 2, "manifests": [named]}).encode(),
        archive_format.COMPATIBLE: json.dumps([{"Config": paths[1], "RepoTags": [tag], "Layers": paths[:1]}]).encode(),
    }
    files[paths[0]] = damage + layer[len(damage) :]
    path.write_bytes(b"".join(b"".join(archive_format.format_file(*item)) for item in files.items()) + bytes(1024))
    return path
