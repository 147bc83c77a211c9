"""The files of an image folder, as the context of a build."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from sandbox.errors import ErrorCode, SandboxError


def write_build_context(target: IO[bytes], folder: Path, extra_files: Mapping[str, bytes]) -> None:
    """Write a build context as tar: the folder's regular files and the extra files, owned by root, without times."""
    contents = {path: (folder / path).read_bytes() for path in list_context_files(folder)}
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in sorted({**contents, **extra_files}.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            entry.mode = 0o755 if path in contents and is_executable(folder / path) else 0o644
            archive.addfile(entry, io.BytesIO(content))


def list_context_files(folder: Path) -> list[str]:
    """List all files of an image folder, relative and sorted. Raises: `invalid_input` for links and special files."""
    return sorted(stat_context_files(folder))


def stat_context_files(folder: Path) -> dict[str, os.stat_result]:
    """The files of `list_context_files` with their stat data, in no order. Each check looks at them, so it costs one
    system call a file. Raises: as `list_context_files`.
    """
    found: dict[str, os.stat_result] = {}
    left = [""]
    while left:
        above = left.pop()
        with suppress(FileNotFoundError), os.scandir(folder / above) as entries:
            for entry in entries:
                relative = f"{above}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    left.append(f"{relative}/")
                elif not entry.is_file(follow_symlinks=False):
                    raise _irregular_file_error(folder, relative)
                elif "__pycache__" not in relative.split("/"):
                    with suppress(FileNotFoundError):  # it alone: the others of its folder are still there
                        found[relative] = entry.stat(follow_symlinks=False)
    return found


def _irregular_file_error(folder: Path, relative: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"The image folder {folder} contains '{relative}', which is not a regular file",
        hint="Replace it by a copy of the file that it points to.",
    )


def is_executable(path: Path) -> bool:
    """Whether the owner may execute the file: the only bit of its mode that is kept in the image."""
    return bool(path.stat().st_mode & 0o100)
