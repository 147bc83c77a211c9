"""Tree objects as data: parse, write, hash (gitformat-pack(5); fsck's rules for names). Pure.

A tree object of a repository is data of strangers. git checks what it fetches; what it would have refused is refused
here again, because a name becomes a path that callers join, print and write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.entries import PATHS_BYTES, Item
from sandbox.policy.paths import MAX_PATH_BYTES, is_dotgit

FILE, EXECUTABLE_FILE, LINK, SUBMODULE, DIRECTORY = 0o100644, 0o100755, 0o120000, 0o160000, 0o040000
_REGULAR = 0o100000
_PERMISSIONS = 0o7777
_KINDS = {_REGULAR, LINK, SUBMODULE, DIRECTORY}
_SPECIAL = {b"", b".", b".."}
_MODE_DIGITS = 24  # old programs wrote zeros before the six (docs/adr/0192)


class EntryBudget:
    """What a walk may still read: `most` entries, and `PATHS_BYTES` of their paths. It is spent while trees are read,
    so that a small limit also bounds the memory: a tree of a few MiB has a hundred thousand entries, and the name of
    one directory, which may have a megabyte, is in the path of each entry below it.
    """

    def __init__(self, most: int, of: str = "this tree") -> None:
        """`of`: what has these entries, for the message."""
        self._most = most
        self._of = of
        self._left = most
        self._bytes_left = PATHS_BYTES

    @property
    def left(self) -> int:
        """Number of entries."""
        return self._left

    def spend(self, entries: int) -> None:
        """Count entries. Raises: `quota_exceeded`."""
        self._left -= entries
        if self._left < 0:
            raise SandboxError(ErrorCode.QUOTA_EXCEEDED, f"There are more than {self._most} entries in {self._of}")

    def spend_paths(self, size: int) -> None:
        """Count bytes of paths. Raises: `quota_exceeded`."""
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise SandboxError(ErrorCode.QUOTA_EXCEEDED, f"The paths of {self._of} have more than {PATHS_BYTES} bytes")


def normalize_mode(mode: int) -> int:
    """One of git's five modes. Old repositories have others, such as 100664."""
    kind = mode & ~_PERMISSIONS
    return kind if kind != _REGULAR else EXECUTABLE_FILE if mode & 0o100 else FILE


def parse_tree(content: bytes, oid_bytes: int, budget: EntryBudget | None = None) -> dict[bytes, Item]:
    """Entries of a tree object, in git's order. A directory has `DIRECTORY` as its mode, also where an old or a hostile
    client wrote another one, such as 40755, which git takes as one.

    Raises: `unsafe_repository` for what git's fsck refuses; `quota_exceeded` as soon as there are more than the budget
    has.
    """
    most = len(content) if budget is None else budget.left
    entries: dict[bytes, Item] = {}
    at, count = 0, 0
    try:
        while at < len(content) and count <= most:
            space = content.index(b" ", at, at + _MODE_DIGITS)
            end = content.index(b"\0", space)
            name, digits = content[space + 1 : end], content[at:space]
            mode = int(digits, 8) if digits.isdigit() else 0
            at = end + 1 + oid_bytes
            kind = mode & ~_PERMISSIONS
            if kind not in _KINDS or is_refused_name(name):
                raise _bad_tree_error(ascii(name))
            entries[name] = Item(DIRECTORY if kind == DIRECTORY else mode, content[end + 1 : at])
            count += 1
    except ValueError as error:
        raise _bad_tree_error("it is not a list of entries") from error
    if budget is not None:
        budget.spend(count)
    if at != len(content) or len(entries) != count:
        raise _bad_tree_error("it is cut, or has one name twice")
    return entries


def is_refused_name(name: bytes) -> bool:
    """Whether git checks out no entry of this name."""
    if name in _SPECIAL or b"/" in name or len(name) > MAX_PATH_BYTES:
        return True
    return (not name.isascii() or b"git" in name.lower()) and is_dotgit(name)


def _bad_tree_error(details: str) -> SandboxError:
    return SandboxError(
        ErrorCode.UNSAFE_REPOSITORY,
        "A tree of this repository is not one that git would check out",
        details=details,
        hint="`sandbox repo clone URL` checks the clone and repairs it.",
    )


def format_tree(entries: Mapping[bytes, Item]) -> bytes:
    """The content of the tree object with these entries."""
    ordered = sorted(entries.items(), key=_sort_key)
    return b"".join(b"%o %b\0%b" % (item.mode, name, item.oid) for name, item in ordered)


def _sort_key(entry: tuple[bytes, Item]) -> bytes:
    """git compares a directory as if its name ended with a slash."""
    name, item = entry
    return name + b"/" if item.mode == DIRECTORY else name


def hash_object(kind: bytes, content: bytes, oid_bytes: int) -> bytes:
    """The object id, by the repository's format: SHA-1 has 20 bytes, SHA-256 has 32."""
    algorithm = hashlib.sha1(usedforsecurity=False) if oid_bytes == 20 else hashlib.sha256()
    algorithm.update(b"%b %d\0" % (kind, len(content)))
    algorithm.update(content)
    return algorithm.digest()
