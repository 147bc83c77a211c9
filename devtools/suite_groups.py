"""Tests that share an engine, a server or an environment run in one process of the suite.

A module says so: `pytestmark = pytest.mark.xdist_group(NAME)`. Its fixtures are then made once and not in each process.
xdist 3.8 writes the group into the test's id, which pytest 9.2 does not read back (pytest-xdist #1386), so the group is
taken from the module here. The git server is one for a process, and too many tests use it for one process: of that
group, each module is by itself.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_GROUP = re.compile(r'^pytestmark = .*\bxdist_group\("([\w-]+)"\)', re.MULTILINE)
_EACH_BY_ITSELF = {"gitserver"}


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives groups to processes as a whole, those with the most tests first, and other tests one by one."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._root = config.rootpath

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return find_group(self._root / path) or nodeid


@cache
def find_group(module: Path) -> str:
    """The group of a module's tests; empty if each is by itself."""
    found = _GROUP.search(module.read_text(encoding="utf-8"))
    if found is None:
        return ""
    return str(module) if found[1] in _EACH_BY_ITSELF else found[1]
