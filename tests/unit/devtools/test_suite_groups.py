"""Which tests run in one process of the suite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from devtools.suite_groups import find_group

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


SINGLE = """
import pytest


@pytest.mark.parametrize("number", range(20))
def test_it(number):
    pass
"""


@pytest.mark.parametrize(("distribution", "processes"), [("loadgroup", 1), ("load", 2)])
def test_a_group_runs_in_one_process(tmp_path: Path, distribution: str, processes: int) -> None:
    """Control: where groups do not count, its tests are shared. Tests without a group run beside it, each once."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler\n")
    (tmp_path / "test_grouped.py").write_text(MODULE)
    (tmp_path / "test_single.py").write_text(SINGLE)
    # Its own place for temporary files: pytest's default deletes at its end what earlier suites left, for minutes.
    options = ["-n", "2", "--dist", distribution, "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "temporary")]
    command = [sys.executable, "-m", "pytest", "-q", *options, "."]
    environ = {"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()
    assert b"32 passed" in done.stdout
    assert len([*tmp_path.glob("process-*")]) == processes
