"""Headers of an archive that is hostile; its names and links: tests/attack/test_s_shared_layers.py."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.files.sealing import MAX_DEPTH, seal_tree
from sandbox.files.tree_archive import pack_tree, unpack_tree
from tests.unit.conftest import refused


def entry(name: str, kind: bytes, size: int = 0) -> bytes:
    found = tarfile.TarInfo(name)
    found.type, found.size = kind, size
    return found.tobuf(tarfile.USTAR_FORMAT)


def note(text: str) -> bytes:
    """What an archive says of the entry after it."""
    record = f"{len(text) + 4} {text}\n".encode()
    return entry("note", tarfile.XHDTYPE, len(record)) + record.ljust(512, b"\0")


TOP = entry(".", tarfile.DIRTYPE)
HOSTILE = {
    "a time beyond all numbers": TOP + note("mtime=1e400") + entry("a", tarfile.REGTYPE),
    "a size below zero": TOP + note("size=-0001") + entry("a", tarfile.REGTYPE),
    "a note before a note": TOP + note("path=long") * 1500,
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_s144_a_header_that_tarfile_would_believe_is_refused(content: bytes, tmp_path: Path) -> None:
    archive, tree = io.BytesIO(content + bytes(1024)), tmp_path / "tree"
    if content == HOSTILE["a size below zero"] and list_names(content) == ["."]:  # from Python 3.14 on
        unpack_tree(archive, tree, 10**6)
        assert [*tree.iterdir()] == [], "a layer with fewer files than it says is refused by its size"
        return
    with refused(ErrorCode.POLICY_VIOLATION):
        unpack_tree(archive, tree, 10**6)


class CountedBytes(io.BytesIO):
    """Counts what is read of it."""

    count = 0

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self.count += len(content)
        return content


def test_s144_a_long_note_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """Control: tarfile reads all of it into memory."""
    long = 16 * 1024**2
    content = TOP + entry("note", tarfile.XHDTYPE, long) + bytes(long) + entry("a", tarfile.REGTYPE) + bytes(1024)
    archive = CountedBytes(content)
    with refused(ErrorCode.POLICY_VIOLATION) as caught:
        unpack_tree(archive, tmp_path / "tree", 10**6)
    assert "a header of an impossible size" in caught.value.brief
    assert archive.count < 1024**2
    control = CountedBytes(content)
    with tarfile.open(fileobj=control, mode="r|") as plain:
        assert len(plain.getnames()) > 0
    assert control.count > long


def list_names(content: bytes) -> list[str]:
    """What tarfile itself makes of an archive."""
    with tarfile.open(fileobj=io.BytesIO(content + bytes(1024))) as archive:
        return archive.getnames()


def test_s144_the_map_of_a_sparse_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """tarfile reads the whole map before anything sees the entry, with 8 bytes of memory for each of its bytes."""
    count = 2 * 1024**2
    notes = [f"GNU.sparse.{name}" for name in ("major=1", "minor=0", "realsize=5", "name=a")]
    records = b"".join(f"{len(text) + 4} {text}\n".encode() for text in notes)
    body = f"{count}\n".encode() + b"1\n" * count
    content = entry("note", tarfile.XHDTYPE, len(records)) + records.ljust(512, b"\0")
    archive = CountedBytes(TOP + content + entry("a", tarfile.REGTYPE, len(body)) + body + bytes(1024))
    with refused(ErrorCode.POLICY_VIOLATION) as caught:
        unpack_tree(archive, tmp_path / "tree", 10**9)
    assert "a sparse file" in caught.value.brief
    assert archive.count <= 64 * 1024
    with refused(ErrorCode.POLICY_VIOLATION):
        unpack_tree(io.BytesIO(TOP + entry("a", tarfile.GNUTYPE_SPARSE)), tmp_path / "other", 10**6)


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1])
def test_an_archive_of_a_tree_that_can_be_sealed_can_be_unpacked(depth: int, tmp_path: Path) -> None:
    """Else a layer is shared and each other home refuses it. Control: one directory deeper is refused by both."""
    root, archive = tmp_path / "tree", io.BytesIO()
    folder = root.joinpath(*["d"] * depth)
    folder.mkdir(parents=True)
    (folder / "file").write_text("x")
    pack_tree(root, archive)
    archive.seek(0)
    us = os.geteuid(), os.getegid()
    if depth <= MAX_DEPTH:
        unpack_tree(archive, tmp_path / "again", 10**6)
        assert seal_tree(tmp_path / "again", us) == seal_tree(root, us)
        return
    with refused(ErrorCode.POLICY_VIOLATION):
        seal_tree(root, us)
    with refused(ErrorCode.POLICY_VIOLATION):
        unpack_tree(archive, tmp_path / "again", 10**6)
