"""Trees, blobs, commits and refs, with plain git as the oracle. Ids: THREATS sections E, P."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import blobs, objects
from sandbox.git.contents import content_of
from sandbox.git.entries import EXECUTABLE, GITLINK, REGULAR, SYMLINK, TreeChange
from sandbox.git.objects import TreeBudget
from sandbox.git.process import Git, GitResult
from tests.unit.conftest import IDENTITY, Upstream, refused

NO_OBJECT = "1" * 40


def put(path: bytes, content: bytes, mode: str = REGULAR) -> TreeChange:
    return TreeChange(path, mode, content_of(content))


def drop(path: bytes) -> TreeChange:
    return TreeChange(path, "000000", None)


def leaves(source: Upstream, tree: str) -> dict[bytes, tuple[str, str]]:
    """Path to (mode, oid), as plain git lists them."""
    out = source.git("ls-tree", "-r", "-z", "--full-tree", tree)
    records = (record.split(b"\t", 1) for record in out.split(b"\0")[:-1])
    return {path: (head.decode().split()[0], head.decode().split()[2]) for head, path in records}


def written(source: Upstream, files: dict[bytes, tuple[str, bytes]]) -> str:
    """A tree made by plain git's index: the oracle of `build_tree`."""
    env = {"GIT_INDEX_FILE": str(source.root / "oracle-index")}
    source.git("read-tree", "--empty", env=env)
    stdin = b""
    for path, (mode, content) in files.items():
        oid = source.git("hash-object", "-w", "--no-filters", "--stdin", stdin=content).strip()
        stdin += b"%s %s\t%s\0" % (mode.encode(), oid, path)
    source.git("update-index", "-z", "--index-info", stdin=stdin, env=env)
    return source.git("write-tree", env=env).decode().strip()


def committed(source: Upstream, files: dict[bytes, tuple[str, bytes]]) -> str:
    return source.git("commit-tree", written(source, files), stdin=b"x").decode().strip()


# --- names


@pytest.mark.parametrize(
    "name",
    [
        "main",
        "a/b/c",
        "v1.0",
        "release-2.x",
        "feature/issue#42",
        "user@host",
        "a+b",
        "A_b",
        "0",
        "x" * 200,
        "a=b",
        "a%b",
    ],
)
def test_an_ordinary_branch_name_is_accepted(name: str) -> None:
    assert objects.require_ref_name(name) == name


HOSTILE_NAMES = {
    "empty": "",
    "dash": "-x",
    "option": "--upload-pack=touch",
    "dash-inside": "a/-x",
    "backticks": "`id`",
    "quotes": "a'b\"c;d",
    "at": "@",
    "at-inside": "a/@",
    "reflog": "main@{1}",
    "previous": "@{-1}",
    "range": "main..evil",
    "symmetric": "main...evil",
    "search": ":/text",
    "regex": "HEAD^{/re}",
    "parent": "HEAD^",
    "ancestor": "HEAD~1",
    "all": "--all",
    "delete-refspec": ":main",
    "force-refspec": "+main",
    "refspec": "a:b",
    "glob": "refs/heads/*",
    "question": "a?",
    "bracket": "a[b",
    "backslash": "a\\b",
    "space": "a b",
    "newline": "main\n",
    "newline-inside": "a\nb",
    "carriage-return": "main\r",
    "tab": "a\tb",
    "nul": "a\0b",
    "escape": "a\x1b[31m",
    "unicode": "m\u00e4in",
    "bidi": "a\u202eb",
    "lock": "main.lock",
    "lock-inside": "a.lock/b",
    "dot": ".",
    "hidden": ".a",
    "dot-end": "a.",
    "empty-part": "a//b",
    "leading-slash": "/a",
    "trailing-slash": "a/",
    "long": "x" * 245,
    "surrogate": "a\udcff",
}


@pytest.mark.parametrize("name", HOSTILE_NAMES.values(), ids=HOSTILE_NAMES)
def test_e09_e10_a_hostile_name_or_revision_expression_is_refused(name: str) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        objects.require_ref_name(name)
    assert caught.value.details.isascii()


@given(st.text(alphabet=st.sampled_from("ab/.-@{}~^:?*[\\ _+#%=\n"), max_size=12))
def test_what_we_accept_git_accepts(name: str) -> None:
    try:
        objects.require_ref_name(name)
    except SandboxError:
        return
    bad = ("..", "@{", "~", "^", ":", "?", "*", "[", "\\", " ", "//", "\n")
    assert not [b for b in bad if b in name]
    assert not name.startswith(("-", "/", "."))
    assert not name.endswith(("/", "."))


@pytest.mark.parametrize("text", ["a" * 40, "0" * 64])
def test_a_full_object_id_is_one(text: str) -> None:
    assert objects.is_object_id(text)


@pytest.mark.parametrize(
    "text", ["a" * 39, "A" * 40, "a" * 41, "a" * 40 + "\n", "a" * 40 + "^", "HEAD", "", "-" + "a" * 39]
)
def test_anything_else_is_none(text: str) -> None:
    assert not objects.is_object_id(text)


# --- reading


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
        (TreeBudget(blob_bytes=9), "a file of 10 bytes"),
        (TreeBudget(depth=3), "deeper than 3"),
    ],
    ids=["files", "bytes", "blob", "depth"],
)
def test_a_tree_over_its_budget_is_refused_and_one_at_it_is_not(
    upstream: Upstream, budget: TreeBudget, words: str
) -> None:
    files = {b"a": (REGULAR, b"x" * 10), b"b": (REGULAR, b"x"), b"c/d/e/f": (REGULAR, b"x")}
    tree, git = written(upstream, files), Git(upstream.git_dir)
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        objects.list_tree(git, tree, budget)
    assert words in caught.value.brief
    assert len(objects.list_tree(git, tree, TreeBudget(files=3, total_bytes=12, blob_bytes=10, depth=4))) == 3


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
    assert objects.resolve_ref(git, "refs/heads/main") == commit
    assert objects.resolve_ref(git, "refs/heads/none") is None
    assert objects.peel(git, upstream.oid("v1"), "commit") == commit
    assert objects.peel(git, upstream.oid("HEAD:f"), "commit") is None
    assert objects.peel(git, "main", "commit") is None
    with refused(ErrorCode.NOT_FOUND):
        objects.tree_of(git, NO_OBJECT)


def test_sha256_repositories_are_understood(upstream: Upstream) -> None:
    source = Upstream(upstream.root.parent / "sha256")
    source.root.mkdir()
    source.git("init", "--quiet", "--object-format=sha256")
    source.write("f", b"x")
    commit = source.commit()
    git = Git(source.git_dir)
    tree = objects.build_tree(git, commit, [TreeChange(b"g", REGULAR, content_of(b"y", 64))])
    assert len(tree) == 64
    assert set(leaves(source, tree)) == {b"f", b"g"}


# --- building

BASE = {
    b"a": (REGULAR, b"a"),
    b"run": (EXECUTABLE, b"#!/bin/sh\n"),
    b"link": (SYMLINK, b"a"),
    b"d/one": (REGULAR, b"1"),
    b"d/deep/two": (REGULAR, b"2"),
}
CHANGES = {
    "nothing": [],
    "modify": [put(b"a", b"changed")],
    "add": [put(b"n/e/w", b"x")],
    "make-executable": [put(b"a", b"a", EXECUTABLE)],
    "no-more-executable": [put(b"run", b"#!/bin/sh\n")],
    "symlink": [put(b"l2", b"../outside", SYMLINK)],
    "file-to-symlink": [put(b"a", b"run", SYMLINK)],
    "symlink-to-file": [put(b"link", b"x")],
    "delete-last-of-directory": [drop(b"d/deep/two")],
    "delete-all": [drop(p) for p in BASE],
    "directory-to-file": [drop(b"d/one"), drop(b"d/deep/two"), put(b"d", b"now a file")],
    "directory-to-file-any-order": [put(b"d", b"now a file"), drop(b"d/one"), drop(b"d/deep/two")],
    "file-to-directory": [drop(b"a"), put(b"a/b", b"x")],
    "file-to-directory-any-order": [put(b"a/b", b"x"), drop(b"a")],
    "odd-names": [put(n, b"x") for n in (b'q"uo\\te', b"new\nline", b"tab\t", b"\xff\xfe", b" lead", b"-rf", b"a'b")],
    "odd-bytes": [put(b"nul", b"\0\r\n\xff"), put(b"empty", b""), put(b"no-newline", b"x")],
    "percent": [put(b"100%", b"x"), put(b"%41", b"y")],
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_build_tree_makes_the_tree_plain_git_would(upstream: Upstream, changes: list[TreeChange]) -> None:
    base = committed(upstream, BASE)
    expected = dict(BASE)
    for change in changes:
        if change.content is None:
            del expected[change.path]
    expected |= {c.path: (c.mode, b"".join(c.content.read())) for c in changes if c.content is not None}
    git = Git(upstream.git_dir)
    assert objects.build_tree(git, base, changes) == written(upstream, expected)
    assert not git.run("for-each-ref", "refs/sandbox/")


NAMES = st.binary(min_size=1, max_size=6).filter(lambda n: not set(n) & {0, 0x2F} and n not in {b".", b".."})
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
FILES = st.dictionaries(PATHS, st.tuples(st.sampled_from([REGULAR, EXECUTABLE, SYMLINK]), st.binary(max_size=20)))


def consistent(files: dict[bytes, tuple[str, bytes]]) -> dict[bytes, tuple[str, bytes]]:
    """Without files below other files, and without names that git's index refuses."""
    kept: dict[bytes, tuple[str, bytes]] = {}
    for path, value in sorted(files.items()):
        parents = {path[:i] for i, byte in enumerate(path) if byte == 0x2F}
        if not parents & set(kept) and b".git" not in path.lower() and b"git~" not in path.lower():
            kept[path] = value
    return kept


@settings(max_examples=10)
@given(before=FILES.map(consistent), after=FILES.map(consistent))
def test_build_tree_reaches_any_tree_from_any_tree(
    upstream: Upstream, before: dict[bytes, tuple[str, bytes]], after: dict[bytes, tuple[str, bytes]]
) -> None:
    changes = [drop(p) for p in before if p not in after] + [put(p, c, m) for p, (m, c) in after.items()]
    tree = objects.build_tree(Git(upstream.git_dir), committed(upstream, before), changes)
    assert tree == written(upstream, after)


@pytest.mark.parametrize(("files", "synced"), [(1, False), (31, False), (32, False), (33, True), (40, True)])
def test_a_pack_that_is_not_synced_to_disk_does_not_stay(upstream: Upstream, files: int, synced: bool) -> None:
    """At the worst: each file in two directories of its own. The repository says otherwise, and has no say."""
    upstream.git("config", "fastimport.unpackLimit", "1")
    changes = [put(b"%d/%d/f" % (n, n), b"%d" % n) for n in range(files)]
    assert ("core.fsync" in objects.fast_import_settings(changes).values()) != synced
    objects.build_tree(Git(upstream.git_dir), committed(upstream, BASE), changes)
    packs = list((upstream.git_dir / "objects" / "pack").glob("*.pack"))
    assert synced or packs == []


def test_a_pack_that_stays_is_synced_to_disk(upstream: Upstream) -> None:
    changes = [put(b"%d" % n, b"%d" % n) for n in range(200)]
    assert "core.fsync" not in objects.fast_import_settings(changes).values()
    objects.build_tree(Git(upstream.git_dir), committed(upstream, BASE), changes)
    assert list((upstream.git_dir / "objects" / "pack").glob("*.pack"))


def test_a_file_that_would_sweep_away_a_directory_is_not_built(upstream: Upstream) -> None:
    with refused(ErrorCode.INTERNAL) as caught:
        objects.build_tree(Git(upstream.git_dir), committed(upstream, BASE), [put(b"d", b"x")])
    assert "d/" in caught.value.details


# --- commits and refs


MESSAGES = {
    "line": "one line\n",
    "comment": "# not a comment\n",
    "blank-lines": "a\n\n\nb\n",
    "indented": "  indented\n",
    "trailing": "trailing  \n",
    "unicode": "\u00fcml\u00e4ut\n",
    "trailer": "x\n\nCo-authored-by: a <b>\n",
    "patch": "---\ndiff --git a/x b/x\n",
    "scissors": "# ------------------------ >8 ------------------------\nx\n",
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_a_commit_says_exactly_its_message(upstream: Upstream, message: str) -> None:
    parent, git = committed(upstream, BASE), Git(upstream.git_dir)
    tree = objects.tree_of(git, parent)
    oid = objects.commit_tree(git, tree, parent, message, IDENTITY)
    raw = upstream.git("cat-file", "commit", oid)
    assert (
        raw
        == (
            f"tree {tree}\nparent {parent}\n"
            "author A. Tester <a@example.invalid> 1700000000 +0000\n"
            "committer A. Tester <a@example.invalid> 1700000000 +0000\n\n" + message
        ).encode()
    )
    assert objects.commit_tree(git, tree, parent, message, IDENTITY) == oid  # P16: a repeat gives the same id


def test_p17_a_ref_moves_only_from_where_it_was_seen(upstream: Upstream) -> None:
    one, two = committed(upstream, {}), committed(upstream, BASE)
    git, name, none = Git(upstream.git_dir), "refs/heads/t", "0" * 40
    objects.move_ref(git, name, one, none)
    for new, old in ((two, none), (two, two)):
        with refused(ErrorCode.CONFLICT):
            objects.move_ref(git, name, new, old)
    assert objects.resolve_ref(git, name) == one
    objects.move_ref(git, name, two, one)
    assert objects.resolve_ref(git, name) == two


def test_p17_of_two_that_move_a_ref_at_once_one_wins(upstream: Upstream) -> None:
    commits = [committed(upstream, {b"f": (REGULAR, b"%d" % i)}) for i in range(4)]
    git, name, start = Git(upstream.git_dir), "refs/heads/t", committed(upstream, {})
    objects.move_ref(git, name, start, "0" * 40)
    won: list[str] = []
    barrier = threading.Barrier(len(commits))

    def move(commit: str) -> None:
        barrier.wait()
        try:
            objects.move_ref(git, name, commit, start)
        except SandboxError:
            return
        won.append(commit)

    threads = [threading.Thread(target=move, args=(c,)) for c in commits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert objects.resolve_ref(git, name) == won[0]


def test_commits_ahead_are_counted(upstream: Upstream) -> None:
    base = upstream.commit()
    upstream.commit()
    head = upstream.commit()
    git = Git(upstream.git_dir)
    assert (objects.count_commits(git, base, head), objects.count_commits(git, head, base)) == (2, 0)


def test_a_branch_is_resolved_to_its_commit_and_tree_by_one_command(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.write("f", b"x\n")
    commit = upstream.commit()
    upstream.git("tag", "-a", "-m", "x", "v1")
    upstream.git("branch", "other/x")
    upstream.git("update-ref", "refs/tags/refs/remotes/origin/x", commit)
    git = Git(upstream.git_dir)
    assert objects.resolve_ref_to_commit(git, "refs/tags/v1") == commit
    for absent in ("refs/heads/other", "refs/heads/none", "refs/remotes/origin/x"):
        assert objects.resolve_ref_to_commit(git, absent) is None
    assert objects.resolve_ref_to_commit(git, "refs/heads/main") == commit
    tree = upstream.oid("HEAD^{tree}")
    monkeypatch.setattr(Git, "attempt", None)
    assert objects.tree_of(git, commit) == tree


def test_a_branch_whose_commit_is_missing_is_none(upstream: Upstream) -> None:
    upstream.write("f", b"x\n")
    upstream.commit()
    (upstream.git_dir / "refs" / "heads" / "lost").write_text(f"{'1' * 40}\n")
    assert objects.resolve_ref_to_commit(Git(upstream.git_dir), "refs/heads/lost") is None


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
def test_a_branch_at_a_known_commit_is_read_without_a_process(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    upstream.write("f", b"x\n")
    commit = upstream.commit()
    upstream.git("branch", "mainline")
    upstream.git("symbolic-ref", "refs/heads/link", "refs/heads/main")
    upstream.git("tag", "-a", "-m", "x", "v1")
    git, asked, attempt = Git(upstream.git_dir), list[str](), Git.attempt

    def note(self: Git, *args: str, **options: Any) -> GitResult:
        asked.append(args[-1])
        return attempt(self, *args, **options)

    assert objects.resolve_ref_to_commit(git, "refs/heads/main") == commit
    if packed:
        upstream.git("pack-refs", "--all")
    monkeypatch.setattr(Git, "attempt", note)
    assert objects.resolve_ref_to_commit(git, "refs/heads/main") == commit
    assert objects.resolve_ref_to_commit(git, "refs/heads/mainline") == commit
    assert asked == []
    for name, found in (("refs/heads/link", commit), ("refs/tags/v1", commit), ("refs/heads/mai", None)):
        assert objects.resolve_ref_to_commit(git, name) == found
    assert {"refs/heads/link", "refs/tags/v1", "refs/heads/mai"} <= set(asked), "control: of these git is asked"
    upstream.write("f", b"y\n")
    later = upstream.commit()
    assert objects.resolve_ref_to_commit(git, "refs/heads/main") == later, "the file goes before the packed line"


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
