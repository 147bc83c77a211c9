"""Many threads share one Workbench."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sandbox.models import Status
from sandbox.store.home import Home
from sandbox.workbench import Workbench
from sandbox.workbench.controller.once import Once
from sandbox.workbench.controller.services import Services
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk

THREADS = 16
DEADLINE_S = 120.0
FIRST_USES: tuple[Callable[[Services], object], ...] = (
    lambda services: services.policies.container,
    lambda services: services.policies.paths,
    lambda services: services.policies.commits,
    lambda services: services.policies.profiles,
    lambda services: services.credentials.entries,
    lambda services: services.presence,
    lambda services: services.check_queue,
    lambda services: services.hosts_file,
    lambda services: services.home.instance_id,
)


def at_once(act: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
    """The results of threads that begin together."""
    start = threading.Barrier(threads, timeout=DEADLINE_S)

    def begin(number: int) -> Any:
        start.wait()
        return act(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


class Slow:
    """`made` counts how often its value was made, and everybody is let in to make it."""

    def __init__(self) -> None:
        self.once_lock = threading.RLock()
        self.made = 0
        self._met = threading.Event()

    @Once
    def value(self) -> object:
        self.made += 1
        self._met.wait(0.05)  # long enough for the others to arrive; when they do not, the test only proves less
        return self.inner

    @Once
    def inner(self) -> object:
        return object()


def test_a_value_is_made_once_by_one_thread() -> None:
    slow = Slow()
    found = at_once(lambda _: slow.value)
    assert (slow.made, len(set(map(id, found)))) == (1, 1)


def test_what_could_not_be_made_is_tried_again() -> None:
    class Failing:
        once_lock = threading.RLock()
        tries = 0

        @Once
        def value(self) -> int:
            """Documented."""
            type(self).tries += 1
            return 1 // (self.tries - 1)

    failing = Failing()
    with pytest.raises(ZeroDivisionError):
        _ = failing.value
    assert (failing.value, failing.value, Failing.tries) == (1, 1, 2)
    assert Failing.value.__doc__ == "Documented."


def test_sixteen_threads_on_a_fresh_workbench_share_what_it_makes(tmp_path: Path) -> None:
    with Workbench(tmp_path / "home", environ={}) as workbench:
        services = workbench._services
        reads = FIRST_USES * 2
        found = at_once(lambda number: [read(services) for read in reads[number % len(FIRST_USES) :]] and services)
        assert all(each is services for each in found)
        shared = at_once(lambda _: [read(services) for read in FIRST_USES])
        assert all(a is b for row in shared for a, b in zip(row, shared[0], strict=True))
        assert len(list((tmp_path / "home" / "repositories" / "presence").iterdir())) == 1


def test_a_kept_file_is_made_once(tmp_path: Path) -> None:
    """A guest that has it mounted would keep the file that was replaced, which is a deleted one."""
    home = Home(tmp_path)
    home.prepare()
    for name, fixed in (("fixed", True), ("first", False)):
        inodes = at_once(lambda n, name=name, fixed=fixed: home.ensure_file(name, b"same", fixed=fixed).stat().st_ino)  # type: ignore[misc]  # defaults bind the loop's values
        assert len(set(inodes)) == 1
    home.ensure_file("first", b"other", fixed=False)
    assert (tmp_path / "first").read_bytes() == b"same"
    home.ensure_file("fixed", b"other")
    assert (tmp_path / "fixed").read_bytes() == b"other"


@pytest.mark.slow
def test_sixteen_threads_work_on_tasks_of_their_own(tmp_path: Path, upstream: Upstream) -> None:
    desk = Desk(upstream, tmp_path / "home")

    def work(number: int) -> tuple[str, Status]:
        task = desk.workbench.create_task(desk.repo_id, f"work {number}")
        before = desk.workbench.read_file(task.id, "f").sha256
        desk.workbench.write_file(task.id, "f", f"thread {number}\n", before)
        desk.workbench.commit(task.id, f"of thread {number}")
        return desk.workbench.read_file(task.id, "f").content, desk.workbench.status(task.id)

    found = at_once(work)
    assert [content for content, _ in found] == [f"thread {number}\n" for number in range(THREADS)]
    assert {(status.ahead, status.dirty) for _, status in found} == {(1, False)}
    assert len({status.head_commit for _, status in found}) == THREADS


@pytest.mark.slow
def test_threads_that_write_to_one_task_wait_for_each_other(tmp_path: Path, upstream: Upstream) -> None:
    """Four: an edit waits ten seconds at most."""
    desk = Desk(upstream, tmp_path / "home")
    at_once(lambda number: desk.workbench.write_file(desk.task.id, f"new{number}", f"{number}\n", None), threads=4)
    assert {c.path for c in desk.workbench.status(desk.task.id).changes} == {f"new{n}" for n in range(4)}
    written = [entry for entry in desk.workbench.log(desk.task.id) if entry.operation == "write"]
    assert [entry.result for entry in written] == ["ok"] * 4
