"""The files of an image folder while others change them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.engine import build_context


@pytest.mark.parametrize("vanishes", [None, "b", "folder"])
def test_a_file_that_vanishes_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vanishes: str | None
) -> None:
    """Between the list of its folder and the look at it. Control: all are found."""
    (tmp_path / "folder").mkdir()
    for name in ("a", "b", "c", "d", "folder/e"):
        (tmp_path / name).write_text(name)
    scan = os.scandir

    @contextmanager
    def scan_and_remove(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scan(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        if vanishes == "b":
            (tmp_path / "b").unlink(missing_ok=True)
        elif vanishes and (tmp_path / vanishes).exists():
            (tmp_path / "folder" / "e").unlink()
            (tmp_path / "folder").rmdir()
        yield iter(found)

    monkeypatch.setattr(os, "scandir", scan_and_remove)
    lost = {"b": {"b"}, "folder": {"folder/e"}}.get(vanishes or "", set())
    assert set(build_context.stat_context_files(tmp_path)) == {"a", "b", "c", "d", "folder/e"} - lost
