"""What a test needs from its machine: absent it skips on a laptop and fails in CI, where a skip would test nothing."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def unavailable(reason: str) -> NoReturn:
    """Skip here, fail where the whole suite is promised to run."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
