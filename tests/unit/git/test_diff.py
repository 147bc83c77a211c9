"""Differences of trees, with plain git as the oracle, and what a guest cannot make them cost. Ids: THREATS I."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import ErrorCode
from sandbox.git import diff
from sandbox.git.diff import DiffLimits, DiffPlan, TreeDiff, compare_trees, cut_at_line_end, find_lossy_paths, plan_diff
from sandbox.git.entries import EXECUTABLE, REGULAR, SYMLINK, RawChange
from sandbox.git.process import Git
from tests.unit.conftest import Upstream, refused
from tests.unit.git.test_new_commits import BASE, written

EVERYTHING = DiffPlan(line_bytes=1 << 30, similar=True, complete=True)
NUMBERS = b"".join(b"%d\n" % n for n in range(400))


def compared(
    source: Upstream,
    before: dict[bytes, tuple[str, bytes]],
    after: dict[bytes, tuple[str, bytes]],
    limits: DiffLimits | None = None,
) -> TreeDiff:
    return compare_trees(Git(source.git_dir), written(source, before), written(source, after), limits)


def test_diff_trees_tells_each_kind_of_change(upstream: Upstream) -> None:
    before = written(upstream, BASE)
    after = written(
        upstream,
        {
            b"a": (REGULAR, b"2"),
            b"run": (REGULAR, b"#!/bin/sh\n"),
            b"link": (REGULAR, b"a"),
            b"d/one": (REGULAR, b"1"),
            b"n\new": (REGULAR, b""),
        },
    )
    found = diff.diff_trees(Git(upstream.git_dir), before, after)
    assert {c.path: (c.status, c.old_mode, c.new_mode) for c in found} == {
        b"a": ("M", REGULAR, REGULAR),
        b"run": ("M", EXECUTABLE, REGULAR),
        b"link": ("T", SYMLINK, REGULAR),
        b"d/deep/two": ("D", REGULAR, "000000"),
        b"n\new": ("A", "000000", REGULAR),
    }
    assert {c.path for c in found if c.new_oid is None} == {b"d/deep/two"}
    assert {c.path for c in found if c.old_oid is None} == {b"n\new"}


def test_counts_are_lines_or_none_for_binary(upstream: Upstream) -> None:
    before = {b"t": (REGULAR, b"1\n2\n"), b"b": (REGULAR, b"\0a")}
    after = {b"t": (REGULAR, b"1\n3\n4\n"), b"b": (REGULAR, b"\0b"), b"\xff\t": (REGULAR, b"x\n")}
    assert compared(upstream, before, after).counts == {b"t": (2, 1), b"b": (None, None), b"\xff\t": (1, 0)}


def test_i01_attributes_of_the_tree_hide_nothing_from_the_diff(upstream: Upstream) -> None:
    attributes = (REGULAR, b"* -diff\n*.c diff=evil ident\n")
    before = {b".gitattributes": attributes, b"x.c": (REGULAR, b"good\n")}
    found = compared(upstream, before, before | {b"x.c": (REGULAR, b"evil()\n")})
    assert b"+evil()" in found.text
    assert b"--- a/x.c\n+++ b/x.c\n" in found.text


@pytest.mark.parametrize("edit", [b"", b"one more\n"], ids=["exact", "edited"])
def test_a_renamed_file_has_both_names_and_only_its_edit_as_lines(upstream: Upstream, edit: bytes) -> None:
    found = compared(upstream, {b"old": (REGULAR, NUMBERS)}, {b"n\tew": (REGULAR, NUMBERS + edit)})
    (change,) = found.changes
    assert (change.status, change.old_path, change.path) == ("R", b"old", b"n\tew")
    assert found.counts == {b"n\tew": (1 if edit else 0, 0)}
    assert b"rename from old" in found.text
    assert found.complete


def test_binary_content_is_named_and_never_encoded(upstream: Upstream) -> None:
    noise = bytes(range(256)) * 400
    found = compared(upstream, {b"b": (REGULAR, b"\0")}, {b"b": (REGULAR, noise)})
    assert found.text.endswith(b"Binary files a/b and b/b differ\n")
    assert len(found.text) < 300
    assert found.complete  # nothing that has lines was left out


def test_the_text_is_that_of_plain_git(upstream: Upstream) -> None:
    before, after = written(upstream, BASE), written(upstream, {b"a": (REGULAR, b"2"), b"d/one": (REGULAR, b"1\n")})
    oracle = upstream.git("diff-tree", "-r", "-p", "-M", "--full-index", before, after)
    assert compare_trees(Git(upstream.git_dir), before, after).text == oracle


def test_files_whose_bytes_are_no_text_are_named(upstream: Upstream) -> None:
    """Whatever their names are, and with lines that look like the header of another file."""
    names = [b"plain", b"with space", b"caf\xc3\xa9", b'tab\t"quote\\', b"bell\x07\x7f\xff"]
    base = {name: (REGULAR, b"latin\xe9\n") for name in [*names, b"untouched"]} | {b"utf8": (REGULAR, b"1\n")}
    after = {name: (REGULAR, b"LATIN\xe9\rdiff --git a/utf8 b/utf8\n") for name in names}
    after |= {b"utf8": (REGULAR, "caf\u00e9\n".encode()), b"renamed": (REGULAR, b"latin\xe9\n")}
    found = compared(upstream, base, after)
    assert {c.path for c in found.changes} == {*names, b"utf8", b"renamed"}, "void"
    assert find_lossy_paths(found) == sorted(names), "a rename alone shows no byte of the file"
    assert find_lossy_paths(compared(upstream, {}, {b"b": (REGULAR, b"\0\xff")})) == [], "it is named only"


def test_the_same_tree_costs_nothing(upstream: Upstream) -> None:
    assert compared(upstream, BASE, BASE) == TreeDiff((), {}, b"", complete=True)


def test_a_line_break_in_a_name_does_not_pass_for_lines_of_the_diff(upstream: Upstream) -> None:
    """Control: with -z git prints names as they are."""
    hostile = {b"x\n+++ b/innocent\n+spoofed": (REGULAR, b"1\n")}
    trees = written(upstream, {}), written(upstream, hostile)
    assert b"\n+spoofed" in upstream.git("diff-tree", "-p", "-z", "--raw", *trees), "void"
    assert b"\n+spoofed" not in compare_trees(Git(upstream.git_dir), *trees).text


# --- what a guest can make large


def test_a_large_file_is_only_named_and_the_others_in_full(upstream: Upstream) -> None:
    """Control: plain git prints every line of it."""
    before = {b"big": (REGULAR, NUMBERS), b"f": (REGULAR, b"1\n")}
    after = {b"big": (REGULAR, NUMBERS * 2), b"f": (REGULAR, b"2\n")}
    trees = written(upstream, before), written(upstream, after)
    assert len(upstream.git("diff-tree", "-r", "-p", *trees)) > len(NUMBERS), "void"
    found = compare_trees(Git(upstream.git_dir), *trees, DiffLimits(file_bytes=len(NUMBERS)))
    assert found.counts == {b"big": (None, None), b"f": (1, 1)}
    assert b"\nFiles a/big and b/big, too large to be compared line by line, differ\n" in found.text
    assert b"\n+2\n" in found.text
    assert not found.complete


@pytest.mark.parametrize("before", [NUMBERS, None], ids=["changed", "new"])
def test_git_applies_no_diff_that_only_names_a_large_file(
    upstream: Upstream, tmp_path: Path, before: bytes | None
) -> None:
    """Control: of a new file whose diff says less, git makes an empty one."""
    old = {} if before is None else {b"big": (REGULAR, before)}
    found = compared(upstream, old, {b"big": (REGULAR, NUMBERS * 2)}, DiffLimits(file_bytes=10))
    assert b", too large to be compared line by line, differ\n" in found.text
    elsewhere = Upstream(tmp_path / "elsewhere")  # without the objects, which git could use
    elsewhere.root.mkdir()
    if before is not None:
        elsewhere.write("big", before)
    (elsewhere.root / "patch").write_bytes(found.text)
    elsewhere.git("apply", "patch", code=1)
    assert (elsewhere.root / "big").exists() == (before is not None)
    if before is None:
        (elsewhere.root / "patch").write_bytes(found.text.replace(b", differ", b""))
        elsewhere.git("apply", "patch")
        assert (elsewhere.root / "big").read_bytes() == b""


def test_text_over_the_limit_ends_with_a_whole_line(upstream: Upstream) -> None:
    found = compared(upstream, {}, {b"f": (REGULAR, NUMBERS)}, DiffLimits(text_bytes=500))
    assert 480 < len(found.text) <= 500
    assert found.text.endswith(b"\n")
    assert not found.complete
    assert found.counts == {b"f": (400, 0)}


def test_the_text_is_cut_but_never_the_list_of_files(upstream: Upstream) -> None:
    """More is printed than is read: the limit is that of the text, added to what the lists need at most."""
    before = {b"moved/" + b"x" * 200 + b"%d" % n: (REGULAR, b"%d\n" % n) for n in range(50)}
    after = {path.replace(b"moved", b"here"): leaf for path, leaf in before.items()}
    found = compared(upstream, before, after, DiffLimits(text_bytes=1000))
    assert {(c.old_path, c.path) for c in found.changes} == {(p, p.replace(b"moved", b"here")) for p in before}
    assert set(found.counts) == set(after)
    assert not found.complete
    assert len(found.text) <= 1000 < len(compared(upstream, before, after).text)


def test_a_large_new_file_is_not_searched_for_renames(upstream: Upstream) -> None:
    """Control: without the limit it is found to be a rename with an edit, for which git reads both sides."""
    before, after = {b"old": (REGULAR, NUMBERS)}, {b"new": (REGULAR, NUMBERS + b"x\n")}
    assert [c.status for c in compared(upstream, before, after).changes] == ["R"], "void"
    small = DiffLimits(file_bytes=100)
    assert sorted(c.status for c in compared(upstream, before, after, small).changes) == ["A", "D"]
    same = compared(upstream, before, {b"new": (REGULAR, NUMBERS)}, small)
    assert [c.status for c in same.changes] == ["R"]


def test_a_diff_past_its_deadline_is_a_typed_error(upstream: Upstream) -> None:
    with refused(ErrorCode.TIMEOUT):
        compared(upstream, {}, {b"f": (REGULAR, NUMBERS)}, DiffLimits(deadline_s=0.0))


def _change(size: int, numbers: count[int]) -> tuple[RawChange, tuple[str, int]]:
    oid = f"{next(numbers):040x}"
    return RawChange(oid.encode(), "000000", REGULAR, None, oid, "A"), (oid, size)


@given(st.lists(st.integers(min_value=0, max_value=3000), max_size=12))
def test_what_is_compared_stays_within_the_limits(sizes: list[int]) -> None:
    numbers = count(1)
    made = [_change(size, numbers) for size in sizes]
    limits = DiffLimits(file_bytes=2000, compared_bytes=5000)
    chosen = plan_diff([c for c, _ in made], dict(s for _, s in made), limits)
    lines = [size for size in sizes if size <= chosen.line_bytes]
    assert max(lines, default=0) <= limits.file_bytes
    assert sum(size for size in lines if size > 1) <= limits.compared_bytes
    assert chosen.complete == (lines == sizes)


@given(st.binary(max_size=40).map(lambda b: b.replace(b"\x00", b"\n")), st.integers(min_value=0, max_value=50))
def test_a_cut_ends_at_a_line(text: bytes, limit: int) -> None:
    cut = cut_at_line_end(text, limit)
    assert text.startswith(cut)
    assert len(cut) <= limit
    assert cut in {text, b""} or cut.endswith(b"\n")
