"""Cache clones of checkouts as runners of a CI have them: detached, shallow, without a branch. Real git."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.git import objects, refs, shallow
from sandbox.git.cache_clones import is_intact, refresh, resolve_commit
from sandbox.git.independent_clone import copy_repository
from sandbox.git.log import is_published, is_published_except
from sandbox.git.merge import find_merge_base
from sandbox.git.partial import is_partial
from sandbox.git.process import Git
from sandbox.git.shallow import read_boundary
from sandbox.git.transport import RemoteHead
from tests.unit.checkouts import CHECKOUTS, Forge
from tests.unit.conftest import Upstream, access_to, refused


@pytest.fixture
def forge(upstream: Upstream) -> Forge:
    return Forge(upstream)


@pytest.mark.parametrize("state", CHECKOUTS, ids=lambda state: state.__name__)
def test_the_commit_that_is_checked_out_is_fetched(
    forge: Forge, tmp_path: Path, state: Callable[[Forge, Path], Upstream]
) -> None:
    checkout = state(forge, tmp_path / "checkout")
    access, cache = access_to(str(checkout.root), tmp_path / "known_hosts"), tmp_path / "clones" / "id"

    head = refresh(cache, access)

    git = Git(cache)
    assert head.commit == checkout.oid("HEAD")
    assert resolve_commit(git, head.commit, head.branch) == head.commit
    assert refs.resolve_ref(git, f"refs/remotes/origin/{head.branch}") == head.commit
    assert objects.tree_of(git, head.commit) == checkout.oid("HEAD^{tree}")
    assert read_boundary(cache) == boundary_of(checkout)
    assert is_intact(git)
    assert git.run("rev-list", head.commit) == checkout.git("rev-list", "HEAD")
    assert refresh(cache, access) == head
    if is_partial(git):
        return
    copied = copy_repository(git, tmp_path / "copy", len(head.commit), 10**8)
    assert copied.run("rev-list", head.commit) == checkout.git("rev-list", "HEAD")


def boundary_of(checkout: Upstream) -> frozenset[str]:
    file = checkout.git_dir / "shallow"
    return frozenset(file.read_text().split()) if file.exists() else frozenset()


def test_a_head_that_is_attached_again_is_no_branch_any_more(forge: Forge, tmp_path: Path) -> None:
    cache, access = tmp_path / "clones" / "id", access_to(str(forge.upstream.root), tmp_path / "known_hosts")
    forge.upstream.git("checkout", "--quiet", "--detach")
    lost = forge.upstream.commit()
    assert refresh(cache, access) == RemoteHead("main", lost)
    assert not is_published(Git(cache), lost)
    forge.upstream.git("branch", "--quiet", "space-agent/1-x")
    forge.upstream.git("branch", "--quiet", "-D", "main", "topic")
    assert refresh(cache, access) == RemoteHead("HEAD", lost)
    assert refs.resolve_ref(Git(cache), "refs/remotes/origin/HEAD") == lost
    assert not is_published_except(Git(cache), lost, "space-agent/*"), "a task may have made it"
    forge.upstream.git("checkout", "--quiet", "-b", "main")
    assert refresh(cache, access, only_if_changed=True).commit == forge.upstream.oid("main")
    assert refs.resolve_ref(Git(cache), "refs/remotes/origin/HEAD") is None


def test_a_history_that_was_completed_in_the_checkout_is_complete_here(forge: Forge, tmp_path: Path) -> None:
    checkout = forge.clone(tmp_path / "checkout", "--depth=1")
    cache, access = tmp_path / "clones" / "id", access_to(str(checkout.root), tmp_path / "known_hosts")
    refresh(cache, access)
    checkout.git("fetch", "--quiet", "--depth=2")
    refresh(cache, access, only_if_changed=True)
    assert read_boundary(cache) == boundary_of(checkout) != frozenset()
    checkout.git("fetch", "--quiet", "--unshallow")
    refresh(cache, access)
    assert read_boundary(cache) == frozenset()
    assert Git(cache).run("rev-list", "refs/remotes/origin/main") == forge.upstream.git("rev-list", "main")


def test_each_job_of_a_runner_makes_a_new_checkout_in_the_same_folder(forge: Forge, tmp_path: Path) -> None:
    cache, place = tmp_path / "clones" / "id", tmp_path / "checkout"
    for options in ((), ("--depth=1",), ("--depth=1",), ("--depth=2",), ()):
        forge.upstream.write("f", str(options).encode() + b"\n" * len(list(tmp_path.iterdir())))
        forge.upstream.commit("one more")
        checkout = forge.clone(place, *options)
        access = access_to(str(place), tmp_path / "known_hosts")
        assert refresh(cache, access).commit == checkout.oid("HEAD")
        assert is_intact(Git(cache))
        place.rename(tmp_path / f"old-{len(list(tmp_path.iterdir()))}")
    assert read_boundary(cache) == frozenset()


@pytest.mark.parametrize("was_shallow", [False, True])
def test_a_boundary_cannot_hide_commits_that_are_known(forge: Forge, tmp_path: Path, was_shallow: bool) -> None:
    """A repository may say that any commit is the first: one that a task has committed, too."""
    checkout = forge.clone(tmp_path / "checkout", *(("--depth=2",) if was_shallow else ()))
    cache, access = tmp_path / "clones" / "id", access_to(str(checkout.root), tmp_path / "known_hosts")
    refresh(cache, access)
    git = Git(cache)
    checkout.write("f", b"hidden\n")
    hidden = checkout.commit("hidden")
    checkout.write("f", b"shown\n")
    shown = checkout.commit("shown")
    refresh(cache, access)
    git.run("update-ref", "refs/heads/space-agent/1-x", shown)
    before = read_boundary(cache)

    checkout.write("g", b"later\n")
    checkout.commit("later")
    with (checkout.git_dir / "shallow").open("a") as file:
        file.write(f"{shown}\n")
    refresh(cache, access)

    assert read_boundary(cache) == before
    assert hidden in git.run("rev-list", "refs/heads/space-agent/1-x").decode()


def test_a_boundary_that_a_kill_left_hides_no_commits_after_the_next_fetch(
    forge: Forge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: after the kill it does."""
    checkout = forge.clone(tmp_path / "checkout", "--depth=2")
    cache, access = tmp_path / "clones" / "id", access_to(str(checkout.root), tmp_path / "known_hosts")
    checkout.write("f", b"hidden\n")
    hidden = checkout.commit("hidden")
    checkout.write("f", b"shown\n")
    shown = checkout.commit("shown")
    refresh(cache, access)
    git = Git(cache)
    git.run("update-ref", "refs/heads/space-agent/1-x", shown)
    forget, calls = shallow._forget_boundary, list[object]()

    def kill(git_dir: Path, known: frozenset[str]) -> None:
        calls.append(known)
        if len(calls) == 2:
            raise KeyboardInterrupt
        forget(git_dir, known)

    checkout.write("g", b"later\n")
    checkout.commit("later")
    with (checkout.git_dir / "shallow").open("a") as file:
        file.write(f"{shown}\n")
    monkeypatch.setattr(shallow, "_forget_boundary", kill)
    with pytest.raises(KeyboardInterrupt):
        refresh(cache, access)
    monkeypatch.undo()
    assert hidden not in git.run("rev-list", "refs/heads/space-agent/1-x").decode()

    refresh(cache, access)
    assert hidden in git.run("rev-list", "refs/heads/space-agent/1-x").decode()


def test_a_partial_clone_that_lacks_what_is_checked_out_says_how_to_complete_it(forge: Forge, tmp_path: Path) -> None:
    checkout = forge.clone(tmp_path / "checkout", "--filter=tree:0", "--no-checkout")
    cache, access = tmp_path / "clones" / "id", access_to(str(checkout.root), tmp_path / "known_hosts")
    with refused(ErrorCode.UNSAFE_REPOSITORY) as caught:
        refresh(cache, access)
    assert "git fetch --refetch --no-filter" in caught.value.hint
    assert not cache.exists()
    checkout.git("fetch", "--quiet", "--refetch", "--no-filter")
    assert refresh(cache, access).commit == forge.main


class TestMergeBase:
    """What two commits have in common, as far as a shallow history can tell."""

    def fetched(self, forge: Forge, tmp_path: Path, *options: str) -> Git:
        checkout = forge.clone(tmp_path / "checkout", "--no-single-branch", *options)
        checkout.git("branch", "topic", "origin/topic")
        cache = tmp_path / "clones" / "id"
        refresh(cache, access_to(str(checkout.root), tmp_path / "known_hosts"))
        return Git(cache)

    def test_a_history_that_is_too_short_says_how_to_complete_it(self, forge: Forge, tmp_path: Path) -> None:
        git = self.fetched(forge, tmp_path, "--depth=1")
        with refused(ErrorCode.CONFLICT) as caught:
            find_merge_base(git, forge.main, forge.topic)
        assert "shallow" in caught.value.brief
        for words in ("git fetch --unshallow", "fetch-depth: 0", "GIT_DEPTH"):
            assert words in caught.value.hint

    def test_a_common_commit_behind_which_a_better_one_may_be_hidden_is_no_answer(
        self, forge: Forge, tmp_path: Path
    ) -> None:
        """`old` is in both histories, but a path to the better one, the fork of topic, is cut."""
        old = forge.upstream.git("commit-tree", "-m", "unrelated", f"{forge.fork}^{{tree}}").decode().strip()
        for branch in ("topic", "main"):
            forge.upstream.git("checkout", "--quiet", branch)
            forge.upstream.git("merge", "--quiet", "--no-edit", "-s", "ours", "--allow-unrelated-histories", old)
        ours, theirs = forge.upstream.oid("main"), forge.upstream.oid("topic")
        git = self.fetched(forge, tmp_path, "--depth=2")
        assert git.run("merge-base", ours, theirs).decode().strip() == old
        with refused(ErrorCode.CONFLICT) as caught:
            find_merge_base(git, ours, theirs)
        assert "shallow" in caught.value.brief

    def test_a_commit_that_is_before_the_other_is_the_answer_however_short_the_history(
        self, forge: Forge, tmp_path: Path
    ) -> None:
        git = self.fetched(forge, tmp_path, "--depth=2")
        before = forge.upstream.oid("main~1")
        assert find_merge_base(git, before, forge.main) == before


def test_a_long_history_is_walked_again_with_more_memory(upstream: Upstream, tmp_path: Path) -> None:
    upstream.write("f", b"one\n")
    upstream.commit()
    count, program = tmp_path / "count", tmp_path / "git"
    program.write_text(
        f"""#!/bin/sh
case "$*" in *rev-list*)
  echo >> {count}
  [ $(wc -l < {count}) = 1 ] && echo 'fatal: Out of memory, malloc failed (tried to allocate 9 bytes)' >&2 && exit 128
esac
exec git "$@"
"""
    )
    program.chmod(0o755)
    head = upstream.oid("main")
    with shallow.keep_known_history(Git(upstream.git_dir, str(program)), [head]):
        assert (upstream.git_dir / "sandbox-known-history").read_text() == f"{head}\n"
    assert count.read_text() == "\n\n"
