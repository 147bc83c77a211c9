"""THREATS H, races: names are exchanged and files rewritten while the product works on them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.outcomes import GotThrough
from sandbox.attack.harness.racer import attack_repeatedly, repeat_until_hit, run_racer
from sandbox.attack.harness.scene import SECRET, Scene, hash_of
from sandbox.attack.suites.hostile_paths import NEW
from sandbox.errors import SandboxError

FLIP_BYTES = 1 << 19


def _guests_own(folder: Path) -> Path:
    """Recreate a directory, as a guest can: an overlay does not exchange directories of its lower layer."""
    shutil.rmtree(folder)
    folder.mkdir()
    return folder


def _swappable(scene: Scene) -> None:
    (_guests_own(scene.worktree / "d") / "f").write_text("innocent\n")
    (scene.worktree / "dlink").symlink_to(scene.outside)
    (scene.worktree / "leaf").write_text("x\n")
    (scene.worktree / "leaflink").symlink_to(scene.outside / "secret")


def _under_swap(control: Callable[[Scene], str]) -> Callable[[Scene], str]:
    def run(scene: Scene) -> str:
        with run_racer("swap", scene.worktree / "d", scene.worktree / "dlink"):
            return control(scene)

    return run


def _resolve_then_open(scene: Scene) -> str:
    path = scene.worktree / "d" / "f"

    def attempt() -> bool:
        with suppress(OSError):
            return path.resolve().is_relative_to(scene.worktree) and path.read_bytes() == SECRET
        return False

    return repeat_until_hit(attempt, "resolve-then-open read the secret")


def _reads(scene: Scene) -> str:
    def attempt() -> None:
        with suppress(SandboxError):
            if SECRET.decode() in scene.workbench.read_file(scene.task.id, "d/f").content:
                raise GotThrough("a read returned the host's secret")

    return f"{attack_repeatedly(attempt)} reads, none of the secret"


def _git_add(scene: Scene) -> str:
    git_dir = scene.root / "control.git"
    scene.require_git("clone", "-q", "--bare", str(scene.remote), str(git_dir), cwd=scene.root)
    oid = scene.require_git("hash-object", "--stdin", cwd=scene.root, stdin=SECRET)

    def attempt() -> bool:
        scene.git("--work-tree", str(scene.worktree), "add", "--", "d/f", cwd=scene.worktree, git_dir=git_dir)
        return scene.git("cat-file", "-e", oid, cwd=scene.root, git_dir=git_dir).code == 0

    return repeat_until_hit(attempt, "`git add` stored the secret")


def _whole_tree(scene: Scene) -> str:
    wb, task = scene.workbench, scene.task.id
    steps: tuple[Callable[[], object], ...] = (
        lambda: wb.status(task), lambda: wb.diff(task), lambda: wb.commit(task, "x"),
    )  # fmt: skip

    def attempt() -> None:
        for step in steps:
            with suppress(SandboxError):
                if SECRET.decode().strip() in str(step()):
                    raise GotThrough("an answer contains the host's secret")

    return f"{attack_repeatedly(attempt)} rounds of status, diff and commit, none of the secret"


def _check_then_write(scene: Scene) -> str:
    escaped = scene.outside / "control"

    def attempt() -> bool:
        with suppress(OSError):
            path = scene.worktree / "d" / "control"
            if path.resolve().is_relative_to(scene.worktree):
                path.write_text("x")
        return escaped.exists()

    said = repeat_until_hit(attempt, "check-then-write wrote into the host's directory")
    escaped.unlink()
    return said


def _writes(scene: Scene) -> str:
    names = iter(range(1 << 30))

    def attempt() -> None:
        name = f"d/n{next(names)}"
        with suppress(SandboxError):
            scene.workbench.apply_patch(scene.task.id, NEW % name.encode(), {name: None})
        with suppress(SandboxError):
            patch = b"--- a/leaf\n+++ b/leaf\n@@ -1 +1 @@\n-x\n+y\n"
            scene.workbench.apply_patch(scene.task.id, patch, {"leaf": hash_of(b"x\n")})

    with run_racer("swap", scene.worktree / "leaf", scene.worktree / "leaflink"):
        return f"{attack_repeatedly(attempt)} rounds of writes, none outside"


def _flippable(scene: Scene) -> None:
    (scene.worktree / "flip").write_bytes(b"A" * FLIP_BYTES)


def _flipping(run: Callable[[Scene], str]) -> Callable[[Scene], str]:
    def run_raced(scene: Scene) -> str:
        with run_racer("flip", scene.worktree / "flip", FLIP_BYTES):
            return run(scene)

    return run_raced


def _hash_then_read(scene: Scene) -> str:
    path = scene.worktree / "flip"

    def attempt() -> bool:
        return hashlib.sha256(path.read_bytes()).digest() != hashlib.sha256(path.read_bytes()).digest()

    return repeat_until_hit(attempt, "hash, then read, saw two contents")


def _one_read(scene: Scene) -> str:
    def attempt() -> None:
        found = scene.workbench.read_file(scene.task.id, "flip")
        if found.sha256 != hash_of(found.content.encode()):
            raise GotThrough("the content and the hash of one answer differ")

    return f"{attack_repeatedly(attempt)} reads, each with the hash of its content"


ENTRIES = (
    AttackEntry("H05", "a directory exchanged for a link while it is read", "read", _under_swap(_resolve_then_open),
          _under_swap(_reads), _swappable),
    AttackEntry("H06", "the same while the whole tree is read", "status, diff, commit", _under_swap(_git_add),
          _under_swap(_whole_tree), _swappable),
    AttackEntry("H08", "directories and files exchanged while they are written", "patch",
          _under_swap(_check_then_write),
          _under_swap(_writes), _swappable),
    AttackEntry("H17", "a file rewritten while it is read", "read", _flipping(_hash_then_read), _flipping(_one_read),
          _flippable),
)  # fmt: skip
