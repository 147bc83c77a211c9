"""Find the files that a section of a patch means. Pure.

A name can be read in two ways: as written, or without its first component (`a/`, `b/`). The reading that names gated
files is used. If both do, or if headers name different files, the patch is refused (THREATS J07, J08, J11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sandbox.edits.hash_gate import FileState, rejected
from sandbox.edits.unified_diff import Section
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.paths import RepoPath, check_path, path_bytes, show_path
from sandbox.text import shown

NAME_BYTES = 20_000
"""Maximum length of a header: two quoted paths."""

_NAMED = 20
_Pair = tuple[bytes | None, bytes | None]
_LETTER = re.compile(rb"[abciow]/")  # git's prefixes, including those of diff.mnemonicPrefix
_STAMP = re.compile(rb"\s+(\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?( ?[+-]\d\d:?\d\d| ?Z)?)$")
_STAMP_BYTES = 60  # searched at the end of a name only: a long name of blanks would be slow
_EPOCH = re.compile(rb"\s*(1970-01-01|1969-12-31)[ T]")
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|.)")
_LETTERS = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}


class Kind(StrEnum):
    """The operation of a section on its file."""

    CREATE = "create"
    DELETE = "delete"
    MODIFY = "modify"
    RENAME = "rename"
    COPY = "copy"


@dataclass(frozen=True)
class Target:
    """The file of a section. `source`: the origin of a rename or copy, else the same path."""

    kind: Kind
    path: RepoPath
    source: RepoPath


def target_of(section: Section, states: Mapping[RepoPath, FileState]) -> Target:
    """Find the file of a section. `states`: the gated files. Raises: `patch_rejected`, `unsafe_path`."""
    moved = _moved(section)
    if moved is not None:
        return _moved_target(section, moved, states)
    old, new = _reading(section, _raw_pair(section), states)
    path = check_path(show_path(old or new or b""))
    _require_agreement(section, path_bytes(path), path_bytes(path))
    kind = Kind.CREATE if old is None else Kind.DELETE if new is None else Kind.MODIFY
    return Target(kind, path, path)


def _moved_target(section: Section, kind: Kind, states: Mapping[RepoPath, FileState]) -> Target:
    old, new = (_unquoted(section.extended[f"{kind} {side}"]) for side in ("from", "to"))
    source, path = check_path(show_path(old)), check_path(show_path(new))
    _require_agreement(section, old, new)
    for text, name in ((section.old, old), (section.new, new)):
        if text is not None and not _names(_name_and_stamp(text)[0], name):
            raise _unclear(section, "its headers name different files")
    ungated = [name for name in (source, path) if name not in states]
    if ungated:
        raise UngatedError(ungated)
    return Target(kind, path, source)


def _moved(section: Section) -> Kind | None:
    named = [k for k in (Kind.RENAME, Kind.COPY) if f"{k} from" in section.extended or f"{k} to" in section.extended]
    if not named:
        return None
    if len(named) > 1 or not {f"{named[0]} from", f"{named[0]} to"} <= section.extended.keys():
        raise _unclear(section, "a rename or copy needs one source and one target")
    return named[0]


def _raw_pair(section: Section) -> _Pair:
    """The names as written; None for a side that does not exist."""
    old, new = _side(section, section.old, removing=False), _side(section, section.new, removing=True)
    if section.old is None:
        old = new = b""
        if section.git is not None:
            old, new = _git_names(section)
    created, deleted = "new file mode" in section.extended, "deleted file mode" in section.extended
    if (section.old is not None and (created and old is not None)) or (section.new is not None and deleted and new):
        raise _unclear(section, "only one of its headers says that the file is new or deleted")
    pair = (None if created else old, None if deleted else new)
    if pair == (None, None):
        raise _unclear(section, "it names no file")
    return pair


def _side(section: Section, text: bytes | None, *, removing: bool) -> bytes | None:
    """The name after `---` or `+++`. GNU diff marks a missing side with the epoch as its time."""
    if text is None:
        return None
    name, stamp = _name_and_stamp(text)
    sides = [hunk.new if removing else hunk.old for hunk in section.hunks]
    gone = _EPOCH.match(stamp) is not None and not any(sides)
    return None if name == b"/dev/null" or gone else name


def _name_and_stamp(text: bytes) -> tuple[bytes, bytes]:
    if len(text) > NAME_BYTES:
        raise rejected("A patch names a file with more bytes than a path has")
    if quoted := _QUOTED.match(text):
        return _unescaped(quoted[1]), text[quoted.end() :]
    name, _, stamp = text.partition(b"\t")
    if not stamp and (found := _STAMP.search(name[-_STAMP_BYTES:])):
        name, stamp = name.removesuffix(found[0]), found[1]
    return (name if b"\t" in text else name.rstrip(b" ")), stamp


def _reading(section: Section, pair: _Pair, states: Mapping[RepoPath, FileState]) -> _Pair:
    """Choose the reading that names gated files; for a new file that is not gated, the usual one."""
    stripped = _stripped(pair)
    readings = [r for r in (stripped, None if _prefixed(section) else pair) if r is not None]
    lettered = all(name is None or _LETTER.match(name) for name in pair)
    hits = [r for r in readings if _one_file(r) and _gated(r, states)]
    if len(hits) > 1:
        if lettered:
            raise _unclear(section, f"{_shown(hits[0])} and {_shown(hits[1])} are both given a hash")
        return pair
    if hits:
        return hits[0]
    if section.git is None and (backup := _from_backup(readings, states)):
        return backup
    if pair[0] is None:
        return stripped if stripped is not None and lettered else pair
    if not any(map(_one_file, readings)):
        raise _unclear(section, "it names two files but is not a rename")
    raise UngatedError([_shown(r) for r in readings if _one_file(r)][:1])


def _prefixed(section: Section) -> bool:
    """Whether the names on the `diff --git` line differ. Without a rename, only prefixes can differ."""
    if section.git is None:
        return False
    left, right = _quoted_pair(section.git) if b'"' in section.git else _halves(section.git)
    return left != right


def _stripped(pair: _Pair) -> _Pair | None:
    """Both names without their first component; None if one would be empty."""
    names = [None if name is None else name.partition(b"/")[2] for name in pair]
    return None if b"" in names else (names[0], names[1])


def _one_file(pair: _Pair) -> bool:
    return None in pair or pair[0] == pair[1]


def _gated(pair: _Pair, states: Mapping[RepoPath, FileState]) -> bool:
    name = pair[0] if pair[1] is None else pair[1]
    return name is not None and show_path(name) in states


def _from_backup(readings: list[_Pair], states: Mapping[RepoPath, FileState]) -> _Pair | None:
    """`diff -u f.orig f`: use the second name if it is gated and the first is not."""
    for old, new in readings:
        if old and new and show_path(new) in states and show_path(old) not in states:
            return new, new
    return None


def _git_names(section: Section) -> _Pair:
    """Split a `diff --git` line without other headers: both names are equal in length, so split in the middle."""
    rest = section.git or b""
    if len(rest) > NAME_BYTES:
        raise rejected("A patch names a file with more bytes than a path has")
    if b'"' in rest:
        return _quoted_pair(rest)
    left, right = _halves(rest)
    if len(left) != len(right) or not left or rest[len(left) : len(left) + 1] != b" ":
        raise _unclear(section, "its two names cannot be separated")
    return left, right


def _halves(rest: bytes) -> tuple[bytes, bytes]:
    middle = len(rest) // 2
    return rest[:middle], rest[middle + 1 :]


def _quoted_pair(rest: bytes) -> tuple[bytes, bytes]:
    if match := _QUOTED.match(rest):
        return _unescaped(match[1]), _unquoted(rest[match.end() :].removeprefix(b" "))
    left, _, right = rest.partition(b' "')
    return left, _unquoted(b'"' + right)


def _require_agreement(section: Section, old: bytes, new: bytes) -> None:
    """Require that `diff --git` names the same files. git uses the last header; a reader sees the first."""
    rest = section.git
    if rest is None:
        return
    if b'"' in rest:
        left, right = _quoted_pair(rest)
    else:
        middle = max(0, (len(rest) - 1 - len(old) - len(new)) // 2 + len(old))
        left, right = rest[:middle], rest[middle + 1 :]
    if not _names(left, old) or not _names(right, new):
        raise _unclear(section, "its headers name different files")


def _names(written: bytes, name: bytes) -> bool:
    """Whether `written` is the name, with or without a prefix component."""
    return name in {written, written.partition(b"/")[2]}


def _unquoted(text: bytes) -> bytes:
    if len(text) > NAME_BYTES:
        raise rejected("A patch names a file with more bytes than a path has")
    match = _QUOTED.fullmatch(text.rstrip())
    if match is None and text.startswith(b'"'):
        raise rejected("A quoted name cannot be read", shown(text[:200]))
    return text if match is None else _unescaped(match[1])


def _unescaped(text: bytes) -> bytes:
    """The bytes of a C-quoted name."""

    def byte(match: re.Match[bytes]) -> bytes:
        if len(match[1]) == 3:
            return bytes([int(match[1], 8)])
        if match[1] not in _LETTERS:
            raise rejected("A quoted name cannot be read", shown(text[:200]))
        return bytes([_LETTERS[match[1]]])

    return _ESCAPE.sub(byte, text)


def _shown(pair: _Pair) -> str:
    return shown(pair[1] or pair[0] or b"")


class UngatedError(SandboxError):
    """The patch touches files for which the caller gave no hash."""

    def __init__(self, names: Sequence[str]) -> None:
        more = [f"... and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
        super().__init__(
            ErrorCode.PATCH_REJECTED,
            "The patch touches a file without an expected hash, or one that does not exist",
            details="\n".join([*names[:_NAMED], *more]),
            hint="No file was changed. Give the hash of each file: `sandbox file read TASK PATH` shows it, "
            "--expect PATH=HASH sets it; use none (null) for a new file.",
        )
        self.names = names


def _unclear(section: Section, why: str) -> SandboxError:
    return rejected("It is not clear which file the patch means", f"section at line {section.line} of the patch: {why}")


def require_no_overlap(paths: Mapping[RepoPath, FileState]) -> None:
    """Require that no path is both a file and a directory. Raises: `patch_rejected`."""
    present = {path_bytes(path) for path, state in paths.items() if state.content is not None}
    for path in present:
        above = path.rpartition(b"/")[0]
        while above and above not in present:
            above = above.rpartition(b"/")[0]
        if above:
            raise rejected("The patch creates a file and a directory of the same name", show_path(above))
