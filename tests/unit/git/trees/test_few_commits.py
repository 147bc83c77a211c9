"""A commit of a few changes: one process of git, the objects of `fast-import`, proven by what is on the disk."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import ErrorCode
from sandbox.git import new_commits, objects, process
from sandbox.git.entries import REGULAR, Content, StoredCommit, TreeChange
from sandbox.git.failures import out_of_memory_error
from sandbox.git.process import Git
from sandbox.git.trees import few_changes, few_commits
from sandbox.git.trees.small_packs import SmallPack
from sandbox.git.trees.tree_format import hash_object
from tests.unit.conftest import IDENTITY, Upstream, refused
from tests.unit.git.test_new_commits import BASE, CHANGES, committed, drop, leaves, put
from tests.unit.git.trees.test_few_changes import LEFT_TO_GIT, started

__all__ = ["started"]  # the fixture

FEW = {
    name: changes for name, changes in CHANGES.items() if changes and not name.startswith(("directory-to", "file-to-d"))
}


def commit(git: Git, parent: str, changes: list[TreeChange]) -> StoredCommit:
    return new_commits.build_commit(git, parent, changes, "x\n", IDENTITY)


@contextmanager
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As before: every commit is written by fast-import."""
    with monkeypatch.context() as patch:
        patch.setattr(few_commits, "store_changes", lambda *_: None)
        yield


@pytest.mark.parametrize("changes", FEW.values(), ids=FEW)
def test_one_process_stores_the_commit_of_fast_import(
    upstream: Upstream, started: list[str], monkeypatch: pytest.MonkeyPatch, changes: list[TreeChange]
) -> None:
    base, git = committed(upstream, BASE), Git(upstream.git_dir)
    few_changes.compute_tree_id(git, base, changes)  # as a status or a diff before
    started.clear()
    stored = commit(git, base, changes)
    assert started == ["unpack-objects"]
    upstream.git("fsck", "--strict", stored.commit)
    assert list((upstream.git_dir / "objects" / "pack").iterdir()) == []
    other = Git(upstream.git_dir)
    with without(monkeypatch):
        started.clear()
        assert commit(other, base, changes) == stored
        assert {"fast-import", "diff-tree"} <= set(started), "the control"
    trees = objects.tree_of(git, base), stored.tree
    assert git.cache.differences.get(trees) == other.cache.differences.get(trees), "as diff-tree says it"


def test_the_next_look_and_the_next_commit_read_no_directory(upstream: Upstream, started: list[str]) -> None:
    base, git = committed(upstream, BASE), Git(upstream.git_dir)
    first = commit(git, base, [put(b"d/deep/two", b"x")])
    started.clear()
    few_changes.compute_tree_id(git, first.commit, [put(b"d/deep/three", b"x")])
    assert started == []
    second = commit(git, first.commit, [put(b"d/deep/three", b"x")])
    assert started == ["unpack-objects"]
    assert set(leaves(upstream, second.tree)) == {*BASE, b"d/deep/three"}


@pytest.mark.parametrize("changes", LEFT_TO_GIT.values(), ids=LEFT_TO_GIT)
def test_what_is_not_plain_is_left_to_fast_import(upstream: Upstream, changes: list[TreeChange]) -> None:
    base, git = committed(upstream, BASE), Git(upstream.git_dir)
    before = sorted(path for path in (upstream.git_dir / "objects").rglob("*"))
    assert few_commits.store_changes(git, base, changes) is None
    assert sorted(path for path in (upstream.git_dir / "objects").rglob("*")) == before, "nothing was stored"


def test_a_blob_that_should_be_there_is_left_to_fast_import_which_looks(upstream: Upstream) -> None:
    base, git = committed(upstream, BASE), Git(upstream.git_dir)
    absent = Content("1" * 40, 1, lambda: iter(()), is_stored=True)
    with refused(ErrorCode.INTERNAL):
        commit(git, base, [TreeChange(b"a", REGULAR, absent)])


ODD = {
    "an angle bracket": {"GIT_AUTHOR_NAME": "a <b"},
    "a line break": {"GIT_COMMITTER_NAME": "a\nparent x"},
    "no date": {"GIT_AUTHOR_DATE": "yesterday"},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_odd_identity_is_judged_by_git(upstream: Upstream, started: list[str], odd: dict[str, str]) -> None:
    base, git = committed(upstream, BASE), Git(upstream.git_dir)
    with refused(ErrorCode.INTERNAL):
        new_commits.build_commit(git, base, [put(b"a", b"x")], "x\n", {**IDENTITY, **odd})
    assert "unpack-objects" not in started


def test_objects_that_are_packed_already_are_read_by_git(upstream: Upstream, started: list[str]) -> None:
    base, git = committed(upstream, BASE), Git(upstream.git_dir)
    first = commit(git, base, [put(b"d/one", b"other")])
    upstream.git("update-ref", "refs/heads/x", first.commit)
    upstream.git("repack", "-adq")
    started.clear()
    again = commit(git, base, [put(b"d/one", b"other")])
    assert again == first
    assert started == ["unpack-objects", "cat-file"]


def test_git_without_enough_memory_leaves_it_to_fast_import(
    upstream: Upstream, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, git = committed(upstream, BASE), Git(upstream.git_dir)

    def refuse(*_: object) -> None:
        raise out_of_memory_error("unpack-objects", "")

    monkeypatch.setattr(SmallPack, "store", refuse)
    assert leaves(upstream, commit(git, base, [drop(b"a")]).tree).keys() == BASE.keys() - {b"a"}
    assert "fast-import" in started


def test_a_comparison_without_enough_memory_leaves_it_to_fast_import_after_objects_were_stored(
    upstream: Upstream, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, git = committed(upstream, BASE), Git(upstream.git_dir)

    def refuse(*_: object) -> None:
        raise out_of_memory_error("cat-file", "")

    monkeypatch.setattr(few_commits, "_compare_stored", refuse)
    assert few_commits.store_changes(git, base, [put(b"a", b"left")]) is None
    assert loose(upstream.git_dir, hash_object(b"blob", b"left", 20).hex()).exists()
    assert leaves(upstream, commit(git, base, [drop(b"a")]).tree).keys() == BASE.keys() - {b"a"}
    assert "fast-import" in started


@pytest.mark.parametrize("before", ["", '"$@" <&0; '], ids=["at once", "when all is stored"])
def test_a_git_that_is_killed_leaves_an_error_and_the_next_commit_is_made(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    base, git = committed(upstream, BASE), Git(upstream.git_dir)
    start = process._start_process

    def kill(command: process.CommandLine, *rest: Any) -> Any:
        killed = ("/bin/sh", "-c", f"{before}kill -9 $$", "sh", *command.argv)
        return start(replace(command, argv=killed) if "unpack-objects" in command.argv else command, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(process, "_start_process", kill)
        with refused(ErrorCode.INTERNAL) as caught:
            commit(git, base, [put(b"a", b"x")])
        assert "store" in caught.value.brief
    blob = hash_object(b"blob", b"x", 20).hex()
    assert loose(upstream.git_dir, blob).exists() == bool(before)
    assert leaves(upstream, commit(git, base, [put(b"a", b"x")]).tree)[b"a"][1] == blob


@pytest.mark.parametrize("oid_bytes", [20, 32], ids=["sha1", "sha256"])
@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.sampled_from([0, 1, 15, 16, 17, 2047, 2048, 2049, 300_000]), min_size=1, max_size=4))
def test_git_unpacks_objects_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, oid_bytes: int, sizes: list[int]
) -> None:
    source = Upstream(tmp_path_factory.mktemp("pack"))
    source.git("init", "--quiet", "--object-format", "sha1" if oid_bytes == 20 else "sha256")
    git, pack = Git(source.git_dir), SmallPack(oid_bytes)
    contents = {hash_object(b"blob", content, oid_bytes): content for content in (os.urandom(size) for size in sizes)}
    for oid, content in contents.items():
        pack.write(b"blob", content, oid)
    pack.store(git)
    for oid, content in contents.items():
        assert source.git("cat-file", "blob", oid.hex()) == content


@pytest.mark.parametrize("oid_bytes", [20, 32], ids=["sha1", "sha256"])
def test_git_reads_a_pack_with_our_index_and_finds_no_fault_in_it(tmp_path: Path, oid_bytes: int) -> None:
    source = Upstream(tmp_path)
    source.git("init", "--quiet", "--object-format", "sha1" if oid_bytes == 20 else "sha256")
    pack, contents = SmallPack(oid_bytes), [os.urandom(size) for size in (0, 1, 5_000, *range(300))]
    for content in contents:
        pack.write(b"blob", content, hash_object(b"blob", content, oid_bytes))
    pack.place(source.git_dir / "objects")
    (placed,) = (source.git_dir / "objects" / "pack").glob("*.pack")
    theirs = tmp_path / "theirs.idx"
    source.git("index-pack", "-o", str(theirs), str(placed))
    assert placed.with_suffix(".idx").read_bytes() == theirs.read_bytes()
    source.git("verify-pack", str(placed))
    for content in contents[:4]:
        assert source.git("cat-file", "blob", hash_object(b"blob", content, oid_bytes).hex()) == content


def loose(git_dir: Path, oid: str) -> Path:
    return git_dir / "objects" / oid[:2] / oid[2:]


def plant(git_dir: Path, oid: str, data: bytes) -> None:
    """Another object under this id, as a damaged disk or an older git with a collision would leave it."""
    path = loose(git_dir, oid)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def test_s172_an_object_that_is_not_the_requested_one_makes_no_commit(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = committed(upstream, BASE)
    tree = commit(Git(upstream.git_dir), base, [put(b"d/one", b"wanted")]).tree
    changed = hash_object(b"blob", b"wanted", 20).hex()
    folder = objects.find_tree(Git(upstream.git_dir), tree, b"d")
    assert folder is not None
    content = upstream.git("cat-file", "tree", folder)
    evil = content.replace(bytes.fromhex(changed), hash_object(b"blob", b"2", 20))
    planted = {
        "another tree": (folder, zlib.compress(b"tree %d\0%b" % (len(evil), evil))),
        "another file": (changed, zlib.compress(b"blob 6\0unwant")),
        "bytes behind it": (changed, zlib.compress(b"blob 6\0wanted") + b"x"),
        "a bomb": (changed, zlib.compress(b"blob 6\0wanted" + b"\0" * 50_000_000)),
        "no deflated data": (changed, b"wanted"),
        "nothing": (changed, b""),
    }
    honest = {oid: loose(upstream.git_dir, oid).read_bytes() for oid in (folder, changed)}
    for what, (oid, data) in planted.items():
        plant(upstream.git_dir, oid, data)
        with refused(ErrorCode.INTERNAL) as caught:
            commit(Git(upstream.git_dir), base, [put(b"d/one", b"wanted")])
        assert oid in caught.value.details, what
        with monkeypatch.context() as patch:
            patch.setattr(SmallPack, "_require_stored", lambda *_: None)
            assert commit(Git(upstream.git_dir), base, [put(b"d/one", b"wanted")]).tree == tree, "the control"
        plant(upstream.git_dir, oid, honest[oid])
    assert commit(Git(upstream.git_dir), base, [put(b"d/one", b"wanted")]).tree == tree
