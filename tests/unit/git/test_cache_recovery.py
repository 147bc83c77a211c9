"""Cache clones: waiting callers share one fetch, and a corrupt clone is replaced without losing tasks' branches."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox import durable
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git import cache_clones, set_aside, transport
from sandbox.git.objects import blob_id, tree_of
from sandbox.git.partial import has_partial_mark, mark_partial
from sandbox.git.process import Git
from sandbox.git.refs import move_ref, resolve_ref
from sandbox.git.transport import RemoteAccess, fetch
from sandbox.models import Task
from sandbox.remotes import parse_remote
from sandbox.workbench import Workbench

WHO = ("-c", "user.name=t", "-c", "user.email=t@localhost")


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    path = tmp_path / "remote"
    subprocess.run(["git", "init", "-q", "-b", "main", str(path)], check=True)
    (path / "a.txt").write_text("one\n")
    commit(path, "one")
    return path


def commit(path: Path, message: str) -> None:
    subprocess.run(["git", "-C", str(path), "add", "-A"], check=True)
    subprocess.run(["git", "-C", str(path), *WHO, "commit", "-q", "-m", message], check=True)


def access(remote: Path, tmp_path: Path) -> RemoteAccess:
    return RemoteAccess(parse_remote(str(remote), allow_file=True), None, tmp_path / "known_hosts", {})


def break_objects(clone: Path) -> None:
    """Every pack and loose object becomes garbage."""
    for path in clone.glob("objects/??/*"):
        path.unlink()
    for path in clone.glob("objects/pack/*"):
        path.chmod(0o600)
        path.write_bytes(b"garbage")


def lose(clone: Path, oid: str) -> None:
    """One object is gone; packs are unpacked for it."""
    for path in list(clone.glob("objects/pack/*.pack")):
        pack = path.read_bytes()
        for part in clone.glob(f"objects/pack/{path.stem}.*"):
            part.unlink()
        subprocess.run(["git", f"--git-dir={clone}", "unpack-objects", "-q"], input=pack, check=True)
    (clone / "objects" / oid[:2] / oid[2:]).unlink()


def test_a_fetch_begun_after_the_wish_fulfils_it(remote: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone.git"
    reach = access(remote, tmp_path)
    wish = time.time()
    first = cache_clones.refresh(clone, reach, wish)
    (remote / "a.txt").write_text("two\n")
    commit(remote, "two")

    assert cache_clones.refresh(clone, reach, wish) == first  # somebody else's fetch, begun after this wish
    assert cache_clones.refresh(clone, reach, time.time()).commit != first.commit  # control: a later wish is fetched


def test_a_fetch_in_the_future_fulfils_no_wish(remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock was set back since."""
    clone, reach = tmp_path / "clone.git", access(remote, tmp_path)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 86_400)
    first = cache_clones.refresh(clone, reach, now)
    monkeypatch.undo()
    (remote / "a.txt").write_text("two\n")
    commit(remote, "two")
    assert cache_clones.refresh(clone, reach, time.time()).commit != first.commit


def test_many_who_wish_at_once_fetch_at_most_twice(
    remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "clone.git"
    reach = access(remote, tmp_path)
    wishes = [time.time() for _ in range(20)]
    fetches: list[Path] = []

    def counted(git: Git, reach: RemoteAccess, **options: Any) -> str:
        fetches.append(git.git_dir)
        return fetch(git, reach, **options)

    monkeypatch.setattr(transport, "fetch", counted)

    for wish in wishes:
        cache_clones.refresh(clone, reach, wish)

    assert len(fetches) <= 2


def test_a_clone_whose_objects_are_all_gone_is_whole_again_after_a_fetch(remote: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone.git"
    reach = access(remote, tmp_path)
    cache_clones.refresh(clone, reach)
    break_objects(clone)
    assert not cache_clones.is_intact(Git(clone))  # control
    (remote / "a.txt").write_text("two\n")
    commit(remote, "two")

    head = cache_clones.refresh(clone, reach, time.time())

    Git(clone).run("rev-list", "--objects", "--quiet", "--all")  # git 2.55's fsck minds the dead pack's debris as well
    assert tree_of(Git(clone), head.commit)


def test_a_clone_that_lost_one_file_is_set_aside_and_made_again(remote: Path, tmp_path: Path) -> None:
    with Workbench(tmp_path / "home", allow_file=True, environ={}) as workbench:
        repository = workbench.clone(str(remote)).repository
        clone = tmp_path / "home" / "repositories" / "clones" / repository.id
        lose(clone, blob_id(b"one\n"))  # git fetch alone would never notice
        assert not cache_clones.is_intact(Git(clone))

        workbench.clone(str(remote))

    assert cache_clones.is_intact(Git(clone))
    assert len(list(clone.parent.glob(f".{repository.id}.corrupt-*"))) == 1


def test_branches_of_tasks_that_are_whole_survive(remote: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone.git"
    reach = access(remote, tmp_path)
    head = cache_clones.refresh(clone, reach)
    ref = "refs/heads/space-agent/task-x"
    move_ref(Git(clone), ref, head.commit, "0" * 40)
    lost = subprocess.run(
        ["git", f"--git-dir={clone}", *WHO, "commit-tree", "-m", "lost", tree_of(Git(clone), head.commit)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    move_ref(Git(clone), "refs/heads/space-agent/task-lost", lost, "0" * 40)
    (clone / "objects" / lost[:2] / lost[2:]).unlink()
    assert not cache_clones.is_intact(Git(clone))

    cache_clones.replace_corrupt_clone(clone, reach)

    assert cache_clones.is_intact(Git(clone))
    assert resolve_ref(Git(clone), ref) == head.commit
    assert resolve_ref(Git(clone), "refs/heads/space-agent/task-lost") is None


def test_a_healthy_clone_is_kept_when_the_remote_fails(remote: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone.git"
    reach = access(remote, tmp_path)
    cache_clones.refresh(clone, reach)
    remote.rename(tmp_path / "gone")

    with pytest.raises(Exception, match="There is no directory"):
        cache_clones.refresh(clone, reach, time.time())

    assert cache_clones.is_intact(Git(clone))
    assert not list(tmp_path.glob(".clone.git.corrupt-*"))


def test_cloning_again_through_the_workbench_repairs_and_keeps_the_task(remote: Path, tmp_path: Path) -> None:
    with Workbench(tmp_path / "home", allow_file=True, environ={}) as workbench:
        repository = workbench.clone(str(remote)).repository
        task: Task = workbench.create_task(repository.id)
        clone = tmp_path / "home" / "repositories" / "clones" / repository.id
        break_objects(clone)

        workbench.clone(str(remote))

        assert workbench.read_file(task.id, "a.txt").content == "one\n"
        assert cache_clones.is_intact(Git(clone))


TASK_REF = "refs/heads/space-agent/task-x"


@pytest.fixture
def damaged(remote: Path, tmp_path: Path) -> Path:
    """A clone that lost a file of the remote, and has a branch of a task that is complete."""
    clone = tmp_path / "clone.git"
    cache_clones.refresh(clone, access(remote, tmp_path))
    add_work(clone, TASK_REF)
    lose(clone, blob_id(b"one\n"))
    return clone


def add_work(clone: Path, ref: str) -> str:
    made = ["commit-tree", "-m", ref, "4b825dc642cb6eb9a060e54bf8d69288fbee4904"]
    command = ["git", f"--git-dir={clone}", *WHO, *made]
    subprocess.run(["git", f"--git-dir={clone}", "mktree"], input=b"", check=True, capture_output=True)
    oid = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    move_ref(Git(clone), ref, oid, "0" * 40)
    return oid


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("module", "step"),
    [
        (cache_clones, "_fetch_and_record"),
        (set_aside, "copy_own_refs"),
        (set_aside, "put_in_place"),
        (set_aside, "note_copied"),
        (set_aside, ""),
    ],
    ids=["fetch", "copy", "rename", "note", "control"],
)
def test_an_interrupted_repair_loses_no_branch(
    module: Any, step: str, damaged: Path, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach = access(remote, tmp_path)
    with monkeypatch.context() as patched:
        if step:
            patched.setattr(module, step, interrupt)
            with pytest.raises(KeyboardInterrupt):
                cache_clones.replace_corrupt_clone(damaged, reach)
        else:
            cache_clones.replace_corrupt_clone(damaged, reach)
    assert resolve_ref(Git(damaged), TASK_REF)

    if step:
        cache_clones.replace_corrupt_clone(damaged, reach)
    cache_clones.refresh(damaged, reach, time.time())

    assert cache_clones.is_intact(Git(damaged))
    assert resolve_ref(Git(damaged), TASK_REF)
    assert set_aside.list_unfinished(damaged) == []
    assert set_aside.find_uncopied_refs(damaged) == []


def run_killed(action: Callable[[], object]) -> None:
    """Run it in a child that kills itself."""
    pid = os.fork()
    if pid == 0:
        action()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
def test_a_repair_that_was_killed_between_its_renames_is_finished_by_the_next_clone(
    partial: bool, damaged: Path, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach = access(remote, tmp_path)
    rename = Path.rename

    def rename_and_die(path: Path, target: Path) -> None:
        rename(path, target)
        os.kill(os.getpid(), signal.SIGKILL)

    def repair_and_die() -> None:
        Path.rename = rename_and_die  # type: ignore[assignment, method-assign]  # of the child
        cache_clones.replace_corrupt_clone(damaged, reach)

    if partial:
        subprocess.run(["git", "-C", str(remote), "config", "uploadpack.allowFilter", "true"], check=True)
        mark_partial(damaged)
    run_killed(repair_and_die)
    assert not damaged.exists()
    assert [ref.name for ref in set_aside.find_uncopied_refs(damaged)] == [TASK_REF]

    cache_clones.refresh(damaged, reach, time.time())

    assert resolve_ref(Git(damaged), TASK_REF)
    assert has_partial_mark(damaged) is partial
    assert set_aside.find_uncopied_refs(damaged) == []


@pytest.mark.parametrize("is_marked", [False, True], ids=["older version", "killed"])
def test_a_deleted_branch_does_not_come_back(
    is_marked: bool, damaged: Path, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a clone that an older version set aside, without a note, or after a kill before the last note."""
    reach = access(remote, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(set_aside, "note_in_place", lambda _: None)
        cache_clones.replace_corrupt_clone(damaged, reach)
    (aside,) = set_aside.list_set_aside(damaged)
    if not is_marked:
        (aside / set_aside._NOTE).unlink()
    assert resolve_ref(Git(damaged), TASK_REF)  # control
    assert set_aside.find_uncopied_refs(damaged) == []
    Git(damaged).run("update-ref", "-d", TASK_REF)

    cache_clones.refresh(damaged, reach, time.time())
    cache_clones.replace_corrupt_clone(damaged, reach)

    assert resolve_ref(Git(damaged), TASK_REF) is None
    uncopied = [ref.name for ref in set_aside.find_uncopied_refs(damaged)]
    assert uncopied == ([] if is_marked else [TASK_REF])


def test_no_branch_moves_back(damaged: Path, remote: Path, tmp_path: Path) -> None:
    """Two repairs were killed between their renames; what the newer clone has of the branch is damaged."""
    damaged_at = add_work(damaged, f"{TASK_REF}-2")
    older, newer = (tmp_path / f".clone.git.corrupt-{number}" for number in (9, 10))
    shutil.copytree(damaged, older)
    Git(older).run("update-ref", TASK_REF, damaged_at)
    damaged.rename(newer)
    tip = resolve_ref(Git(newer), TASK_REF)
    assert tip
    (newer / "objects" / tip[:2] / tip[2:]).unlink()
    for aside in (older, newer):
        set_aside.note_copied(aside, ())
    assert set_aside.list_unfinished(damaged) == [newer, older]

    cache_clones.refresh(damaged, access(remote, tmp_path))

    assert resolve_ref(Git(damaged), TASK_REF) is None
    assert resolve_ref(Git(damaged), f"{TASK_REF}-2") == damaged_at  # control
    lost = [set_aside.UncopiedRef(aside, TASK_REF) for aside in (newer, older)]
    assert set_aside.find_uncopied_refs(damaged) == lost
    Git(damaged).run("update-ref", TASK_REF, damaged_at)
    assert set_aside.find_uncopied_refs(damaged) == lost[:1]


def test_clones_of_another_repository_are_not_ours(tmp_path: Path) -> None:
    ours, other = tmp_path / ".id.corrupt-9", tmp_path / ".id.corrupt-9.corrupt-123"
    for path in (ours, other, tmp_path / ".id.corrupt-9.incoming"):
        path.mkdir()
    assert set_aside.list_set_aside(tmp_path / "id") == [ours]
    assert set_aside.list_set_aside(tmp_path / "id.corrupt-9") == [other]


@pytest.mark.parametrize(("module", "step"), [(durable, "make_durable"), (set_aside, "_sync")])
def test_a_full_disk_at_the_end_of_a_repair_is_named(
    module: Any, step: str, damaged: Path, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(module, step, fail)
        with pytest.raises(SandboxError) as caught:
            cache_clones.replace_corrupt_clone(damaged, access(remote, tmp_path))
    assert caught.value.code is ErrorCode.QUOTA_EXCEEDED
    cache_clones.replace_corrupt_clone(damaged, access(remote, tmp_path))
    assert resolve_ref(Git(damaged), TASK_REF)


def add_file(clone: Path, ref: str, content: bytes) -> str:
    """A task with one file, on a branch; returns its object id."""
    git = Git(clone)
    blob = git.run("hash-object", "-w", "--stdin", stdin=content).decode().strip()
    tree = git.run("mktree", stdin=f"100644 blob {blob}\tf\n".encode()).decode().strip()
    command = ["git", f"--git-dir={clone}", *WHO, "commit-tree", "-m", ref, tree]
    move_ref(git, ref, subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip(), "0" * 40)
    return blob


@pytest.mark.parametrize("limits", [{"max_fetch_bytes": 1}, {"max_memory_bytes": 3_000_000}, {}], ids=str)
@pytest.mark.parametrize("is_damaged", [False, True], ids=["whole", "damaged"])
def test_only_a_damaged_branch_is_lost(
    is_damaged: bool, limits: dict[str, Any], damaged: Path, remote: Path, tmp_path: Path
) -> None:
    """Too little disk or memory is an error, so that the copy is repeated; the limits are those of the fetch."""
    reach = replace(access(remote, tmp_path), **limits)
    blob = add_file(damaged, f"{TASK_REF}-2", os.urandom(6 << 20))
    new = Git(tmp_path / "new.git")
    subprocess.run(["git", "init", "-q", "--bare", str(new.git_dir)], check=True)
    Git(damaged).run("update-ref", "-d", TASK_REF)
    if is_damaged:
        path = damaged / "objects" / blob[:2] / blob[2:]
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-100])
    if limits and not is_damaged:
        with pytest.raises(SandboxError) as caught:
            set_aside.copy_own_refs(damaged, new, reach)
        assert caught.value.code is ErrorCode.QUOTA_EXCEEDED
    else:
        assert set_aside.copy_own_refs(damaged, new, reach) == [f"{TASK_REF}-2"] * is_damaged


def test_an_error_of_the_copy_keeps_the_damaged_clone(
    damaged: Path, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach, copy = access(remote, tmp_path), set_aside.copy_own_refs

    def copy_with_less(source: Path, new: Git, access: RemoteAccess, *rest: Any) -> list[str]:
        return copy(source, new, replace(access, max_fetch_bytes=1), *rest)

    monkeypatch.setattr(set_aside, "copy_own_refs", copy_with_less)
    with pytest.raises(SandboxError) as caught:
        cache_clones.replace_corrupt_clone(damaged, reach)
    assert caught.value.code is ErrorCode.QUOTA_EXCEEDED
    assert resolve_ref(Git(damaged), TASK_REF)
    assert not set_aside.list_set_aside(damaged)


@pytest.mark.parametrize("name", ["HEAD", "config"])
@pytest.mark.parametrize("content", [None, b"", b"\0" * 41], ids=["missing", "empty", "zeros"])
def test_a_damaged_file_that_we_wrote_loses_no_branch(
    content: bytes | None, name: str, damaged: Path, remote: Path, tmp_path: Path
) -> None:
    """As a power failure leaves it: git reads no such clone."""
    (damaged / name).unlink()
    if content is not None:
        (damaged / name).write_bytes(content)
    (remote / "a.txt").write_text("two\n")
    commit(remote, "two")

    cache_clones.refresh(damaged, access(remote, tmp_path), time.time())

    assert resolve_ref(Git(damaged), TASK_REF)
    assert set_aside.find_uncopied_refs(damaged) == []


def test_a_clone_without_its_head_file_is_set_aside_too(damaged: Path, remote: Path, tmp_path: Path) -> None:
    (damaged / "HEAD").unlink()
    shutil.rmtree(damaged / "objects")
    cache_clones.refresh(damaged, access(remote, tmp_path))
    assert [ref.name for ref in set_aside.find_uncopied_refs(damaged)] == [TASK_REF]


@pytest.mark.parametrize("tail", [b"\0" * 20, b"garbage", b"1234"], ids=["zeros", "words", "cut"])
def test_damaged_packed_refs_keep_the_clone_and_say_where(
    tail: bytes, damaged: Path, remote: Path, tmp_path: Path
) -> None:
    Git(damaged).run("pack-refs", "--all", "--prune")
    packed = (damaged / "packed-refs").read_bytes()
    add_work(damaged, f"{TASK_REF}-loose")
    (damaged / "packed-refs").write_bytes(packed + tail)
    with pytest.raises(SandboxError) as caught:
        cache_clones.refresh(damaged, access(remote, tmp_path), time.time())

    assert caught.value.code is ErrorCode.INTERNAL
    assert caught.value.details.endswith(f"packed-refs, line {len(packed.splitlines()) + 1}")
    assert str(damaged) in caught.value.hint
    assert not set_aside.list_set_aside(damaged)
    (damaged / "packed-refs").write_bytes(packed)  # control: what the hint says
    cache_clones.replace_corrupt_clone(damaged, access(remote, tmp_path))
    assert resolve_ref(Git(damaged), TASK_REF)
    assert resolve_ref(Git(damaged), f"{TASK_REF}-loose")


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 41, b"ref: refs/heads/space-agent/none\n"], ids=["empty", "zeros", "link"]
)
def test_a_damaged_ref_is_noted_and_the_others_are_copied(
    content: bytes, damaged: Path, remote: Path, tmp_path: Path
) -> None:
    """As a power failure leaves it. git would leave it out of its lists."""
    (damaged / f"{TASK_REF}-cut").write_bytes(content)

    cache_clones.replace_corrupt_clone(damaged, access(remote, tmp_path))

    assert resolve_ref(Git(damaged), TASK_REF)
    assert [ref.name for ref in set_aside.find_uncopied_refs(damaged)] == [f"{TASK_REF}-cut"]
    assert len(set_aside.list_set_aside(damaged)) == 1


def test_a_packed_name_that_no_ref_has_is_noted(damaged: Path, remote: Path, tmp_path: Path) -> None:
    Git(damaged).run("pack-refs", "--all", "--prune")
    packed = damaged / "packed-refs"
    packed.write_bytes(packed.read_bytes().replace(b"/task-x\n", b"/task\0x\n"))

    cache_clones.replace_corrupt_clone(damaged, access(remote, tmp_path))

    (uncopied,) = set_aside.find_uncopied_refs(damaged)
    assert uncopied.description.startswith(
        "refs/heads/space-agent/task\N{REPLACEMENT CHARACTER}x in .clone.git.corrupt-"
    )


def test_refs_are_copied_together(remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is damaged does not keep the others: these follow one by one."""
    clone, reach = tmp_path / "clone.git", access(remote, tmp_path)
    head = cache_clones.refresh(clone, reach).commit
    names = [f"refs/heads/space-agent/{number:08x}-work" for number in range(20)]
    for name in names:
        move_ref(Git(clone), name, head, "0" * 40)
    fetch_refs, fetched = set_aside._fetch_refs, []

    def count(*of: Any) -> Any:
        fetched.append(of[2])
        return fetch_refs(*of)

    monkeypatch.setattr(set_aside, "_fetch_refs", count)
    cache_clones.replace_corrupt_clone(clone, reach)
    assert fetched == [names]
    assert set(set_aside.read_own_refs(clone)) == set(names)
    (clone / names[0]).parent.mkdir(parents=True, exist_ok=True)
    (clone / names[0]).write_text("1" * 40 + "\n")
    cache_clones.replace_corrupt_clone(clone, reach)
    assert set(set_aside.read_own_refs(clone)) == set(names[1:])
