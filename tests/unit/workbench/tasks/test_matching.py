"""Matches from a checkout and from objects are those from objects alone. Ids: THREATS H06, I01, I17."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.errors import ErrorCode
from sandbox.git.contents import content_of
from sandbox.git.entries import EXECUTABLE, REGULAR, SYMLINK, TreeChange
from sandbox.git.grep import Query, grep
from sandbox.git.new_commits import build_tree
from sandbox.git.process import Git
from sandbox.workbench.tasks.matching import MAX_PATHS, Match, PristineSearch, find_matches, plan_pristine_search
from sandbox.workspaces.pristine import ensure_pristine
from tests.unit.conftest import initialised, refused

NAMES = [
    b"a", b"a.py", b"a-b", b"a/x", b"a/b/c.py", b"ab", b"b/.gitattributes", b".gitattributes", b".gitignore", b"-x",
    b":(exclude)a", b":!a", b"*", b"[a]", b"a\\b", b"x y", b"\xff\xfe", b"\xc3\xa9", b"\xcc\x81e", b"a\n1\nb",
    b"Binary file a matches\n", b"Binary file a", b"\x01", b"h/HEAD", b"h/config", b"h/refs/x", b"h/objects/x", b"#",
]  # fmt: skip
CONTENTS = [
    b"", b"needle\n", b"needle", b"x\nNEEDLE\r\nneedle again\n", b"needle\0", b"y" * 9000 + b"\0needle\n", b"\0",
    b"* -diff\n*.py binary\na diff=x\n# needle\n", b"*\n!needle\n", b"\xffneedle\n", b"n\xc3\xa9edle\n", b"needle\rx\n",
]  # fmt: skip
FILES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(CONTENTS), min_size=1, max_size=12)
MODES = st.sampled_from([REGULAR, REGULAR, EXECUTABLE, SYMLINK])
CHANGES = st.dictionaries(st.sampled_from(NAMES), st.one_of(st.none(), st.tuples(MODES, st.sampled_from(CONTENTS))))
QUERIES = [Query("needle"), Query("needle", ignore_case=True), Query("^.{0,3}edle", regex=True), Query("Binary file")]


class Source:
    """A repository, trees in it, and checkouts of them."""

    def __init__(self, folder: Path) -> None:
        upstream = initialised(folder / "source")
        upstream.commit()
        self.git, self.commit = Git(upstream.git_dir), upstream.oid("HEAD")
        upstream.git("config", "core.bare", "true")  # as cache clones are
        self.folder = folder / "pristine"
        self.upstream = upstream

    def tree(self, changes: dict[bytes, tuple[str, bytes]]) -> str:
        return build_tree(self.git, self.commit, [TreeChange(p, m, content_of(c)) for p, (m, c) in changes.items()])

    def checkout(self, tree: str) -> Path:
        return ensure_pristine(self.git, tree, self.folder / tree, None)

    def found(
        self, base: str, tree: str, query: Query, narrowed: tuple[str, ...] = (), deadline_s: float = 30
    ) -> Iterator[Match]:
        pristine = plan_pristine_search(self.git, tree, self.checkout(base))
        assert pristine is not None
        return find_matches(self.git, tree, pristine, query, narrowed, deadline_s)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return Source(tmp_path_factory.mktemp("matching"))


def possible(leaves: dict[bytes, tuple[str, bytes]]) -> dict[bytes, tuple[str, bytes]]:
    """Without files where others need directories, empty links, and attribute or ignore files that are links."""
    kept = {p: v for p, v in leaves.items() if not any(o.startswith(p + b"/") for o in leaves)}
    return {
        p: (m, c) if m != SYMLINK or (c and b"\0" not in c and b".git" not in p) else (REGULAR, c)
        for p, (m, c) in kept.items()
    }


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    files=FILES,
    changes=CHANGES,
    query=st.sampled_from(QUERIES),
    narrowed=st.sampled_from([(), ("*.py",), ("a/*",), ("*a*", "h"), ("a",)]),
)
def test_matches_are_those_of_the_objects(
    source: Source,
    files: dict[bytes, bytes],
    changes: dict[bytes, tuple[str, bytes] | None],
    query: Query,
    narrowed: tuple[str, ...],
) -> None:
    """In the same order, whatever the files are called and declare."""
    before = possible({path: (REGULAR, content) for path, content in files.items()})
    leaves: dict[bytes, tuple[str, bytes]] = dict(before)
    for path, leaf in changes.items():
        leaves.pop(path, None)
        if leaf is not None:
            leaves[path] = leaf
    base, tree = source.tree(before), source.tree(possible(leaves))
    pristine = plan_pristine_search(source.git, tree, source.checkout(base))
    assert pristine is not None
    wanted = list(grep(source.git, tree, query, narrowed, 30))
    found = list(find_matches(source.git, tree, pristine, query, narrowed, 30))
    more = [m.path for m in found if m not in wanted]  # changed files are not narrowed: the caller's glob is exact
    assert [m for m in found if m in wanted] == wanted
    assert set(more) <= (set(pristine.changed_files) if narrowed else set())


def regular(**files: bytes) -> dict[bytes, tuple[str, bytes]]:
    return {name.encode(): (REGULAR, content) for name, content in files.items()}


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"aaaaaaaaaaaaaaaaaab\n" * 100_000, ErrorCode.TIMEOUT), (b"a" * 60 + b"b\n", ErrorCode.QUOTA_EXCEEDED)],
    ids=["time", "steps"],
)
@pytest.mark.parametrize(("name", "before"), [("m", [b"a"]), ("z", [b"a", b"y"])])
def test_a_changed_file_does_not_hold_up_what_comes_before_it(
    source: Source, content: bytes, code: ErrorCode, name: str, before: list[bytes]
) -> None:
    """Nor is the rest said to be without matches."""
    files = {"a": b"needle\n", "m": b"", "y": b"needle\n", "z": b""}
    base, tree = source.tree(regular(**files)), source.tree(regular(**{**files, name: content}))
    found: list[Match] = []
    began = time.monotonic()
    with refused(code):
        for match in source.found(base, tree, Query("(a+)+$|needle", regex=True), deadline_s=1):
            found.append(match)
    assert time.monotonic() - began < 15 * slowness()
    assert [m.path for m in found] == before


def test_where_too_much_differs_objects_are_searched(source: Source) -> None:
    few = {f"f{number}": b"needle" for number in range(MAX_PATHS)}
    base = source.checkout(source.tree(regular()))
    some, many = source.tree(regular(**few)), source.tree(regular(**few, one_more=b""))
    pristine = plan_pristine_search(source.git, some, base)
    assert pristine is not None
    assert len(list(find_matches(source.git, some, pristine, Query("needle"), (), 30))) == MAX_PATHS
    assert plan_pristine_search(source.git, many, base) is None
    assert plan_pristine_search(source.git, base.name, base) == PristineSearch(base)
    assert plan_pristine_search(source.git, base.name, None) is None


def test_a_checkout_that_went_away_is_not_an_answer(source: Source) -> None:
    """Control: git itself finds nothing and says no word."""
    tree = source.tree(regular(gone=b"needle\n"))
    checkout = source.checkout(tree)
    query = Query("needle")
    assert len(list(find_matches(source.git, tree, PristineSearch(checkout), query, (), 30))) == 1
    checkout.rename(checkout.with_name("elsewhere"))
    done = subprocess.run(
        ["git", "grep", "--no-index", "-e", "needle", "--", tree], cwd=source.folder, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (1, b""), "void"
    with refused(ErrorCode.CONFLICT):
        list(find_matches(source.git, tree, PristineSearch(checkout), query, (), 30))


def test_a_directory_that_git_cannot_read_is_not_passed_over(source: Source) -> None:
    """One with too long a path, which we never make. Control: git itself finds nothing and exits as ever."""
    tree = source.tree(regular(deep=b"\n"))
    checkout = source.checkout(tree)
    here = os.open(checkout, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=here)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    argv = ["git", "grep", "--no-index", "-e", "needle", "--", tree]
    assert subprocess.run(argv, cwd=source.folder, capture_output=True, check=False).returncode == 1, "void"
    with refused(ErrorCode.INTERNAL):
        list(find_matches(source.git, tree, PristineSearch(checkout), Query("needle"), (), 30))


def test_old_content_of_a_changed_file_is_not_found(source: Source) -> None:
    """A changed file's old content. Control: it is found where nothing changed."""
    base = source.tree(regular(a=b"(old needle)\n", b=b"needle\n"))
    tree = source.tree(regular(b=b"needle\n"))
    whole = find_matches(source.git, base, PristineSearch(source.checkout(base)), Query("needle"), (), 30)
    assert [m.path for m in whole] == [b"a", b"b"]
    assert [m.path for m in source.found(base, tree, Query("needle"))] == [b"b"]
