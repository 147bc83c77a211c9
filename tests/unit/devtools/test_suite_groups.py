"""Which tests run in one process of the suite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from xdist.remote import Producer

from devtools.suite_groups import GroupScheduling, find_group

E2E = Path(__file__).parents[2] / "e2e"


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("test_temporal.py", "temporal"),
        ("test_placement.py", "temporal"),
        ("test_kill.py", "kills"),
        ("test_gitserver.py", str(E2E / "test_gitserver.py")),
        ("clusters.py", ""),
    ],
)
def test_a_module_says_its_group(name: str, group: str) -> None:
    assert find_group(E2E / name) == group


def test_each_mark_of_a_group_has_an_effect() -> None:
    """One of a single test, or one that is made elsewhere, has none."""
    modules = [path for path in E2E.parent.rglob("test_*.py") if path != Path(__file__)]
    marked = [path for path in modules if "mark.xdist_group(" in path.read_text()]
    assert len(marked) > 40
    assert [path.name for path in marked if not find_group(path)] == []


MODULE = """
import os
import pathlib
import time

import pytest

pytestmark = pytest.mark.xdist_group("one")


@pytest.mark.parametrize("number", range(12))
def test_it(number):
    time.sleep(0.05)
    pathlib.Path(f"process-{os.getpid()}").touch()
"""


SINGLE_MODULE = """
import pytest


@pytest.mark.parametrize("number", range(20))
def test_it(number):
    pass
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("distribution", "processes"), [("loadgroup", 1), ("load", 2)])
def test_a_group_runs_in_one_process(tmp_path: Path, distribution: str, processes: int) -> None:
    """Control: where groups do not count, its tests are shared. Tests without a group run beside it, each once."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler\n")
    (tmp_path / "test_grouped.py").write_text(MODULE)
    (tmp_path / "test_single.py").write_text(SINGLE_MODULE)
    # Its own place for temporary files: pytest's default deletes at its end what earlier suites left, for minutes.
    options = ["-n", "2", "--dist", distribution, "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "temporary")]
    command = [sys.executable, "-m", "pytest", "-q", *options, "."]
    environ = {"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()
    assert b"32 passed" in done.stdout
    assert len([*tmp_path.glob("process-*")]) == processes


class Node:
    """A process of a run that is asked to run tests, by number."""

    gateway = SimpleNamespace(id="one")
    shutting_down = False

    def __init__(self) -> None:
        self.asked: list[int] = []

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.asked += numbers

    def shutdown(self) -> None:
        self.shutting_down = True


GROUP = [f"tests/e2e/test_kill.py::test_it[{number}]" for number in range(4)]
SINGLE = [f"tests/e2e/test_bad_input.py::test_it[{number}]" for number in range(12)]


def schedule(processes: int) -> tuple[Any, list[Node]]:
    """A scheduler whose processes have collected all tests, and are about to run the first ones."""
    option = SimpleNamespace(loadscopereorder=True)
    config = SimpleNamespace(rootpath=E2E.parents[1], option=option, getvalue=lambda _: ["popen"] * processes)
    scheduler: Any = GroupScheduling(cast(pytest.Config, config), Producer("test", enabled=False))
    nodes = [Node() for _ in range(processes)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, [*SINGLE, *GROUP])
    scheduler.schedule()
    return scheduler, nodes


def finish(scheduler: Any, node: Node) -> None:
    """A process has run the tests that it was asked for so far."""
    asked, node.asked = node.asked, []
    for number in asked:
        scheduler.mark_test_complete(node, number)


def test_a_process_of_three_begins_with_single_tests_while_there_are_groups() -> None:
    _, (first, second, third) = schedule(3)
    assert first.asked[0] == SINGLE.index(SINGLE[-1]), "the last of the queue"
    assert second.asked[: len(GROUP)] == [12, 13, 14, 15]
    assert third.asked[0] == 0, "no group is left"


def test_two_processes_begin_with_groups() -> None:
    _, (first, second) = schedule(2)
    assert first.asked[: len(GROUP)] == [12, 13, 14, 15]
    assert second.asked[0] == 0


def test_each_test_runs_once_and_those_of_a_process_that_died_run_elsewhere() -> None:
    scheduler, nodes = schedule(3)
    died = nodes[1]
    scheduler.mark_test_complete(died, died.asked[0])
    lost = died.asked[1:]
    assert scheduler.remove_node(died) == GROUP[1]
    ran = [died.asked[0]]
    while any(node.asked for node in (nodes[0], nodes[2])):
        for node in (nodes[0], nodes[2]):
            ran += node.asked
            finish(scheduler, node)
    assert sorted(ran) == list(range(16))
    assert set(lost) <= set(ran)
    assert scheduler.tests_finished
