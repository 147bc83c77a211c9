"""Tree values against a real repository, with plain git as the oracle. The list: DESIGN section 7, `tree`."""

from __future__ import annotations

import shutil
import tracemalloc
from contextlib import nullcontext
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.git.cache_clones import open_cache
from sandbox.git.entries import Item
from sandbox.git.failures import OutOfMemory
from sandbox.git.maintenance import repack
from sandbox.git.process import Git
from sandbox.git.trees import nodes, spilled_contents, tree_changes, tree_store, tree_value
from sandbox.git.trees.small_packs import SmallPack
from sandbox.git.trees.tree_format import format_tree
from sandbox.git.trees.tree_store import TreeStore
from sandbox.git.trees.tree_value import PRISTINE, TreeValue, open_tree
from tests.unit.conftest import IDENTITY, Upstream, initialised, refused, run

NO_OBJECT = "1" * 40


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    """Files, a program, a link, deeper folders, on main; one more file on `topic`."""
    made = initialised(tmp_path_factory.mktemp("tree") / "source")
    made.write("README", b"read me\n")
    made.write("a/b/c.txt", b"deep\n")
    made.write("a/b.txt", b"beside\n")
    made.write("run.sh", b"#!/bin/sh\n", executable=True)
    (made.root / "link").symlink_to("README")
    made.commit()
    made.git("branch", "topic")
    made.git("tag", "v1")
    made.write("only/here", b"only\n")
    made.commit()
    made.git("branch", "-f", "topic")
    made.git("reset", "--quiet", "--hard", "v1")
    return made


@pytest.fixture
def value(source: Upstream) -> TreeValue:
    return open_tree(Git(source.git_dir), source.oid("v1^{commit}"))


def ls_tree(source: Upstream, tree: str) -> str:
    return source.git("ls-tree", "-r", "--name-only", tree).decode()


# --- reads


def test_reads_a_file_at_the_base_and_below_folders(value: TreeValue) -> None:
    assert value.read("README") == b"read me\n"
    assert value.read("a/b/c.txt") == b"deep\n"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("missing", ErrorCode.NOT_FOUND),
        ("", ErrorCode.UNSAFE_PATH),
        ("README/below", ErrorCode.NOT_FOUND),
        ("a", ErrorCode.INVALID_INPUT),
        ("link", ErrorCode.UNSAFE_PATH),
        ("../README", ErrorCode.UNSAFE_PATH),
        ("/README", ErrorCode.UNSAFE_PATH),
        ("a/.GIT/config", ErrorCode.UNSAFE_PATH),
        ("a\0b", ErrorCode.UNSAFE_PATH),
    ],
)
def test_read_refuses(value: TreeValue, path: str, code: ErrorCode) -> None:
    with refused(code) as caught:
        value.read(path)
    assert caught.value.hint


def test_a_link_is_data(value: TreeValue) -> None:
    assert value.read_link("link") == b"README"
    assert not value.exists("link/README")


@pytest.mark.parametrize("at_once", [tree_value._READ_AT_ONCE, 0], ids=["held", "streamed"])
def test_any_content_is_read_by_the_bytes_of_its_path(
    value: TreeValue, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(tree_value, "_READ_AT_ONCE", at_once)
    changed = value.write("a/new", b"new\n")
    found = {path: changed.stream_raw(path) for path in (b"a/new", b"a/b/c.txt", b"link", b"a", b"gone", b"a/new/x")}
    contents = {path: b"".join(chunks) for path, chunks in found.items() if chunks is not None}
    assert contents == {b"a/new": b"new\n", b"a/b/c.txt": b"deep\n", b"link": b"README"}


def test_a_large_file_is_not_read(value: TreeValue) -> None:
    with refused(ErrorCode.QUOTA_EXCEEDED):
        value.read("README", most=3)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        value.write("README", b"four").read("README", most=3)
    assert value.read("README", most=8) == b"read me\n"


def test_list_walk_and_stat_say_type_mode_and_size(value: TreeValue, source: Upstream) -> None:
    assert [(e.path, oct(e.mode), e.size) for e in value.list()] == [
        ("README", "0o100644", 8), ("a", "0o40000", 0), ("link", "0o120000", 6), ("run.sh", "0o100755", 10),
    ]  # fmt: skip
    assert [entry.path for entry in value.walk()] == [
        "README", "a", "a/b", "a/b.txt", "a/b/c.txt", "link", "run.sh",
    ]  # fmt: skip
    assert [entry.path for entry in value.walk("a", sizes=False)] == ["a/b", "a/b.txt", "a/b/c.txt"]
    assert value.stat("a/b/c.txt") == ("a/b/c.txt", 0o100644, source.oid("v1:a/b/c.txt"), 5)
    for path in ("missing", "README"):
        with refused(ErrorCode.NOT_FOUND):
            value.list(path)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        value.walk(most=3)


def test_glob_matches_files_only(value: TreeValue) -> None:
    assert value.glob("*.txt") == ["a/b.txt", "a/b/c.txt"]
    assert value.glob("a/*.txt") == ["a/b.txt"]
    with refused(ErrorCode.INVALID_INPUT):
        value.glob("[")


# --- writes


def test_a_write_changes_only_the_new_value(value: TreeValue) -> None:
    one, other = value.write("new/deep/x", b"1"), value.write("README", b"2")
    assert (one.read("new/deep/x"), other.read("README"), value.read("README")) == (b"1", b"2", b"read me\n")
    assert not value.exists("new")
    assert not other.exists("new")
    assert nodes.entries_of(value.store, one.root)[b"a"] is nodes.entries_of(value.store, other.root)[b"a"]


def test_modes_are_kept_on_change(value: TreeValue) -> None:
    assert value.write("run.sh", b"x").stat("run.sh").mode == 0o100755
    assert value.write("run.sh", b"x", executable=False).stat("run.sh").mode == 0o100644
    assert value.write("n", b"x").stat("n").mode == 0o100644
    assert value.write("n", b"x", executable=True).stat("n").mode == 0o100755


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("a", ErrorCode.INVALID_INPUT),
        ("README/x", ErrorCode.INVALID_INPUT),
        ("link", ErrorCode.UNSAFE_PATH),
        ("link/x", ErrorCode.UNSAFE_PATH),
        (".git/hooks/pre-push", ErrorCode.UNSAFE_PATH),
        ("x/GIT~1/config", ErrorCode.UNSAFE_PATH),
        ("", ErrorCode.UNSAFE_PATH),
        ("x/" * 64 + "x", ErrorCode.UNSAFE_PATH),
    ],
)
def test_write_refuses(value: TreeValue, path: str, code: ErrorCode) -> None:
    with refused(code) as caught:
        value.write(path, b"x")
    assert caught.value.hint


def test_links_are_written_unless_git_refuses_the_name(value: TreeValue) -> None:
    assert value.write_link("l", b"../../etc/passwd").read_link("l") == b"../../etc/passwd"
    for path in (".gitmodules", "d/.GitAttributes"):
        with refused(ErrorCode.UNSAFE_PATH):
            value.write_link(path, b"x")


def test_remove_takes_empty_folders_along_and_never_the_root(value: TreeValue) -> None:
    assert not value.remove("a/b/c.txt").exists("a/b")
    assert value.remove("a/b/c.txt").exists("a")
    assert not value.remove("a", recursive=True).exists("a")
    assert not value.remove("link").exists("link")
    for path, code in (("a", "invalid_input"), ("", "invalid_input"), ("missing", "not_found")):
        with refused(ErrorCode(code)):
            value.remove(path)


def test_removing_everything_is_the_empty_tree(value: TreeValue, source: Upstream) -> None:
    empty = value.remove("a", recursive=True).remove("README").remove("link").remove("run.sh")
    assert empty.tree == run(["git", "mktree"], cwd=source.root).decode().strip()
    assert empty.list() == []
    assert empty.write("x", b"").read("x") == b""


# --- snapshots, differences


def test_a_snapshot_is_the_tree_that_git_would_make(value: TreeValue, source: Upstream) -> None:
    assert value.snapshot() == PRISTINE
    changed = value.write("a-b", b"1").write("a.b", b"2").write("a0", b"3").write("a/b/d", b"4").remove("README")
    snapshot = changed.snapshot()
    env = {"GIT_INDEX_FILE": str(source.root / "oracle")}
    source.git("read-tree", "v1", env=env)
    for path, content in (("a-b", b"1"), ("a.b", b"2"), ("a0", b"3"), ("a/b/d", b"4")):
        oid = source.git("hash-object", "-w", "--stdin", stdin=content).decode().strip()
        source.git("update-index", "--add", "--cacheinfo", f"100644,{oid},{path}", env=env)
    source.git("update-index", "--force-remove", "README", env=env)
    assert snapshot == source.git("write-tree", env=env).decode().strip()
    source.git("fsck", "--strict", "--full", "--no-dangling")


def test_a_snapshot_is_replayed_by_another_store_and_equal_content_is_one_id(
    value: TreeValue, source: Upstream
) -> None:
    snapshot = value.write("x", b"1").write("y/z", b"2").snapshot()
    assert value.write("y/z", b"0").write("y/z", b"2").write("x", b"1").snapshot() == snapshot
    other = open_tree(Git(source.git_dir), value.base_commit).restore(snapshot)
    assert (other.read("x"), other.read("y/z"), other.read("README")) == (b"1", b"2", b"read me\n")
    assert other.restore(PRISTINE).is_pristine
    assert value.write("x", b"1").remove("x").snapshot() == PRISTINE


@pytest.mark.parametrize("snapshot", [NO_OBJECT, "HEAD", "", "1" * 64, "v1:a"])
def test_a_missing_snapshot_is_not_found(value: TreeValue, snapshot: str) -> None:
    with refused(ErrorCode.NOT_FOUND):
        value.restore(snapshot)
    with refused(ErrorCode.NOT_FOUND):
        value.restore(value.stat("README").oid)


def test_diff_is_sorted_and_finds_renames_only_when_asked(value: TreeValue) -> None:
    changed = value.write("README", b"x").remove("a/b/c.txt").write("z", b"deep\n").write_link("run.sh", b"x")
    assert [(c.status, c.path) for c in changed.diff()] == [
        ("M", b"README"), ("D", b"a/b/c.txt"), ("T", b"run.sh"), ("A", b"z"),
    ]  # fmt: skip
    assert [(c.status, c.path, c.old_path) for c in changed.diff(renames=True)][-1] == ("R", b"z", b"a/b/c.txt")
    assert changed.restore(PRISTINE).diff() == []
    assert [c.path for c in value.remove("a", recursive=True).write("a", b"file").diff()] == [
        b"a", b"a/b.txt", b"a/b/c.txt",
    ]  # fmt: skip


# --- commits


def test_a_commit_moves_the_ref_and_is_the_next_base(value: TreeValue, source: Upstream) -> None:
    source.git("branch", "-f", "work", "v1")
    done = value.write("x", b"1").commit("a subject\n", IDENTITY, ref="refs/heads/work")
    assert source.oid("refs/heads/work") == done.commit
    assert (
        source.git("log", "-1", "--format=%s|%an|%P", done.commit).decode()
        == f"a subject|A. Tester|{value.base_commit}\n"
    )
    assert done.value.is_pristine
    assert done.value.base_commit == done.commit
    source.git("fsck", "--strict", "--full", "--no-dangling")
    with refused(ErrorCode.NOTHING_TO_COMMIT):
        done.value.commit("again", IDENTITY)


def test_a_lost_race_moves_nothing(value: TreeValue, source: Upstream) -> None:
    source.git("branch", "-f", "race", "topic")
    with refused(ErrorCode.CONFLICT):
        value.write("x", b"1").commit("m", IDENTITY, ref="refs/heads/race")
    assert source.oid("refs/heads/race") == source.oid("topic")


@pytest.mark.parametrize(
    ("message", "identity", "ref"),
    [
        ("a\0b", {}, None),
        ("m", {"GIT_AUTHOR_NAME": "a\ncommitter x"}, None),
        ("m", {"GIT_COMMITTER_EMAIL": "a> <b"}, None),
        ("m", {}, "refs/heads/../x"),
        ("m", {}, "HEAD"),
        ("m", {}, "--stdin"),
    ],
)
def test_commit_refuses(value: TreeValue, message: str, identity: dict[str, str], ref: str | None) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        value.write("x", b"1").commit(message, {**IDENTITY, **identity}, ref=ref)


def test_a_commit_stores_one_object_besides_what_was_written(value: TreeValue, source: Upstream) -> None:
    before = _loose(source)
    value.write("a/b/unique", b"never before").commit("m", IDENTITY)
    assert len(_loose(source) - before) == 1 + 3 + 1  # the file, its directories up to the root, the commit


@pytest.mark.parametrize("has_memory", [True, False])
def test_many_objects_are_stored_as_packs(
    value: TreeValue, source: Upstream, monkeypatch: pytest.MonkeyPatch, has_memory: bool
) -> None:
    """A disk syncs each file. Control: a git without memory for a pack leaves them to files of their own."""
    monkeypatch.setattr(tree_store, "_PACKED_BYTES", 2000)
    if not has_memory:
        monkeypatch.setattr(SmallPack, "store", _raise_out_of_memory)
    before, packs = _loose(source), _packs(source)
    changed = value
    for number in range(60):
        changed = changed.write(f"new/{number}", b"%d" % number * 40)
    stored = changed.commit("m", IDENTITY)
    new = len(_loose(source) - before)
    assert (new < 20, len(_packs(source) - packs) > 1) == (has_memory, has_memory)
    for number in (0, 30, 59):
        assert source.git("show", f"{stored.commit}:new/{number}") == b"%d" % number * 40
    source.git("fsck", "--strict")
    assert stored.value.read("new/59") == b"59" * 40


def _raise_out_of_memory(*_: object) -> None:
    raise OutOfMemory(ErrorCode.QUOTA_EXCEEDED, "no memory", details="")


def _packs(source: Upstream) -> set[Path]:
    return set((source.git_dir / "objects" / "pack").glob("*.pack"))


def _count_deleted_files(source: Upstream) -> int:
    """Open files of this process that the repository's directory does not list."""
    paths = [str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    return sum(path.startswith(str(source.git_dir)) and path.endswith(" (deleted)") for path in paths)


def _loose(source: Upstream) -> set[Path]:
    return set((source.git_dir / "objects").glob("??/*"))


def test_checkout_drops_changes_only_when_told(value: TreeValue, source: Upstream) -> None:
    topic = source.oid("topic")
    changed = value.write("x", b"1")
    with refused(ErrorCode.DIRTY_WORKSPACE):
        changed.checkout(topic)
    assert changed.checkout(topic, discard=True).read("only/here") == b"only\n"
    assert value.checkout(topic).base_commit == topic


# --- bounds, formats


def test_contents_over_the_bound_are_neither_in_memory_nor_in_the_repository(
    value: TreeValue, source: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_value, "PENDING_BYTES", 10)
    before = _loose(source)
    tracemalloc.start()
    try:
        changed = value
        for number in range(8):
            changed = changed.write(f"spilled/{number}", bytes([number]) * 1024**2)
        assert tracemalloc.get_traced_memory()[0] < 1024**2
    finally:
        tracemalloc.stop()
    assert changed.pending_bytes == 0
    assert [changed.read(f"spilled/{number}") for number in range(8)] == [bytes([n]) * 1024**2 for n in range(8)]
    assert b"".join(changed.stream("spilled/3", 2 * 1024**2)) == b"\3" * 1024**2
    assert _loose(source) == before


def test_contents_over_the_bound_are_committed_however_often_the_clone_was_packed(
    source: Upstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They were objects that no ref led to, so a value of two days ago gave a commit without its files."""
    run(["git", "clone", "--quiet", "--bare", str(source.root), str(tmp_path / "clone.git")])
    git = Git(tmp_path / "clone.git")
    monkeypatch.setattr(tree_value, "PENDING_BYTES", 10)
    changed = open_tree(git, source.oid("main")).write("spilled", b"12345678").write("also", b"123456789")
    repack(git)
    repack(git, unreachable_s=-1.0)  # what the first run found is old enough at once
    made = changed.commit("m", IDENTITY, ref="refs/heads/main")
    git.run("fsck", "--connectivity-only")
    assert git.run("cat-file", "blob", f"{made.commit}:also") == b"123456789"


def test_files_of_contents_over_the_bound_are_closed_when_no_value_needs_them(
    value: TreeValue, source: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_value, "PENDING_BYTES", 10)
    monkeypatch.setattr(spilled_contents, "FILE_BYTES", 2048)
    changed = value
    for number in range(6):
        changed = changed.write(f"closed/{number}", b"x" * 1024)
    assert _count_deleted_files(source) == 3
    changed.snapshot()
    assert _count_deleted_files(source) <= 1, "what is stored does not need them; the last one may take more"


def test_the_cache_of_directories_is_bounded(value: TreeValue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_store, "CACHED_ENTRIES", 5)
    assert len(list(value.walk())) == 7
    assert value.read("a/b/c.txt") == b"deep\n"
    assert 0 < value.store.cached_entries <= 5


def test_a_deep_tree_is_bounded(value: TreeValue, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = value.write("d/e/f/g/h", b"x")
    monkeypatch.setattr(nodes, "MAX_DEPTH", 3)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        deep.walk()


def _store_tree(source: Upstream, entries: dict[bytes, tuple[int, str]]) -> str:
    """Store a directory without git's own checks; returns its id."""
    items = {name: Item(mode, bytes.fromhex(oid)) for name, (mode, oid) in entries.items()}
    raw = source.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=format_tree(items))
    return raw.decode().strip()


def _open_stored(source: Upstream, tree: str) -> TreeValue:
    root = Item(0o40000, bytes.fromhex(tree))
    return TreeValue(TreeStore(Git(source.git_dir), len(root.oid)), NO_OBJECT, root, root)


def test_s190_a_walk_reads_no_more_directories_than_its_limit_needs(upstream: Upstream) -> None:
    """Eight directories of 5,000 files: all of them were in memory before the limit was looked at."""
    file = upstream.git("hash-object", "-w", "--stdin").decode().strip()
    folders = {
        b"%d" % number: (
            0o40000,
            _store_tree(upstream, {b"%d-%d" % (number, i): (0o100644, file) for i in range(5000)}),
        )
        for number in range(8)
    }
    value = _open_stored(upstream, _store_tree(upstream, folders))
    tracemalloc.start()
    try:
        with refused(ErrorCode.QUOTA_EXCEEDED):
            value.walk(most=100, sizes=False)
        assert tracemalloc.get_traced_memory()[1] < 1536 * 1024
    finally:
        tracemalloc.stop()
    assert len(list(value.walk(most=40_008, sizes=False))) == 40_008
    with refused(ErrorCode.QUOTA_EXCEEDED):
        value.walk(most=40_007, sizes=False)


def test_s190_one_directory_that_is_many_times_in_a_tree_counts_as_often(upstream: Upstream) -> None:
    """Thousandfold in three levels. Control: with as many as there are, all are listed."""
    oid = upstream.git("hash-object", "-w", "--stdin").decode().strip()
    mode = 0o100644
    for _ in range(3):
        oid, mode = _store_tree(upstream, {b"%d" % number: (mode, oid) for number in range(10)}), 0o40000
    value = _open_stored(upstream, oid)
    assert len(list(value.walk(most=1110, sizes=False))) == 1110
    with refused(ErrorCode.QUOTA_EXCEEDED):
        value.walk(most=1109, sizes=False)


def test_s190_the_name_of_a_directory_counts_for_all_paths_below_it(upstream: Upstream) -> None:
    """A name of 4 KB in the path of 20,000 files is 80 MB. Control: the same files below a short name."""
    file = upstream.git("hash-object", "-w", "--stdin").decode().strip()
    files = _store_tree(upstream, {b"%d" % number: (0o100644, file) for number in range(20_000)})
    for name, is_refused in ((b"short", False), (b"x" * 4000, True)):
        value = _open_stored(upstream, _store_tree(upstream, {name: (0o40000, files)}))
        with refused(ErrorCode.QUOTA_EXCEEDED) if is_refused else nullcontext():
            value.walk(sizes=False)


def test_s190_the_path_of_a_directory_counts_for_each_of_its_entries(upstream: Upstream) -> None:
    """A million entries below a path of 4 KB would be 4 GB. Control: the same directory at a short path."""
    file = upstream.git("hash-object", "-w", "--stdin").decode().strip()
    files = _store_tree(upstream, {b"%d" % number: (0o100644, file) for number in range(20_000)})
    folder = files
    for _ in range(16):
        folder = _store_tree(upstream, {b"x" * 250: (0o40000, folder)})
    value = _open_stored(upstream, _store_tree(upstream, {b"short": (0o40000, files), b"long": (0o40000, folder)}))
    assert len(value.list("short", sizes=False)) == 20_000
    with refused(ErrorCode.QUOTA_EXCEEDED):
        value.list("/".join(["long", *["x" * 250] * 16]), sizes=False)


def test_s190_a_name_that_is_longer_than_a_path_is_refused(upstream: Upstream) -> None:
    """git stores it, and its fsck takes it; no file of this name can exist. Control: one as long as a path."""
    file = upstream.git("hash-object", "-w", "--stdin").decode().strip()
    for length, is_refused in ((4095, False), (4096, True)):
        value = _open_stored(upstream, _store_tree(upstream, {b"x" * length: (0o100644, file)}))
        with refused(ErrorCode.UNSAFE_REPOSITORY) if is_refused else nullcontext():
            assert len(value.list(sizes=False)) == 1


def _fill(source: Upstream, number: int, mode: int, oid: str) -> str:
    """Store a directory with so many equal entries; returns its id."""
    return _store_tree(source, {b"%d" % i: (mode, oid) for i in range(number)})


def test_s190_a_comparison_has_one_limit_for_all_directories(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit was that of each new directory: 40 times one of 2,000 files were 80,000 changes, and 26 MB.

    Control: with a limit for all of a few of them, they are found, from either side.
    """
    file = upstream.git("hash-object", "-w", "--stdin").decode().strip()
    folder, empty = _fill(upstream, 2000, 0o100644, file), _fill(upstream, 0, 0, file)
    monkeypatch.setattr(tree_changes, "MAX_CHANGES", 4000)
    for count, is_refused in ((2, False), (40, True)):
        full = _fill(upstream, count, 0o40000, folder)
        for base, other in ((empty, full), (full, empty)):
            value = _open_stored(upstream, base).restore(other)
            tracemalloc.start()
            try:
                with refused(ErrorCode.QUOTA_EXCEEDED) if is_refused else nullcontext():
                    assert len(value.diff()) == 4000
                assert tracemalloc.get_traced_memory()[1] < 5 * 1024**2
            finally:
                tracemalloc.stop()


def test_s190_changed_files_are_counted_while_they_are_found(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: exactly as many as the limit."""
    first, second = (upstream.git("hash-object", "-w", "--stdin", stdin=b).decode().strip() for b in (b"1", b"2"))
    value = _open_stored(upstream, _fill(upstream, 2000, 0o100644, first))
    value = value.restore(_fill(upstream, 2000, 0o100644, second))
    value.diff()
    made: list[bytes] = []

    def count_digits(_store: object, node: Item) -> str:
        made.append(node.oid)
        return node.oid.hex()

    monkeypatch.setattr(tree_changes, "_digits", count_digits)
    monkeypatch.setattr(tree_changes, "MAX_CHANGES", 1999)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        value.diff()
    assert len(made) == 2 * 1999
    monkeypatch.setattr(tree_changes, "MAX_CHANGES", 100)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        value.diff()
    assert len(made) == 2 * (1999 + 100)


def test_s190_paths_of_a_comparison_have_a_sum(upstream: Upstream) -> None:
    """One directory of 10,000 files at ten names of 4 KB is 400 MB of paths. Control: at one of them."""
    file = upstream.git("hash-object", "-w", "--stdin").decode().strip()
    folder, empty = _fill(upstream, 10_000, 0o100644, file), _fill(upstream, 0, 0, file)
    for count, is_refused in ((1, False), (10, True)):
        full = _store_tree(upstream, {b"%04000d" % i: (0o40000, folder) for i in range(count)})
        value = _open_stored(upstream, empty).restore(full)
        with refused(ErrorCode.QUOTA_EXCEEDED) if is_refused else nullcontext():
            assert len(value.diff()) == 10_000


def test_s190_names_that_are_compared_are_counted_while_they_are_read(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand equal names, with one change, cost 3 MB, at each place of the directory again."""
    first, second = (upstream.git("hash-object", "-w", "--stdin", stdin=b).decode().strip() for b in (b"1", b"2"))
    entries = {b"%d" % i: (0o100644, first) for i in range(10_000)}
    one, other = (_store_tree(upstream, {**entries, b"x": (0o100644, oid)}) for oid in (first, second))
    before, after = (_fill(upstream, 3, 0o40000, oid) for oid in (one, other))
    monkeypatch.setattr(tree_changes, "MAX_COMPARED", 2 * (3 + 3 * 10_001))
    assert len(_open_stored(upstream, before).restore(after).diff()) == 3
    for most, peak in ((2 * (3 + 3 * 10_001) - 1, None), (1000, 2 * 1024**2)):
        monkeypatch.setattr(tree_changes, "MAX_COMPARED", most)
        value = _open_stored(upstream, before).restore(after)
        tracemalloc.start()
        try:
            with refused(ErrorCode.QUOTA_EXCEEDED):
                value.diff()
            assert peak is None or tracemalloc.get_traced_memory()[1] < peak
        finally:
            tracemalloc.stop()


def test_a_repository_of_sha256_has_ids_of_32_bytes(tmp_path: Path) -> None:
    run(["git", "init", "--quiet", "--object-format=sha256", "--initial-branch=main", str(tmp_path)])
    source = Upstream(tmp_path)
    source.write("a/b", b"1")
    value = open_tree(Git(source.git_dir), source.commit())
    done = value.write("a/c", b"2").commit("m", IDENTITY)
    assert len(done.commit) == 64
    assert ls_tree(source, done.commit) == "a/b\na/c\n"
    source.git("fsck", "--strict", "--full", "--no-dangling")


def test_a_directory_of_another_mode_is_one(upstream: Upstream) -> None:
    """git takes what it fetches as a directory, and writes it with its own mode, in its order. Control: the order of
    something else is another one, which git refuses.
    """
    upstream.write("README", b"read me\n")
    upstream.write("a/b/c.txt", b"deep\n")
    upstream.commit()
    blob, folder = (bytes.fromhex(upstream.oid(f"HEAD:{path}")) for path in ("README", "a/b"))
    items = [(b"100644", b"b.txt", blob), (b"40755", b"b", folder)]  # in git's order

    def store(tree: bytes) -> str:
        found = upstream.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=tree)
        return found.decode().strip()

    odd = store(b"".join(b"%b %b\0%b" % item for item in items))
    value = open_tree(Git(upstream.git_dir), upstream.git("commit-tree", odd, "-m", "odd").decode().strip())
    assert value.read("b/c.txt") == b"deep\n"
    upstream.git("fsck", "--strict", saved := value.write("new", b"new\n").snapshot())
    assert ls_tree(upstream, saved).split() == ["b.txt", "b/c.txt", "new"]
    wrong = store(format_tree({name: Item(int(mode, 8), oid) for mode, name, oid in items}))
    run(["git", "fsck", wrong], cwd=upstream.git_dir, code=1)


# --- a clone that is replaced (docs/adr/0200)


@pytest.fixture
def clone(source: Upstream, tmp_path: Path) -> Path:
    """Two clones, `clone` and `new`."""
    for name in ("clone", "new"):
        run(["git", "clone", "--quiet", "--bare", "--no-hardlinks", str(source.root), str(tmp_path / name)])
    return tmp_path / "clone"


def replace_clone(clone: Path) -> None:
    clone.rename(clone.with_name("aside"))
    clone.with_name("new").rename(clone)


def open_clone(clone: Path) -> TreeValue:
    return open_tree(open_cache(clone), "v1")


def require_whole(clone: Path) -> None:
    """Each ref leads to objects that are there."""
    run(["git", f"--git-dir={clone}", "rev-list", "--objects", "--all", "--quiet"])


def test_what_was_stored_without_a_ref_is_missed_in_a_replaced_clone(clone: Path) -> None:
    """The commit was accepted, with a directory that no clone in place has."""
    value = open_clone(clone).write("new/f", b"work\n")
    value.snapshot()
    replace_clone(clone)
    with refused(ErrorCode.CONFLICT) as caught:
        value.commit("m", IDENTITY, ref="refs/heads/x", expected="0" * 40)
    assert "Open the tree again" in caught.value.hint
    with refused(ErrorCode.CONFLICT):
        value.snapshot()
    assert not (clone / "refs/heads/x").exists()
    require_whole(clone)


def test_the_base_is_required_in_a_replaced_clone(clone: Path) -> None:
    value = open_clone(clone).write("new/f", b"work\n")
    shutil.rmtree(clone.with_name("new"))
    run(["git", "init", "--quiet", "--bare", str(clone.with_name("new"))])
    replace_clone(clone)
    with refused(ErrorCode.CONFLICT):
        value.commit("m", IDENTITY, ref="refs/heads/x", expected="0" * 40)
    assert not (clone / "refs/heads/x").exists()


def test_a_value_that_was_never_stored_goes_on_in_a_replaced_clone(clone: Path) -> None:
    value = open_clone(clone).write("new/f", b"work\n")
    replace_clone(clone)
    made = value.commit("m", IDENTITY, ref="refs/heads/x", expected="0" * 40)
    assert made.value.read("new/f") == b"work\n"
    require_whole(clone)
