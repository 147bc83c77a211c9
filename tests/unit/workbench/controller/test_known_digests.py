"""Digests that entries are known to have had."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.workbench.controller.known_digests import KnownDigests

PAIRS = st.lists(st.tuples(st.integers(min_value=0, max_value=9), st.sampled_from(["", "a", "sha256:b"])), max_size=20)


@given(added=PAIRS, asked=PAIRS)
def test_it_answers_as_a_dictionary_would(added: list[tuple[int, str]], asked: list[tuple[int, str]]) -> None:
    known, model = KnownDigests(), dict(added)
    for seq, digest in added:
        known.add(seq, digest)
    for seq, digest in asked:
        assert known.confirm(seq, digest) == (model.get(seq, digest) == digest)
    unseen = sorted(model.keys() - {seq for seq, _ in asked})
    assert known.find_unseen() == ((unseen[0], unseen[-1]) if unseen else None)


@pytest.mark.parametrize("text", ["no digest", "\ud800", "x" * 100_000])
def test_a_text_of_any_kind_matches_only_itself(text: str) -> None:
    known = KnownDigests()
    known.add(1, text)
    assert not known.confirm(1, "sha256:0")
    assert known.confirm(1, text)
