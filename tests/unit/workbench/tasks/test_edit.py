"""Edits through the workbench: text, whole files, hashes that move on, and who left a file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devtools.copied_clones import copied_clones
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import READ_CAP
from sandbox.git import process
from sandbox.models import ChangeKind, PatchResult, TaskOptions, WorkspaceKind
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, refused

F = b"one\ntwo\none more\ntwo\n"
WINDOWS = b"a\r\nb\r\n"
MIXED = b"a\r\nb\nc\r\n"
HUNK = "--- f.txt\n+++ f.txt\n@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n"


def sha(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Work:
    """A task on a small repository."""

    def __init__(self, workbench: Workbench, task_id: str, root: Path) -> None:
        self.workbench, self.task_id, self.root = workbench, task_id, root

    def edit(self, old: str | bytes, new: str | bytes, expected: bytes = F, path: str = "f.txt") -> PatchResult:
        return self.workbench.edit_file(self.task_id, path, old, new, sha(expected))

    def write(
        self, path: str, content: str | bytes, expected: bytes | None = None, executable: bool | None = None
    ) -> PatchResult:
        known = None if expected is None else sha(expected)
        return self.workbench.write_file(self.task_id, path, content, known, executable=executable)

    def content(self, path: str = "f.txt") -> bytes:
        return (self.root / path).read_bytes()


@pytest.fixture
def work(upstream: Upstream, tmp_path: Path) -> Iterator[Work]:
    upstream.write("f.txt", F)
    upstream.write("w.txt", WINDOWS)
    upstream.write("mixed", MIXED)
    upstream.write(".gitignore", b"/out/\n*.log\n")
    upstream.write("kept.log", b"tracked\n")
    upstream.write("run", b"#!/bin/sh\n", executable=True)
    (upstream.root / "link").symlink_to("f.txt")
    upstream.commit()
    with Workbench(tmp_path / "home", environ={}, allow_file=True) as workbench:
        with copied_clones():
            task = workbench.create_task(workbench.clone(str(upstream.root)).repository.id)
        assert task.worktree_path is not None
        yield Work(workbench, task.id, task.worktree_path)


# --- a piece of text


@pytest.mark.parametrize("encode", [str, str.encode], ids=["text", "bytes"])
def test_the_one_occurrence_is_replaced(encode: Callable[[str], str | bytes], work: Work) -> None:
    (changed,) = work.edit(encode("one more\n"), encode("\u00e9\n")).files
    assert work.content() == "one\ntwo\n\u00e9\ntwo\n".encode()
    assert (changed.path, changed.kind, changed.sha256_before, changed.sha256_after) == (
        "f.txt", ChangeKind.MODIFIED, sha(F), sha(work.content()),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "says"),
    [
        ("two", "2 times in the file at lines 2, 4"),
        ("o\n", "2 times in the file at lines 2, 4"),
        ("absent", "not in the file"),
        ("e\ntwo\no", ""),
    ],
    ids=["two", "across-line-ends", "none", "one"],
)
def test_other_than_one_occurrence_is_refused_with_its_lines(old: str, says: str, work: Work) -> None:
    if not says:
        work.edit(old, "x")
        return
    with refused(ErrorCode.PATCH_REJECTED) as caught:
        work.edit(old, "x")
    assert says in f"{caught.value.brief} {caught.value.details}"
    assert work.content() == F


def test_occurrences_that_overlap_are_several(work: Work) -> None:
    work.write("o", "aaa" + "x" * 5000)
    for text, many in (("aa", "2 times"), ("x", "1000 or more times")):
        with refused(ErrorCode.PATCH_REJECTED) as caught:
            work.edit(text, "b", b"aaa" + b"x" * 5000, "o")
        assert many in caught.value.brief


@pytest.mark.parametrize(
    ("path", "before", "old", "hint"),
    [
        ("mixed", MIXED, "a\nb", "The file has CRLF line endings"),
        ("mixed", MIXED, "b\r\nc", "The text has CRLF line endings"),
        ("f.txt", F, "one\n  two", "different white space"),
        ("f.txt", F, "three", "exactly as it was read"),
    ],
    ids=["file-crlf", "text-crlf", "white-space", "other"],
)
def test_the_hint_says_why_a_text_is_not_there(path: str, before: bytes, old: str, hint: str, work: Work) -> None:
    with refused(ErrorCode.PATCH_REJECTED) as caught:
        work.edit(old, "x", before, path)
    assert hint in caught.value.hint


def test_windows_line_ends_are_bytes_like_others(work: Work) -> None:
    work.edit("a\r\nb", "a\r\nc", WINDOWS, "w.txt")
    assert work.content("w.txt") == b"a\r\nc\r\n"


@pytest.mark.parametrize(
    ("path", "before", "old", "new", "after"),
    [
        ("w.txt", WINDOWS, "a", "x\ny", b"x\r\ny\r\nb\r\n"),
        ("w.txt", WINDOWS, "a\nb", "x", b"x\r\n"),
        ("f.txt", F, "two\r\none", "x\r\ny", b"one\nx\ny more\ntwo\n"),
    ],
    ids=["new-lines", "old-lines", "text-crlf"],
)
def test_an_edit_keeps_the_line_ends_of_its_file_and_says_so(
    path: str, before: bytes, old: str, new: str, after: bytes, work: Work
) -> None:
    found = work.edit(old, new, before, path)
    assert work.content(path) == after
    assert [note.split(",")[0] for note in found.adjusted] == [
        "CRLF line endings were kept" if path == "w.txt" else "CRLF line endings of the text were changed to LF"
    ]


@pytest.mark.parametrize(
    ("path", "before", "old", "new", "after"),
    [
        ("w.txt", WINDOWS, "a\r\nb", "a\nb", b"a\nb\r\n"),
        ("mixed", MIXED, "b", "x\ny", b"a\r\nx\ny\nc\r\n"),
        ("f.txt", F, "one more", "x\r\ny", b"one\ntwo\nx\r\ny\ntwo\n"),
        ("w.txt", WINDOWS, "a", "x", b"x\r\nb\r\n"),
    ],
    ids=["both-kinds", "mixed-file", "new-crlf", "no-line-end"],
)
def test_other_line_ends_are_written_as_given(
    path: str, before: bytes, old: str, new: str, after: bytes, work: Work
) -> None:
    found = work.edit(old, new, before, path)
    assert (work.content(path), found.adjusted) == (after, ())


@pytest.mark.parametrize(("old", "new"), [("", "x"), ("one more", "one more")], ids=["empty", "same"])
def test_an_edit_that_means_nothing_is_invalid(old: str, new: str, work: Work) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        work.edit(old, new)


def test_text_that_no_encoding_has_is_invalid(work: Work) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        work.edit("one more", "\ud800")
    with refused(ErrorCode.INVALID_INPUT):
        work.write("new", "\ud800")


# --- a whole file


def test_a_file_is_made_replaced_and_left_as_it_is(work: Work) -> None:
    assert work.write("d/new", "x\n").files[0].kind is ChangeKind.ADDED
    (changed,) = work.write("d/new", b"\xff\x00", b"x\n").files
    assert (changed.kind, changed.sha256_after, work.content("d/new")) == (
        ChangeKind.MODIFIED, sha(b"\xff\x00"), b"\xff\x00",
    )  # fmt: skip
    assert work.write("d/new", b"\xff\x00", b"\xff\x00").files == ()


def test_a_mode_is_kept_unless_told(work: Work) -> None:
    def mode(path: str) -> int:
        return (work.root / path).stat().st_mode & 0o777

    work.write("run", "#!/bin/bash\n", b"#!/bin/sh\n")
    work.write("new", "x", executable=True)
    work.write("f.txt", F, F, executable=True)
    assert [mode("run"), mode("new"), mode("f.txt")] == [0o755] * 3
    work.edit("bash", "zsh", b"#!/bin/bash\n", "run")
    work.write("f.txt", F, F, executable=False)
    assert [mode("run"), mode("f.txt")] == [0o755, 0o644]


def test_an_edit_of_a_file_that_git_ignores_says_that_no_diff_has_it(work: Work) -> None:
    """Control: a file that the last commit has is compared, although the rules match it."""
    made = work.write("out/x", "x")
    assert (made.ignored, "no status, diff or commit" in made.note) == (("out/x",), True)
    assert work.edit("x", "y", b"x", "out/x").ignored == ("out/x",)
    assert work.write("kept.log", "more\n", b"tracked\n").ignored == ()
    found = [change.path for change in work.workbench.status(work.task_id).changes]
    assert (found, work.write("new", "x").note) == (["kept.log"], "")


def test_what_could_not_be_read_back_is_not_written(work: Work) -> None:
    work.write("large", bytes(READ_CAP))
    for act in (lambda: work.write("larger", bytes(READ_CAP + 1)), lambda: work.edit("two\none", "x" * READ_CAP)):
        with refused(ErrorCode.QUOTA_EXCEEDED):
            act()
    assert not (work.root / "larger").exists()
    assert work.content() == F


def test_a_near_miss_shows_the_lines_that_are_meant(work: Work) -> None:
    before = b"def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n\treturn a - b\n"
    work.write("m.py", before)
    with refused(ErrorCode.PATCH_REJECTED) as caught:
        work.edit("def sub(a, b):\n    return a - b\n", "x", before, "m.py")
    error = caught.value
    assert error.brief == "The text to replace is in the file only with different white space"
    assert "lines 5 to 6 of the file\n5 | def sub(a, b):\n6 | \treturn a - b" in error.details
    assert error.reason == "white_space"
    closest = [{"start_line": 5, "end_line": 6, "text": "def sub(a, b):\n\treturn a - b"}]
    assert error.data == {"path": "m.py", "closest": closest}
    with refused(ErrorCode.PATCH_REJECTED) as caught:
        work.edit("    return a+ b - 1\n", "x", before, "m.py")
    assert caught.value.reason == "no_match"
    assert "close to it: line 2 of the file\n2 |     return a + b" in caught.value.details
    with refused(ErrorCode.PATCH_REJECTED) as caught:
        work.edit("(a, b)", "x", before, "m.py")
    assert caught.value.data == {"path": "m.py", "matches": 2, "lines": [1, 5]}
    hunk = b"--- m.py\n+++ m.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-  return a + b\n+  return b\n"
    with refused(ErrorCode.PATCH_REJECTED) as caught:
        work.workbench.apply_patch(work.task_id, hunk, {"m.py": sha(before)})
    assert (caught.value.reason, "1 | def add(a, b):" in caught.value.details) == ("white_space", True)
    assert caught.value.data is not None
    assert (caught.value.data["path"], caught.value.data["hunk"]) == ("m.py", 1)
    assert work.content("m.py") == before


PATHS: dict[str, tuple[str, bytes | None, ErrorCode]] = {
    "escape": ("../x", None, ErrorCode.UNSAFE_PATH),
    "absolute": ("/etc/x", None, ErrorCode.UNSAFE_PATH),
    "dotgit": (".git", None, ErrorCode.UNSAFE_PATH),
    "link": ("link", F, ErrorCode.UNSAFE_PATH),
    "below-a-link": ("link/x", None, ErrorCode.UNSAFE_PATH),
    "control-file": (".github/workflows/ci.yml", None, ErrorCode.UNSAFE_PATH),
    "there": ("f.txt", None, ErrorCode.STALE_HASH),
    "not-there": ("none", F, ErrorCode.NOT_FOUND),
    "other-content": ("f.txt", b"old", ErrorCode.STALE_HASH),
}


@pytest.mark.parametrize(("path", "expected", "code"), PATHS.values(), ids=PATHS)
def test_every_kind_of_edit_has_the_same_gate(path: str, expected: bytes | None, code: ErrorCode, work: Work) -> None:
    before = {p: p.read_bytes() for p in work.root.parent.rglob("*") if p.is_file()}
    new = (
        f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n".encode()
    )
    known = None if expected is None else sha(expected)
    acts: list[Callable[[], object]] = [
        lambda: work.write(path, "x", expected),
        lambda: work.workbench.apply_patch(work.task_id, new, {path: known}),
    ]
    if expected is not None:
        acts.append(lambda: work.edit("one more", "x", expected, path))
    for act in acts:
        with refused(code):
            act()
    assert {p: p.read_bytes() for p in work.root.parent.rglob("*") if p.is_file()} == before


def test_a_control_file_without_a_gate_is_refused_too(work: Work) -> None:
    for path, codes in ((".gitattributes", [ErrorCode.UNSAFE_PATH]), ("fine", [])):
        new = f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n".encode()
        if not codes:
            work.workbench.apply_patch(work.task_id, new, {})
            continue
        with refused(*codes):
            work.workbench.apply_patch(work.task_id, new, {})
    assert not (work.root / ".gitattributes").exists()


# --- hashes


def test_the_hash_moves_on_so_that_the_next_edit_needs_no_reading(work: Work) -> None:
    after = work.workbench.apply_patch(work.task_id, HUNK.encode(), {"f.txt": sha(F)}).files[0].sha256_after
    assert after is not None
    after = work.workbench.edit_file(work.task_id, "f.txt", "one more", "more", after).files[0].sha256_after
    work.workbench.write_file(work.task_id, "f.txt", "end\n", after)
    assert work.content() == b"end\n"


def test_a_stale_hash_tells_the_current_one_and_who_left_it(work: Work) -> None:
    def stale() -> SandboxError:
        with refused(ErrorCode.STALE_HASH) as caught:
            work.edit("one more", "x")
        return caught.value

    work.edit("one more", "x")
    assert "by another edit: edit at 20" in stale().details
    assert sha(b"one\ntwo\nx\ntwo\n") in stale().details
    (work.root / "f.txt").write_bytes(b"the guest's\n")
    assert "not by an edit" in stale().details
    assert sha(b"the guest's\n") in stale().details


def test_a_path_that_never_was_is_not_found_and_says_which_is_meant(work: Work) -> None:
    work.write("src/lib/parser.py", "x")
    acts: tuple[tuple[str, Callable[[str], object]], ...] = (
        ("edit", lambda path: work.edit("one more", "x", path=path)),
        ("write", lambda path: work.write(path, "x", F)),
        ("patch", lambda path: work.workbench.apply_patch(work.task_id, HUNK.encode(), {path: sha(F)})),
        ("read", lambda path: work.workbench.read_file(work.task_id, path)),
    )
    for name, act in acts:
        for path, meant in (("parser.py", "src/lib/parser.py"), ("f.tx", "f.txt"), ("src/lib/F.TXT", "f.txt")):
            with refused(ErrorCode.NOT_FOUND) as caught:
                act(path)
            assert meant in caught.value.details, name
            assert caught.value.reason == "no_such_file"
            assert name == "read" or "`expected_sha256` null" in caught.value.hint
            assert caught.value.data is not None
            assert meant in caught.value.data["did_you_mean"]
    assert not (work.root / "f.tx").exists()


def test_what_cannot_create_a_file_does_not_say_how(work: Work) -> None:
    acts: tuple[Callable[[str], object], ...] = (
        lambda path: work.workbench.delete_file(work.task_id, path, sha(F)),
        lambda path: work.workbench.rename_file(work.task_id, path, "new", sha(F)),
    )
    for act in acts:
        with refused(ErrorCode.NOT_FOUND) as caught:
            act("f.tx")
        assert (caught.value.hint, "f.txt" in caught.value.details) == ("Use a path as listed.", True)
    (work.root / "f.txt").unlink()
    for act in acts:
        with refused(ErrorCode.STALE_HASH) as caught:
            act("f.txt")
        assert (caught.value.hint, caught.value.reason) == ("Use a path as listed.", "deleted")


def test_what_is_no_hash_is_invalid_and_not_stale(work: Work) -> None:
    """As over MCP. The current hash without its prefix was answered with itself, as another version."""
    bare = sha(F).removeprefix("sha256:")
    for act in (
        lambda: work.workbench.edit_file(work.task_id, "f.txt", "one", "two", bare),
        lambda: work.workbench.write_file(work.task_id, "f.txt", "x", bare),
        lambda: work.workbench.delete_file(work.task_id, "f.txt", bare),
        lambda: work.workbench.rename_file(work.task_id, "f.txt", "new", bare),
    ):
        with refused(ErrorCode.INVALID_INPUT) as caught:
            act()
        assert "`sha256:` and 64 hexadecimal digits" in caught.value.hint


@pytest.mark.parametrize("kind", [WorkspaceKind.WORKTREE, WorkspaceKind.TREE])
def test_a_write_below_a_file_is_refused_alike_in_all_kinds(work: Work, kind: WorkspaceKind) -> None:
    """Control: beside it, it is written."""
    bench = work.workbench
    task_id = bench.create_task(bench.task(work.task_id).repo_id, options=TaskOptions(workspace_kind=kind.value)).id
    with refused(ErrorCode.INVALID_INPUT) as caught:
        bench.write_file(task_id, "f.txt/new", b"x", None)
    assert "not a directory" in caught.value.brief
    assert caught.value.hint
    assert bench.write_file(task_id, "folder/new", b"x", None).files


def test_a_file_that_a_guest_removed_is_told_apart_from_one_that_never_was(work: Work) -> None:
    (work.root / "f.txt").unlink()
    with refused(ErrorCode.STALE_HASH) as caught:
        work.edit("one more", "x")
    assert caught.value.brief == "f.txt was deleted since you read it"
    assert "`expected_sha256` null (`--expect absent`" in caught.value.hint, "an agent has to send null"
    assert (caught.value.reason, "not by an edit" in caught.value.details) == ("deleted", True)
    with refused(ErrorCode.NOT_FOUND) as caught:
        work.workbench.read_file(work.task_id, "f.txt")
    assert (caught.value.reason, "last commit or an edit had" in caught.value.details) == ("deleted", True)


def test_a_removed_file_is_told_too(work: Work) -> None:
    gone = {"f.txt": sha(F), "g": None}
    move = b"diff --git a/f.txt b/g\nrename from f.txt\nrename to g\n"
    work.workbench.apply_patch(work.task_id, move, gone)
    with refused(ErrorCode.STALE_HASH) as caught:
        work.edit("one more", "x")
    assert "current no file" in caught.value.details
    assert "by another edit: patch at 20" in caught.value.details


def test_without_its_journal_an_edit_is_gated_all_the_same(work: Work) -> None:
    work.edit("one more", "x")
    (work.root.parents[2] / "journal" / f"{work.task_id}.jsonl").write_bytes(b'torn\n{"files"')
    with refused(ErrorCode.STALE_HASH) as caught:
        work.edit("one more", "x")
    assert "not by an edit" in caught.value.details


def test_every_edit_is_journalled_with_its_hashes_and_without_its_text(work: Work) -> None:
    work.edit("one more", "CANARY")
    work.write("new", "CANARY")
    with refused(ErrorCode.STALE_HASH):
        work.write("new", "CANARY 2")
    entries = [e for e in work.workbench.log(work.task_id) if e.operation in {"edit", "write"}]
    assert [(e.operation, e.names, e.result) for e in entries] == [
        ("edit", ("f.txt",), "ok"), ("write", ("new",), "ok"), ("write", ("new",), "stale_hash"),
    ]  # fmt: skip
    assert [f.sha256_after for e in entries for f in e.files] == [sha(work.content()), sha(b"CANARY")]
    assert b"CANARY" not in (work.root.parents[2] / "journal" / f"{work.task_id}.jsonl").read_bytes()


def test_the_base_hash_is_that_of_the_last_commit_whatever_the_worktree_holds(work: Work) -> None:
    def base(path: str) -> str | None:
        return work.workbench.base_hash(work.task_id, path)

    work.edit("one more", "x")
    work.write("new", "n")
    assert (base("f.txt"), base("run"), base("new"), base("link")) == (sha(F), sha(b"#!/bin/sh\n"), None, None)
    assert base("f.txt/x") is None
    work.workbench.commit(work.task_id, "x")
    assert (base("f.txt"), base("new")) == (sha(work.content()), sha(b"n"))
    with refused(ErrorCode.UNSAFE_PATH):
        base("../x")


def test_an_edit_starts_no_process(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    real = process.build_command_line

    def recorded(*args: object, **keywords: object) -> object:
        started.append(args)
        return real(*args, **keywords)  # type: ignore[arg-type]  # whatever it takes

    monkeypatch.setattr(process, "build_command_line", recorded)
    work.workbench.apply_patch(work.task_id, HUNK.encode(), {"f.txt": sha(F)})
    work.write("new", "n")
    assert not started
    work.workbench.base_hash(work.task_id, "f.txt")
    assert started, "the control did not fire: this proves nothing"


# --- delete and rename


def test_a_file_is_deleted_and_renamed_by_its_hash(work: Work) -> None:
    renamed = work.workbench.rename_file(work.task_id, "run", "bin/start", sha(b"#!/bin/sh\n"))
    assert [(f.kind, f.old_path, f.path) for f in renamed.files] == [(ChangeKind.RENAMED, "run", "bin/start")]
    assert (work.root / "bin/start").stat().st_mode & 0o100
    assert not (work.root / "run").exists()
    deleted = work.workbench.delete_file(work.task_id, "f.txt", sha(F))
    assert [(f.kind, f.sha256_before, f.sha256_after) for f in deleted.files] == [(ChangeKind.DELETED, sha(F), None)]
    assert not (work.root / "f.txt").exists()
    assert [entry.operation for entry in work.workbench.log(work.task_id)][-2:] == ["rename", "delete"]
    kinds = {(change.path, change.kind) for change in work.workbench.status(work.task_id).changes}
    assert ("f.txt", ChangeKind.DELETED) in kinds


@pytest.mark.parametrize(
    ("path", "new_path", "expected", "code"),
    [
        ("f.txt", "g", WINDOWS, ErrorCode.STALE_HASH),
        ("f.txt", "w.txt", F, ErrorCode.STALE_HASH),  # would replace a file that the caller may not know
        ("f.txt", "f.txt", F, ErrorCode.INVALID_INPUT),
        ("f.txt", "../x", F, ErrorCode.UNSAFE_PATH),
        ("f.txt", ".git/hooks/pre-commit", F, ErrorCode.UNSAFE_PATH),
        ("absent", "x", F, ErrorCode.NOT_FOUND),
        ("link", "x", F, ErrorCode.UNSAFE_PATH),
    ],
)
def test_a_rename_that_could_lose_or_reach_something_changes_nothing(
    work: Work, path: str, new_path: str, expected: bytes, code: ErrorCode
) -> None:
    with refused(code):
        work.workbench.rename_file(work.task_id, path, new_path, sha(expected))
    assert (work.content(), work.content("w.txt")) == (F, WINDOWS)
    assert not work.workbench.status(work.task_id).dirty


def test_a_path_that_must_be_free_and_is_not_is_named_with_what_can_be_done(work: Work) -> None:
    acts: tuple[Callable[[], object], ...] = (
        lambda: work.workbench.rename_file(work.task_id, "f.txt", "w.txt", sha(F)),
        lambda: work.write("w.txt", "x"),
    )
    for act in acts:
        with refused(ErrorCode.STALE_HASH) as caught:
            act()
        error = caught.value
        assert (error.brief, error.reason) == ("There is a file w.txt already", "exists")
        assert "Choose another path" in error.hint
    assert sha(WINDOWS) in error.details


def test_a_file_that_changed_is_not_deleted(work: Work) -> None:
    work.edit("two\none more", "2")
    with refused(ErrorCode.STALE_HASH):
        work.workbench.delete_file(work.task_id, "f.txt", sha(F))


@pytest.mark.parametrize("kind", [WorkspaceKind.WORKTREE, WorkspaceKind.TREE])
def test_no_edit_writes_at_or_below_the_path_of_a_submodule(
    upstream: Upstream, tmp_path: Path, kind: WorkspaceKind
) -> None:
    """No commit would have it, and to delete the task would lose it. Control: the same beside it."""
    upstream.write("f.txt", F)
    upstream.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    upstream.git("add", "f.txt")
    upstream.git("commit", "-qm", "sub")
    with Workbench(tmp_path / "home", allow_file=True) as workbench, copied_clones():
        repo_id = workbench.clone(str(upstream.root)).repository.id
        task_id = workbench.create_task(repo_id, options=TaskOptions(workspace_kind=kind)).id
        for path, code in (
            ("sub", ErrorCode.UNSAFE_PATH),
            ("sub/x", ErrorCode.INVALID_INPUT),
            ("sub/d/x", ErrorCode.INVALID_INPUT),
        ):
            with refused(code) as caught:
                workbench.write_file(task_id, path, "q", None)
            assert caught.value.code is code
            with refused(code):
                workbench.rename_file(task_id, "f.txt", path, sha(F))
            with refused(code):
                workbench.apply_patch(
                    task_id, b"--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+q\n" % path.encode(), {path: None}
                )
        assert not workbench.write_file(task_id, "beside/sub", "q", None).ignored
        assert [change.path for change in workbench.status(task_id).changes] == ["beside/sub"]
        workbench.close_task(task_id, delete_worktree=True, discard=True)
