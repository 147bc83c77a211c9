"""The ranking of a tree that differs little from one that was ranked: from what differs, with the same result.

A score depends on the path, the symbol, and the number of files that mention its name. So only the symbols of changed
files, and those of names with another number, get a new score; the others keep their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandbox.context.map import MAX_RANKED, choose_best, describe_best, score_symbols
from sandbox.store.mapped_tree import MappedTree, Scored, Symbol

MAX_CHANGED_FILES = 200
MAX_CHANGED_NAMES = 20_000


@dataclass(frozen=True)
class TreeEdit:
    """How a tree differs from the ranked one. `changed`: new and changed files with the key of the blob. `gone`: paths
    with symbols in the ranked tree that no longer count. `added`, `removed`: blobs in which words are counted.
    """

    changed: Mapping[str, str]
    gone: frozenset[str]
    added: frozenset[str]
    removed: frozenset[str]

    @property
    def is_small(self) -> bool:
        """Whether it is cheaper to rank what differs than everything."""
        return max(map(len, (self.changed, self.gone, self.added, self.removed))) <= MAX_CHANGED_FILES


def compare_tree(base: MappedTree, files: Mapping[str, str], counted: frozenset[str]) -> TreeEdit:
    """`files`: paths with the key of the blob. `counted`: blobs in which words are counted."""
    before = base.summary
    changed = {path: key for path, key in files.items() if before.files.get(path) != key}
    gone = {path for path in before.files if path in changed or path not in files}
    return TreeEdit(changed, frozenset(gone), counted - before.counted, before.counted - counted)


def rank_edited(
    base: MappedTree, edit: TreeEdit, symbols: Mapping[str, Sequence[Symbol]], mentions: Mapping[str, int]
) -> list[tuple[str, int, str]] | None:
    """As `describe_best` for the whole tree. `symbols`: of the changed files, by key. `mentions`: by how much the
    number of files with a word grew.

    None if too much differs to say without all symbols.
    """
    before = base.summary
    names = {name for name, growth in mentions.items() if growth}
    if len(names) > MAX_CHANGED_NAMES:
        return None
    files: dict[str, list[Symbol]] = {path: list(symbols.get(key, ())) for path, key in edit.changed.items()}
    for path, symbol in base.find_symbols(names) if names else ():
        if path not in edit.gone:
            files.setdefault(path, []).append(symbol)
    counts = Counter(before.counts)
    counts.update({name: mentions[name] for name in names})
    counts = +counts  # past MAX_WORDS a file that is gone may have had words that were not counted
    same = [each for each in before.best if each[1] not in edit.gone and each[3][0] not in names]
    best = choose_best([*same, *score_symbols(files.items(), counts)])
    if before.is_whole:
        return describe_best(best)[0]
    ranked, is_enough = describe_best(_cut(best, before.best[-1]))
    return ranked if is_enough else None


def _cut(best: Sequence[Scored], worst: Scored) -> list[Scored]:
    """Those that are at least as good as the worst that is known: of worse ones, some are missing."""
    return [each for each in best[:MAX_RANKED] if each <= worst]
