"""A repository that is copied is the one that git makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.conftest import Upstream, initialised, run


def listed(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files but the index, which holds times; its content is listed by git."""
    files = (path for path in folder.rglob("*") if path.name != "index")
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in files
    }


def fill(root: Path) -> Upstream:
    source = initialised(root)
    source.write("d/e", b"e\n")
    source.write("run", b"#!/bin/sh\n", executable=True)
    (root / "link").symlink_to("d/e")
    return source


def test_a_first_commit_that_is_copied_is_that_of_git(tmp_path: Path) -> None:
    made, copied, plain = (fill(tmp_path / name) for name in ("made", "copied", "plain"))
    plain.git("add", "-A", "--force")
    plain.git("commit", "--quiet", "-m", "x")
    assert {made.commit("x"), copied.commit("x")} == {plain.oid("HEAD")}
    assert listed(copied.git_dir) == listed(plain.git_dir)
    assert copied.git("status", "--porcelain") == b""
    assert copied.git("ls-files", "-s") == plain.git("ls-files", "-s")
    copied.git("fsck", "--strict")
    copied.write("d/e", b"other\n")
    assert copied.commit("second") != plain.oid("HEAD")
    assert copied.git("show", "HEAD:d/e") == b"other\n"


@pytest.mark.parametrize("change", ["content", "mode", "name", "message", "settings", "user's settings"])
def test_another_commit_is_not_copied(change: str, tmp_path: Path, surroundings: Path) -> None:
    first, second = fill(tmp_path / "1"), fill(tmp_path / "2")
    before = first.commit("x")
    if change == "content":
        second.write("d/e", b"f\n")
    elif change == "mode":
        second.write("run", b"#!/bin/sh\n")
    elif change == "name":
        second.write("more")
    elif change == "settings":
        second.git("config", "i18n.commitEncoding", "latin1")
    elif change == "user's settings":
        run(["git", "config", "--file", str(surroundings / ".gitconfig"), "i18n.commitEncoding", "latin1"])
    assert second.commit("y" if change == "message" else "x") != before
