"""How a worktree lies on disk: one small protocol, and who may choose between its two kinds.

`overlay` where this host allows it: a shared pristine checkout below, the task's changes above; everything costs what
changed. `plain` everywhere else: a checkout of its own that is walked as a whole. Both give the same answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from sandbox.git.process import Git
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.changes import Changes
from sandbox.workspaces.ignore import IgnoreRules
from sandbox.workspaces.statcache import Memory

Kind = Literal["overlay", "plain"]


@dataclass(frozen=True)
class Site:
    """Where one worktree lives: what guests see, what an overlay keeps beside it, the folder of pristine checkouts.

    `owner`: uid and gid of its files, None for ours. `mask`: content of its `.git` file. `memory`: where a
    plain worktree's look is kept, None for one that is looked at once.
    """

    root: Path
    layers: Path
    pristines: Path
    owner: tuple[int, int] | None
    mask: bytes
    memory: Memory | None = None


@dataclass(frozen=True)
class Base:
    """What is known of the tree a worktree started from, and what is left out of its changes."""

    facts: BaseFacts
    rules: IgnoreRules


class Layout(Protocol):
    """One way to lay worktrees out."""

    kind: Kind

    def lay_out(self, git: Git, tree: str, site: Site) -> None:
        """Make a new worktree that holds `tree`. On failure nothing is left.

        Raises: `quota_exceeded` before anything is written when the tree is too large, `unsafe_repository`.
        """

    def make_ready(self, site: Site) -> None:
        """Bring back what a reboot took away. The caller holds a lock of this worktree."""

    def put_away(self, site: Site) -> None:
        """Take back what `make_ready` gave; nothing of the worktree is lost."""

    def is_ready(self, site: Site) -> bool:
        """Whether `root` shows the worktree."""

    def find_changes(self, git: Git, site: Site, base: Base, head_tree: str) -> Changes:
        """What differs from the tree of the task's head."""

    def pristine(self, site: Site) -> Path | None:
        """The immutable checkout of the base tree below the worktree, named by the tree's id; None without one."""

    def remove(self, site: Site) -> None:
        """Take the worktree away, whatever a guest left in it; safe to repeat."""
