"""A scripted agent mends a published project that somebody broke: from a failing check to a verified, pushed branch.

Nothing about the fault is told to it: it goes by what the check says and by what the tools find.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

from demo.inputs import Project, load_projects
from devtools.agent import AgentServer, approved, ok, talk
from devtools.command import Command
from devtools.gitserver import GitServer
from devtools.published import FetchError, fetch, unpack
from devtools.requirement import unavailable

pytestmark = pytest.mark.xdist_group("gitserver")

CACHE = Path(__file__).parents[2] / ".tool_cache" / "published"
SOUND, FAULT = '"[-_.]+", "-"', '"[-_.]", "-"'
"""A run of separators becomes as many dashes as it is long, where PEP 503 wants one."""


@pytest.fixture(scope="module")
def published() -> Project:
    """A library with its own tests, pinned by version and hash."""
    return next(project for project in load_projects() if project.source == "pypi")


@pytest.fixture
def sources(published: Project, tmp_path: Path) -> Path:
    """As its authors published it."""
    try:
        archive = fetch(published, CACHE, os.environ)
    except FetchError as error:
        unavailable(str(error))
    unpack(archive, tmp_path / "sources", published.leave_out)
    return tmp_path / "sources"


def tree_of(folder: Path, scratch: Path) -> str:
    """The id that git gives to a folder."""
    git = ["git", f"--git-dir={scratch}", f"--work-tree={folder}"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", "--all", "--force"], cwd=folder, check=True)
    return subprocess.run([*git, "write-tree"], check=True, capture_output=True, text=True).stdout.strip()


async def find_fault(client: Client, task: str) -> dict[str, Any]:
    """From the failing test to the function it calls; the file that has it, and the line it begins at."""
    run = await ok(client, "space_repo_run_check", task_id=task, check_id="test")
    assert (run["verdict"], run["report"]["failures"]) == ("failed", 1)
    (broken,) = run["failures"]
    log = await client.read_resource(f"sandbox://tasks/{task}/runs/{run['run_id']}/stdout")
    text = log.contents[0].model_dump()["text"]
    called = re.search(r"got = (\w+)\(", text)
    assert called is not None, text
    assert broken["test"].split("::")[1].split("[")[0] in text
    search = {"task_id": task, "pattern": f"def {called[1]}(", "glob": "src/**"}
    (hit,) = (await ok(client, "space_repo_search", **search))["hits"]
    return dict(hit)


async def mend(client: Client, task: str, hit: dict[str, Any]) -> None:
    """Repair the function where it is, and see the check pass."""
    where = {"task_id": task, "path": hit["path"]}
    read = await ok(client, "space_repo_read_file", **where, start_line=hit["line"], end_line=hit["line"] + 10)
    assert FAULT in read["content"]
    edit = {**where, "old": FAULT, "new": SOUND, "expected_sha256": read["sha256"]}
    await ok(client, "space_repo_edit_file", **edit)
    changes = (await ok(client, "space_repo_status", task_id=task))["changes"]
    assert [c["path"] for c in changes] == [hit["path"]], "the checks changed nothing in the task"
    run = await ok(client, "space_repo_run_check", task_id=task, check_id="test")
    assert (run["verdict"], run["report"]["failures"], run["report"]["tests"]) == ("passed", 0, 120)


def test_an_agent_mends_a_published_project_that_was_broken(
    home: Path, git_server: GitServer, published: Project, sources: Path, tmp_path: Path
) -> None:
    assert published.edit is not None
    as_published = tree_of(sources, tmp_path / "published.git")
    broken = sources / published.edit.path
    broken.write_text(broken.read_text().replace(SOUND, FAULT))
    assert tree_of(sources, tmp_path / "broken.git") != as_published
    before = git_server.seed("acme", published.name, sources)
    url, person = git_server.https_url("acme", published.name), Command(home)
    pushed = dict[str, Any]()

    async def session(client: Client) -> None:
        repository = (await approved(client, person, "space_repo_clone", url=url))["repository"]
        assert repository["profile"] == "python"
        made = await ok(client, "space_repo_create_task", repo_id=repository["id"], prompt="Make the tests pass")
        task = made["task"]["id"]
        await mend(client, task, await find_fault(client, task))
        await ok(client, "space_repo_commit", task_id=task, message="One dash for a run of separators")
        verified = await ok(client, "space_repo_verify", task_id=task)
        assert {r["check_id"]: r["verdict"] for r in verified["runs"]} == {"build": "passed", "test": "passed"}
        assert (verified["verified"], verified["tree"]) == (True, as_published)
        pushed.update(await approved(client, person, "space_repo_push", task_id=task))

    talk(AgentServer(home, "stdio"), session)
    assert git_server.branches("acme", published.name) == {"main": before, pushed["branch"]: pushed["commit"]}
