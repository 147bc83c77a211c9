"""The last tree of a repository with a map that was made from all of its symbols, kept for the maps of similar trees.

Theory. After an edit most symbols keep their score. The others are those of the edited files, and those with a name
that is now mentioned in more or fewer files. So the file has a document first: the files, the words, and the best
symbols with their scores. All symbols follow, one a line. The few that are needed are found by name; to parse and score
the others would be most of the time. A reader sees the old or the new file; it can always be made again.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from pydantic import ValidationError

from sandbox.lazy_dataclass import dataclass
from sandbox.models.model import Model
from sandbox.store.home import Home, write_atomically

_log = logging.getLogger(__name__)

Symbol: TypeAlias = tuple[str, int, str, str, str]
"""Name, line, kind, scope and signature of one definition. Guest data, printable."""

Scored: TypeAlias = tuple[float, str, int, Symbol]
"""Score, path, line and symbol. The lowest score is the best, so that they sort from the best to the worst."""

_MAX_BYTES = 256 * 1024**2
MAX_SYMBOLS = 1_000_000
"""Of one tree. A repository of 25,000 files has 300,000; an object of each symbol takes 150 to 300 bytes."""


class TreeSummary(Model):
    """`version`: of what made it; another one makes it worthless. `files`: paths with the key of the blob. `counted`:
    blobs in which words were counted; `counts`: in how many of them a word occurs. `best`: the best symbols in order;
    all of them if `is_whole`.
    """

    version: str
    files: dict[str, str]
    counted: frozenset[str]
    counts: dict[str, int]
    best: list[Scored]
    is_whole: bool


@dataclass(frozen=True)
class MappedTree:
    """`lines`: all symbols, each line ended. Their last field is the number of the path."""

    summary: TreeSummary
    lines: bytes

    def find_symbols(self, names: Collection[str]) -> Iterator[tuple[str, Symbol]]:
        """Path and symbol of each definition of these names."""
        paths, wanted = list(self.summary.files), {name.encode() for name in names}
        for line in io.BytesIO(self.lines):  # one after the other: a list of them takes a multiple of the memory
            if line.partition(b"\t")[0] in wanted:
                yield _parse_line(line, paths)

    def read_blobs(self) -> dict[str, list[Symbol]]:
        """The symbols of all files, by key of the blob."""
        paths, files = list(self.summary.files), self.summary.files
        by_path: dict[str, list[Symbol]] = {path: [] for path in paths}
        for line in io.BytesIO(self.lines):
            path, symbol = _parse_line(line, paths)
            by_path[path].append(symbol)
        return {files[path]: symbols for path, symbols in by_path.items()}


def build_mapped_tree(summary: TreeSummary, symbols: Mapping[str, Sequence[Symbol]]) -> MappedTree:
    """`symbols`: those of each file, by key of its blob."""
    lines = bytearray()
    for number, key in enumerate(summary.files.values()):
        lines += "".join(
            f"{name}\t{line}\t{kind}\t{scope}\t{signature}\t{number}\n"
            for name, line, kind, scope, signature in symbols.get(key, ())
        ).encode()
    return MappedTree(summary, bytes(lines))


def load_mapped_tree(home: Home, repo_id: str, version: str) -> MappedTree | None:
    """None if none is kept, or if it was made by another version, is damaged, or has more than `MAX_SYMBOLS`: those of
    many runs of ctags may come together in one tree.
    """
    path = _path(home, repo_id)
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        document, found, lines = path.read_bytes().partition(b"\n")
        if lines.count(b"\n") > MAX_SYMBOLS:
            return None
        summary = TreeSummary.model_validate_json(document)
    except (OSError, ValidationError):
        return None
    return MappedTree(summary, lines) if found and summary.version == version else None


def save_mapped_tree(home: Home, repo_id: str, tree: MappedTree) -> None:
    """Replace the one that was kept. A full disk loses only time."""
    path = _path(home, repo_id)
    try:
        path.parent.mkdir(exist_ok=True, mode=0o700)
        write_atomically(path, tree.summary.model_dump_json().encode() + b"\n" + tree.lines, synced=False)
    except OSError as error:
        _log.info("%s could not be saved: %s", path.name, error)


def _parse_line(line: bytes, paths: Sequence[str]) -> tuple[str, Symbol]:
    name, number, kind, scope, signature, path = line.decode().removesuffix("\n").split("\t")
    return paths[int(path)], (name, int(number), kind, scope, signature)


def _path(home: Home, repo_id: str) -> Path:
    return home.pristines(repo_id) / "tree.index"
