"""A map made from what differs is the map made from everything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.context import edited_map
from sandbox.context import map as whole_map
from sandbox.context.edited_map import compare_tree, rank_edited
from sandbox.context.map import choose_best, describe_best, score_symbols
from sandbox.store import mapped_tree, symbol_index
from sandbox.store.home import Home
from sandbox.store.mapped_tree import (
    MappedTree,
    Symbol,
    TreeSummary,
    build_mapped_tree,
    load_mapped_tree,
    save_mapped_tree,
)

NAMES = ("a", "run", "_hidden", "parse_line", "parser", "\u00e9tat", "zone")
SYMBOLS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.integers(1, 9),
        st.sampled_from(["class", "function", "odd"]),
        st.just(""),
        st.just(""),
    ),
    max_size=6,
)
BLOBS = {f"blob{number}": number for number in range(6)}
FILES = st.dictionaries(
    st.sampled_from(["a.c", "src/b.py", "src/c.py", "tests/test_c.py", "x/y/z.rs"]), st.sampled_from(list(BLOBS))
)
COUNTS = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 50))


def rank(files: Mapping[str, str], symbols: Mapping[str, list[Symbol]], counts: Mapping[str, int]) -> MappedTree:
    best = choose_best(score_symbols(((path, symbols[key]) for path, key in files.items()), counts))
    is_whole = sum(len(symbols[key]) for key in files.values()) == len(best)
    summary = TreeSummary(
        version="1", files=dict(files), counted=frozenset(), counts=dict(counts), best=best, is_whole=is_whole
    )
    return build_mapped_tree(summary, symbols)


@given(st.tuples(*[SYMBOLS] * len(BLOBS)), FILES, FILES, COUNTS, COUNTS, st.sampled_from([3, 8, 20_000]))
def test_the_ranking_after_an_edit_is_that_of_the_whole_tree(
    contents: tuple[list[Symbol], ...],
    before: dict[str, str],
    after: dict[str, str],
    counts: dict[str, int],
    new_counts: dict[str, int],
    most: int,
) -> None:
    symbols = dict(zip(BLOBS, contents, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_map, "MAX_RANKED", most)
        patch.setattr(edited_map, "MAX_RANKED", most)
        base = rank(before, symbols, counts)
        growth = {name: new_counts.get(name, 0) - counts.get(name, 0) for name in NAMES}
        edit = compare_tree(base, after, frozenset())
        found = rank_edited(base, edit, {key: symbols[key] for key in edit.changed.values()}, growth)
        expected = describe_best(rank(after, symbols, new_counts).summary.best)[0]
    if found is None:
        assert not base.summary.is_whole  # what was worse than the kept ones may be needed now
    else:
        assert found == expected


@given(st.tuples(*[SYMBOLS] * len(BLOBS)), FILES)
def test_each_name_is_found_among_all_symbols(contents: tuple[list[Symbol], ...], files: dict[str, str]) -> None:
    symbols = dict(zip(BLOBS, contents, strict=True))
    tree = rank(files, symbols, {})
    everything = sorted((path, symbol) for path, key in files.items() for symbol in symbols[key])
    assert sorted(tree.find_symbols(NAMES)) == everything
    assert sorted(tree.find_symbols(["run", "pars", ""])) == [found for found in everything if found[1][0] == "run"]
    assert {key: sorted(found) for key, found in tree.read_blobs().items()} == {
        key: sorted(symbols[key]) for key in files.values()
    }


def test_a_tree_is_kept_until_it_is_damaged_or_made_by_another_version(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.pristines("repo").parent.mkdir(parents=True)
    tree = rank({"a.c": "blob0"}, {"blob0": [("parse_line", 3, "function", "", "(int a)")]}, {"parse_line": 3})
    assert load_mapped_tree(home, "repo", "1") is None
    save_mapped_tree(home, "repo", tree)
    assert load_mapped_tree(home, "repo", "1") == tree
    assert load_mapped_tree(home, "repo", "2") is None
    path = home.pristines("repo") / "tree.index"
    path.write_bytes(path.read_bytes()[:20])
    assert load_mapped_tree(home, "repo", "1") is None


def test_s190_no_more_than_so_many_symbols_of_several_runs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    home.pristines("repo").parent.mkdir(parents=True)
    symbols: dict[str, list[Symbol]] = {"blob0": [(name, 1, "class", "", "") for name in ("one", "two", "three")]}
    save_mapped_tree(home, "repo", rank({"a.c": "blob0"}, symbols, {}))
    symbol_index.save_index(home, "repo", symbol_index.SymbolIndex(version="1", blobs=symbols))
    assert symbol_index.load_index(home, "repo", "1").blobs == symbols
    monkeypatch.setattr(mapped_tree, "MAX_SYMBOLS", 2)
    monkeypatch.setattr(symbol_index, "MAX_KEPT", 2)
    assert load_mapped_tree(home, "repo", "1") is None
    symbol_index.save_index(home, "repo", symbol_index.SymbolIndex(version="1", blobs=symbols))
    assert symbol_index.load_index(home, "repo", "1").blobs == {}


def test_a_word_that_was_not_counted_does_not_count_below_zero() -> None:
    """Past the limit of words, a file that is gone may have had some that were not counted."""
    symbols: dict[str, list[Symbol]] = {"blob0": [("zone_of_names", 1, "class", "", "")]}
    base = rank({"a.c": "blob0"}, symbols, {})
    edit = compare_tree(base, {"a.c": "blob0"}, frozenset())
    assert rank_edited(base, edit, symbols, {"zone_of_names": -3}) == [("a.c", 1, "class zone_of_names")]


def test_a_large_edit_is_not_ranked_by_what_differs() -> None:
    base = rank({"a.c": "blob0"}, {"blob0": []}, {})
    many = {f"{number}.c": "blob0" for number in range(edited_map.MAX_CHANGED_FILES + 1)}
    assert not compare_tree(base, many, frozenset()).is_small
    assert compare_tree(base, {"a.c": "blob1"}, frozenset()).is_small
