"""Packing a cache clone: what is deleted and when, beside fetches, commits and readers. Ids: THREATS S07."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ErrorCode
from sandbox.git import maintenance, new_commits, objects, refs
from sandbox.git.cache_clones import refresh
from sandbox.git.contents import content_of
from sandbox.git.entries import REGULAR, TreeChange
from sandbox.git.maintenance import DAY_S, ObjectFiles, is_repack_due, repack, request_repack, store_objects
from sandbox.git.partial import mark_partial
from sandbox.git.process import Git
from tests.unit.conftest import IDENTITY, Upstream, access_to, refused

SIZE = 100_000
NOW = -1.0
"""For `repack`: what an earlier run found is old enough at once."""


@pytest.fixture
def git(upstream: Upstream, cached: Callable[[Upstream], Git]) -> Git:
    upstream.write("f", b"one\n")
    upstream.commit()
    return cached(upstream)


def head(git: Git) -> str:
    return git.run("rev-parse", "refs/remotes/origin/main").decode().strip()


def store(git: Git, content: bytes) -> str:
    """Store a file that no ref leads to. Returns its object id."""
    new_commits.build_tree(git, head(git), [TreeChange(b"large", REGULAR, content_of(content))])
    return objects.blob_id(content)


def has(git: Git, oid: str) -> bool:
    return git.attempt("cat-file", "-e", oid).code == 0


def test_an_object_that_no_ref_leads_to_goes_with_the_second_run_a_day_after_the_first(git: Git) -> None:
    oid = store(git, os.urandom(SIZE))
    size = ObjectFiles.of(git.git_dir).bytes
    repack(git)
    assert has(git, oid)
    repack(git)
    assert has(git, oid), "a second run at once deletes nothing"
    assert repack(git, unreachable_s=NOW) > SIZE * 0.9
    assert not has(git, oid)
    assert ObjectFiles.of(git.git_dir).bytes < size - SIZE * 0.9
    git.run("fsck", "--connectivity-only")


def test_a_commit_that_a_forced_push_removed_is_kept_for_a_day_however_old_its_pack_is(
    git: Git, upstream: Upstream
) -> None:
    gone = head(git)
    for path in (git.git_dir / "objects").rglob("*"):
        os.utime(path, (1, 1))
    upstream.git("commit", "--amend", "--quiet", "-m", "another")
    refresh(git.git_dir, access_to(str(upstream.root), git.git_dir.parent / "known_hosts"))
    assert head(git) != gone
    repack(git)
    assert objects.peel(git, gone, "commit") == gone
    repack(git, unreachable_s=NOW)
    assert objects.peel(git, gone, "commit") is None


def test_an_object_that_a_ref_leads_to_again_is_kept(git: Git) -> None:
    content = os.urandom(SIZE)
    oid = store(git, content)
    repack(git)
    commit = new_commits.build_commit(
        git, head(git), [TreeChange(b"large", REGULAR, content_of(content))], "again\n", {**IDENTITY}
    ).commit
    refs.move_ref(git, "refs/heads/space-agent/task", commit, "0" * 40)
    repack(git, unreachable_s=NOW)
    assert has(git, oid)
    git.run("fsck", "--connectivity-only")


def test_packing_does_not_begin_while_a_commit_is_stored(git: Git) -> None:
    """fast-import does not store again what a pack holds; the pack has to stay until the ref is moved."""
    with store_objects(git), refused(ErrorCode.CONFLICT):
        repack(git)
    repack(git)


def test_two_commits_are_stored_at_once_and_a_third_waits_for_packing(
    git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store_objects(git), store_objects(git):
        pass
    order: list[str] = []
    begun = threading.Event()

    def slow_run(_git: Git, *_: str, **__: object) -> bytes:
        begun.set()
        time.sleep(0.3)
        order.append("packed")
        return b""

    monkeypatch.setattr(Git, "run", slow_run)
    packing = threading.Thread(target=repack, args=(git,))
    packing.start()
    assert begun.wait(10)
    with store_objects(git):
        order.append("stored")
    packing.join()
    assert order == ["packed", "stored"]


def test_a_commit_gives_up_on_packing_that_does_not_end(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "STORE_WAIT_S", 0.1)
    fd = os.open(git.git_dir / "objects", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        with refused(ErrorCode.CONFLICT), store_objects(git):
            pass
    finally:
        os.close(fd)


def test_a_reader_that_began_before_packing_goes_on(git: Git) -> None:
    """Old packs are deleted below a running git, which finds the objects in the new one."""
    wanted = head(git)
    with git.stream("cat-file", "--batch-check", stdin=(stdin := _Pipe()).reader) as process:
        stdin.write(f"{wanted}\n")
        assert b"commit" in process.stdout.readline()
        repack(git)
        repack(git, unreachable_s=NOW)
        stdin.write(f"{wanted}^{{tree}}\n")
        assert b"tree" in process.stdout.readline()
        stdin.close()


class _Pipe:
    def __init__(self) -> None:
        reader, self._writer = os.pipe()
        self.reader = os.fdopen(reader, "rb")

    def write(self, text: str) -> None:
        os.write(self._writer, text.encode())

    def close(self) -> None:
        os.close(self._writer)
        self.reader.close()


def test_a_new_clone_is_not_packed(git: Git) -> None:
    assert not is_repack_due(git.git_dir, time.time(), 7 * DAY_S)


def test_a_clone_is_packed_once_after_it_changed_and_again_for_what_it_left_a_day_later(git: Git) -> None:
    week = time.time() + 8 * DAY_S
    assert is_repack_due(git.git_dir, week, 7 * DAY_S)
    assert not is_repack_due(git.git_dir, week, 0)
    repack(git)
    assert not is_repack_due(git.git_dir, week, 7 * DAY_S), "it did not change"
    store(git, b"new")
    _make_older(git.git_dir / "sandbox-repacked")
    assert is_repack_due(git.git_dir, week, 7 * DAY_S)
    repack(git)
    assert not is_repack_due(git.git_dir, time.time(), 7 * DAY_S)
    assert is_repack_due(git.git_dir, time.time() + 1.1 * DAY_S, 7 * DAY_S), "the cruft pack is a day old"


def _make_older(path: Path) -> None:
    was = path.stat().st_mtime
    os.utime(path, (was - 10, was - 10))


def test_a_clone_with_many_files_is_packed_at_once(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "MANY_LOOSE", 1)
    for number in range(2):
        store(git, b"%d" % number)
    assert is_repack_due(git.git_dir, time.time(), 0)
    repack(git)
    assert not is_repack_due(git.git_dir, time.time(), 0)


def test_a_clone_is_packed_at_the_next_gc_after_its_work_was_given_up(
    git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_repack(git.git_dir)
    assert is_repack_due(git.git_dir, time.time(), 0)
    run = Git.run

    def delete_during_packing(self: Git, *arguments: str, **options: Any) -> bytes:
        done = run(self, *arguments, **options)
        os.utime(git.git_dir / "sandbox-repack-wanted", (1, 1))
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Git, "run", delete_during_packing)
        repack(git)
    assert is_repack_due(git.git_dir, time.time(), 0), "a ref was deleted after git had read it"
    repack(git)
    assert not is_repack_due(git.git_dir, time.time(), 0)


def test_only_many_files_are_a_reason_to_pack_a_partial_clone(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    mark_partial(git.git_dir)
    request_repack(git.git_dir)
    assert not is_repack_due(git.git_dir, time.time() + 99 * DAY_S, DAY_S)
    monkeypatch.setattr(maintenance, "MANY_PACKS", 0)
    assert is_repack_due(git.git_dir, time.time(), 0)
