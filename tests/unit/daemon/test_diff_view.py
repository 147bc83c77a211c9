"""A diff as files with numbered lines, and its colours."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.daemon import syntax_colours
from sandbox.daemon.diff_view import MAX_LINE_CHARS, DiffLine, FileDiff, read_diff
from sandbox.daemon.syntax_colours import colour_files, run_worker
from sandbox.models import ChangeKind, Diff, DiffFile

HASH = f"sha256:{'a' * 64}"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is coloured is looked at here. Its limits are attacked in tests/attack/test_s_dashboard.py."""
    monkeypatch.setattr(syntax_colours, "WAIT_S", 60.0)
    monkeypatch.setattr(syntax_colours, "CPU_S", 60)


def make_diff(text: str, *paths: str, truncated: bool = False) -> Diff:
    files = [
        DiffFile(path=path, kind=ChangeKind.MODIFIED, additions=1, deletions=1, sha256=HASH) for path in paths or ("f",)
    ]
    return Diff(text=text, files=tuple(files), truncated=truncated)


def read_lines(text: str) -> list[tuple[str, int | None, int | None, str]]:
    (only,) = read_diff(make_diff(f"diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n{text}")).files
    assert only.file is not None
    assert only.file.sha256 == HASH
    return [(line.kind, line.old, line.new, line.text) for line in only.lines]


def test_lines_have_the_numbers_of_their_sides() -> None:
    assert read_lines(
        "@@ -3,3 +3,3 @@ def f():\n a\n-b\n+c\n d\n@@ -9 +9 @@\n-x\n\\ No newline at end of file\n+y\n"
    ) == [
        ("hunk", None, None, "@@ -3,3 +3,3 @@ def f():"),
        ("same", 3, 3, "a"),
        ("removed", 4, None, "b"),
        ("added", None, 4, "c"),
        ("same", 5, 5, "d"),
        ("hunk", None, None, "@@ -9 +9 @@"),
        ("removed", 9, None, "x"),
        ("note", None, None, "\\ No newline at end of file"),
        ("added", None, 9, "y"),
    ]


@pytest.mark.parametrize(
    ("header", "path"),
    [
        ("diff --git a/a b.c b/a b.c\nold mode 100755\nnew mode 100644", "a b.c"),
        ("diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y", "y"),
        ("diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null", "gone"),
        ("diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\t", "new"),
        ('diff --git "a/q\\"\\n.c" "b/q\\"\\n.c"\nBinary files /dev/null and "b/q\\"\\n.c" differ', 'q"\n.c'),
        ('diff --git "a/\\303\\244" "b/\\303\\244"\n--- "a/\\303\\244"\n+++ "b/\\303\\244"', "\u00e4"),
    ],
    ids=["mode", "rename", "deleted", "new", "quoted", "octal"],
)
def test_a_header_names_its_file(header: str, path: str) -> None:
    found = read_diff(make_diff(header + "\n", path)).files
    assert [(one.title, one.file is not None) for one in found] == [(path, True)]


def test_no_file_is_missing_and_lines_have_a_bound() -> None:
    text = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -0,0 +1,9 @@\n" + "+line\n" * 9
    found = read_diff(make_diff(text, "f", "large.bin"), most=5)
    assert [(one.title, len(one.lines)) for one in found.files] == [("f", 5), ("large.bin", 0)]
    assert not found.is_whole
    assert read_diff(make_diff(text)).is_whole
    assert not read_diff(make_diff(text, truncated=True)).is_whole
    long = read_lines(f"@@ -0,0 +1 @@\n+{'x' * (MAX_LINE_CHARS + 7)}\n")[1][3]
    assert long.endswith("x ... and 7 more characters")


def test_both_sides_are_coloured_and_other_languages_stay_plain() -> None:
    lines = (
        DiffLine("same", "def f():", 1, 1),
        DiffLine("removed", "    return 1", 2),
        DiffLine("added", "'x'", None, 2),
    )
    coloured, plain = colour_files([FileDiff("a.py", None, (), lines), FileDiff("a.unknown", None, (), lines)])
    assert [line.pieces for line in coloured.lines] == [
        (("k", "def"), ("", " "), ("f", "f"), ("", "():")),
        (("", "    "), ("k", "return"), ("", " "), ("n", "1")),
        (("s", "'x'"),),
    ]
    assert plain.lines == lines


def test_each_language_has_a_lexer() -> None:
    names = sorted({*syntax_colours._LANGUAGES.values(), *syntax_colours._NAMES.values()})
    assert [len(lines) for lines in run_worker([(name, "a\n\nb") for name in names])] == [3] * len(names)


def test_an_answer_that_is_not_the_text_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("""print('[[["k", "x = 1"]]]'); print('[[["k", "y = 2"]]]'); print('[[[')""")
    monkeypatch.setattr(syntax_colours, "_WORKER", worker)
    assert run_worker([("python", "x = 1"), ("python", "z")]) == [[[("k", "x = 1")]], []]
