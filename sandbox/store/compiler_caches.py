"""Caches of compiled files: one for each repository and image, filled by one tree at a time (docs/adr/0109).

compilers/REPO/IMAGE/current.json    which folder is in use, and the tree that filled it
compilers/REPO/IMAGE/FOLDER/         files of ccache, never changed after it was renamed to this name
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.lazy_dataclass import dataclass
from sandbox.models import Model, ObjectId
from sandbox.private_folders import make_private
from sandbox.store.home import Home, read_cached_record, write_json

_RECORD = "current.json"


class FilledCache(Model):
    """Which folder is in use."""

    folder: str
    tree: ObjectId


@dataclass(frozen=True)
class CompilerCaches:
    """The cache of one repository and image."""

    home: Home
    repo_id: str
    image_digest: str

    @property
    def place(self) -> Path:
        """Its directory."""
        return self.home.compiler_caches(self.repo_id) / self.image_digest.removeprefix("sha256:")

    def find(self) -> Path | None:
        """The folder in use; None before the first. The cache counts as used now."""
        record = self._read()
        folder = None if record is None else self.place / record.folder
        if folder is None or not folder.is_dir():
            return None
        with suppress(OSError):  # removed just now, or a disk that cannot be written
            os.utime(self.place)
        return folder

    @contextmanager
    def replace(self, tree: str) -> Iterator[Path]:
        """An empty folder to fill with what `tree` compiled; then it is the one in use. What the same tree filled
        before is in it already. After an error the old one stays.
        """
        make_private(self.place)
        with self.home.locked(f"compilers-{self.repo_id}"):
            name = secrets.token_hex(8)
            made = self.place / f".{name}"
            try:
                before = self._read()
                if before is not None and before.tree == tree and (self.place / before.folder).is_dir():
                    shutil.copytree(self.place / before.folder, made)
                else:
                    made.mkdir()
                made.chmod(0o755)
                yield made
                made.rename(self.place / name)
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise
            write_json(self.place / _RECORD, FilledCache(folder=name, tree=tree).model_dump(mode="json"))
            self._remove_old(keep={name, before.folder if before else name})

    def _read(self) -> FilledCache | None:
        return read_cached_record(self.place / _RECORD, FilledCache)  # damaged: the next base commit fills a new one

    def _remove_old(self, keep: Iterable[str]) -> None:
        for folder in self.place.iterdir():
            if folder.is_dir() and folder.name not in keep:
                shutil.rmtree(folder, ignore_errors=True)
