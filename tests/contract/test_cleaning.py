"""A clean takes away what no commit would hold, in both layouts, and nothing else. Ids: THREATS L04, L05, P03."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.inventory import left_behind
from devtools.requirement import unavailable
from sandbox.cli import main
from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.files.overlay_mounts import find_overlay_obstacle
from sandbox.store.home import Home
from sandbox.workbench import Workbench
from sandbox.workbench.tasks import worktrees
from sandbox.workspaces import changes
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk, on_disk

MASK = ".git"


@pytest.fixture(params=["overlay", "plain"])
def desk(request: pytest.FixtureRequest, upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    if request.param == "overlay" and (reason := find_overlay_obstacle(tmp_path)):
        unavailable(f"no overlay mounts here: {reason}")
    home = tmp_path / "sandbox-home"
    home.mkdir()
    (home / "config.toml").write_text(f'[workspaces]\nworktree = "{request.param}"\n')
    desk = Desk(upstream, home)
    with desk.workbench:
        yield desk
    unmount_below(tmp_path)


def leave_a_mess(desk: Desk) -> None:
    """Ignored output, empty and deep folders, a special file, a nested repository, a link that leads out."""
    desk.write("noise.log", b"ignored")
    desk.write("build/deep/output", b"built")
    deep = desk.root / "build"
    for _ in range(150):
        deep = deep / "d"
        deep.mkdir()
    (desk.root / "empty" / "folder").mkdir(parents=True)
    os.mkfifo(desk.root / "pipe")
    desk.write("nested/.git/config", b"[core]\n")
    (desk.root / "out").symlink_to("/etc/passwd")
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(desk.root)  # a socket's path is short
        try:
            bound.bind("socket")
        finally:
            os.chdir(here)


def change(desk: Desk) -> dict[str, tuple[str, bytes]]:
    """Uncommitted changes of all kinds on a commit; returns the files as they are to be after a clean."""
    desk.write("committed", b"new in a commit\n")
    desk.workbench.commit(desk.task.id, "one")
    desk.write("f", b"changed\n")
    desk.write("tool", b"#!/bin/sh\n", executable=True)
    (desk.root / "d" / "y").unlink()
    (desk.root / "link").unlink()
    (desk.root / "link").symlink_to("d/e/x")
    return on_disk(desk.root)


def test_changes_stay_and_everything_else_goes(desk: Desk) -> None:
    wanted = change(desk)
    before = desk.workbench.status(desk.task.id)
    leave_a_mess(desk)
    cleaned = desk.workbench.clean_task(desk.task.id)
    assert on_disk(desk.root) == wanted
    assert not (desk.root / "empty").exists()
    assert desk.workbench.status(desk.task.id) == before
    assert (cleaned.changes, cleaned.rejected) == (before.changes, ())
    assert cleaned.previous is not None
    assert cleaned.previous.tree == cleaned.tree
    said = desk.workbench.log(desk.task.id)[-1]
    assert (said.operation, said.names, said.after) == ("clean", (cleaned.previous.id,), cleaned.tree)
    assert [x for x in left_behind(desk.home) if "/presence/" not in x] == []
    assert desk.workbench.write_file(desk.task.id, "later", b"works\n", None).files


def test_a_clean_of_a_clean_task_is_no_change_and_takes_no_second_snapshot(desk: Desk) -> None:
    wanted = change(desk)
    first = desk.workbench.clean_task(desk.task.id)
    second = desk.workbench.clean_task(desk.task.id)
    assert on_disk(desk.root) == wanted
    assert first.previous is not None
    assert second.previous is not None
    assert first.previous.id == second.previous.id


def test_discard_goes_back_to_the_last_commit(desk: Desk) -> None:
    change(desk)
    leave_a_mess(desk)
    cleaned = desk.workbench.clean_task(desk.task.id, discard=True)
    assert (cleaned.dirty, cleaned.previous) == (False, None)
    assert (desk.root / "committed").read_bytes() == b"new in a commit\n"
    assert (desk.root / "f").read_bytes() == b"one\ntwo\n"
    assert not (desk.root / "tool").exists()


def test_what_is_too_large_to_be_kept_is_left_out_by_its_name(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: without the name it is refused, and all is as it was."""
    monkeypatch.setattr(changes, "CHANGED_BYTES", 10_000)
    desk.write("f", b"changed\n")
    desk.write("cores [1]/core *", bytes(9000))
    desk.write("cores [1]/core x", bytes(9000))
    before = on_disk(desk.root)
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        desk.workbench.clean_task(desk.task.id)
    assert "--without" in caught.value.hint
    assert on_disk(desk.root) == before
    cleaned = desk.workbench.clean_task(desk.task.id, ["cores [1]/core *"])
    assert {c.path for c in cleaned.changes} == {"f", "cores [1]/core x"}
    assert not (desk.root / "cores [1]" / "core *").exists()
    cleaned = desk.workbench.clean_task(desk.task.id, ["cores [1]/"])
    assert {c.path for c in cleaned.changes} == {"f"}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("f", ErrorCode.INVALID_INPUT),
        ("../x", ErrorCode.UNSAFE_PATH),
        (".git", ErrorCode.UNSAFE_PATH),
        ("", ErrorCode.UNSAFE_PATH),
    ],
)
def test_only_new_files_can_be_left_out(path: str, code: ErrorCode, desk: Desk) -> None:
    desk.write("f", b"changed\n")
    with refused(code):
        desk.workbench.clean_task(desk.task.id, [path])
    assert (desk.root / "f").read_bytes() == b"changed\n"


def test_a_tracked_file_below_a_folder_that_is_left_out_stays(desk: Desk) -> None:
    desk.write("d/e/x", b"changed\n")
    desk.write("d/new", b"new\n")
    cleaned = desk.workbench.clean_task(desk.task.id, ["d"])
    assert [c.path for c in cleaned.changes] == ["d/e/x"]


def test_a_lost_worktree_comes_back_from_its_last_snapshot_or_commit(desk: Desk) -> None:
    change(desk)
    kept = desk.workbench.snapshot(desk.task.id)
    wanted = on_disk(desk.root)
    services = desk.workbench._services
    worktrees.delete_worktree(
        services, worktrees.locate_worktree(services.home, services.policies, desk.repo_id, desk.task.id)
    )
    with refused(ErrorCode.NOT_FOUND) as caught:
        desk.workbench.status(desk.task.id)
    assert f"sandbox task clean {desk.task.id}" in caught.value.hint
    cleaned = desk.workbench.clean_task(desk.task.id)
    assert (cleaned.dirty, cleaned.previous and cleaned.previous.id) == (True, kept.id)
    assert on_disk(desk.root) == wanted
    head = desk.workbench.commit(desk.task.id, "two").tree
    worktrees.delete_worktree(
        services, worktrees.locate_worktree(services.home, services.policies, desk.repo_id, desk.task.id)
    )
    cleaned = desk.workbench.clean_task(desk.task.id)
    assert (cleaned.dirty, cleaned.tree, cleaned.previous) == (False, head, None)
    assert on_disk(desk.root) == wanted


def test_when_the_new_worktree_cannot_be_made_the_old_one_stays(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = change(desk)
    desk.write("noise.log", b"ignored")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(worktrees, "restore_tree", fail)
        with pytest.raises(OSError, match="disk full"):
            desk.workbench.clean_task(desk.task.id)
    assert on_disk(desk.root) == {**wanted, "noise.log": ("file", b"ignored")}
    assert [x for x in left_behind(desk.home) if "/presence/" not in x] == []


def test_a_container_that_nobody_can_end_keeps_the_files(desk: Desk) -> None:
    """It has the old files mounted, and the next check would use it. Control: without one no engine is asked."""
    desk.write("noise.log", b"ignored")
    Home(desk.home).report(desk.task.id).mkdir(parents=True)
    environ = {"PATH": os.environ["PATH"], "DOCKER_HOST": "unix:///nonexistent/engine.sock"}
    with Workbench(desk.home, environ=environ, allow_file=True) as workbench:
        with refused(ErrorCode.ENGINE_UNAVAILABLE):
            workbench.clean_task(desk.task.id)
        assert (desk.root / "noise.log").exists()
        Home(desk.home).report(desk.task.id).rmdir()
        workbench.clean_task(desk.task.id)
        assert not (desk.root / "noise.log").exists()


def test_the_command_line(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.write("f", b"changed\n")
    desk.write("noise.log", b"ignored")
    assert main(["--home", str(desk.home), "task", "clean", desk.task.id, "--discard", "--without", "x"]) == 2
    assert (desk.root / "noise.log").exists()
    assert main(["--home", str(desk.home), "task", "clean", desk.task.id]) == 0
    assert ": 1 uncommitted change(s)\n  saved as   snap-" in capsys.readouterr().out
    assert not (desk.root / "noise.log").exists()
