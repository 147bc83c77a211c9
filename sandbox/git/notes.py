"""Receipts as git notes: lines of text for a commit, in a ref that plain git also shows.

`git notes --ref=space-sandbox show COMMIT` prints them. The ref in the cache clone is a copy of the remote's, which
anyone who may push there has written: a note is found by its exact path, and must be a regular file of bounded size.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.blobs import read_blobs
from sandbox.git.objects import is_object_id, peel
from sandbox.git.process import Git
from sandbox.git.refs import drop_ref, resolve_ref
from sandbox.git.transport import RemoteAccess, fetch_ref, list_refs

NOTES_REF = "refs/notes/space-sandbox"
MOST_NOTE_BYTES = 4 * 1024**2
"""Of one commit's note; a larger one is refused."""
MOST_LINES = 32
"""Lines of a note that are read, the last ones, and kept when one is added."""


def fetch_notes(git: Git, access: RemoteAccess) -> str | None:
    """Copy the remote's notes; returns the commit of the ref, None if the remote has none. The caller holds the
    repository's lock.

    Raises: network errors, `quota_exceeded`; `unsafe_repository` if the ref is no commit.
    """
    shown = [oid for oid, name in list_refs(git, access, patterns=(NOTES_REF,)) if name == NOTES_REF]
    if not shown:
        drop_ref(git, NOTES_REF)
        return None
    fetch_ref(git, access, NOTES_REF, NOTES_REF, partial=False)
    tip = resolve_ref(git, NOTES_REF)
    if tip is None or peel(git, tip, "commit") != tip:
        raise _unsafe_error("the ref is no commit")
    return tip


def read_note(git: Git, commit: str) -> list[bytes]:
    """The last lines of a commit's note in the copy, in their order.

    Raises: `unsafe_repository` for a note that is no regular file; `quota_exceeded` for a large one.
    """
    if not is_object_id(commit) or resolve_ref(git, NOTES_REF) is None:
        return []
    paths = (commit, f"{commit[:2]}/{commit[2:]}", f"{commit[:2]}/{commit[2:4]}/{commit[4:]}")
    for path in paths:  # as git lays notes out, by their number
        listed = git.run("ls-tree", "-z", "--full-tree", NOTES_REF, "--", path).decode(errors="replace")
        for entry in filter(None, listed.split("\0")):
            return _read_entry(git, *entry.partition("\t")[0].split(" "))
    return []


def _read_entry(git: Git, mode: str, kind: str, oid: str) -> list[bytes]:
    if (mode, kind) != ("100644", "blob"):
        raise _unsafe_error(f"a note is a {kind} of mode {mode}")
    (content,) = read_blobs(git, [oid], limit=MOST_NOTE_BYTES)
    return [line.strip() for line in content.splitlines() if line.strip()][-MOST_LINES:]


def add_to_note(git: Git, commit: str, line: bytes, identity: Mapping[str, str]) -> str:
    """Add a line to a commit's note in the copy; returns the new commit of the ref. The caller holds the lock."""
    lines = [each for each in read_note(git, commit) if each != line]
    content = b"".join(each + b"\n" for each in (*lines, line)[-MOST_LINES:])
    oid = git.run("hash-object", "-w", "--stdin", stdin=content).decode().strip()
    git.run("notes", f"--ref={NOTES_REF}", "add", "-f", "-C", oid, commit, env=identity)
    tip = resolve_ref(git, NOTES_REF)
    if tip is None or read_note(git, commit)[-1:] != [line]:
        raise SandboxError(ErrorCode.INTERNAL, "git did not store the note", details=f"{commit} {oid}")
    return tip


def _unsafe_error(why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.UNSAFE_REPOSITORY, f"The notes of the remote cannot be used: {why}", details=NOTES_REF
    )
