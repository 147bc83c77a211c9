"""Searching a task: what is looked at, what is left out, where it stops. Ids: THREATS I."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.copied_clones import copied_clones
from devtools.requirement import unavailable
from sandbox.cli import main
from sandbox.errors import ErrorCode
from sandbox.files.overlay_mounts import find_overlay_obstacle
from sandbox.models import SearchHit, SearchQuery, SearchResult, SearchSkipped
from sandbox.workbench import Workbench
from sandbox.workbench.tasks.matching import MAX_PATHS
from sandbox.workbench.tasks.search import LINE_CHARACTERS, excerpt
from tests.unit.conftest import Upstream, refused

NOTHING_SKIPPED = SearchSkipped(binary=0, too_large=0, ignored=None)
FILES = {
    "README.md": b"needle in the readme\n",
    "src/a.py": b"def needle():\n    pass\n",
    "src/b.py": b"# nothing\n",
    "src/deep/c.txt": b"one\ntwo needle\nthree NEEDLE\n",
    ".gitignore": b"*.log\n/build/\n",
}


class Desk:
    """A task on a repository, and what a search in it finds."""

    def __init__(self, workbench: Workbench, source: Upstream, home: Path) -> None:
        self.workbench, self.home = workbench, home
        with copied_clones():
            repository = workbench.clone(str(source.root)).repository
        self.task = workbench.create_task(repository.id)
        assert self.task.worktree_path is not None
        self.worktree = self.task.worktree_path
        self.cache = home / "repositories" / "clones" / repository.id

    def write(self, path: str, content: bytes) -> None:
        target = self.worktree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def search(self, pattern: str | None = None, glob: str | None = None, **options: bool | float) -> SearchResult:
        query = SearchQuery.model_validate({"pattern": pattern, "glob": glob, **options})
        return self.workbench.search(self.task.id, query)

    def lines(self, pattern: str, glob: str | None = None, **options: bool | float) -> list[tuple[str, int]]:
        return [(hit.path, hit.line) for hit in self.search(pattern, glob, **options).hits]


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    for path, content in FILES.items():
        upstream.write(path, content)
    upstream.commit()
    with Workbench(tmp_path / "home", allow_file=True, environ={"PATH": os.environ["PATH"]}) as workbench:
        yield Desk(workbench, upstream, tmp_path / "home")


def test_hits_come_in_the_order_of_paths_and_lines(desk: Desk) -> None:
    result = desk.search("needle")
    assert result == SearchResult(
        hits=(
            SearchHit(path="README.md", line=1, text="needle in the readme"),
            SearchHit(path="src/a.py", line=1, text="def needle():"),
            SearchHit(path="src/deep/c.txt", line=2, text="two needle"),
        ),
        files=("README.md", "src/a.py", "src/deep/c.txt"),
        truncated=False,
        stopped_by=None,
        skipped=NOTHING_SKIPPED,
    )
    assert desk.search("needle") == result


def test_working_state_is_searched_not_the_commit(desk: Desk) -> None:
    desk.write("src/a.py", b"no more\n")
    desk.write("src/new.py", b"\nneedle\n")
    (desk.worktree / "README.md").unlink()
    assert desk.lines("needle") == [("src/deep/c.txt", 2), ("src/new.py", 2)]


def test_working_state_after_a_commit_is_searched(desk: Desk) -> None:
    desk.write("src/b.py", b"committed needle\n")
    (desk.worktree / "src/a.py").unlink()
    desk.workbench.commit(desk.task.id, "one")
    assert [path for path, _ in desk.lines("needle")] == ["README.md", "src/b.py", "src/deep/c.txt"]
    desk.write("src/a.py", b"back, needle\n")
    (desk.worktree / "README.md").unlink()
    assert [path for path, _ in desk.lines("needle")] == ["src/a.py", "src/b.py", "src/deep/c.txt"]
    desk.write("src/b.py", FILES["src/b.py"])
    assert [path for path, _ in desk.lines("needle")] == ["src/a.py", "src/deep/c.txt"]


@pytest.mark.parametrize(("changed", "seen"), [(0, True), (MAX_PATHS, False)])
def test_unchanged_files_are_read_in_the_pristine_checkout_while_little_differs(
    desk: Desk, tmp_path: Path, changed: int, seen: bool
) -> None:
    """Shown by a checkout that was tampered with, as no guest can."""
    if reason := find_overlay_obstacle(tmp_path):
        unavailable(f"no overlay mounts here: {reason}")
    (pristine,) = (desk.home / "repositories" / "pristine" / desk.task.repo_id).glob("*/")
    (pristine / "src" / "b.py").write_bytes(b"tampered\n")
    for number in range(changed + 1):
        desk.write(f"new/f{number}", b"")
    assert bool(desk.lines("tampered")) is seen


def test_a_search_keeps_nothing_in_the_cache_clone(desk: Desk) -> None:
    def kept() -> set[Path]:
        return {p for p in desk.cache.rglob("*") if p.is_file()}

    desk.write("new", b"needle\n")
    desk.write("x.log", b"needle\n")
    before = kept()
    assert ("new", 1) in desk.lines("needle", include_ignored=True)
    assert kept() == before


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"pattern": "NEEDLE"}, [("src/deep/c.txt", 3)]),
        ({"pattern": "NEEDLE", "ignore_case": True, "glob": "*.txt"}, [("src/deep/c.txt", 2), ("src/deep/c.txt", 3)]),
        ({"pattern": "needle", "glob": "src/**/*.{py,txt}"}, [("src/a.py", 1), ("src/deep/c.txt", 2)]),
        ({"pattern": "needle", "glob": "!src/"}, [("README.md", 1)]),
        ({"pattern": "needle", "glob": "*.rs"}, []),
        ({"pattern": "^two|pas{2}$", "regex": True}, [("src/a.py", 2), ("src/deep/c.txt", 2)]),
        ({"pattern": "^two|pas{2}$"}, []),
    ],
)
def test_a_query_finds(desk: Desk, options: dict[str, object], found: list[tuple[str, int]]) -> None:
    result = desk.workbench.search(desk.task.id, SearchQuery.model_validate(options))
    assert [(hit.path, hit.line) for hit in result.hits] == found


def test_glob_alone_lists_paths(desk: Desk) -> None:
    desk.write("src/new.py", b"")
    (desk.worktree / "src/b.py").unlink()
    result = desk.search(glob="*.py")
    assert (result.hits, result.files, result.truncated) == ((), ("src/a.py", "src/new.py"), False)


@pytest.mark.parametrize(
    ("query", "is_explained"),
    [
        ({"pattern": "needle|pass"}, True),
        ({"pattern": "def \\w+"}, True),
        ({"pattern": "needle|pass", "regex": True}, False),
        ({"pattern": "none|none", "regex": True}, False),
        ({"pattern": "needle()"}, False),
        ({"pattern": "no such.words"}, False),
        ({"glob": "*.none"}, False),
    ],
    ids=["alternatives", "class", "regex", "regex-without-match", "literal-match", "plain", "glob"],
)
def test_a_literal_search_without_a_match_says_how_to_search_a_regular_expression(
    query: dict[str, str | bool], is_explained: bool, desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    note = desk.workbench.search(desk.task.id, SearchQuery.model_validate(query)).note
    assert ("with `regex` (`--regex`)" in note, bool(note)) == (is_explained, is_explained)
    words = [str(query[name]) for name in ("pattern",) if name in query]
    options = [f"--glob={query['glob']}"] if "glob" in query else []
    options += ["--regex"] if "regex" in query else []
    assert main(["--home", str(desk.home), "file", "search", *options, desk.task.id, *words]) == 0
    assert ("as plain text" in capsys.readouterr().err) == is_explained


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize(("pattern", "glob"), [("needle", None), (None, "*e*")], ids=["lines", "paths"])
def test_results_stop_at_the_limit_and_say_so_only_when_there_are_more(
    desk: Desk, limit: int, pattern: str | None, glob: str | None
) -> None:
    whole = desk.search(pattern, glob)
    part = desk.search(pattern, glob, max_results=limit)
    assert part.hits == whole.hits[:limit]
    assert part.files == whole.files[:limit]
    more = max(len(whole.hits), len(whole.files)) > limit
    assert (part.truncated, part.stopped_by) == ((True, "max_results") if more else (False, None))


def test_i02_binary_files_that_match_are_named_and_counted(desk: Desk) -> None:
    desk.write("aa.bin", b"needle\0")
    desk.write("bb.bin", b"nothing\0")
    desk.write("late.txt", b"x\n" * 9000 + b"needle\0\n")
    result = desk.search("needle")
    assert result.files == ("README.md", "aa.bin", "late.txt", "src/a.py", "src/deep/c.txt")
    assert result.skipped.binary == 1
    assert [h.text for h in result.hits if h.path == "late.txt"] == ["needle\0"]
    assert desk.search("needle", "*.bin", max_results=1).files == ("aa.bin",)


def test_files_too_large_are_counted_in_commits_changes_and_ignored(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.workbench.tasks.search.FILE_BYTES", 25)
    desk.write("src/b.py", b"needle" * 10)
    desk.write("new", b"needle" * 10)
    desk.write("x.log", b"needle" * 10)
    result = desk.search("needle", include_ignored=True)
    assert result.files == ("README.md", "src/a.py")
    assert result.skipped == SearchSkipped(binary=0, too_large=4, ignored=0)
    assert desk.search("needle", "src/").skipped.too_large == 2
    assert desk.search(glob="src/").files == ("src/a.py", "src/b.py", "src/deep/c.txt")


def test_ignored_files_are_searched_on_request(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write("build/out/x.o", b"needle\n")
    desk.write("src/x.log", b"a needle\n")
    tracked = ["README.md", "src/a.py", "src/deep/c.txt"]
    assert [p for p, _ in desk.lines("needle")] == tracked
    assert [p for p, _ in desk.lines("needle", include_ignored=True)] == sorted(
        [*tracked, "build/out/x.o", "src/x.log"]
    )
    assert desk.search(glob="*.{o,log}", include_ignored=True).files == ("build/out/x.o", "src/x.log")
    monkeypatch.setattr("sandbox.workbench.tasks.search.IGNORED_BYTES", 8)
    left = desk.search("needle", include_ignored=True)
    assert left.skipped.ignored == 1
    assert "build/out/x.o" in left.files


def test_ignored_files_in_place_of_tracked_ones(desk: Desk) -> None:
    """A directory where a file was, a file where a directory was."""
    (desk.worktree / "README.md").unlink()
    desk.write("README.md/x.log", b"needle\n")
    for name in ("a.py", "b.py", "deep/c.txt"):
        (desk.worktree / "src" / name).unlink()
    (desk.worktree / "src/deep").rmdir()
    desk.write("src/deep", b"needle\n")
    assert desk.lines("needle", include_ignored=True) == [("README.md/x.log", 1), ("src/deep", 1)]


def test_the_time_limit_gives_what_was_found(desk: Desk) -> None:
    desk.write("zz", b"aaaaaaaaaaaaaaaaaab\n" * 100_000)
    result = desk.search(r"(a+)+$|needle", regex=True, timeout_s=1)
    assert (result.truncated, result.stopped_by) == (True, "time")
    assert [hit.path for hit in result.hits] == ["README.md", "src/a.py", "src/deep/c.txt"]


def test_a_line_that_costs_too_much_gives_what_was_found(desk: Desk) -> None:
    desk.write("zz", b"a" * 60 + b"b\n")
    result = desk.search(r"(a+)+$|needle", regex=True)
    assert (result.truncated, result.stopped_by, len(result.hits)) == (True, "pattern", 3)
    assert "too many steps" in result.note


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pattern": ""},
        {"pattern": "a\nb"},
        {"pattern": "a\0b"},
        {"pattern": "\udc80"},
        {"pattern": "x" * 4097},
        {"pattern": "x", "max_results": 0},
        {"pattern": "x", "max_results": 10_001},
        {"pattern": "x", "timeout_s": 0.0},
        {"pattern": "x", "timeout_s": 61.0},
        {"pattern": "x", "timeout_s": float("nan")},
        {"pattern": "x", "glob": "[a"},
        {"pattern": "(", "regex": True},
    ],
    ids=str,
)
def test_unusable_query_is_refused(desk: Desk, options: dict[str, object]) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        desk.workbench.search(desk.task.id, SearchQuery.model_construct(**{**SearchQuery().model_dump(), **options}))


# --- lines


@pytest.mark.parametrize(
    ("line", "column", "text", "cut"),
    [
        (b"short", 1, "short", False),
        (b"with return\r", 1, "with return", False),
        (b"", 1, "", False),
        (b"\xff\xfe caf\xc3\xa9", 1, "\ufffd\ufffd caf\u00e9", False),
        ("é".encode() * 500, 901, "é" * 500, False),
        ("é".encode() * 501, 1, "é" * 500, True),
        ("€".encode() * 2000 + b"needle", 6001, "€" * 33 + "needle", True),
        (b"x" * 1000 + b"needle" + b"y" * 1000, 1001, "x" * 100 + "needle" + "y" * 394, True),
        (b"\x80" * 3000, 2000, "\ufffd" * 500, True),
    ],
)
def test_excerpt_shows_the_match_and_cuts_between_characters(line: bytes, column: int, text: str, cut: bool) -> None:
    assert excerpt(line, column) == (text, cut)
    assert len(text) <= LINE_CHARACTERS


# --- the command


def test_command_prints_lines_and_json(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "__all__")
    desk.write("a b", b"-needle \x1b]0;x\x07\rsrc/z.py:1: forged\n")
    desk.write("x.bin", b"-needle\0")

    def run(*words: str) -> int:
        return main(["--home", str(desk.home), "file", "search", desk.task.id, *words])

    assert run("--", "-needle") == 0
    shown = capsys.readouterr()
    assert shown.out == "a b:1: -needle \u2424src/z.py:1: forged\nx.bin: binary file matches\n"
    assert shown.err == "1 hit in 2 files\n"
    assert run("--json", "needle", "--glob", "*.py") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["hits"] == [{"path": "src/a.py", "line": 1, "text": "def needle():", "cut": False}]
    assert run("--glob", "*.py") == 0
    assert capsys.readouterr().out == "src/a.py\nsrc/b.py\n"
    assert run() == 2
