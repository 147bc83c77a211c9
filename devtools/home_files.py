"""The files of a home that can be read whole: disk images are sparse, and reading one takes gigabytes of memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandbox.files.disk_images import copy_with_holes


def list_home_files(home: Path) -> Iterator[Path]:
    """Every file below a directory, but no disk image and no link. Files on a mounted disk are among them."""
    for path in home.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.suffix != ".img":
            yield path


def read_home_files(*homes: Path) -> Iterator[tuple[Path, bytes]]:
    """Every such file with its content. One that goes meanwhile is left out: a controller that nothing refers to any
    more takes its own file away when it is collected.
    """
    for home in homes:
        for path in list_home_files(home):
            with suppress(FileNotFoundError):
                yield path, path.read_bytes()


def copy_sparsely(source: str, target: str) -> str:
    """The `copy_function` for `shutil.copytree` of a home: holes stay holes."""
    with Path(source).open("rb") as old, Path(target).open("xb") as new:
        copy_with_holes(old.fileno(), new.fileno())
    shutil.copystat(source, target)
    return target
