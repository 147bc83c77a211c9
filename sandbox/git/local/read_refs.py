"""The branches, tags, notes and HEAD of a local repository, in the files format (gitrepository-layout(5)).

What git would ignore as a broken ref is ignored here too. A text that is not a ref is never repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.failures import damaged_remote_error
from sandbox.git.local.folders import Folder
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_pattern import lazy_pattern

MAX_DEPTH = 64
_PACKED_BYTES = 256 * 1024**2
_LINE_BYTES = 8192  # of packed-refs; a ref that git can lock has a path of 4,096 bytes
_LOOSE_BYTES = 4096
_KEPT_BYTES = 64 * 1024**2
"""Names and texts of all refs that are kept, without those of other kinds. Reached: `quota_exceeded`."""

_MAX_HOPS = 5  # git's own limit for symbolic refs
NOTES = "refs/notes"
"""Refs of receipts are among them (`git.notes`)."""
SHOWN = ("refs/heads", "refs/tags", NOTES)
_PACKED = lazy_pattern(r"^([0-9a-f]{40}|[0-9a-f]{64}) (refs/.+)\Z")
_PEELED = lazy_pattern(r"^\^([0-9a-f]{40}|[0-9a-f]{64})\Z")
_LOOSE = lazy_pattern(r"^([0-9a-f]{40}|[0-9a-f]{64})(?:\s|$)")
_SYMBOLIC = lazy_pattern(r"^ref:\s*(refs/\S+)\s*$")
# git-check-ref-format(1), and no bytes that are not text.
_BAD_NAME = lazy_pattern(r"[\x00-\x20\x7f~^:?*\[\\\udc80-\udcff]|\.\.|@\{|//|/\.|\.lock(/|$)|[./]$")


@dataclass(frozen=True)
class LocalRefs:
    """`head`: a full ref name, or a commit if HEAD is detached. `values`: object id by full name."""

    head: str
    values: Mapping[str, str]


class _RefBudget:
    """Counts what is kept of refs while they are read, so that their number also bounds the memory."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._bytes = 0

    def spend(self, *texts: str) -> None:
        """Count one ref. Raises: `quota_exceeded`."""
        self._count += 1
        self._bytes += sum(map(len, texts))
        _require_few(self._count, self._most)
        if self._bytes > _KEPT_BYTES:
            brief = f"The names of the remote's branches and tags have more than {_KEPT_BYTES} bytes"
            raise SandboxError(ErrorCode.QUOTA_EXCEEDED, brief, hint="Such a repository cannot be used.")


def read_refs(git_dir: Folder, common_dir: Folder, most: int, shown: Sequence[str] = SHOWN) -> LocalRefs:
    """HEAD, and the refs of these places: branches, tags and notes if none are named.

    Raises: `unsafe_repository`; `quota_exceeded` for more than `most` refs.
    """
    values = read_values(common_dir, most, shown)
    return LocalRefs(read_head(git_dir), values)


def read_values(common_dir: Folder, most: int, roots: Sequence[str]) -> dict[str, str]:
    """The object id of each ref below these names. Raises: as `read_refs`."""
    named = read_texts(common_dir, most, roots)
    texts = {name: text for name, text in named.items() if not is_bad_name(name)}
    return {name: oid for name in texts if (oid := _resolve(name, texts))}


def read_texts(common_dir: Folder, most: int, roots: Sequence[str]) -> dict[str, str]:
    """What each ref below these names says, also what git would ignore: a name or a text that a ref cannot have.

    Raises: as `read_refs`.
    """
    # Loose refs first, as git does: `git pack-refs` writes the packed ones before it deletes the loose ones.
    loose = dict(pair for root in roots for pair in _walk_loose(common_dir, root, most))
    texts = dict(_read_packed(common_dir, roots, _RefBudget(most))) | loose
    _require_few(len(texts), most)
    return texts


def read_head(folder: Folder) -> str:
    """What HEAD names: a branch, or a commit. Raises: `unsafe_repository`."""
    text = (folder.read("HEAD", _LOOSE_BYTES) or b"").decode(errors="surrogateescape")
    found = _SYMBOLIC.match(text) or _LOOSE.match(text)
    if found is None or is_bad_name(found[1]):
        raise damaged_remote_error(f"{folder.name}/HEAD")
    return found[1]


def is_bad_name(name: str) -> bool:
    """Whether git ignores a ref of this name."""
    return _BAD_NAME.search(name) is not None


def _read_packed(folder: Folder, roots: Sequence[str], budget: _RefBudget) -> Iterator[tuple[str, str]]:
    wanted = tuple(f"{root}/" for root in roots)
    for number, raw in enumerate(folder.read_lines("packed-refs", _PACKED_BYTES, _LINE_BYTES), start=1):
        line = raw.decode(errors="surrogateescape")
        found = _PACKED.match(line)
        if found is None and line and not line.startswith("#") and not _PEELED.match(line):
            raise damaged_remote_error(f"{folder.name}/packed-refs, line {number}")
        if found and found[2].startswith(wanted):
            budget.spend(found[2], found[1])
            yield found[2], found[1]


def _walk_loose(folder: Folder, root: str, most: int) -> Iterator[tuple[str, str]]:
    pending, budget = [root], _RefBudget(2 * most)
    while pending:
        place = pending.pop()
        if place.count("/") > MAX_DEPTH:
            raise folder.unsafe_error(root, f"deeper than {MAX_DEPTH} directories")
        for name, text in _read_directory(folder, place.split("/")):
            budget.spend(place, name, text or "")
            if text is None:
                pending.append(f"{place}/{name}")
            else:
                yield f"{place}/{name}", text


def _read_directory(folder: Folder, names: list[str]) -> Iterator[tuple[str, str | None]]:
    """Each entry with its text; None for a directory."""
    with folder.subfolder(names[0]) as inner:
        if inner is None:
            return
        if names[1:]:
            yield from _read_directory(inner, names[1:])
            return
        yield from ((name, None) for name in inner.list_directories())
        for name in inner.list_files():
            if not name.endswith(".lock"):
                text = (inner.read(name, _LOOSE_BYTES) or b"").decode(errors="surrogateescape")
                value = _LOOSE.match(text)
                yield name, value[0] if value else text


def _resolve(name: str, texts: Mapping[str, str]) -> str:
    """The object id of a ref, through symbolic refs; '' for a broken ref."""
    for _ in range(_MAX_HOPS):
        text = texts.get(name, "")
        if found := _LOOSE.match(text):
            return found[1]
        symbolic = _SYMBOLIC.match(text)
        if symbolic is None:
            return ""
        name = symbolic[1]
    return ""


def _require_few(count: int, most: int) -> None:
    if count > most:
        brief = f"The remote has more than {most} branches and tags"
        raise SandboxError(ErrorCode.QUOTA_EXCEEDED, brief, hint="Such a repository cannot be used.")
