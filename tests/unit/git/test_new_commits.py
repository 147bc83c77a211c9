"""Trees and commits that are written, with plain git as the oracle."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import ErrorCode
from sandbox.git import new_commits, objects
from sandbox.git.contents import content_of
from sandbox.git.entries import EXECUTABLE, REGULAR, SYMLINK, TreeChange
from sandbox.git.process import Git
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
def test_sha256_repositories_are_understood(upstream: Upstream) -> None:
    source = Upstream(upstream.root.parent / "sha256")
    source.root.mkdir()
    source.git("init", "--quiet", "--object-format=sha256")
    source.write("f", b"x")
    commit = source.commit()
    git = Git(source.git_dir)
    tree = new_commits.build_tree(git, commit, [TreeChange(b"g", REGULAR, content_of(b"y", 64))])
    assert len(tree) == 64
    assert set(leaves(source, tree)) == {b"f", b"g"}


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
    assert new_commits.build_tree(git, base, changes) == written(upstream, expected)
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
    tree = new_commits.build_tree(Git(upstream.git_dir), committed(upstream, before), changes)
    assert tree == written(upstream, after)


@pytest.mark.parametrize(("files", "synced"), [(1, False), (2, False), (3, True), (40, True)])
def test_a_pack_that_is_not_synced_to_disk_does_not_stay(upstream: Upstream, files: int, synced: bool) -> None:
    """At the worst: each file in two directories of its own. The repository says otherwise, and has no say."""
    upstream.git("config", "fastimport.unpackLimit", "1")
    changes = [put(b"%d/%d/f" % (n, n), b"%d" % n) for n in range(files)]
    assert ("core.fsync" in new_commits.fast_import_settings(changes).values()) != synced
    new_commits.build_tree(Git(upstream.git_dir), committed(upstream, BASE), changes)
    packs = list((upstream.git_dir / "objects" / "pack").glob("*.pack"))
    assert synced or packs == []


@pytest.mark.parametrize(("files", "synced"), [(1, False), (40, True)])
def test_only_a_pack_that_stays_is_synced(upstream: Upstream, tmp_path: Path, files: int, synced: bool) -> None:
    """`core.fsync` adds to what git syncs by default: that a pack is not synced must be said."""
    trace = tmp_path / "trace"
    env = new_commits.fast_import_settings([put(b"%d" % n, b"") for n in range(files)])
    blobs = b"".join(b"blob\ndata %d\n%d\n" % (len(b"%d" % n), n) for n in range(files))
    command = ["git", f"--git-dir={upstream.git_dir}", "fast-import", "--quiet", "--done"]
    subprocess.run(command, input=blobs + b"done\n", env={**env, "GIT_TRACE2_EVENT": str(trace)}, check=True)
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    name = events[0]["sid"]
    syncs = [e["value"] for e in events if e["sid"] == name and e.get("key") == "fsync/hardware-flush"]
    assert bool(syncs) == synced


def test_a_pack_that_stays_is_synced_to_disk(upstream: Upstream) -> None:
    changes = [put(b"%d" % n, b"%d" % n) for n in range(200)]
    assert "core.fsync" not in new_commits.fast_import_settings(changes).values()
    new_commits.build_tree(Git(upstream.git_dir), committed(upstream, BASE), changes)
    assert list((upstream.git_dir / "objects" / "pack").glob("*.pack"))


def test_a_file_that_would_sweep_away_a_directory_is_not_built(upstream: Upstream) -> None:
    with refused(ErrorCode.INTERNAL) as caught:
        new_commits.build_tree(Git(upstream.git_dir), committed(upstream, BASE), [put(b"d", b"x")])
    assert "d/" in caught.value.details


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
    oid = new_commits.commit_tree(git, tree, parent, message, IDENTITY)
    raw = upstream.git("cat-file", "commit", oid)
    assert (
        raw
        == (
            f"tree {tree}\nparent {parent}\n"
            "author A. Tester <a@example.invalid> 1700000000 +0000\n"
            "committer A. Tester <a@example.invalid> 1700000000 +0000\n\n" + message
        ).encode()
    )
    assert new_commits.commit_tree(git, tree, parent, message, IDENTITY) == oid  # P16: a repeat gives the same id
