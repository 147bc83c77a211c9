"""What git gets to see of a local repository."""

from __future__ import annotations

import os
import stat
import tracemalloc
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ErrorCode
from sandbox.git import transport
from sandbox.git.cache_clones import refresh
from sandbox.git.failures import damaged_remote_error
from sandbox.git.local import folders
from sandbox.git.local import read_refs as read_refs_module
from sandbox.git.local.folders import open_folder
from sandbox.git.local.read_refs import read_refs
from sandbox.git.local.remote_hooks import find_skipped_hooks
from sandbox.git.local.repository_layout import open_local_repository
from sandbox.git.local.view import view_local_repository
from sandbox.git.process import Git
from sandbox.git.push.send import push
from tests.unit.conftest import Upstream, access_to, refused, run

MOST = 1000


@pytest.fixture
def project(upstream: Upstream) -> Upstream:
    upstream.write("f", b"x\n")
    upstream.commit()
    upstream.git("branch", "side")
    upstream.git("tag", "-a", "-m", "v1", "v1")
    upstream.git("symbolic-ref", "refs/heads/alias", "refs/heads/side")
    return upstream


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git(tmp_path / "none")


def listed(where: Path) -> bytes:
    return run(["git", "ls-remote", str(where), "HEAD", "refs/heads/*", "refs/tags/*"])


@pytest.mark.parametrize("packed", [False, True])
def test_the_refs_are_those_that_git_lists(project: Upstream, git: Git, packed: bool) -> None:
    if packed:
        project.git("pack-refs", "--all")
        project.git("repack", "-adq")
        project.git("branch", "later")
    with view_local_repository(git, project.root, MOST) as view:
        assert listed(view.path) == listed(project.root)


def test_a_detached_head_is_a_commit(project: Upstream, git: Git) -> None:
    project.git("checkout", "-q", "--detach")
    with view_local_repository(git, project.root, MOST) as view:
        assert view.refs.head == project.oid("HEAD")
        assert listed(view.path) == listed(project.root)


def test_broken_refs_and_lock_files_are_left_out(project: Upstream, git: Git) -> None:
    for name, text in (("empty", ""), ("words", "no ref"), ("x.lock", "a" * 40), ("loop", "ref: refs/heads/loop")):
        (project.git_dir / "refs" / "heads" / name).write_text(text)
    with open_folder(project.git_dir) as folder:
        assert set(read_refs(folder, folder, MOST).values) == {
            "refs/heads/main", "refs/heads/side", "refs/heads/alias", "refs/tags/v1",
        }  # fmt: skip


def test_too_many_refs_are_refused(project: Upstream, git: Git) -> None:
    with refused(ErrorCode.QUOTA_EXCEEDED), view_local_repository(git, project.root, 3):
        pass


def _measure_reading(git_dir: Path) -> int:
    """Read at most ten refs of too many. Returns the most bytes that it took."""
    tracemalloc.start()
    try:
        with open_folder(git_dir) as folder, refused(ErrorCode.QUOTA_EXCEEDED):
            read_refs(folder, folder, 10)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_s190_packed_refs_are_counted_while_they_are_read(project: Upstream) -> None:
    """All lines of a file of up to 256 MiB were in memory, several times, before they were counted."""
    lines = "".join(f"{number:040x} refs/tags/{number:x}\n" for number in range(40_000))
    (project.git_dir / "packed-refs").write_text(lines)
    assert _measure_reading(project.git_dir) < len(lines) // 10


def test_s190_packed_refs_of_other_kinds_are_not_kept(project: Upstream, git: Git) -> None:
    oid = project.oid("HEAD")
    lines = "".join(f"{oid} refs/pull/{number}/head\n" for number in range(40_000))
    (project.git_dir / "packed-refs").write_text(f"{lines}{oid} refs/tags/last\n")
    tracemalloc.start()
    try:
        with open_folder(project.git_dir) as folder:
            assert read_refs(folder, folder, MOST).values["refs/tags/last"] == oid
        assert tracemalloc.get_traced_memory()[1] < len(lines) // 10
    finally:
        tracemalloc.stop()


def test_s190_loose_refs_are_counted_while_they_are_read(project: Upstream) -> None:
    """Each may have 4 KB, and a directory any number."""
    tags = project.git_dir / "refs" / "tags"
    for number in range(1000):
        (tags / f"t{number}").write_text(f"ref: refs/heads/{'x' * 4000}\n")
    assert _measure_reading(project.git_dir) < 1024**2


def test_s190_the_names_of_refs_have_a_sum(project: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: they fit into a larger one. Of a loose ref only its object id is kept."""
    lines = "".join(f"{number:040x} refs/tags/{number}{'x' * 3000}\n" for number in range(10))
    (project.git_dir / "packed-refs").write_text(lines)
    (project.git_dir / "refs" / "tags" / "long").write_text(f"{project.oid('HEAD')}\n{'x' * 4000}")
    for most, is_refused in ((20_000, True), (31_000, False)):
        monkeypatch.setattr(read_refs_module, "_KEPT_BYTES", most)
        with open_folder(project.git_dir) as folder, refused(ErrorCode.QUOTA_EXCEEDED) if is_refused else nullcontext():
            assert len(read_refs(folder, folder, MOST).values) == 15


@pytest.mark.parametrize("line", ["x" * 100_000, f"{'a' * 40} refs/tags/{'x' * 10_000}"])
def test_s190_a_long_line_of_packed_refs_is_refused(project: Upstream, line: str) -> None:
    (project.git_dir / "packed-refs").write_text(f"{line}\n")
    with open_folder(project.git_dir) as folder, refused(ErrorCode.UNSAFE_REPOSITORY):
        read_refs(folder, folder, MOST)


def test_s190_a_directory_of_refs_has_a_limited_number_of_entries(
    project: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MAX_ENTRIES", 3)
    with open_folder(project.git_dir) as folder:
        assert len(read_refs(folder, folder, MOST).values) == 4
        (project.git_dir / "refs" / "heads" / "one-more").write_text("")
        with refused(ErrorCode.UNSAFE_REPOSITORY):
            read_refs(folder, folder, MOST)


def test_our_configuration_is_used_and_theirs_is_not(project: Upstream, git: Git) -> None:
    for key, value in (("uploadpack.allowFilter", "true"), ("alias.x", "!id"), ("uploadpack.packObjectsHook", "id")):
        project.git("config", key, value)
    project.git("config", "uploadpack.allowAnySHA1InWant", "true\n[alias]\n\ty = !id")
    with view_local_repository(git, project.root, MOST) as view:
        text = (view.path / "config").read_text()
        assert "\tallowfilter = true\n" in text
        assert "!id" not in text
        assert "hook" not in text.lower()
    assert not view.path.exists()


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_the_object_format_is_kept(tmp_path: Path, git: Git, kind: str) -> None:
    root = tmp_path / kind
    run(["git", "init", "-q", "--bare", f"--object-format={kind}", str(root)])
    assert open_local_repository(git, root).oid_length == {"sha1": 40, "sha256": 64}[kind]


def test_reftables_are_refused_by_name(project: Upstream, git: Git) -> None:
    project.git("config", "core.repositoryFormatVersion", "1")
    project.git("config", "extensions.refStorage", "reftable")
    with refused(ErrorCode.UNSAFE_REPOSITORY) as caught:
        open_local_repository(git, project.root)
    assert "refs migrate" in caught.value.hint


def test_a_moved_worktree_is_refused_until_it_is_repaired(project: Upstream, tmp_path: Path, git: Git) -> None:
    project.git("worktree", "add", "-q", str(tmp_path / "linked"))
    (tmp_path / "linked").rename(tmp_path / "moved")
    with refused(ErrorCode.UNSAFE_REPOSITORY) as caught:
        open_local_repository(git, tmp_path / "moved")
    assert "git worktree repair" in caught.value.hint
    run(["git", "worktree", "repair"], cwd=tmp_path / "moved")
    assert open_local_repository(git, tmp_path / "moved").common_dir == project.git_dir


def test_a_shared_clone_says_how_to_make_it_complete(project: Upstream, tmp_path: Path) -> None:
    shared = Upstream(tmp_path / "shared")
    project.git("clone", "-q", "--shared", ".", str(shared.root))
    access = access_to(str(shared.root), tmp_path / "known_hosts")
    with refused(ErrorCode.UNSAFE_REPOSITORY) as caught:
        refresh(tmp_path / "clones" / "cache", access)
    assert "git repack -a -d" in caught.value.hint
    shared.git("repack", "-adq")
    (shared.git_dir / "objects" / "info" / "alternates").unlink()
    assert refresh(tmp_path / "clones" / "cache", access).commit == project.oid("HEAD")


@pytest.mark.parametrize("failures", [1, 2])
def test_objects_that_the_owner_packs_meanwhile_are_read_again_once(
    project: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """Control: objects that stay away are damage."""
    read, errors = transport._fetch_readable, [damaged_remote_error("an object is missing")] * failures

    def read_later(*arguments: Any, **options: Any) -> str:
        if errors:
            raise errors.pop()
        return read(*arguments, **options)

    monkeypatch.setattr(transport, "_fetch_readable", read_later)
    access = access_to(str(project.root), tmp_path / "known_hosts")
    if failures == 1:
        assert refresh(tmp_path / "clones" / "cache", access).commit == project.oid("HEAD")
    else:
        with refused(ErrorCode.REMOTE_BROKEN):
            refresh(tmp_path / "clones" / "cache", access)
    assert errors == []


def test_alternates_that_are_not_needed_do_no_harm(project: Upstream, tmp_path: Path) -> None:
    (project.git_dir / "objects" / "info" / "alternates").write_text(f"{tmp_path}/nowhere\n")
    access = access_to(str(project.root), tmp_path / "known_hosts")
    assert refresh(tmp_path / "clones" / "cache", access).commit == project.oid("HEAD")


def test_a_shallow_file_with_other_lines_is_not_repeated(project: Upstream, git: Git) -> None:
    (project.git_dir / "shallow").write_text("words of a file\n")
    with refused(ErrorCode.REMOTE_BROKEN) as caught, view_local_repository(git, project.root, MOST):
        pass
    assert "words" not in f"{caught.value.brief}{caught.value.details}{caught.value.hint}"


class TestPush:
    """A push into a bare repository that others share."""

    @pytest.fixture
    def bare(self, project: Upstream, tmp_path: Path) -> Upstream:
        place = tmp_path / "bare.git"
        project.git("clone", "-q", "--bare", ".", str(place))
        return Upstream(place)

    def send(self, bare: Upstream, tmp_path: Path, branch: str, expected: str | None = None) -> str:
        access = access_to(str(bare.root), tmp_path / "known_hosts")
        cache = tmp_path / "clones" / "cache"
        refresh(cache, access)
        git = Git(cache)
        tree = git.run("mktree").decode().strip()
        identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        commit = git.run("commit-tree", tree, "-m", os.urandom(4).hex(), env=identity).decode().strip()
        push(git, access, commit, branch, expected)
        return commit

    def test_the_commit_arrives_with_its_objects_and_nothing_else(self, bare: Upstream, tmp_path: Path) -> None:
        before = bare.git("for-each-ref")
        commit = self.send(bare, tmp_path, "space-agent/x")
        assert bare.oid("refs/heads/space-agent/x") == commit
        assert set(bare.git("for-each-ref").splitlines()) - set(before.splitlines()) == {
            f"{commit} commit\trefs/heads/space-agent/x".encode()
        }
        bare.git("fsck", "--strict")
        left = [p.name for p in bare.root.rglob("*") if p.name.endswith((".lock", ".keep")) or "tmp_" in p.name]
        assert left == []

    @pytest.mark.parametrize("mask", [0o000, 0o077])
    def test_new_files_have_the_modes_of_the_repository(self, bare: Upstream, tmp_path: Path, mask: int) -> None:
        for folder in (bare.root / "refs" / "heads", bare.root / "objects" / "pack"):
            folder.chmod(0o2775)
        old = os.umask(mask)
        try:
            self.send(bare, tmp_path, "space-agent/x")
        finally:
            os.umask(old)
        made = bare.root / "refs" / "heads" / "space-agent"
        (pack,) = (bare.root / "objects" / "pack").glob("*.pack")
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (made, made / "x", pack)]
        assert [oct(mode) for mode in modes] == ["0o2775", "0o664", "0o444"]

    def test_a_branch_that_is_locked_or_moved_is_not_overwritten(self, bare: Upstream, tmp_path: Path) -> None:
        first = self.send(bare, tmp_path, "space-agent/x")
        lock = bare.root / "refs" / "heads" / "space-agent" / "x.lock"
        lock.touch()
        with refused(ErrorCode.PUSH_REJECTED):
            self.send(bare, tmp_path, "space-agent/x", first)
        assert lock.exists()
        lock.unlink()
        second = self.send(bare, tmp_path, "space-agent/x", first)
        with refused(ErrorCode.PUSH_REJECTED):
            self.send(bare, tmp_path, "space-agent/x", first)
        assert bare.oid("refs/heads/space-agent/x") == second

    def test_a_branch_that_a_linked_worktree_shows_is_not_moved(self, bare: Upstream, tmp_path: Path) -> None:
        """Control: as a branch that none shows it moves."""
        first = self.send(bare, tmp_path, "space-agent/x")
        second = self.send(bare, tmp_path, "space-agent/x", first)
        bare.git("worktree", "add", "-q", str(tmp_path / "linked"), "space-agent/x")
        with refused(ErrorCode.PUSH_REJECTED):
            self.send(bare, tmp_path, "space-agent/x", second)
        assert bare.oid("refs/heads/space-agent/x") == second

    def hook(self, bare: Upstream, place: str) -> Path:
        path = bare.root / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch '{bare.root}/ran'\nexit 1\n")
        path.chmod(0o755)
        return path

    @pytest.mark.parametrize(
        ("place", "config"),
        [
            ("hooks/pre-receive", {}),
            ("hooks/update", {}),
            ("hooks/proc-receive", {}),
            ("elsewhere/update", {"core.hooksPath": "elsewhere"}),
            ("other", {"hook.x.event": "pre-receive", "hook.x.command": "other"}),
        ],
    )
    def test_hooks_that_may_decline_refuse_the_push_instead(
        self, bare: Upstream, tmp_path: Path, place: str, config: dict[str, str]
    ) -> None:
        path = self.hook(bare, place)
        for key, value in config.items():
            bare.git("config", key, value)
        with refused(ErrorCode.POLICY_VIOLATION) as caught:
            self.send(bare, tmp_path, "space-agent/x")
        assert caught.value.reason == "hooks_not_run"
        assert bare.git("for-each-ref", "refs/heads/space-agent") == b""
        path.chmod(0o644)  # as git: a file that is no program is no hook
        if "hook.x.event" in config:
            bare.git("config", "hook.x.enabled", "false")
        self.send(bare, tmp_path, "space-agent/x")
        assert not (bare.root / "ran").exists()

    def test_hooks_that_are_only_informed_are_named_and_not_run(self, bare: Upstream, tmp_path: Path) -> None:
        names = ("reference-transaction", "post-receive", "post-update")
        remote = access_to(str(bare.root), tmp_path / "known_hosts").remote
        assert find_skipped_hooks(Git(tmp_path / "none"), remote) == ()
        for name in ("pre-push", "update.sample", *names):
            self.hook(bare, f"hooks/{name}")
        self.send(bare, tmp_path, "space-agent/x")
        assert find_skipped_hooks(Git(tmp_path / "none"), remote) == names
        assert not (bare.root / "ran").exists()

    def test_hooks_below_the_home_directory_are_found(
        self, bare: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(bare.root))
        self.hook(bare, "mine/post-receive")
        bare.git("config", "core.hooksPath", "~/mine")
        remote = access_to(str(bare.root), tmp_path / "known_hosts").remote
        assert find_skipped_hooks(Git(tmp_path / "none"), remote) == ("post-receive",)
