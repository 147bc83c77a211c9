"""The index of a plain worktree: kept whole or not at all, and right whatever happened to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.files.stamps import TrustedBefore, coarse_now_ns, keeps_times, stamp_of
from sandbox.git.contents import content_of
from sandbox.git.entries import REGULAR, TreeChange
from sandbox.git.new_commits import build_tree
from sandbox.git.objects import list_tree
from sandbox.git.process import Git
from sandbox.store.guest_times import guest_since_ns, mark_guest_running
from sandbox.workspaces import statcache
from sandbox.workspaces.statcache import StatCacheFiles, StatIndex, load, load_or_build, save, save_if_worth
from tests.unit.conftest import Upstream

SECOND = 1_000_000_000
LATE = TrustedBefore(1 << 62)


@pytest.fixture
def source(upstream: Upstream) -> Upstream:
    upstream.write("f", b"one\n")
    upstream.write("run", b"#!/bin/sh\n", executable=True)
    upstream.write("d/e/x", b"x\n")
    upstream.write("d/\udcff\n", b"odd")
    (upstream.root / "link").symlink_to("f")
    upstream.commit()
    return upstream


@pytest.fixture
def index(source: Upstream) -> StatIndex:
    """The index of the head, with the stamps of the files on disk."""
    found = StatIndex.of(Git(source.git_dir), source.oid("HEAD^{tree}"))
    found.store_stamps({p: stamp_of((source.root / os.fsdecode(p)).lstat()) for p in found.entries(())}, LATE)
    return found


def test_an_index_lists_what_git_lists(source: Upstream, index: StatIndex) -> None:
    listed = {e.path: e for e in list_tree(Git(source.git_dir), index.tree, sizes=False)}
    assert index.entries(()) == listed
    assert index.count() == len(listed) == 5
    assert set(index.entries(leave_out=[b"", b"d"])) == {b"d/e/x"}


def test_an_index_that_was_kept_is_the_same(index: StatIndex, tmp_path: Path) -> None:
    save(index, tmp_path / "stat")
    again = load(tmp_path / "stat")
    assert again is not None
    assert (again.tree, again.folders, again.unsaved_changes) == (index.tree, index.folders, 0)


def test_a_damaged_index_is_none(index: StatIndex, tmp_path: Path) -> None:
    path = tmp_path / "stat"
    assert load(path) is None
    save(index, path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        assert load(path) is None, at
        path.write_bytes(whole[:at])
        assert load(path) is None, at
    path.write_bytes(whole)
    assert load(path)


def test_an_index_of_before_the_last_boot_is_none(
    index: StatIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(index, tmp_path / "stat")
    (tmp_path / "boot").write_text("00000000-0000-0000-0000-000000000000\n")
    monkeypatch.setattr(statcache, "_BOOT_ID", tmp_path / "boot")
    assert load(tmp_path / "stat") is None


def test_an_index_follows_the_head_and_forgets_the_stamps_of_what_moved(source: Upstream, index: StatIndex) -> None:
    git = Git(source.git_dir)
    changes = (
        TreeChange(b"f", REGULAR, content_of(b"two\n")),
        TreeChange(b"d/e/x", "000000", None),
        TreeChange(b"new/file", REGULAR, content_of(b"x")),
        TreeChange(b"link", REGULAR, content_of(b"no link")),
    )
    tree = build_tree(git, source.oid("HEAD"), changes)
    before = index.folders[b""].known.by_name()
    index.update_to(git, tree)
    assert index.tree == tree
    assert index.entries(()) == StatIndex.of(git, tree).entries(())
    after = index.folders[b""].known.by_name()
    assert after["run"] == before["run"]
    assert after["f"] == after["link"] == bytes(48)
    assert b"d/e" not in index.folders


def test_an_index_of_a_tree_that_is_gone_is_made_anew(source: Upstream, index: StatIndex, tmp_path: Path) -> None:
    memory = StatCacheFiles(tmp_path / "stat", tmp_path / "guest")
    head = index.tree
    index.tree = "1" * 40
    save(index, memory.index)
    found = load_or_build(Git(source.git_dir), head, tmp_path, memory)
    assert found.entries(()) == StatIndex.of(Git(source.git_dir), head).entries(())


def test_only_what_is_worth_it_is_written_and_a_full_disk_is_no_failure(
    index: StatIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = StatCacheFiles(tmp_path / "stat", tmp_path / "guest")
    index.unsaved_changes = 0
    save_if_worth(index, tmp_path, memory)
    assert not memory.index.exists()
    index.unsaved_changes = 1
    with monkeypatch.context() as patched:
        patched.setattr(statcache, "write_atomically", _no_space)
        save_if_worth(index, tmp_path, memory)
    assert not memory.index.exists()
    save_if_worth(index, tmp_path, memory)
    assert memory.index.exists() is keeps_times(tmp_path)


def _no_space(*_: object) -> None:
    raise OSError("no space")


# --- what a stamp proves


@pytest.mark.parametrize(
    ("ctime_ns", "looked_ns", "guest_ns", "proves"),
    [
        (10 * SECOND + 5, 11 * SECOND, None, True),
        (10 * SECOND + 5, 10 * SECOND + 5, None, False),
        (10 * SECOND + 5, 10 * SECOND + 19_000_000, None, False),
        (10 * SECOND, 11 * SECOND, None, False),
        (10 * SECOND, 13 * SECOND, None, True),
        (12 * SECOND + 5, 11 * SECOND, None, False),
        (10 * SECOND + 5, 99 * SECOND, 10 * SECOND, False),
        (10 * SECOND + 5, 99 * SECOND, 11 * SECOND, True),
        (10 * SECOND + 5, 99 * SECOND, 0, False),
    ],
    ids=["past", "same-tick", "near", "whole-seconds", "whole-seconds-past", "future", "guest", "older", "unknown"],
)
def test_a_stamp_proves_something_when_its_ctime_is_past(
    ctime_ns: int, looked_ns: int, guest_ns: int | None, proves: bool
) -> None:
    stamp = b"".join(value.to_bytes(8, sys.byteorder) for value in (1, 2, 3, ctime_ns, 5, 6))
    assert TrustedBefore.of(looked_ns, guest_ns).is_evidence(stamp) is proves


@pytest.mark.parametrize("year_ns", [-2 * 10**18, 0, 13_000_000_000 * SECOND], ids=["1906", "1970", "2381"])
def test_a_guest_may_set_mtime_to_any_year(tmp_path: Path, year_ns: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x")
    os.utime(path, ns=(0, year_ns))
    assert path.stat().st_mtime_ns == year_ns
    assert len(stamp_of(path.stat())) == 48


def _forge(path: Path) -> None:
    path.write_bytes(b"y")
    os.utime(path, ns=(SECOND, SECOND))


Change = Callable[[Path], object]
CHANGES: dict[str, Change] = {
    "written": lambda p: p.write_bytes(b"y"),
    "h26-times-set-back": _forge,
    "mode": lambda p: p.chmod(0o755),
    "linked": lambda p: os.link(p, p.with_name("second")),
    "renamed-away-and-back": lambda p: p.rename(p.with_name("away")).rename(p),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_moves_the_stamp(tmp_path: Path, change: Change) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x")
    os.utime(path, ns=(SECOND, SECOND))
    before = stamp_of(path.stat())
    _until_past(path)
    change(path)
    assert stamp_of(path.stat()) != before


def _until_past(path: Path) -> None:
    stamp = stamp_of(path.stat())
    while not TrustedBefore.of(coarse_now_ns(), None).is_evidence(stamp):
        pass


# --- marks of guests


def test_a_mark_says_since_when_and_goes_with_its_guest(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    assert guest_since_ns(mark) is None
    with mark_guest_running(mark, lambda: 7):
        assert guest_since_ns(mark) == 7
    assert guest_since_ns(mark) is None


def test_a_mark_stays_when_nobody_saw_the_end(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(OSError, match="lost"), mark_guest_running(mark, lambda: 7):
        raise OSError("lost")
    with mark_guest_running(mark, lambda: 9):
        assert guest_since_ns(mark) == 7
    assert guest_since_ns(mark) == 7


def test_a_damaged_mark_makes_every_time_doubtful(tmp_path: Path) -> None:
    (tmp_path / "mark").write_bytes(b"\0")
    assert guest_since_ns(tmp_path / "mark") == 0
