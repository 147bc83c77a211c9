"""Directories that only their owner can open."""

from __future__ import annotations

from pathlib import Path


def make_private(folder: Path) -> None:
    """Create a directory and its missing parents with mode 0700, unlike `Path.mkdir`, which gives its mode to no
    parents. What exists stays as it is. Raises: OSError.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
