"""A desk on which most tests of checks work; a test module with other needs has a `desk` of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.conftest import Upstream
from tests.unit.desk import Desk
from tests.unit.workbench.checks.test_verify import PROFILE


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Desk:
    """With a profile of the user's own that has one check, `test`."""
    (tmp_path / "home" / "profiles").mkdir(parents=True)
    (tmp_path / "home" / "profiles" / "own.toml").write_text(PROFILE)
    return Desk(upstream, tmp_path / "home")
