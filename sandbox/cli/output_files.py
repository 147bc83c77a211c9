"""Write files that the user names with `--output`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.errors import ErrorCode, SandboxError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around writing a file. Raises: `invalid_input` for one that cannot be written."""
    try:
        yield
    except OSError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The file {path} cannot be written",
            details=error.strerror or "",
            hint="Name a file in a directory that exists and that you may write.",
        ) from error
