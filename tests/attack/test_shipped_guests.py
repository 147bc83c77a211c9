"""The entries of the shipped suite about containers: most use one scene and one run of a probe, so one process has all.

Its other entries are in `test_shipped.py`.
"""

from __future__ import annotations

import pytest

from sandbox.attack import select
from sandbox.attack.harness.entry import AttackEntry
from sandbox.attack.harness.site import AttackRun
from sandbox.engine.connection import DockerEngine
from tests.attack.test_shipped import require_held

pytestmark = [pytest.mark.must, pytest.mark.xdist_group("shipped-guests")]


@pytest.mark.parametrize("entry", [x for x in select() if x.scene == "guests"], ids=lambda entry: entry.id)
def test_shipped_entry_holds(engine: DockerEngine, site: AttackRun, entry: AttackEntry) -> None:
    require_held(site, entry)
