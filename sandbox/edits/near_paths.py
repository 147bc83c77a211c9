"""Find paths similar to one that does not exist. Pure; the cost is bounded for any file names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from heapq import nlargest

from sandbox.text import one_line

_NEAR = 3
_COMPARED = 100
_LENGTH = 200  # characters; longer paths are not compared
_PIECES = 24
_ALIKE = 0.6


def find_near_paths(wanted: str, known: Iterable[str]) -> tuple[str, ...]:
    """At most three paths: first files of the same name in other directories, then paths of similar spelling."""
    if len(wanted) > _LENGTH:
        return ()
    paths = [path for path in known if len(path) <= _LENGTH and path == one_line(path)]
    name, folders = _name(wanted), wanted.split("/")[:-1]
    same_name = [path for path in paths if _name(path) == name]
    same_name.sort(key=lambda path: (-len({*folders} & {*path.split("/")}), path))
    pieces = [wanted[at : at + 3] for at in range(0, max(1, len(wanted) - 2), -(-len(wanted) // _PIECES))]
    likely = nlargest(_COMPARED, paths, key=lambda path: sum(piece in path for piece in pieces))
    alike = difflib.get_close_matches(wanted, likely, n=_NEAR, cutoff=_ALIKE)
    return tuple(dict.fromkeys([*same_name, *alike]))[:_NEAR]


def _name(path: str) -> str:
    return path.rpartition("/")[2].lower()
