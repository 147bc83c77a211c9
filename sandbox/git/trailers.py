"""Trailers at the end of a commit message, where git and the bots of forges read them.

Source: git-interpret-trailers(1), and find_trailer_block_start in git's trailer.c: the block is the last paragraph, but
never the first one. Either all its lines are trailers, or git wrote one of them and a quarter are trailers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_TRAILER = re.compile(r"[A-Za-z0-9-]+[ \t]*:")
_BY_GIT = ("Signed-off-by: ", "(cherry picked from commit ")


def add_trailers(message: str, trailers: Sequence[str]) -> str:
    """Append trailers to the message, in its trailer block if it has one. Trailers that it already has are skipped.

    `message` and the result end in one newline.
    """
    block = _trailer_block(message)
    new = [trailer for trailer in trailers if trailer not in block]
    if not new:
        return message
    return message + ("" if block else "\n") + "".join(f"{trailer}\n" for trailer in new)


def _trailer_block(message: str) -> list[str]:
    """Lines of the trailer block; empty if the message has none."""
    first, separator, rest = message.rstrip("\n").rpartition("\n\n")
    lines = rest.split("\n") if separator and first.strip() else []
    made_by_git = any(line.startswith(_BY_GIT) for line in lines)
    trailers = sum(_is_trailer(line) for line in lines)
    others = sum(not _is_trailer(line) and not line.startswith((" ", "\t")) for line in lines)
    return lines if trailers and (others == 0 or (made_by_git and trailers * 3 >= others)) else []


def _is_trailer(line: str) -> bool:
    return line.startswith(_BY_GIT) or _TRAILER.match(line) is not None
