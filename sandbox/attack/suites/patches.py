"""THREATS J: patches with another effect than their text shows or their hashes cover. Control: `git apply`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.scene import FILES, Scene, hash_of, plain_clone, require_equal, require_hit, require_refusal
from sandbox.errors import ErrorCode

CREATE = "diff --git a/{0} b/{0}\nnew file mode {1}\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+{2}\n"
EDIT = "diff --git a/f.txt b/f.txt\n--- a/f.txt\n+++ b/f.txt\n@@ -1,3 +1,4 @@\n one\n+INJ\n two\n three\n"
MOVE = "diff --git a/f.txt b/f.txt\nsimilarity index 100%\n{0} from g.txt\n{0} to public.txt\n"
GATES: Mapping[str, str | None] = {"f.txt": hash_of(FILES["f.txt"])}
CONTROL_FILES = (
    ".gitattributes", "sub/.gitattributes", ".gitmodules", ".lfsconfig", ".mailmap", ".github/workflows/evil.yml",
    ".gitlab-ci.yml", "CODEOWNERS", ".pre-commit-config.yaml", ".husky/pre-commit", ".envrc", ".vscode/tasks.json",
    ".GITATTRIBUTES", ".GitHub/workflows/x.yml",
)  # fmt: skip


@dataclass(frozen=True)
class Trick:
    """A patch that git applies. `changes`: the files it really changes, for which the caller gives no hash."""

    title: str
    patch: str
    changes: tuple[str, ...]


TRICKS = {
    "J03": Trick("a spelling that some file systems treat as `.git`",
                 CREATE.format(".g\u200cit/x", "100644", "x"), (".g\u200cit/x",)),
    "J07": Trick("a header that names another file than the hunks",
                 "diff --git a/f.txt b/f.txt\n--- a/g.txt\n+++ b/g.txt\n@@ -1,2 +1,3 @@\n g1\n+INJ\n g2\n", ("g.txt",)),
    "J08": Trick("a rename of another file than the header names", MOVE.format("rename"), ("g.txt", "public.txt")),
    "J09": Trick("a copy of another file than the header names", MOVE.format("copy"), ("public.txt",)),
    "J11": Trick("old and new names that differ",
                 "--- a/f.txt\n+++ b/g.txt\n@@ -1,2 +1,3 @@\n g1\n+INJ\n g2\n", ("g.txt",)),
    "J12": Trick("a second file after the hunks of the first",
                 EDIT + "--- a/g.txt\n+++ b/g.txt\n@@ -1,2 +1,3 @@\n g1\n+INJ\n g2\n", ("f.txt", "g.txt")),
    "J13": Trick("a second file after mail text",
                 f"{EDIT}-- \n2.39\n\nregards\n\ndiff --git a/g.txt b/g.txt\n--- a/g.txt\n+++ b/g.txt\n"
                 "@@ -1,2 +1,3 @@\n g1\n+INJ\n g2\n", ("f.txt", "g.txt")),
    "J15": Trick("a symlink out of the tree", CREATE.format("l", "120000", "../outside").replace("\n+../outside\n",
                 "\n+../outside\n\\ No newline at end of file\n"), ("l",)),
    "J18": Trick("a file that becomes a symlink",
                 "diff --git a/f.txt b/f.txt\ndeleted file mode 100644\n--- a/f.txt\n+++ /dev/null\n@@ -1,3 +0,0 @@\n"
                 "-one\n-two\n-three\ndiff --git a/f.txt b/f.txt\nnew file mode 120000\n--- /dev/null\n+++ b/f.txt\n"
                 "@@ -0,0 +1 @@\n+../outside\n\\ No newline at end of file\n", ("f.txt",)),
    "J20": Trick("a submodule", CREATE.format("s", "160000", "Subproject commit " + "1" * 40), ("s",)),
    "J25": Trick("a deletion of a file without a hash",
                 "--- a/g.txt\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-g1\n-g2\n", ("g.txt",)),
    "J29": Trick("the last of several files cannot be written",
                 EDIT + CREATE.format("f2/x", "100644", "x") + CREATE.format("f2", "100644", "x"), ("f.txt",)),
}  # fmt: skip
REFUSALS = (
    *(ErrorCode.PATCH_REJECTED, ErrorCode.UNSAFE_PATH, ErrorCode.INVALID_INPUT, ErrorCode.STALE_HASH),
    ErrorCode.NOT_FOUND,
)


def read_state(root: Path) -> dict[str, object]:
    """Every name below `root`, with its content or link target."""
    state: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        state[str(path.relative_to(root))] = content
    return state


def _applies(trick: Trick) -> Callable[[Scene], str]:
    def control(scene: Scene) -> str:
        folder = plain_clone(scene)
        before = read_state(folder)
        done = scene.git("apply", "-", cwd=folder, stdin=trick.patch.encode())
        after = read_state(folder)
        untouched = [path for path in trick.changes if before.get(path, 0) == after.get(path, 0)]
        require_hit(not untouched, f"git left {untouched} alone: {done.stderr.decode(errors='replace').strip()}")
        return f"`git apply` changed {', '.join(trick.changes)}"

    return control


def _refuses(trick: Trick) -> Callable[[Scene], str]:
    def attack(scene: Scene) -> str:
        before = read_state(scene.worktree)
        gates: tuple[Mapping[str, str | None], ...] = (
            {},
            GATES,
            {**GATES, **{p: None for p in trick.changes if p not in FILES}},
        )
        codes = []
        for given in gates:
            apply = partial(scene.workbench.apply_patch, scene.task.id, trick.patch.encode(), given)
            error = require_refusal(apply, *REFUSALS)
            codes.append(error.code)
        if read_state(scene.worktree) != before:
            raise GotThrough("refused, but the worktree changed")
        return f"refused with any hashes: {', '.join(sorted(set(codes)))}"

    return attack


def _entry(name: str, trick: Trick) -> AttackEntry:
    return AttackEntry(name, trick.title, "patch", _applies(trick), _refuses(trick))


def _makes_control_files(scene: Scene) -> str:
    folder = plain_clone(scene)
    for path in CONTROL_FILES:
        done = scene.git("apply", "-", cwd=folder, stdin=CREATE.format(path, "100644", "x").encode())
        require_hit(done.code == 0, f"git refuses {path}")
    return f"`git apply` creates all {len(CONTROL_FILES)}"


def _control_files(scene: Scene) -> str:
    for path in CONTROL_FILES:
        patch = CREATE.format(path, "100644", "x").encode()
        for gates in ({path: None}, {}):
            require_refusal(partial(scene.workbench.apply_patch, scene.task.id, patch, gates), ErrorCode.UNSAFE_PATH)
        require_refusal(partial(scene.workbench.write_file, scene.task.id, path, "x\n", None), ErrorCode.UNSAFE_PATH)
    require_equal(scene.workbench.status(scene.task.id).changes, (), "changes")
    return f"{len(CONTROL_FILES)} names refused for patches and writes"


BLOCK = "def {}():\n    check()\n    return True\n\n"
FOUR = "".join(BLOCK.format(name) for name in "abcd")
ELSEWHERE = b"--- a/f.txt\n+++ b/f.txt\n@@ -7,2 +7 @@\n-    check()\n     return True\n"


def _guesses(scene: Scene) -> str:
    folder = plain_clone(scene)
    (folder / "f.txt").write_text(FOUR)
    scene.git("apply", "-", cwd=folder, stdin=ELSEWHERE)
    require_hit((folder / "f.txt").read_text() != FOUR, "git refused")
    return "`git apply` changed one of four possible places"


def _does_not_guess(scene: Scene) -> str:
    (scene.worktree / "f.txt").write_text(FOUR)
    gates = {"f.txt": hash_of(FOUR.encode())}
    error = require_refusal(
        lambda: scene.workbench.apply_patch(scene.task.id, ELSEWHERE, gates), ErrorCode.PATCH_REJECTED
    )
    require_equal((scene.worktree / "f.txt").read_text(), FOUR, "the file")
    return f"refused: {error.brief}"


def _filters(scene: Scene) -> None:
    payload = scene.script("payload", then="cat")
    scene.replace_pointer(f'[filter "evil"]\n\tclean = {payload}\n\tsmudge = {payload}\n')
    (scene.worktree / ".gitattributes").write_text("* filter=evil\n")


def _filter_runs(scene: Scene) -> str:
    scene.require_mark("payload", lambda: scene.git("apply", "--check", "-", cwd=scene.worktree, stdin=EDIT.encode()))
    return "`git apply --check` ran the filter"


def _no_filter(scene: Scene) -> str:
    scene.workbench.apply_patch(scene.task.id, EDIT.encode(), GATES)
    require_equal(b"INJ" in (scene.worktree / "f.txt").read_bytes(), True, "the patch is applied")
    return "applied; no filter ran"


def _stale(scene: Scene) -> str:
    folder = plain_clone(scene)
    (folder / "f.txt").write_text("one\ntwo\nthree\nand more\n")
    require_hit(scene.git("apply", "-", cwd=folder, stdin=EDIT.encode()).code == 0, "git refused")
    return "`git apply` changed a file that had changed since it was read"


def _needs_right_hash(scene: Scene) -> str:
    (scene.worktree / "f.txt").write_text("one\ntwo\nthree\nand more\n")
    before, good = read_state(scene.worktree), GATES["f.txt"] or ""
    for gate in (good, good.upper(), good[7:], hash_of(b"one two three"), "sha256:" + "0" * 64, None):
        apply = partial(scene.workbench.apply_patch, scene.task.id, EDIT.encode(), {"f.txt": gate})
        require_refusal(apply, *REFUSALS)
    require_equal(read_state(scene.worktree), before, "the worktree")
    return "refused with every hash except that of the content"


ENTRIES = (
    *(_entry(name, trick) for name, trick in TRICKS.items()),
    AttackEntry("J24", "a hunk that matches several places", "patch", _guesses, _does_not_guess),
    AttackEntry(
        "J31", "files that control git, a forge or an editor", "patch, write", _makes_control_files, _control_files
    ),
    AttackEntry("J34", "a filter that runs when a patch is checked", "patch", _filter_runs, _no_filter, _filters),
    AttackEntry("J36", "hashes of other content", "patch", _stale, _needs_right_hash),
)
