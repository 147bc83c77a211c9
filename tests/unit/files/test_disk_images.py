"""New disks, where no mount is needed. Mounted ones: tests/unit/workspaces/test_own_disk.py."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sandbox.files.disk_images import create_disk


def test_a_disk_that_cannot_be_created_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy would take the space of a full disk until `gc`. Control: on a disk with space it is created."""
    template, image = tmp_path / "template.img", tmp_path / "disk.img"
    template.write_bytes(b"content")

    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space"):
            create_disk(image, template)
    assert list(tmp_path.iterdir()) == [template]
    create_disk(image, template)
    assert image.read_bytes() == b"content"
    assert sorted(tmp_path.iterdir()) == [image, template]
