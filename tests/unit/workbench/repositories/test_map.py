"""The words of a tree are counted from those of the tree before it, with the same result and the same limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sandbox.context import map as whole_map
from sandbox.git.process import Git
from sandbox.store.mapped_tree import MappedTree, TreeSummary
from sandbox.workbench.repositories import map as tree_map

FILES = 20


@pytest.fixture
def blobs(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Contents by id, instead of those of a repository."""
    contents: dict[str, bytes] = {}

    def read_blobs(_git: Git, oids: Sequence[str]) -> Iterator[bytes]:
        return (contents[oid] for oid in oids)

    monkeypatch.setattr(tree_map, "read_blobs", read_blobs)
    return contents


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(whole_map, "MAX_WORDS", 1000)
    monkeypatch.setattr(tree_map, "MAX_WORDS", 1000)
    return 1000


def fill(blobs: dict[str, bytes], tag: str, number: int, words: int) -> list[str]:
    """Add files, each with so many words of its own and one that all have; returns their ids."""
    oids = [f"{tag}{i:02}" for i in range(number)]
    blobs.update({oid: b" ".join([b"shared", *(b"%s_%d" % (oid.encode(), n) for n in range(words))]) for oid in oids})
    return oids


def keep(oids: Sequence[str], base: MappedTree | None) -> MappedTree:
    counts = tree_map._count_words(Git(Path("absent")), base, oids)
    return MappedTree(
        TreeSummary(version="1", files={}, counted=frozenset(oids), counts=counts, best=[], is_whole=True), b""
    )


def test_s190_words_of_successive_commits_do_not_add_up_past_the_limit(blobs: dict[str, bytes], limit: int) -> None:
    """Each commit changes few files, so that the counts before it are kept; each brings as many words as it may."""
    oids = fill(blobs, "a", FILES, 10)
    tree = keep(oids, None)
    for commit in range(10):
        oids = [*oids[4:], *fill(blobs, f"commit{commit}_", 4, limit // 5)]
        tree = keep(oids, tree)
        assert len(tree.summary.counts) <= limit + limit // 5 + 1  # the last file is counted whole
        assert tree.summary.counts["shared"] == FILES


def test_s190_counts_that_may_lack_words_are_not_continued(blobs: dict[str, bytes], limit: int) -> None:
    """The words of the last file were past the limit. They are counted once others make room."""
    large, rest = fill(blobs, "large", 2, limit // 2), fill(blobs, "rest", FILES, 1)
    tree = keep([*large, *rest], None)
    assert "rest19_0" not in tree.summary.counts
    tree = keep(rest, tree)
    assert tree.summary.counts["rest19_0"] == 1


def test_below_the_limit_only_the_files_that_differ_are_read(
    blobs: dict[str, bytes], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    oids = fill(blobs, "a", FILES, 10)
    tree = keep(oids, None)
    new = fill(blobs, "b", 2, 10)
    expected = keep([*oids[2:], *new], None).summary.counts
    for oid in oids[2:]:
        del blobs[oid]
    assert keep([*oids[2:], *new], tree).summary.counts == expected
    assert len(expected) < limit
