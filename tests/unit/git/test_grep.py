"""Searching trees as objects, against Python and plain git. Ids: THREATS G, I."""

from __future__ import annotations

import os
import re
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.errors import ErrorCode
from sandbox.git import grep as grep_module
from sandbox.git.contents import content_of
from sandbox.git.entries import REGULAR, SYMLINK, TreeChange
from sandbox.git.grep import (
    BinaryMatch,
    LineMatch,
    PatternTooCostly,
    Query,
    grep,
    is_step_limit_error,
    list_files,
    list_files_over,
)
from sandbox.git.new_commits import build_tree
from sandbox.git.process import Git
from sandbox.git.scratch_objects import scratch_objects
from tests.unit.conftest import Upstream, initialised, refused

DATA = Path(__file__).parents[2] / "data" / "git-grep"
BACKTRACKS = "(a+)+$"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    upstream = initialised(tmp_path_factory.mktemp("grep"))
    upstream.commit()
    return upstream


def tree_with(source: Upstream, files: dict[bytes, bytes]) -> tuple[Git, str]:
    git = Git(source.git_dir)
    return git, build_tree(git, source.oid("HEAD"), [TreeChange(p, REGULAR, content_of(c)) for p, c in files.items()])


def found(
    source: Upstream, files: dict[bytes, bytes], query: Query, narrowed: tuple[str, ...] = ()
) -> list[LineMatch | BinaryMatch]:
    git, tree = tree_with(source, files)
    return list(grep(git, tree, query, narrowed, 30))


def running_in(git: Git) -> list[str]:
    """Processes whose command line names this repository."""
    own = {str(os.getpid()), str(os.getppid())}
    alive = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and folder.name not in own:
            try:
                words = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if f"--git-dir={git.git_dir}".encode() in words.split(b"\0"):
                alive.append(folder.name)
    return alive


PIECES = st.sampled_from(["a", "b", "é", ".", "\\E", "\\", "(", "*", "$", "[", "#", " ", "-", "{", "Q", "~", "\t", '"'])
PATTERNS = st.lists(PIECES, min_size=1, max_size=4).map("".join)
LINES = st.lists(st.one_of(st.lists(PIECES, max_size=6).map("".join)), max_size=5)


@settings(max_examples=25, deadline=None)
@given(contents=st.lists(LINES, min_size=1, max_size=4), pattern=PATTERNS, ignore_case=st.booleans())
def test_a_literal_is_found_where_python_finds_it(
    source: Upstream, contents: list[list[str]], pattern: str, ignore_case: bool
) -> None:
    files = {f"d{i % 2}/f{i}".encode(): "\n".join(lines).encode() for i, lines in enumerate(contents)}
    fold = str.lower if ignore_case else str
    expected = [
        (path, number, line)
        for path, content in sorted(files.items())
        for number, line in enumerate(content.decode().split("\n"), 1)
        if fold(pattern) in fold(line)
    ]
    matches = found(source, files, Query(pattern, ignore_case=ignore_case))
    assert [(m.path, m.line, m.text.decode()) for m in matches if isinstance(m, LineMatch)] == expected
    for match in matches:
        assert isinstance(match, LineMatch)
        start = len(match.text[: match.column - 1].decode())
        assert fold(match.text.decode())[start:].startswith(fold(pattern))


def test_a_literal_cannot_become_an_expression(source: Upstream) -> None:
    """Control: git's own --fixed-strings lets `\\E` out of the quotes it makes for PCRE."""
    files = {b"literal": b"x\\E.y\n", b"other": b"xzy\n"}
    _, tree = tree_with(source, files)
    fixed = source.git("grep", "-F", "-h", "-e", "x\\E.y", tree)
    assert fixed == b"xzy\n", "void: this git quotes well"
    assert [m.path for m in found(source, files, Query("x\\E.y"))] == [b"literal"]


@pytest.mark.parametrize("regex", [r"\d+", "^x", "caf.$", "É", r"\bone\b|two", "(?i)ÉT", "a{2}", "^$", r"\x{e9}"])
def test_an_expression_is_perl_compatible_and_knows_utf_8(source: Upstream, regex: str) -> None:
    lines = ["x12", "café", "été É", "one", "alone two", "aa", "", "z"]
    expected = [i for i, line in enumerate(lines, 1) if re.search(regex.replace("{e9}", "e9").replace("x{", "x"), line)]
    matches = found(source, {b"f": "\n".join(lines).encode() + b"\n"}, Query(regex, regex=True))
    assert [m.line for m in matches if isinstance(m, LineMatch)] == expected


@pytest.mark.parametrize("pattern", ["--output=x", "-O", "--", "-e", "--open-files-in-pager=touch x", "-f/etc/passwd"])
def test_g04_g07_a_pattern_is_never_an_option(source: Upstream, pattern: str) -> None:
    for regex in (False, True):
        (match,) = found(source, {b"f": f"x {pattern} y\nother\n".encode()}, Query(pattern, regex=regex))
        assert isinstance(match, LineMatch)
        assert match.line == 1


@pytest.mark.parametrize("regex", ["(", "[", "((a{1,500}){1,500}){1,500}", "(?<n>a", "*", "\\"])
def test_what_is_no_expression_is_refused(source: Upstream, regex: str) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        found(source, {b"f": b"a\n"}, Query(regex, regex=True))


HOSTILE_NAMES = [
    b"x matches\nfoo",
    b"nl\n",
    b'"quoted"',
    b"-e",
    b"\xff\xfe",
    b"Binary file x matches\n",
    b"a:1:b",
    b":(top)",
]


@pytest.mark.parametrize("binary", [False, True])
def test_i17_names_do_not_confuse_the_answer(source: Upstream, binary: bool) -> None:
    content = b"needle\0\n" if binary else b"needle\n"
    matches = found(source, {**dict.fromkeys(HOSTILE_NAMES, content), b"last": b"needle"}, Query("needle"))
    assert [m.path for m in matches] == sorted([*HOSTILE_NAMES, b"last"])
    assert all(isinstance(m, BinaryMatch) == binary for m in matches if m.path != b"last")


def test_i01_attributes_hide_nothing(source: Upstream, tmp_path: Path) -> None:
    """Control: with its files, git takes the repository's word for what is binary."""
    upstream = initialised(tmp_path / "hostile")
    upstream.write(".gitattributes", b"* -diff\n*.py binary\n")
    upstream.write("a.py", b"evil()\n")
    upstream.commit()
    assert b"Binary file" in upstream.git("grep", "-e", "evil"), "void"
    matches = list(grep(Git(upstream.git_dir), upstream.oid("HEAD^{tree}"), Query("evil"), (), 30))
    assert matches == [LineMatch(b"a.py", 1, 1, b"evil()")]


def test_links_are_not_content(source: Upstream) -> None:
    git = Git(source.git_dir)
    changes = [TreeChange(b"link", SYMLINK, content_of(b"needle")), TreeChange(b"file", REGULAR, content_of(b"needle"))]
    tree = build_tree(git, source.oid("HEAD"), changes)
    assert [m.path for m in grep(git, tree, Query("needle"), (), 30)] == [b"file"]
    assert list(list_files(git, tree, 30)) == [b"file", b"link"]


def test_narrowed_leaves_other_files_unread(source: Upstream) -> None:
    files = {p: b"needle\n" for p in (b"a.py", b"d/b.py", b"d/c.txt", b"e/c.txt")}
    assert [m.path for m in found(source, files, Query("needle"), ("*.py", "e"))] == [b"a.py", b"d/b.py", b"e/c.txt"]


def test_lines_longer_than_a_chunk_arrive_whole(source: Upstream) -> None:
    long = b"x" * 300_000 + b"needle" + b"y" * 300_000
    matches = found(source, {b"f": long + b"\n" + b"needle\n", b"g": long}, Query("needle"))
    assert [(m.path, m.line, m.column, len(m.text)) for m in matches if isinstance(m, LineMatch)] == [
        (b"f", 1, 300_001, 600_006),
        (b"f", 2, 1, 6),
        (b"g", 1, 300_001, 600_006),
    ]


@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_chunks_may_fall_anywhere(source: Upstream, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    files = {b"a": b"needle one\n", b"b\nc matches\n": b"needle\0", b"d": b"x\nneedle\n"}
    whole = found(source, files, Query("needle"))
    monkeypatch.setattr(grep_module, "_CHUNK", chunk)
    assert found(source, files, Query("needle")) == whole
    assert len(whole) == 3


# --- ends


def backtracking(source: Upstream) -> tuple[Git, str]:
    """Each line costs a millisecond or so, below the matcher's own limit; all together minutes."""
    return tree_with(source, {b"0": b"first a\n", b"1": b"aaaaaaaaaaaaaaaaaab\n" * 300_000})


@pytest.mark.slow
def test_i07_deadline_ends_a_costly_expression_and_leaves_nothing(source: Upstream) -> None:
    """What was found before stands. Control: with twice as long it is not through either."""
    git, tree = backtracking(source)
    for deadline_s in (2.0, 1.0):
        seen: list[LineMatch | BinaryMatch] = []
        began = time.monotonic()
        with refused(ErrorCode.TIMEOUT):
            for match in grep(git, tree, Query(BACKTRACKS, regex=True), (), deadline_s):
                seen.append(match)
        assert deadline_s <= time.monotonic() - began < (deadline_s + 5) * slowness()
        assert [m.path for m in seen] == [b"0"]
        assert running_in(git) == []


def test_i07_matcher_gives_up_on_one_line_and_says_so(source: Upstream) -> None:
    with pytest.raises(PatternTooCostly) as caught:
        found(source, {b"f": b"a" * 40 + b"b\n"}, Query(BACKTRACKS, regex=True))
    assert caught.value.code is ErrorCode.QUOTA_EXCEEDED


@pytest.mark.parametrize("sample", sorted(DATA.glob("*step-limit*")), ids=lambda p: p.stem)
def test_words_of_the_step_limit_are_known(sample: Path) -> None:
    assert is_step_limit_error(sample.read_text())


@pytest.mark.parametrize("text", ["", "fatal: unable to read tree abc", "x fatal: pcre2_jit_match failed with error"])
def test_other_words_are_not_the_step_limit(text: str) -> None:
    assert not is_step_limit_error(text)


def test_closing_ends_the_search_early(source: Upstream) -> None:
    """The file after the first hit would take minutes."""
    git, tree = backtracking(source)
    began = time.monotonic()
    with closing(grep(git, tree, Query(BACKTRACKS, regex=True), (), 60)) as matches:
        assert next(matches).path == b"0"
        assert running_in(git)
    assert time.monotonic() - began < 20 * slowness()
    assert running_in(git) == []


def test_a_file_that_git_cannot_read_is_not_passed_over(tmp_path: Path) -> None:
    """Control: git itself says that nothing was found."""
    upstream = initialised(tmp_path / "broken")
    upstream.write("f", b"needle\n")
    upstream.commit()
    blob = upstream.oid("HEAD:f")
    (upstream.git_dir / "objects" / blob[:2] / blob[2:]).unlink()
    upstream.git("grep", "-e", "needle", "HEAD", code=1)
    with refused(ErrorCode.INTERNAL):
        list(grep(Git(upstream.git_dir), upstream.oid("HEAD^{tree}"), Query("needle"), (), 30))


# --- sizes and scratch


def test_files_over_a_size(source: Upstream) -> None:
    names = [b"at", b"over", b"d/way over\n120000 blob abc  99999999\tx", b"small"]
    sizes = [1000, 1001, 20_000, 1]
    git, tree = tree_with(source, {n: b"x" * s for n, s in zip(names, sizes, strict=True)})
    assert list_files_over(git, tree, 1000) == (names[2], names[1])


def test_scratch_sees_everything_and_keeps_nothing(source: Upstream) -> None:
    git = Git(source.git_dir)
    content = b"only for a search"
    with scratch_objects(git) as aside:
        tree = build_tree(aside, source.oid("HEAD"), [TreeChange(b"new", REGULAR, content_of(content))])
        assert [m.path for m in grep(aside, tree, Query("only for"), (), 30)] == [b"new"]
        assert aside.attempt("cat-file", "-e", tree).code == 0
        place = aside.new_objects
    assert git.attempt("cat-file", "-e", tree).code != 0
    assert place is not None
    assert not place.exists()
