"""A mount table: several file systems of fsspec as one, each at a path of its own (docs/filesystems.md)."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from fsspec.implementations.dirfs import DirFileSystem
from fsspec.spec import AbstractFileSystem


class MountedFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no annotations
    """`mounts`: file systems by the name of their directory at the root. The first name of a path chooses one.

    No path leads out of a mount: `..` is refused. `DirFileSystem` of fsspec mounts a part of a file system.
    """

    protocol = "sandbox+mounts"
    root_marker = ""
    cachable = False  # an instance is its mounts

    def __init__(self, mounts: Mapping[str, AbstractFileSystem], **options: Any) -> None:
        """Raises: ValueError for a name with a separator."""
        super().__init__(**options)
        for name in mounts:
            if not name or "/" in name or name in {".", ".."}:
                raise ValueError(f"a mount is one name, not {name!r}")
        self.mounts = dict(mounts)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return str(path).removeprefix(f"{cls.protocol}://").strip("/")

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        """Entries of a directory; the mounts at the root."""
        path = self._strip_protocol(path)
        if not path:
            found = [_describe_mount(name) for name in sorted(self.mounts)]
        else:
            name, fs, inside = self._resolve(path)
            found = [_rename(name, fs, entry) for entry in fs.ls(inside, detail=True, **options)]
        return found if detail else [entry["name"] for entry in found]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """As the file system that is mounted there."""
        path = self._strip_protocol(path)
        if not path:
            return _describe_mount("")
        name, fs, inside = self._resolve(path)
        return _rename(name, fs, fs.info(inside, **options)) if inside else _describe_mount(name)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Content of a file, or a part of it."""
        _, fs, inside = self._resolve(path)
        content: bytes = fs.cat_file(inside, start=start, end=end, **options)
        return content

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Write a file."""
        _, fs, inside = self._resolve(path)
        self._make_parent(fs, inside)
        fs.pipe_file(inside, value, mode=mode, **options)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copy a file, also from one mount to another."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
        else:
            self.pipe_file(path2, self.cat_file(path1))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete. A mount itself stays. Raises: PermissionError for one."""
        for one in [path] if isinstance(path, str) else path:
            _, fs, inside = self._resolve(one)
            if not inside:
                raise PermissionError(f"{one} is a mount")
            fs.rm(inside, recursive=recursive, maxdepth=maxdepth)

    def _rm(self, path: str) -> None:
        self.rm(path)

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """As the file system that is mounted there."""
        _, fs, inside = self._resolve(path)
        fs.mkdir(inside, create_parents=create_parents, **options)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """As the file system that is mounted there."""
        _, fs, inside = self._resolve(path)
        if inside:
            fs.makedirs(inside, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        """As the file system that is mounted there."""
        _, fs, inside = self._resolve(path)
        fs.rmdir(inside)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any) -> io.IOBase:
        _, fs, inside = self._resolve(path)
        if mode != "rb":
            self._make_parent(fs, inside)
        opened: io.IOBase = fs.open(inside, mode, block_size=block_size)
        return opened

    def _resolve(self, path: str) -> tuple[str, AbstractFileSystem, str]:
        """The mount of a path, and the path in it. Raises: FileNotFoundError, PermissionError."""
        name, _, inside = self._strip_protocol(path).partition("/")
        if ".." in inside.split("/"):
            raise PermissionError(f"{path} leads out of its mount")
        if name not in self.mounts:
            raise FileNotFoundError(path)
        return name, self.mounts[name], inside

    @staticmethod
    def _make_parent(fs: AbstractFileSystem, inside: str) -> None:
        if "/" in inside:
            fs.makedirs(inside.rpartition("/")[0], exist_ok=True)


def mount_directory(fs: AbstractFileSystem, path: str) -> DirFileSystem:
    """One directory of a file system, to mount."""
    return DirFileSystem(path=path, fs=fs)


def _describe_mount(name: str) -> dict[str, Any]:
    return {"name": name, "type": "directory", "size": 0}


def _rename(name: str, fs: AbstractFileSystem, entry: Mapping[str, Any]) -> dict[str, Any]:
    inside = str(fs._strip_protocol(entry["name"])).strip("/")
    return {**entry, "name": f"{name}/{inside}" if inside else name}
