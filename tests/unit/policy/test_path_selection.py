"""What a glob means, and that a narrowed search never leaves out what it means."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.host_speed import slowness
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.path_selection import PathSelection
from tests.unit.conftest import initialised, refused

PATHS = [
    "a.py",
    "b.txt",
    "src/a.py",
    "src/b.c",
    "src/deep/a.py",
    "src/deep/b.h",
    "docs/a.md",
    "x/docs/b.md",
    "#1",
    "!n",
]


@pytest.mark.parametrize(
    ("glob", "meant"),
    [
        (None, PATHS),
        ("*.py", ["a.py", "src/a.py", "src/deep/a.py"]),
        ("/*.py", ["a.py"]),
        ("./a.py", ["a.py"]),
        ("src/*.py", ["src/a.py"]),
        ("src/*", ["src/a.py", "src/b.c"]),
        ("src/**/*.py", ["src/a.py", "src/deep/a.py"]),
        ("src/**", ["src/a.py", "src/b.c", "src/deep/a.py", "src/deep/b.h"]),
        ("src", ["src/a.py", "src/b.c", "src/deep/a.py", "src/deep/b.h"]),
        ("docs", ["docs/a.md", "x/docs/b.md"]),
        ("docs/", ["docs/a.md", "x/docs/b.md"]),
        ("/docs", ["docs/a.md"]),
        ("*.{c,h}", ["src/b.c", "src/deep/b.h"]),
        ("{src/{a,b}.*,#1}", ["src/a.py", "src/b.c", "#1"]),
        ("!*.{py,md}", ["b.txt", "src/b.c", "src/deep/b.h", "#1", "!n"]),
        ("[!a-z]*", ["#1", "!n"]),
        ("#1", ["#1"]),
        ("\\!n", ["!n"]),
        ("A.PY", []),
        ("../a.py", []),
        ("src//a.py", []),
        ("\\{a\\}", []),
    ],
)
def test_glob_means(glob: str | None, meant: list[str]) -> None:
    selection = PathSelection(glob)
    assert [p for p in PATHS if p in selection] == meant


@pytest.mark.parametrize("glob", ["", "!", "[a", "a\\", "a\nb", "a\0", "x" * 257, "{a,}", "{a,b}" * 6])
def test_unusable_glob_is_refused(glob: str) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        PathSelection(glob)


def test_i07_no_glob_hangs_the_controller() -> None:
    """Control: the budget ends it; each path alone is quick."""
    selection = PathSelection("{" + ",".join(["*a" * 14] * 8 + ["b" * 3]) + "}x")
    began = time.monotonic()
    with refused(ErrorCode.INVALID_INPUT):
        any(f"{'a' * 250}/{'a' * 250}{i}" in selection for i in range(2_000_000))
    assert time.monotonic() - began < 60 * slowness()


NAMES = st.text("ab.c_", min_size=1, max_size=4).filter(lambda n: n not in {".", ".."} and not n.endswith("."))
FILES = st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), min_size=1, max_size=12, unique=True)
GLOBS = st.text("ab.*?/{,}[]!c", min_size=1, max_size=8)


@settings(max_examples=30, deadline=None)
@given(paths=FILES, glob=GLOBS)
def test_narrowing_keeps_every_path_that_is_meant(
    tmp_path_factory: pytest.TempPathFactory, paths: list[str], glob: str
) -> None:
    """git's own matcher, with our narrowed patterns, over names in an index."""
    try:
        selection = PathSelection(glob)
    except SandboxError:  # no glob at all
        return
    source = initialised(tmp_path_factory.mktemp("names"))
    kept = [p for p in paths if not any(q.startswith(f"{p}/") for q in paths)]
    blob = source.git("hash-object", "-w", "--stdin").decode().strip()
    source.git("update-index", "--add", "--index-info", stdin="".join(f"100644 {blob}\t{p}\n" for p in kept).encode())
    listed = source.git("ls-files", "-z", "--", *selection.superset_patterns()).decode().split("\0")
    assert {p for p in kept if p in selection} <= set(listed)


@pytest.mark.parametrize(
    ("glob", "narrowed"),
    [
        ("*.py", ("*.py",)),
        ("src/**/*.{c,h}", ("src/*.c", "src/*.h")),
        ("src/deep", ("src/deep",)),
        ("Makefile", ("*Makefile*",)),
        ("src/*/test", ("src/*",)),
        ("*", ()),
        ("!*.py", ()),
        ("{*.py,*}", ()),
        ("d[ab]", ()),
        (":(glob)x", ()),
        ("../x.py", ()),
        (None, ()),
    ],
)
def test_what_a_search_is_narrowed_to(glob: str | None, narrowed: tuple[str, ...]) -> None:
    assert PathSelection(glob).superset_patterns() == narrowed
