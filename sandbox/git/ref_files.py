"""Read a ref of a clone of ours from its files, without a process of git.

Source: gitrepository-layout(5): the file of a ref goes before its line in `packed-refs`, and a ref that is packed is
written there before its file is deleted. Only a plain object id is read here; of all else (a symbolic ref, a missing
ref, another ref storage) git is asked.
"""

from __future__ import annotations

from pathlib import Path

from sandbox.lazy_pattern import lazy_pattern

_ID_DIGITS = (40, 64)
_MOST_BYTES = 1024**2
_LINE = lazy_pattern(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\n")


def read_ref_file(git_dir: Path, full_name: str) -> str | None:
    """The object id of a ref; None if git has to be asked. `full_name`: below `refs/`, without `..`."""
    try:
        with (git_dir / full_name).open(encoding="ascii") as file:
            line = file.read(_ID_DIGITS[-1] + 2)
        return line.strip() if _LINE.fullmatch(line) else None
    except FileNotFoundError:
        return _read_packed(git_dir / "packed-refs", full_name.encode())
    except (OSError, ValueError):
        return None


def _read_packed(path: Path, name: bytes) -> str | None:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError:
        return None
    end = content.find(b" " + name + b"\n")
    if len(content) > _MOST_BYTES or end < 0:
        return None
    start = content.rfind(b"\n", 0, end) + 1
    line = content[start:end].decode("ascii", errors="replace") + "\n"
    return line.strip() if _LINE.fullmatch(line) else None
