"""The layers of a home: trees of packages, their records, and which manifests led to which layer.

dependencies/layers/KEY.json       the record of a layer; a tree without one is a leftover
dependencies/trees/FOLDER/         its content; FOLDER differs each time it is built, so that a container which has
                                   an older one mounted is not taken for one with the new one
dependencies/trees/FOLDER.lock     locked (shared) by each controller with checks that use the tree; mtime: last use
dependencies/resolutions/DIGEST    which layer a set of manifests led to, by its digest
dependencies/sources/DIGEST        the manifests of a tree, by tree and setup, so that they are read once
dependencies/users/KEY/OWNER       empty: the repository or task OWNER ran checks with the layer; mtime: the last time
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.models import Model
from sandbox.models.dependencies import RefusedEntry
from sandbox.models.layers import Layer, Resolution
from sandbox.private_folders import make_private
from sandbox.store.home import Home, read_cached_record, write_json

if TYPE_CHECKING:
    from sandbox import durable
else:  # loaded where a layer is stored (docs/adr/0080)
    durable = LazyModule("sandbox.durable")

LAYERS_LOCK = "layers"
"""Held while a layer or a resolution is written."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 600.0, 86_400.0
_LEFTOVER_S = 3600.0  # a tree is moved into place a moment before its record is written


class LayerSource(Model):
    """What the manifests of a tree ask for. `request`: their digest; '' if they need no layer. `described`: what the
    project's build said, '' if it was not asked.
    """

    request: str
    described: str = ""


@dataclass(frozen=True)
class LayerStore:
    """The layers of a home."""

    home: Home

    @property
    def _root(self) -> Path:
        return self.home.repositories / "dependencies"

    def tree(self, layer: Layer) -> Path:
        """The directory of a layer's content."""
        return self._root / "trees" / layer.folder

    def find(self, key: str) -> Layer | None:
        """The layer with this key; None if it is not there, or damaged."""
        layer = read_cached_record(self._root / f"layers/{key}.json", Layer)
        return layer if layer is not None and layer.key == key and self.tree(layer).is_dir() else None

    def find_resolved(self, request: str) -> Layer | None:
        """The layer that this request led to, if it is still there. It counts as used now. See also `is_due`."""
        found = read_cached_record(self._root / f"resolutions/{request}.json", Resolution)
        layer = None if found is None else self.find(found.layer)
        if layer is not None:
            with suppress(OSError):  # removed just now, or a disk that cannot be written: `use` says so
                os.utime(_lock_path(self.tree(layer)))
        return layer

    def find_complete(self, request: str) -> Layer | None:
        """As `find_resolved`, but None if it is time to build the layer again: see `is_due`."""
        found = self.find_resolved(request)
        return None if found is not None and is_due(found, datetime.now(UTC)) else found

    def list_refused(self, request: str) -> tuple[RefusedEntry, ...]:
        """The entries of the manifests that were not used for this request."""
        found = read_cached_record(self._root / f"resolutions/{request}.json", Resolution)
        return () if found is None else found.refused

    def find_source(self, digest: str) -> LayerSource | None:
        """What a tree asks for, if its manifests were read before."""
        return read_cached_record(self._root / f"sources/{digest}.json", LayerSource)

    def save_source(self, digest: str, source: LayerSource) -> None:
        """Remember what a tree asks for. It can be computed again at any time."""
        self._write("sources", digest, source, synced=False)

    def save_resolution(self, resolution: Resolution) -> None:
        """Remember which layer a request led to. Under the lock of `remove_lost_resolutions`."""
        with self.home.locked(LAYERS_LOCK):
            self._write("resolutions", resolution.request, resolution)

    def publish_unless_known(self, layer: Layer, built: Path) -> Layer:
        """As `publish`, unless another builder published the layer of this key meanwhile. Returns the one in place.

        One that was built again, and ran short of something again, counts as tried once more, and at least as often as
        `layer`.
        """
        with self.home.locked(LAYERS_LOCK):
            known = self.find(layer.key)
            if known is None:
                self.publish(layer, built)
                return layer
            return known if layer.shortage is None else self._count_try(known, layer.shortage.tries)

    def count_try(self, layer: Layer) -> None:
        """Note that a layer that is to be built again was not: the next try is later. Other layers stay as they are."""
        with self.home.locked(LAYERS_LOCK):
            if (known := self.find(layer.key)) is not None:
                self._count_try(known)

    def _count_try(self, layer: Layer, at_least: int = 0) -> Layer:
        if layer.shortage is None:
            return layer
        update = {"tries": max(layer.shortage.tries + 1, at_least), "tried_at": datetime.now(UTC)}
        counted = layer.model_copy(update={"shortage": layer.shortage.model_copy(update=update)})
        self._write("layers", counted.key, counted)
        return counted

    def publish(self, layer: Layer, built: Path) -> None:
        """Move a complete tree into place, then write its record: a layer is there as a whole or not at all."""
        target = self.tree(layer)
        make_private(target.parent)
        _lock_path(target).touch(mode=0o600)
        durable.make_durable(built)  # else a power failure could leave a layer of empty files
        built.rename(target)
        self._write("layers", layer.key, layer)

    def list_layers(self) -> list[Layer]:
        """All layers, the one used last first."""
        keys = [path.stem for path in (self._root / "layers").glob("*.json")]
        found = [layer for key in keys if (layer := self.find(key))]
        return sorted(found, key=self.find_last_use, reverse=True)

    def list_resolutions(self, key: str) -> list[Resolution]:
        """The requests that led to a layer."""
        found = (read_cached_record(path, Resolution) for path in sorted((self._root / "resolutions").glob("*.json")))
        return [resolution for resolution in found if resolution is not None and resolution.layer == key]

    def is_replaced(self, layer: Layer) -> bool:
        """Whether the build of a layer ran short of something, and a later build gave its requests another layer."""
        return layer.shortage is not None and not self.list_resolutions(layer.key)

    def list_sources(self) -> list[Path]:
        """The files of `find_source`: one for each tree whose manifests were read."""
        return sorted((self._root / "sources").glob("*.json"))

    def list_failures(self) -> list[Path]:
        """The files of store/failed_fetches.py."""
        return sorted((self._root / "failures").glob("*.json"))

    def list_lost_resolutions(self, older_s: float) -> list[Path]:
        """Files written so long ago, of requests that led to a layer that is gone, or that cannot be read."""
        return [path for path in sorted((self._root / "resolutions").glob("*.json")) if self._is_lost(path, older_s)]

    def remove_lost_resolutions(self, paths: Iterable[Path], older_s: float) -> None:
        """Remove those that are still lost. The caller holds `LAYERS_LOCK`: a build may have saved one meanwhile, or
        published its layer.
        """
        for path in paths:
            if self._is_lost(path, older_s):
                path.unlink(missing_ok=True)

    def _is_lost(self, path: Path, older_s: float) -> bool:
        try:
            if time.time() - path.stat().st_mtime <= older_s:
                return False
        except FileNotFoundError:
            return False
        resolution = read_cached_record(path, Resolution)
        return resolution is None or self.find(resolution.layer) is None

    def find_last_use(self, layer: Layer) -> datetime:
        """When a check last began to use a layer."""
        try:
            return datetime.fromtimestamp(_lock_path(self.tree(layer)).stat().st_mtime, UTC)
        except FileNotFoundError:
            return layer.built_at

    def list_users(self, key: str) -> dict[str, datetime]:
        """The repositories and tasks that ran checks with a layer, also those that are gone, and when they last did."""
        found = {}
        for path in (self._root / "users" / key).glob("*"):
            with suppress(FileNotFoundError):
                found[path.name] = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        return found

    def _note_user(self, key: str, owner: str) -> None:
        """That it cannot be noted, on a full disk, is no reason to run no check."""
        path = self._root / "users" / key / owner
        with suppress(OSError):
            make_private(path.parent)
            path.touch(mode=0o600)

    @contextmanager
    def use(self, key: str, owner: str) -> Iterator[Path]:
        """Keep a layer from being removed; yields its tree. `owner`: the repository or task that uses it.

        Raises: `not_found` if it has just been removed.
        """
        layer = self.find(key)
        with ExitStack() as stack:
            if layer is None or not self._hold(layer, stack):
                raise SandboxError(
                    ErrorCode.NOT_FOUND,
                    f"The layer {key[:12]} has just been removed",
                    hint="Run the command again: the layer is built again.",
                )
            self._note_user(key, owner)
            yield self.tree(layer)

    def _hold(self, layer: Layer, stack: ExitStack) -> bool:
        """Lock a layer for use, until `stack` ends. Returns whether it is still there."""
        tree = self.tree(layer)
        try:
            stack.enter_context(_open_lock(tree, fcntl.LOCK_SH))
            os.utime(_lock_path(tree))
        except (FileNotFoundError, BlockingIOError):
            return False
        return tree.is_dir()

    def remove(self, layer: Layer) -> Path | None:
        """Remove the record of a layer; returns its tree, to be deleted, which is gone if another process removed it
        meanwhile. None if checks use the layer.
        """
        tree = self.tree(layer)
        try:
            with _open_lock(tree, fcntl.LOCK_EX):
                if not tree.is_dir():
                    return tree  # the record of this key is that of a later build
                (self._root / f"layers/{layer.key}.json").unlink(missing_ok=True)
                aside = tree.with_name(f"{tree.name}.removed-{secrets.token_hex(4)}")
                tree.rename(aside)
                _lock_path(tree).unlink()
                shutil.rmtree(self._root / "users" / layer.key, ignore_errors=True)
                return aside
        except FileNotFoundError:
            return tree
        except BlockingIOError:
            return None

    def claim_leftover(self, tree: Path) -> bool:
        """Whether a tree without a record may be deleted; then its lock is removed."""
        try:
            with suppress(FileNotFoundError), _open_lock(tree, fcntl.LOCK_EX):
                _lock_path(tree).unlink()
        except BlockingIOError:
            return False
        return True

    def list_leftovers(self) -> list[Path]:
        """Trees without a record: of a build that was cut off, or of a removal."""
        known = {layer.folder for layer in self.list_layers()}
        trees = [path for path in (self._root / "trees").glob("*") if path.is_dir() and path.name not in known]
        return [path for path in trees if time.time() - path.lstat().st_ctime > _LEFTOVER_S or ".removed-" in path.name]

    def _write(self, folder: str, name: str, record: Model, *, synced: bool = True) -> None:
        path = self._root / folder / f"{name}.json"
        make_private(path.parent)
        write_json(path, record.model_dump(mode="json"), synced=synced)


def is_due(layer: Layer, now: datetime) -> bool:
    """Whether to build a layer again because its build ran short of something: ten minutes after the first build, then
    after twice the time each, at most a day. Pure.
    """
    if layer.shortage is None:
        return False
    wait_s = min(_FIRST_WAIT_S * (1 << min(layer.shortage.tries - 1, 20)), _LONGEST_WAIT_S)
    return abs((now - layer.shortage.tried_at).total_seconds()) >= wait_s  # a clock may be set back


def draw_folder(key: str) -> str:
    """A folder for a layer, another one each time that it is built."""
    return f"{key[:32]}-{secrets.token_hex(6)}"


def _lock_path(tree: Path) -> Path:
    return tree.with_name(f"{tree.name}.lock")


@contextmanager
def _open_lock(tree: Path, kind: int) -> Iterator[None]:
    """Hold a layer's lock. Raises: FileNotFoundError; BlockingIOError while the other kind is held."""
    fd = os.open(_lock_path(tree), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)
