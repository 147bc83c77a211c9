"""Differences between two trees: the changed leaves, the line counts and the text.

Only trees are compared, never files on disk. Attributes and external programs have no influence. What a guest can make
large is bounded before git reads it: `plan_diff` decides from object sizes which contents are compared line by line.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.entries import RawChange
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern

_FIXED_OPTIONS = ("-r", "--no-ext-diff", "--no-textconv", "--submodule=short")
_NULL_OID_DIGITS = {"0"}
_ALL_PARTS = ("--raw", "--numstat", "-p")
_SIDE_BYTES = 8 * 1024**2  # a larger file that exists on one side only is not given to git
_LISTED_BYTES = 256  # of a changed leaf without its path: two modes and ids of up to 64 digits, status, line counts
_BINARY_FILES = lazy_pattern(
    rb"^(?P<index>index (?P<oids>[0-9a-f]{40,64}\.\.[0-9a-f]{40,64})(?: [0-7]{6})?\n)"
    rb"Binary files (?P<names>.+) differ$",
    re.MULTILINE,
)
_ESCAPES = {ord(c): b"\\" + e.encode() for c, e in zip('\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True)}
_NAMES_BYTES = 64 * 1024  # of such files, as arguments of git


@dataclass(frozen=True)
class DiffLimits:
    """How much one diff compares and returns."""

    file_bytes: int = 1024**2  # if one side is larger, the file is only named and its lines are not compared
    compared_bytes: int = 16 * 1024**2  # both sides of all files; reached: the largest files are only named
    text_bytes: int = 1024**2  # reached: the text is cut at the end of a line
    renames: int = 400  # with more added or deleted files, only exact renames are found
    deadline_s: float = 30.0  # of each git command; reached: `timeout`


@dataclass(frozen=True)
class DiffOutline:
    """What the caller already knows of a difference: changed leaves, without renames, and sizes of blobs.

    It only saves git commands. It decides how much is compared, never what the result is.
    """

    changes: tuple[RawChange, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DiffPlan:
    """Contents over `line_bytes` are not compared line by line. `similar`: also find renames with edits. `list_bytes`:
    git's lists of leaves and line counts are not longer.
    """

    line_bytes: int
    similar: bool
    complete: bool
    list_bytes: int = 0


@dataclass(frozen=True)
class TreeDiff:
    """`counts`: added and deleted lines by path, (None, None) for binary content. `complete`: no limit was reached."""

    changes: tuple[RawChange, ...]
    counts: dict[bytes, tuple[int | None, int | None]]
    text: bytes
    complete: bool


def diff_trees(git: Git, before: str, after: str) -> list[RawChange]:
    """Changed leaves between two trees, or the trees of commits. Renames are not detected."""
    out = git.run("diff-tree", "-r", "--raw", "-z", "--no-renames", "--no-abbrev", before, after)
    fields = out.split(b"\0")
    return [_parse_raw_change(fields[i], fields[i + 1]) for i in range(0, len(fields) - 1, 2)]


def _parse_raw_change(head: bytes, path: bytes) -> RawChange:
    old_mode, new_mode, old, new, status = head.decode().lstrip(":").split()
    return RawChange(
        path,
        old_mode,
        new_mode,
        None if set(old) == _NULL_OID_DIGITS else old,
        None if set(new) == _NULL_OID_DIGITS else new,
        status[:1],  # R and C carry a score
    )


def split_renames(changes: Iterable[RawChange]) -> Iterator[RawChange]:
    """The same changes with each rename as a deletion and an addition, as `diff_trees` returns them."""
    for change in changes:
        if change.old_path is not None:
            yield RawChange(change.old_path, change.old_mode, "000000", change.old_oid, None, "D")
            yield replace(change, old_mode="000000", old_oid=None, status="A", old_path=None)
        else:
            yield change


def compare_trees(
    git: Git, before: str, after: str, limits: DiffLimits | None = None, outline: DiffOutline | None = None
) -> TreeDiff:
    """The whole difference of two trees or commits, with renames, within limits. Raises: `timeout`.

    With an outline it costs one git process.
    """
    limits = limits or DiffLimits()
    outline = outline or DiffOutline(tuple(diff_trees(git, before, after)))
    if not outline.changes:
        return TreeDiff((), {}, b"", complete=True)
    oids = {oid for c in outline.changes for oid in (c.old_oid, c.new_oid) if oid is not None}
    sizes = {**outline.sizes, **blob_sizes(git, oids - outline.sizes.keys())}
    chosen = plan_diff(outline.changes, sizes, limits)
    trees = (before, after)
    if any(_is_large_side(change, sizes) for change in outline.changes):
        renamed, counts, text = _compare_with_large_sides(git, trees, sizes, chosen, limits)
    else:
        renamed, counts, text = _parse_diff(_run_diff(git, trees, chosen, limits, _ALL_PARTS))
    text = _name_large_files(text, sizes, chosen.line_bytes)
    shown = cut_at_line_end(text, limits.text_bytes)
    return TreeDiff(tuple(renamed), counts, shown, complete=chosen.complete and len(shown) == len(text))


def _name_large_files(text: bytes, sizes: Mapping[str, int], line_bytes: int) -> bytes:
    """The text of git with other words for files that it only took for binary because of their size. Pure.

    No line of a guest begins so. git refuses to apply "Files ... differ" as it refuses its own words; after others it
    would make an empty file.
    """

    def describe(found: re.Match[bytes]) -> bytes:
        largest = max(sizes.get(oid.decode(), 0) for oid in found["oids"].split(b".."))
        if largest <= line_bytes:
            return found[0]
        return b"%bFiles %b, too large to be compared line by line, differ" % (found["index"], found["names"])

    return _BINARY_FILES.sub(describe, text)


def _is_large_side(change: RawChange, sizes: Mapping[str, int]) -> bool:
    """Whether git would read a large file whole to say that it is binary: it does unless both sides are files."""
    one_sided = change.status != "M" and change.old_path is None
    return one_sided and max(sizes.get(oid, 0) for oid in (change.old_oid or "", change.new_oid or "")) > _SIDE_BYTES


def _compare_with_large_sides(
    git: Git, trees: tuple[str, str], sizes: Mapping[str, int], chosen: DiffPlan, limits: DiffLimits
) -> tuple[list[RawChange], dict[bytes, tuple[int | None, int | None]], bytes]:
    """As one run, but git compares the large files that exist on one side only by name; their text is written here."""
    renamed, counts, _ = _parse_diff(_run_diff(git, trees, chosen, limits, _ALL_PARTS[:-1]))
    large = [change for change in renamed if _is_large_side(change, sizes)]
    if sum(len(change.path) for change in large) > _NAMES_BYTES:
        raise SandboxError(ErrorCode.QUOTA_EXCEEDED, f"The difference has {len(large)} new or deleted large files")
    left_out = [f":(exclude,literal){os.fsdecode(change.path)}" for change in large]
    text = _run_diff(git, trees, chosen, limits, _ALL_PARTS[-1:], ["--", *left_out] if left_out else [])
    return renamed, counts, text + b"".join(map(_describe_binary, large))


def _describe_binary(change: RawChange) -> bytes:
    """git's text for a binary file that exists on one side only, or changed its type."""
    null = b"0" * len(change.new_oid or change.old_oid or "")
    old, new = (quote_path(side + change.path) for side in (b"a/", b"b/"))
    modes = {
        "A": f"new file mode {change.new_mode}",
        "D": f"deleted file mode {change.old_mode}",
    }.get(change.status, f"old mode {change.old_mode}\nnew mode {change.new_mode}")
    oids = tuple(oid.encode() if oid else null for oid in (change.old_oid, change.new_oid))
    left, right = old if change.old_oid else b"/dev/null", new if change.new_oid else b"/dev/null"
    head = b"diff --git %s %s\n%s\nindex %s..%s\n" % (old, new, modes.encode(), *oids)
    return head + b"Binary files %s and %s differ\n" % (left, right)


def quote_path(path: bytes) -> bytes:
    """A path as git prints it: in quotes and with escapes if it has other than plain characters. Pure."""
    if all(0x20 <= byte < 0x7F and byte not in _ESCAPES for byte in path):
        return path
    escaped = (_ESCAPES.get(b) or (bytes([b]) if 0x20 <= b < 0x7F else b"\\%03o" % b) for b in path)
    return b'"' + b"".join(escaped) + b'"'


def find_lossy_paths(found: TreeDiff) -> list[bytes]:
    """The files with bytes in the text that are not UTF-8: decoded, the text of these is no patch. Pure.

    Headers are ASCII, and no line of a file begins as they do.
    """
    headers = {
        b"diff --git %s %s\n" % (quote_path(b"a/" + (one.old_path or one.path)), quote_path(b"b/" + one.path)): one.path
        for one in found.changes
    }
    lossy, path = set[bytes](), b""
    for line in io.BytesIO(b"" if _is_utf8(found.text) else found.text):
        path = headers.get(line, path)
        if not _is_utf8(line):
            lossy.add(path)
    return sorted(lossy)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def plan_diff(changes: Sequence[RawChange], sizes: dict[str, int], limits: DiffLimits) -> DiffPlan:
    """Choose what to compare from sizes alone. Pure. Objects without a size (submodules) are free."""

    def size(oid: str | None) -> int:
        return sizes.get(oid, 0) if oid is not None else 0

    sides = sorted((max(size(c.old_oid), size(c.new_oid)), size(c.old_oid) + size(c.new_oid)) for c in changes)
    compared, line_bytes, complete = 0, limits.file_bytes, True
    for largest, both in sides:
        compared += both
        if largest > limits.file_bytes or compared > limits.compared_bytes:
            line_bytes, complete = min(limits.file_bytes, max(largest - 1, 1)), False
            break
    moved = [max(size(c.old_oid), size(c.new_oid)) for c in changes if c.status in {"A", "D"}]
    small = sum(moved) <= limits.compared_bytes and max(moved, default=0) <= limits.file_bytes
    listed = sum(_LISTED_BYTES + 2 * len(change.path) for change in changes)
    return DiffPlan(line_bytes, similar=small and len(moved) <= limits.renames, complete=complete, list_bytes=listed)


def cut_at_line_end(text: bytes, limit: int) -> bytes:
    """At most `limit` bytes, cut at the end of a line."""
    return text if len(text) <= limit else text[: text.rfind(b"\n", 0, limit) + 1]


def blob_sizes(git: Git, oids: Iterable[str]) -> dict[str, int]:
    """Sizes of blobs from their headers. An object that is not a blob of this clone has no entry (a submodule)."""
    sizes = {oid: git.cache.sizes.get(oid) for oid in oids}
    unknown = sorted(oid for oid, size in sizes.items() if size is None)
    if unknown:
        asked = "".join(f"{oid}\n" for oid in unknown).encode()
        out = git.run("cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", stdin=asked)
        fields = (line.split() for line in out.decode().splitlines())
        found = {f[0]: int(f[2]) for f in fields if len(f) == 3 and f[1] == "blob"}
        git.cache.sizes.store(found)
        sizes |= found
    return {oid: size for oid, size in sizes.items() if size is not None}


def _run_diff(
    git: Git,
    trees: tuple[str, str],
    chosen: DiffPlan,
    limits: DiffLimits,
    parts: Sequence[str],
    paths: Sequence[str] = (),
) -> bytes:
    """Run git for leaves, line counts and the unified diff. The output is bounded by the plan, not yet cut:
    text beyond what is shown is dropped.

    Binary files are named, never encoded. `-z` leaves names in the first two parts unquoted. In the text git quotes
    them, so that a line break in a name cannot pass for lines of the diff.
    """
    env = {**_threshold_environment(chosen), **({"GIT_LITERAL_PATHSPECS": "0"} if paths else {})}
    args = (
        "diff-tree", *parts, "-z", "--no-abbrev", *_FIXED_OPTIONS, *_rename_options(chosen, limits),
        "--no-color", "--full-index", "--src-prefix=a/", "--dst-prefix=b/", *trees, *paths,
    )  # fmt: skip
    return git.read_start(*args, most=limits.text_bytes + 1 + chosen.list_bytes, env=env, deadline_s=limits.deadline_s)


def _parse_diff(out: bytes) -> tuple[list[RawChange], dict[bytes, tuple[int | None, int | None]], bytes]:
    """Parse the output of `_run_diff`. An empty field where a record should begin separates records and text."""
    changes: list[RawChange] = []
    counts: dict[bytes, tuple[int | None, int | None]] = {}
    fields = _NulFields(out)
    while head := fields.take():
        if head.startswith(b":"):
            change = _parse_raw_change(head, fields.take())
            changes.append(
                replace(change, old_path=change.path, path=fields.take()) if change.status == "R" else change
            )
        else:
            added, deleted, path = head.split(b"\t", 2)
            if not path:  # a rename: the old and the new name follow
                path = (fields.take(), fields.take())[1]
            counts[path] = (None, None) if added == b"-" else (int(added), int(deleted))
    return changes, counts, fields.rest()


class _NulFields:
    """Fields that end with NUL, read one at a time. The text after them may contain NUL bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self) -> bytes:
        """The next field; empty at the end."""
        end = self._data.find(b"\0", self._at)
        end = len(self._data) if end < 0 else end
        found, self._at = self._data[self._at : end], end + 1
        return found

    def rest(self) -> bytes:
        """All bytes that were not taken."""
        return self._data[self._at :]


def _rename_options(chosen: DiffPlan, limits: DiffLimits) -> tuple[str, str]:
    return ("--find-renames=50%" if chosen.similar else "--find-renames=100%"), f"-l{limits.renames}"


def _threshold_environment(chosen: DiffPlan) -> dict[str, str]:
    """git treats contents over this size as binary, from the header alone (git-config(1), core.bigFileThreshold)."""
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.bigFileThreshold",
        "GIT_CONFIG_VALUE_0": str(chosen.line_bytes),
    }
