"""What is remembered of immutable objects: it saves git processes, changes no answer, and ends with the clone."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import new_commits, process, tree_lookup
from sandbox.git.contents import content_of
from sandbox.git.diff import split_renames
from sandbox.git.entries import EXECUTABLE, REGULAR, SYMLINK, RawChange, TreeChange, TreeEntry
from sandbox.git.object_cache import BoundedCache, ObjectCache, combine_differences
from sandbox.git.objects import blob_id
from sandbox.git.process import Git
from sandbox.git.tree_lookup import find_leaves
from sandbox.git.trees import few_changes
from sandbox.workbench import Workbench
from sandbox.workbench.controller.commit_identity import choose_identity
from tests.unit.conftest import IDENTITY, Upstream, refused
from tests.unit.desk import Desk
from tests.unit.git.test_new_commits import BASE, MESSAGES, committed

TREES = st.dictionaries(
    st.sampled_from([b"a", b"b", b"d/c", b"d/e", b"link"]),
    st.tuples(st.sampled_from([REGULAR, EXECUTABLE, SYMLINK]), st.sampled_from(["1" * 40, "2" * 40, "3" * 40])),
)
Tree = dict[bytes, tuple[str, str]]

# A git whose fast-import marks each file executable although nobody asked for it.
TAMPERING = """#!/bin/sh
case "$*" in
*fast-import*) sed 's/^M 100644 /M 100755 /' | exec {git} "$@" ;;
*) exec {git} "$@" ;;
esac
"""


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the git commands that are really started."""
    names: list[str] = []
    start = process._start_process

    def counted(command: process.CommandLine, *rest: object) -> object:
        place = next(i for i, word in enumerate(command.argv) if word.startswith("--git-dir="))
        names.append(command.argv[place + 1])
        return start(command, *rest)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(process, "_start_process", counted)
    return names


# --- the memory


def difference(before: Tree, after: Tree) -> tuple[RawChange, ...]:
    """The oracle: what `diff_trees` says of two trees."""
    found = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path, ("000000", None)), after.get(path, ("000000", None))
        kind = "A" if old[1] is None else "D" if new[1] is None else "M" if old[0][:2] == new[0][:2] else "T"
        if old != new:
            found.append(RawChange(path, old[0], new[0], old[1], new[1], kind))
    return tuple(found)


@given(TREES, TREES, TREES)
def test_two_differences_in_a_row_are_the_difference_of_the_ends(first: Tree, second: Tree, third: Tree) -> None:
    assert combine_differences(difference(first, second), difference(second, third)) == difference(first, third)


def test_kept_differences_grow_with_each_step() -> None:
    known, trees = ObjectCache(), [{b"a": (REGULAR, str(n) * 40)} for n in range(1, 4)]
    known.store_difference("t1", "t2", difference(trees[0], trees[1]))
    known.store_difference("t2", "t3", difference(trees[1], trees[2]))
    assert known.differences.get(("t1", "t3")) == difference(trees[0], trees[2])


def test_a_full_memory_forgets_and_takes_no_more_than_it_holds() -> None:
    memory: BoundedCache[int, int] = BoundedCache(3)
    memory.store({1: 1, 2: 2})
    memory.store({3: 3, 4: 4})
    assert memory.copy_entries() == {3: 3, 4: 4}
    memory.store(dict.fromkeys(range(4), 0))
    assert memory.copy_entries() == {3: 3, 4: 4}


def test_a_long_difference_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.git.object_cache.MAX_CHANGES", 1)
    known = ObjectCache()
    known.store_difference("t1", "t2", difference({}, {b"a": (REGULAR, "1" * 40), b"b": (REGULAR, "1" * 40)}))
    assert known.differences.copy_entries() == {}


def test_only_full_object_ids_are_remembered(upstream: Upstream) -> None:
    """A ref may move: what is below it now says nothing about later."""
    git = Git(upstream.git_dir)
    commit = committed(upstream, BASE)
    upstream.git("update-ref", "refs/heads/moving", commit)
    assert find_leaves(git, "refs/heads/moving", [b"a"]) == find_leaves(git, commit, [b"a"]) != {}
    upstream.git("update-ref", "refs/heads/moving", committed(upstream, {b"b": (REGULAR, b"1")}))
    assert find_leaves(git, "refs/heads/moving", [b"a"]) == {}


def test_a_path_below_another_is_found_from_memory_too(upstream: Upstream) -> None:
    commit = committed(upstream, BASE)
    git, plain = Git(upstream.git_dir), Git(upstream.git_dir)
    for paths in ([b"d"], [b"d/one", b"a"], [b"d", b"d/deep/two", b"absent"], [b"absent"]):
        assert (
            find_leaves(git, commit, paths)
            == find_leaves(git, commit, paths)
            == find_leaves(Git(plain.git_dir), commit, paths)
        )


def test_s190_a_deep_path_is_looked_up_in_time_linear_in_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a million levels all directories are a terabyte; git stops earlier, but has a path for each of many files."""
    entry = TreeEntry(b"a/" * 1_000_000 + b"b", REGULAR, "1" * 40, 1)
    monkeypatch.setattr(tree_lookup, "_list_whole_tree", lambda *_: [entry])
    paths = [entry.path, b"a/a", b"a", b"b", b"a/b"]
    started = time.process_time()
    found = tree_lookup._list_leaves(Git(Path("absent")), "2" * 40, paths)
    assert time.process_time() - started < 5 * slowness()
    assert {path for path, leaves in found.items() if leaves == [entry]} == {entry.path, b"a/a", b"a"}


def test_many_paths_are_found_in_one_listing_of_the_tree(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = committed(upstream, BASE)
    paths = [b"d", b"d/deep/two", b"absent", b"a"]
    expected = find_leaves(Git(upstream.git_dir), commit, paths)
    monkeypatch.setattr(tree_lookup, "_WHOLE_TREE_BYTES", 0)
    assert find_leaves(Git(upstream.git_dir), commit, paths) == expected
    with refused(ErrorCode.NOT_FOUND):
        find_leaves(Git(upstream.git_dir), "0" * 40, paths)


# --- what it saves and what it must not change


def test_a_look_at_the_same_files_starts_no_git(desk: Desk, started: list[str]) -> None:
    desk.write("f", b"1\n")
    desk.workbench.status(desk.task.id)
    started.clear()
    desk.write("f", b"2\n")
    assert [c.path for c in desk.workbench.status(desk.task.id).changes] == ["f"]
    assert started == []


def test_a_diff_costs_one_comparison_and_once_what_reads_the_directories(desk: Desk, started: list[str]) -> None:
    desk.write("f", b"1\n")
    desk.workbench.status(desk.task.id)
    started.clear()
    desk.workbench.diff(desk.task.id)
    assert started == ["cat-file", "diff-tree"]
    started.clear()
    desk.write("f", b"2\n")
    assert "+2" in desk.workbench.diff(desk.task.id).text
    assert started == ["diff-tree"]


def test_a_commit_costs_one_process(desk: Desk, started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    costs = []
    for number in range(3):
        desk.write("f", b"%d\n" % number)
        desk.workbench.status(desk.task.id)
        started.clear()
        desk.workbench.commit(desk.task.id, "one")
        costs.append(list(started))
        if number == 1:
            monkeypatch.setattr(few_changes, "MOST_CHANGES", 0)
    read = ["cat-file"]  # the directory of the first commit, which no look has read
    assert costs == [[*read, "unpack-objects"], ["unpack-objects"], ["fast-import", "diff-tree"]]


def test_a_snapshot_costs_its_objects_and_its_ref(desk: Desk, started: list[str]) -> None:
    desk.write("f", b"0\n")
    desk.workbench.diff(desk.task.id)
    started.clear()
    desk.workbench.snapshot(desk.task.id)
    assert started == ["for-each-ref", "unpack-objects", "update-ref"]


def _edits(desk: Desk) -> Iterator[Callable[[], object]]:
    yield lambda: desk.write("f", b"1\n")
    yield lambda: desk.write("new/file", b"", executable=True)
    yield lambda: (desk.root / "d" / "e" / "x").rename(desk.root / "moved")
    yield lambda: desk.write("f", b"one\ntwo\n")  # as in the base again
    yield lambda: (desk.write("other", b"no link\n")).rename(desk.root / "link")
    yield lambda: (desk.root / "run").chmod(0o644)
    yield lambda: (desk.root / "moved").unlink()
    yield lambda: desk.write("moved/below", b"\xff")


def test_what_is_remembered_changes_no_answer(desk: Desk) -> None:
    """Against a controller that was started for each question, over edits and commits."""
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    for number, edit in enumerate(_edits(desk)):
        edit()
        with Workbench(desk.home, environ=environ, allow_file=True) as fresh:
            assert desk.workbench.status(desk.task.id) == fresh.status(desk.task.id)
            for against in ("head", "base"):
                assert desk.workbench.diff(desk.task.id, against) == fresh.diff(desk.task.id, against)
        if number % 2:
            made = desk.workbench.commit(desk.task.id, f"number {number}")
            assert desk.git("rev-parse", f"{made.commit}^{{tree}}").strip() == made.tree
            assert desk.workbench.status(desk.task.id).ahead == number // 2 + 1


def test_a_clone_in_the_same_place_is_not_taken_for_the_old_one(desk: Desk) -> None:
    clone = desk.home / "repositories" / "clones" / desk.repo_id
    before = desk.workbench._services.repositories.get_object_cache(clone)
    assert desk.workbench._services.repositories.get_object_cache(clone) is before
    aside = clone.with_name("aside")
    clone.rename(aside)
    shutil.copytree(aside, clone)
    assert desk.workbench._services.repositories.get_object_cache(clone) is not before


# --- the comparison still sees what git really wrote


def tampering(folder: Path) -> str:
    program = folder / "tampering-git"
    program.write_text(TAMPERING.format(git=process.git_executable()))
    program.chmod(0o755)
    return str(program)


def unintended(desk: Desk, git: str, act: Callable[[Workbench], object]) -> str:
    """Code and details of the refusal, or nothing."""
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "SANDBOX_GIT_EXECUTABLE": git}
    with Workbench(desk.home, environ=environ, allow_file=True) as workbench:
        try:
            act(workbench)
        except SandboxError as error:
            return f"{error.code}: {error.details}"
    return ""


@pytest.mark.parametrize("what", ["diff", "commit", "snapshot"])
@pytest.mark.parametrize("name", ["f", "new", "moved"], ids=["modified", "added", "renamed"])
def test_a_tree_that_git_stored_otherwise_is_refused(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, name: str
) -> None:
    """Controls: an honest git is believed, and so is this one by a product that does not compare."""
    if name == "moved":
        (desk.root / "f").unlink()
    desk.write(name, b"one\ntwo\nthree\n")
    extra = ["m"] if what == "commit" else []
    monkeypatch.setattr(few_changes, "MOST_CHANGES", 0)  # a diff of few changes is built without git

    def act(workbench: Workbench) -> object:
        return getattr(workbench, what)(desk.task.id, *extra)

    refs = desk.refs()
    assert unintended(desk, tampering(tmp_path), act) == f"{ErrorCode.INTERNAL}: b'{name}'"
    assert desk.refs() == refs
    with monkeypatch.context() as patch:
        patch.setattr(new_commits, "require_intended_changes", lambda *_: None)
        assert unintended(desk, tampering(tmp_path), act) == "", "void"
    if what == "diff":
        assert unintended(desk, "", act) == ""


def test_a_rename_with_an_edit_counts_as_both_of_its_leaves() -> None:
    renamed = RawChange(b"new", REGULAR, EXECUTABLE, "1" * 40, "2" * 40, "R", b"old")
    assert list(split_renames([renamed])) == [
        RawChange(b"old", REGULAR, "000000", "1" * 40, None, "D"),
        RawChange(b"new", "000000", EXECUTABLE, None, "2" * 40, "A"),
    ]


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_a_commit_built_in_one_run_is_the_one_of_plain_git(upstream: Upstream, message: str) -> None:
    parent, git = committed(upstream, BASE), Git(upstream.git_dir)
    commit, tree = new_commits.build_commit(
        git, parent, [TreeChange(b"n", REGULAR, content_of(b"1"))], message, IDENTITY
    )
    assert commit == new_commits.commit_tree(git, tree, parent, message, IDENTITY)
    assert upstream.git("rev-parse", f"{commit}:n").decode().strip() == blob_id(b"1")
    assert upstream.git("for-each-ref", "refs/sandbox") == b""


NAMES = ["A. Tester", ' .J. R. "R".,', "Ünï Cödé", "<evil> x", "...", "a\nb"]


@pytest.mark.parametrize("name", NAMES)
def test_the_identity_of_a_commit_is_the_one_plain_git_would_write(desk: Desk, name: str) -> None:
    with_name = replace(desk.workbench._services, flags={"author": {"name": name}})
    who = choose_identity(with_name.settings, with_name.git_operator).as_environment(desk.task.created_at)
    git = Git(desk.home / "repositories" / "clones" / desk.repo_id)
    head = desk.task.head_commit
    commit, tree = new_commits.build_commit(git, head, [TreeChange(b"n", REGULAR, content_of(b"1"))], "m\n", who)
    assert commit == new_commits.commit_tree(git, tree, head, "m\n", who)
    desk.git("fsck", "--strict", commit)


def test_a_commit_other_than_the_intended_one_is_refused(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the honest git makes it."""
    monkeypatch.setattr(few_changes, "MOST_CHANGES", 0)
    parent = committed(upstream, BASE)
    program = tmp_path / "git"
    program.write_text(
        TAMPERING.format(git=process.git_executable()).replace("s/^M 100644 /M 100755 /", "s/^author A/author B/")
    )
    program.chmod(0o755)
    change = [TreeChange(b"n", REGULAR, content_of(b"1"))]
    assert new_commits.build_commit(Git(upstream.git_dir), parent, change, "m\n", IDENTITY)
    with refused(ErrorCode.INTERNAL):
        new_commits.build_commit(Git(upstream.git_dir, str(program)), parent, change, "m\n", IDENTITY)


def test_a_git_that_stores_nothing_makes_no_commit(upstream: Upstream, tmp_path: Path) -> None:
    """Control: the honest git makes it."""
    parent, change = committed(upstream, BASE), [TreeChange(b"n", REGULAR, content_of(b"1"))]
    program = tmp_path / "git"
    honest = process.git_executable()
    program.write_text(f'#!/bin/sh\ncase "$*" in *unpack-objects*) cat >/dev/null ;; *) exec {honest} "$@" ;; esac\n')
    program.chmod(0o755)
    with refused(ErrorCode.INTERNAL):
        new_commits.build_commit(Git(upstream.git_dir, str(program)), parent, change, "m\n", IDENTITY)
    assert new_commits.build_commit(Git(upstream.git_dir), parent, change, "m\n", IDENTITY)
