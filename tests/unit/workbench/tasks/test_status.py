"""Status, diff and commit of a task: what is said about it and what a commit refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.agent.results import success
from sandbox.agent.tools import TOOLS
from sandbox.cli import main
from sandbox.config import find_resources
from sandbox.errors import ErrorCode
from sandbox.files.tree import sha256_of
from sandbox.models import Change, ChangeKind, Verdict
from sandbox.policy.commit import AddedFile, CommitPolicy, load_commit_policy
from sandbox.store.stop_requests import register_request
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

ADDED, MODIFIED, DELETED, RENAMED = ChangeKind.ADDED, ChangeKind.MODIFIED, ChangeKind.DELETED, ChangeKind.RENAMED
ELF = b"\x7fELF\x02\x01\x01\0" + bytes(50)
MEGABYTE = 1024**2


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def kinds(changes: tuple[Change, ...]) -> list[tuple[ChangeKind, str | None, str]]:
    return [(c.kind, c.old_path, c.path) for c in changes]


# --- status


def test_status_and_diff_say_which_checks_run_now(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    requests = desk.home / "repositories" / "stops"
    requests.mkdir(exist_ok=True)

    def look() -> tuple[str, ...]:
        found = desk.workbench.status(desk.task.id).running
        assert desk.workbench.diff(desk.task.id).running == found
        return found

    with register_request(requests, desk.task.id) as request, register_request(requests, f"{desk.task.id}x") as other:
        other.note_begin("elsewhere")
        assert look() == ()
        request.note_begin("test")
        request.note_run("run-1", "test")
        assert look() == ("test",)
        request.note_end("test", Verdict.PASSED)
        assert look() == ()
        request.note_begin("test")
        request.note_begin("lint")
        assert look() == ("test", "lint"), "also the second time that one runs"
        for command in ("status", "diff"):
            assert main(["--home", str(desk.home), command, desk.task.id]) == 0
            assert "note: running now: test, lint; files may still change" in capsys.readouterr().err
        killed = requests / f"{desk.task.id}.killed"
        killed.write_text("build\n")  # of a process that has died: no lock
        assert look() == ("test", "lint")
        killed.unlink()
    assert look() == ()


def test_a_moved_file_is_a_rename_with_both_names(desk: Desk) -> None:
    (desk.root / "d" / "e" / "x").rename(desk.root / "moved")
    status = desk.workbench.status(desk.task.id)
    assert kinds(status.changes) == [(RENAMED, "d/e/x", "moved")]
    assert status.changes[0].sha256 == sha256_of(b"x\n" * 50)


def test_a_moved_and_edited_file_is_no_rename_in_the_status_but_in_the_diff(desk: Desk) -> None:
    (desk.root / "d" / "e" / "x").rename(desk.root / "moved")
    desk.write("moved", b"x\n" * 50 + b"y\n")
    assert kinds(desk.workbench.status(desk.task.id).changes) == [(DELETED, None, "d/e/x"), (ADDED, None, "moved")]
    (file,) = desk.workbench.diff(desk.task.id).files
    assert (file.kind, file.old_path, file.path, file.additions, file.deletions) == (RENAMED, "d/e/x", "moved", 1, 0)


def test_one_deleted_file_is_the_origin_of_one_copy_only(desk: Desk) -> None:
    (desk.root / "f").unlink()
    desk.write("a", b"one\ntwo\n")
    desk.write("b", b"one\ntwo\n")
    assert kinds(desk.workbench.status(desk.task.id).changes) == [(RENAMED, "f", "a"), (ADDED, None, "b")]


@pytest.mark.parametrize("how", ["empty", "link"])
def test_content_that_says_nothing_is_no_rename(desk: Desk, how: str) -> None:
    """An empty file, and a file whose bytes are a link's target."""
    (desk.root / "link").unlink()
    desk.write("new", b"" if how == "empty" else b"f")
    assert kinds(desk.workbench.status(desk.task.id).changes) == [(DELETED, None, "link"), (ADDED, None, "new")]


# --- diff


def test_a_diff_has_the_hash_of_each_present_file(desk: Desk) -> None:
    desk.write("f", b"1\n")
    desk.workbench.commit(desk.task.id, "x")
    desk.write("run", b"#!/bin/bash\n", executable=True)
    (desk.root / "d" / "y").unlink()
    desk.write("new", b"new\n")
    uncommitted = {
        "d/y": (DELETED, None),
        "new": (ADDED, sha256_of(b"new\n")),
        "run": (MODIFIED, sha256_of(b"#!/bin/bash\n")),
    }
    committed = {"f": (MODIFIED, sha256_of(b"1\n"))}
    against_head = desk.workbench.diff(desk.task.id, "head").files
    assert {f.path: (f.kind, f.sha256) for f in against_head} == uncommitted
    against_base = desk.workbench.diff(desk.task.id, "base").files
    assert {f.path: (f.kind, f.sha256) for f in against_base} == uncommitted | committed


def test_a_change_of_all_line_ends_is_in_the_diff_that_an_agent_or_a_terminal_gets_and_git_applies_it(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    windows, changed = b"one\r\ntwo\r\n", b"one\ntwo\n"
    desk.write("f", windows)
    desk.workbench.commit(desk.task.id, "x")
    desk.write("f", changed)
    found = desk.workbench.diff(desk.task.id, "head")
    document = success(TOOLS["space_repo_diff"], found).structured_content
    assert "\n-one\r\n-two\r\n+one\n+two\n" in document["text"]
    assert main(["--home", str(desk.home), "diff", desk.task.id, "--against", "head"]) == 0
    assert capsys.readouterr().out == found.text == document["text"]
    copy = Upstream(tmp_path / "copy")
    copy.write("f", windows)
    (tmp_path / "patch").write_bytes(document["text"].encode())
    copy.git("apply", str(tmp_path / "patch"))
    assert (copy.root / "f").read_bytes() == changed
    desk.write("f", windows)
    desk.workbench.apply_patch(desk.task.id, document["text"].encode(), {"f": sha256_of(windows)})
    assert (desk.root / "f").read_bytes() == changed


def test_a_100_mb_change_costs_no_text(desk: Desk) -> None:
    """The text is not printed and then cut: it is never made."""
    with (desk.root / "f").open("wb") as stream:
        for _ in range(100):
            stream.write(b"line\n" * (MEGABYTE // 5))
    desk.write("run", b"#!/bin/bash\n", executable=True)
    found = desk.workbench.diff(desk.task.id)
    assert found.truncated
    assert "Files a/f and b/f, too large to be compared line by line, differ" in found.text
    assert "+#!/bin/bash" in found.text
    assert len(found.text) < 2000
    assert [(f.path, f.additions) for f in found.files] == [("f", None), ("run", 1)]


# --- commit


def test_a_commit_lists_what_status_showed(desk: Desk) -> None:
    (desk.root / "d" / "y").rename(desk.root / "z")
    desk.write("new", b"1\n")
    desk.write("f", b"2\n")
    shown = desk.workbench.status(desk.task.id).changes
    result = desk.workbench.commit(desk.task.id, "work")
    assert result.files == shown
    assert kinds(shown) == [(MODIFIED, None, "f"), (ADDED, None, "new"), (RENAMED, "d/y", "z")]
    assert desk.git("ls-tree", "-r", "--name-only", result.commit).split() == [
        ".gitignore", "d/e/x", "f", "link", "new", "run", "z",
    ]  # fmt: skip


def test_an_empty_commit_is_refused(desk: Desk) -> None:
    desk.write("noise.log", b"ignored")
    with refused(ErrorCode.NOTHING_TO_COMMIT):
        desk.workbench.commit(desk.task.id, "x")


@pytest.mark.parametrize("allow", ["noise.log", "build", "build/x"])
def test_an_ignored_file_that_is_to_be_committed_is_named(desk: Desk, allow: str) -> None:
    """Else the commit is made without the file that was asked for."""
    desk.write("noise.log", b"ignored")
    desk.write("build/x", b"ignored")
    desk.write("f", b"2\n")
    with refused(ErrorCode.POLICY_VIOLATION) as caught:
        desk.workbench.commit(desk.task.id, "x", allow=["f", allow])
    assert caught.value.details == allow
    assert desk.workbench.task(desk.task.id).head_commit == desk.task.head_commit
    assert [c.path for c in desk.workbench.commit(desk.task.id, "x", allow=["f", ".", "no.log"]).files] == ["f"]


def test_a_tracked_file_is_never_ignored(desk: Desk) -> None:
    """It may be named although it is unchanged: a script names the same files each time."""
    desk.upstream.write("build/a.log", b"1\n")
    desk.upstream.git("add", "--force", "build/a.log")
    desk.upstream.commit()
    task = desk.workbench.create_task(desk.repo_id, "tracked", fetch=True)
    desk.workbench.write_file(task.id, "new", "x\n", None)
    found = desk.workbench.commit(task.id, "x", allow=["build/a.log", "build", "d"])
    assert [c.path for c in found.files] == ["new"]


PRODUCTS = {
    "object": ("x.o", b"o"),
    "upper-case": ("X.OBJ", b"o"),
    "nested": ("a/node_modules/b/index.js", b"js"),
    "cache": ("p/__pycache__/x.txt", b"t"),
    "archive": ("a.tar.gz", b"a"),
    "test-output": ("shot.actual.png", b"p"),
    "core": ("sub/core", b"c"),
    "elf": ("program", ELF),
    "pe": ("setup", b"MZ\x90\0" + bytes(20)),
    "zip-by-content": ("data.bin", b"PK\3\4" + bytes(20)),
    "large": ("large.txt", b"x" * (5 * MEGABYTE + 1)),
}
SOURCES = {
    "source": ("x.c", b"int x;\n"),
    "folder-named-core": ("core/x.c", b"int x;\n"),
    "text-that-starts-like-a-program": ("MZ.txt", b"MZ is a text\n"),
    "image": ("x.png", b"\x89PNG\r\n\x1a\n" + bytes(20)),
    "limit": ("large.txt", b"x" * (5 * MEGABYTE)),
    "no-suffix": ("so", b"text\n"),
}


@pytest.mark.parametrize(("path", "content"), PRODUCTS.values(), ids=PRODUCTS)
def test_a_new_build_product_is_refused_before_anything_is_written_unless_it_is_named(
    desk: Desk, path: str, content: bytes
) -> None:
    desk.write(path, content)
    desk.write("f", b"2\n")
    before = desk.refs(), desk.git("count-objects")
    with refused(ErrorCode.POLICY_VIOLATION) as caught:
        desk.workbench.commit(desk.task.id, "x", allow=["elsewhere"])
    assert path in caught.value.details
    assert (desk.refs(), desk.git("count-objects")) == before
    assert desk.workbench.task(desk.task.id).head_commit == desk.task.head_commit
    assert path in [c.path for c in desk.workbench.commit(desk.task.id, "x", allow=[path]).files]


@pytest.mark.parametrize(("path", "content"), SOURCES.values(), ids=SOURCES)
def test_a_source_is_committed_without_a_question(desk: Desk, path: str, content: bytes) -> None:
    desk.write(path, content)
    assert [c.path for c in desk.workbench.commit(desk.task.id, "x").files] == [path]


@pytest.mark.parametrize("allow", [["out"], ["out/"], ["."], ["out/a.o", "out/b.o"]])
def test_a_folder_or_everything_can_be_allowed(desk: Desk, allow: list[str]) -> None:
    desk.write("out/a.o", b"a")
    desk.write("out/b.o", b"b")
    assert len(desk.workbench.commit(desk.task.id, "x", allow=allow).files) == 2


def test_a_name_that_begins_like_an_allowed_folder_is_not_inside(desk: Desk) -> None:
    desk.write("outer.o", b"a")
    with refused(ErrorCode.POLICY_VIOLATION):
        desk.workbench.commit(desk.task.id, "x", allow=["out"])


def test_what_the_repository_tracks_already_is_never_asked_about(desk: Desk) -> None:
    desk.write("program", ELF)
    desk.workbench.commit(desk.task.id, "x", allow=["."])
    desk.write("program", ELF + b"2")
    desk.workbench.commit(desk.task.id, "y")
    (desk.root / "program").rename(desk.root / "renamed")
    assert kinds(desk.workbench.commit(desk.task.id, "z").files) == [(RENAMED, "program", "renamed")]


def test_a_broken_policy_is_no_permission(tmp_path: Path) -> None:
    (tmp_path / "commit.toml").write_text('[magic]\n"x" = "zz"\n')
    with refused(ErrorCode.POLICY_VIOLATION):
        load_commit_policy(tmp_path)


def test_the_shipped_policy_is_in_lower_case() -> None:
    policy = load_commit_policy(find_resources("policies"))
    words = [*policy.names, *policy.suffixes, *policy.folders]
    assert words == [word.lower() for word in words]
    assert CommitPolicy().find_suspicion(AddedFile("x.o", 4, ELF), 10_000) is None


def test_a_diff_says_of_which_files_it_is_no_patch(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Control: without them `git apply` takes it."""
    desk.write("f", "one\ncaf\u00e9\n".encode())
    plain = desk.workbench.diff(desk.task.id)
    assert plain.lossy == ()
    patch = desk.home / "patch"
    patch.write_text(plain.text)
    desk.upstream.git("apply", "--check", str(patch))
    desk.write("latin.txt", b"caf\xe9\n")
    found = desk.workbench.diff(desk.task.id)
    assert (found.lossy, found.truncated) == (("latin.txt",), False)
    assert main(["diff", desk.task.id, "--home", str(desk.home)]) == 0
    assert "note: not UTF-8, so this is no patch of it: latin.txt" in capsys.readouterr().err
