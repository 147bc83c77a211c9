"""Repository paths: one reversible text form, one grammar.

For git and the kernel paths are bytes. We show and accept text: valid UTF-8 unchanged, any other byte as `%XX`, and a
literal `%` before two hex digits as `%25`, so the two forms map one to one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NewType

from sandbox.characters import IGNORABLE, INVISIBLE, LOOK_ALIKES
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_pattern import lazy_pattern

RepoPath = NewType("RepoPath", str)
"""A path relative to a worktree root, in the text form above, already checked against the grammar."""

RESERVED_PREFIX = b".sandbox-write-"
"""Prefix of our temporary files; a walk never treats them as files of the guest."""

LOOK_ALIKE = "look-alike"
"""The rule that refuses, and reports before a push, names made of characters that look like dots or separators."""

MAX_PATH_BYTES = 4095
MAX_COMPONENT_BYTES = 255
_MAX_SUGGESTED = 200  # characters; as much of a refused path is shown
_PERCENT = lazy_pattern(r"%(?=[0-9A-Fa-f]{2})")
_ESCAPE = lazy_pattern(r"%([0-9A-Fa-f]{2})")
_SPELLED_OUT = lazy_pattern(r"\\u([0-9a-f]{4,5})")
_SHORT_DOTGIT = lazy_pattern(r"^git~[0-9]+$")
_IGNORED = dict.fromkeys(IGNORABLE)
_LOOKS = {**dict.fromkeys(INVISIBLE), **LOOK_ALIKES}


def show_path(raw: bytes) -> str:
    """Convert bytes to text; never fails."""
    pieces = raw.decode("utf-8", errors="surrogateescape")
    escaped = _PERCENT.sub("%25", pieces)
    return "".join(f"%{ord(c) - 0xDC00:02X}" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in escaped)


def path_bytes(text: str) -> bytes:
    """Convert text to bytes, the inverse of `show_path`. Raises: `unsafe_path` for an unnecessary escape;
    `invalid_input` for what is not text.
    """
    if not isinstance(text, str):
        raise SandboxError(ErrorCode.INVALID_INPUT, f"A path should be str, not {type(text).__name__}")
    out, position = bytearray(), 0
    try:
        for match in _ESCAPE.finditer(text):
            value = int(match[1], 16)
            if value < 0x80 and value != 0x25:
                raise refused_path_error(text, "escape", "only bytes outside UTF-8 and '%' are written as %XX")
            out += text[position : match.start()].encode("utf-8") + bytes([value])
            position = match.end()
        out += text[position:].encode("utf-8")
    except UnicodeEncodeError as error:
        raise refused_path_error(ascii(text), "encoding", "a path is text without lone surrogates") from error
    return bytes(out)


def parse_repo_path(text: str) -> RepoPath:
    """Validate a path from a caller. Raises: `unsafe_path`, with the name of the rule that refused it; `invalid_input`
    for what is not text.
    """
    raw = path_bytes(text)
    if not raw:
        raise refused_path_error(text, "empty", "a path may not be empty")
    if len(raw) > MAX_PATH_BYTES:
        raise refused_path_error(text[:80] + "...", "length", f"a path has at most {MAX_PATH_BYTES} bytes")
    if re.match(r"^[A-Za-z]:(?![/\\])", text):
        raise refused_path_error(text, "drive", "a path does not begin with a letter and a colon, a drive on Windows")
    if text.startswith(("/", "~")) or re.match(r"^[A-Za-z]:", text):
        raise refused_path_error(text, "absolute", "a path is relative to the repository", _suggest(text))
    for component in raw.split(b"/"):
        _require_safe_component(text, component)
    return RepoPath(show_path(raw))


def _require_safe_component(text: str, component: bytes) -> None:
    if component in {b"", b".", b".."}:
        raise refused_path_error(text, "traversal", "a path has no empty, '.' or '..' component", _suggest(text))
    if len(component) > MAX_COMPONENT_BYTES:
        raise refused_path_error(text[:80] + "...", "length", f"a name has at most {MAX_COMPONENT_BYTES} bytes")
    if any(byte < 0x20 or byte == 0x7F for byte in component):
        raise refused_path_error(ascii(text), "control", "a path has no control characters")
    if b"\\" in component:
        raise refused_path_error(text, "backslash", "a path has no backslash", _explain_backslash(text))
    if is_dotgit(component):
        raise refused_path_error(text, "dotgit", "a path may not name .git, in any spelling")


def _explain_backslash(text: str) -> str:
    """The hint for a path with a backslash. Listings spell out invisible characters (`sandbox.text.neutralise`); as a
    name with a backslash may be shown alike, that text is not read as the character.
    """
    spelled = [match[1][:size] for match in _SPELLED_OUT.finditer(text) for size in (4, 5)]
    code = next((digits for digits in spelled if int(digits, 16) in INVISIBLE), None)
    if code is None:
        return "Write / between folders. A name that has a backslash itself cannot be used here."
    return (
        f"Listings show an invisible character as \\u{code}. The name has the character itself, "
        f"U+{code.upper()}: give that, in JSON with one backslash. A name that has a backslash itself cannot be "
        "used here."
    )


def _suggest(text: str) -> str:
    """The hint for a path with empty or '.' components: the same without them, if that is valid."""
    meant = "/".join(component for component in text.split("/") if component not in {"", "."})
    if meant == text or len(meant) > _MAX_SUGGESTED:
        return LISTED_PATH_HINT
    try:
        return f"Write it from the root of the repository: {parse_repo_path(meant)}"
    except SandboxError:
        return LISTED_PATH_HINT


def is_dotgit(component: bytes) -> bool:
    """Whether some file system treats this name as `.git`, or NTFS as the short name of `.git`."""
    # A name in a tree, or in a .gitmodules, may have megabytes; the cache would keep thousands of them.
    return _fold_once(component) if len(component) <= MAX_COMPONENT_BYTES else _is_folded_dotgit(component)


def _is_folded_dotgit(component: bytes) -> bool:
    name = fold_name(component)
    return name == ".git" or _SHORT_DOTGIT.match(name) is not None


_fold_once = lru_cache(maxsize=4096)(_is_folded_dotgit)  # a walk asks for each directory, and their names repeat


def fold_name(component: bytes) -> str:
    """Fold a name as the most tolerant file system compares it: case (NTFS, APFS, casefolded ext4), compatible and
    ignorable characters (HFS+, ext4), NTFS streams, and the dots and spaces that Windows drops from the end.
    """
    name = component.decode("utf-8", errors="replace").translate(_IGNORED)
    name = unicodedata.normalize("NFKC", name).casefold().translate(_IGNORED)
    return name.split(":", 1)[0].rstrip(". ")


def is_look_alike(component: bytes) -> bool:
    """Whether a name only looks like `.`, `..`, `.git`, an empty name, or several names with a separator between.

    No file system takes it for one, but a person, a model or a program that normalises text may. Such names of existing
    trees can be read; they are refused for writing.
    """
    if component.isascii():
        return False
    seen = unicodedata.normalize("NFKC", component.decode("utf-8", errors="replace").translate(_LOOKS))
    return "/" in seen or "\\" in seen or not seen.strip(". ") or is_dotgit(seen.encode())


def refuse_look_alike(path: str, component: bytes) -> None:
    """Raises: `unsafe_path` for such a name of this path."""
    if is_look_alike(component):
        why = "a name only looks like '.', '..', '.git', an empty name or a separator"
        raise refused_path_error(ascii(path), LOOK_ALIKE, why)


def parent_folders(paths: Iterable[bytes]) -> set[bytes]:
    """Return every directory above these paths, except the root."""
    found: set[bytes] = set()
    for path in paths:
        while (path := path.rpartition(b"/")[0]) and path not in found:
            found.add(path)
    return found


LISTED_PATH_HINT = "Use a path as listed."


def refused_path_error(path: str, rule: str, why: str, hint: str = LISTED_PATH_HINT) -> SandboxError:
    """Build the error for a refused path: `unsafe_path`; `reason` is the rule's name."""
    brief = f"Path refused by rule '{rule}': {why}"
    return SandboxError(ErrorCode.UNSAFE_PATH, brief, details=path[:200], hint=hint, reason=rule)


def link_error(path: str, target: bytes) -> SandboxError:
    """Build the error for a path at which there is a symbolic link: `unsafe_path`, rule `link`, with its target."""
    shown = show_path(target)[:_MAX_SUGGESTED]
    name = f"'{shown}'" if shown.isprintable() else ascii(shown)  # a guest may have chosen it
    return refused_path_error(path, "link", f"it is a symbolic link to {name}, which is not followed")


def list_parents(path: RepoPath) -> Iterator[RepoPath]:
    """The directories above a path, the outermost first, without the root."""
    names = path.split("/")
    for depth in range(1, len(names)):
        yield RepoPath("/".join(names[:depth]))
