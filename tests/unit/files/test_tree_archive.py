"""Headers of an archive that is hostile; its names and links: tests/attack/test_s_shared_layers.py."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.files.tree_archive import unpack_tree
from tests.unit.conftest import refused


def entry(name: str, kind: bytes, size: int = 0, **notes: str) -> bytes:
    found = tarfile.TarInfo(name)
    found.type, found.size, found.pax_headers = kind, size, notes
    return found.tobuf(tarfile.PAX_FORMAT)


TOP = entry(".", tarfile.DIRTYPE)
NOTE = b"13 path=long\n".ljust(512, b"\0")
HOSTILE = {
    "a time beyond all numbers": TOP + entry("a", tarfile.REGTYPE, mtime="1e400"),
    "a size below zero": TOP + entry("a", tarfile.REGTYPE, size="-1"),
    "a note of a gigabyte": TOP + entry("a", tarfile.XHDTYPE, 1024**3),
    "a note before a note": TOP + (entry("a", tarfile.XHDTYPE, 13) + NOTE) * 1500,
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_s144_a_header_that_tarfile_would_believe_is_refused(content: bytes, tmp_path: Path) -> None:
    with refused(ErrorCode.POLICY_VIOLATION):
        unpack_tree(io.BytesIO(content + bytes(1024)), tmp_path / "tree", 10**6)
