"""Stores of the shared verdict cache: a directory, and drivers of fsspec, with a server that speaks S3."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.store import shared_store
from sandbox.store.shared_store import SharedStore, UrlStore, open_store

pytestmark = pytest.mark.xdist_group("s3")  # one server, and its imports


@pytest.fixture(params=["directory", "file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SharedStore:
    if request.param == "s3":
        return open_store(f"s3://{request.getfixturevalue('bucket')}/{tmp_path.name}")
    urls = {"directory": str(tmp_path), "file": f"file://{tmp_path}", "memory": f"memory://{tmp_path.name}"}
    return open_store(urls[request.param])


def test_a_store_reads_what_was_written_up_to_a_limit(store: SharedStore) -> None:
    assert store.read("a.json", 100) is None
    store.write("a.json", b"first")
    store.write("a.json", b"content")
    assert store.read("a.json", 100) == b"content"
    assert store.read("a.json", 7) == b"content"
    assert store.read("a.json", 3) == b"cont", "one more than the limit: the caller sees that it is too large"


def test_users_of_a_shared_directory_read_the_entries_of_each_other(tmp_path: Path) -> None:
    """Whatever the umask of the writer. A folder that we make is private: its owner opens it to others."""
    before = os.umask(0o077)
    try:
        for folder in (tmp_path / "made", tmp_path):
            open_store(str(folder)).write("a.json", b"content")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a.json", "made/a.json", "made")]
    assert modes == [0o644, 0o644, 0o700]


def test_no_bucket_is_created_for_a_name_that_is_none(bucket: str) -> None:
    missing = open_store("s3://misspelled/folder")
    with pytest.raises(FileNotFoundError):
        missing.write("a.json", b"content")
    assert missing.read("a.json", 100) is None
    names = fsspec.filesystem("s3").ls("")
    assert bucket in names
    assert "misspelled" not in names


def test_a_store_without_an_answer_is_not_asked_by_each_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the driver is asked again once the pause is over."""
    monkeypatch.setattr(shared_store, "ANSWER_S", 0.1)
    silent, asked, answers = UrlStore("memory://silent"), list[str](), threading.Event()

    def wait(path: str, **_: Any) -> bytes:
        asked.append(path)
        answers.wait(30)
        return b"content"

    monkeypatch.setattr(silent._files, "cat_file", wait)
    with pytest.raises(TimeoutError, match="no answer within"):
        silent.read("a.json", 100)
    with pytest.raises(TimeoutError, match="a short time ago"):
        silent.read("b.json", 100)
    assert len(asked) == 1
    answers.set()
    silent._paused_until = 0.0
    monkeypatch.setattr(shared_store, "ANSWER_S", 30.0)
    assert silent.read("b.json", 100) == b"content"


def test_a_time_limit_of_the_driver_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that gives up by itself is asked again."""
    store = UrlStore("memory://tired")

    def give_up(*_: Any, **__: Any) -> bytes:
        raise TimeoutError("of the driver")

    monkeypatch.setattr(store._files, "cat_file", give_up)
    for _ in range(2):
        with pytest.raises(TimeoutError, match="of the driver"):
            store.read("a.json", 100)


def test_a_url_without_a_driver_says_what_to_install() -> None:
    with pytest.raises(SandboxError) as caught:
        open_store("gs://bucket/folder")
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert "space-sandbox[fsspec]" in caught.value.hint


def test_no_directory_is_created_for_a_path_that_is_none(tmp_path: Path) -> None:
    """Control: the last folder of one that is right is."""
    with pytest.raises(FileNotFoundError):
        open_store(str(tmp_path / "no/such")).write("a.json", b"content")
    assert list(tmp_path.iterdir()) == []
    open_store(str(tmp_path / "verdicts")).write("a.json", b"content")
    assert (tmp_path / "verdicts").stat().st_mode & 0o777 == 0o700
