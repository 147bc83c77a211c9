"""Objects of a look: they can be read while it goes on, and the repository is the same afterwards. Ids: THREATS S07."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.git import blobs, new_commits, objects, refs
from sandbox.git.contents import content_of
from sandbox.git.diff import diff_trees
from sandbox.git.entries import REGULAR, TreeChange
from sandbox.git.process import Git
from sandbox.git.scratch_objects import FOLDER, is_in_use, scratch_objects
from sandbox.git.scratch_trees import compute_tree_id
from tests.unit.conftest import IDENTITY, Upstream, initialised, refused

CONTENT = os.urandom(5000)
CHANGES = [TreeChange(b"d/new", REGULAR, content_of(CONTENT))]
HOLD = """
import os, signal, sys
from pathlib import Path
from sandbox.git.process import Git
from sandbox.git.scratch_objects import scratch_objects
with scratch_objects(Git(Path(sys.argv[1]))) as aside:
    print(aside.new_objects, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def git(upstream: Upstream) -> Git:
    upstream.write("f", b"one\n")
    upstream.commit()
    return Git(upstream.git_dir)


def stored(git: Git) -> dict[str, int]:
    """Each file of the repository and its size."""
    return {str(path): path.stat().st_size for path in git.git_dir.rglob("*") if path.is_file()}


def head(git: Git) -> str:
    return git.run("rev-parse", "HEAD").decode().strip()


@pytest.mark.parametrize("count", [1, 150])
def test_s07_the_objects_can_be_read_and_are_not_kept(git: Git, count: int) -> None:
    """Control: the same tree, built in the repository, leaves its objects."""
    changes = [TreeChange(b"d/%d" % number, REGULAR, content_of(b"%d" % number + CONTENT)) for number in range(count)]
    before, base = stored(git), head(git)
    with scratch_objects(git) as aside:
        tree = new_commits.build_tree(aside, base, changes)
        blob = objects.find_blob(aside, tree, b"d/0")
        assert blob is not None
        assert list(blobs.read_blobs(aside, [blob])) == [b"0" + CONTENT]
        assert len(diff_trees(aside, base, tree)) == count
        assert git.attempt("cat-file", "-e", tree).code != 0
    assert stored(git) == before
    assert list((git.git_dir / FOLDER).iterdir()) == []
    assert new_commits.build_tree(git, base, changes) == tree
    assert sum(stored(git).values()) - sum(before.values()) >= len(CONTENT), "void"


def test_the_id_of_a_tree_is_that_of_the_tree_that_is_built(git: Git) -> None:
    before, base = stored(git), head(git)
    ours = compute_tree_id(git, base, CHANGES)
    assert compute_tree_id(git, base, []) == objects.tree_of(git, base)
    assert stored(git) == before
    assert ours == new_commits.build_tree(git, base, CHANGES)


def test_what_is_kept_after_a_look_is_complete(git: Git) -> None:
    """The cache of git's answers, which both share, says nothing about what the repository has."""
    base = head(git)
    with scratch_objects(git) as aside:
        tree = new_commits.build_tree(aside, base, CHANGES)
        objects.list_tree(aside, tree)
    kept = new_commits.build_commit(git, base, CHANGES, "m\n", IDENTITY)
    assert kept.tree == tree
    refs.move_ref(git, "refs/heads/kept", kept.commit, "0" * 40)
    git.run("fsck", "--connectivity-only", "--strict")
    assert [len(content) for content in blobs.read_blobs(git, [objects.blob_id(CONTENT)])] == [len(CONTENT)]


@pytest.mark.parametrize("name", ["a:b", 'quo"te', "back\\slash", "new\nline", "\u00e4", "\udcff"])
def test_any_path_of_a_repository_will_do(tmp_path: Path, name: str) -> None:
    source = initialised(tmp_path / name)
    source.write("f", b"one\n")
    source.commit()
    git = Git(source.git_dir)
    before = stored(git)
    with scratch_objects(git) as aside:
        tree = new_commits.build_tree(aside, head(git), CHANGES)
        assert {e.path for e in objects.list_tree(aside, tree)} == {b"d/new", b"f"}
    assert stored(git) == before


def test_a_look_that_fails_leaves_nothing_either(git: Git) -> None:
    before = stored(git)
    with refused(ErrorCode.INTERNAL), scratch_objects(git) as aside:
        new_commits.build_tree(aside, head(git), [*CHANGES, TreeChange(b"f/below", REGULAR, content_of(CONTENT))])
    assert stored(git) == before
    assert list((git.git_dir / FOLDER).iterdir()) == []


def test_two_looks_do_not_see_each_other(git: Git) -> None:
    with scratch_objects(git) as first, scratch_objects(git) as second:
        tree = new_commits.build_tree(first, head(git), CHANGES)
        assert second.attempt("cat-file", "-e", tree).code != 0


def test_a_store_is_in_use_until_its_process_ends(git: Git) -> None:
    with scratch_objects(git) as aside:
        assert aside.new_objects is not None
        assert is_in_use(aside.new_objects)
    assert not is_in_use(aside.new_objects)
    argv = [sys.executable, "-c", HOLD, str(git.git_dir)]
    killed = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    left = Path(killed.stdout.strip())
    assert left.is_dir(), "void"
    assert not is_in_use(left)


def test_what_is_no_store_counts_as_in_use(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    assert is_in_use(tmp_path / "file")
    assert is_in_use(tmp_path / "link")
