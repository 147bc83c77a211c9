"""Everything a killed controller can leave is found and taken away, and no work goes with it. THREATS P03, P12."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from devtools.inventory import left_behind
from devtools.requirement import unavailable
from sandbox.cli.app import main
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.mount_points import unmount_below
from sandbox.files.overlay_mounts import find_overlay_obstacle, is_mount_point
from sandbox.git import maintenance
from sandbox.git.process import Git
from sandbox.git.scratch_objects import scratch_objects
from sandbox.git.temporary_folders import VIEW_PREFIX, temporary_folder
from sandbox.models import Leftover, LeftoverAction, Task
from sandbox.store.home import Home
from sandbox.store.liveness import LiveController
from sandbox.store.records import save_task
from sandbox.workbench import Workbench
from sandbox.workbench.controller.services import build_services
from sandbox.workbench.tasks.worktrees import locate_worktree, unmount_worktree
from sandbox.workspaces.layout import WorktreePaths
from sandbox.workspaces.layout_choice import layout_of
from sandbox.workspaces.own_disk import has_disk, open_upper
from tests.unit.conftest import IDENTITY, Upstream, refused
from tests.unit.desk import Desk

pytestmark = pytest.mark.slow
REMOVED, KEPT, BUSY = LeftoverAction.REMOVED, LeftoverAction.KEPT, LeftoverAction.BUSY


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


def again(desk: Desk) -> Workbench:
    """Another controller on the same home."""
    return Workbench(desk.home, environ={"PATH": os.environ["PATH"]}, allow_file=True)


def collected(desk: Desk) -> list[Leftover]:
    """What gc does, with nobody else at work; a second one finds nothing more to do."""
    desk.workbench.__exit__(None, None, None)
    with again(desk) as other:
        planned = other.collect(dry_run=True).leftovers
        found = other.collect().leftovers
        told = {(x.kind, x.name) for x in found}  # also what others leave free: an index, a lock
        assert {(x.kind, x.name) for x in planned} <= told
        assert [x for x in other.collect().leftovers if x.action is not KEPT] == []
    return list(found)


def kinds(found: list[Leftover]) -> list[tuple[str, LeftoverAction]]:
    return sorted((x.kind, x.action) for x in found)


def record(desk: Desk, task: Task) -> Path:
    return desk.home / "repositories" / "tasks" / f"{task.id}.json"


def room(desk: Desk, name: str) -> Path:
    return desk.home / "repositories" / "rooms" / name


DIE_IN_A_ROOM = """
import os, signal, sys
from pathlib import Path
from sandbox.workbench.controller.services import build_services
from sandbox.workbench.repositories.repository_settings import AddedFiles
from sandbox.workbench.tasks.worktrees import clean_room
parts = build_services(Path(sys.argv[1]), {"PATH": os.environ["PATH"]}, allow_file=True)
_, git = parts.repositories.open(sys.argv[2])
with clean_room(parts, sys.argv[2], git, (sys.argv[3], sys.argv[3]), AddedFiles()) as root:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def die_in_a_room(desk: Desk) -> None:
    """A controller is killed while it has a clean room."""
    tree = desk.git("rev-parse", f"{desk.task.base_commit}^{{tree}}").strip()
    argv = [sys.executable, "-c", DIE_IN_A_ROOM, str(desk.home), desk.repo_id, tree]
    done = subprocess.run(argv, check=False, timeout=120, env={**os.environ, "PYTHONPATH": str(Path.cwd())})
    assert done.returncode == -signal.SIGKILL
    assert list(room(desk, "any").parent.iterdir())


def test_a_home_in_order_has_nothing_to_collect(desk: Desk) -> None:
    desk.write("f", b"changed\n")
    desk.workbench.snapshot(desk.task.id)
    desk.workbench.commit(desk.task.id, "a change")
    assert collected(desk) == []
    assert left_behind(desk.home) == []


def test_rooms_of_a_killed_controller_go_and_those_of_a_living_one_stay(desk: Desk) -> None:
    die_in_a_room(desk)
    services = build_services(desk.home, {"PATH": os.environ["PATH"]}, allow_file=True)
    living = room(desk, f"run-{services.presence.new_id()}")
    living.mkdir()
    with again(desk) as other:
        found = list(other.collect().leftovers)
    assert {x.kind for x in found} == {"room", "controller"}
    assert list(room(desk, "any").parent.iterdir()) == [living]
    living.rmdir()
    services.close()
    assert collected(desk) == []
    assert left_behind(desk.home) == []


def test_the_next_command_takes_rooms_of_a_killed_controller_away(desk: Desk) -> None:
    """Control: a look at the task, which changes nothing, leaves them."""
    die_in_a_room(desk)
    with again(desk) as other:
        other.status(desk.task.id)
        assert list(room(desk, "any").parent.iterdir())
        other.snapshot(desk.task.id)
        assert list(room(desk, "any").parent.iterdir()) == []
    desk.workbench.__exit__(None, None, None)
    assert left_behind(desk.home) == []


def test_a_worktree_without_a_record_is_rescued_to_a_ref(desk: Desk) -> None:
    desk.write("f", b"only here\n")
    desk.write("new/file", b"new\n")
    record(desk, desk.task).unlink()
    found = collected(desk)
    assert ("worktree", REMOVED) in kinds(found)
    (ref,) = [line.split()[0] for line in desk.refs() if "/rescued-" in line]
    assert ref in next(x.note for x in found if x.kind == "worktree")
    assert desk.git("show", f"{ref}:f") == "only here\n"
    assert desk.git("show", f"{ref}:new/file") == "new\n"
    assert desk.git("rev-parse", f"{ref}^").strip() == desk.task.head_commit
    assert not desk.root.exists()
    assert [line for line in left_behind(desk.home) if not line.startswith("ref ")] == []


def test_a_dry_run_tells_what_would_be_rescued_and_rescues_nothing(desk: Desk) -> None:
    desk.write("f", b"only here\n")
    desk.write("new/file", b"new\n")
    record(desk, desk.task).unlink()
    desk.workbench.__exit__(None, None, None)
    before = desk.refs()
    with again(desk) as other:
        (told,) = [x for x in other.collect(dry_run=True).leftovers if x.kind == "worktree"]
    assert told.note == f"2 changed file(s) would be kept under refs/sandbox/{desk.task.id}/: f, new/file"
    assert desk.refs() == before
    assert (desk.root / "f").read_bytes() == b"only here\n"


def test_a_dry_run_says_that_what_no_commit_can_hold_stays(desk: Desk) -> None:
    os.mkfifo(desk.root / "pipe")
    record(desk, desk.task).unlink()
    desk.workbench.__exit__(None, None, None)
    with again(desk) as other:
        (told,) = [x for x in other.collect(dry_run=True).leftovers if x.kind == "worktree"]
    assert told.action is KEPT
    assert "pipe" in told.note


@pytest.mark.parametrize("desk", ["overlay"], indirect=True)
def test_rescued_work_is_named_until_it_is_forgotten_by_its_name(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.write("f", b"only here\n")
    kept = desk.workbench.snapshot(desk.task.id)
    living = desk.workbench.snapshot(desk.workbench.fork_task(desk.task.id).id)
    record(desk, desk.task).unlink()
    collected(desk)
    refs = [line.split()[0] for line in desk.refs() if line.startswith(f"refs/sandbox/{desk.task.id}/")]
    other_refs = [line for line in desk.refs() if living.id in line]
    (rescued,) = [ref for ref in refs if "/rescued-" in ref]

    def gc(*options: str) -> tuple[int, str, str]:
        code = main(["--home", str(desk.home), "gc", *options])
        return code, *capsys.readouterr()

    code, out, _ = gc()
    assert code == 0
    assert (
        f"kept rescued work {rescued}  (its task has no record; `sandbox --home {desk.home} gc --forget {rescued}`"
        in out
    )
    assert f"kept snapshot refs/sandbox/{desk.task.id}/snapshots/{kept.id}" in out
    assert out.endswith("No other leftovers were found.\n")
    unknown = other_refs[0].split()[0]
    code, _, err = gc("--forget", rescued, "--forget", unknown)
    assert (code, rescued in "".join(desk.refs())) == (2, True), "one that has a task: nothing is lost"
    assert unknown in err
    code, out, _ = gc("--forget", rescued)
    assert (code, out.startswith(f"removed rescued work {rescued}  (it was commit ")) == (0, True)
    assert rescued not in gc()[1]
    gc(*(word for ref in refs if ref != rescued for word in ("--forget", ref)))
    assert gc()[1].startswith("removed clone objects "), "what was given up leaves the clone"
    assert gc()[1] == "No leftovers were found.\n"
    assert [line for line in desk.refs() if living.id in line] == other_refs


def test_a_clean_worktree_without_a_record_goes_with_its_branch(desk: Desk) -> None:
    record(desk, desk.task).unlink()
    found = collected(desk)
    assert {"worktree", "branch"} <= {x.kind for x in found}
    assert left_behind(desk.home) == []
    assert not [ref for ref in desk.refs() if desk.task.id in ref]


def test_a_branch_with_commits_of_its_own_stays_and_is_named(desk: Desk) -> None:
    desk.write("f", b"committed\n")
    commit = desk.workbench.commit(desk.task.id, "precious").commit
    record(desk, desk.task).unlink()
    found = collected(desk)
    assert ("branch", KEPT) in kinds(found)
    assert any(commit in ref for ref in desk.refs())


def test_a_damaged_record_keeps_its_worktree_and_its_work_is_rescued(desk: Desk) -> None:
    desk.write("f", b"only here\n")
    record(desk, desk.task).write_text("{")
    found = collected(desk)
    assert kinds(found) == [("changes", LeftoverAction.RESCUED), ("worktree", KEPT)]
    assert (desk.root / "f").read_bytes() == b"only here\n"
    (ref,) = [line.split()[0] for line in desk.refs() if "/rescued-" in line]
    assert desk.git("show", f"{ref}:f") == "only here\n"


def test_what_no_commit_can_hold_keeps_its_worktree(desk: Desk) -> None:
    desk.write("f", b"only here\n")
    os.mkfifo(desk.root / "pipe")
    record(desk, desk.task).unlink()
    found = collected(desk)
    (kept,) = [x for x in found if x.kind == "worktree"]
    assert kept.action is KEPT
    assert "pipe" in kept.note
    assert (desk.root / "f").read_bytes() == b"only here\n"


def test_without_its_branch_a_changed_worktree_stays(desk: Desk) -> None:
    desk.write("f", b"only here\n")
    record(desk, desk.task).unlink()
    desk.git("update-ref", "-d", f"refs/heads/{desk.task.branch}")
    (kept,) = collected(desk)
    assert (kept.kind, kept.action) == ("worktree", KEPT)
    assert (desk.root / "f").read_bytes() == b"only here\n"


def test_a_mount_of_a_closed_task_goes_and_its_changes_stay(desk: Desk) -> None:
    desk.write("f", b"kept\n")
    desk.workbench.close_task(desk.task.id)
    services = build_services(desk.home, {"PATH": os.environ["PATH"]}, allow_file=True)
    site = locate_worktree(services.home, services.policies, desk.repo_id, desk.task.id)
    layout_of(site).ensure_mounted(site)
    mounted = is_mount_point(site.root)
    assert mounted == site.layers.is_dir()
    assert kinds(collected(desk)) == ([("mount", REMOVED)] if mounted else [])
    assert not is_mount_point(site.root)
    assert [c.path for c in again(desk).status(desk.task.id).changes] == ["f"]


def test_a_task_without_its_worktree_is_named(desk: Desk) -> None:
    services = build_services(desk.home, {"PATH": os.environ["PATH"]}, allow_file=True)
    site = locate_worktree(services.home, services.policies, desk.repo_id, desk.task.id)
    unmount_worktree(site)
    shutil.rmtree(site.root)
    shutil.rmtree(site.layers, ignore_errors=True)
    (named,) = collected(desk)
    assert (named.kind, named.name, named.action) == ("task", desk.task.id, KEPT)
    assert again(desk).close_task(desk.task.id).status == "closed"


def test_a_commit_that_was_not_told_is_taken_back_and_its_changes_stay(desk: Desk) -> None:
    before = record(desk, desk.task).read_bytes()
    desk.write("f", b"changed\n")
    commit = desk.workbench.commit(desk.task.id, "killed").commit
    record(desk, desk.task).write_bytes(before)
    (told,) = collected(desk)
    assert (told.kind, told.action) == ("commit", LeftoverAction.RESTORED)
    assert desk.git("rev-parse", f"refs/heads/{desk.task.branch}").strip() == desk.task.head_commit
    with again(desk) as other:
        assert other.status(desk.task.id).dirty
        assert other.commit(desk.task.id, "again").commit != desk.task.head_commit
        assert desk.git("cat-file", "-t", commit).strip() == "commit"


def test_a_commit_works_after_one_that_was_killed(desk: Desk) -> None:
    before = record(desk, desk.task).read_bytes()
    desk.write("f", b"changed\n")
    desk.workbench.commit(desk.task.id, "killed")
    record(desk, desk.task).write_bytes(before)
    desk.write("f", b"changed more\n")
    done = desk.workbench.commit(desk.task.id, "the next one")
    assert desk.git("rev-parse", f"{done.commit}^").strip() == desk.task.head_commit
    assert desk.git("rev-parse", f"refs/heads/{desk.task.branch}").strip() == done.commit


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock file as another process would."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(fd)


def test_a_busy_task_is_left_alone_and_named(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    record(desk, desk.task).unlink()
    with held(desk.home / "repositories" / "locks" / f"{desk.task.id}.lock"), again(desk) as other:
        found = list(other.collect().leftovers)
        assert {x.action for x in found} == {BUSY}
        assert {x.note for x in found} == {f"Another operation on {desk.task.id} is still running"}
        assert desk.root.is_dir()
        capsys.readouterr()
        assert main(["--home", str(desk.home), "gc"]) == 0
        assert capsys.readouterr().out.endswith("Some of it is in use: run `sandbox gc` again later.\n")
    assert ("worktree", REMOVED) in kinds(collected(desk))


def test_files_that_were_being_written_go_unless_their_writer_lives(desk: Desk) -> None:
    repositories = desk.home / "repositories"
    places = [desk.home, repositories, repositories / "tasks", repositories / "pristine" / desk.repo_id]
    places += [repositories / "trust" / desk.repo_id, desk.home / "quarantine", desk.home / "init" / "some-image"]
    left = [place / f".name.{number:012x}.tmp" for number, place in enumerate(places)]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    living = repositories / "tasks" / ".name.abcdefabcdef.tmp"
    with held(living), again(desk) as other:
        assert kinds(list(other.collect().leftovers)) == [("temporary file", REMOVED)] * len(left)
        assert living.exists()
    assert kinds(collected(desk)) == [("temporary file", REMOVED)]


HALVES: dict[str, Callable[[Path, str], Path]] = {
    "checkout": lambda at, repo: at / "pristine" / repo / f".{'a' * 40}.01234567",
    "clone": lambda at, repo: at / "clones" / f".{repo}.incoming",
    "removal": lambda at, repo: at / "clones" / f".{repo}.removed-0123456789abcdef",
    "removal of trust": lambda at, repo: at / "trust" / f".{repo}.removed-0123456789abcdef",
    "probe": lambda at, _: at / ".overlay-probe-abcdefgh",
    "disk template": lambda at, _: at / "disks" / ".4096-64.img.01234567",
    "object": lambda at, repo: at / "clones" / repo / "objects" / "pack" / "tmp_pack_abcdef",
    "scratch objects": lambda at, repo: at / "clones" / repo / "looks" / "look-abcdefgh",
    "object of a crash": lambda at, repo: at / "clones" / repo / "fast_import_crash_4711",
    "stat index": lambda at, _: at / "tasks" / "task-00000000-0000-4000-8000-000000000000.stat",
    "lock": lambda at, _: at / "locks" / "mount-task-00000000-0000-4000-8000-000000000000.lock",
}


def test_what_was_half_made_goes(desk: Desk) -> None:
    made = {kind: place(desk.home / "repositories", desk.repo_id) for kind, place in HALVES.items()}
    young = {"probe", "disk template"}
    for kind, path in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind in {"disk template", "object", "object of a crash", "stat index", "lock"}:
            path.touch()
        else:
            (path / "folder").mkdir(parents=True)
            (path / "folder" / "file").touch()
    found = kinds(collected(desk))
    for kind in young:
        assert kind not in dict(found), "another thread of this controller may be making it"
        os.utime(made[kind], (0, 0))
    found += kinds(collected(desk))
    assert Counter(kind.partition(" of ")[0] for kind in made) == Counter(
        kind for kind, action in found if action is REMOVED
    )
    assert [path for path in made.values() if path.exists()] == []
    assert left_behind(desk.home) == []


def test_what_another_controller_may_be_making_stays(desk: Desk) -> None:
    """Probes and git's own files say nothing of their owner: they are judged when nobody else is at work."""
    other = LiveController(desk.home / "repositories" / "presence")
    paths = [HALVES[kind](desk.home / "repositories", desk.repo_id) for kind in ("probe", "scratch objects", "object")]
    paths[0].mkdir()
    paths[1].mkdir(parents=True)
    paths[2].touch()
    os.utime(paths[0], (0, 0))
    assert collected(desk) == []
    other.end()
    assert kinds(collected(desk)) == [("object", REMOVED), ("probe", REMOVED), ("scratch objects", REMOVED)]


def test_the_objects_of_a_look_that_goes_on_stay(desk: Desk) -> None:
    """Also when no other controller is alive: the look may be one of this controller."""
    git = Git(desk.home / "repositories" / "clones" / desk.repo_id)
    with scratch_objects(git) as aside:
        assert collected(desk) == []
        assert aside.new_objects is not None
        assert aside.new_objects.is_dir()


DIE_IN_A_VIEW = """
import os, signal, sys
from pathlib import Path
from sandbox.git.local.view import view_local_repository
from sandbox.git.process import Git
with view_local_repository(Git(Path(sys.argv[1])), Path(sys.argv[1]), 100) as view:
    print(view.path, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_view_of_a_local_remote_goes_after_a_kill(
    desk: Desk, upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: one that is used, and a new one, stay."""
    place = tmp_path / "temporary"
    place.mkdir()
    environ = {**os.environ, "PYTHONPATH": str(Path.cwd()), "TMPDIR": str(place)}
    argv = [sys.executable, "-c", DIE_IN_A_VIEW, str(upstream.git_dir)]
    done = subprocess.run(argv, check=False, timeout=120, env=environ, capture_output=True, text=True)
    left = Path(done.stdout.strip())
    assert done.returncode == -signal.SIGKILL
    assert left.is_dir(), "void"
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with temporary_folder(VIEW_PREFIX) as used:
        new = place / f"{VIEW_PREFIX}new"
        new.mkdir()
        for path in (left, used):
            os.utime(path, (0, 0))
        assert collected(desk) == []
        assert sorted(place.iterdir()) == sorted([used, new])


def test_refs_of_pull_requests_go_when_a_clone_is_packed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their commits stay for a day; what a task needs is on its branch."""
    git = Git(desk.home / "repositories" / "clones" / desk.repo_id)
    commit = git.run("commit-tree", f"{desk.task.base_commit}^{{tree}}", "-m", "x", env=IDENTITY).decode().strip()
    for name, oid in {"7/head": commit, "8/merge": desk.task.base_commit}.items():
        git.run("update-ref", f"refs/requests/{name}", oid)
    assert collected(desk) == []
    monkeypatch.setattr(maintenance, "MANY_LOOSE", 0)
    desk.workbench.collect()
    assert git.run("for-each-ref", "refs/requests") == b""
    assert git.run("cat-file", "-t", commit) == b"commit\n"
    assert git.run("for-each-ref", "refs/heads/space-agent") != b""


def test_a_task_that_is_made_meanwhile_is_no_orphan(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: the worktree is there, and its record is not."""
    seen: list[list[Leftover]] = []

    def look(home: Home, task: Task) -> Task:
        assert len(list((desk.home / "repositories" / "worktrees" / desk.repo_id).iterdir())) == 2
        with again(desk) as other:
            seen.append(list(other.collect().leftovers))
        return save_task(home, task)

    monkeypatch.setattr("sandbox.workbench.tasks.lifecycle.save_new_task", look)
    task = desk.workbench.create_task(desk.repo_id)
    assert {x.action for x in seen[0]} == {BUSY}
    assert task.worktree_path is not None
    assert (task.worktree_path / "f").read_bytes() == b"one\ntwo\n"


def test_a_home_without_guests_needs_no_engine(desk: Desk) -> None:
    config = desk.home / "config.toml"
    config.write_text(config.read_text() + '[engine]\nhost = "unix:///nonexistent/engine.sock"\n')
    assert collected(desk) == []


def test_what_gc_says_is_json(desk: Desk) -> None:
    record(desk, desk.task).unlink()
    desk.workbench.__exit__(None, None, None)
    document = json.loads(again(desk).collect(dry_run=True).model_dump_json())
    assert document["dry_run"] is True
    assert {"kind", "name", "action", "note", "bytes"} == set(document["leftovers"][0])
    assert desk.root.is_dir()


def test_a_temporary_name_of_a_killed_edit_goes_from_the_worktree(desk: Desk) -> None:
    desk.write("d/.sandbox-write-0123456789abcdef", b"half")
    desk.write("build/.sandbox-write-0123456789abcdef", b"half, in ignored output")
    desk.write("d/other", b"kept")
    (desk.root / ".sandbox-write-fedcba9876543210").symlink_to("/etc/hostname")  # whoever made it
    (told,) = collected(desk)
    assert (told.kind, told.action, told.name) == ("cut-off edit", REMOVED, desk.task.id)
    assert told.note.startswith("3 temporary files")
    assert left_behind(desk.home) == []
    assert [c.path for c in again(desk).status(desk.task.id).changes] == ["d/other"]
    assert again(desk).status(desk.task.id).rejected == ()


def test_requests_wishes_and_tickets_of_the_dead_go(desk: Desk) -> None:
    """Control: those of the living stay."""
    stops, turns = desk.home / "repositories" / "stops", desk.home / "repositories" / "turns"
    for folder in (stops, turns):
        folder.mkdir(exist_ok=True)
    dead, wish, living = (stops / f"{desk.task.id}.{number:016x}" for number in range(3))
    dead.touch()
    wish.with_name(f"{wish.name}.stop").touch()
    ticket = turns / f"w-{1:08}-{1:012}-{1:016x}-{desk.task.id}"
    ticket.touch()
    with held(living):
        assert kinds(collected(desk)) == [("request", REMOVED), ("ticket", REMOVED), ("wish to stop", REMOVED)]
        assert list(stops.iterdir()) == [living]
    assert kinds(collected(desk)) == [("request", REMOVED)]


def test_what_cannot_be_looked_at_is_told_and_the_rest_is_done(desk: Desk) -> None:
    (desk.home / "repositories" / "tasks" / ".x.0123456789ab.tmp").touch()
    (desk.home / "repositories" / "registry.json").write_text("{")
    desk.workbench.__exit__(None, None, None)
    with again(desk) as other:
        assert kinds(list(other.collect().leftovers)) == [("look", LeftoverAction.FAILED), ("temporary file", REMOVED)]


@pytest.mark.parametrize("desk", ["overlay"], indirect=True)
def test_a_clone_that_was_never_registered_is_named_and_can_be_removed(desk: Desk) -> None:
    """Its command was killed, or refused its files, before the repository was registered."""
    clones = desk.home / "repositories" / "clones"
    shutil.copytree(clones / desk.repo_id, clones / "host-o-n")
    [named] = collected(desk)
    assert (named.kind, named.name, named.action) == ("clone", "host-o-n", KEPT)
    assert "sandbox repo remove host-o-n" in named.note
    with again(desk) as other:
        assert other.remove_repository("host-o-n", discard=True).remote_url is None
    assert collected(desk) == []


@pytest.mark.parametrize("desk", ["overlay"], indirect=True)
def test_a_clone_that_was_never_registered_and_holds_no_work_is_removed_once_it_is_old(desk: Desk) -> None:
    clones = desk.home / "repositories" / "clones"
    shutil.copytree(clones / desk.repo_id, clones / "host-o-n")
    stray = Git(clones / "host-o-n")
    names = stray.run("for-each-ref", "--format=%(refname)", "refs/heads/", "refs/sandbox/").decode().split()
    marker = clones / "host-o-n" / "sandbox-fetched.json"
    record = json.loads(marker.read_text())
    marker.write_text(json.dumps(record | {"began": time.time() - 7200}))
    assert names
    assert [one.action for one in collected(desk)] == [KEPT], "control: a task may need it"
    stray.run("update-ref", "--stdin", stdin="".join(f"delete {name}\n" for name in names).encode())
    marker.write_text(json.dumps(record | {"began": time.time()}))
    assert [one.action for one in collected(desk)] == [KEPT], "control: a command may be cloning it"
    marker.write_text(json.dumps(record | {"began": time.time() - 7200}))

    assert [(one.kind, one.name, one.action) for one in collected(desk)] == [("clone", "host-o-n", REMOVED)]
    assert not (clones / "host-o-n").exists()
    assert (clones / desk.repo_id).exists()


@pytest.mark.parametrize("desk", ["overlay"], indirect=True)
def test_work_goes_on_beside_gc(desk: Desk) -> None:
    """Nothing of a living controller is taken, and nothing of it is told to be left but what is busy."""
    done, told, failed = threading.Event(), list[Leftover](), list[BaseException]()

    def tidy() -> None:
        try:
            while not done.is_set():
                with again(desk) as other:
                    told.extend(other.collect().leftovers)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failed.append(error)

    tidying = threading.Thread(target=tidy)
    tidying.start()
    try:
        for _ in range(4):
            live_once(desk)
    finally:
        done.set()
        tidying.join()
    assert failed == []
    # A file that was being made looks abandoned for a moment; its maker makes another.
    unheld = {"temporary file", "lock"}  # between their making and their locking: who made one makes it again
    assert [x for x in told if x.action is not BUSY and x.kind not in unheld] == []
    assert collected(desk) == []
    assert left_behind(desk.home) == []


@pytest.mark.parametrize("desk", ["overlay"], indirect=True)
def test_a_reader_that_mounts_the_disk_beside_does_not_stop_a_close(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gc` reads open tasks without their locks. Control: the reader's mount is in the directory that is deleted."""
    services = build_services(desk.home, {"PATH": os.environ["PATH"]}, allow_file=True)
    layers = locate_worktree(services.home, services.policies, desk.repo_id, desk.task.id).layers
    if not has_disk(layers):
        unavailable("a task has no disk of its own here")
    reader = ExitStack()

    def unmount_then_read(site: WorktreePaths) -> None:
        unmount_worktree(site)
        if layers.exists():
            assert reader.enter_context(open_upper(layers)).parent.name.startswith("look-"), "void"

    monkeypatch.setattr("sandbox.workbench.tasks.worktrees.unmount_worktree", unmount_then_read)
    with reader:
        assert desk.workbench.close_task(desk.task.id, delete_worktree=True).worktree_path is None
    services.close()
    assert collected(desk) == []
    assert left_behind(desk.home) == []


def live_once(desk: Desk) -> None:
    """A task from its creation to its end, and one that is forked off it and stays."""
    with again(desk) as workbench:
        task = workbench.create_task(desk.repo_id)
        workbench.write_file(task.id, "new", b"first", None)
        kept = workbench.snapshot(task.id)
        workbench.write_file(task.id, "later", b"second", None)
        workbench.restore(task.id, kept.id)
        fork = workbench.fork_task(task.id)
        workbench.commit(task.id, "x")
        workbench.fetch(str(desk.upstream.root))
        workbench.close_task(task.id, delete_worktree=True)
        assert fork.worktree_path is not None
        assert (fork.worktree_path / "new").read_bytes() == b"first"


def test_rescued_work_is_not_removed_with_its_repository(desk: Desk) -> None:
    desk.write("f", b"only here\n")
    record(desk, desk.task).unlink()
    collected(desk)
    with again(desk) as other, refused(ErrorCode.DIRTY_WORKSPACE) as told:
        other.remove_repository(desk.repo_id)
    assert f"of {desk.task.id}" in told.value.details


def test_a_close_that_was_killed_between_its_renames_is_finished(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What had its name taken away is nobody's; what still has it is whole. A clean task needs no `discard` for it."""

    def die(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("sandbox.workbench.tasks.worktrees.remove_with_mounts", die)
        with pytest.raises(KeyboardInterrupt):
            desk.workbench.close_task(desk.task.id, delete_worktree=True)
    assert desk.workbench.close_task(desk.task.id, delete_worktree=True).worktree_path is None
    assert kinds(collected(desk)) == [("removal", REMOVED)]
    assert left_behind(desk.home) == []


def test_an_engine_that_fails_is_asked_once_after_a_kill(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command would wait for an engine that hangs. Control: the first one asks."""
    (desk.home / "instance").write_text("0123456789abcdef")
    dead = desk.home / "repositories" / "presence" / "1-0123456789ab"
    dead.parent.mkdir(exist_ok=True)
    dead.write_bytes(b"engine\n")
    room(desk, f"run-0123456789ab{'0' * 20}").mkdir()
    asked = []

    def hang(*_: object) -> None:
        asked.append(1)
        raise SandboxError(ErrorCode.TIMEOUT, "The engine hangs")

    monkeypatch.setattr("sandbox.engine.connection.connect", hang)
    for _ in range(2):
        with again(desk) as other:
            other.snapshot(desk.task.id)
    assert len(asked) == 1
    assert dead.exists()
    assert list(room(desk, "any").parent.iterdir())
    with again(desk) as other:
        assert ("room", KEPT) in kinds(list(other.collect().leftovers))
    assert len(asked) == 2


@pytest.mark.parametrize("desk", ["overlay"], indirect=True)
def test_the_command_says_what_it_does_and_then_has_nothing_to_do(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.workbench.__exit__(None, None, None)
    left = desk.home / "repositories" / "tasks" / ".x\x1b[31m.0123456789ab.tmp"
    left.touch()

    def gc(*options: str) -> tuple[int, str]:
        code = main(["--home", str(desk.home), "gc", *options])
        return code, capsys.readouterr().out

    shown = "temporary file repositories/tasks/.x.0123456789ab.tmp\n"  # without what would colour the terminal
    assert gc("--dry-run") == (0, f"would be removed {shown}")
    assert left.exists()
    assert gc() == (0, f"removed {shown}")
    assert gc() == (0, "No leftovers were found.\n")
    (desk.home / "repositories" / "registry.json").write_text("{")
    code, out = gc()
    assert code == 5
    assert out.startswith("failed look refs")


@pytest.mark.parametrize("desk", ["overlay"], indirect=True)
def test_d15_a_stale_lock_of_git_goes_when_it_is_old_and_nobody_has_it_open(desk: Desk) -> None:
    """Control: with the lock there git packs no refs. One of a branch goes as soon as the branch is moved (S173)."""
    clone = desk.home / "repositories" / "clones" / desk.repo_id
    stale = clone / "packed-refs.lock"
    young, opened = clone / "config.lock", clone / "shallow.lock"
    for path in (stale, young, opened):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for path in (stale, opened):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    pack = ["git", "-C", str(clone), "pack-refs", "--all"]
    assert b"packed-refs.lock" in subprocess.run(pack, capture_output=True, check=False).stderr
    with opened.open("rb"):
        assert kinds(collected(desk)) == [("git lock", REMOVED)]
    assert [p.exists() for p in (stale, young, opened)] == [False, True, True]
    subprocess.run(pack, check=True)
