"""Reading a task's files through the workbench."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from devtools.command import Command
from devtools.copied_clones import copied_clones
from sandbox.cli.readable_owner import find_owner
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import STREAM_CAP, sha256_of
from sandbox.models import FileContent, SearchQuery, TaskOptions, WorkspaceKind
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, refused

THREE = b"one\ntwo\nthree"


@dataclass(frozen=True)
class Bench:
    """A task and the place of its files."""

    workbench: Workbench
    task_id: str
    root: Path
    home: Path

    def read(self, content: bytes, start: int | None = None, end: int | None = None, **more: Any) -> FileContent:
        (self.root / "f").write_bytes(content)
        return self.workbench.read_file(self.task_id, "f", start, end, **more)


@pytest.fixture
def bench(tmp_path: Path, upstream: Upstream) -> Iterator[Bench]:
    upstream.write("f", THREE)
    upstream.commit()
    with Workbench(tmp_path / "home", environ={"PATH": "/usr/bin:/bin"}, allow_file=True) as workbench:
        with copied_clones():
            repo_id = workbench.clone(str(upstream.root)).repository.id
        task = workbench.create_task(repo_id)
        assert task.worktree_path is not None
        yield Bench(workbench, task.id, task.worktree_path, tmp_path / "home")
        workbench.close_task(task.id, delete_worktree=True, discard=True)  # it may be a mount


def shown(content: FileContent) -> tuple[str, int | None, int | None, int | None, bool]:
    return content.content, content.start_line, content.end_line, content.total_lines, content.truncated


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, ("one\ntwo\nthree", 1, 3, 3, False)),
        (1, 3, ("one\ntwo\nthree", 1, 3, 3, False)),
        (2, 2, ("two\n", 2, 2, 3, False)),
        (2, None, ("two\nthree", 2, 3, 3, False)),
        (None, 1, ("one\n", 1, 1, 3, False)),
        (3, 100, ("three", 3, 3, 3, False)),
    ],
)
def test_a_range_of_lines(bench: Bench, start: int | None, end: int | None, expected: tuple[object, ...]) -> None:
    found = bench.read(THREE, start, end)
    assert shown(found) == expected
    assert (found.size, found.encoding) == (len(THREE), "utf-8")
    assert found.sha256 == sha256_of(THREE), "of the whole file"


@pytest.mark.parametrize(("start", "end"), [(0, 1), (-1, None), (2, 1), (1, 0), (4, None), (4, 9)])
def test_a_range_that_is_none_or_not_there_is_invalid(bench: Bench, start: int, end: int | None) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        bench.read(THREE, start, end)


def test_an_empty_file_has_no_lines_and_is_text(bench: Bench) -> None:
    assert shown(bench.read(b"")) == ("", 1, 0, 0, False)
    assert shown(bench.read(b"", 1, 5)) == ("", 1, 0, 0, False)


def test_a_binary_file_is_base64_and_has_no_lines(bench: Bench) -> None:
    found = bench.read(b"\x89PNG\r\n\x00")
    assert (found.encoding, base64.b64decode(found.content)) == ("base64", b"\x89PNG\r\n\x00")
    assert shown(found)[1:] == (None, None, None, False)
    with refused(ErrorCode.INVALID_INPUT) as caught:
        bench.read(b"\xff\n", 1, 1)
    assert "Without a range" in caught.value.hint


def test_line_ends_and_byte_order_marks_are_content(bench: Bench) -> None:
    text = "\ufeffone\r\ntwo\x0cstill two\u2028too\r\n"
    found = bench.read(text.encode())
    assert (found.content, found.total_lines) == (text, 2)
    assert bench.read(text.encode(), 2, 2).content == "two\x0cstill two\u2028too\r\n"


def test_more_than_the_cap_is_cut_and_said(bench: Bench) -> None:
    assert shown(bench.read(THREE, max_bytes=9)) == ("one\ntwo\n", 1, 2, 3, True)
    assert shown(bench.read(THREE, 2, 3, max_bytes=4)) == ("two\n", 2, 2, 3, True)
    assert shown(bench.read(THREE, max_bytes=2)) == ("on", 1, 1, 3, True)
    cut = bench.read(b"\xff" * 10, max_bytes=4)
    assert (base64.b64decode(cut.content), cut.truncated, cut.size) == (b"\xff" * 4, True, 10)
    with refused(ErrorCode.INVALID_INPUT):
        bench.read(THREE, max_bytes=0)


def test_the_default_cap_is_ten_megabytes_and_a_range_reaches_behind_it(bench: Bench) -> None:
    content = b"x" * 99 + b"\n"
    many = content * 150_000
    found = bench.read(many)
    assert (len(found.content), found.size, found.truncated) == (10 * 1024**2 // 100 * 100, len(many), True)
    behind = bench.read(many + b"last\n", 150_001)
    assert (behind.content, behind.sha256) == ("last\n", sha256_of(many + b"last\n"))


def test_h16_what_is_too_large_to_hash_is_refused(bench: Bench) -> None:
    with (bench.root / "f").open("wb") as stream:
        stream.truncate(STREAM_CAP + 1)
    with refused(ErrorCode.QUOTA_EXCEEDED):
        bench.workbench.read_file(bench.task_id, "f", 1, 1)


def test_the_hash_is_what_an_edit_has_to_give(bench: Bench) -> None:
    sha256 = bench.read(THREE, 2, 2).sha256
    patch = b"--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n\\ No newline at end of file\n"
    bench.workbench.apply_patch(bench.task_id, patch, {"f": sha256})
    assert (bench.root / "f").read_bytes() == b"one\n2\nthree"


@pytest.mark.parametrize("path", ["nope.c", "folder"])
def test_what_is_no_file_is_answered_with_the_way_to_list_them(path: str, bench: Bench) -> None:
    (bench.root / "folder").mkdir()
    with pytest.raises(SandboxError) as caught:
        bench.workbench.read_file(bench.task_id, path)
    assert f"`sandbox file search {bench.task_id} --glob" in caught.value.hint


def test_the_reason_and_not_the_words_of_a_hint_choose_the_answer(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other reasons of the same codes keep their own hint: a hard link of a foreign file, a missing worktree."""
    monkeypatch.setattr("sandbox.files.tree.LISTED_PATH_HINT", "other words")
    (bench.root / "link").symlink_to("f")
    (bench.root / "folder").mkdir()
    for path, reason in (("nope", "no_such_file"), ("link", "link"), ("folder", "regular")):
        with pytest.raises(SandboxError) as caught:
            bench.workbench.read_file(bench.task_id, path)
        assert (caught.value.reason, "file search" in caught.value.hint) == (reason, True), path
    monkeypatch.setattr("sandbox.files.tree.WorktreeFiles._is_foreign", lambda *_: True)
    with refused(ErrorCode.UNSAFE_PATH) as foreign:
        bench.workbench.read_file(bench.task_id, "f")
    assert (foreign.value.reason, foreign.value.hint) == ("hard-link", "Have the guest copy the file instead.")


TARGETS = {"src/f": "'src/f'", "caf\u00e9": "'caf\u00e9'", "a\n\x1b[31m\u202e": "'a\\n\\x1b[31m\\u202e'"}


@pytest.mark.parametrize("kind", ["worktree", "tree", "commit"])
def test_who_reads_a_link_learns_that_it_is_one_and_where_it_leads(kind: str, bench: Bench, upstream: Upstream) -> None:
    for number, target in enumerate(TARGETS):
        (upstream.root / f"link{number}").symlink_to(target)
    upstream.commit()
    repo_id = bench.workbench.update_repository(str(upstream.root)).repo_id
    if kind == "commit":
        read = partial(bench.workbench.read_committed_file, repo_id)
    else:
        options = TaskOptions(workspace_kind=WorkspaceKind(kind))
        read = partial(bench.workbench.read_file, bench.workbench.create_task(repo_id, options=options).id)
    for number, shown in enumerate(TARGETS.values()):
        with refused(ErrorCode.UNSAFE_PATH) as caught:
            read(f"link{number}")
        assert f"it is a symbolic link to {shown}, which is not followed" in caught.value.brief
        assert (caught.value.reason, "file search" in caught.value.hint) == ("link", True)


def test_a_file_of_a_fetched_commit_is_read_without_a_task(upstream: Upstream, tmp_path: Path) -> None:
    upstream.write("src/f", b"one\ntwo\nthree\n")
    upstream.write("large", b"x" * 99 + b"\n" + b"line\n" * 120_000)
    upstream.commit()
    with Workbench(tmp_path / "home", environ={}, allow_file=True) as workbench:
        fetched = workbench.fetch(str(upstream.root))
        upstream.write("src/f", b"later\n")
        upstream.commit()
        workbench.update_repository(fetched.repo_id)
        whole = workbench.read_committed_file(fetched.repo_id, "src/f", ref=fetched.commit_sha)
        assert (whole.content, whole.sha256) == ("one\ntwo\nthree\n", sha256_of(b"one\ntwo\nthree\n"))
        part = workbench.read_committed_file(fetched.repo_id, "src/f", 2, 2, ref=fetched.commit_sha)
        assert (part.content, part.start_line, part.total_lines) == ("two\n", 2, 3)
        assert workbench.read_committed_file(fetched.repo_id, "src/f").content == "later\n"
        assert workbench.read_committed_file(fetched.repo_id, "large", 120_001).total_lines == 120_001  # several chunks
        for path, code in (
            ("src/g", ErrorCode.NOT_FOUND),
            ("src", ErrorCode.NOT_FOUND),
            ("../f", ErrorCode.UNSAFE_PATH),
        ):
            with refused(code):
                workbench.read_committed_file(fetched.repo_id, path)
        with refused(ErrorCode.INVALID_INPUT):
            workbench.read_committed_file(fetched.repo_id, "src/f", ref="HEAD~1")


def test_a_commit_is_searched_without_a_task(bench: Bench, upstream: Upstream) -> None:
    upstream.write("src/g", b"one\nmore\n")
    upstream.write("large", b"more\n" * 2_200_000)
    upstream.commit()
    repo_id = bench.workbench.update_repository(str(upstream.root)).repo_id
    found = bench.workbench.search_commit(repo_id, SearchQuery(pattern="more"))
    assert [(hit.path, hit.line, hit.text) for hit in found.hits] == [("src/g", 2, "more")]
    assert found.skipped.too_large == 1
    assert bench.workbench.search_commit(repo_id, SearchQuery(glob="src/*"), ref="main").files == ("src/g",)
    first = bench.workbench.task(bench.task_id).base_commit
    assert bench.workbench.search_commit(repo_id, SearchQuery(pattern="more"), ref=first).hits == ()


def test_an_owner_to_read_is_a_task_or_a_repository_at_a_ref(bench: Bench, upstream: Upstream) -> None:
    repo_id = bench.workbench.repositories()[0].id
    for text, found in (
        (bench.task_id[:10], (bench.task_id, None)),
        (repo_id, (repo_id, "HEAD")),
        (f"{repo_id}@a/b", (repo_id, "a/b")),
        (f"{upstream.root}@v1", (repo_id, "v1")),
    ):
        assert find_owner(bench.workbench, text) == found
    with refused(ErrorCode.INVALID_INPUT):
        find_owner(bench.workbench, f"{bench.task_id}@main")
    shown = Command(bench.home)("file", "read", f"{upstream.root}@main", "f")
    assert shown.stdout == THREE.decode()
