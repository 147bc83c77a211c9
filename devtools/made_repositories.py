"""Empty repositories, and first commits of the same few files, made by git once and then copied.

Thousands of tests begin with an empty repository, and hundreds with the same commit: two or three processes less each.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_MOST_BYTES = 64 * 1024
"""Of the files of a commit that is kept."""


@dataclass(frozen=True)
class _Entry:
    """What is at a path below a folder. `content`: None of a directory."""

    path: str
    mode: int
    content: bytes | None


_SETTINGS = ("GIT_", "XDG_CONFIG_HOME")
_UMASK = 0o022

_empty: tuple[_Entry, ...] = ()
_commits: dict[tuple[object, ...], tuple[_Entry, ...]] = {}


def make_empty(root: Path, init: Callable[[], object]) -> None:
    """An empty repository as `init` makes it."""
    global _empty
    if _has_settings() or (root / ".git").exists():
        init()
    elif not _empty:
        init()
        _empty = tuple(_read(root / ".git"))
    else:
        _write(root / ".git", _empty)


def commit_all(root: Path, message: str, commit: Callable[[], object]) -> None:
    """Commit all files as `commit` does. Its result is copied when an empty repository had the same files before."""
    key = _find_key(root, message)
    if key is None:
        commit()
    elif key in _commits:
        _write(root / ".git", _commits[key])
    else:
        commit()
        _commits[key] = tuple(one for one in _read(root / ".git") if one not in _empty)


def _has_settings() -> bool:
    """Whether the environment says how git works, or another umask which modes its files have."""
    if any(name.startswith(_SETTINGS) for name in os.environ) or Path("~/.gitconfig").expanduser().exists():
        return True
    umask = os.umask(_UMASK)
    os.umask(umask)
    return umask != _UMASK


def _find_key(root: Path, message: str) -> tuple[object, ...] | None:
    """None where other things than the files decide, or where they are large."""
    if _has_settings() or not _empty or tuple(_read(root / ".git")) != _empty:
        return None
    found, size = [], 0
    for one in _read(root, without=".git"):
        size += len(one.content or b"")
        if size > _MOST_BYTES or f"/{one.path}".endswith("/.git"):
            return None
        found.append((one.path, stat.S_IFMT(one.mode), one.mode & stat.S_IXUSR, one.content))
    return (message, *found)


def _read(folder: Path, *, without: str = "") -> Iterator[_Entry]:
    """What is in a folder; directories come before what is in them."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        mode = entry.stat(follow_symlinks=False).st_mode
        if entry.name == without:
            continue
        if stat.S_ISDIR(mode):
            yield _Entry(entry.name, mode, None)
            below = _read(Path(entry.path))
            yield from (_Entry(f"{entry.name}/{one.path}", one.mode, one.content) for one in below)
        elif stat.S_ISLNK(mode):
            yield _Entry(entry.name, mode, os.fsencode(Path(entry.path).readlink()))
        else:
            yield _Entry(entry.name, mode, Path(entry.path).read_bytes() if stat.S_ISREG(mode) else b"")


def _write(folder: Path, entries: tuple[_Entry, ...]) -> None:
    """Files of a repository, which has no links."""
    folder.mkdir(exist_ok=True)
    for one in entries:
        path = f"{folder}/{one.path}"
        if one.content is None:
            os.makedirs(path, exist_ok=True)  # noqa: PTH103 - thousands of them
        else:
            target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, stat.S_IMODE(one.mode))
            os.write(target, one.content)
            os.close(target)
