"""A home under a small limit on a loop device: nothing that exists only here is lost, and nothing grows for ever.

`python -m benchmarks.storage` does the same with 200 tasks and 1,000 runs.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.storage import MIB, Scale, list_lost, open_home, small_disk, use_home
from devtools.requirement import unavailable
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.mount_points import unmount_below
from tests.unit.conftest import Upstream

SCALE = Scale(tasks=12, runs=60, rounds=4, base_bytes=MIB, log_bytes=MIB, disk_bytes=64 * MIB, max_bytes=40 * MIB)


@pytest.fixture
def home(upstream: Upstream, tmp_path: Path) -> Iterator[Path]:
    upstream.write("f", b"one\n")
    upstream.commit()
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(small_disk(tmp_path, SCALE.disk_bytes))
        except OSError as error:
            unavailable(f"no small file system can be mounted: {error}")
        stack.callback(unmount_below, disk)
        yield disk / "home"


def test_a_home_keeps_to_its_limit_and_loses_no_work(home: Path, upstream: Upstream) -> None:
    with open_home(home, SCALE) as bench:
        outcome = use_home(bench, upstream.root, SCALE, bench.keep_to_limits)
        assert outcome.written > SCALE.disk_bytes
        assert max(outcome.held) <= SCALE.max_bytes
        assert len(outcome.work.unsaved) == len(outcome.work.commits) == SCALE.tasks // 2
        assert list_lost(bench, outcome.work) == []


def test_without_the_limit_the_same_work_fills_the_disk(home: Path, upstream: Upstream) -> None:
    """The control."""
    scale = replace(SCALE, max_bytes=0)
    with open_home(home, scale) as bench, pytest.raises((SandboxError, OSError)) as caught:
        use_home(bench, upstream.root, scale, bench.keep_to_limits)
    error = caught.value
    is_refused = isinstance(error, SandboxError) and (error.code, error.reason) == (ErrorCode.QUOTA_EXCEEDED, "disk")
    assert is_refused or (isinstance(error, OSError) and error.errno == errno.ENOSPC)
