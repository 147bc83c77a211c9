"""Trees, blobs and commits as they are read, with plain git as the oracle. Ids: THREATS section E."""

from __future__ import annotations

import time
import tracemalloc
from contextlib import nullcontext

import pytest

from devtools.host_speed import slowness
from sandbox.errors import ErrorCode
from sandbox.git import blobs, objects, refs
from sandbox.git.entries import EXECUTABLE, GITLINK, REGULAR, SYMLINK, Item
from sandbox.git.objects import TreeBudget
from sandbox.git.process import Git
from sandbox.git.trees.tree_format import format_tree
from tests.unit.conftest import Upstream, refused
from tests.unit.git.test_new_commits import leaves, written

NO_OBJECT = "1" * 40


@pytest.mark.parametrize("text", ["a" * 40, "0" * 64])
def test_a_full_object_id_is_one(text: str) -> None:
    assert objects.is_object_id(text)


@pytest.mark.parametrize(
    "text", ["a" * 39, "A" * 40, "a" * 41, "a" * 40 + "\n", "a" * 40 + "^", "HEAD", "", "-" + "a" * 39]
)
def test_anything_else_is_none(text: str) -> None:
    assert not objects.is_object_id(text)


def test_list_tree_gives_every_leaf_with_its_size(upstream: Upstream) -> None:
    upstream.write("a/b", b"12345", executable=True)
    upstream.write("a.txt", b"1")
    (upstream.root / "link").symlink_to("a.txt")
    upstream.git("update-index", "--add", "--cacheinfo", f"160000,{NO_OBJECT},sub")
    upstream.git("add", "-A", ":!sub")
    upstream.git("update-index", "--add", "--cacheinfo", f"160000,{NO_OBJECT},sub")
    tree = upstream.git("write-tree").decode().strip()
    found = objects.list_tree(Git(upstream.git_dir), tree)
    assert [(e.path, e.mode, e.size) for e in found] == [
        (b"a.txt", REGULAR, 1),
        (b"a/b", EXECUTABLE, 5),
        (b"link", SYMLINK, 5),
        (b"sub", GITLINK, None),
    ]
    assert {e.path: (e.mode, e.oid) for e in found} == leaves(upstream, tree)


def test_list_tree_of_what_is_no_tree_is_not_found(upstream: Upstream) -> None:
    with refused(ErrorCode.NOT_FOUND):
        objects.list_tree(Git(upstream.git_dir), NO_OBJECT)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (TreeBudget(files=2), "more than 2 files"),
        (TreeBudget(total_bytes=11), "or 11 bytes"),
        (TreeBudget(blob_bytes=9), "'a\N{SYMBOL FOR NEWLINE}' has 10 bytes, and a file may have 9"),
        (TreeBudget(depth=3), "deeper than 3"),
    ],
    ids=["files", "bytes", "blob", "depth"],
)
def test_a_tree_over_its_budget_is_refused_and_one_at_it_is_not(
    upstream: Upstream, budget: TreeBudget, words: str
) -> None:
    files = {b"a\n": (REGULAR, b"x" * 10), b"b": (REGULAR, b"x"), b"c/d/e/f": (REGULAR, b"x")}
    tree, git = written(upstream, files), Git(upstream.git_dir)
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        objects.list_tree(git, tree, budget)
    assert words in caught.value.brief
    assert "Git LFS" in caught.value.hint
    assert len(objects.list_tree(git, tree, TreeBudget(files=3, total_bytes=12, blob_bytes=10, depth=4))) == 3


@pytest.mark.parametrize("length", [300, 10_000, 100_000])
def test_s190_the_name_of_a_directory_counts_for_all_paths_below_it(upstream: Upstream, length: int) -> None:
    """A small tree can have gigabytes of paths: of names that can exist, or longer. Control: with a short name."""
    oid = upstream.git("hash-object", "-w", "--stdin").decode().strip()
    listed = {b"%d" % number: Item(0o100644, bytes.fromhex(oid)) for number in range(500)}
    make = ("hash-object", "-w", "-t", "tree", "--literally", "--stdin")
    below = bytes.fromhex(upstream.git(*make, stdin=format_tree(listed)).decode())
    budget, git = TreeBudget(path_bytes=100_000), Git(upstream.git_dir)
    for name, is_refused in ((b"short", False), (b"x" * length, True)):
        top = upstream.git(*make, stdin=format_tree({name: Item(0o40000, below)})).decode().strip()
        tracemalloc.start()
        try:
            with refused(ErrorCode.QUOTA_EXCEEDED) if is_refused else nullcontext():
                objects.list_tree(git, top, budget, sizes=False)
            assert tracemalloc.get_traced_memory()[1] < 2 * 1024**2
        finally:
            tracemalloc.stop()
    with refused(ErrorCode.QUOTA_EXCEEDED) if length > 16 * 1024 else nullcontext():
        assert objects.list_folders_with(git, top, b"missing", 1000) == []


def test_s190_a_listing_of_long_paths_is_not_cached(upstream: Upstream) -> None:
    """Control: one of short paths is."""
    for name, is_cached in ((b"short", True), (b"x" * 250, False)):
        files = {name + b"/" + name + b"/%d" % number: (REGULAR, b"") for number in range(200)}
        tree, git = written(upstream, files), Git(upstream.git_dir)
        assert len(objects.list_tree(git, tree)) == 200
        assert (git.cache.listings.get(tree) is not None) is is_cached


def test_e06_a_git_bomb_is_refused_at_once(upstream: Upstream) -> None:
    oid = upstream.git("hash-object", "-w", "--stdin", stdin=b"x").decode().strip()
    kind, mode = "blob", "100644"
    for _ in range(6):
        entries = "".join(f"{mode} {kind} {oid}\tf{i}\n" for i in range(10))
        oid = upstream.git("mktree", stdin=entries.encode()).decode().strip()
        kind, mode = "tree", "040000"
    started = time.monotonic()
    with refused(ErrorCode.QUOTA_EXCEEDED):
        objects.list_tree(Git(upstream.git_dir), oid, TreeBudget(files=5000))
    assert time.monotonic() - started < 2 * slowness()


def test_e07_a_large_blob_is_refused_by_its_size_alone(upstream: Upstream) -> None:
    upstream.write("big", bytes(20 * 1024**2))
    upstream.commit()
    git, tree, oid = Git(upstream.git_dir), upstream.oid("HEAD^{tree}"), upstream.oid("HEAD:big")
    with refused(ErrorCode.QUOTA_EXCEEDED):
        objects.list_tree(git, tree, TreeBudget(blob_bytes=1024**2))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        list(blobs.read_blobs(git, [oid], limit=1024**2))


def test_blobs_come_in_the_order_asked_and_as_often(upstream: Upstream) -> None:
    contents = [b"one", b"", b"\0\xff\n", b"two\n", b"one"]
    oids = [upstream.git("hash-object", "-w", "--stdin", stdin=c).decode().strip() for c in contents]
    assert list(blobs.read_blobs(Git(upstream.git_dir), oids)) == contents
    assert [objects.blob_id(c) for c in contents] == oids
    assert list(blobs.read_blobs(Git(upstream.git_dir), [])) == []


def test_a_missing_object_or_a_tree_is_no_blob(upstream: Upstream) -> None:
    upstream.write("f")
    upstream.commit()
    for oid in (NO_OBJECT, upstream.oid("HEAD^{tree}")):
        with refused(ErrorCode.NOT_FOUND):
            list(blobs.read_blobs(Git(upstream.git_dir), [oid]))


def test_peel_and_resolve_answer_none_for_what_is_not_there(upstream: Upstream) -> None:
    upstream.write("f")
    commit = upstream.commit()
    upstream.git("tag", "-a", "-m", "x", "v1")
    git = Git(upstream.git_dir)
    assert refs.resolve_ref(git, "refs/heads/main") == commit
    assert refs.resolve_ref(git, "refs/heads/none") is None
    assert objects.peel(git, upstream.oid("v1"), "commit") == commit
    assert objects.peel(git, upstream.oid("HEAD:f"), "commit") is None
    assert objects.peel(git, "main", "commit") is None
    with refused(ErrorCode.NOT_FOUND):
        objects.tree_of(git, NO_OBJECT)


def test_commits_ahead_are_counted(upstream: Upstream) -> None:
    base = upstream.commit()
    upstream.commit()
    head = upstream.commit()
    git = Git(upstream.git_dir)
    assert (objects.count_commits(git, base, head), objects.count_commits(git, head, base)) == (2, 0)


def test_a_small_listing_is_kept_and_has_the_same_budget(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        upstream.write(name, b"xx\n")
    upstream.commit()
    git, tree = Git(upstream.git_dir), upstream.oid("HEAD^{tree}")
    listed = objects.list_tree(git, tree)
    monkeypatch.setattr(Git, "stream", None)
    assert objects.list_tree(git, tree) == listed
    for budget in (TreeBudget(files=1), TreeBudget(total_bytes=5), TreeBudget(blob_bytes=2)):
        with refused(ErrorCode.QUOTA_EXCEEDED):
            objects.list_tree(git, tree, budget)


def test_directories_with_a_regular_file_of_a_name_are_listed_at_any_depth(upstream: Upstream) -> None:
    """Not those in which a link or a directory has that name."""
    for path in ("m.toml", "a/x/m.toml", "a/y/z/m.toml", "a/other.m.toml", "b/m.toml/file"):
        upstream.write(path, b"1\n")
    (upstream.root / "a" / "m.toml").symlink_to("x/m.toml")
    upstream.commit()
    git, tree = Git(upstream.git_dir), upstream.oid("HEAD^{tree}")
    assert objects.list_folders_with(git, tree, b"m.toml", 100) == [b"a/x", b"a/y/z", b""]
    assert objects.list_folders_with(git, tree, b"none", 100) == []
    assert objects.list_folders_with(git, tree, b"m.toml", 3) is None, "more files than are looked at"
