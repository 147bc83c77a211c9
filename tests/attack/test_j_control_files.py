"""THREATS J31: an edit does not write what git, a forge or somebody's editor obeys, unless the operator says so.

An edit is gated; what a check writes into its worktree is not, so the same rules name such files before a push.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandbox.attack.harness.scene import FILES, hash_of
from sandbox.config import find_resources
from sandbox.errors import ErrorCode
from sandbox.policy.paths import parse_repo_path
from sandbox.policy.writes import PathPolicy, find_flags, load_path_policy
from tests.attack.arena import Arena, refused

pytestmark = [pytest.mark.must, pytest.mark.one_git]
CONTROL_FILES = [
    ".gitattributes", "sub/.gitattributes", ".gitmodules", ".lfsconfig", ".mailmap", ".github/workflows/evil.yml",
    ".gitlab-ci.yml", "CODEOWNERS", ".github/CODEOWNERS", ".pre-commit-config.yaml", ".husky/pre-commit", ".envrc",
    ".vscode/tasks.json",
]  # fmt: skip
ALLOWED = '[[repository]]\nmatch = ["*"]\nallow = ["/.github/workflows/", ".gitattributes"]\n'
NEW = "--- /dev/null\n+++ b/{}\n@@ -0,0 +1 @@\n+x\n"


def accepted_by_git(arena: Arena, patch: bytes) -> bool:
    """The control: plain git applies it to a plain clone."""
    clone = arena.root / "plain"
    if not clone.exists():
        arena.require_git("clone", "-q", str(arena.remote), str(clone), cwd=arena.root)
    return arena.git("apply", "-", cwd=clone, stdin=patch).code == 0


@pytest.mark.parametrize("path", CONTROL_FILES)
def test_j31_a_control_file_is_not_made(arena: Arena, path: str) -> None:
    patch = NEW.format(path).encode()
    assert accepted_by_git(arena, patch), "void"
    with refused(ErrorCode.UNSAFE_PATH):
        arena.workbench.apply_patch(arena.task.id, patch, {path: None})
    with refused(ErrorCode.UNSAFE_PATH):
        arena.workbench.apply_patch(arena.task.id, patch, {})
    assert arena.workbench.status(arena.task.id).changes == ()


@pytest.mark.parametrize("path", [".GITATTRIBUTES", ".GitHub/workflows/x.yml", "gitatt~1", ".gitattributes."])
def test_j31_another_spelling_is_no_way_round(arena: Arena, path: str) -> None:
    patch = NEW.format(path).encode()
    assert accepted_by_git(arena, patch), "void"
    with refused(ErrorCode.UNSAFE_PATH):
        arena.workbench.apply_patch(arena.task.id, patch, {path: None})
    assert arena.workbench.status(arena.task.id).changes == ()


CHANGES = {
    "changed": "--- a/.gitattributes\n+++ b/.gitattributes\n@@ -1 +1 @@\n-* text\n+* -diff\n",
    "deleted": "--- a/.gitattributes\n+++ /dev/null\n@@ -1 +0,0 @@\n-* text\n",
    "with-another": (
        "--- a/f.txt\n+++ b/f.txt\n@@ -1,3 +1,3 @@\n-one\n+1\n two\n three\n"
        "--- a/.gitattributes\n+++ b/.gitattributes\n@@ -1 +1 @@\n-* text\n+* -diff\n"
    ),
}


@pytest.mark.parametrize("how", CHANGES)
def test_j31_one_that_is_there_is_neither_changed_nor_deleted(make_arena: Callable[..., Arena], how: str) -> None:
    arena = make_arena(files={**FILES, ".gitattributes": b"* text\n"})
    arena.new_task()
    patch = CHANGES[how].encode()
    assert accepted_by_git(arena, patch), "void"
    gates = {".gitattributes": hash_of(b"* text\n"), "f.txt": hash_of(FILES["f.txt"])}
    with refused(ErrorCode.UNSAFE_PATH):
        arena.workbench.apply_patch(
            arena.task.id, patch, gates if how == "with-another" else dict([*gates.items()][:1])
        )
    assert arena.workbench.status(arena.task.id).changes == (), "all files or none"


def test_j31_no_other_kind_of_edit_reaches_one(make_arena: Callable[..., Arena]) -> None:
    """Control: the same edits of another file are made."""
    arena = make_arena(files={**FILES, ".gitattributes": b"* text\n", "other": b"* text\n"})
    arena.new_task()
    move = "diff --git a/{0} b/{1}\nsimilarity index 100%\n{2} from {0}\n{2} to {1}\n"
    seen, fresh = hash_of(b"* text\n"), hash_of(FILES["g.txt"])

    def acts(control: str, new: str) -> list[Callable[[], object]]:
        wb, task = arena.workbench, arena.task.id
        return [
            lambda: wb.edit_file(task, control, "text", "-diff", seen),
            lambda: wb.write_file(task, control, "* text\n", hash_of(b"* -diff\n")),
            lambda: wb.write_file(task, new, "x\n", None),
            lambda: wb.apply_patch(
                task, move.format("g.txt", f"a/{new}", "copy").encode(), {f"a/{new}": None, "g.txt": fresh}
            ),
            lambda: wb.apply_patch(
                task, move.format(control, "free", "rename").encode(), {control: seen, "free": None}
            ),
            lambda: wb.apply_patch(
                task, move.format("free", control, "rename").encode(), {"free": seen, control: None}
            ),
        ]

    for act in acts("other", "new"):
        act()
    before = arena.workbench.status(arena.task.id).changes
    for act in acts(".gitattributes", ".gitmodules"):
        with refused(ErrorCode.UNSAFE_PATH):
            act()
    assert arena.workbench.status(arena.task.id).changes == before


def test_j31_the_operator_allows_what_he_names_and_nothing_else(arena: Arena) -> None:
    (arena.home / "policies").mkdir()
    (arena.home / "policies" / "paths.toml").write_text(ALLOWED)
    with arena.open_workbench() as workbench:
        for path in (".gitattributes", ".github/workflows/x.yml"):
            workbench.apply_patch(arena.task.id, NEW.format(path).encode(), {path: None})
            assert (arena.worktree / path).read_bytes() == b"x\n"
        for path in (".gitmodules", ".github/CODEOWNERS", ".GITATTRIBUTES"):
            with refused(ErrorCode.UNSAFE_PATH):
                workbench.apply_patch(arena.task.id, NEW.format(path).encode(), {path: None})


def test_j31_a_policy_that_cannot_be_read_stops_edits(arena: Arena) -> None:
    """Not: goes on with the shipped one, whose denials may be fewer than the operator's."""
    (arena.home / "policies").mkdir()
    (arena.home / "policies" / "paths.toml").write_text("[[repository]]\nmatch = ['*']\ndenied = ['*.pem']\n")
    with arena.open_workbench() as workbench, refused(ErrorCode.INVALID_INPUT):
        workbench.apply_patch(arena.task.id, NEW.format("x").encode(), {"x": None})
    assert not (arena.worktree / "x").exists()


@pytest.fixture(scope="module")
def shipped() -> PathPolicy:
    return load_path_policy(find_resources("policies") / "paths.toml", find_resources("policies") / "none.toml")


def test_j31_what_the_guest_wrote_itself_is_named_by_the_same_rules(arena: Arena, shipped: PathPolicy) -> None:
    for path in (".gitattributes", ".github/workflows/evil.yml", "Makefile", "plain.c"):
        (arena.worktree / path).parent.mkdir(parents=True, exist_ok=True)
        (arena.worktree / path).write_text("x\n")
    changes = arena.workbench.commit(arena.task.id, "x").files
    flags = {change.path: find_flags(parse_repo_path(change.path), shipped, arena.repo_id) for change in changes}
    assert flags == {
        ".gitattributes": ("git-control",),
        ".github/workflows/evil.yml": ("ci",),
        "Makefile": ("build",),
        "plain.c": (),
    }
