"""A tree with a few changes is the one that git builds, or is left to git."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from sandbox.errors import ErrorCode
from sandbox.git import new_commits, objects
from sandbox.git.contents import content_of
from sandbox.git.diff import diff_trees
from sandbox.git.entries import REGULAR, SYMLINK, Content, TreeChange
from sandbox.git.process import Git
from sandbox.git.scratch_objects import scratch_objects
from sandbox.git.scratch_trees import build_scratch_tree, compute_tree_id
from sandbox.git.trees import few_changes
from tests.unit.conftest import Upstream, refused
from tests.unit.git.test_new_commits import BASE, CHANGES, FILES, committed, consistent, drop, put, written


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The git commands that are started."""
    found: list[str] = []
    stream = Git.stream

    def record(git: Git, *args: str, **options: object) -> object:
        found.append(args[0])
        return stream(git, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Git, "stream", record)
    return found


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_it_is_the_tree_of_git(upstream: Upstream, started: list[str], changes: list[TreeChange]) -> None:
    base, git = committed(upstream, BASE), Git(upstream.git_dir)
    expected = new_commits.build_tree(git, base, changes)
    started.clear()
    for _ in range(2):
        assert few_changes.compute_tree_id(git, base, changes) == expected
    assert started.count("cat-file") <= 1, "directories are read once"
    with scratch_objects(git) as aside:
        assert few_changes.store_tree(aside, base, changes) == expected
        assert {"fast-import"}.isdisjoint(started)
        found = {(c.path, c.new_mode, c.new_oid) for c in diff_trees(aside, base, expected) if c.new_oid}
        assert found <= {(c.path, c.mode, c.content.oid) for c in changes if c.content is not None}
        aside.run("fsck", "--connectivity-only", "--strict", expected)


@settings(max_examples=25, deadline=None)
@given(before=FILES.map(consistent), after=FILES.map(consistent))
def test_any_tree_is_reached_or_left_to_git(
    upstream: Upstream, before: dict[bytes, tuple[str, bytes]], after: dict[bytes, tuple[str, bytes]]
) -> None:
    changes = [drop(p) for p in before if p not in after] + [put(p, c, m) for p, (m, c) in after.items()]
    base, git = committed(upstream, before), Git(upstream.git_dir)
    assert few_changes.compute_tree_id(git, base, changes) in {written(upstream, after), None}


def test_a_look_starts_no_git_that_writes_also_with_ids_of_sha256(upstream: Upstream, started: list[str]) -> None:
    source = Upstream(upstream.root.parent / "sha256")
    source.root.mkdir()
    source.git("init", "--quiet", "--object-format=sha256")
    source.write("d/f", b"x")
    base, git = source.commit(), Git(source.git_dir)
    changes = [TreeChange(b"d/g", REGULAR, content_of(b"y", 64))]
    tree = compute_tree_id(git, base, changes)
    with scratch_objects(git) as aside:
        assert build_scratch_tree(aside, base, changes) == tree
        assert [c.path for c in diff_trees(aside, base, tree)] == [b"d/g"]
    assert started.count("cat-file") == 1
    assert "fast-import" not in started
    assert new_commits.build_tree(git, base, changes) == tree
    assert started[-1] == "unpack-objects", "the control"


LEFT_TO_GIT = {
    "a file in the place of a directory": [put(b"d", b"x")],
    "a file below a file": [put(b"a/b", b"x")],
    "a directory that is deleted": [drop(b"d")],
    "a deletion below a file": [drop(b"a/b")],
    "git's own name": [put(b".git/config", b"x")],
    "another spelling of it": [put(b"d/.GIT/config", b"x")],
    "dots": [put(b"d/../x", b"x")],
    "an empty name": [put(b"d//x", b"x")],
    "a link for git": [put(b".gitmodules", b"elsewhere", SYMLINK)],
    "many changes": [put(b"%d" % number, b"x") for number in range(few_changes.MOST_CHANGES + 1)],
}


@pytest.mark.parametrize("changes", LEFT_TO_GIT.values(), ids=LEFT_TO_GIT)
def test_what_is_not_plain_is_left_to_git(upstream: Upstream, changes: list[TreeChange]) -> None:
    base, git = committed(upstream, BASE), Git(upstream.git_dir)
    assert few_changes.compute_tree_id(git, base, changes) is None
    with scratch_objects(git) as aside:
        assert few_changes.store_tree(aside, base, changes) is None


def test_a_large_directory_and_large_contents_are_left_to_git(
    upstream: Upstream, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_changes, "MOST_TREE_BYTES", 1000)
    monkeypatch.setattr(few_changes, "MOST_BYTES", 10)
    many = {b"wide/%d" % number: (REGULAR, b"x") for number in range(100)}
    base, git = committed(upstream, BASE | many), Git(upstream.git_dir)
    with scratch_objects(git) as aside:
        assert few_changes.store_tree(aside, base, [put(b"a", b"0123456789")])
        assert few_changes.store_tree(aside, base, [put(b"a", b"0123456789a")]) is None
    started.clear()
    changes = [put(b"wide/x", b"x")]
    for _ in range(2):
        tree = compute_tree_id(git, base, changes)
    assert started.count("cat-file") <= 1, "that it is large is kept, too"
    assert tree == new_commits.build_tree(git, base, changes)


def test_a_missing_directory_is_left_to_git(upstream: Upstream) -> None:
    base, git = committed(upstream, BASE), Git(upstream.git_dir)
    (found,) = [e.oid for e in objects.list_tree(git, objects.tree_of(git, base)) if e.path == b"d/one"]
    assert found
    tree = objects.find_tree(git, objects.tree_of(git, base), b"d")
    assert tree is not None
    (upstream.git_dir / "objects" / tree[:2] / tree[2:]).unlink()
    assert few_changes.compute_tree_id(git, base, [put(b"d/x", b"x")]) is None
    assert few_changes.compute_tree_id(git, base, [put(b"x", b"x")])


def test_bytes_that_are_not_those_that_were_hashed_are_refused(upstream: Upstream) -> None:
    base, git = committed(upstream, BASE), Git(upstream.git_dir)
    honest = content_of(b"hashed")
    other = Content(honest.oid, honest.size, lambda: iter((b"others",)))
    with refused(ErrorCode.INTERNAL), scratch_objects(git) as aside:
        build_scratch_tree(aside, base, [TreeChange(b"a", REGULAR, other)])
    with pytest.raises(ValueError, match="kept"):
        few_changes.store_tree(git, base, [put(b"a", b"x")])
