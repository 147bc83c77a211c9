"""The files of an image folder, as the context of a build."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
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
    found = []
    for path in folder.rglob("*"):
        relative = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"The image folder {folder} contains '{relative}', which is not a regular file",
                hint="Replace it by a copy of the file that it points to.",
            )
        if path.is_file() and "__pycache__" not in path.parts:
            found.append(relative)
    return sorted(found)


def is_executable(path: Path) -> bool:
    """Whether the owner may execute the file: the only bit of its mode that is kept in the image."""
    return bool(path.stat().st_mode & 0o100)
