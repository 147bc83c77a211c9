"""Edits without a patch: replace one text in a file, or a whole file. Exact bytes, gated by hash."""

from __future__ import annotations

from sandbox.edits.binary_patches import too_large_error
from sandbox.edits.hash_gate import ABSENT, Edit, EditOutcome, FileState, HashGate, rejection
from sandbox.edits.hunks import match_line_ends
from sandbox.edits.near_miss import NearMiss, find_near
from sandbox.edits.patch_paths import require_no_overlap
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import READ_CAP
from sandbox.policy.paths import RepoPath

_MAX_COUNTED = 1000
_COUNTED_BYTES = 3 * READ_CAP
"""Maximum number of bytes that are compared to count occurrences, so at least two are seen. A long text of one letter
occurs at each place of a file of this letter, and each occurrence costs its whole length.
"""
_MAX_SHOWN = 10


def replace_text(gate: HashGate, path: str, old: bytes, new: bytes, expected: str) -> EditOutcome:
    """Replace the only occurrence of `old`. Both texts get the line endings of the file (`match_line_ends`).

    Raises: `patch_rejected` with the lines of all occurrences or of similar text; `stale_hash`, `not_found`.
    """
    if not old or old == new:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "The text to replace is empty or the same as the new text",
            hint="Give a text that occurs once in the file, and another one. To fill an empty file, write all of it.",
        )
    checked, before = gate.check_state(path, expected)
    content = before.content or b""
    old, new, adjusted = match_line_ends(content, old, new)
    places, are_all = _find_places(content, old)
    if not places:
        raise _no_match_error(checked, content, old)
    if len(places) > 1:
        raise _several_matches_error(checked, content, places, are_all=are_all)
    after = content[: places[0]] + new + content[places[0] + len(old) :]
    return EditOutcome((Edit(checked, before, _state(after, executable=before.executable)),), adjusted)


def replace_file(
    gate: HashGate, path: str, content: bytes, expected: str | None, *, executable: bool | None
) -> EditOutcome:
    """Replace a file, or create it (expected None). `executable` None: unchanged. Equal content is no edit."""
    checked, before = gate.check_state(path, expected)
    after = _state(content, executable=before.executable if executable is None else executable)
    return EditOutcome(() if after == before else (Edit(checked, before, after),))


def remove_file(gate: HashGate, path: str, expected: str) -> EditOutcome:
    """Delete a file. Raises: `stale_hash`, `not_found`."""
    checked, before = gate.check_state(path, expected, creates=False)
    return EditOutcome((Edit(checked, before, ABSENT),))


def rename_file(gate: HashGate, path: str, new_path: str, expected: str) -> EditOutcome:
    """Move a file to a path that is free; its content and mode stay.

    Raises: `stale_hash` (also if the new path has a file), `not_found`, `invalid_input`, `unsafe_path`.
    """
    if gate.writable(path) == gate.writable(new_path):
        raise SandboxError(ErrorCode.INVALID_INPUT, "The new path is the path that the file has")
    (old, before), (new, _) = gate.check_states({path: expected, new_path: None}, creates=False).items()
    require_no_overlap({old: ABSENT, new: before})
    return EditOutcome((Edit(old, before, ABSENT), Edit(new, ABSENT, before, old)))


def _state(content: bytes, *, executable: bool) -> FileState:
    if len(content) > READ_CAP:
        raise too_large_error(READ_CAP)
    return FileState(content, executable)


def _find_places(content: bytes, old: bytes) -> tuple[list[int], bool]:
    """Offsets of occurrences, overlapping ones included (`aa` is in `aaa` twice), and whether there are no more."""
    places: list[int] = []
    at, compared = content.find(old), 0
    while at >= 0:
        compared += at - (places[-1] if places else 0) + len(old)
        places.append(at)
        if len(places) == _MAX_COUNTED or (len(places) > 1 and compared > _COUNTED_BYTES):
            return places, False
        at = content.find(old, at + 1)
    return places, True


def _several_matches_error(path: RepoPath, content: bytes, places: list[int], *, are_all: bool) -> SandboxError:
    many = f"{len(places)}{'' if are_all else ' or more'}"
    lines = [content.count(b"\n", 0, at) + 1 for at in places[:_MAX_SHOWN]]
    return rejection(
        f"The text to replace occurs {many} times in the file",
        f"at lines {', '.join(map(str, lines))}{' and more' if len(places) > _MAX_SHOWN or not are_all else ''}",
        "No file was changed. Include more of the surrounding text.",
        reason="several_matches",
        data={"path": path, "matches": len(places), "lines": lines},
    )


def _no_match_error(path: RepoPath, content: bytes, old: bytes) -> SandboxError:
    brief, near = "The text to replace is not in the file", NearMiss()
    reason, hint = _other_line_ends(content, old)
    if not hint:
        near = find_near(content, old)
        reason, hint = ("white_space", _WHITE_SPACE) if near.white_space else ("no_match", _NO_MATCH)
    if near.white_space:
        brief = "The text to replace is in the file only with different white space"
    return rejection(brief, near.describe(), hint, reason=reason, data={"path": path, "closest": near.as_data()})


_WHITE_SPACE = "The file has this text with different white space: copy it exactly as it was read."
_NO_MATCH = "No file was changed. Give the text exactly as it was read, with its white space."


def _other_line_ends(content: bytes, old: bytes) -> tuple[str, str]:
    if b"\n" in old and b"\r" not in old and old.replace(b"\n", b"\r\n") in content:
        return "line_ends", "The file has CRLF line endings (\\r\\n), the text has \\n: give both texts with \\r\\n."
    if b"\r\n" in old and old.replace(b"\r\n", b"\n") in content:
        return "line_ends", "The text has CRLF line endings (\\r\\n), the file has \\n: give both texts with \\n."
    return "", ""
