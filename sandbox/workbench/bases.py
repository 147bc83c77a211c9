"""What is known of base commits, found once and kept: no operation on a task lists the whole base tree again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from pydantic import ValidationError

from sandbox.errors import SandboxError
from sandbox.git.objects import SYMLINK, TreeEntry, list_tree, read_blobs, tree_of
from sandbox.git.process import Git
from sandbox.policy.paths import show_path
from sandbox.profiles import MARKER_BYTES, Profile, detect
from sandbox.store.home import read_json, write_json
from sandbox.workbench.parts import Parts
from sandbox.workspaces.facts import BaseFacts, gather_facts
from sandbox.workspaces.layout import Base


def base_of(parts: Parts, repo_id: str, git: Git, commit: str) -> Base:
    """A base commit as its worktrees need it."""
    facts = facts_of(parts, repo_id, git, commit)
    return Base(facts, facts.rules(detect(parts.profiles, facts.marker).artifacts))


def profile_of(parts: Parts, repo_id: str, git: Git, commit: str) -> Profile:
    """The profile whose markers a commit carries."""
    return detect(parts.profiles, facts_of(parts, repo_id, git, commit).marker)


def facts_of(parts: Parts, repo_id: str, git: Git, commit: str) -> BaseFacts:
    """Facts of a commit: from the home, or from git when they are not there or a profile asks for more.

    Raises: `quota_exceeded`, `not_found`.
    """
    path = parts.home.facts(repo_id, commit)
    wanted = {name for profile in parts.profiles.values() for name in profile.markers}
    known = _stored(path)
    if known is not None and wanted <= known.markers.keys():
        return known
    tree = tree_of(git, commit)
    entries = list_tree(git, tree)
    facts = gather_facts(git, tree, entries, _markers(git, entries, wanted))
    path.parent.mkdir(exist_ok=True, mode=0o700)
    write_json(path, facts.model_dump(mode="json"))
    return facts


def _stored(path: Path) -> BaseFacts | None:
    try:
        document = read_json(path)
        return None if document is None else BaseFacts.model_validate(document)
    except (SandboxError, ValidationError):
        return None  # damaged: only a note of what git knows


def _markers(git: Git, entries: Iterable[TreeEntry], wanted: Collection[str]) -> dict[str, bytes | None]:
    """Content of the wanted files; None for one that is absent, too large or no regular file."""
    found: dict[str, bytes | None] = dict.fromkeys(wanted)
    regular = {show_path(e.path): e.oid for e in entries if e.mode != SYMLINK and 0 <= _size(e) <= MARKER_BYTES}
    present = [name for name in found if name in regular]
    found.update(zip(present, read_blobs(git, [regular[name] for name in present]), strict=True))
    return found


def _size(entry: TreeEntry) -> int:
    return -1 if entry.size is None else entry.size
