"""S11: a hash-gated, durable patch of one file, against plain `git apply`, which checks no hash and does not fsync.

The product's time includes the lock, task record, gate, hunk placing, fsyncs of file and directory, and the journal.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from benchmarks._harness import compare
from sandbox import Workbench
from sandbox.edits.hash_gate import HashGate
from sandbox.edits.patch import apply_patch
from sandbox.edits.publish import publish_edit
from sandbox.files.tree import WorktreeFiles, sha256_of
from sandbox.models import PatchResult

LINES = [f"line {number} of a source file of ordinary length\n" for number in range(400)]
VERSIONS = ("".join(LINES).encode(), "".join([*LINES[:200], "another line\n", *LINES[201:]]).encode())


def patch(old: bytes, new: bytes) -> bytes:
    def side(content: bytes) -> list[bytes]:
        return content.splitlines(keepends=True)[197:204]

    before, after = side(old), side(new)
    body = [b" " + line for line in before[:3]] + [b"-" + before[3], b"+" + after[3]] + [b" " + x for x in before[4:]]
    return b"--- a/src/f.c\n+++ b/src/f.c\n@@ -198,7 +198,7 @@\n" + b"".join(body)


class Turns:
    """Alternates between two versions, so that every round has the same work."""

    def __init__(self) -> None:
        self._round = 0

    def next(self) -> tuple[bytes, dict[str, str | None]]:
        old, new = VERSIONS[self._round % 2], VERSIONS[1 - self._round % 2]
        self._round += 1
        return patch(old, new), {"src/f.c": sha256_of(old)}


def repository(folder: Path) -> Path:
    """Create a repository with one commit. Its worktree is used for the floor."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "f.c").write_bytes(VERSIONS[0])
    identity = ["-c", "user.name=b", "-c", "user.email=b@localhost"]
    for argv in (["init", "-q", "-b", "main"], ["add", "-A"], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *argv], cwd=folder, check=True)
    return folder


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        Workbench(Path(name) / "home", allow_file=True, environ={}) as workbench,
    ):
        plain = repository(Path(name) / "plain")
        task = workbench.create_task(workbench.clone(str(plain)).repository.id)
        bare = Path(name) / "bare"
        (bare / "src").mkdir(parents=True)
        (bare / "src" / "f.c").write_bytes(VERSIONS[0])
        ours, inner, gits = Turns(), Turns(), Turns()

        def product() -> PatchResult:
            return workbench.apply_patch(task.id, *ours.next())

        def core() -> PatchResult:
            text, expected = inner.next()
            with WorktreeFiles(bare) as files:
                return publish_edit(files, apply_patch(HashGate(files), text, expected), None)

        def floor() -> None:
            text, _ = gits.next()
            subprocess.run(["git", "apply", "-"], cwd=plain, input=text, check=True, env={"PATH": os.environ["PATH"]})

        compare("S11 gated patch of one file, use-case", product, floor, floor_name="git apply", target="0.6x")
        compare("S11 gated patch of one file, without task", core, floor, floor_name="git apply", target="0.6x")
        workbench.close_task(task.id, delete_worktree=True, discard=True)


if __name__ == "__main__":
    main()
