"""What is laid out, and what changed since. Ids: THREATS sections C, D, H, I."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.requirement import unavailable
from sandbox.errors import ErrorCode
from sandbox.files.overlay_mounts import find_overlay_obstacle, is_mount_point, unmount_overlay
from sandbox.files.stamps import KnownDirectory, keeps_times, stamp_of
from sandbox.files.tree import WorktreeFiles
from sandbox.git.contents import content_of, spool_contents
from sandbox.git.entries import EXECUTABLE, REGULAR, SYMLINK, TreeChange
from sandbox.git.new_commits import build_tree
from sandbox.git.objects import blob_id, list_tree
from sandbox.git.process import Git
from sandbox.models import ChangeKind
from sandbox.workspaces import changes
from sandbox.workspaces.base_facts import gather_facts
from sandbox.workspaces.changes import Changes
from sandbox.workspaces.comparison_limits import LARGE
from sandbox.workspaces.full_checkout import PlainLayout
from sandbox.workspaces.layout import BaseTree, Layout, WorktreePaths
from sandbox.workspaces.overlay_layout import OverlayLayout
from sandbox.workspaces.statcache import StatCacheFiles, load_or_build
from tests.unit.conftest import Upstream, initialised, refused

LAYOUTS: dict[str, Callable[[], Layout]] = {"overlay": OverlayLayout, "plain": PlainLayout}
MASK = b"gitdir: /nonexistent/ours\n"
ADDED, MODIFIED, DELETED, TYPE = ChangeKind.ADDED, ChangeKind.MODIFIED, ChangeKind.DELETED, ChangeKind.TYPE_CHANGED


Lay = Callable[[Upstream], "Bench"]


class Bench:
    """One commit laid out in a directory, and its changes on request."""

    def __init__(self, source: Upstream, layout: Layout, place: Path) -> None:
        self.git = Git(source.git_dir)
        self.commit = source.oid("HEAD")
        self.tree = source.oid("HEAD^{tree}")
        self.layout = layout
        self.memory = StatCacheFiles(place / "worktree.stat", place / "worktree.guest")
        self.site = WorktreePaths(
            place / "worktree", place / "layers", place / "pristines", None, None, MASK, self.memory
        )
        self.root = self.site.root
        self.facts = gather_facts(self.git, self.tree, list_tree(self.git, self.tree), {})
        layout.create(self.git, self.tree, self.site)

    def changes(self, artifacts: tuple[str, ...] = (), head: str = "") -> Changes:
        base = BaseTree(self.facts, self.facts.rules(artifacts))
        with spool_contents(self.git) as spool:
            return self.layout.find_changes(self.git, self.site, base, head or self.tree, spool, LARGE)

    def warm_up(self, head: str = "") -> None:
        """Look until all that is as in the head is known by its stamp: it takes the kernel's clock a few ticks."""
        if self.layout.kind == "plain" and keeps_times(self.root):
            deadline = time.monotonic() + 10
            while not self.is_warm(head or self.tree):
                assert time.monotonic() < deadline
                self.changes(head=head)

    def is_warm(self, head: str) -> bool:
        """Whether a look at the worktree now would read nothing that is as in the head."""
        index = load_or_build(self.git, head, self.root, self.memory)
        stamped = {p: s for f, found in index.folders.items() for p, s in _stamps(f, found.known)}
        content = {e.path: (e.mode, e.oid) for e in index.entries(()).values()}
        return all(stamped[p] == _stamp(self.root, p) for p, leaf in content.items() if _leaf(self.root, p) == leaf)


def _stamps(folder: bytes, known: KnownDirectory) -> Iterator[tuple[bytes, bytes]]:
    for name, stamp in known.by_name().items():
        yield os.path.join(folder, os.fsencode(name)), stamp  # noqa: PTH118 - bytes


def _stamp(root: Path, path: bytes) -> bytes:
    return stamp_of((root / os.fsdecode(path)).lstat())


def _leaf(root: Path, path: bytes) -> tuple[str, str] | None:
    place = root / os.fsdecode(path)
    if any((root / above).is_symlink() for above in Path(os.fsdecode(path)).parents) or not os.path.lexists(place):
        return None
    if place.is_symlink():
        return SYMLINK, blob_id(os.fsencode(place.readlink()))
    mode = EXECUTABLE if place.is_file() and os.access(place, os.X_OK) else REGULAR
    return (mode, blob_id(place.read_bytes())) if place.is_file() else None


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest, tmp_path: Path) -> Layout:
    """Each layout of this host in turn."""
    if request.param == "overlay" and (reason := find_overlay_obstacle(tmp_path)):
        unavailable(f"no overlay mounts here: {reason}")
    return LAYOUTS[request.param]()


@pytest.fixture
def lay(layout: Layout, tmp_path: Path) -> Iterator[Lay]:
    """Lays the head of a repository out; gone after the test."""
    made: list[Bench] = []

    def act(source: Upstream) -> Bench:
        made.append(Bench(source, layout, tmp_path / f"place-{len(made)}"))
        return made[-1]

    yield act
    for bench in made:
        layout.remove(bench.site)
        assert not is_mount_point(bench.root)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    """The repository of most tests; they only read it."""
    upstream = initialised(tmp_path_factory.mktemp("source"))
    upstream.write("f", b"one\n")
    upstream.write("run", b"#!/bin/sh\n", executable=True)
    upstream.write("d/e/x", b"x\n")
    upstream.write("vendor/kept.o", b"o")
    upstream.write("dist", b"a file\n")
    upstream.write("pack/t", b"t\n")
    upstream.write("pack/u/v", b"v\n")
    upstream.write(".gitignore", b"*.o\n/build/\n*.log\n!keep.log\ndist/\npack/\n")
    (upstream.root / "link").symlink_to("f")
    (upstream.root / "out").symlink_to("../../etc/passwd")
    upstream.commit()
    return upstream


@pytest.fixture
def bench(source: Upstream, lay: Lay) -> Bench:
    return lay(source)


# --- laying out


def test_i03_the_bytes_on_disk_are_the_bytes_of_the_blobs_whatever_attributes_say(
    upstream: Upstream, tmp_path: Path, lay: Lay
) -> None:
    content = b"$Id$\nline\nlast"
    attributes = b"*.crlf text eol=crlf\n*.id ident\n*.u16 working-tree-encoding=UTF-16\n*.lfs filter=evil\n"
    blob = upstream.git("hash-object", "-w", "--stdin", "--no-filters", stdin=content).decode().strip()
    names = ("a.crlf", "a.id", "a.u16", "a.lfs")
    for name in names:
        upstream.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}")
    upstream.write(".gitattributes", attributes)
    upstream.git("add", ".gitattributes")
    upstream.git("config", "filter.evil.smudge", f"touch {tmp_path}/marker; cat")
    upstream.git("commit", "--quiet", "-m", "x")
    upstream.git("checkout-index", "--all", "--force")
    altered = [n for n in names if (upstream.root / n).read_bytes() != content]
    assert altered == ["a.crlf", "a.id", "a.u16"], "the control did not alter anything: this proves nothing"
    assert (tmp_path / "marker").exists()
    (tmp_path / "marker").unlink()
    bench = lay(upstream)
    assert {(bench.root / n).read_bytes() for n in names} == {content}
    assert not (tmp_path / "marker").exists()
    assert bench.changes() == Changes((), (), ())


def test_a_fresh_layout_has_our_mask_and_no_changes(bench: Bench) -> None:
    assert (bench.root / ".git").read_bytes() == MASK
    assert (bench.root / "link").readlink() == Path("f")
    assert os.access(bench.root / "run", os.X_OK)
    assert bench.changes() == Changes((), (), ())


def test_c07_a_submodule_is_left_out_and_is_no_change(upstream: Upstream, lay: Lay) -> None:
    upstream.write("f", b"x")
    upstream.git("add", "f")
    upstream.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    upstream.git("commit", "--quiet", "-m", "x")
    bench = lay(upstream)
    assert not (bench.root / "sub").exists()
    assert bench.changes() == Changes((), (), ())


def test_a_file_in_the_place_of_a_submodule_does_not_block_a_commit(upstream: Upstream, lay: Lay) -> None:
    upstream.write("f", b"x")
    upstream.git("add", "f")
    upstream.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    upstream.git("commit", "--quiet", "-m", "x")
    bench = lay(upstream)
    (bench.root / "sub").mkdir()
    (bench.root / "sub" / "x").write_bytes(b"x")
    assert bench.changes() == Changes((), (), ("sub/x",))


def test_a_tree_over_the_budget_is_refused_before_anything_is_written(
    upstream: Upstream, tmp_path: Path, lay: Lay, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.write("f", b"x" * 100)
    upstream.commit()
    monkeypatch.setattr("sandbox.git.objects.TreeBudget.__init__.__defaults__", (10, 50, 50, 5, 4096))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        lay(upstream)
    place = tmp_path / "place-0"
    assert [p for p in place.rglob("*") if p != place / "pristines"] == []


# --- changes


def _replaced(path: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def act(root: Path) -> None:
        (root / path).unlink()
        make(root / path)

    return act


def _same_size_and_times(root: Path) -> None:
    info = (root / "f").stat()
    (root / "f").write_bytes(b"two\n")
    os.utime(root / "f", ns=(info.st_atime_ns, info.st_mtime_ns))


def _nested_repository(root: Path) -> None:
    for name in ("emb/.git/hooks", "emb/sub"):
        (root / name).mkdir(parents=True)
    for name in ("emb/.git/config", "emb/code", "emb/sub/code"):
        (root / name).write_bytes(b"x")


def _repository_around_tracked_files(root: Path) -> None:
    (root / "d" / ".git").mkdir()
    (root / "d" / "new").write_bytes(b"x")
    (root / "d" / "e" / "x").write_bytes(b"changed")


def _directory_becomes_link(root: Path) -> None:
    (root / "d" / "e" / "x").unlink()
    (root / "d" / "e").rmdir()
    (root / "d" / "e").symlink_to("../vendor")


def _file_becomes_directory(root: Path) -> None:
    (root / "f").unlink()
    (root / "f").mkdir()
    (root / "f" / "x").write_bytes(b"x")


def _chain_of_links(root: Path) -> None:
    """Each is inside by its text; followed one after the other they lead out."""
    (root / "d" / "up").symlink_to("..")
    (root / "d" / "escape").symlink_to("up/../secret")


def _ignored_things(root: Path) -> None:
    for name in ("build/deep/out", "a.o", "d/b.log", "d/e/c.o"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")


def _guest_rules(root: Path) -> None:
    (root / ".gitignore").write_bytes(b"*\n")
    (root / "d" / ".gitignore").write_bytes(b"*\n")
    (root / "hidden").write_bytes(b"x")
    (root / "d" / "hidden").write_bytes(b"x")


def _odd_names(root: Path) -> None:
    for name in (b"\xff\xfe", b"a\n?? injected.py", b"-rf", b"%41", "x\u202egnp".encode()):
        (root / os.fsdecode(name)).write_bytes(b"x")


def _directory_replaced(root: Path) -> None:
    """A new directory of the same name: nothing of the old one may shine through."""
    shutil.rmtree(root / "d")
    (root / "d").mkdir()
    (root / "d" / "new").write_bytes(b"x")


def _directory_becomes_file(root: Path) -> None:
    shutil.rmtree(root / "d")
    (root / "d").write_bytes(b"x")


def _deleted_and_made_again(root: Path) -> None:
    (root / "f").unlink()
    (root / "f").write_bytes(b"one\n")
    shutil.rmtree(root / "d")
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "e" / "x").write_bytes(b"x\n")


def _hard_links(root: Path) -> None:
    os.link(root / "f", root / "second")
    (root / "f").write_bytes(b"through both\n")


def _tracked_in_an_ignored_directory(root: Path) -> None:
    """`vendor` becomes ignored by artifacts only; here the tracked file's directory is made anew."""
    shutil.rmtree(root / "vendor")
    (root / "vendor").mkdir()
    (root / "vendor" / "kept.o").write_bytes(b"o")
    (root / "vendor" / "other.o").write_bytes(b"o")


def _becomes_directory(path: str) -> Callable[[Path], None]:
    def act(root: Path) -> None:
        shutil.rmtree(root / path) if (root / path).is_dir() else (root / path).unlink()
        (root / path / "deep").mkdir(parents=True)
        (root / path / "deep" / "out").write_bytes(b"o")

    return act


Shown = dict[str, ChangeKind]
CASES: dict[str, tuple[Callable[[Path], object], Shown, list[str]]] = {
    "nothing": (lambda _: None, {}, []),
    "touched": (lambda r: (r / "f").touch(), {}, []),
    "modified": (lambda r: (r / "f").write_bytes(b"changed\n"), {"f": MODIFIED}, []),
    "h26-same-size-and-times": (_same_size_and_times, {"f": MODIFIED}, []),
    "emptied": (lambda r: (r / "f").write_bytes(b""), {"f": MODIFIED}, []),
    "added": (lambda r: (r / "new").write_bytes(b""), {"new": ADDED}, []),
    "deleted": (lambda r: (r / "d" / "e" / "x").unlink(), {"d/e/x": DELETED}, []),
    "executable": (lambda r: (r / "f").chmod(0o755), {"f": MODIFIED}, []),
    "no-more-executable": (lambda r: (r / "run").chmod(0o644), {"run": MODIFIED}, []),
    "h14-setuid-is-no-change": (lambda r: (r / "run").chmod(0o6755), {}, []),
    "file-to-link": (_replaced("f", lambda p: p.symlink_to("run")), {"f": TYPE}, []),
    "link-to-file": (_replaced("link", lambda p: p.write_bytes(b"x")), {"link": TYPE}, []),
    "link-moved": (_replaced("link", lambda p: p.symlink_to("d/e/x")), {"link": MODIFIED}, []),
    "link-up-but-inside": (lambda r: (r / "d" / "e" / "l").symlink_to("../../f"), {"d/e/l": ADDED}, []),
    "link-out": (lambda r: (r / "l").symlink_to("../outside"), {}, ["l"]),
    "link-absolute": (lambda r: (r / "l").symlink_to("/etc/passwd"), {}, ["l"]),
    "link-out-deep": (lambda r: (r / "d" / "l").symlink_to("../../x"), {}, ["d/l"]),
    "link-to-dotgit": (lambda r: (r / "l").symlink_to("d/.GIT/config"), {}, ["l"]),
    "links-out-in-steps": (_chain_of_links, {"d/up": ADDED}, ["d/escape"]),
    "tracked-link-out-moved": (_replaced("out", lambda p: p.symlink_to("/etc/shadow")), {}, ["out"]),
    "directory-to-link": (_directory_becomes_link, {"d/e": ADDED, "d/e/x": DELETED}, []),
    "file-to-directory": (_file_becomes_directory, {"f": DELETED, "f/x": ADDED}, []),
    "c04-nested-repository": (_nested_repository, {}, ["emb/.git", "emb/code", "emb/sub/code"]),
    "nested-around-tracked": (_repository_around_tracked_files, {"d/e/x": MODIFIED}, ["d/.git", "d/new"]),
    "c06-dotgit-spellings": (
        lambda r: [(r / "d" / n).write_bytes(b"x") for n in (".GIT", "git~1", ".git.")],
        {},
        ["d/.GIT", "d/.git.", "d/git~1"],
    ),
    "fifo": (lambda r: os.mkfifo(r / "pipe"), {}, ["pipe"]),
    "file-to-fifo": (_replaced("f", lambda p: os.mkfifo(p)), {"f": DELETED}, ["f"]),
    "ignored": (_ignored_things, {}, []),
    "file-to-ignored-directory": (_becomes_directory("dist"), {"dist": DELETED}, []),
    "file-to-directory-below-an-ignored-one": (_becomes_directory("pack/t"), {"pack/t": DELETED}, []),
    "ignored-directory-made-anew": (_becomes_directory("pack"), {"pack/t": DELETED, "pack/u/v": DELETED}, []),
    "directory-below-an-ignored-one-made-anew": (_becomes_directory("pack/u"), {"pack/u/v": DELETED}, []),
    "ignored-but-tracked": (lambda r: (r / "vendor" / "kept.o").write_bytes(b"y"), {"vendor/kept.o": MODIFIED}, []),
    "not-ignored-after-all": (lambda r: (r / "keep.log").write_bytes(b"x"), {"keep.log": ADDED}, []),
    "d14-rules-of-the-guest": (
        _guest_rules,
        {".gitignore": MODIFIED, "d/.gitignore": ADDED, "hidden": ADDED, "d/hidden": ADDED},
        [],
    ),
    "h20-h21-odd-names": (
        _odd_names,
        {"%FF%FE": ADDED, "a\n?? injected.py": ADDED, "-rf": ADDED, "%2541": ADDED, "x\u202egnp": ADDED},
        [],
    ),
    "directory-removed": (lambda r: shutil.rmtree(r / "d"), {"d/e/x": DELETED}, []),
    "directory-replaced": (_directory_replaced, {"d/e/x": DELETED, "d/new": ADDED}, []),
    "directory-renamed": (lambda r: shutil.move(r / "d", r / "dd"), {"d/e/x": DELETED, "dd/e/x": ADDED}, []),
    "directory-to-file": (
        _directory_becomes_file,
        {"d/e/x": DELETED, "d": ADDED},
        [],
    ),
    "deleted-and-made-again": (_deleted_and_made_again, {}, []),
    "mode-of-a-directory": (lambda r: (r / "d").chmod(0o700), {}, []),
    "hard-links": (_hard_links, {"f": MODIFIED, "second": ADDED}, []),
    "tracked-and-ignored-made-anew": (_tracked_in_an_ignored_directory, {}, []),
    "temporary-file-of-ours": (lambda r: (r / ".sandbox-write-0123").write_bytes(b"x"), {}, [".sandbox-write-0123"]),
}


@pytest.mark.parametrize(("act", "shown", "rejected"), CASES.values(), ids=CASES)
def test_a_change_is_found_for_what_it_is_and_makes_the_tree_it_should(
    act: Callable[[Path], object], shown: Shown, rejected: list[str], bench: Bench, tmp_path: Path
) -> None:
    bench.warm_up()
    act(bench.root)
    found = bench.changes()
    assert {c.path: c.kind for c in found.shown} == shown
    assert bench.changes() == found
    assert sorted(found.rejected) == sorted(rejected)
    assert {c.path for c in found.shown if c.sha256 is None} == {p for p, k in shown.items() if k is DELETED}
    require_same_when_laid_out(bench, found, tmp_path / "again")


def require_same_when_laid_out(bench: Bench, found: Changes, again: Path) -> None:
    """The tree made of the changes is, on disk, the worktree; and against it there are no changes."""
    tree = build_tree(bench.git, bench.commit, found.tree)
    PlainLayout().create(bench.git, tree, WorktreePaths(again, again.parent / "none", again.parent, None, None, MASK))
    for path in (p for p in _names(again) if p != ".git"):
        one, two = bench.root / path, again / path
        if path in {"out", "f"} and path in found.rejected:
            continue
        assert one.is_symlink() == two.is_symlink()
        assert (one.readlink() if one.is_symlink() else one.read_bytes()) == (
            two.readlink() if two.is_symlink() else two.read_bytes()
        )
    after = bench.changes(head=tree)
    assert after.tree == ()
    assert after.rejected == found.rejected


def _names(root: Path) -> Iterator[str]:
    for folder, _, names in os.walk(root):
        for name in names:
            yield str((Path(folder) / name).relative_to(root))


def test_build_output_of_the_profile_is_left_out_but_tracked_files_are_not(bench: Bench) -> None:
    (bench.root / "d" / "e" / "x").write_bytes(b"changed")
    (bench.root / "d" / "e" / "cache").mkdir()
    (bench.root / "d" / "e" / "cache" / "c").write_bytes(b"x")
    (bench.root / "wheel.egg").write_bytes(b"x")
    found = bench.changes(artifacts=("/d/e/", "*.egg"))
    assert {c.path: c.kind for c in found.shown} == {"d/e/x": MODIFIED}


def test_an_ignored_directory_is_not_entered(bench: Bench) -> None:
    deep = bench.root / "build"
    for _ in range(200):  # deeper than a walk allows
        deep /= "d"
    deep.mkdir(parents=True)
    assert bench.changes() == Changes((), (), ())


def test_new_files_of_a_nested_repository_are_named_up_to_a_limit_and_counted(bench: Bench) -> None:
    (bench.root / "emb" / ".git").mkdir(parents=True)
    for number in range(130):
        (bench.root / "emb" / f"f{number:03}").write_bytes(b"x")
    (bench.root / "emb" / "a.log").write_bytes(b"ignored")
    found = bench.changes()
    assert (found.tree, found.nested_files, len(found.rejected)) == ((), 130, 101)
    assert found.rejected[:2] == ("emb/.git", "emb/f000")
    assert found.list_rejected()[101:] == ("... and 30 more beside or below a nested .git",)
    assert not found.is_clean


def test_what_would_be_lost_with_the_worktree_is_no_temporary_file_of_ours(bench: Bench) -> None:
    (bench.root / ".sandbox-write-0123").write_bytes(b"x")
    assert bench.changes().is_clean
    (bench.root / "l").symlink_to("../outside")
    found = bench.changes()
    assert (found.is_clean, found.unsaved) == (False, ("l",))


def test_more_changed_bytes_than_we_hold_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "CHANGED_BYTES", 100)
    (bench.root / "a").write_bytes(b"x" * 60)
    assert len(bench.changes().shown) == 1
    (bench.root / "b").write_bytes(b"x" * 60)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        bench.changes()


def test_a_file_that_vanishes_while_we_look_is_no_failure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    (bench.root / "new").write_bytes(b"x")
    real = WorktreeFiles.open_chunks

    def racing(self: WorktreeFiles, path: object, cap: int = 0) -> object:
        if path == "new":
            (bench.root / "new").unlink()
        return real(self, path, cap)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(WorktreeFiles, "open_chunks", racing)
    found = bench.changes()
    assert (found.shown, found.rejected) == ((), ("new",))


def test_rules_of_the_tree_are_read_at_every_depth_and_links_are_none(upstream: Upstream) -> None:
    upstream.write("d/.gitignore", b"secret\n!loud\n")
    (upstream.root / ".gitignore").symlink_to("d/.gitignore")
    upstream.commit()
    git = Git(upstream.git_dir)
    tree = upstream.oid("HEAD^{tree}")
    rules = gather_facts(git, tree, list_tree(git, tree), {}).rules(("*.tmp",))
    assert rules.is_ignored("d/secret", directory=False)
    assert rules.is_ignored("d/x/secret", directory=False)
    assert not rules.is_ignored("secret", directory=False)
    assert rules.is_ignored("secret.tmp", directory=False)


def test_modes_of_a_change_are_git_modes(bench: Bench) -> None:
    (bench.root / "f").write_bytes(b"x")
    (bench.root / "f").chmod(0o666)
    assert [c.mode for c in bench.changes().tree] == [REGULAR]


# --- the head moves on


def test_after_a_commit_the_head_is_what_counts(bench: Bench) -> None:
    (bench.root / "f").write_bytes(b"changed\n")
    (bench.root / "d" / "e" / "x").unlink()
    (bench.root / "new").write_bytes(b"x")
    head = build_tree(bench.git, bench.commit, bench.changes().tree)
    assert bench.changes(head=head) == Changes((), (), ())
    (bench.root / "f").write_bytes(b"one\n")  # as in the base
    (bench.root / "new").unlink()
    (bench.root / "d" / "e" / "x").write_bytes(b"x\n")
    found = bench.changes(head=head)
    assert {c.path: c.kind for c in found.shown} == {"f": MODIFIED, "new": DELETED, "d/e/x": ADDED}
    assert build_tree(bench.git, bench.commit, [c for c in found.tree if c.path != b"new"]) == bench.tree


def test_a_head_that_the_worktree_never_held_shows_the_difference(bench: Bench) -> None:
    changes = (
        TreeChange(b"f", REGULAR, content_of(b"other\n")),
        TreeChange(b"d/e/x", "000000", None),
        TreeChange(b"extra", REGULAR, content_of(b"x")),
    )
    head = build_tree(bench.git, bench.commit, changes)
    found = bench.changes(head=head)
    assert {c.path: c.kind for c in found.shown} == {"f": MODIFIED, "d/e/x": ADDED, "extra": DELETED}


# --- life


def test_a_worktree_that_lost_its_mount_comes_back_with_its_changes(bench: Bench) -> None:
    (bench.root / "f").write_bytes(b"changed\n")
    (bench.root / "d" / "e" / "x").unlink()
    before = bench.changes()
    unmount_overlay(bench.root)  # as after a reboot
    assert bench.layout.is_mounted(bench.site) is (bench.layout.kind == "plain")
    bench.layout.ensure_mounted(bench.site)
    bench.layout.ensure_mounted(bench.site)
    assert bench.layout.is_mounted(bench.site)
    assert (bench.root / "f").read_bytes() == b"changed\n"
    assert bench.changes() == before


def test_removal_leaves_nothing_and_can_be_repeated(bench: Bench) -> None:
    bench.warm_up()
    bench.memory.guest_mark.touch()
    (bench.root / "deep").mkdir(mode=0)
    bench.layout.remove(bench.site)
    bench.layout.remove(bench.site)
    assert not bench.root.exists()
    assert not bench.site.layers.exists()
    assert bench.layout.kind == "overlay" or not (bench.memory.index.exists() or bench.memory.guest_mark.exists())


@pytest.mark.parametrize("layout", [PlainLayout()], ids=["plain"])
def test_what_was_read_before_is_not_read_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    if not keeps_times(bench.root):
        unavailable("times of this file system prove nothing")
    bench.warm_up()
    read: list[object] = []
    real = WorktreeFiles.open_chunks

    def counting(self: WorktreeFiles, path: object, cap: int = 0) -> object:
        read.append(path)
        return real(self, path, cap)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(WorktreeFiles, "open_chunks", counting)
    (bench.root / "d" / "e" / "x").write_bytes(b"y\n")
    assert [c.path for c in bench.changes().shown] == ["d/e/x"]
    assert read == ["d/e/x"]
    bench.memory.index.write_bytes(b"damaged")
    assert [c.path for c in bench.changes().shown] == ["d/e/x"]


def test_a_layout_that_fails_half_way_leaves_nothing(
    source: Upstream, lay: Lay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space")

    for module in ("overlay_layout", "full_checkout"):
        monkeypatch.setattr(f"sandbox.workspaces.{module}.write_mask", fail)
    with pytest.raises(OSError, match="no space"):
        lay(source)
    place = tmp_path / "place-0"
    assert not (place / "worktree").exists()
    assert not (place / "layers").exists()


# --- the two against each other

_NAMES = st.sampled_from(
    ["f", "run", "d", "d/e", "d/e/x", "d/new", "vendor", "vendor/kept.o", "link", "n", "n/m", "build", "n/.git"]
)
_BELOW_IGNORED = st.sampled_from(["dist", "dist/n", "pack", "pack/t", "pack/t/n", "pack/u", "pack/u/v", "f", "n"])
_VERBS = st.sampled_from(["write", "remove", "mkdir", "link", "mode", "move", "reset", "replace"])
_STEP = st.one_of(*(st.tuples(_VERBS, names, names) for names in (_NAMES, _BELOW_IGNORED)))


def _step(root: Path, verb: str, name: str, other: str) -> None:
    """One thing a guest may do; what the file system refuses is skipped, on both sides alike."""
    path, second = root / name, root / other
    with suppress(OSError, shutil.Error):
        if verb == "write":
            path.write_bytes(other.encode())
        elif verb == "remove":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        elif verb == "mkdir":
            path.mkdir(parents=True)
        elif verb == "replace":
            _becomes_directory(name)(root)
        elif verb == "link":
            path.symlink_to(second)
        elif verb == "mode":
            path.chmod(0o755)
        elif verb == "move":
            shutil.move(path, second)
        else:
            path.write_bytes({"f": b"one\n", "d/e/x": b"x\n"}.get(name, b"#!/bin/sh\n"))


@settings(max_examples=40)
@given(steps=st.lists(_STEP, max_size=12), committed=st.integers(0, 12), warmed=st.integers(0, 12))
def test_both_layouts_find_the_same_changes(
    source: Upstream,
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, str, str]],
    committed: int,
    warmed: int,
) -> None:
    """The plain one is looked at between the steps, so that stamps of every age meet what comes next."""
    place = tmp_path_factory.mktemp("both")
    if reason := find_overlay_obstacle(place):
        unavailable(f"no overlay mounts here: {reason}")
    benches = [Bench(source, layout(), place / name) for name, layout in LAYOUTS.items()]
    head = ""
    try:
        for number, step in enumerate(steps):
            if number == warmed:
                benches[1].warm_up(head)
            for bench in benches:
                _step(bench.root, *step)
            benches[1].changes(head=head)
            if number == committed:
                head = build_tree(benches[0].git, benches[0].commit, benches[0].changes().tree)
        one, two = (bench.changes(head=head) for bench in benches)
        assert one == two
        one, two = (bench.changes(("d/e/", "n"), head) for bench in benches)
        assert one == two
    finally:
        for bench in benches:
            bench.layout.remove(bench.site)
