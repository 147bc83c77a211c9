"""Tests that share an engine, a server or an environment run in one process of the suite.

A module says so: `pytestmark = pytest.mark.xdist_group(NAME)`. Its fixtures are then made once and not in each process.
The mark of a single test has no effect.
xdist 3.8 writes the group into the test's id, which pytest 9.2 does not read back (pytest-xdist #1386), so the group is
taken from the module here. The git server is one for a process, and too many tests use it for one process: of that
group, each module is by itself.

Groups mostly wait, for servers, containers and timeouts; of the other tests, most compute. So while there are groups
some processes begin with the other tests, else the processors would idle first and be short later.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_GROUP = re.compile(r'^pytestmark = (?:\[\n(?: .*\n)*? )?.*\bxdist_group\("([\w-]+)"\)', re.MULTILINE)
_EACH_BY_ITSELF = {"gitserver"}
_PROCESSES_FOR_A_SINGLE_ONE = 3
"""Of so many processes one begins with tests that have no group."""


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives groups to processes as a whole, those with the most tests first, and other tests one by one.

    For each test xdist goes through the whole collection and through all that a process has done: 14 CPU seconds of the
    44 of a run of 14,000 empty tests. Here a test's number is looked up, and what a process has done is forgotten.
    """

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._root = config.rootpath
        self._numbers: dict[str, int] = {}  # the same in each process: `schedule` checks that

    def _split_scope(self, nodeid: str) -> str:
        return self._find_group(nodeid.partition("::")[0]) or nodeid

    @cache  # noqa: B019 - one scheduler for each run
    def _find_group(self, module: str) -> str:
        return find_group(self._root / module)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        units = self.assigned_work[node]
        units[scope][nodeid] = True
        if all(units[scope].values()):
            del units[scope]
        self._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if not self._numbers:
            self._numbers = {nodeid: number for number, nodeid in enumerate(self.collection)}
        has_groups = len(next(iter(self.workqueue.values()))) > 1  # they are the first
        scope, unit = self.workqueue.popitem(last=has_groups and self._begins_with_single_tests(node))
        self.assigned_work[node][scope] = unit
        node.send_runtest_some([self._numbers[nodeid] for nodeid, is_done in unit.items() if not is_done])

    def _begins_with_single_tests(self, node: WorkerController) -> bool:
        nodes = list(self.assigned_work)
        return nodes.index(node) < len(nodes) // _PROCESSES_FOR_A_SINGLE_ONE


@cache
def find_group(module: Path) -> str:
    """The group of a module's tests; empty if each is by itself."""
    found = _GROUP.search(module.read_text(encoding="utf-8"))
    if found is None:
        return ""
    return str(module) if found[1] in _EACH_BY_ITSELF else found[1]
