"""Cache clones: waiting callers share one fetch, and a corrupt clone is replaced without losing tasks' branches."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox.git import cache_clones, transport
from sandbox.git.objects import blob_id, tree_of
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
