"""Partial clones against real git remotes: what comes, when it comes, and that git never fetches by itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ErrorCode
from sandbox.git import blobs, clone_lock, new_commits, objects, refs, transport
from sandbox.git import partial as partial_clones
from sandbox.git.cache_clones import is_intact, open_cache, refresh, replace_corrupt_clone, resolve_commit
from sandbox.git.contents import content_of
from sandbox.git.entries import REGULAR, TreeChange
from sandbox.git.maintenance import ObjectFiles, repack
from sandbox.git.partial import (
    fetch_missing_blobs,
    is_filter_ignored,
    is_partial,
    list_missing_blobs,
    list_missing_objects,
    materialize,
)
from sandbox.git.process import Git
from sandbox.git.transport import RemoteAccess
from sandbox.workbench import Workbench
from tests.unit.conftest import IDENTITY, Upstream, access_to, refused, run

OLD = os.urandom(200_000)


@pytest.fixture
def upstream(upstream: Upstream) -> Upstream:
    """Three commits: a large file that changed, one that stayed, and a branch with a file of its own."""
    upstream.git("config", "uploadpack.allowFilter", "true")
    for content in (OLD, b"new\n"):
        upstream.write("changed", content)
        upstream.write("d/stayed", b"stayed\n")
        upstream.commit()
    upstream.git("tag", "v1")
    upstream.git("checkout", "--quiet", "-b", "topic")
    upstream.write("only/here", b"topic\n")
    upstream.commit()
    upstream.git("checkout", "--quiet", "main")
    return upstream


@pytest.fixture
def access(upstream: Upstream, tmp_path: Path) -> RemoteAccess:
    return access_to(str(upstream.root), tmp_path / "known_hosts")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "clones" / "id"


@pytest.fixture
def partial(access: RemoteAccess, cache: Path) -> Git:
    refresh(cache, access, partial=True)
    return open_cache(cache)


def size(git: Git) -> int:
    return sum(p.stat().st_size for p in (git.git_dir / "objects").rglob("*") if p.is_file())


def packs(git: Git) -> set[Path]:
    return set((git.git_dir / "objects" / "pack").iterdir())


def tree(git: Git, ref: str) -> str:
    return objects.tree_of(git, resolve_commit(git, ref, "main"))


def test_a_partial_clone_has_all_commits_and_the_default_branchs_files(
    partial: Git, upstream: Upstream, access: RemoteAccess, tmp_path: Path
) -> None:
    assert [e.path for e in objects.list_tree(partial, tree(partial, "main"))] == [b"changed", b"d/stayed"]
    assert list(blobs.read_blobs(partial, [upstream.oid("main:changed")])) == [b"new\n"]
    missing = {upstream.oid("main~1:changed"), upstream.oid("topic:only/here")}
    assert set(list_missing_objects(partial)) == missing
    assert objects.count_commits(partial, upstream.oid("main~1"), upstream.oid("topic")) == 2
    refresh(tmp_path / "clones" / "whole", access)
    assert size(partial) < len(OLD) < size(open_cache(tmp_path / "clones" / "whole"))


def test_its_configuration_is_every_clones_and_names_no_remote(
    partial: Git, access: RemoteAccess, tmp_path: Path
) -> None:
    refresh(tmp_path / "clones" / "whole", access)
    config = (partial.git_dir / "config").read_text()
    assert config == (tmp_path / "clones" / "whole" / "config").read_text()
    assert "remote" not in config
    refresh(partial.git_dir, access)
    assert (partial.git_dir / "config").read_text() == config


def test_a_tree_that_is_not_here_says_so_until_it_is_completed(
    partial: Git, access: RemoteAccess, upstream: Upstream
) -> None:
    topic = tree(partial, "topic")
    assert list_missing_blobs(partial, topic) == [upstream.oid("topic:only/here")]
    with refused(ErrorCode.NOT_FOUND) as caught:
        objects.list_tree(partial, topic)
    assert "materialize" in caught.value.hint
    before = packs(partial)
    fetch_missing_blobs(partial, access, topic)
    assert list_missing_blobs(partial, topic) == []
    assert {e.path for e in objects.list_tree(partial, topic)} == {b"changed", b"d/stayed", b"only/here"}
    assert len({p for p in packs(partial) - before if p.suffix == ".pack"}) == 1  # one request
    fetch_missing_blobs(
        partial, access_to("/nonexistent/remote", Path("/nonexistent/known_hosts")), topic
    )  # nothing to ask for


def test_a_refresh_stays_partial_and_brings_the_new_tips_files(
    partial: Git, access: RemoteAccess, upstream: Upstream
) -> None:
    for content in (b"between\n", b"tip\n"):
        upstream.write("changed", content)
        upstream.commit()
    refresh(partial.git_dir, access)
    assert is_partial(partial)
    assert list_missing_blobs(partial, tree(partial, "main")) == []
    assert upstream.oid("main~1:changed") in set(list_missing_objects(partial))


def test_packed_it_has_what_it_had_and_misses_what_it_missed(
    partial: Git, access: RemoteAccess, upstream: Upstream
) -> None:
    """Without the remote. Of what no ref leads to nothing goes. Control: without the setting git refuses."""
    for content in (b"between\n", b"tip\n"):
        upstream.write("changed", content)
        upstream.commit()
        refresh(partial.git_dir, access)
    ours = partial.run("hash-object", "-w", "--stdin", stdin=b"ours").decode().strip()
    lost = partial.run("commit-tree", tree(partial, "main"), stdin=b"lost\n", env=IDENTITY).decode().strip()
    upstream.root.rename(upstream.root.with_name("away"))
    missing, known = set(list_missing_objects(partial)), list_objects(partial)
    assert (len(ObjectFiles.of(partial.git_dir).packs) > 2, len(missing) > 1) == (True, True), "void"
    assert partial.attempt("repack", "-a", "-d", "-q").code != 0, "void"
    repack(partial, unreachable_s=-1.0)
    found = ObjectFiles.of(partial.git_dir)
    assert (len(found.packs), found.loose, found.cruft) == (2, (), ())
    assert set(list_missing_objects(partial)) == missing
    assert list_objects(partial) == known >= {ours, lost}
    upstream.root.with_name("away").rename(upstream.root)
    fetch_missing_blobs(partial, access, tree(partial, "topic"))
    assert list_missing_blobs(partial, tree(partial, "topic")) == []
    materialize(partial, access)
    assert list(list_missing_objects(partial)) == []


def list_objects(git: Git) -> set[str]:
    return set(git.run("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").decode().split())


def test_a_refresh_of_a_whole_clone_leaves_it_whole(access: RemoteAccess, cache: Path) -> None:
    refresh(cache, access)
    refresh(cache, access, partial=True)
    assert not is_partial(open_cache(cache))
    assert list(list_missing_objects(open_cache(cache))) == []


def test_materialized_it_is_an_ordinary_clone(partial: Git, access: RemoteAccess) -> None:
    assert not plain_fsck(partial)  # control
    assert materialize(partial, access) == 2
    assert not is_partial(partial)
    assert plain_fsck(partial)
    assert not list(partial.git_dir.rglob("*.promisor"))
    assert materialize(partial, access) == 0
    refresh(partial.git_dir, access)
    assert plain_fsck(partial)


def plain_fsck(git: Git) -> bool:
    return git.attempt("fsck", "--connectivity-only", "--no-dangling").code == 0


def test_a_server_that_does_not_filter_gives_a_whole_clone(
    upstream: Upstream, access: RemoteAccess, cache: Path
) -> None:
    upstream.git("config", "uploadpack.allowFilter", "false")
    refresh(cache, access, partial=True)
    git = open_cache(cache)
    assert not is_partial(git)
    assert plain_fsck(git)
    assert not list(cache.rglob("*.promisor"))


def test_a_server_that_stops_filtering_leaves_a_partial_clone_partial(
    partial: Git, access: RemoteAccess, upstream: Upstream
) -> None:
    upstream.git("config", "uploadpack.allowFilter", "false")
    upstream.write("more")
    upstream.commit()
    refresh(partial.git_dir, access)
    assert is_partial(partial)
    assert is_intact(partial)


def test_words_of_the_remote_do_not_pass_for_gits() -> None:
    assert is_filter_ignored("x\nwarning: filtering not recognized by server, ignoring\n")
    assert not is_filter_ignored("remote: warning: filtering not recognized by server, ignoring\n")


def test_a_tree_of_too_many_files_is_refused_before_anything_is_fetched(
    partial: Git, access: RemoteAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = packs(partial)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        list_missing_blobs(partial, tree(partial, "topic"), objects.TreeBudget(files=2))
    assert packs(partial) == before


def test_a_failed_completion_of_a_first_clone_leaves_nothing(
    access: RemoteAccess, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sandbox.git.partial.fetch_missing_blobs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        refresh(cache, access, partial=True)
    assert list(cache.parent.iterdir()) == []


def test_a_blob_that_the_remote_lost_is_a_typed_error(partial: Git, access: RemoteAccess, upstream: Upstream) -> None:
    upstream.git("branch", "-D", "topic")
    upstream.git("reflog", "expire", "--expire=now", "--all")
    upstream.git("gc", "--quiet", "--prune=now")
    with refused(ErrorCode.NOT_FOUND) as caught:
        fetch_missing_blobs(partial, access, tree(partial, "topic"))
    assert caught.value.hint


# --- corruption


def test_missing_blobs_are_no_corruption_and_a_missing_tree_is(partial: Git, upstream: Upstream) -> None:
    assert is_intact(partial)
    assert list(list_missing_objects(partial))  # control: something is missing
    for path in packs(partial):
        path.chmod(0o600)
        path.write_bytes(b"garbage")
    assert not is_intact(partial)


def test_a_corrupt_partial_clone_is_made_again_partial_with_what_tasks_stand_on(
    partial: Git, access: RemoteAccess, upstream: Upstream
) -> None:
    base = upstream.oid("topic")
    fetch_missing_blobs(partial, access, objects.tree_of(partial, base))
    built = new_commits.build_tree(partial, base, [TreeChange(b"new", REGULAR, content_of(b"x"))])
    ours = new_commits.commit_tree(partial, built, base, "x\n", IDENTITY)
    refs.move_ref(partial, "refs/heads/space-agent/task-1-x", ours, "0" * 40)
    refs.move_ref(partial, "refs/heads/space-agent/task-2-x", base, "0" * 40)
    replace_corrupt_clone(partial.git_dir, access)
    assert is_partial(partial)
    assert refs.resolve_ref(partial, "refs/heads/space-agent/task-1-x") == ours
    for commit in (ours, base):
        assert {e.path for e in objects.list_tree(partial, objects.tree_of(partial, commit))} >= {b"only/here"}
    assert upstream.oid("main~1:changed") in set(list_missing_objects(partial))


# --- B18


def test_a_repair_asks_the_remote_for_files_before_it_locks_the_clone(
    partial: Git, access: RemoteAccess, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot waited for the download. Only the files of a task that began after it are fetched under the lock."""
    monkeypatch.setattr(clone_lock, "WAIT_S", 0.2)
    fetch, seen = transport.fetch_blobs, []
    refs.move_ref(partial, "refs/heads/space-agent/task-1-x", upstream.oid("topic"), "0" * 40)

    def fetch_blobs(git: Git, *rest: Any) -> None:
        with clone_lock.hold_clone(partial.git_dir):
            fetch(git, *rest)
            seen.append(git.git_dir.name)

    monkeypatch.setattr(partial_clones, "fetch_blobs", fetch_blobs)
    replace_corrupt_clone(partial.git_dir, access)
    assert len(seen) == 2, "of the default branch and of the task"
    assert list_missing_blobs(partial, tree(partial, "topic")) == []


def test_b18_no_command_of_ours_fetches_by_itself(partial: Git, upstream: Upstream, tmp_path: Path) -> None:
    """Control: plain git, told of a remote by the configuration, runs its command at the first missing blob."""
    mark = tmp_path / "mark"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n: > '{mark}'\nexit 1\n")
    program.chmod(0o755)
    oid = upstream.oid("topic:only/here")
    with (partial.git_dir / "config").open("a") as config:
        config.write(
            f'[remote "evil"]\n\turl = ext::{program}\n\tpromisor = true\n[protocol "ext"]\n\tallow = always\n'
        )
    plain = {"GIT_PROTOCOL_FROM_USER": "1", "GIT_NO_LAZY_FETCH": "0"}
    run(["git", f"--git-dir={partial.git_dir}", "cat-file", "-p", oid], env=plain, code=128)
    assert mark.exists(), "void"
    mark.unlink()
    trees = tree(partial, "main"), tree(partial, "topic")
    partial.attempt("cat-file", "-p", oid)
    partial.attempt("ls-tree", "-r", "-l", trees[1])
    partial.attempt("diff-tree", "-r", "-p", *trees)
    partial.attempt("fsck", "--connectivity-only")
    repack(partial)
    assert not mark.exists()


# --- use-cases


@pytest.fixture
def workbench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path / "home", environ={"PATH": os.environ["PATH"]}, allow_file=True)


def test_a_task_lives_on_a_partial_clone(workbench: Workbench, upstream: Upstream) -> None:
    upstream.git("config", "receive.denyCurrentBranch", "ignore")
    with workbench:
        repository = workbench.clone(str(upstream.root), partial=True).repository
        git = open_cache(workbench._services.home.clone(repository.id))
        assert is_partial(git)
        task = workbench.create_task(repository.id, base_branch="topic")
        content = workbench.read_file(task.id, "only/here")
        assert content.content == "topic\n"
        patch = b"--- a/only/here\n+++ b/only/here\n@@ -1 +1,2 @@\n topic\n+more\n"
        workbench.apply_patch(task.id, patch, {"only/here": content.sha256})
        assert [c.path for c in workbench.status(task.id).changes] == ["only/here"]
        assert "+more" in workbench.diff(task.id).text
        commit = workbench.commit(task.id, "more").commit
        assert workbench.push(task.id).commit == commit
        assert upstream.git("show", f"{commit}:only/here") == b"topic\nmore\n"
        assert "+more" in workbench.diff(task.id).text
        assert workbench.fetch(str(upstream.root), upstream.oid("main~1")).files_count == 2
        assert is_partial(git)


def test_what_is_here_needs_no_remote(workbench: Workbench, upstream: Upstream) -> None:
    with workbench:
        repository = workbench.clone(str(upstream.root), partial=True).repository
        upstream.git_dir.rename(upstream.root / "away")
        task = workbench.create_task(repository.id)
        assert workbench.status(task.id).changes == ()
        with refused(ErrorCode.REMOTE_NOT_FOUND):
            workbench.create_task(repository.id, base_branch="topic")
        assert [t.id for t in workbench.tasks()] == [task.id]


def test_materialize_brings_the_rest_once(workbench: Workbench, upstream: Upstream) -> None:
    with workbench:
        repository = workbench.clone(str(upstream.root), partial=True).repository
        git = open_cache(workbench._services.home.clone(repository.id))
        assert workbench.materialize(repository.id) == repository
        assert not is_partial(git)
        upstream.git_dir.rename(upstream.root / "away")
        assert workbench.materialize(repository.id) == repository
        assert workbench.create_task(repository.id, base_branch="topic")
