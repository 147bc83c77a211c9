"""What an answer shows of a file in conflict: its text with markers, or of a long file its conflicting lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from sandbox.git import objects
from sandbox.git.blobs import read_blobs
from sandbox.git.diff import blob_sizes
from sandbox.git.failures import OutOfMemory
from sandbox.git.memory_limits import LARGE
from sandbox.git.merge import TreeConflict, TreeMerge
from sandbox.git.process import Git
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import MergeConflict

MERGED_BYTES, MERGED_TEXTS = 16 * 1024, 50
"""Longer and further texts with conflict markers are not part of an answer: each costs two git commands, and an excerpt
a third.
"""

_READ_BYTES = 8 * 1024**2  # of a longer file no excerpt is shown
_LINES_OF_DIFF = lazy_pattern(rb"^@@ -(?P<old>\d+)(?:,(?P<deleted>\d+))? \+(?P<new>\d+)(?:,(?P<added>\d+))? @@")

_EXCERPT_NOTE = (
    "A file with 'excerpt' is too long to be shown whole. To resolve it without sending all of it, and to keep what "
    "else both sides changed there: edit those lines in the task until they are as in 'theirs', commit if the task has "
    "commits of its own, and sync again. Then change them as they should be. 'take' drops all that the other side "
    "changed in the file"
)
_NO_TEXT_NOTE = (
    "Of a conflict with neither 'merged' nor 'excerpt' no text can be shown: take a side, or send the content"
)
_LEFT_OUT_NOTE = "Only the first {most} conflicts have a text: sync with an answer for those to see the next"


def describe_hidden_texts(conflicts: Sequence[MergeConflict]) -> str:
    """How to resolve conflicts that are not shown whole; "" without one. Pure."""
    first, further = conflicts[:MERGED_TEXTS], conflicts[MERGED_TEXTS:]
    hidden = [one for one in first if one.ours and one.theirs and one.merged is None]
    notes = (
        (_EXCERPT_NOTE, any(one.excerpt is not None for one in hidden)),
        (_NO_TEXT_NOTE, any(one.excerpt is None for one in hidden)),
        (_LEFT_OUT_NOTE.format(most=MERGED_TEXTS), any(one.ours and one.theirs for one in further)),
    )
    return ". ".join(text for text, applies in notes if applies)


def read_conflict_text(git: Git, merge: TreeMerge, conflict: TreeConflict) -> tuple[str | None, str | None]:
    """The text with markers, or of a longer one its conflicting lines (`MergeConflict`); both None without text."""
    oid = objects.find_blob(git, merge.tree, conflict.path)
    size = None if oid is None else blob_sizes(git, [oid]).get(oid)
    if oid is None or size is None or size > _READ_BYTES:
        return None, None
    (content,) = read_blobs(git, [oid])
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None, None
    if "\0" in text:
        return None, None
    if size <= MERGED_BYTES:
        return _name_sides(text, merge.labels), None
    return None, _excerpt(git, merge, conflict, (oid, text))


class _ConflictPiece(NamedTuple):
    """Lines between two markers, with them. `number`: of the first marker in the merged text, from 1."""

    number: int
    text: str


def _excerpt(git: Git, merge: TreeMerge, conflict: TreeConflict, merged: tuple[str, str]) -> str | None:
    """`merged`: the blob of the text with markers, and the text."""
    oid, text = merged
    parts = list(_split_parts(text, merge.labels))
    if not parts or conflict.ours is None:
        return None
    words = ("diff", "-U0", "--no-color", "--no-ext-diff", "--no-textconv")
    try:
        out = git.with_memory(LARGE).run(*words, conflict.ours.oid, oid)
    except OutOfMemory:
        return None
    found = [match for line in out.split(b"\n") if (match := _LINES_OF_DIFF.match(line))]
    changes = [tuple(int(match[name] or 1) for name in ("old", "deleted", "new", "added")) for match in found]
    shown, left = [], MERGED_BYTES
    for number, part in enumerate(parts):
        head = f"@@ line {_find_line(part.number, changes)} @@\n"
        body = _name_sides(part.text, merge.labels)
        if len((head + body).encode()) > left:
            body = "(too long to be shown)\n"
        left -= len((head + body).encode())
        if left < 0:
            shown.append(f"@@ and {len(parts) - number} more @@\n")
            break
        shown.append(head + body)
    return "".join(shown)


def _split_parts(text: str, labels: tuple[str, str]) -> Iterator[_ConflictPiece]:
    """The conflicting lines. The markers name objects that were made for this merge: no file has them. Pure."""
    lines = enumerate(text.split("\n"), start=1)
    for number, line in lines:
        if line.startswith(f"<<<<<<< {labels[0]}"):
            inner = [*takewhile(lambda at: not at[1].startswith(f">>>>>>> {labels[1]}"), lines)]
            body = "\n".join((line, *(one for _, one in inner)))
            end = "\r" if line.endswith("\r") else ""
            yield _ConflictPiece(number, f"{body}\n>>>>>>> {labels[1]}{end}\n")


def _find_line(number: int, changes: Sequence[tuple[int, ...]]) -> int:
    """The line of our side at which a marker was added. `changes`: from our side to the merged text. Pure."""
    for old, deleted, new, added in changes:
        if new <= number < new + added:
            return old if deleted else old + 1
    return number


def _name_sides(text: str, labels: tuple[str, str]) -> str:
    """The sides instead of their commits in conflict markers, which end as the other lines of a file: LF or CRLF."""
    for marker, label, side in (("<<<<<<<", labels[0], "ours"), (">>>>>>>", labels[1], "theirs")):
        for end in ("\n", "\r\n"):
            text = text.replace(f"{marker} {label}{end}", f"{marker} {side}{end}")
    return text
