"""Build hostile remotes: objects and refs that porcelain would refuse, and a checkout that checks no names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox.attack.harness.scene import Scene


@dataclass(frozen=True)
class Plumbing:
    """Writes directly into a bare repository."""

    scene: Scene
    remote: Path

    def blob(self, content: bytes) -> str:
        """Write a blob; its id."""
        return self.scene.require_git(
            "hash-object", "-w", "--stdin", cwd=self.remote, git_dir=self.remote, stdin=content
        )

    def tree(self, *entries: tuple[str, bytes, str]) -> str:
        """Write a tree of (mode, name, id) with unchecked names; its id."""
        raw = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries)
        words = ("hash-object", "-w", "-t", "tree", "--literally", "--stdin")
        return self.scene.require_git(*words, cwd=self.remote, git_dir=self.remote, stdin=raw)

    def publish(self, tree: str, ref: str = "refs/heads/main") -> str:
        """Commit the tree as the new tip of a ref; the id of the commit."""
        git = self.scene.require_git
        oid = git("commit-tree", tree, "-m", "hostile", cwd=self.remote, git_dir=self.remote)
        git("update-ref", "--no-deref", ref, oid, cwd=self.remote, git_dir=self.remote)
        return oid

    def nested_tree(self, path: str, mode: str, oid: str) -> str:
        """Write nested trees with one leaf at `path`, names unchecked; the id of the top tree."""
        tree = oid
        for name in reversed(path.encode("utf-8", "surrogateescape").split(b"/")):
            tree = self.tree((mode, name, tree))
            mode = "40000"
        return tree


def naive_checkout(scene: Scene, remote: Path, target: Path, ref: str = "main") -> None:
    """A checkout without checks: join the name and write."""
    target.mkdir()
    listing = scene.git("ls-tree", "-r", "-z", ref, cwd=remote, git_dir=remote).stdout
    for record in listing.split(b"\0")[:-1]:
        head, name = record.split(b"\t", 1)
        mode, _, oid = head.decode().split()
        content = scene.git("cat-file", "blob", oid, cwd=remote, git_dir=remote).stdout
        path = os.path.join(os.fsencode(target), name)  # noqa: PTH118 - bytes
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - bytes
        if mode == "120000":
            os.symlink(content, path)  # noqa: PTH211 - bytes
        else:
            Path(os.fsdecode(path)).write_bytes(content)
