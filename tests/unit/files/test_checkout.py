"""A tree on disk is the bytes of its blobs; and what a guest left can be taken away. Ids: THREATS A, E, H."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.files.checkout import FILE_TIME_NS, FileSpec, check_out, remove_tree
from sandbox.files.git_mask import require_mask, write_mask
from tests.unit.conftest import refused, without_root_powers

FILE, EXECUTABLE, LINK = "100644", "100755", "120000"
MASK = b"gitdir: /nonexistent/ours\n"


def test_files_modes_and_links_are_laid_out_exactly(tmp_path: Path) -> None:
    files = [
        (b"a", FILE, b"\0\r\n\xff"),
        (b"d/run", EXECUTABLE, b"#!/bin/sh\n"),
        (b"d/e/l", LINK, b"../../a"),
        (b"\xff\n", FILE, b""),
        (b"-rf", FILE, b"x"),
    ]
    old = os.umask(0o077)
    try:
        assert check_out(tmp_path / "w", files, None) == 5
    finally:
        os.umask(old)
    root = tmp_path / "w"
    assert (root / "a").read_bytes() == b"\0\r\n\xff"
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o644
    assert stat.S_IMODE((root / "d" / "run").stat().st_mode) == 0o755
    assert (root / "d" / "e" / "l").readlink() == Path("../../a")
    assert {os.fsencode(p.name) for p in root.iterdir()} == {b"a", b"d", b"\xff\n", b"-rf"}


def test_all_files_and_links_have_one_time(tmp_path: Path) -> None:
    """Else make rebuilds a generated file of the repository, depending on the order in which we wrote."""
    check_out(
        tmp_path / "w", [(b"configure.ac", FILE, b""), (b"d/configure", EXECUTABLE, b""), (b"l", LINK, b"x")], None
    )
    found = {path.name: path.lstat() for path in (tmp_path / "w").rglob("*") if path.name != "d"}
    assert {name: info.st_mtime_ns for name, info in found.items()} == dict.fromkeys(found, FILE_TIME_NS)
    assert len(found) == 3


REFUSED: dict[str, list[FileSpec]] = {
    "dotgit": [(b".git", FILE, b"x")],
    "dotgit-inside": [(b"a/.git/config", FILE, b"x")],
    "dotgit-case": [(b".GIT/config", FILE, b"x")],
    "dotgit-hfs": [(".g\u200cit/config".encode(), FILE, b"x")],
    "dotgit-ntfs": [(b"git~1", FILE, b"x")],
    "our-temporary-name": [(b"d/.sandbox-write-00", FILE, b"x")],
    "dotgit-link": [(b".git", LINK, b"/etc")],
    "dot-dot": [(b"../x", FILE, b"x")],
    "dot": [(b"./x", FILE, b"x")],
    "absolute": [(b"/tmp/x", FILE, b"x")],
    "empty": [(b"", FILE, b"x")],
    "below-a-link": [(b"l", LINK, b"/tmp"), (b"l/x", FILE, b"x")],
    "below-a-file": [(b"f", FILE, b"x"), (b"f/x", FILE, b"x")],
    "over-a-link": [(b"l", LINK, b"/tmp/x"), (b"l", FILE, b"x")],
    "twice": [(b"f", FILE, b"x"), (b"f", FILE, b"y")],
    "file-over-directory": [(b"f/x", FILE, b"x"), (b"f", FILE, b"y")],
    "name-too-long": [(b"n" * 256, FILE, b"x")],
    "path-too-long": [(b"/".join([b"n" * 200] * 25), FILE, b"x")],
    "link-with-nul": [(b"l", LINK, b"a\0b")],
    "link-to-nothing": [(b"l", LINK, b"")],
    "link-too-long": [(b"l", LINK, b"n" * 5000)],
}


@pytest.mark.parametrize("files", REFUSED.values(), ids=REFUSED)
def test_e01_a_tree_that_cannot_be_laid_out_safely_is_refused_and_leaves_nothing(
    files: list[FileSpec], tmp_path: Path
) -> None:
    with refused(ErrorCode.UNSAFE_REPOSITORY):
        check_out(tmp_path / "w", [(b"first", FILE, b"x"), *files], None)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_checkout_leaves_nothing(tmp_path: Path) -> None:
    def files() -> object:
        yield b"a/b", FILE, b"x"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_out(tmp_path / "w", files(), None)  # type: ignore[arg-type]  # a generator of specs
    assert list(tmp_path.iterdir()) == []


def test_a_checkout_never_reuses_a_directory(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "precious").write_bytes(b"x")
    with pytest.raises(FileExistsError):
        check_out(tmp_path / "w", [(b"a", FILE, b"x")], None)
    assert (tmp_path / "w" / "precious").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_everything_gets_its_owner_links_included(tmp_path: Path) -> None:
    check_out(tmp_path / "w", [(b"d/f", FILE, b"x"), (b"l", LINK, b"/etc/passwd")], (64000, 64001))
    for name in (".", "d", "d/f", "l"):
        info = (tmp_path / "w" / name).lstat()
        assert (info.st_uid, info.st_gid) == (64000, 64001), name
    assert Path("/etc/passwd").stat().st_uid == 0


# --- removal


def test_removal_does_not_follow_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "d").mkdir(parents=True)
    (outside / "d" / "f").write_bytes(b"x")
    root = tmp_path / "w"
    root.mkdir()
    (root / "l").symlink_to(outside)
    (root / "sub").mkdir()
    (root / "sub" / "l").symlink_to(outside / "d")
    os.mkfifo(root / "fifo")
    remove_tree(root)
    assert not root.exists()
    assert (outside / "d" / "f").read_bytes() == b"x"


def test_removing_what_is_not_there_is_fine(tmp_path: Path) -> None:
    remove_tree(tmp_path / "none")


@pytest.mark.parametrize("mode", [0, 0o555], ids=oct)
@pytest.mark.parametrize("locked", ["d", "d/e", "."], ids=["top", "nested", "root"])
def test_h23_directories_without_mode_bits_are_removed(locked: str, mode: int, tmp_path: Path) -> None:
    root = tmp_path / "w"
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "e" / "f").write_bytes(b"x")
    (root / locked).chmod(mode)
    assert without_root_powers(lambda: remove_tree(root))
    assert not root.exists()


def test_h23_a_tree_nested_past_every_limit_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    here = Path.cwd()
    os.chdir(root)
    try:
        for _ in range(1200):
            Path("d" * 20).mkdir()
            os.chdir("d" * 20)
    finally:
        os.chdir(here)
    remove_tree(root)
    assert not root.exists()


def test_what_cannot_be_removed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "w"
    root.mkdir()

    def busy(*_: object, **__: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(os, "rmdir", busy)
    with refused(ErrorCode.INTERNAL) as caught:
        remove_tree(root)
    assert str(root) in caught.value.details
    assert caught.value.hint


# --- the mask


def test_the_mask_is_ours_and_read_only(tmp_path: Path) -> None:
    write_mask(tmp_path, MASK)
    require_mask(tmp_path, MASK)
    assert stat.S_IMODE((tmp_path / ".git").stat().st_mode) & 0o333 == 0


def test_a07_the_mask_is_never_written_over_something(tmp_path: Path) -> None:
    (tmp_path / "decoy").mkdir()
    (tmp_path / ".git").symlink_to("decoy")
    with pytest.raises(FileExistsError):
        write_mask(tmp_path, MASK)


TAMPERED = {
    "a01-directory": lambda place: place.mkdir(),
    "a02-redirected": lambda place: place.write_bytes(b"gitdir: ./evil\n"),
    "longer": lambda place: place.write_bytes(MASK + b"x"),
    "shorter": lambda place: place.write_bytes(MASK[:-1]),
    "a03-link": lambda place: place.symlink_to("copy"),
    "a05-deleted": lambda _place: None,
    "a13-fifo": lambda place: os.mkfifo(place),
    "a13-huge": lambda place: place.write_bytes(b"x" * 10_000_000),
    "empty": lambda place: place.write_bytes(b""),
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED)
def test_a_mask_that_was_touched_is_noticed(tamper: object, tmp_path: Path) -> None:
    (tmp_path / "copy").write_bytes(MASK)
    assert callable(tamper)
    tamper(tmp_path / ".git")
    with refused(ErrorCode.UNSAFE_REPOSITORY):
        require_mask(tmp_path, MASK)
