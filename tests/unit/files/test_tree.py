"""Reading, writing and walking a tree that a guest has prepared. Ids: THREATS section H."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.checkout import remove_tree
from sandbox.files.names import EntryKind, WalkEntry, WalkLimits
from sandbox.files.openat2 import openat2, require_openat2
from sandbox.files.tree import WorktreeFiles, sha256_of
from sandbox.policy.paths import RepoPath, show_path
from tests.unit.conftest import refused, without_root_powers


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "worktree"
    made.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"TOPSECRET")
    return made


@pytest.fixture
def files(root: Path) -> Iterator[WorktreeFiles]:
    with WorktreeFiles(root) as opened:
        yield opened


def path(text: str) -> RepoPath:
    return RepoPath(text)


def write(files: WorktreeFiles, name: str, content: bytes = b"new", executable: bool = False) -> None:
    files.write(path(name), content, executable=executable, owner=None)


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder with its inode and content: the canary tree."""
    return {str(p): (p.lstat().st_ino, p.read_bytes()) for p in folder.rglob("*") if p.is_file()}


# --- what a guest can put where a file is expected


def _link(target: str) -> Callable[[Path], None]:
    return lambda place: place.symlink_to(target)


def _socket(place: Path) -> None:
    here = Path.cwd()
    os.chdir(place.parent)  # the address of a socket has 108 bytes at most
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(place.name)
    finally:
        os.chdir(here)


def _device(place: Path) -> None:
    try:
        os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("making a device needs CAP_MKNOD")


TRAPS: dict[str, Callable[[Path], None]] = {
    "h02-link-out": _link("../outside/secret"),
    "h02-link-absolute": _link("/etc/passwd"),
    "h02-link-inside": _link("f"),
    "h02-link-nowhere": _link("nowhere"),
    "h02-link-loop": _link("trap"),
    "h04-magic-link": _link("/proc/self/environ"),
    "h04-magic-fd": _link("/proc/self/fd/0"),
    "h09-fifo": lambda place: os.mkfifo(place),
    "h12-device": _device,
    "h13-socket": _socket,
    "directory": lambda place: place.mkdir(),
}


def stream(files: WorktreeFiles, name: RepoPath, cap: int = 1 << 20) -> bytes:
    return b"".join(files.stream(name, cap))


@pytest.mark.parametrize("make", TRAPS.values(), ids=TRAPS)
@pytest.mark.parametrize("operation", ["read", "stream", "write", "remove"])
def test_what_is_no_regular_file_is_refused_at_once_and_left_alone(
    make: Callable[[Path], None], operation: str, root: Path, files: WorktreeFiles, tmp_path: Path
) -> None:
    (root / "f").write_bytes(b"inside")
    make(root / "trap")
    before, kind = snapshot(tmp_path), (root / "trap").lstat().st_mode
    acts: dict[str, Callable[[RepoPath], object]] = {
        "read": files.read,
        "stream": partial(stream, files),
        "remove": files.remove,
        "write": lambda p: write(files, p),
    }
    act = acts[operation]
    started = time.monotonic()
    with refused(ErrorCode.UNSAFE_PATH):
        act(path("trap"))
    assert time.monotonic() - started < 1 * slowness()
    assert (snapshot(tmp_path), (root / "trap").lstat().st_mode) == (before, kind)


ANCESTORS = {
    "h03-out": "../outside",
    "h03-inside": "real",
    "h03-absolute": "{outside}",
    "h04-root": "/proc/self/root{outside}",
    "h04-cwd": "/proc/self/cwd",
}
"""All lead to directories of the test: were the protection gone, nothing else could be written."""


@pytest.mark.parametrize("target", ANCESTORS.values(), ids=ANCESTORS)
@pytest.mark.parametrize(
    "operation", ["read", "stream", "write", "write-new", "write-deep", "remove", "exists", "list"]
)
def test_a_path_through_a_link_is_refused(
    target: str, operation: str, root: Path, files: WorktreeFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the link leads to a file that a plain open reads."""
    monkeypatch.chdir(tmp_path / "outside")
    (root / "real").mkdir()
    (root / "real" / "secret").write_bytes(b"x")
    (root / "l").symlink_to(target.format(outside=tmp_path / "outside"))
    assert (root / "l" / "secret").read_bytes()
    name = {"write-new": "l/new", "write-deep": "l/a/b/new", "list": "l"}.get(operation, "l/secret")
    acts: dict[str, Callable[[RepoPath], object]] = {
        "read": files.read,
        "stream": partial(stream, files),
        "remove": files.remove,
        "exists": files.exists,
        "list": files.require_directory,
    }
    act = acts.get(operation, lambda p: write(files, p))
    before = snapshot(tmp_path)
    with refused(ErrorCode.UNSAFE_PATH):
        act(path(name))
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["../outside/secret", "/etc/passwd", "a/../../outside/secret"])
def test_a_path_that_slipped_past_the_grammar_still_cannot_leave(name: str, root: Path, files: WorktreeFiles) -> None:
    (root / "a").mkdir()
    with refused(ErrorCode.UNSAFE_PATH):
        files.read(path(name))


@pytest.mark.parametrize("name", ["none", "none/x", "f/x"])
def test_what_is_not_there_is_not_found(name: str, root: Path, files: WorktreeFiles) -> None:
    (root / "f").write_bytes(b"x")
    for act in (files.read, files.remove):
        with refused(ErrorCode.NOT_FOUND):
            act(path(name))
    assert not files.exists(path(name))


@pytest.mark.slow
def test_h05_a_swapped_ancestor_never_leads_out(root: Path, files: WorktreeFiles, tmp_path: Path) -> None:
    """A thread swaps a directory and a link while we read; the naive read must leak, ours never."""
    (root / "d").mkdir()
    (root / "d" / "secret").write_bytes(b"harmless")
    (root / "spare").symlink_to(tmp_path / "outside")
    stop = threading.Event()

    def swap() -> None:
        a, b, c = root / "d", root / "spare", root / "tmp"
        while not stop.is_set():
            a.rename(c)
            b.rename(a)
            c.rename(b)

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[bytes] = set()
    leaks, deadline = 0, time.monotonic() + 1.5
    try:
        while time.monotonic() < deadline:
            try:
                seen.add(files.read(path("d/secret")))
                seen.add(stream(files, path("d/secret")))
            except SandboxError as error:
                seen.add(error.code.value.encode())
            try:
                leaks += (root / "d" / "secret").read_bytes() == b"TOPSECRET"
            except OSError:
                continue
    finally:
        stop.set()
        thread.join()
    assert leaks, "the control never won the race: this test proves nothing"
    assert b"TOPSECRET" not in seen
    assert seen <= {b"harmless", b"not_found", b"unsafe_path", b"conflict"}


def test_h24_the_root_is_opened_once_and_kept(root: Path, tmp_path: Path) -> None:
    (root / "f").write_bytes(b"ours")
    with WorktreeFiles(root) as files:
        root.rename(tmp_path / "moved")
        root.mkdir()
        (root / "f").write_bytes(b"planted")
        assert files.read(path("f")) == b"ours"


@pytest.mark.parametrize(
    "make", [_link("elsewhere"), lambda p: p.write_bytes(b""), lambda _p: None], ids=["link", "file", "none"]
)
def test_a_root_that_is_no_directory_is_not_found(make: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    make(tmp_path / "root")
    with refused(ErrorCode.NOT_FOUND), WorktreeFiles(tmp_path / "root"):
        pass


# --- reading


@pytest.mark.parametrize(
    "content", [b"", b"x", b"\0\r\n\xff" * 1000, b"x" * (3 << 20)], ids=["empty", "one", "odd", "3M"]
)
def test_a_file_is_read_whole_and_hashed_as_it_is(content: bytes, root: Path, files: WorktreeFiles) -> None:
    (root / "f").write_bytes(content)
    (root / "f").chmod(0o755)
    assert files.read_with_mode(path("f")) == (content, True)
    assert stream(files, path("f"), 4 << 20) == content
    (root / "f").chmod(0o4644)
    assert files.read_with_mode(path("f")) == (content, False)


def test_h16_a_file_over_the_cap_is_refused_however_sparse(root: Path, files: WorktreeFiles) -> None:
    (root / "f").write_bytes(b"x" * 11)
    assert len(files.read(path("f"), cap=11)) == 11
    assert len(stream(files, path("f"), 11)) == 11
    for act in (files.read, partial(stream, files)):
        with refused(ErrorCode.QUOTA_EXCEEDED):
            act(path("f"), 10)
    with (root / "sparse").open("wb") as sparse:
        sparse.truncate(1 << 30)
    started = time.monotonic()
    with refused(ErrorCode.QUOTA_EXCEEDED):
        files.read(path("sparse"))
    assert time.monotonic() - started < 2 * slowness()


def test_h16_a_file_that_grows_while_it_is_read_is_refused_at_the_cap(root: Path, files: WorktreeFiles) -> None:
    (root / "f").write_bytes(b"x" * (1 << 20))
    pieces = files.stream(path("f"), 3 << 20)
    next(pieces)
    with (root / "f").open("ab") as more:
        more.write(b"x" * (4 << 20))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        list(pieces)


def test_h17_a_stream_stays_with_the_file_it_opened(root: Path, files: WorktreeFiles) -> None:
    """Control: opening the name again gives the other file."""
    (root / "f").write_bytes(b"a" * (2 << 20))
    pieces = files.stream(path("f"), 4 << 20)
    first = next(pieces)
    (root / "other").write_bytes(b"b" * (2 << 20))
    (root / "other").rename(root / "f")
    assert (root / "f").read_bytes()[:1] == b"b"
    assert first + b"".join(pieces) == b"a" * (2 << 20)


def test_a_stream_that_is_given_up_closes_its_file(root: Path, files: WorktreeFiles) -> None:
    (root / "f").write_bytes(b"a" * (2 << 20))
    before = open_descriptors()
    pieces = files.stream(path("f"), 4 << 20)
    next(pieces)
    assert open_descriptors() == before + 1
    pieces.close()
    assert open_descriptors() == before


HOLDER = """
import fcntl, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)  # how the kernel asks a holder to give up
with open(sys.argv[1], "rb+") as held:
    fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_h09_a_lease_on_a_file_blocks_nobody(root: Path, files: WorktreeFiles) -> None:
    """fcntl(2): a blocking open waits for the holder, up to lease-break-time. Control: a plain open does."""
    (root / "f").write_bytes(b"x")
    argv = [sys.executable, "-c", HOLDER, str(root / "f")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        if holder.stdout.readline() != b"held\n":
            pytest.skip("this file system has no leases")
        started = time.monotonic()
        for act in (files.read, partial(stream, files)):
            with refused(ErrorCode.CONFLICT):
                act(path("f"))
        assert time.monotonic() - started < 1 * slowness()
        naive = threading.Thread(target=(root / "f").read_bytes, daemon=True)
        naive.start()
        naive.join(0.3)
        assert naive.is_alive(), "the control did not wait: this test proves nothing"
        write(files, "f", b"replaced")
        holder.communicate(b"")
        naive.join(10)
    assert files.read(path("f")) == b"replaced"


def test_a_link_target_is_text_and_never_followed(root: Path, files: WorktreeFiles) -> None:
    (root / "l").symlink_to("/etc/passwd")
    (root / "odd").symlink_to(os.fsdecode(b"\xff\n"))
    assert files.read_link(b"l") == b"/etc/passwd"
    assert files.read_link(b"odd") == b"\xff\n"


def test_a_file_we_may_not_read_is_a_typed_error(root: Path) -> None:
    (root / "f").write_bytes(b"x")
    (root / "f").chmod(0)

    def act() -> None:
        with WorktreeFiles(root) as files, refused(ErrorCode.UNSAFE_PATH):
            files.read(path("f"))

    assert without_root_powers(act)


# --- writing


@pytest.mark.parametrize(("executable", "mode"), [(False, 0o644), (True, 0o755)])
def test_a_written_file_has_its_bytes_and_mode(executable: bool, mode: int, root: Path, files: WorktreeFiles) -> None:
    (root / "old").write_bytes(b"old")
    (root / "old").chmod(0o4777)
    for name in ("old", "new", "a/b/c/new"):
        write(files, name, b"\0\r\nx", executable)
        assert (root / name).read_bytes() == b"\0\r\nx"
        assert stat.S_IMODE((root / name).stat().st_mode) == mode
    assert not [p for p in root.rglob("*") if "sandbox-write" in p.name]


def test_h15_a_hard_linked_target_is_replaced_not_written_through(
    root: Path, files: WorktreeFiles, tmp_path: Path
) -> None:
    os.link(tmp_path / "outside" / "secret", root / "f")
    write(files, "f", b"new")
    assert (root / "f").read_bytes() == b"new"
    assert (tmp_path / "outside" / "secret").read_bytes() == b"TOPSECRET"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
@pytest.mark.parametrize("operation", ["read", "stream", "write"])
def test_h15_a_hard_link_of_somebody_elses_file_is_refused(
    operation: str, root: Path, files: WorktreeFiles, tmp_path: Path
) -> None:
    """Controls: a plain open reads it; with no further name the same file is the tree's; so is a link of its own."""
    secret = tmp_path / "outside" / "secret"
    os.chown(secret, 64001, 64001)
    os.link(secret, root / "f")
    assert (root / "f").read_bytes() == b"TOPSECRET"
    acts: dict[str, Callable[[RepoPath], object]] = {
        "read": files.read,
        "stream": partial(stream, files),
        "write": lambda p: write(files, p),
    }
    act = acts[operation]
    before = snapshot(tmp_path)
    with refused(ErrorCode.UNSAFE_PATH) as caught:
        act(path("f"))
    assert "'hard-link'" in caught.value.brief
    assert snapshot(tmp_path) == before
    assert walked(files) == {b"f": EntryKind.REJECTED}
    secret.unlink()
    assert walked(files) == {b"f": EntryKind.FILE}
    os.link(root / "f", root / "twin")
    os.chown(root / "f", 0, 0)
    act(path("f"))
    assert set(walked(files).values()) == {EntryKind.FILE}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_h15_a_hard_link_of_somebody_elses_file_can_be_removed(
    root: Path, files: WorktreeFiles, tmp_path: Path
) -> None:
    os.chown(tmp_path / "outside" / "secret", 64001, 64001)
    os.link(tmp_path / "outside" / "secret", root / "f")
    files.remove(path("f"))
    assert (tmp_path / "outside" / "secret").read_bytes() == b"TOPSECRET"
    assert not list(root.iterdir())


def test_a_reader_sees_the_old_or_the_new_file_never_a_part(root: Path, files: WorktreeFiles) -> None:
    versions = [bytes([n]) * 200_000 for n in range(20)]
    write(files, "f", versions[0])
    stop = threading.Event()
    torn: list[int] = []

    def look() -> None:
        while not stop.is_set():
            content = (root / "f").read_bytes()
            if content not in versions:
                torn.append(len(content))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for version in versions:
            write(files, "f", version)
    finally:
        stop.set()
        thread.join()
    assert torn == []


@pytest.mark.parametrize("step", ["os.rename", "os.fsync", "os.fchmod"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    step: str, root: Path, files: WorktreeFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "f").write_bytes(b"old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(step, fail)
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        write(files, "f")
    monkeypatch.undo()
    assert "No space left" in caught.value.details
    assert (root / "f").read_bytes() == b"old"
    assert [p.name for p in root.iterdir()] == ["f"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_and_the_directories_made_for_it_get_their_owner(root: Path, files: WorktreeFiles) -> None:
    (root / "old").mkdir()
    files.write(path("old/a/b/f"), b"x", executable=False, owner=(64000, 64001))
    for name in ("old/a", "old/a/b", "old/a/b/f"):
        info = (root / name).stat()
        assert (info.st_uid, info.st_gid) == (64000, 64001)
    assert (root / "old").stat().st_uid == 0


def test_a_write_below_a_file_is_refused_in_words(root: Path, files: WorktreeFiles) -> None:
    (root / "f").write_bytes(b"x")
    with refused(ErrorCode.INVALID_INPUT) as caught:
        write(files, "f/x")
    assert "not a directory" in caught.value.brief
    assert (root / "f").read_bytes() == b"x"


def test_h23_a_directory_of_any_depth_is_removed_and_no_link_is_followed(root: Path, files: WorktreeFiles) -> None:
    (root / "kept").mkdir()
    (root / "kept" / "f").write_bytes(b"x")
    (root / "deep").mkdir()
    (root / "deep" / "way").symlink_to(root / "kept")
    here = Path.cwd()
    os.chdir(root / "deep")
    try:
        for _ in range(1200):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.chdir(here)
    try:
        files.remove_directory(RepoPath("deep"))
    finally:
        remove_tree(root / "deep")  # pytest could not remove it
    (root / "way").symlink_to(root / "kept")
    with pytest.raises(SandboxError):
        files.remove_directory(RepoPath("way"))
    assert sorted(path.name for path in root.iterdir() if path.name in {"deep", "kept", "way"}) == ["kept", "way"]
    assert (root / "kept" / "f").read_bytes() == b"x"


def test_removing_takes_the_directories_it_empties_and_no_others(root: Path, files: WorktreeFiles) -> None:
    for name in ("a/b/c/f", "a/other"):
        write(files, name)
    files.remove(path("a/b/c/f"))
    assert sorted(p.name for p in root.rglob("*")) == ["a", "other"]
    files.remove(path("a/other"))
    assert list(root.iterdir()) == []


# --- walking


def walked(files: WorktreeFiles, skip: Callable[[bytes], bool] = lambda _: False) -> dict[bytes, EntryKind]:
    return {e.path: e.kind for e in files.walk(skip)}


def test_a_walk_tells_what_every_name_is(root: Path, files: WorktreeFiles) -> None:
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "e" / "f").write_bytes(b"12345")
    (root / "d" / "x").write_bytes(b"")
    (root / "d" / "x").chmod(0o755)
    (root / "l").symlink_to("d")
    os.mkfifo(root / "fifo")
    _socket(root / "socket")
    assert walked(files) == {
        b"d/e/f": EntryKind.FILE,
        b"d/x": EntryKind.FILE,
        b"l": EntryKind.SYMLINK,
        b"fifo": EntryKind.REJECTED,
        b"socket": EntryKind.REJECTED,
    }
    found = {e.path: e for e in files.walk(lambda _: False)}
    assert found[b"d/x"] == WalkEntry(b"d/x", EntryKind.FILE, executable=True, size=0)
    assert found[b"d/e/f"].size == 5


@pytest.mark.parametrize("name", [".git", ".GIT", ".g\u200cit", "git~1", ".git ", ".git.", ".git::$INDEX_ALLOCATION"])
@pytest.mark.parametrize("kind", ["file", "directory", "link", "fifo"])
@pytest.mark.parametrize("depth", ["", "a/b/"])
def test_c06_dotgit_is_rejected_whatever_it_is_and_never_entered(
    name: str, kind: str, depth: str, root: Path, files: WorktreeFiles
) -> None:
    place = root / depth / name
    place.parent.mkdir(parents=True, exist_ok=True)
    {
        "file": lambda: place.write_bytes(b""),
        "directory": lambda: (place / "hooks").mkdir(parents=True),
        "link": lambda: place.symlink_to("/etc"),
        "fifo": lambda: os.mkfifo(place),
    }[kind]()
    if kind == "directory":
        (place / "config").write_bytes(b"x")
    assert walked(files) == {(depth + name).encode(): EntryKind.REJECTED}


def test_a_skipped_directory_is_not_entered(root: Path, files: WorktreeFiles) -> None:
    write(files, "build/deep/f")
    write(files, "src/f")
    assert walked(files, lambda p: p == b"build") == {b"src/f": EntryKind.FILE}


@pytest.mark.parametrize("limits", [WalkLimits(entries=4), WalkLimits(depth=2), WalkLimits(name_bytes=16)])
def test_h19_a_walk_past_its_limits_is_refused(limits: WalkLimits, root: Path, files: WorktreeFiles) -> None:
    for name in ("a/b/c/f", "g"):
        write(files, name)
    assert len(list(files.walk(lambda _: False, WalkLimits(5, 3, 17)))) == 2
    with refused(ErrorCode.QUOTA_EXCEEDED):
        list(files.walk(lambda _: False, limits))


def test_a_directory_we_may_not_list_is_rejected_not_ignored(root: Path) -> None:
    (root / "d").mkdir()
    (root / "d" / "f").write_bytes(b"x")
    (root / "d").chmod(0)

    def act() -> None:
        with WorktreeFiles(root) as files:
            assert walked(files) == {b"d": EntryKind.REJECTED}

    ended_well = without_root_powers(act)
    (root / "d").chmod(0o700)
    assert ended_well


def test_a_directory_that_becomes_a_link_while_we_walk_is_not_followed(
    root: Path, files: WorktreeFiles, tmp_path: Path
) -> None:
    (root / "d").mkdir()

    def swap(name: bytes) -> bool:
        assert name == b"d"
        (root / "d").rmdir()
        (root / "d").symlink_to(tmp_path / "outside")
        return False

    assert walked(files, swap) == {b"d": EntryKind.REJECTED}


def test_h19_a_wide_directory_is_refused_before_it_is_listed_whole(root: Path, files: WorktreeFiles) -> None:
    """Control: a listing of all of it takes a hundred times the memory."""
    for n in range(5_000):
        os.close(os.open(root / f"{n:0200}", os.O_CREAT | os.O_WRONLY))
    tracemalloc.start()
    try:
        with refused(ErrorCode.QUOTA_EXCEEDED):
            list(files.walk(lambda _: False, WalkLimits(entries=100)))
        ours = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert len(list(root.iterdir())) == 5_000
        assert tracemalloc.get_traced_memory()[1] > 10 * ours
    finally:
        tracemalloc.stop()


@settings(max_examples=40)
@given(st.binary(min_size=1, max_size=12).filter(lambda n: not set(n) & {0, 0x2F, 0x5C} and n not in {b".", b".."}))
def test_h20_h21_any_name_is_walked_and_read_back(root: Path, name: bytes) -> None:
    target = os.fsencode(root) + b"/" + name
    fd = os.open(target, os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, name)
    os.close(fd)
    try:
        with WorktreeFiles(root) as files:
            ((found, kind),) = walked(files).items()
            assert found == name
            assert kind is EntryKind.REJECTED or files.read(path(show_path(found))) == name
    finally:
        Path(os.fsdecode(target)).unlink()


# --- openat2


def test_a_path_is_never_cut_at_a_nul(root: Path) -> None:
    """Control: what a C library does with it."""
    (root / "f").write_bytes(b"x")
    assert ctypes.string_at(b"f\0x") == b"f"
    handle = os.open(root, os.O_PATH)
    try:
        with pytest.raises(OSError, match="NUL"):
            openat2(handle, b"f\0x", os.O_RDONLY)
    finally:
        os.close(handle)


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_this_kernel_has_openat2() -> None:
    require_openat2()


def test_a_kernel_without_openat2_is_a_policy_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.files.openat2._SYS_OPENAT2", 100_000)
    with refused(ErrorCode.POLICY_VIOLATION):
        require_openat2()


def test_checking_for_openat2_leaks_no_descriptor() -> None:
    before = open_descriptors()
    for _ in range(5):
        require_openat2()
    assert open_descriptors() == before


def test_handles_are_closed_on_every_path(root: Path, files: WorktreeFiles) -> None:
    (root / "l").symlink_to("x")
    os.mkfifo(root / "fifo")
    write(files, "f")
    before = open_descriptors()
    for name in ("f", "l", "fifo", "none", "l/x"):
        for act in (files.read, partial(stream, files), files.exists, lambda p: write(files, p), files.remove):
            try:
                act(path(name))
            except SandboxError:
                continue
    list(files.walk(lambda _: False))
    assert open_descriptors() == before


def test_descriptors_do_not_leak_into_children(root: Path) -> None:
    handle = os.open(root, os.O_PATH)
    fd = openat2(handle, b".", os.O_RDONLY)
    assert not os.get_inheritable(fd)
    os.close(fd)
    os.close(handle)


def test_a_hash_names_its_algorithm() -> None:
    assert sha256_of(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize("time_ns", [None, 1_000_000_000 * 10**9])
def test_written_files_and_links_have_the_time_that_was_asked_for(time_ns: int | None, root: Path) -> None:
    before = time.time_ns() - 10**9
    with WorktreeFiles(root, time_ns) as files:
        files.write(RepoPath("d/f"), b"x", executable=False, owner=None)
        files.write_link(RepoPath("l"), b"d/f", owner=None)
    for path in (root / "d" / "f", root / "l"):
        found = path.lstat().st_mtime_ns
        assert found == time_ns if time_ns else found >= before
