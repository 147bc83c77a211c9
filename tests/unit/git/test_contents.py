"""Contents of changed files: the bytes that were hashed are the bytes that are read later."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.git import contents
from sandbox.git.contents import ContentSpool, content_of
from sandbox.git.objects import blob_id
from tests.unit.conftest import refused

SMALL, LARGE = b"small", os.urandom(3000) * 1000


def chunked(data: bytes, size: int = 1 << 20) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize("oid_length", [40, 64])
def test_a_content_is_read_as_it_was_added_as_often_as_asked(tmp_path: Path, oid_length: int) -> None:
    added = [b"", SMALL, LARGE, b"\0" * 2_000_000, SMALL]
    with ContentSpool(tmp_path / "looks") as spool:
        found = [spool.add(chunked(data), len(data), oid_length) for data in added]
        for _ in range(2):
            assert [b"".join(content.read()) for content in found] == added
        assert [content.oid for content in found] == [blob_id(data, oid_length) for data in added]
        assert not list((tmp_path / "looks").iterdir()), "the file has no name"


def test_small_contents_need_no_file(tmp_path: Path) -> None:
    with ContentSpool(tmp_path / "looks") as spool:
        assert spool.add([SMALL], len(SMALL), 40) == content_of(SMALL)
    assert not (tmp_path / "looks").exists()


def test_many_small_contents_together_go_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MEMORY_BYTES", 12)
    with ContentSpool(tmp_path / "looks") as spool:
        found = [spool.add([SMALL], len(SMALL), 40) for _ in range(5)]
        assert (tmp_path / "looks").is_dir()
        assert {b"".join(content.read()) for content in found} == {SMALL}


@pytest.mark.parametrize("size", [0, len(LARGE) - 1, len(LARGE) + 1])
def test_a_file_that_changes_while_it_is_read_gets_the_id_of_what_was_read(tmp_path: Path, size: int) -> None:
    with ContentSpool(tmp_path / "looks") as spool:
        content = spool.add(chunked(LARGE), size, 40)
        assert (content.oid, content.size) == (blob_id(LARGE), len(LARGE))


def test_a_dropped_content_makes_room_for_the_next(tmp_path: Path) -> None:
    with ContentSpool(tmp_path / "looks") as spool:
        start = spool.position
        spool.add(chunked(LARGE), len(LARGE), 40)
        spool.rewind(start)
        other = bytes(reversed(LARGE))
        assert b"".join(spool.add(chunked(other), len(other), 40).read()) == other


def test_a_full_disk_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "pwrite", full)
    with ContentSpool(tmp_path / "looks") as spool, refused(ErrorCode.QUOTA_EXCEEDED):
        spool.add(chunked(LARGE), len(LARGE), 40)
