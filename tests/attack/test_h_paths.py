"""THREATS H: paths and file kinds. The product reads and writes below one kept handle and never through a link.

Races are statistical: the naive control has to win inside its budget, else the test is void; attempts are reported.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.host_speed import slowness
from sandbox.attack.harness.scene import FILES, SECRET, hash_of, remove
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.container import UserIds
from tests.attack.arena import RACE_S, Arena, outcome, refused

pytestmark = pytest.mark.must
BUDGET_S = 4.0
NEW = b"--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+x\n"
LEXICAL = [
    "../x", "a/../../x", "/etc/passwd", "//x", "C:\\x", "..\\x", "~/.ssh/id", "", ".", "..", "a/", "a//b", "./a",
    "a\0b",
    "x" * 4097, "n" * 256, "a/..", "a\nb", "a\x1b[31mb", ".git/config", "d/.GIT/x", "git~1", "%2e%2e/x",
    "%2Fetc/passwd",
    "d/%2e%2e/%2e%2e/x", "\ud800", "-/../../x",
]  # fmt: skip


def test_h01_lexical(arena: Arena) -> None:
    """Control: joining such a path (or a prefix test on it) leaves the worktree."""
    assert os.path.join(arena.worktree, "/etc/passwd") == "/etc/passwd"  # noqa: PTH118 - the point
    assert f"{arena.worktree}-evil".startswith(str(arena.worktree))
    before = arena.read_canaries()
    for path in LEXICAL:
        with refused(ErrorCode.UNSAFE_PATH):
            arena.workbench.read_file(arena.task.id, path)
        with refused(ErrorCode.UNSAFE_PATH):
            arena.workbench.apply_patch(arena.task.id, NEW % b"n", {path: None})
        assert arena.read_canaries() == before, path


TARGETS = {
    "h02_passwd": "/etc/passwd",
    "h02_environ": "/proc/self/environ",
    "h02_zero": "/dev/zero",
    "h04_root": "/proc/self/root/etc/passwd",
    "h04_cwd": "/proc/self/cwd/pyproject.toml",
    "h04_thread": "/proc/thread-self/root/etc/passwd",
    "outside": "{outside}/secret",
    "relative": "../../../../../outside/secret",
}


def guests_own(folder: Path) -> Path:
    """The directory made anew, as a guest can: an overlay does not exchange directories of the layer below."""
    shutil.rmtree(folder)
    folder.mkdir()
    return folder


def test_h02_h04_link_at_the_end(arena: Arena) -> None:
    for name, target in TARGETS.items():
        (arena.worktree / name).symlink_to(target.format(outside=arena.outside))
        with (arena.worktree / name).open("rb") as stream:
            assert stream.read(1), f"void: a naive open reads {name}"
    before = arena.read_canaries()
    for name in TARGETS:
        with refused(ErrorCode.UNSAFE_PATH):
            arena.workbench.read_file(arena.task.id, name)
        with refused(ErrorCode.UNSAFE_PATH):
            arena.workbench.apply_patch(arena.task.id, NEW % name.encode(), {name: None})
    arena.run_every_operation()
    assert arena.read_canaries() == before
    assert not arena.in_odb(SECRET)


def test_h03_h04_link_on_the_way(arena: Arena) -> None:
    targets = ("{outside}", "/proc/self/root{outside}", "/proc/self/cwd", "../../../../../outside")
    ways = [f"way{number}" for number in range(len(targets))]
    for way, target in zip(ways, targets, strict=True):
        (arena.worktree / way).symlink_to(target.format(outside=arena.outside))
        assert list((arena.worktree / way).iterdir()), f"void: {target}"
    before = arena.read_canaries()
    for way in ways:
        for path in (f"{way}/secret", f"{way}/new", f"{way}/deeper/new"):
            with refused(ErrorCode.UNSAFE_PATH):
                arena.workbench.apply_patch(arena.task.id, NEW % path.encode(), {path: None})
        with refused(ErrorCode.UNSAFE_PATH):
            arena.workbench.read_file(arena.task.id, f"{way}/secret")
    arena.workbench.status(arena.task.id)
    arena.run_every_operation()
    assert arena.read_canaries() == before
    assert not arena.in_odb(SECRET)


def test_h05_ancestor_swap_while_reading(arena: Arena, racer: Callable[..., Any], record_property: Any) -> None:
    real, link = guests_own(arena.worktree / "d"), arena.worktree / "dlink"
    (real / "f").write_text("innocent\n")
    link.symlink_to(arena.outside)
    with racer("swap", real, link):
        tries, ends = 0, time.monotonic() + BUDGET_S
        while time.monotonic() < ends:
            tries += 1
            with contextlib.suppress(OSError):
                path = arena.worktree / "d" / "f"
                if path.resolve().is_relative_to(arena.worktree) and path.read_bytes() == SECRET:
                    break
        else:
            pytest.fail(f"void: no leak in {tries} tries of resolve-then-open")
        attempts, ends = 0, time.monotonic() + RACE_S
        while time.monotonic() < ends:
            attempts += 1
            with contextlib.suppress(SandboxError):
                assert SECRET.decode() not in arena.workbench.read_file(arena.task.id, "d/f").content
    record_property("attempts", attempts)
    assert attempts > 200


def test_h06_whole_tree_operations_under_the_swap(
    arena: Arena, racer: Callable[..., Any], record_property: Any
) -> None:
    """Control: `git add` with an explicit gitdir stores the secret."""
    real, link = guests_own(arena.worktree / "d"), arena.worktree / "dlink"
    (real / "f").write_text("innocent\n")
    link.symlink_to(arena.outside)
    git_dir = arena.root / "control.git"
    arena.require_git("clone", "-q", "--bare", str(arena.remote), str(git_dir), cwd=arena.root)
    oid = arena.require_git("hash-object", "--stdin", cwd=arena.root, stdin=SECRET)
    with racer("swap", real, link):
        ends = time.monotonic() + 2 * BUDGET_S
        while arena.git("cat-file", "-e", oid, cwd=arena.root, git_dir=git_dir).code != 0:
            assert time.monotonic() < ends, "void: git never followed the link"
            for _ in range(10):
                arena.git("--work-tree", str(arena.worktree), "add", "--", "d/f", cwd=arena.worktree, git_dir=git_dir)
        attempts, ends = 0, time.monotonic() + RACE_S
        while time.monotonic() < ends:
            attempts += 1
            for step in (
                lambda: arena.workbench.status(arena.task.id),
                lambda: arena.workbench.diff(arena.task.id),
                lambda: arena.workbench.commit(arena.task.id, "x"),
            ):
                with contextlib.suppress(SandboxError):
                    answer: Any = step()
                    assert SECRET.decode().strip() not in str(answer)
    record_property("attempts", attempts)
    assert attempts > 5
    assert not arena.in_odb(SECRET)


def test_h08_writes_under_the_swap(arena: Arena, racer: Callable[..., Any], record_property: Any) -> None:
    """Parent and leaf are exchanged for links while the product writes. Control: check, then open by name."""
    real, link = guests_own(arena.worktree / "d"), arena.worktree / "dlink"
    link.symlink_to(arena.outside)
    leaf, leaf_link = arena.worktree / "leaf", arena.worktree / "leaflink"
    leaf.write_text("x\n")
    leaf_link.symlink_to(arena.outside / "secret")
    before = arena.read_canaries()
    with racer("swap", real, link), racer("swap", leaf, leaf_link):
        ends = time.monotonic() + BUDGET_S
        while not (arena.outside / "control").exists():
            assert time.monotonic() < ends, "void: the naive write never escaped"
            with contextlib.suppress(OSError):
                if not (arena.worktree / "d").is_symlink():
                    (arena.worktree / "d" / "control").write_text("x")
        (arena.outside / "control").unlink()
        os.utime(arena.outside, ns=(0, before[str(arena.outside)][4]))  # type: ignore[arg-type]  # an int
        attempts, ends = 0, time.monotonic() + RACE_S
        while time.monotonic() < ends:
            attempts += 1
            with contextlib.suppress(SandboxError):
                name = f"d/n{attempts}"
                arena.workbench.apply_patch(arena.task.id, NEW % name.encode(), {name: None})
            with contextlib.suppress(SandboxError):
                patch = b"--- a/leaf\n+++ b/leaf\n@@ -1 +1 @@\n-x\n+y\n"
                arena.workbench.apply_patch(arena.task.id, patch, {"leaf": hash_of(b"x\n")})
                assert not (arena.outside / "secret").read_bytes().startswith(b"y")
    record_property("attempts", attempts)
    assert attempts > 10
    assert arena.read_canaries() == before


def test_h09_h10_fifo_blocks_nobody(arena: Arena) -> None:
    """Control: a plain open hangs; so does `git status` on a FIFO as `.gitignore`, even with an explicit gitdir."""
    names = ("f.txt", ".gitignore", ".gitattributes", ".gitmodules")
    for name in names:
        remove(arena.worktree / name)
        os.mkfifo(arena.worktree / name)
        reader = threading.Thread(target=(arena.worktree / name).read_bytes, daemon=True)
        reader.start()
        reader.join(0.2)
        assert reader.is_alive(), f"void: {name}"
        os.close(os.open(arena.worktree / name, os.O_WRONLY | os.O_NONBLOCK))  # lets the control go
        reader.join(5)
    started = time.monotonic()
    for name in names:
        with refused(ErrorCode.UNSAFE_PATH):
            arena.workbench.read_file(arena.task.id, name)
        with refused(ErrorCode.UNSAFE_PATH):
            arena.workbench.read_file(arena.task.id, name, 1, 5, max_bytes=10)
    assert set(names) <= set(arena.workbench.status(arena.task.id).rejected)
    arena.run_every_operation()
    assert time.monotonic() - started < 15 * slowness()


def test_h12_h13_devices_and_sockets(arena: Arena) -> None:
    os.mknod(arena.worktree / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    os.mknod(arena.worktree / "disk", 0o666 | stat.S_IFBLK, os.makedev(254, 0))
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(arena.worktree)
        try:
            server.bind("sock")
        finally:
            os.chdir(Path(__file__).parents[2])
    if arena.settings["workspaces"]["worktree"] == "plain":
        with (arena.worktree / "zero").open("rb") as stream:
            assert stream.read(1) == b"\0", "void: no nodev here, a naive read gets data"
    else:  # the mount itself is nodev
        with pytest.raises(PermissionError):
            (arena.worktree / "zero").open("rb")
    for name in ("zero", "disk", "sock"):
        with refused(ErrorCode.UNSAFE_PATH):
            arena.workbench.read_file(arena.task.id, name)
        with refused(ErrorCode.UNSAFE_PATH):
            arena.workbench.read_file(arena.task.id, name, 1, 5, max_bytes=10)
    assert arena.workbench.status(arena.task.id).rejected == ("disk", "sock", "zero")
    arena.run_every_operation()


def test_h14_setuid_bits_are_stripped(arena: Arena) -> None:
    """They stay on the guest's own file, under the guest's uid; whatever the host writes or commits has none."""
    (arena.worktree / "g.txt").chmod(0o6755)
    (arena.worktree / "tool").write_text("x")
    (arena.worktree / "tool").chmod(0o6755)
    assert (arena.worktree / "g.txt").stat().st_mode & stat.S_ISUID, "void"
    patch = b"--- a/g.txt\n+++ b/g.txt\n@@ -1,2 +1,3 @@\n g1\n+host\n g2\n"
    arena.workbench.apply_patch(arena.task.id, patch, {"g.txt": hash_of(FILES["g.txt"])})
    assert stat.S_IMODE((arena.worktree / "g.txt").stat().st_mode) == 0o755
    tree = arena.workbench.commit(arena.task.id, "x").tree
    listing = arena.require_git("ls-tree", "-r", tree, cwd=arena.root, git_dir=arena.cache)
    assert {line.split()[0] for line in listing.splitlines()} == {"100644", "100755"}
    assert (arena.worktree / "g.txt").stat().st_uid == (arena.worktree / "f.txt").stat().st_uid in UserIds().ids


def test_h15_hard_links_are_replaced_not_written_through(arena: Arena) -> None:
    os.link(arena.worktree / "g.txt", arena.worktree / "alias")
    inode = (arena.worktree / "alias").stat().st_ino
    with (arena.worktree / "g.txt").open("r+b"):
        assert (arena.worktree / "g.txt").stat().st_ino == inode, "void"
    patch = b"--- a/g.txt\n+++ b/g.txt\n@@ -1,2 +1,3 @@\n g1\n+host\n g2\n"
    arena.workbench.apply_patch(arena.task.id, patch, {"g.txt": hash_of(FILES["g.txt"])})
    assert (arena.worktree / "alias").read_bytes() == FILES["g.txt"]


def test_h15_a_hard_link_of_a_host_file_is_neither_read_nor_committed(make_arena: Callable[..., Arena]) -> None:
    """A guest makes one where protected_hardlinks is off and a host file is in its mount. Control: git stores it."""
    if os.geteuid() != 0:
        pytest.skip("needs a file of another owner than the tree's")
    arena = make_arena(
        settings={"workspaces": {"worktree": "plain"}}
    )  # over an overlay there is no linking from outside
    arena.new_task()
    os.link(arena.outside / "secret", arena.worktree / "innocent")
    assert (arena.worktree / "innocent").stat().st_uid != arena.worktree.stat().st_uid
    control = arena.root / "control.git"
    arena.require_git("clone", "-q", "--bare", str(arena.remote), str(control), cwd=arena.root)
    arena.require_git("--work-tree", str(arena.worktree), "add", "--", "innocent", cwd=arena.worktree, git_dir=control)
    arena.require_git(
        "cat-file", "-e", arena.require_git("hash-object", "--stdin", cwd=arena.root, stdin=SECRET), cwd=control
    )
    before = arena.read_canaries()
    for act in (
        lambda: arena.workbench.read_file(arena.task.id, "innocent"),
        lambda: arena.workbench.read_file(arena.task.id, "innocent", 1, 1),
        lambda: arena.workbench.apply_patch(arena.task.id, NEW % b"innocent", {"innocent": None}),
        lambda: arena.workbench.apply_patch(arena.task.id, NEW % b"innocent", {"innocent": hash_of(SECRET)}),
    ):
        with refused(ErrorCode.UNSAFE_PATH):
            act()
    status = arena.workbench.status(arena.task.id)
    assert (status.changes, status.rejected) == ((), ("innocent",))
    arena.run_every_operation()
    assert arena.read_canaries() == before
    assert not arena.in_odb(SECRET)


def test_h16_sparse_files_cost_nothing(arena: Arena) -> None:
    """Control: the size is 1 TiB; git or a naive reader would read all of it."""
    with (arena.worktree / "huge").open("wb") as stream:
        stream.truncate(1 << 40)
    assert (arena.worktree / "huge").stat().st_size == 1 << 40, "void"
    started = time.monotonic()
    with refused(ErrorCode.QUOTA_EXCEEDED):
        arena.workbench.read_file(arena.task.id, "huge")
    with refused(ErrorCode.QUOTA_EXCEEDED):
        arena.workbench.read_file(arena.task.id, "huge", 1, 1, max_bytes=10)
    for step in (
        lambda: arena.workbench.status(arena.task.id),
        lambda: arena.workbench.commit(arena.task.id, "x"),
    ):
        with refused(ErrorCode.QUOTA_EXCEEDED):
            step()
    assert time.monotonic() - started < 2 * slowness()


def test_h17_content_and_hash_are_of_one_read(arena: Arena, racer: Callable[..., Any], record_property: Any) -> None:
    """The file is rewritten in place all the time. Control: hash, then read again, and compare."""
    size = 1 << 19
    path = arena.worktree / "flip"
    path.write_bytes(b"A" * size)
    with racer("flip", path, size):
        ends = time.monotonic() + BUDGET_S
        while hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(path.read_bytes()).digest():
            assert time.monotonic() < ends, "void"
        attempts, ends = 0, time.monotonic() + 2
        while time.monotonic() < ends:
            attempts += 1
            content = arena.workbench.read_file(arena.task.id, "flip")
            assert content.sha256 == hash_of(content.content.encode())
            assert content.size == len(content.content)
    record_property("attempts", attempts)
    assert attempts > 20


NAMES = [
    b"\xff\xfe", b"a\nb", b"tab\there", b"\x1b]0;pwned\x07", b"-rf", b" lead", b"trail ", b'q"uote', b":(top)x",
    b"a\n?? injected.py", b"caf\xc3\xa9", b"cafe\xcc\x81", b"F.TXT", "x\u202egnp.sh".encode(), "z\u200bw".encode(),
    b"%41", b"back\\slash", b"$(id)", b"`id`", b"*", b"--upload-pack=x", b"\xed\xa0\x80",
]  # fmt: skip


def test_h20_h21_h22_names_of_any_bytes(arena: Arena) -> None:
    """All at once: seen, committed and read back byte for byte. Control: porcelain quotes them, JSON refuses one."""
    for name in NAMES:
        Path(os.fsdecode(os.fsencode(arena.worktree) + b"/" + name)).write_bytes(b"content of " + name)
    control = arena.root / "control"
    control.mkdir()
    (control / "a\nb").touch()
    arena.require_git("init", "-q", cwd=control)
    assert '"a\\nb"' in arena.require_git("status", "--porcelain", cwd=control), "void"
    status = arena.workbench.status(arena.task.id)
    assert len(status.changes) == len(NAMES)
    status.model_dump_json().encode()
    assert len({c.path for c in status.changes}) == len(NAMES)
    tree = arena.workbench.commit(arena.task.id, "names").tree
    raw = arena.git("ls-tree", "-r", "-z", "--name-only", tree, cwd=arena.root, git_dir=arena.cache).stdout
    assert set(raw.split(b"\0")[:-1]) == {*NAMES, *(n.encode() for n in FILES)}
    for change in status.changes:
        if not any(c in change.path for c in "\n\t\x1b\\"):  # the path grammar keeps these from callers
            assert arena.workbench.read_file(arena.task.id, change.path).sha256 == change.sha256
    second = arena.workbench.create_task(arena.repo_id, base_branch=arena.workbench.task(arena.task.id).head_commit)
    assert arena.workbench.status(second.id).changes == ()


@pytest.mark.parametrize("depth", [120, 3000])
def test_h19_p09_nests_of_any_depth_can_be_removed(arena: Arena, depth: int) -> None:
    """Control: a recursive removal gives up on the deeper one."""
    here = os.open(arena.worktree, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("n" * 60, dir_fd=here)
        deeper = os.open("n" * 60, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    fd = os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=here)
    os.close(fd)
    os.close(here)
    with pytest.raises(OSError, match="too long"):
        (arena.worktree / "/".join(["n" * 60] * depth) / "leaf").stat()
    for step in (lambda: arena.workbench.status(arena.task.id), lambda: arena.workbench.diff(arena.task.id)):
        error = outcome(step)
        assert error is None or error.code is ErrorCode.QUOTA_EXCEEDED
    arena.workbench.close_task(arena.task.id, delete_worktree=True, discard=True)
    assert not arena.worktree.exists()


def test_h_paths_just_over_the_kernels_limit(arena: Arena) -> None:
    """A name that fits in its directory but whose whole path does not fit in a system call."""
    here = os.open(arena.worktree, os.O_RDONLY)
    for _ in range(16):
        os.mkdir("n" * 250, dir_fd=here)
        here = os.open("n" * 250, os.O_RDONLY, dir_fd=here)
    for leaf in ("m" * 200, "short"):
        os.close(os.open(leaf, os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.symlink("f.txt", "l" * 200, dir_fd=here)
    (arena.worktree / "f.txt").write_text("changed\n")
    status = arena.workbench.status(arena.task.id)
    assert "f.txt" in {c.path for c in status.changes}
    assert arena.run_every_operation() == []


def test_h23_unreadable_residue_is_removed(arena: Arena) -> None:
    locked = arena.worktree / "locked" / "deeper"
    locked.mkdir(parents=True)
    (locked / "f").write_text("x")
    os.chown(locked / "f", 10001, 10001)
    (locked / "f").chmod(0)
    locked.chmod(0)
    (arena.worktree / "locked").chmod(0)
    arena.workbench.status(arena.task.id)
    arena.workbench.close_task(arena.task.id, delete_worktree=True, discard=True)
    assert not arena.worktree.exists()


def test_p10_links_swapped_during_removal(arena: Arena, racer: Callable[..., Any]) -> None:
    """Control: a removal by path names follows the exchanged directory."""
    before = arena.read_canaries()
    real, link = guests_own(arena.worktree / "d"), arena.worktree / "dlink"
    for i in range(2000):
        (real / f"{i}").touch()
    link.symlink_to(arena.outside)
    (arena.outside / "bait").mkdir()
    with racer("swap", real, link):
        ends = time.monotonic() + BUDGET_S
        while (arena.outside / "bait").exists():
            assert time.monotonic() < ends, "void"
            with contextlib.suppress(OSError):
                if not real.is_symlink():
                    (real / "bait").rmdir()
        os.utime(arena.outside, ns=(0, before[str(arena.outside)][4]))  # type: ignore[arg-type]  # an int
        with contextlib.suppress(SandboxError):  # it may rightly say that something stayed
            arena.workbench.close_task(arena.task.id, delete_worktree=True, discard=True)
    assert arena.read_canaries() == before
