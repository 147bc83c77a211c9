"""An agent repairs a small project in five calls: the answer of each call has what the next one needs. Real client."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client

from devtools.guests import remove_guests_of
from sandbox.agent.agent import Agent
from sandbox.agent.server import make_server
from sandbox.engine.connection import DockerEngine
from sandbox.files.mount_points import unmount_below
from sandbox.workbench import Workbench
from tests.unit.conftest import initialised

PROFILE = """
label = "bench"
image = "base"
priority = 99
[[detect.any]]
file = "test.sh"
[[check]]
id = "test"
label = "test"
argv = ["sh", "test.sh"]
"""
SUM = b"sum() { echo $(($1 - $2)); }\n"
TEST = b"""\
. ./sum.sh
found=$(sum 2 3)
test "$found" = 5 || { echo "sum.sh:1: error: sum 2 3 gave $found, not 5"; exit 1; }
"""


@pytest.fixture
def workbench(tmp_path: Path, engine: DockerEngine, base_image: str) -> Iterator[Workbench]:
    assert engine
    assert base_image
    home = tmp_path / "home"
    (home / "profiles").mkdir(parents=True)
    (home / "profiles" / "bench.toml").write_text(PROFILE)
    with Workbench(home, environ=dict(os.environ), allow_file=True) as made:
        yield made
    remove_guests_of(home)
    unmount_below(tmp_path)


def test_a_small_project_is_repaired_in_five_calls(workbench: Workbench, tmp_path: Path) -> None:
    upstream = initialised(tmp_path / "upstream")
    upstream.write("sum.sh", SUM)
    upstream.write("test.sh", TEST)
    upstream.commit()
    task = workbench.create_task(workbench.clone(str(upstream.root)).repository.id, "Repair the sum").id
    calls: list[str] = []

    async def repair() -> None:
        async with Client(make_server(Agent(workbench, workbench.home, "auto"))) as client:

            async def call(name: str, **arguments: Any) -> dict[str, Any]:
                calls.append(name)
                answer = await client.call_tool(f"space_repo_{name}", {"task_id": task, **arguments})
                assert not answer.is_error, answer.structured_content
                return dict(answer.structured_content or {})

            failed = await call("run_check", check_id="test")
            assert (failed["verdict"], "failures" in failed or "stdout_tail" in failed) == ("failed", True)
            path = failed["stdout_tail"].partition(":")[0]  # what failed names the file
            read = await call("read_file", path=path)
            wrong = read["content"].partition("$1 ")[2][0]
            edit = {"old": f"$1 {wrong} $2", "new": "$1 + $2", "expected_sha256": read["sha256"]}
            await call("edit_file", path=path, **edit)
            assert (await call("run_check", check_id="test"))["verdict"] == "passed"
            done = await call("commit", message="Add instead of subtract")
            assert [change["path"] for change in done["files"]] == ["sum.sh"]

    anyio.run(repair)
    assert len(calls) == 5
    assert workbench.verify(task).verified
    sessions = {entry.by.session for entry in workbench.log(task) if entry.by and entry.by.session}
    assert {run.session for run in workbench.runs(task) if not run.clean_room} == sessions
    assert len(sessions) == 1
