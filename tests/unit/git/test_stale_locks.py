"""A lock of git that a killed process left stops no fetch."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import nullcontext
from pathlib import Path
from typing import NoReturn

import pytest

from sandbox.errors import ErrorCode
from sandbox.git import cache_clones
from sandbox.git.process import Git
from sandbox.git.refs import resolve_ref
from sandbox.git.stale_locks import list_stale_locks
from sandbox.git.transport import RemoteAccess
from sandbox.git.unfinished_packs import is_not_open
from tests.unit.conftest import Upstream, access_to, refused

BRANCH, PACKED, UNFINISHED = "refs/remotes/origin/main.lock", "packed-refs.lock", "packed-refs.new"


@pytest.fixture
def reach(upstream: Upstream, tmp_path: Path) -> RemoteAccess:
    return access_to(str(upstream.root), tmp_path / "known_hosts")


@pytest.fixture
def clone(upstream: Upstream, reach: RemoteAccess, tmp_path: Path) -> Path:
    """A clone of a remote that has moved since: `main` has a new commit, and `gone` is deleted."""
    path = tmp_path / "clones" / "id"
    upstream.write("f", b"one\n")
    upstream.commit()
    upstream.git("branch", "gone")
    cache_clones.refresh(path, reach)
    Git(path).run("pack-refs", "--all", "--prune")
    upstream.git("branch", "-D", "gone")
    upstream.write("f", b"two\n")
    upstream.commit()
    return path


def lock(clone: Path, name: str, age_s: float) -> Path:
    path = clone / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (time.time() - age_s,) * 2)
    return path


@pytest.mark.parametrize("name", [BRANCH, PACKED, UNFINISHED])
def test_a_fetch_removes_an_old_lock(name: str, clone: Path, reach: RemoteAccess) -> None:
    left = lock(clone, name, 3600)
    head = cache_clones.refresh(clone, reach)
    assert resolve_ref(Git(clone), "refs/remotes/origin/main") == head.commit
    assert resolve_ref(Git(clone), "refs/remotes/origin/gone") is None
    assert not left.exists()


@pytest.mark.parametrize("opened", [False, True], ids=["young", "opened"])
@pytest.mark.parametrize("name", [BRANCH, PACKED, UNFINISHED])
def test_a_lock_that_may_be_in_use_stays_and_is_named(
    name: str, opened: bool, clone: Path, reach: RemoteAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clone is not checked for damage, which may take minutes."""

    def check(*_: object) -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(cache_clones, "is_intact", check)
    used = lock(clone, name, 3600 if opened else 5)
    with used.open() if opened else nullcontext(), refused(ErrorCode.CONFLICT) as caught:
        cache_clones.refresh(clone, reach)
    assert "`sandbox gc`" in caught.value.hint
    assert used.exists()


def test_a_fetch_removes_what_a_killed_pack_refs_left(clone: Path, reach: RemoteAccess) -> None:
    left = [lock(clone, name, 3600) for name in (PACKED, UNFINISHED)]
    cache_clones.refresh(clone, reach)
    assert resolve_ref(Git(clone), "refs/remotes/origin/gone") is None
    assert not any(path.exists() for path in left)


def test_a_lock_that_a_live_transaction_has_closed_is_not_stale(clone: Path) -> None:
    """git closes the lock of a ref when it is prepared, and holds it until the end: longest while it packs refs."""
    command = ["git", f"--git-dir={clone}", "update-ref", "--stdin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"start\ncreate refs/heads/x refs/remotes/origin/main\nprepare\n")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(2)] == [b"start: ok\n", b"prepare: ok\n"]
        held = clone / "refs/heads/x.lock"
        assert is_not_open(held)  # control
        os.utime(held, (time.time() - 600,) * 2)
        assert list_stale_locks(clone) == []
        process.stdin.write(b"abort\n")


def test_packing_many_refs_removes_an_old_lock(
    clone: Path, reach: RemoteAccess, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_clones.refresh(clone, reach)
    upstream.write("f", b"three\n")
    upstream.commit()
    monkeypatch.setattr(cache_clones, "_LOOSE_REFS", 1)
    left = lock(clone, PACKED, 3600)
    head = cache_clones.refresh(clone, reach)
    assert not left.exists()
    assert head.commit in (clone / "packed-refs").read_text()


def test_only_locks_of_git_are_listed(clone: Path) -> None:
    found = [lock(clone, name, 3600) for name in (BRANCH, "objects/info/commit-graph.lock", PACKED, "shallow.lock")]
    lock(clone, "refs/heads/x.lock", 5)
    lock(clone, "refs/heads/space-agent/y", 3600)
    assert list_stale_locks(clone) == sorted(found)
