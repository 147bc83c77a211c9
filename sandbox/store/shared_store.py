"""Small files that several homes share: in a directory, or in an object store that fsspec knows.

Everyone who may write there can put any content under any name, so the caller verifies what it reads.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Protocol, TypeVar

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.store.home import write_atomically

if TYPE_CHECKING:
    import fsspec
else:  # an extra, imported if the settings name a URL
    fsspec = LazyModule("fsspec")


_ResultT = TypeVar("_ResultT")
_ENTRY_MODE = 0o644
"""Of files in a shared directory, whatever the umask, which services often have at 077: other users' homes read them.
Who may, the mode of the directory says.
"""

ANSWER_S, PAUSE_S = 10.0, 60.0
"""How long a store behind a URL may take for one answer, and how long it is left alone when it took longer."""


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
        self._folder.mkdir(mode=0o700, exist_ok=True)  # not its parents: they are of a misspelled path
        write_atomically(self._folder / name, content, mode=_ENTRY_MODE, synced=False)


class UrlStore:
    """A folder, or a bucket, of a file system that fsspec knows; it must exist. Credentials come from where its driver
    looks for them.

    Drivers repeat what fails, for minutes. A store without an answer within `ANSWER_S` is not asked for `PAUSE_S`, so
    that not every check of a run waits for it.
    """

    def __init__(self, url: str) -> None:
        self._files, self._folder = _translated(lambda: fsspec.core.url_to_fs(url))
        self._paused_until = 0.0

    def read(self, name: str, most: int) -> bytes | None:
        try:  # by keyword: drivers order these parameters in their own ways
            content: bytes = self._ask(lambda: self._files.cat_file(self._path(name), start=0, end=most + 1))
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        # Without makedirs: in an object store that would create a bucket, perhaps of a misspelled name.
        self._ask(lambda: self._files.pipe_file(self._path(name), content))

    def _path(self, name: str) -> str:
        return f"{self._folder.rstrip('/')}/{name}"

    def _ask(self, action: Callable[[], _ResultT]) -> _ResultT:
        if time.monotonic() < self._paused_until:
            raise TimeoutError("it did not answer a short time ago")
        answer = Future[_ResultT]()
        Thread(target=_settle, args=(answer, action), daemon=True).start()  # a pool's thread would delay our exit
        try:
            return answer.result(ANSWER_S)
        except TimeoutError:
            if answer.done():  # the driver's own
                raise
            self._paused_until = time.monotonic() + PAUSE_S
            raise TimeoutError(f"no answer within {ANSWER_S:.0f} s; not asked again for {PAUSE_S:.0f} s") from None


def _settle(answer: Future[_ResultT], action: Callable[[], _ResultT]) -> None:
    try:
        answer.set_result(_translated(action))
    except BaseException as error:  # noqa: BLE001 - for the thread that waits
        answer.set_exception(error)


def _translated(action: Callable[[], _ResultT]) -> _ResultT:
    """Run `action`; drivers of fsspec raise errors of their own libraries, which become OSError."""
    try:
        return action()
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}"[:500]) from error


@cache  # the one store of a URL knows that it did not answer
def _open_url(url: str) -> UrlStore:
    return UrlStore(url)


def open_store(url: str) -> SharedStore:
    """The store of a directory or URL. Raises: `invalid_input` if its driver cannot be loaded."""
    if "://" not in url:
        return DirectoryStore(Path(url).expanduser())
    try:
        return _open_url(url)
    except (ImportError, OSError, ValueError) as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The shared verdict cache cannot be opened: {url.partition('://')[0]}",
            details=str(error)[:500],
            hint="Install `space-sandbox[fsspec]` and the driver of this kind of URL, such as s3fs.",
        ) from error
