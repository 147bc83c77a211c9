"""Candidates: what the gate and a promotion ask of one. Real engine, real git."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.models import Verdict
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, initialised, refused

ABSENT = b"libq.so.6"
PROFILE = """
label = "bench"
image = "base"
priority = 99
[[detect.any]]
file = "program"
[[check]]
id = "build"
label = "build"
argv = ["test", "-x", "program"]
[launch]
argv = ["sh", "-c", 'touch "$1/up"; exec sleep 60', "sh", "<run>"]
requires = ["build"]
soak_s = 0
[launch.ready]
file = "<run>/up"
[launch.stop]
exit_code = 143
[promote]
artifacts = ["program"]
"""


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    """A repository with a program that needs a library which no host has, in the place of the C library."""
    found = initialised(tmp_path / "upstream")
    content = Path(shutil.which("true") or sys.executable).read_bytes()
    assert content.count(b"\0libc.so.6\0") == 1
    found.write("program", content.replace(b"\0libc.so.6\0", b"\0" + ABSENT + b"\0"), executable=True)
    found.commit()
    return found


@pytest.fixture
def workbench(tmp_path: Path, base_image: str) -> Iterator[Workbench]:
    profiles = tmp_path / "home" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "bench.toml").write_text(PROFILE)
    settings = {"gate": {"require": "push", "require_candidate": True}}
    with Workbench(tmp_path / "home", environ=dict(os.environ), settings=settings, allow_file=True) as found:
        yield found
    unmount_below(tmp_path)


def test_the_gate_asks_for_a_candidate_and_a_release_for_libraries_that_the_host_has(
    workbench: Workbench, upstream: Upstream
) -> None:
    repository = workbench.clone(str(upstream.root)).repository
    task = workbench.create_task(repository.id, "x")
    workbench.write_file(task.id, "README", b"x\n", None)
    commit = workbench.commit(task.id, "Describe it").commit
    assert workbench.verify(task.id).verified

    with refused(ErrorCode.GATE_CLOSED) as closed:
        workbench.push(task.id)
    assert (closed.value.hint, "'launch'" in closed.value.brief) == (f"sandbox candidate {task.id}", True)
    with refused(ErrorCode.GATE_CLOSED):
        workbench.promote(task.id)
    found = workbench.candidate(task.id)
    assert [run.verdict for run in found.runs] == [Verdict.PASSED] * 2, found.runs[-1].phases
    assert workbench.push(task.id).commit == commit == upstream.oid(task.branch)

    with refused(ErrorCode.POLICY_VIOLATION) as lacking:
        workbench.promote(task.id)
    assert lacking.value.data == {"missing": [ABSENT.decode()]}
    assert workbench.releases(repository.id).current == ""
