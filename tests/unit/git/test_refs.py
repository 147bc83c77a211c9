"""Names of branches, and refs, with plain git as the oracle. Ids: THREATS sections E, P."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import objects, refs
from sandbox.git.entries import REGULAR, StoredCommit
from sandbox.git.process import Git, GitResult
from sandbox.workbench.tasks.only_copies import WorkRef
from sandbox.workbench.tasks.task_refs import delete_refs
from tests.unit.conftest import Upstream, refused
from tests.unit.git.test_new_commits import committed

NO_OBJECT = "1" * 40


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
    assert refs.require_ref_name(name) == name


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
        refs.require_ref_name(name)
    assert caught.value.details.isascii()


@given(st.text(alphabet=st.sampled_from("ab/.-@{}~^:?*[\\ _+#%=\n"), max_size=12))
def test_what_we_accept_git_accepts(name: str) -> None:
    try:
        refs.require_ref_name(name)
    except SandboxError:
        return
    bad = ("..", "@{", "~", "^", ":", "?", "*", "[", "\\", " ", "//", "\n")
    assert not [b for b in bad if b in name]
    assert not name.startswith(("-", "/", "."))
    assert not name.endswith(("/", "."))


def test_p17_a_ref_moves_only_from_where_it_was_seen(upstream: Upstream) -> None:
    one, two = committed(upstream, {}), committed(upstream, {b"a": (REGULAR, b"a")})
    git, name, none = Git(upstream.git_dir), "refs/heads/t", "0" * 40
    refs.move_ref(git, name, one, none)
    for new, old in ((two, none), (two, two)):
        with refused(ErrorCode.CONFLICT):
            refs.move_ref(git, name, new, old)
    assert refs.resolve_ref(git, name) == one
    refs.move_ref(git, name, two, one)
    assert refs.resolve_ref(git, name) == two


def test_p17_of_two_that_move_a_ref_at_once_one_wins(upstream: Upstream) -> None:
    commits = [committed(upstream, {b"f": (REGULAR, b"%d" % i)}) for i in range(4)]
    git, name, start = Git(upstream.git_dir), "refs/heads/t", committed(upstream, {})
    refs.move_ref(git, name, start, "0" * 40)
    won: list[str] = []
    barrier = threading.Barrier(len(commits))

    def move(commit: str) -> None:
        barrier.wait()
        try:
            refs.move_ref(git, name, commit, start)
        except SandboxError:
            return
        won.append(commit)

    threads = [threading.Thread(target=move, args=(c,)) for c in commits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert refs.resolve_ref(git, name) == won[0]


def test_a_branch_is_resolved_to_its_commit_and_tree_by_one_command(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.write("f", b"x\n")
    commit = upstream.commit()
    upstream.git("tag", "-a", "-m", "x", "v1")
    upstream.git("branch", "other/x")
    upstream.git("update-ref", "refs/tags/refs/remotes/origin/x", commit)
    git = Git(upstream.git_dir)
    assert refs.resolve_ref_to_commit(git, "refs/tags/v1") == commit
    for absent in ("refs/heads/other", "refs/heads/none", "refs/remotes/origin/x"):
        assert refs.resolve_ref_to_commit(git, absent) is None
    assert refs.resolve_ref_to_commit(git, "refs/heads/main") == commit
    tree = upstream.oid("HEAD^{tree}")
    monkeypatch.setattr(Git, "attempt", None)
    assert objects.tree_of(git, commit) == tree


def test_a_branch_whose_commit_is_missing_is_none(upstream: Upstream) -> None:
    upstream.write("f", b"x\n")
    upstream.commit()
    (upstream.git_dir / "refs" / "heads" / "lost").write_text(f"{'1' * 40}\n")
    assert refs.resolve_ref_to_commit(Git(upstream.git_dir), "refs/heads/lost") is None


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

    assert refs.resolve_ref_to_commit(git, "refs/heads/main") == commit
    if packed:
        upstream.git("pack-refs", "--all")
    monkeypatch.setattr(Git, "attempt", note)
    assert refs.resolve_ref_to_commit(git, "refs/heads/main") == commit
    assert refs.resolve_ref_to_commit(git, "refs/heads/mainline") == commit
    assert asked == []
    for name, found in (("refs/heads/link", commit), ("refs/tags/v1", commit), ("refs/heads/mai", None)):
        assert refs.resolve_ref_to_commit(git, name) == found
    assert {"refs/heads/link", "refs/tags/v1", "refs/heads/mai"} <= set(asked), "control: of these git is asked"
    upstream.write("f", b"y\n")
    later = upstream.commit()
    assert refs.resolve_ref_to_commit(git, "refs/heads/main") == later, "the file goes before the packed line"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The git commands that are run to their end."""
    found, attempt = list[str](), Git.attempt

    def note(self: Git, *args: str, **options: Any) -> GitResult:
        found.append(args[0])
        return attempt(self, *args, **options)

    monkeypatch.setattr(Git, "attempt", note)
    return found


NAME = "refs/heads/t/x"


def stored(commit: str) -> StoredCommit:
    """As if it had just been written."""
    return StoredCommit(commit, "")


@pytest.fixture
def moves(upstream: Upstream) -> tuple[Git, list[str]]:
    """A git that knows three commits; the branch is at the first."""
    commits = [committed(upstream, {b"f": (REGULAR, b"%d" % number)}) for number in range(3)]
    git = Git(upstream.git_dir)
    for commit in commits:
        objects.tree_of(git, commit)
    shutil.rmtree(upstream.git_dir / "logs", ignore_errors=True)  # as in a bare repository
    upstream.git("config", "core.logAllRefUpdates", "false")
    upstream.git("update-ref", NAME, commits[0])
    return git, commits


def test_a_branch_with_a_file_moves_without_a_process_as_git_moves_it(
    upstream: Upstream, moves: tuple[Git, list[str]], asked: list[str]
) -> None:
    git, (one, two, three) = moves
    path = upstream.git_dir / NAME
    before = os.umask(0o077)
    try:
        refs.move_ref_to_stored(git, NAME, stored(two), one)
    finally:
        os.umask(before)
    assert asked == []
    ours = path.read_bytes(), path.stat().st_mode
    upstream.git("update-ref", NAME, one)
    upstream.git("update-ref", NAME, two, one)
    assert (path.read_bytes(), path.stat().st_mode) == ours
    assert upstream.git("rev-parse", NAME).decode().strip() == two
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["x"]
    with refused(ErrorCode.CONFLICT):
        refs.move_ref_to_stored(git, NAME, stored(three), one)
    assert asked == ["update-ref"], "the control: git says why"
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["x"]


def test_git_moves_what_has_no_plain_file(upstream: Upstream, moves: tuple[Git, list[str]], asked: list[str]) -> None:
    git, (one, two, three) = moves
    upstream.git("pack-refs", "--all")
    refs.move_ref_to_stored(git, NAME, stored(two), one)
    assert asked == ["update-ref"], "packed"
    (upstream.git_dir / "logs").mkdir()
    refs.move_ref_to_stored(git, NAME, stored(three), two)
    assert asked == ["update-ref"] * 2, "a reflog"
    (upstream.git_dir / "logs").rmdir()
    path, elsewhere = upstream.git_dir / NAME, upstream.root / "elsewhere"
    elsewhere.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(elsewhere)
    refs.move_ref_to_stored(git, NAME, stored(two), three)
    assert asked == ["update-ref"] * 3, "a link"
    assert elsewhere.read_text().strip() == three
    refs.move_ref_to_stored(git, NAME, stored(one), two)
    assert asked == ["update-ref"] * 3, "the control: a plain file again"


def test_a_commit_that_another_process_pruned_gets_no_ref(upstream: Upstream, moves: tuple[Git, list[str]]) -> None:
    """This process has seen it, which says what it is, not that it still exists."""
    git, (one, two, _) = moves
    path = upstream.git_dir / "objects" / two[:2] / two[2:]
    content = path.read_bytes()
    path.unlink()
    assert objects.tree_of(git, two), "the cache still knows it"
    with refused(ErrorCode.CONFLICT):
        refs.move_ref(git, NAME, two, one)
    assert refs.resolve_ref(git, NAME) == one
    path.write_bytes(content)
    refs.move_ref(git, NAME, two, one)
    assert refs.resolve_ref(git, NAME) == two


def test_s173_a_lock_of_another_writer_is_respected_and_one_without_an_owner_removed(
    upstream: Upstream, moves: tuple[Git, list[str]]
) -> None:
    git, (one, two, _) = moves
    lock = upstream.git_dir / f"{NAME}.lock"
    lock.touch()
    with refused(ErrorCode.CONFLICT) as caught:
        refs.move_ref_to_stored(git, NAME, stored(two), one)
    assert f"{NAME} is locked" in caught.value.brief
    assert lock.exists()
    assert refs.resolve_ref(git, NAME) == one
    long_ago = time.time() - 151.0
    os.utime(lock, (long_ago, long_ago))
    upstream.git("update-ref", NAME, two, code=128)  # the control: git never removes it
    refs.move_ref_to_stored(git, NAME, stored(two), one)
    assert not lock.exists()
    assert refs.resolve_ref(git, NAME) == two


def test_s173_a_writer_between_our_look_and_our_move_is_not_overwritten(
    upstream: Upstream, moves: tuple[Git, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer must wait for the lock; one that came before it is seen under it."""
    git, (one, two, three) = moves
    create = os.open

    def overtake(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if str(path).endswith(".lock"):
            (upstream.git_dir / NAME).write_text(f"{three}\n")
        return create(path, flags, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", overtake)
        with refused(ErrorCode.CONFLICT):
            refs.move_ref_to_stored(git, NAME, stored(two), one)
    assert refs.resolve_ref(git, NAME) == three
    refs.move_ref_to_stored(git, NAME, stored(two), three)
    assert refs.resolve_ref(git, NAME) == two


_MOVE = """
import os, pathlib, signal, sys
from sandbox.git import refs
git_dir, step, new, old = sys.argv[1:]
setattr(os, step, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
refs._replace_ref_file(pathlib.Path(git_dir), "refs/heads/t/x", new, old)
"""


def test_s173_a_controller_killed_at_any_step_leaves_the_old_or_the_new_commit(
    upstream: Upstream, moves: tuple[Git, list[str]]
) -> None:
    git, (one, two, _) = moves
    path = upstream.git_dir / NAME
    seen = set()
    for step in ("fchmod", "read", "rename", "none"):
        path.write_text(f"{one}\n")
        done = subprocess.run([sys.executable, "-c", _MOVE, upstream.git_dir, step, two, one], check=False)
        assert done.returncode == (0 if step == "none" else -signal.SIGKILL)
        assert refs.resolve_ref(git, NAME) == (two if step == "none" else one)
        lock = path.with_name("x.lock")
        if lock.exists():
            seen.add(step)
            long_ago = time.time() - 151.0
            os.utime(lock, (long_ago, long_ago))
        refs.move_ref_to_stored(git, NAME, stored(two), two if step == "none" else one)
        assert refs.resolve_ref(git, NAME) == two
        assert not lock.exists()
    assert seen == {"fchmod", "read", "rename"}, "each left its lock"


def test_s173_the_lock_of_a_writer_that_slept_is_not_taken_for_abandoned(
    upstream: Upstream, moves: tuple[Git, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host slept, or its clock was set, while the lock was held."""
    git, (one, two, three) = moves
    lock, read = upstream.git_dir / f"{NAME}.lock", refs._read_own_file
    seen = list[bool]()

    def sleep(path: str) -> bytes:
        long_ago = time.time() - 1000.0
        os.utime(lock, (long_ago, long_ago))
        seen.append(refs.remove_abandoned_locks(upstream.git_dir, [NAME]))
        return read(path)

    monkeypatch.setattr(refs, "_read_own_file", sleep)
    refs.move_ref_to_stored(git, NAME, stored(two), one)
    assert seen == [False]
    assert refs.resolve_ref(git, NAME) == two
    lock.touch()
    with refused(ErrorCode.CONFLICT):
        refs.move_ref_to_stored(git, NAME, stored(three), two)
    assert lock.exists()


def test_s173_a_writer_whose_lock_was_taken_leaves_that_of_the_next_one(
    upstream: Upstream, moves: tuple[Git, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    git, (one, two, _) = moves
    lock, flock = upstream.git_dir / f"{NAME}.lock", fcntl.flock

    def overtake(fd: int, kind: int) -> None:
        """Between its making and its `flock` a lock is taken for abandoned."""
        aside = lock.with_name("aside")
        lock.rename(aside)  # its inode stays in use
        lock.write_bytes(b"of the next writer")
        flock(fd, kind)
        aside.unlink()

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", overtake)
        assert not refs._replace_ref_file(upstream.git_dir, NAME, two, one)
    assert lock.read_bytes() == b"of the next writer"
    assert refs.resolve_ref(git, NAME) == one


def test_s173_locks_of_a_killed_git_do_not_keep_a_ref_from_its_rename_or_deletion(
    upstream: Upstream, moves: tuple[Git, list[str]]
) -> None:
    git, (one, *_) = moves

    def abandon(name: str, age_s: float) -> Path:
        lock = upstream.git_dir / f"{name}.lock"
        lock.touch()
        os.utime(lock, (time.time() - age_s, time.time() - age_s))
        return lock

    new = "refs/heads/t/y"
    abandon(NAME, 151.0)
    abandon(new, 151.0)
    refs.rename_ref(git, NAME, new, one)
    assert (refs.resolve_ref(git, NAME), refs.resolve_ref(git, new)) == (None, one)
    lock = abandon(new, 1.0)
    with refused(ErrorCode.CONFLICT) as caught:
        refs.rename_ref(git, new, NAME, one)
    assert f"{new} is locked" in caught.value.brief
    assert "sandbox gc" in str(caught.value.hint)
    assert lock.exists(), "the control: its owner may be alive"


def test_s173_a_killed_git_does_not_keep_a_task_from_losing_its_refs(
    upstream: Upstream, moves: tuple[Git, list[str]]
) -> None:
    git, (one, *_) = moves
    lock = upstream.git_dir / f"{NAME}.lock"
    lock.touch()
    os.utime(lock, (time.time() - 151.0, time.time() - 151.0))
    delete_refs(git, [WorkRef(NAME, one, "", "")])
    assert refs.resolve_ref(git, NAME) is None


def test_without_refs_no_lock_is_removed(tmp_path: Path) -> None:
    assert not refs.remove_abandoned_locks(tmp_path / "no clone", [NAME])
