"""THREATS G04, G07, I01, I02, I07, I09, I17: what a repository, a guest or a pattern can do to a search."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import sandbox
from devtools.host_speed import slowness
from sandbox.attack.harness.scene import SECRET
from sandbox.models import SearchQuery, SearchResult
from tests.attack.arena import ALL_RUNS, Arena
from tests.attack.test_i_output import ESCAPES, cli

pytestmark = pytest.mark.must
BACKTRACKS = "(a+)+$"
OVERLAY = {"workspaces": {"worktree": "overlay"}}


def search(arena: Arena, pattern: str | None = None, **more: object) -> SearchResult:
    return arena.workbench.search(arena.task.id, SearchQuery.model_validate({"pattern": pattern, **more}))


def pristine_of(arena: Arena) -> Path:
    (found,) = (arena.home / "repositories" / "pristine" / arena.repo_id).glob("*/")
    return found


def test_i01_i02_attributes_hide_nothing_from_a_search(arena: Arena) -> None:
    """Declared binary in the tree, below it and in the guest's own git directory; a NUL byte is said, not hidden."""
    (arena.worktree / ".gitattributes").write_text("* -diff -text\n")
    (arena.worktree / "d" / ".gitattributes").write_text("* binary\n")
    for name in ("f.txt", "d/x"):
        (arena.worktree / name).write_text("evil()\n")
    (arena.worktree / "g.txt").write_bytes(b"\0evil()\n")
    gitdir = arena.replace_pointer()
    (gitdir / "info").mkdir(exist_ok=True)
    (gitdir / "info" / "attributes").write_text("* -diff\n")
    control = arena.require_git("grep", "-e", "evil", cwd=arena.worktree)
    assert "f.txt matches" in control, "void"
    assert ":evil()" not in control, "void"
    result = search(arena, "evil")
    assert [(h.path, h.text) for h in result.hits] == [("d/x", "evil()"), ("f.txt", "evil()")]
    assert "g.txt" in result.files
    assert result.skipped.binary == 1


def test_i01_i02_nothing_in_a_commit_hides_files_from_a_search(make_arena: Callable[..., Arena]) -> None:
    """Attributes, ignore files and a directory that looks like a bare repository, below a pristine checkout."""
    names = ("d/f", "ignored.txt", "bare/HEAD", "bare/objects/f", "bare/refs/f")
    files = {name: b"ref: refs/heads/evil()\n" for name in names}
    rules = {".gitattributes": b"* -diff -text\n", "d/.gitattributes": b"* binary\n", ".gitignore": b"*\n"}
    config = b'[core]\nbare = true\nrepositoryformatversion = 0\n[diff "x"]\ntextconv = false\nbinary = true\n'
    arena = make_arena(files={**files, **rules, "bare/config": config}, settings=OVERLAY)
    arena.new_task()
    pristine = pristine_of(arena)
    there = (f"--git-dir={arena.cache}", f"--work-tree={pristine}")  # a repository with a worktree, so not a bare one
    hidden = arena.require_git(*there, "grep", "--no-index", "-e", "evil", cwd=pristine)
    assert "matches" in hidden, "void"
    assert "evil()" not in hidden, "void"
    argv = ("grep", "--no-index", "--exclude-standard", "-e", "evil")
    assert arena.git(*argv, cwd=pristine).stdout == b"", "void"
    assert arena.git("rev-parse", "--is-bare-repository", cwd=pristine / "bare").stdout == b"true\n", "void"
    for touched in ((), ("d/f",)):
        for name in touched:
            (arena.worktree / name).write_bytes(files[name] + b"\n")
        result = search(arena, "evil()")
        assert [h.path for h in result.hits] == sorted(names)
        assert result.skipped.binary == 0


def test_h06_links_in_a_commit_are_not_followed(make_arena: Callable[..., Arena]) -> None:
    """To a file and to a directory of the host, named by the glob or not. Control: grep follows them."""
    arena = make_arena(settings=OVERLAY)
    work = arena.root / "linked"
    arena.require_git("clone", "-q", str(arena.remote), str(work), cwd=arena.root)
    (work / "link").symlink_to(arena.outside / "secret")
    (work / "folder").symlink_to(arena.outside)
    (work / "told").write_text("harmless\n")
    arena.require_git("add", "-A", cwd=work)
    arena.require_git("commit", "-q", "-m", "links", cwd=work)
    arena.require_git("push", "-q", "origin", "HEAD:main", cwd=work)
    arena.new_task()
    pristine = pristine_of(arena)
    secret = SECRET.decode().strip()
    plain = subprocess.run(["grep", "-R", secret, str(pristine)], capture_output=True, check=False).stdout
    assert plain.count(SECRET.strip()) >= 3, "void"
    for glob in (None, "link", "folder", "folder/", "folder/*", "folder/secret", "*secret*"):
        assert search(arena, secret, glob=glob).files == ()
    assert search(arena, "harmless").files == ("told",)


def test_h06_a_guest_cannot_change_what_is_searched_unchanged(arena: Arena) -> None:
    """What a guest makes of its files is above the pristine checkout; a second task does not see it."""
    other = arena.workbench.create_task(arena.repo_id)
    (arena.worktree / "f.txt").write_text("evil()\n")
    shutil.rmtree(arena.worktree / "d")
    (arena.worktree / "d").symlink_to("f.txt")
    (arena.worktree / "g.txt").unlink()
    (arena.worktree / "g.txt").symlink_to("README.md")
    query = SearchQuery(pattern="^(evil|one|x|g1)", regex=True)
    assert [(h.path, h.text) for h in arena.workbench.search(arena.task.id, query).hits] == [("f.txt", "evil()")]
    untouched = [("d/x", "x"), ("f.txt", "one"), ("g.txt", "g1")]
    assert [(h.path, h.text) for h in arena.workbench.search(other.id, query).hits] == untouched


def test_i07_catastrophic_pattern_is_ended(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: neither Python's matcher nor git's, without our deadline, is through in twice the time."""
    (arena.worktree / "g.txt").write_text("aaaaaaaaaaaaaaaaaab\n" * 300_000)
    (arena.worktree / "f.txt").write_text("found before: a\n")
    checkout = plain(arena)
    (checkout / "g.txt").write_bytes((arena.worktree / "g.txt").read_bytes())
    python = f"import re; [re.search({BACKTRACKS!r}, l) for l in open('g.txt')]"
    for argv in ([arena.git_program, "grep", "-P", "-e", BACKTRACKS], [sys.executable, "-c", python]):
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(argv, cwd=checkout, timeout=2, capture_output=True, check=False)
    (arena.root / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(arena.root / "tmp"))
    began = time.monotonic()
    result = search(arena, BACKTRACKS, regex=True, timeout_s=1)
    assert time.monotonic() - began < 15 * slowness()
    assert (result.stopped_by, result.truncated) == ("time", True)
    assert [h.path for h in result.hits] == ["f.txt"]
    assert git_processes_of(arena) == []
    assert not list((arena.root / "tmp").iterdir())


def test_i07_line_made_to_stop_the_matcher_does_not_stop_it_silently(arena: Arena) -> None:
    """Control: Python's matcher does not end on this line."""
    (arena.worktree / "a").write_text("a" * 60 + "b\n")
    limit = "import re, signal; signal.setitimer(signal.ITIMER_PROF, 0.5)"
    python = f"{limit}; re.search({BACKTRACKS!r}, 'a' * 60 + 'b')"  # 2 to the 60th steps
    assert subprocess.run([sys.executable, "-c", python], check=False).returncode == -signal.SIGPROF
    result = search(arena, BACKTRACKS, regex=True)
    assert (result.stopped_by, result.truncated) == ("pattern", True)


def command(arena: Arena, *words: str) -> subprocess.CompletedProcess[bytes]:
    """`sandbox file search` of the code under test, also where another is installed."""
    return cli(arena, "file", "search", arena.task.id, *words, PYTHONPATH=str(Path(sandbox.__file__).parents[1]))


def plain(arena: Arena) -> Path:
    """A clone that plain git made, for the controls."""
    checkout = arena.root / "plain"
    if not checkout.exists():
        arena.require_git("clone", "-q", str(arena.remote), str(checkout), cwd=arena.root)
    return checkout


def git_processes_of(arena: Arena) -> list[bytes]:
    """Command lines of searches that name something below this arena."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if b"\0grep\0" in words and os.fsencode(arena.root) in words:
            found.append(words)
    return found


def test_g04_g07_pattern_is_never_an_option(arena: Arena) -> None:
    """A pattern that opens a pager, one that reads patterns from a file of the host."""
    pager = f"--open-files-in-pager={arena.script('pager')}"
    arena.require_mark("pager", lambda: arena.git("grep", "-e", "one", pager, cwd=plain(arena)))
    (arena.outside / "patterns").write_text("three\n")
    words = f"-f{arena.outside / 'patterns'}"
    assert arena.git("grep", words, cwd=plain(arena)).stdout == b"f.txt:three\n", "void"
    (arena.worktree / "f.txt").write_text(f"three\nsays {pager}\nand {words}\n")
    for pattern, line in ((pager, 2), (words, 3)):
        for regex in (False, True):
            assert [h.line for h in search(arena, pattern, regex=regex).hits] == [line]
        assert command(arena, "--", pattern).returncode == 0
    assert arena.marks() == set()


def test_a_literal_does_not_become_an_expression(arena: Arena) -> None:
    """git quotes a fixed string for its matcher and forgets what ends the quotes. Control: git's own option."""
    (arena.worktree / "f.txt").write_text("a" * 30 + "b\n")
    pattern = "\\E(a+)+b"
    checkout = plain(arena)
    (checkout / "f.txt").write_bytes((arena.worktree / "f.txt").read_bytes())
    assert arena.git("grep", "-F", "-l", "-e", pattern, cwd=checkout).stdout == b"f.txt\n", "void: this git quotes well"
    assert search(arena, pattern).hits == ()


def test_h06_files_swapped_for_links_are_never_read(arena: Arena) -> None:
    """A guest swaps a file and a directory for links to the host while searches run. Control: grep reads them."""
    stop = threading.Event()
    searches = 60 if ALL_RUNS else 24
    swaps = 0

    def swap() -> None:
        nonlocal swaps
        while not stop.is_set():
            for name, target in (("f.txt", arena.outside / "secret"), ("e", arena.outside)):
                place, away = arena.worktree / name, arena.worktree / f"{name}.away"
                place.rename(away)
                place.symlink_to(target)
                place.unlink()
                away.rename(place)
                swaps += 1

    (arena.worktree / "e").mkdir()  # not a tracked one: an overlay renames none of those
    (arena.worktree / "e" / "secret").write_text("harmless\n")
    (arena.worktree / "link").symlink_to(arena.outside / "secret")
    secret = SECRET.decode().strip()
    plain = subprocess.run(["grep", "-R", secret, str(arena.worktree)], capture_output=True, check=False)
    assert SECRET.strip() in plain.stdout, "void"
    racer = threading.Thread(target=swap)
    racer.start()
    try:
        for attempt in range(searches):
            result = search(arena, secret, include_ignored=attempt % 2 == 1)
            assert result.files == ()
    finally:
        stop.set()
        racer.join()
    assert swaps > 60, "void: nothing was swapped"
    assert not arena.in_odb(SECRET)


def test_i09_i17_hits_and_names_do_not_reach_the_terminal(arena: Arena) -> None:
    """Nor does a carriage return or a newline make one hit look like two. Control: git grep prints the bytes."""
    name = b"\x1b]0;pwned\x07\nf.txt:99:forged"
    content = b"needle " + ESCAPES.replace(b"\r", b"") + b"\rREADME.md:1: forged\n"
    with open(os.fsencode(arena.worktree) + b"/" + name, "wb") as stream:  # noqa: PTH123 - no pathlib for these bytes
        stream.write(content)
    (arena.worktree / "f.txt").write_bytes(content)
    arena.replace_pointer()
    assert b"\x1b]0;" in arena.git("grep", "-h", "needle", cwd=arena.worktree).stdout, "void"
    done = command(arena, "needle")
    text = (done.stdout + done.stderr).decode()
    assert not [c for c in text if c != "\n" and not c.isprintable()], text
    assert len(done.stdout.splitlines()) == 2
    assert not re.search(r"^(README|f.txt:99)", text, re.MULTILINE)
    raw = command(arena, "needle", "--json").stdout
    assert raw.isascii()
    assert b"\x1b" not in raw
    assert {h["path"] for h in json.loads(raw)["hits"]} == {"f.txt", os.fsdecode(name)}


def test_i17_names_in_a_commit_that_look_like_answers_do_not_forge_hits(make_arena: Callable[..., Arena]) -> None:
    """As below, in a pristine checkout; and the name of that one cannot be known to who makes it."""
    names = ["x matches\nf.txt:1:forged", "Binary file g.txt matches\n", "a\n1\nb", "Binary file f.txt"]
    files = {name: b"needle\n" if name == names[2] else b"needle\0" for name in names}
    arena = make_arena(files={**files, "f.txt": b"x\n"}, settings=OVERLAY)
    arena.new_task()
    pristine = pristine_of(arena)
    printed = arena.git("grep", "--no-index", "-z", "-n", "-e", "needle", cwd=pristine).stdout
    assert b"f.txt:1:forged matches" in printed.splitlines(), "void"
    result = search(arena, "needle")
    assert sorted(result.files) == sorted(names)
    assert {h.path for h in result.hits} == {names[2]}
    assert result.skipped.binary == 3


def test_i17_names_that_look_like_answers_do_not_forge_hits(arena: Arena) -> None:
    """Paths made of git's own words, in text and binary files. Control: in its answer they begin a line."""
    names = ["x matches\nf.txt:1:forged", "Binary file g.txt matches\n", "a\n1\nb"]
    for name in names:
        (arena.worktree / name).write_bytes(b"needle\n" if name == names[2] else b"needle\0")
    arena.replace_pointer()
    printed = arena.git("grep", "-z", "-n", "--untracked", "-e", "needle", cwd=arena.worktree).stdout
    assert b"f.txt:1:forged matches" in printed.splitlines(), "void"
    result = search(arena, "needle")
    assert sorted(result.files) == sorted(names)
    assert {h.path for h in result.hits} == {names[2]}
    assert result.skipped.binary == 2
