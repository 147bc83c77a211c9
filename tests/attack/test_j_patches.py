"""THREATS J, those with an effect on the host; the grammar is in the unit tests. Control: `git apply` in a worktree."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.attack.harness.scene import FILES, hash_of
from sandbox.errors import ErrorCode
from tests.attack.arena import Arena, outcome, refused

pytestmark = pytest.mark.must
CREATE = (
    "diff --git a/{0} b/{0}\nnew file mode {1}\nindex 0000000..1111111\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+{2}\n"
)
EDIT = "diff --git a/f.txt b/f.txt\n--- a/f.txt\n+++ b/f.txt\n@@ -1,3 +1,4 @@\n one\n+INJ\n two\n three\n"
GATES: dict[str, str | None] = {"f.txt": hash_of(FILES["f.txt"])}
DOTGIT = ".g\u200cit/x"
PATCHES: dict[str, tuple[str, dict[str, str | None], ErrorCode | None, str]] = {
    "j03": (CREATE.format(DOTGIT, "100644", "x"), {}, None, DOTGIT),
    "j08": (
        "diff --git a/f.txt b/f.txt\nsimilarity index 100%\nrename from g.txt\nrename to public.txt\n", GATES,
        ErrorCode.PATCH_REJECTED, "public.txt",
    ),
    "j15_absolute": (CREATE.format("l", "120000", "/etc/passwd"), {}, ErrorCode.PATCH_REJECTED, "l"),
    "j15_relative": (CREATE.format("l", "120000", "../outside"), {"l": None}, ErrorCode.PATCH_REJECTED, "l"),
    "j20": (CREATE.format("s", "160000", "Subproject commit " + "1" * 40), {}, ErrorCode.PATCH_REJECTED, "s"),
}  # fmt: skip


@pytest.fixture
def plain(arena: Arena) -> Path:
    """The same files as a plain repository, for the control."""
    folder = arena.root / "plain"
    arena.require_git("clone", "-q", str(arena.remote), str(folder), cwd=arena.root)
    return folder


def state(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file() and not p.is_symlink()}


@pytest.mark.parametrize("name", PATCHES)
def test_j03_j08_j15_j20_effect_not_text_decides(arena: Arena, plain: Path, name: str) -> None:
    text, gates, code, appears = PATCHES[name]
    patch = text.replace("\n+" + "x" + "\n", "\n+x\n").encode()
    assert arena.git("apply", "-", cwd=plain, stdin=patch).code == 0, "void: git refuses it"
    assert (plain / appears).is_symlink() or (plain / appears).exists(), "void: it did nothing"
    before = state(arena.worktree), arena.read_canaries()
    for expected in (gates, {}, {**gates, appears: None}):
        with refused(
            *(
                [code]
                if code and expected == gates
                else [ErrorCode.PATCH_REJECTED, ErrorCode.UNSAFE_PATH, ErrorCode.INVALID_INPUT]
            )
        ):
            arena.workbench.apply_patch(arena.task.id, patch, expected)
    assert (state(arena.worktree), arena.read_canaries()) == before


def test_j24_a_hunk_goes_where_its_lines_are_or_nowhere(arena: Arena, plain: Path) -> None:
    """git takes the nearest of several places in silence: a wrong number changes another function than was meant."""
    block = "def {}():\n    check()\n    return True\n\n"
    content = "".join(block.format(n) for n in "abcd")
    meant = "--- a/f.txt\n+++ b/f.txt\n@@ -{0},2 +{0} @@\n-    check()\n     return True\n"
    for folder in (plain, arena.worktree):
        (folder / "f.txt").write_text(content)
    gates: dict[str, str | None] = {"f.txt": hash_of(content.encode())}
    near = meant.format(7).encode()
    assert arena.git("apply", "-", cwd=plain, stdin=near).code == 0, "void: git refuses it"
    assert (plain / "f.txt").read_text() != content, "void: it did nothing"
    before = state(arena.worktree)
    with refused(ErrorCode.PATCH_REJECTED) as caught:
        arena.workbench.apply_patch(arena.task.id, near, gates)
    assert "lines 2, 6, 10, 14" in caught[0].details
    assert state(arena.worktree) == before
    assert arena.workbench.apply_patch(arena.task.id, meant.format(10).encode(), gates).adjusted == ()
    assert (arena.worktree / "f.txt").read_text() == content[
        : content.index("c():")
    ] + "c():\n    return True\n\n" + block.format("d")


def test_j29_all_files_or_none(arena: Arena, plain: Path) -> None:
    """`git apply --check` passes, and then the last file fails when the others are written."""
    patch = (EDIT + CREATE.format("f2/x", "100644", "x") + CREATE.format("f2", "100644", "x")).encode()
    assert arena.git("apply", "--check", "-", cwd=plain, stdin=patch).code == 0, "void"
    assert arena.git("apply", "-", cwd=plain, stdin=patch).code != 0
    assert b"INJ" in (plain / "f.txt").read_bytes(), "void: git is atomic here"
    before = state(arena.worktree)
    for gates in (GATES, {**GATES, "f2/x": None, "f2": None}):
        with refused(ErrorCode.PATCH_REJECTED):
            arena.workbench.apply_patch(arena.task.id, patch, gates)
    assert state(arena.worktree) == before


def test_j29_a_failing_write_takes_the_earlier_ones_back(arena: Arena) -> None:
    """The guest makes the second target a link, a FIFO's parent, a file where a directory has to be."""
    (arena.worktree / "new").symlink_to(arena.outside)
    (arena.worktree / "file").write_text("x")
    before = state(arena.worktree), arena.read_canaries()
    for path, code in (("new/z", ErrorCode.UNSAFE_PATH), ("file/z", ErrorCode.INVALID_INPUT)):
        patch = (EDIT + CREATE.format(path, "100644", "x")).encode()
        with refused(code):
            arena.workbench.apply_patch(arena.task.id, patch, {**GATES, path: None})
        assert (state(arena.worktree), arena.read_canaries()) == before


def test_j34_applying_runs_no_filter(arena: Arena) -> None:
    payload = arena.script("j34", then="cat")
    arena.replace_pointer(f'[filter "evil"]\n\tclean = {payload}\n\tsmudge = {payload}\n')
    (arena.worktree / ".gitattributes").write_text("* filter=evil\n")
    arena.require_mark("j34", lambda: arena.git("apply", "--check", "-", cwd=arena.worktree, stdin=EDIT.encode()))
    arena.workbench.apply_patch(arena.task.id, EDIT.encode(), GATES)
    assert b"INJ" in (arena.worktree / "f.txt").read_bytes()
    assert arena.marks() == set()


def test_j35_gate_and_write_under_a_race(arena: Arena, racer: Callable[..., Any], record_property: Any) -> None:
    """The gated file is exchanged for another all the time: the result is one of the two files or the patched one.

    Control: look at it, look again, and it is another; what was computed from the first look lands on the second.
    """
    good, other = arena.worktree / "f.txt", arena.worktree / "other"
    other.write_bytes(FILES["g.txt"])
    patched = b"one\nINJ\ntwo\nthree\n"
    with racer("swap", good, other):
        ends = time.monotonic() + 4
        while good.read_bytes() != FILES["f.txt"] or good.read_bytes() == FILES["f.txt"]:
            assert time.monotonic() < ends, "void"
    applied = stale = 0
    ends = time.monotonic() + 4
    while time.monotonic() < ends:
        good.write_bytes(FILES["f.txt"])
        other.write_bytes(FILES["g.txt"])
        with racer("swap", good, other):
            error = outcome(lambda: arena.workbench.apply_patch(arena.task.id, EDIT.encode(), GATES))
        if error is None:
            applied += 1
            assert patched in {good.read_bytes(), other.read_bytes()}
        else:
            assert error.code in {ErrorCode.STALE_HASH, ErrorCode.CONFLICT}, error.brief
            stale += 1
        assert {good.read_bytes(), other.read_bytes()} <= {FILES["f.txt"], FILES["g.txt"], patched}
    record_property("attempts", f"{applied} applied, {stale} stale")
    assert applied + stale > 10
