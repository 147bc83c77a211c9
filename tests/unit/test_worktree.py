"""What is laid out, and what changed since. Ids: THREATS sections C, D, H, I."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.files.tree import WorktreeFiles
from sandbox.git.objects import REGULAR, build_tree, list_tree
from sandbox.git.process import Git
from sandbox.models import ChangeKind
from sandbox.workspaces import worktree
from sandbox.workspaces.worktree import Changes, base_ignore_rules, find_changes, lay_out
from tests.unit.conftest import Upstream, initialised, refused

MASK = b"gitdir: /nonexistent/ours\n"
ADDED, MODIFIED, DELETED, TYPE = ChangeKind.ADDED, ChangeKind.MODIFIED, ChangeKind.DELETED, ChangeKind.TYPE_CHANGED


class Bench:
    """One commit laid out in a directory, and its changes on request."""

    def __init__(self, source: Upstream, root: Path) -> None:
        self.source = source
        self.git = Git(source.git_dir)
        self.commit = source.oid("HEAD")
        self.tree = source.oid("HEAD^{tree}")
        self.root = root
        lay_out(self.git, self.tree, root, None, MASK)

    def changes(self, artifacts: tuple[str, ...] = ()) -> Changes:
        entries = list_tree(self.git, self.tree)
        rules = base_ignore_rules(self.git, entries, artifacts)
        with WorktreeFiles(self.root) as files:
            return find_changes(files, {e.path: e for e in entries}, rules)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    """The repository of most tests; they only read it."""
    upstream = initialised(tmp_path_factory.mktemp("source"))
    upstream.write("f", b"one\n")
    upstream.write("run", b"#!/bin/sh\n", executable=True)
    upstream.write("d/e/x", b"x\n")
    upstream.write("vendor/kept.o", b"o")
    upstream.write(".gitignore", b"*.o\n/build/\n*.log\n!keep.log\n")
    (upstream.root / "link").symlink_to("f")
    (upstream.root / "out").symlink_to("../../etc/passwd")
    upstream.commit()
    return upstream


@pytest.fixture
def bench(source: Upstream, tmp_path: Path) -> Bench:
    return Bench(source, tmp_path / "worktree")


# --- laying out


def test_i03_the_bytes_on_disk_are_the_bytes_of_the_blobs_whatever_attributes_say(
    upstream: Upstream, tmp_path: Path
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
    bench = Bench(upstream, tmp_path / "worktree")
    assert {(bench.root / n).read_bytes() for n in names} == {content}
    assert not (tmp_path / "marker").exists()
    assert bench.changes() == Changes((), (), ())


def test_a_fresh_layout_has_our_mask_and_no_changes(bench: Bench) -> None:
    assert (bench.root / ".git").read_bytes() == MASK
    assert (bench.root / "link").readlink() == Path("f")
    assert os.access(bench.root / "run", os.X_OK)
    assert bench.changes() == Changes((), (), ())


def test_c07_a_submodule_is_left_out_and_is_no_change(upstream: Upstream, tmp_path: Path) -> None:
    upstream.write("f", b"x")
    upstream.git("add", "f")
    upstream.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    upstream.git("commit", "--quiet", "-m", "x")
    bench = Bench(upstream, tmp_path / "worktree")
    assert not (bench.root / "sub").exists()
    assert bench.changes() == Changes((), (), ())


def test_a_file_in_the_place_of_a_submodule_does_not_block_a_commit(upstream: Upstream, tmp_path: Path) -> None:
    upstream.write("f", b"x")
    upstream.git("add", "f")
    upstream.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    upstream.git("commit", "--quiet", "-m", "x")
    bench = Bench(upstream, tmp_path / "worktree")
    (bench.root / "sub").mkdir()
    (bench.root / "sub" / "x").write_bytes(b"x")
    assert bench.changes() == Changes((), (), ("sub/x",))


def test_a_tree_over_the_budget_is_refused_before_anything_is_written(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.write("f", b"x" * 100)
    upstream.commit()
    monkeypatch.setattr("sandbox.git.objects.Budget.__init__.__defaults__", (10, 50, 50, 5))
    with refused(ErrorCode.QUOTA_EXCEEDED):
        Bench(upstream, tmp_path / "worktree")
    assert not (tmp_path / "worktree").exists()


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
    "c04-nested-repository": (_nested_repository, {}, ["emb/.git"]),
    "nested-around-tracked": (_repository_around_tracked_files, {"d/e/x": MODIFIED}, ["d/.git"]),
    "c06-dotgit-spellings": (
        lambda r: [(r / "d" / n).write_bytes(b"x") for n in (".GIT", "git~1", ".git.")],
        {},
        ["d/.GIT", "d/.git.", "d/git~1"],
    ),
    "fifo": (lambda r: os.mkfifo(r / "pipe"), {}, ["pipe"]),
    "file-to-fifo": (_replaced("f", lambda p: os.mkfifo(p)), {"f": DELETED}, ["f"]),
    "ignored": (_ignored_things, {}, []),
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
    "temporary-file-of-ours": (lambda r: (r / ".sandbox-write-0123").write_bytes(b"x"), {}, [".sandbox-write-0123"]),
}


@pytest.mark.parametrize(("act", "shown", "rejected"), CASES.values(), ids=CASES)
def test_a_change_is_found_for_what_it_is_and_makes_the_tree_it_should(
    act: Callable[[Path], object], shown: Shown, rejected: list[str], bench: Bench, tmp_path: Path
) -> None:
    act(bench.root)
    found = bench.changes()
    assert {c.path: c.kind for c in found.shown} == shown
    assert sorted(found.rejected) == sorted(rejected)
    assert {c.path for c in found.shown if c.sha256 is None} == {p for p, k in shown.items() if k is DELETED}
    require_same_when_laid_out(bench, found, tmp_path / "again")


def require_same_when_laid_out(bench: Bench, found: Changes, again: Path) -> None:
    """The tree made of the changes is, on disk, the worktree; and against it there are no changes."""
    tree = build_tree(bench.git, bench.commit, found.tree)
    lay_out(bench.git, tree, again, None, MASK)
    for path in (p for p in _names(again) if p != ".git"):
        one, two = bench.root / path, again / path
        if path in {"out", "f"} and path in found.rejected:
            continue
        assert one.is_symlink() == two.is_symlink()
        assert (one.readlink() if one.is_symlink() else one.read_bytes()) == (
            two.readlink() if two.is_symlink() else two.read_bytes()
        )
    entries = {e.path: e for e in list_tree(bench.git, tree)}
    with WorktreeFiles(bench.root) as files:
        after = find_changes(files, entries, base_ignore_rules(bench.git, list_tree(bench.git, bench.tree), ()))
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


def test_more_changed_bytes_than_we_hold_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktree, "CHANGED_BYTES", 100)
    (bench.root / "a").write_bytes(b"x" * 60)
    assert len(bench.changes().shown) == 1
    (bench.root / "b").write_bytes(b"x" * 60)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        bench.changes()


def test_a_file_that_vanishes_while_we_look_is_no_failure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    (bench.root / "new").write_bytes(b"x")
    real = WorktreeFiles.read_with_mode

    def racing(self: WorktreeFiles, path: object, cap: int = 0) -> tuple[bytes, bool]:
        if path == "new":
            (bench.root / "new").unlink()
        return real(self, path, cap)  # type: ignore[arg-type]  # passed through

    monkeypatch.setattr(WorktreeFiles, "read_with_mode", racing)
    found = bench.changes()
    assert (found.shown, found.rejected) == ((), ("new",))


def test_rules_of_the_tree_are_read_at_every_depth_and_links_are_none(upstream: Upstream) -> None:
    upstream.write("d/.gitignore", b"secret\n!loud\n")
    (upstream.root / ".gitignore").symlink_to("d/.gitignore")
    upstream.commit()
    git = Git(upstream.git_dir)
    rules = base_ignore_rules(git, list_tree(git, upstream.oid("HEAD^{tree}")), ("*.tmp",))
    assert rules.ignored("d/secret", directory=False)
    assert rules.ignored("d/x/secret", directory=False)
    assert not rules.ignored("secret", directory=False)
    assert rules.ignored("secret.tmp", directory=False)


def test_modes_of_a_change_are_git_modes(bench: Bench) -> None:
    (bench.root / "f").write_bytes(b"x")
    (bench.root / "f").chmod(0o666)
    assert [c.mode for c in bench.changes().tree] == [REGULAR]
