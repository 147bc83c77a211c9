"""The repository map: guest output is parsed defensively, the budget is never exceeded, what matters comes first."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.context.ctags import Symbol, parse_symbols
from sandbox.context.map import build_map, count_mentions


def tag(**fields: object) -> bytes:
    return json.dumps(
        {"_type": "tag", "name": "main", "path": "./a.c", "line": 3, "kind": "function", **fields}
    ).encode()


def test_ctags_lines_become_symbols_relative_to_the_tree() -> None:
    (symbol,) = parse_symbols(tag(signature="(int argc)", scope="app") + b"\n")

    assert (symbol.path, symbol.name, symbol.line, symbol.signature) == ("a.c", "main", 3, "(int argc)")


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[]",
        b"null",
        b'{"_type": "ptag", "name": "JSON_OUTPUT_VERSION"}',
        tag(line=0),
        tag(line="x"),
        tag(name=""),
        tag(name="a\x1b[31m"),
        tag(path="a\nb"),
        tag(kind="a\x1b[31m"),
        tag(scope="a\n/etc/passwd"),
        tag(signature="(a\u202e)"),
        tag(name="\ud800"),
        tag(name="x" * 300),
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_what_is_no_tag_is_dropped(line: bytes) -> None:
    assert [s.name for s in parse_symbols(line + b"\n" + tag(name="kept") + b"\n")] == ["kept"]


SYMBOLS = st.builds(
    Symbol,
    name=st.text(st.characters(categories=["L"]), min_size=1, max_size=30),
    path=st.sampled_from(["a.c", "src/b.py", "tests/test_c.py", "deep/er/and/deeper/d.rs"]),
    line=st.integers(1, 10_000),
    kind=st.sampled_from(["function", "class", "variable", "odd"]),
    signature=st.sampled_from(["", "(a, b)"]),
)


@given(symbols=st.lists(SYMBOLS, max_size=60), budget=st.integers(1, 400))
def test_the_budget_is_never_exceeded(symbols: list[Symbol], budget: int) -> None:
    drawn = build_map(symbols, Counter(), budget, files_total=4)

    assert drawn.tokens_estimated <= budget
    assert len(drawn.map) <= 4 * budget
    assert drawn.files_covered <= len({s.path for s in symbols})


def test_a_name_that_other_files_mention_comes_before_one_that_they_do_not() -> None:
    symbols = [Symbol(name=n, path=f"{n}.c", line=1, kind="function") for n in ("lonelyone", "mentioned")]
    counts = count_mentions([b"mentioned(1)", b"x = mentioned(2);", b"int mentioned(int) lonelyone"])

    drawn = build_map(symbols, counts, token_budget=10, files_total=2)

    assert "mentioned" in drawn.map
    assert "lonelyone" not in drawn.map
