"""Find the files that a section of a patch means. Pure.

A name can be read in two ways: as written, or without its first component (`a/`, `b/`). The reading that names gated
files is used. If both do, or if headers name different files, the patch is refused (THREATS J07, J08, J11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sandbox.edits.hash_gate import FileState, rejection
from sandbox.edits.unified_diff import PatchSection
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.paths import RepoPath, parse_repo_path, path_bytes, show_path
from sandbox.text import decode_for_display

NAME_BYTES = 20_000
"""Maximum length of a header: two quoted paths."""

_MAX_NAMED = 20
_Pair = tuple[bytes | None, bytes | None]
_PREFIX = re.compile(rb"[abciow]/")  # git's prefixes, including those of diff.mnemonicPrefix
_TIMESTAMP = re.compile(rb"\s+(\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?( ?[+-]\d\d:?\d\d| ?Z)?)$")
_TIMESTAMP_BYTES = 60  # searched at the end of a name only: a long name of blanks would be slow
_EPOCH = re.compile(rb"\s*(1970-01-01|1969-12-31)[ T]")
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|.)")
_LETTERS = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}


class SectionKind(StrEnum):
    """The operation of a section on its file."""

    CREATE = "create"
    DELETE = "delete"
    MODIFY = "modify"
    RENAME = "rename"
    COPY = "copy"


@dataclass(frozen=True)
class SectionTarget:
    """The file of a section. `source`: the origin of a rename or copy, else the same path."""

    kind: SectionKind
    path: RepoPath
    source: RepoPath


def find_target(section: PatchSection, states: Mapping[RepoPath, FileState]) -> SectionTarget:
    """Find the file of a section. `states`: the gated files. Raises: `patch_rejected`, `unsafe_path`."""
    moved = _rename_kind(section)
    if moved is not None:
        return _rename_target(section, moved, states)
    old, new = _choose_reading(section, _raw_pair(section), states)
    path = parse_repo_path(show_path(old or new or b""))
    _require_agreement(section, path_bytes(path), path_bytes(path))
    kind = SectionKind.CREATE if old is None else SectionKind.DELETE if new is None else SectionKind.MODIFY
    return SectionTarget(kind, path, path)


def _rename_target(section: PatchSection, kind: SectionKind, states: Mapping[RepoPath, FileState]) -> SectionTarget:
    old, new = (_unquote(section.extended[f"{kind} {side}"]) for side in ("from", "to"))
    source, path = parse_repo_path(show_path(old)), parse_repo_path(show_path(new))
    _require_agreement(section, old, new)
    for text, name in ((section.old, old), (section.new, new)):
        if text is not None and not _is_name(_split_timestamp(text)[0], name):
            raise _ambiguity_error(section, "its headers name different files")
    ungated = [name for name in (source, path) if name not in states]
    if ungated:
        raise UngatedError(ungated)
    return SectionTarget(kind, path, source)


def _rename_kind(section: PatchSection) -> SectionKind | None:
    named = [
        k
        for k in (SectionKind.RENAME, SectionKind.COPY)
        if f"{k} from" in section.extended or f"{k} to" in section.extended
    ]
    if not named:
        return None
    if len(named) > 1 or not {f"{named[0]} from", f"{named[0]} to"} <= section.extended.keys():
        raise _ambiguity_error(section, "a rename or copy needs one source and one target")
    return named[0]


def _raw_pair(section: PatchSection) -> _Pair:
    """The names as written; None for a side that does not exist."""
    old, new = _parse_side(section, section.old, removing=False), _parse_side(section, section.new, removing=True)
    if section.old is None:
        old = new = b""
        if section.git is not None:
            old, new = _git_names(section)
    created, deleted = "new file mode" in section.extended, "deleted file mode" in section.extended
    if (section.old is not None and (created and old is not None)) or (section.new is not None and deleted and new):
        raise _ambiguity_error(section, "only one of its headers says that the file is new or deleted")
    pair = (None if created else old, None if deleted else new)
    if pair == (None, None):
        raise _ambiguity_error(section, "it names no file")
    return pair


def _parse_side(section: PatchSection, text: bytes | None, *, removing: bool) -> bytes | None:
    """The name after `---` or `+++`. GNU diff marks a missing side with the epoch as its time."""
    if text is None:
        return None
    name, stamp = _split_timestamp(text)
    sides = [hunk.new if removing else hunk.old for hunk in section.hunks]
    gone = _EPOCH.match(stamp) is not None and not any(sides)
    return None if name == b"/dev/null" or gone else name


def _split_timestamp(text: bytes) -> tuple[bytes, bytes]:
    if len(text) > NAME_BYTES:
        raise rejection("A patch names a file with more bytes than a path has")
    if quoted := _QUOTED.match(text):
        return _unescape(quoted[1]), text[quoted.end() :]
    name, _, stamp = text.partition(b"\t")
    if not stamp and (found := _TIMESTAMP.search(name[-_TIMESTAMP_BYTES:])):
        name, stamp = name.removesuffix(found[0]), found[1]
    return (name if b"\t" in text else name.rstrip(b" ")), stamp


def _choose_reading(section: PatchSection, pair: _Pair, states: Mapping[RepoPath, FileState]) -> _Pair:
    """Choose the reading that names gated files; for a new file that is not gated, the usual one."""
    stripped = _strip_prefixes(pair)
    readings = [r for r in (stripped, None if _has_prefixes(section) else pair) if r is not None]
    lettered = all(name is None or _PREFIX.match(name) for name in pair)
    hits = [r for r in readings if _is_one_file(r) and _is_gated(r, states)]
    if len(hits) > 1:
        if lettered:
            raise _ambiguity_error(section, f"{_show_name(hits[0])} and {_show_name(hits[1])} are both given a hash")
        return pair
    if hits:
        return hits[0]
    if section.git is None and (backup := _from_backup(readings, states)):
        return backup
    if pair[0] is None:
        return stripped if stripped is not None and lettered else pair
    if not any(map(_is_one_file, readings)):
        raise _ambiguity_error(section, "it names two files but is not a rename")
    raise UngatedError([_show_name(r) for r in readings if _is_one_file(r)][:1])


def _has_prefixes(section: PatchSection) -> bool:
    """Whether the names on the `diff --git` line differ. Without a rename, only prefixes can differ."""
    if section.git is None:
        return False
    left, right = _split_quoted(section.git) if b'"' in section.git else _split_middle(section.git)
    return left != right


def _strip_prefixes(pair: _Pair) -> _Pair | None:
    """Both names without their first component; None if one would be empty."""
    names = [None if name is None else name.partition(b"/")[2] for name in pair]
    return None if b"" in names else (names[0], names[1])


def _is_one_file(pair: _Pair) -> bool:
    return None in pair or pair[0] == pair[1]


def _is_gated(pair: _Pair, states: Mapping[RepoPath, FileState]) -> bool:
    name = pair[0] if pair[1] is None else pair[1]
    return name is not None and show_path(name) in states


def _from_backup(readings: list[_Pair], states: Mapping[RepoPath, FileState]) -> _Pair | None:
    """`diff -u f.orig f`: use the second name if it is gated and the first is not."""
    for old, new in readings:
        if old and new and show_path(new) in states and show_path(old) not in states:
            return new, new
    return None


def _git_names(section: PatchSection) -> _Pair:
    """Split a `diff --git` line without other headers: both names are equal in length, so split in the middle."""
    rest = section.git or b""
    if len(rest) > NAME_BYTES:
        raise rejection("A patch names a file with more bytes than a path has")
    if b'"' in rest:
        return _split_quoted(rest)
    left, right = _split_middle(rest)
    if len(left) != len(right) or not left or rest[len(left) : len(left) + 1] != b" ":
        raise _ambiguity_error(section, "its two names cannot be separated")
    return left, right


def _split_middle(rest: bytes) -> tuple[bytes, bytes]:
    middle = len(rest) // 2
    return rest[:middle], rest[middle + 1 :]


def _split_quoted(rest: bytes) -> tuple[bytes, bytes]:
    if match := _QUOTED.match(rest):
        return _unescape(match[1]), _unquote(rest[match.end() :].removeprefix(b" "))
    left, _, right = rest.partition(b' "')
    return left, _unquote(b'"' + right)


def _require_agreement(section: PatchSection, old: bytes, new: bytes) -> None:
    """Require that `diff --git` names the same files. git uses the last header; a reader sees the first."""
    rest = section.git
    if rest is None:
        return
    if b'"' in rest:
        left, right = _split_quoted(rest)
    else:
        middle = max(0, (len(rest) - 1 - len(old) - len(new)) // 2 + len(old))
        left, right = rest[:middle], rest[middle + 1 :]
    if not _is_name(left, old) or not _is_name(right, new):
        raise _ambiguity_error(section, "its headers name different files")


def _is_name(written: bytes, name: bytes) -> bool:
    """Whether `written` is the name, with or without a prefix component."""
    return name in {written, written.partition(b"/")[2]}


def _unquote(text: bytes) -> bytes:
    if len(text) > NAME_BYTES:
        raise rejection("A patch names a file with more bytes than a path has")
    match = _QUOTED.fullmatch(text.rstrip())
    if match is None and text.startswith(b'"'):
        raise rejection("A quoted name cannot be read", decode_for_display(text[:200]))
    return text if match is None else _unescape(match[1])


def _unescape(text: bytes) -> bytes:
    """The bytes of a C-quoted name."""

    def byte(match: re.Match[bytes]) -> bytes:
        if len(match[1]) == 3:
            return bytes([int(match[1], 8)])
        if match[1] not in _LETTERS:
            raise rejection("A quoted name cannot be read", decode_for_display(text[:200]))
        return bytes([_LETTERS[match[1]]])

    return _ESCAPE.sub(byte, text)


def _show_name(pair: _Pair) -> str:
    return decode_for_display(pair[1] or pair[0] or b"")


class UngatedError(SandboxError):
    """The patch touches files for which the caller gave no hash."""

    def __init__(self, names: Sequence[str]) -> None:
        more = [f"... and {len(names) - _MAX_NAMED} more"] if len(names) > _MAX_NAMED else []
        super().__init__(
            ErrorCode.PATCH_REJECTED,
            "The patch touches a file without an expected hash, or one that does not exist",
            details="\n".join([*names[:_MAX_NAMED], *more]),
            hint="No file was changed. Give the hash of each file: `sandbox file read TASK PATH` shows it. A tool "
            "takes it in `expected_hashes`, null for a new file; the command as --expect PATH=HASH, or PATH=absent.",
        )
        self.names = names


def _ambiguity_error(section: PatchSection, why: str) -> SandboxError:
    return rejection(
        "It is not clear which file the patch means", f"section at line {section.line} of the patch: {why}"
    )


def require_no_overlap(paths: Mapping[RepoPath, FileState]) -> None:
    """Require that no path is both a file and a directory. Raises: `patch_rejected`."""
    present = {path_bytes(path) for path, state in paths.items() if state.content is not None}
    for path in present:
        above = path.rpartition(b"/")[0]
        while above and above not in present:
            above = above.rpartition(b"/")[0]
        if above:
            raise rejection("The patch creates a file and a directory of the same name", show_path(above))
