"""The head of the home's journal, in a file beside it: one line of constant length, written in place."""

from __future__ import annotations

import os

from sandbox.lazy_pattern import lazy_pattern
from sandbox.store.home import Home
from sandbox.store.journal_chain import ChainHead

_LINE = lazy_pattern(r"([0-9]{15}) (sha256:[0-9a-f]{64})\n")


def save_head(home: Home, head: ChainHead) -> None:
    """Raises: OSError."""
    fd = os.open(home.journal_head, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, f"{head.seq:015d} {head.sha256}\n".encode(), 0)
    finally:
        os.close(fd)


def find_head(home: Home) -> ChainHead | None:
    """None if there is no head yet, or a power failure left the file empty. Raises: ValueError for a damaged file."""
    try:
        text = home.journal_head.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    found = _LINE.fullmatch(text)
    if found is None and text.strip("\0"):
        raise ValueError("it contains no head")
    return ChainHead(int(found[1]), found[2]) if found else None
