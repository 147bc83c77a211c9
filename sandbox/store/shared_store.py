"""Small files that several homes share: in a directory, or in an object store that fsspec knows.

Everyone who may write there can put any content under any name, so the caller verifies what it reads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.store.home import write_atomically

if TYPE_CHECKING:
    import fsspec
else:  # an extra, imported if the settings name a URL
    fsspec = LazyModule("fsspec")


_ResultT = TypeVar("_ResultT")


class SharedStore(Protocol):
    """Files by name; a name has no slash."""

    def read(self, name: str, most: int) -> bytes | None:
        """The content, at most `most` bytes and one more; None if there is no such file. Raises: OSError."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file. Raises: OSError."""
        ...


class DirectoryStore:
    """A directory of this host, such as the cache folder of a CI."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str, most: int) -> bytes | None:
        """Only regular files: a link or a FIFO of another writer is an error."""
        try:
            fd = os.open(self._folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(f"{name} is no regular file")
            return file.read(most + 1)

    def write(self, name: str, content: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self._folder / name, content, synced=False)


class UrlStore:
    """A folder of a file system that fsspec knows. Credentials come from where its driver looks for them."""

    def __init__(self, url: str) -> None:
        self._files, self._folder = _translated(lambda: fsspec.core.url_to_fs(url))

    def read(self, name: str, most: int) -> bytes | None:
        try:
            content: bytes = _translated(lambda: self._files.cat_file(self._path(name), 0, most + 1))
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        def write() -> None:
            self._files.makedirs(self._folder, exist_ok=True)
            self._files.pipe_file(self._path(name), content)

        _translated(write)

    def _path(self, name: str) -> str:
        return f"{self._folder.rstrip('/')}/{name}"


def _translated(action: Callable[[], _ResultT]) -> _ResultT:
    """Run `action`; drivers of fsspec raise errors of their own libraries, which become OSError."""
    try:
        return action()
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}"[:500]) from error


def open_store(url: str) -> SharedStore:
    """The store of a directory or URL. Raises: `invalid_input` if its driver cannot be loaded."""
    if "://" not in url:
        return DirectoryStore(Path(url).expanduser())
    try:
        return UrlStore(url)
    except (ImportError, OSError, ValueError) as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The shared verdict cache cannot be opened: {url.partition('://')[0]}",
            details=str(error)[:500],
            hint="Install `space-sandbox[fsspec]` and the driver of this kind of URL, such as s3fs.",
        ) from error
