"""Sync and checkout: the task's work is never lost, a conflict changes nothing, and later steps see the new base."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.command import Command
from sandbox.agent.results import success
from sandbox.agent.tools import TOOLS
from sandbox.errors import ErrorCode
from sandbox.git.failures import out_of_memory_error
from sandbox.git.log import list_changed_paths
from sandbox.git.process import Git
from sandbox.models import ConflictKind, ConflictResolution, MergeConflict, SyncState, Task
from sandbox.workbench import Workbench
from sandbox.workbench.tasks import conflict_texts, lifecycle, sync
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk, on_disk


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def advance(desk: Desk, path: str = "f", content: bytes = b"zero\none\ntwo\n") -> str:
    """A new commit on the remote's default branch."""
    desk.upstream.write(path, content)
    return desk.upstream.commit()


def answer(conflict: MergeConflict, **choice: str) -> ConflictResolution:
    ours, theirs = (side and side.blob for side in (conflict.ours, conflict.theirs))
    return ConflictResolution.model_validate({"path": conflict.path, "ours": ours, "theirs": theirs, **choice})


def test_uncommitted_changes_are_merged_with_the_newer_base_and_the_state_before_is_a_snapshot(desk: Desk) -> None:
    desk.write("f", b"one\ntwo\nthree\n")
    desk.write("kept.log", b"ignored")
    tip = advance(desk)
    done = desk.workbench.sync_task(desk.task.id, fetch=True)
    assert (done.state, done.onto, done.base_commit, done.head_commit) == (SyncState.SYNCED, tip, tip, tip)
    assert (desk.root / "f").read_bytes() == b"zero\none\ntwo\nthree\n"
    assert (desk.root / "kept.log").read_bytes() == b"ignored"
    assert [c.path for c in done.changes] == ["f"]
    assert done.previous is not None
    assert desk.git("show", f"{done.previous.tree}:f") == "one\ntwo\nthree\n"
    assert desk.workbench.sync_task(desk.task.id).state is SyncState.UP_TO_DATE
    text = desk.workbench.diff(desk.task.id).text
    assert "+three" in text
    assert "zero" not in [line[1:] for line in text.splitlines() if line[:1] in "+-"]


def test_a_plain_worktree_is_synced_as_well(desk: Desk) -> None:
    """The others are overlays where the host allows it."""
    settings = {"workspaces": {"worktree": "plain"}}
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    with Workbench(desk.home, environ=environ, settings=settings, allow_file=True) as plain:
        task = plain.create_task(desk.repo_id)
        root = desk.worktree(task)
        (root / "f").write_bytes(b"one\ntwo\nthree\n")
        (root / "kept.log").write_bytes(b"ignored")
        tip = advance(desk)
        done = plain.sync_task(task.id, fetch=True)
        assert (done.base_commit, [c.path for c in done.changes]) == (tip, ["f"])
        assert (root / "f").read_bytes() == b"zero\none\ntwo\nthree\n"
        assert (root / "kept.log").read_bytes() == b"ignored"


def test_own_commits_stay_below_a_merge_commit(desk: Desk) -> None:
    desk.write("mine", b"mine\n")
    own = desk.workbench.commit(desk.task.id, "mine").commit
    tip = advance(desk)
    done = desk.workbench.sync_task(desk.task.id, fetch=True)
    assert desk.git("rev-parse", f"{done.head_commit}^1", f"{done.head_commit}^2").split() == [own, tip]
    assert (done.dirty, done.ahead, done.previous) == (False, 2, None)
    assert [file.path for file in desk.workbench.diff(desk.task.id).files] == ["mine"]
    assert (desk.root / "f").read_bytes() == b"zero\none\ntwo\n"
    git = Git(desk.home / "repositories" / "clones" / desk.repo_id)
    assert list_changed_paths(git, tip, done.head_commit) == {b"mine"}  # what the merge took over is not new
    desk.write("mine", b"more\n")
    desk.workbench.commit(desk.task.id, "more")


def conflict_in_each_kind(desk: Desk) -> None:
    """Both sides change f; the task deletes run and changes d/e/x; the remote changes run and deletes d/e/x."""
    desk.write("f", b"ours\n")
    (desk.root / "run").unlink()
    desk.write("d/e/x", b"ours\n")
    desk.write("new", b"ours\n")
    desk.upstream.git("rm", "-q", "d/e/x")
    desk.upstream.write("run", b"#!/bin/sh\nexit\n", executable=True)
    desk.upstream.write("new", b"theirs\n")
    advance(desk, "f", b"theirs\n")


def test_a_sync_with_conflicts_lists_them_and_changes_nothing(desk: Desk) -> None:
    conflict_in_each_kind(desk)
    before, refs, record = (
        on_disk(desk.root),
        desk.git("rev-parse", desk.task.branch),
        desk.workbench.task(desk.task.id),
    )
    found = desk.workbench.sync_task(desk.task.id, fetch=True)
    assert found.state is SyncState.CONFLICTS
    assert {c.path: c.kind for c in found.conflicts} == {
        "f": ConflictKind.BOTH_MODIFIED,
        "run": ConflictKind.DELETED_BY_US,
        "d/e/x": ConflictKind.DELETED_BY_THEM,
        "new": ConflictKind.BOTH_ADDED,
    }
    named = {c.path: c for c in found.conflicts}
    assert named["f"].merged == "<<<<<<< ours\nours\n=======\ntheirs\n>>>>>>> theirs\n"
    assert desk.git("cat-file", "-p", named["f"].theirs.blob if named["f"].theirs else "") == "theirs\n"
    assert (on_disk(desk.root), desk.git("rev-parse", desk.task.branch)) == (before, refs)
    assert desk.workbench.task(desk.task.id) == record


def test_a_conflict_in_a_long_file_is_shown_by_its_lines_and_resolved_without_sending_the_file(desk: Desk) -> None:
    """Their clean change moves the lines; line numbers are those of the task's file."""
    lines = [f"line {number}\n" for number in range(1, 3001)]
    advance(desk, "f", "".join(lines).encode())
    desk.workbench.sync_task(desk.task.id, fetch=True)
    desk.write("f", "".join([*lines[:1999], "ours\n", *lines[2000:2999], "our end\n"]).encode())
    desk.workbench.commit(desk.task.id, "ours")
    advance(desk, "f", "".join(["their start\n", "more\n", *lines[:1999], "theirs\n", *lines[2000:]]).encode())
    found = desk.workbench.sync_task(desk.task.id, fetch=True)
    (conflict,) = found.conflicts
    part = "<<<<<<< ours\nours\n=======\ntheirs\n>>>>>>> theirs\n"
    assert (conflict.merged, conflict.excerpt) == (None, f"@@ line 2000 @@\n{part}")
    assert "edit those lines in the task" in found.note
    document = success(TOOLS["space_repo_sync"], found).structured_content or {}
    assert document["conflicts"][0]["excerpt"] == conflict.excerpt
    shown = Command(desk.home)("task", "sync", desk.task.id, "--show")
    assert part in shown.stdout
    assert "edit those lines in the task" in shown.stderr
    desk.write("f", (desk.root / "f").read_bytes().replace(b"ours\n", b"theirs\n"))
    desk.workbench.commit(desk.task.id, "as theirs")
    assert desk.workbench.sync_task(desk.task.id).state is SyncState.SYNCED
    merged = ["their start\n", "more\n", *lines[:1999], "theirs\n", *lines[2000:2999], "our end\n"]
    assert (desk.root / "f").read_bytes() == "".join(merged).encode()


def test_an_excerpt_is_bounded_and_a_conflict_without_text_names_a_way(desk: Desk) -> None:
    ours, theirs = (f"{side} {'x' * 100}\n" for side in ("ours", "theirs"))
    common = [f"line {number}\n" for number in range(8)]
    advance(desk, "f", "".join(["0\n", *common, "1\n", *common, "2\n"]).encode())
    desk.workbench.sync_task(desk.task.id, fetch=True)
    desk.write("f", "".join([ours, *common, ours * 200, *common, ours]).encode())
    desk.write("new", b"\0ours")
    desk.upstream.write("new", b"\0theirs")
    advance(desk, "f", "".join([theirs, *common, theirs, *common, theirs]).encode())
    found = desk.workbench.sync_task(desk.task.id, fetch=True)
    named = {conflict.path: conflict for conflict in found.conflicts}
    part = f"<<<<<<< ours\n{ours}=======\n{theirs}>>>>>>> theirs\n"
    long = "@@ line 10 @@\n(too long to be shown)\n"
    assert named["f"].excerpt == f"@@ line 1 @@\n{part}{long}@@ line 218 @@\n{part}"
    assert (named["new"].merged, named["new"].excerpt) == (None, None)
    assert "take a side, or send the content" in found.note


@pytest.mark.parametrize(
    ("lines", "changed"),
    [([f"{number:08} {'x' * 90}\n" for number in range(74_000)], [37_000]),
     (["\n", "a\n", "b\n", "c\n", "d\n"] * 40_000, list(range(0, 200_000, 5)))],
    ids=["large", "many"],
)  # fmt: skip
def test_a_conflict_in_a_large_file_is_shown(desk: Desk, lines: list[str], changed: list[int]) -> None:
    """The difference takes more memory than most commands of git."""
    advance(desk, "f", "".join(lines).encode())
    desk.workbench.sync_task(desk.task.id, fetch=True)
    ours, theirs = ([*lines] for _ in range(2))
    for number in changed:
        ours[number], theirs[number] = "ours\n", "theirs\n"
    desk.write("f", "".join(ours).encode())
    desk.workbench.commit(desk.task.id, "ours")
    advance(desk, "f", "".join(theirs).encode())
    (conflict,) = desk.workbench.sync_task(desk.task.id, fetch=True).conflicts
    part = "<<<<<<< ours\nours\n=======\ntheirs\n>>>>>>> theirs\n"
    assert (conflict.excerpt or "").startswith(f"@@ line {changed[0] + 1} @@\n{part}")


def test_a_conflict_of_which_no_difference_fits_into_memory_is_still_listed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(git: Git, *args: str, **options: Any) -> bytes:
        if args[0] == "diff":
            raise out_of_memory_error("diff", "")
        return run(git, *args, **options)

    run = Git.run
    monkeypatch.setattr(Git, "run", refuse)
    lines = [f"line {number}\n" for number in range(3000)]
    desk.write("f", "".join([*lines, "ours\n"]).encode())
    advance(desk, "f", "".join([*lines, "theirs\n"]).encode())
    found = desk.workbench.sync_task(desk.task.id, fetch=True)
    assert [(one.path, one.merged, one.excerpt) for one in found.conflicts] == [("f", None, None)]
    assert "no text can be shown" in found.note


def test_the_note_about_conflicts_beyond_the_first_says_how_to_see_them(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "MERGED_TEXTS", 1)
    monkeypatch.setattr(conflict_texts, "MERGED_TEXTS", 1)
    desk.write("new", b"ours\n")
    desk.write("f", b"ours\n")
    desk.upstream.write("new", b"theirs\n")
    advance(desk, "f", b"theirs\n")
    found = desk.workbench.sync_task(desk.task.id, fetch=True)
    first, second = found.conflicts
    assert (first.merged is None, second.merged) == (False, None)
    assert found.note == "Only the first 1 conflicts have a text: sync with an answer for those to see the next"
    left = desk.workbench.sync_task(desk.task.id, resolutions=[answer(first, take="ours")])
    assert [one.merged is None for one in left.conflicts] == [False]
    assert left.note == ""


def test_a_conflict_in_a_file_with_crlf_is_resolved_with_the_line_ends_that_were_shown(desk: Desk) -> None:
    advance(desk, "f", b"one\r\ntwo\r\n")
    desk.workbench.sync_task(desk.task.id, fetch=True)
    desk.write("f", b"one\r\nours\r\n")
    advance(desk, "f", b"one\r\ntheirs\r\n")
    found = desk.workbench.sync_task(desk.task.id, fetch=True)
    marked = "one\r\n<<<<<<< ours\r\nours\r\n=======\r\ntheirs\r\n>>>>>>> theirs\r\n"
    assert [conflict.merged for conflict in found.conflicts] == [marked]
    document = success(TOOLS["space_repo_sync"], found).structured_content
    merged = document["conflicts"][0]["merged"]
    assert merged == marked
    kept = "".join(line for line in merged.splitlines(keepends=True) if line[:1] not in "<=>")
    desk.workbench.sync_task(desk.task.id, resolutions=[answer(found.conflicts[0], content=kept)])
    assert (desk.root / "f").read_bytes() == b"one\r\nours\r\ntheirs\r\n"


def test_each_conflict_is_resolved_by_a_side_or_by_content(desk: Desk) -> None:
    conflict_in_each_kind(desk)
    named = {c.path: c for c in desk.workbench.sync_task(desk.task.id, fetch=True).conflicts}
    some = [answer(named["f"], content="both\n"), answer(named["run"], take="theirs")]
    left = desk.workbench.sync_task(desk.task.id, resolutions=some)
    assert [c.path for c in left.conflicts] == ["d/e/x", "new"]
    answers = [*some, answer(named["d/e/x"], take="theirs"), answer(named["new"], take="ours")]
    done = desk.workbench.sync_task(desk.task.id, resolutions=answers)
    assert done.state is SyncState.SYNCED
    assert (desk.root / "f").read_bytes() == b"both\n"
    assert (desk.root / "run").read_bytes() == b"#!/bin/sh\nexit\n"
    assert (desk.root / "new").read_bytes() == b"ours\n"
    assert not (desk.root / "d" / "e" / "x").exists()
    assert [c.path for c in done.changes] == ["f", "new"]


def test_an_answer_to_another_conflict_is_stale(desk: Desk) -> None:
    desk.write("f", b"ours\n")
    advance(desk, "f", b"theirs\n")
    (seen,) = desk.workbench.sync_task(desk.task.id, fetch=True).conflicts
    desk.write("f", b"ours, later\n")
    before = on_disk(desk.root)
    with refused(ErrorCode.STALE_HASH):
        desk.workbench.sync_task(desk.task.id, resolutions=[answer(seen, take="theirs")])
    with refused(ErrorCode.STALE_HASH):
        stray = seen.model_copy(update={"path": "run"})
        desk.workbench.sync_task(desk.task.id, resolutions=[answer(stray, take="theirs")])
    with refused(ErrorCode.INVALID_INPUT):
        desk.workbench.sync_task(desk.task.id, resolutions=[answer(seen)])
    assert on_disk(desk.root) == before


def test_a_file_against_a_directory_is_no_choice_of_a_side(desk: Desk) -> None:
    desk.write("d/e/x", b"ours\n")
    desk.upstream.git("rm", "-rq", "d")
    (desk.upstream.root / "d").symlink_to("/etc")
    desk.upstream.commit()
    found = desk.workbench.sync_task(desk.task.id, fetch=True)
    structural = next(c for c in found.conflicts if c.kind is ConflictKind.FILE_OR_DIRECTORY)
    assert structural.path == "d"
    with refused(ErrorCode.INVALID_INPUT):
        desk.workbench.sync_task(desk.task.id, resolutions=[answer(c, take="theirs") for c in found.conflicts])


def test_uncommitted_changes_on_top_of_commits_are_refused(desk: Desk) -> None:
    desk.write("mine", b"mine\n")
    desk.workbench.commit(desk.task.id, "mine")
    desk.write("mine", b"more\n")
    advance(desk)
    with refused(ErrorCode.DIRTY_WORKSPACE):
        desk.workbench.sync_task(desk.task.id, fetch=True)


def test_an_ignored_file_in_the_way_stops_a_sync_and_is_kept(desk: Desk) -> None:
    desk.write("made.log", b"precious")
    desk.write("f", b"ours\n")
    advance(desk, "made.log", b"theirs\n")
    before = on_disk(desk.root)
    with refused(ErrorCode.CONFLICT):
        desk.workbench.sync_task(desk.task.id, fetch=True)
    assert on_disk(desk.root) == before
    assert desk.workbench.task(desk.task.id) == desk.task


def test_only_a_branch_or_a_commit_of_the_base_branch_may_become_the_base(desk: Desk) -> None:
    desk.upstream.git("checkout", "-q", "-b", "other")
    other = advance(desk, "ci", b"strange\n")
    desk.upstream.git("checkout", "-q", "main")
    tip = advance(desk)
    with refused(ErrorCode.INVALID_INPUT):
        desk.workbench.sync_task(desk.task.id, other, fetch=True)
    assert desk.workbench.sync_task(desk.task.id, tip).base_commit == tip
    desk.workbench.sync_task(desk.task.id, "other")
    assert desk.workbench.task(desk.task.id).base_branch == "other"


def test_a_fork_of_the_state_before_a_sync_starts_from_the_old_base(desk: Desk) -> None:
    desk.write("f", b"one\ntwo\nthree\n")
    advance(desk)
    done = desk.workbench.sync_task(desk.task.id, fetch=True)
    assert done.previous is not None
    fork = desk.workbench.fork_task(desk.task.id, done.previous.id)
    assert (fork.base_commit, fork.head_commit) == (desk.task.base_commit, desk.task.head_commit)
    assert [file.path for file in desk.workbench.diff(fork.id).files] == ["f"]


def test_a_sync_after_a_push_is_pushed_without_force(desk: Desk) -> None:
    desk.write("mine", b"mine\n")
    desk.workbench.commit(desk.task.id, "mine")
    assert not desk.workbench.push(desk.task.id).forced
    advance(desk)
    done = desk.workbench.sync_task(desk.task.id, fetch=True)
    sent = desk.workbench.push(desk.task.id)
    assert (sent.commit, sent.forced) == (done.head_commit, False)
    desk.workbench.update_repository(desk.repo_id)
    for move in (desk.workbench.sync_task, desk.workbench.checkout_task):
        with refused(ErrorCode.INVALID_INPUT):
            move(desk.task.id, desk.task.branch)
    desk.workbench.close_task(desk.task.id, delete_worktree=True)
    assert not [ref for ref in desk.refs() if desk.task.id in ref and "/remotes/" not in ref]


def test_a_branch_that_was_moved_without_a_record_is_moved_back(desk: Desk) -> None:
    advance(desk)
    tip = advance(desk, "later", b"later\n")
    desk.workbench.update_repository(desk.repo_id)
    desk.git("update-ref", f"refs/heads/{desk.task.branch}", tip)
    assert ("commit", desk.task.id) in {(found.kind, found.name) for found in desk.workbench.collect().leftovers}
    assert desk.git("rev-parse", f"refs/heads/{desk.task.branch}").strip() == desk.task.head_commit


# --- checkout


def test_a_checkout_takes_uncommitted_changes_along(desk: Desk) -> None:
    desk.upstream.git("checkout", "-q", "-b", "release")
    release = advance(desk, "version", b"2\n")
    desk.write("f", b"one\ntwo\nthree\n")
    done = desk.workbench.checkout_task(desk.task.id, "release", fetch=True)
    assert (done.base_commit, done.head_commit, done.base_branch) == (release, release, "release")
    assert [c.path for c in done.changes] == ["f"]
    assert (desk.root / "version").read_bytes() == b"2\n"
    back = desk.workbench.checkout_task(desk.task.id, "main")
    assert (back.base_commit, back.ahead) == (desk.task.base_commit, 0)
    assert not (desk.root / "version").exists()
    assert (desk.root / "f").read_bytes() == b"one\ntwo\nthree\n"


def test_a_checkout_where_the_changes_do_not_apply_changes_nothing(desk: Desk) -> None:
    desk.write("f", b"ours\n")
    tip = advance(desk, "f", b"theirs\n")
    before = on_disk(desk.root)
    with refused(ErrorCode.CONFLICT) as caught:
        desk.workbench.checkout_task(desk.task.id, tip, fetch=True)
    assert caught.value.data == {"paths": ["f"]}
    assert (on_disk(desk.root), desk.workbench.task(desk.task.id)) == (before, desk.task)


def test_a_task_with_commits_is_not_moved_away_from_them(desk: Desk) -> None:
    desk.write("mine", b"mine\n")
    desk.workbench.commit(desk.task.id, "mine")
    tip = advance(desk)
    with refused(ErrorCode.CONFLICT):
        desk.workbench.checkout_task(desk.task.id, tip, fetch=True)


def test_a_comparison_with_the_base_from_before_a_move_is_refused(desk: Desk) -> None:
    services = desk.workbench._services  # the use-cases below the facade
    stale = lifecycle.read_base(services, desk.task)
    advance(desk)
    desk.workbench.sync_task(desk.task.id, fetch=True)
    moved = desk.workbench.task(desk.task.id)
    with refused(ErrorCode.CONFLICT), lifecycle.compare_task(services, moved, task_base=stale):
        pass
    with lifecycle.compare_task(services, moved) as opened:
        assert not opened.changes.tree


def test_the_command_exits_with_four_until_each_conflict_has_an_answer(desk: Desk, tmp_path: Path) -> None:
    sandbox = Command(desk.home)
    desk.write("f", b"ours\n")
    desk.write("run", b"ours\n")
    desk.upstream.write("run", b"theirs\n")
    advance(desk, "f", b"theirs\n")
    listed = sandbox("task", "sync", desk.task.id)
    assert listed.code == 4
    named = [line.split(maxsplit=1)[1] for line in listed.stdout.splitlines()]
    merged = tmp_path / "merged"
    merged.write_bytes(b"both\r\n")
    done = sandbox.ok("task", "sync", desk.task.id, "--edited", named[0], str(merged), "--theirs", named[1])
    assert (done["state"], done["conflicts"]) == ("synced", [])
    assert ((desk.root / "f").read_bytes(), (desk.root / "run").read_bytes()) == (b"both\r\n", b"theirs\n")
    assert sandbox("task", "sync", desk.task.id, "--ours", "f").code == 2


# --- a remote whose history was rewritten


def rewrite(desk: Desk) -> str:
    """The remote's last commit is dropped by a force push, and another one is there instead."""
    assert desk.upstream.git("ls-files", "secret.env"), "void"
    desk.upstream.git("reset", "-q", "--hard", "HEAD~1")
    return advance(desk)


def begin_at_secret(desk: Desk) -> Task:
    advance(desk, "secret.env", b"oops\n")
    return desk.workbench.create_task(desk.repo_id, fetch=True)


def test_s224_a_task_with_commits_is_not_synced_over_commits_that_the_remote_has_dropped(desk: Desk) -> None:
    """Control: before they were dropped, a sync makes a merge commit."""
    task = begin_at_secret(desk)
    other = desk.workbench.create_task(desk.repo_id)
    for each in (task, other):
        (desk.worktree(each) / "mine").write_bytes(b"mine\n")
        desk.workbench.commit(each.id, "mine")
    advance(desk, "later.txt", b"later\n")
    assert desk.workbench.sync_task(other.id, fetch=True).state is SyncState.SYNCED, "void"
    desk.upstream.git("reset", "-q", "--hard", "HEAD~1")
    new = rewrite(desk)
    before = desk.workbench.task(task.id)
    for each in (task, other):
        with refused(ErrorCode.CONFLICT) as caught:
            desk.workbench.sync_task(each.id, fetch=True)
        assert caught.value.reason == "upstream_rewritten"
        assert f"task create {desk.repo_id} --base main" in caught.value.hint
    assert desk.workbench.task(task.id) == before
    assert new == desk.workbench.create_task(desk.repo_id).base_commit


def test_s224_a_task_without_commits_moves_to_the_rewritten_branch_and_keeps_none_of_the_old(desk: Desk) -> None:
    task = begin_at_secret(desk)
    (desk.worktree(task) / "mine").write_bytes(b"mine\n")
    new = rewrite(desk)
    done = desk.workbench.sync_task(task.id, fetch=True)
    assert (done.state, done.head_commit, done.base_commit, done.ahead) == (SyncState.SYNCED, new, new, 0)
    assert [change.path for change in done.changes] == ["mine"]
    assert not (desk.worktree(task) / "secret.env").exists()
    assert "was rewritten" in done.note


@pytest.mark.parametrize("is_merged", [True, False])
def test_s224_a_base_branch_that_is_gone_is_answered_with_what_works(desk: Desk, *, is_merged: bool) -> None:
    """It was merged as it is, or as one new commit (squash): then its commits are on no branch any more."""
    desk.upstream.git("checkout", "-q", "-b", "feature")
    advance(desk, "feature.txt", b"feature\n")
    task = desk.workbench.create_task(desk.repo_id, "", "feature", fetch=True)
    (desk.worktree(task) / "mine").write_bytes(b"mine\n")
    desk.workbench.commit(task.id, "mine")
    desk.upstream.git("checkout", "-q", "main")
    if is_merged:
        desk.upstream.git("merge", "-q", "--no-ff", "--no-edit", "feature")
    else:
        advance(desk, "feature.txt", b"feature, reviewed\n")
    desk.upstream.git("branch", "-q", "-D", "feature")
    with refused(ErrorCode.NOT_FOUND) as caught:
        desk.workbench.sync_task(task.id, fetch=True)
    assert ("--onto main" in caught.value.hint) is is_merged
    assert (f"task create {desk.repo_id} --base main" in caught.value.hint) is not is_merged
    if is_merged:
        assert desk.workbench.sync_task(task.id, "main").state is SyncState.SYNCED


def test_s224_a_task_without_commits_moves_back_with_its_branch(desk: Desk) -> None:
    """The force push added no commit: the task had all of the branch, and one more became its own."""
    task, first = begin_at_secret(desk), desk.task.base_commit
    desk.upstream.git("reset", "-q", "--hard", "HEAD~1")
    done = desk.workbench.sync_task(task.id, fetch=True)
    assert (done.head_commit, done.base_commit, done.ahead) == (first, first, 0)
    assert not (desk.worktree(task) / "secret.env").exists()


def test_s224_a_fork_and_a_task_at_a_commit_know_that_their_base_was_of_the_remote(desk: Desk) -> None:
    task = begin_at_secret(desk)
    named = desk.workbench.create_task(desk.repo_id, base_branch=task.base_commit)
    fork = desk.workbench.fork_task(task.id)
    new = rewrite(desk)
    desk.workbench.update_repository(desk.repo_id)
    assert {desk.workbench.sync_task(each.id, "main").head_commit for each in (named, fork)} == {new}


def test_a_base_that_was_on_no_branch_stays_among_the_tasks_own_commits(desk: Desk) -> None:
    """Those of another task, or of a pull request, are what the task continues: also after the branch went on."""
    desk.write("theirs", b"theirs\n")
    tip = desk.workbench.commit(desk.task.id, "theirs").commit
    task = desk.workbench.create_task(desk.repo_id, base_branch=tip)
    advance(desk)
    done = desk.workbench.sync_task(task.id, "main", fetch=True)
    assert (done.state, done.ahead) == (SyncState.SYNCED, 2)


# --- a base branch that is gone


@pytest.mark.parametrize("renamed", [True, False], ids=["renamed default branch", "deleted base branch"])
def test_a_sync_names_the_branch_to_merge_instead_of_one_that_is_gone(desk: Desk, *, renamed: bool) -> None:
    if renamed:
        task = desk.task
        desk.upstream.git("branch", "-q", "-m", "main", "trunk")
    else:
        desk.upstream.git("branch", "-q", "topic")
        task = desk.workbench.create_task(desk.repo_id, base_branch="topic", fetch=True)
        desk.upstream.git("branch", "-q", "-D", "topic")
    tip, default = advance(desk), "trunk" if renamed else "main"
    with refused(ErrorCode.NOT_FOUND) as caught:
        desk.workbench.sync_task(task.id, fetch=True)
    assert f"task sync {task.id} --onto {default}" in caught.value.hint
    assert task.base_branch in caught.value.brief
    done = desk.workbench.sync_task(task.id, default)
    assert (done.base_commit, desk.workbench.task(task.id).base_branch) == (tip, default)
