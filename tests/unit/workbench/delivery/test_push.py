"""A push that ends anywhere: whatever was sent and noted by then, the next one finds out and goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from devtools.copied_clones import copied_clones
from sandbox.git.process import Git
from sandbox.models import TaskStatus
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, run


class Killed(BaseException):
    """Nothing of ours catches it, as nothing catches SIGKILL."""


@pytest.fixture
def workbench(tmp_path: Path) -> Iterator[Workbench]:
    with Workbench(tmp_path / "home", environ={"PATH": os.environ["PATH"]}, allow_file=True) as made:
        yield made


@pytest.fixture
def repo_id(workbench: Workbench, upstream: Upstream) -> str:
    upstream.write("f.txt", b"one\n")
    upstream.commit()
    with copied_clones():
        return workbench.clone(str(upstream.root)).repository.id


@contextmanager
def killed_at(step: int) -> Iterator[list[str]]:
    """Before the n-th command of git, or after the last one when there are fewer; the commands that ran."""
    ran: list[str] = []
    original = Git.stream

    def stream(self: Git, *args: str, **options: Any) -> Any:
        if len(ran) + 1 == step:
            raise Killed
        ran.append(args[0])
        return original(self, *args, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Git, "stream", stream)
        yield ran


def committed(workbench: Workbench, task_id: str, name: str) -> str:
    workbench.write_file(task_id, name, name.encode(), None)
    return workbench.commit(task_id, name).commit


def refs(tmp_path: Path, repo_id: str, task_id: str) -> dict[str, str]:
    """What the cache clone notes about pushes of the task, by the last word."""
    clone = tmp_path / "home" / "repositories" / "clones" / repo_id
    argv = [
        "git",
        f"--git-dir={clone}",
        "for-each-ref",
        "--format=%(refname) %(objectname)",
        f"refs/sandbox/{task_id}/",
    ]
    lines = run(argv).decode().splitlines()
    return {line.split()[0].rpartition("/")[2]: line.split()[1] for line in lines}


def test_p03_a_push_killed_before_any_of_its_steps_is_found_out_by_the_next(
    workbench: Workbench, repo_id: str, upstream: Upstream, tmp_path: Path
) -> None:
    """The next one sends another commit: the hardest case: the remote has neither that nor the last known."""
    sent_before = []
    for step in range(1, 99):
        task = workbench.create_task(repo_id)
        first = committed(workbench, task.id, "first")
        with killed_at(step) as ran, suppress(Killed):
            workbench.push(task.id)
        arrived = bool(upstream.git("for-each-ref", f"refs/heads/{task.branch}"))
        sent_before.append(arrived)
        second = committed(workbench, task.id, "second")
        result = workbench.push(task.id)
        assert (result.commit, result.forced) == (second, False), f"killed before step {step}, after {ran}"
        assert upstream.oid(task.branch) == second
        assert refs(tmp_path, repo_id, task.id) == {"pushed": second}
        assert workbench.task(task.id).status is TaskStatus.PUSHED
        assert upstream.git("merge-base", "--is-ancestor", first, second) == b""
        if len(ran) < step - 1:
            break
    assert sent_before == sorted(sent_before)
    assert set(sent_before) == {False, True}, "void: no step lay before, or none after the arrival"
    assert sent_before.count(True) >= 4, "void: nothing was broken between the arrival and the end"


def test_a_push_again_of_the_same_commit_changes_nothing(
    workbench: Workbench, repo_id: str, upstream: Upstream, tmp_path: Path
) -> None:
    task = workbench.create_task(repo_id)
    head = committed(workbench, task.id, "first")
    before = workbench.push(task.id)
    for _ in range(2):
        assert workbench.push(task.id) == before
    assert upstream.oid(task.branch) == head
    assert refs(tmp_path, repo_id, task.id) == {"pushed": head}
