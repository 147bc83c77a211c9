"""Symbols of files, maps and envelopes that were made, kept for the next ones. All can be made again.

One file for each repository holds the symbols of blobs that the mapped tree does not have (`mapped_tree`); one for each
tree holds its ranked symbols. A reader sees the old or the new file; of two that write at the same time the last one
wins, and only time is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from sandbox.models.context import Context
from sandbox.models.model import Model
from sandbox.store.home import Home, write_atomically
from sandbox.store.mapped_tree import Symbol

_log = logging.getLogger(__name__)

_MAX_BYTES = 256 * 1024**2
_MAX_MAPS = 20
MAX_KEPT = 500_000
"""Symbols of an index: those of many runs of ctags come together in it, and each takes 300 bytes when it is read."""
_ENVELOPE_VERSION = "1"


class SymbolIndex(Model):
    """`version`: of what made it; another one makes it worthless. `blobs`: symbols by key of a blob."""

    version: str
    blobs: dict[str, list[Symbol]] = Field(default_factory=dict)


class RankedSymbols(Model):
    """The symbols of a tree, the most important first: path, line and text of each, up to the largest budget.

    `files_total`: of the tree, as far as they were asked for. `vendored`: files that were left out, by folder.
    """

    ranked: list[tuple[str, int, str]]
    files_total: int
    vendored: dict[str, int]


class _KeptEnvelope(Model):
    version: str
    context: Context


def load_index(home: Home, repo_id: str, version: str) -> SymbolIndex:
    """What is known of blobs; empty for a new repository, or if it was made by another version."""
    path = _index_path(home, repo_id)
    try:
        found = SymbolIndex.model_validate_json(_read(path))
    except (OSError, ValidationError):
        return SymbolIndex(version=version)
    return found if found.version == version else SymbolIndex(version=version)


def save_index(home: Home, repo_id: str, index: SymbolIndex) -> None:
    """Replace what is known; an index of more than `MAX_KEPT` symbols is emptied. A full disk loses only time."""
    if sum(map(len, index.blobs.values())) > MAX_KEPT:
        index = SymbolIndex(version=index.version)
    _write(_index_path(home, repo_id), index)


def load_map(home: Home, repo_id: str, key: str) -> RankedSymbols | None:
    """A map that was made. `key`: of the tree and all that the ranking depends on, in hex."""
    try:
        return RankedSymbols.model_validate_json(_read(_map_path(home, repo_id, key)))
    except (OSError, ValidationError):
        return None


def save_map(home: Home, repo_id: str, key: str, found: RankedSymbols) -> None:
    """Keep a map, and of the older ones the newest."""
    path = _map_path(home, repo_id, key)
    _write(path, found)
    ages: Mapping[Path, int] = {old: _age(old) for old in path.parent.glob("map-*.index")}
    for old in sorted(ages, key=ages.__getitem__)[:-_MAX_MAPS]:
        old.unlink(missing_ok=True)


def load_envelope(home: Home, repo_id: str, name: str) -> Context | None:
    """The envelope of a tree, or of a part of it, if it was made by this version."""
    try:
        found = _KeptEnvelope.model_validate_json(_read(_envelope_path(home, repo_id, name)))
    except (OSError, ValidationError):
        return None
    return found.context if found.version == _ENVELOPE_VERSION else None


def save_envelope(home: Home, repo_id: str, name: str, context: Context) -> None:
    """Keep the envelope of a tree."""
    _write(_envelope_path(home, repo_id, name), _KeptEnvelope(version=_ENVELOPE_VERSION, context=context))


def _age(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _read(path: Path) -> bytes:
    if path.stat().st_size > _MAX_BYTES:
        raise OSError(f"{path} is too large")
    return path.read_bytes()


def _write(path: Path, document: Model) -> None:
    try:
        path.parent.mkdir(exist_ok=True, mode=0o700)
        write_atomically(path, document.model_dump_json().encode(), synced=False)
    except OSError as error:
        _log.info("%s could not be saved: %s", path.name, error)


def _index_path(home: Home, repo_id: str) -> Path:
    return home.pristines(repo_id) / "symbols.index"


def _envelope_path(home: Home, repo_id: str, name: str) -> Path:
    return home.pristines(repo_id) / f"envelope-{name}.index"


def _map_path(home: Home, repo_id: str, key: str) -> Path:
    return home.pristines(repo_id) / f"map-{key}.index"
