"""Spare tasks: made ahead with a started container, taken over once, and replaced. Real engine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest

from devtools.guests import remove_guests_of
from sandbox.engine.connection import DockerEngine
from sandbox.engine.container_labels import TASK_LABEL
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.mount_points import unmount_below
from sandbox.models import Task, TaskStatus, Verdict
from sandbox.workbench import Workbench
from sandbox.workbench.tasks import spare_tasks
from tests.docker.bench import Bench

SIZE = {"pool": {"size": 2}}


class Pool(Bench):
    """A bench with a pool of two; one task was created, so its repository gets them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.first = self.task()

    def open(self) -> Workbench:
        return Workbench(self.home, environ=dict(os.environ), allow_file=True, settings=SIZE)

    def fill(self) -> set[str]:
        found = self.workbench.fill_pool()
        assert not found.problems
        return {spare.id for spare in found.spares}

    def container_of(self, engine: DockerEngine, task_id: str) -> str:
        (found,) = engine.list_containers({TASK_LABEL: task_id})
        return found.id

    def recorded_tasks(self) -> set[str]:
        return {path.stem for path in (self.home / "repositories/tasks").glob("task-*.json")}

    def branches(self) -> set[str]:
        clone = self.home / "repositories/clones" / self.repo_id
        argv = ["git", f"--git-dir={clone}", "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/space-agent/"]
        return set(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split())

    def create(self, prompt: str = "mend the parser") -> Task:
        return self.workbench.create_task(self.repo_id, prompt)


@pytest.fixture
def pool(tmp_path: Path, engine: DockerEngine) -> Iterator[Pool]:
    made = Pool(tmp_path)
    try:
        yield made
    finally:
        made.workbench.__exit__(None, None, None)
        remove_guests_of(made.home)
        unmount_below(tmp_path)


def test_a_spare_becomes_the_callers_task_with_its_container(pool: Pool, engine: DockerEngine) -> None:
    spares = pool.fill()
    containers = {pool.container_of(engine, spare): spare for spare in spares}
    assert [task.id for task in pool.workbench.tasks()] == [pool.first]  # they are not anybody's yet
    task = pool.create()
    assert task.id in spares
    assert (task.status, task.prompt, task.base_branch) == (TaskStatus.WORKING, "mend the parser", "main")
    assert task.branch.endswith("-mend-the-parser")
    assert pool.workbench.task(task.id) == task
    assert [run.verdict for run in pool.workbench.run_checks(task.id, ["quick"])] == [Verdict.PASSED]
    assert containers[pool.container_of(engine, task.id)] == task.id  # the check ran in the one that was there
    pool.workbench.write_file(task.id, "new", "text\n", None)
    assert pool.workbench.commit(task.id, "add").commit
    assert pool.workbench.task(task.id).branch == task.branch
    assert len(pool.fill() - {task.id}) == 2


def test_no_operation_reaches_a_spare_before_it_is_taken_over(pool: Pool) -> None:
    spare = min(pool.fill())
    for use in (
        lambda: pool.workbench.write_file(spare, "planted", "text\n", None),
        lambda: pool.workbench.run_checks(spare, ["quick"]),
        lambda: pool.workbench.commit(spare, "mine"),
        lambda: pool.workbench.snapshot(spare),
        lambda: pool.workbench.verify(spare),
    ):
        with pytest.raises(SandboxError, match="is a spare") as caught:
            use()
        assert caught.value.code is ErrorCode.CONFLICT
    task = pool.create()
    assert pool.workbench.status(task.id).changes == ()


def test_each_spare_is_given_to_one_of_many_callers(pool: Pool) -> None:
    spares = pool.fill()
    with ThreadPoolExecutor(8) as callers:
        tasks = list(callers.map(lambda number: pool.create(f"task {number}").id, range(8)))
    assert len(set(tasks)) == 8
    assert spares <= set(tasks)


def test_a_take_over_that_was_killed_leaves_no_branch(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its branch was renamed, before its record was written."""

    class KilledError(BaseException):
        pass

    def die(*_arguments: object) -> NoReturn:
        raise KilledError

    spares = pool.fill()
    with monkeypatch.context() as patched:
        patched.setattr(spare_tasks, "save_task", die)
        with pytest.raises(KilledError):
            pool.create()
    assert any(branch.endswith("-mend-the-parser") for branch in pool.branches()), "the control"
    replaced = pool.fill()
    assert len(spares - replaced) == 1
    tasks = [pool.workbench.task(task_id) for task_id in (pool.first, *replaced)]
    assert pool.branches() == {task.branch for task in tasks}


def test_what_is_out_of_date_is_not_taken_over_and_is_replaced(pool: Pool, engine: DockerEngine) -> None:
    spares = pool.fill()
    assert pool.fill() == spares  # control: otherwise they stay
    pool.upstream.write("bench", b"two\n")
    pool.upstream.commit()
    pool.workbench.clone(str(pool.upstream.root))
    task = pool.create()
    assert task.id not in spares
    newer = pool.fill()
    assert not newer & spares
    assert not spares & pool.recorded_tasks(), "no person made them: their records would stay for half a year"
    assert not [c for spare in spares for c in engine.list_containers({TASK_LABEL: spare})]
    profile = pool.home / "profiles" / "bench.toml"
    profile.write_text(profile.read_text().replace("134217728", "67108864"))
    with pool.open() as stricter:
        assert stricter.create_task(pool.repo_id).id not in newer  # limits of another profile
        assert not {spare.id for spare in stricter.fill_pool().spares} & newer


def test_draining_closes_all_and_gc_leaves_them_alone(pool: Pool, engine: DockerEngine) -> None:
    spares = pool.fill()
    pool.workbench.collect()
    assert pool.fill() == spares
    assert {pool.container_of(engine, spare) for spare in spares}
    drained = pool.workbench.drain_pool()
    assert (set(drained.closed), drained.spares) == (spares, ())
    assert pool.create().id not in spares
    assert not list((pool.home / "repositories/tasks").glob("*.spare"))
    assert not spares & pool.recorded_tasks()
    assert pool.workbench.collect().leftovers == ()


def test_a_repository_with_spares_can_be_removed(pool: Pool) -> None:
    pool.fill()
    pool.workbench.close_task(pool.first, delete_worktree=True)
    pool.workbench.remove_repository(pool.repo_id)
    assert pool.workbench.pool() == ()


def test_without_the_setting_there_are_none(pool: Pool) -> None:
    spares = pool.fill()
    with Workbench(pool.home, environ=dict(os.environ), allow_file=True) as without:
        assert without.create_task(pool.repo_id).id not in spares
        assert set(without.fill_pool().closed) == spares
