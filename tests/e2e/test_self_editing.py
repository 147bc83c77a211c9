"""An application edits itself: a scripted agent over MCP, from the clone to a release that a launcher confirms.

The application is tests/data/lantern. Candidates that crash, hang, eat memory, or answer wrongly with exit code 0 are
refused, and the release in use stays; one that passes and that nobody confirms is switched back.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

from devtools.agent import AgentServer, approved, failed, ok, talk
from devtools.command import Command
from devtools.gitserver import GitServer

pytestmark = pytest.mark.xdist_group("gitserver")

DATA = Path(__file__).parents[1] / "data"
LUA, CORE = "assets/lua/main.lua", "src/main.cpp"
ANSWER = "    return 42\n"
HUNGRY = "    local t = {}\n    while true do t[#t + 1] = string.rep('x', 1048576) .. #t end\n"


@pytest.fixture
def lantern(home: Path, git_server: GitServer) -> str:
    """The URL of the application, for a home with its profile."""
    (home / "profiles").mkdir()
    shutil.copy(DATA / "lantern.toml", home / "profiles")
    git_server.seed("acme", "lantern", DATA / "lantern")
    return git_server.https_url("acme", "lantern")


@contextmanager
def launcher(releases: Path) -> Iterator[None]:
    """The application's own launcher: it confirms what `current` leads to, once it has seen it work."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.05):
            current = releases / "current"
            if current.exists():
                release = releases / current.readlink()  # once, as docs/applications.md shows
                said = subprocess.run([release / "build" / "lantern", "--run", "return greeting()"], check=True,
                                      env={**os.environ, "LANTERN_ASSETS": str(release / "assets")},
                                      capture_output=True, text=True, timeout=30).stdout  # fmt: skip
                if said == "good evening\n":
                    (releases / "confirm" / release.name).touch()
                    return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Agent:
    """The scripted agent, in one task."""

    def __init__(self, client: Client, person: Command, task: str) -> None:
        self.client, self.person, self.task = client, person, task

    async def change(self, path: str, old: str, new: str) -> None:
        read = await ok(self.client, "space_repo_read_file", task_id=self.task, path=path)
        edit = {"task_id": self.task, "path": path, "old": old, "new": new, "expected_sha256": read["sha256"]}
        await ok(self.client, "space_repo_edit_file", **edit)
        await ok(self.client, "space_repo_commit", task_id=self.task, message=f"Change {path}")

    async def candidate(self) -> dict[str, Any]:
        """The run of the launch."""
        answer = await ok(self.client, "space_repo_candidate", task_id=self.task, wait_s=120)
        launch = dict(answer["runs"][-1])
        assert launch["check_id"] == "launch"
        assert answer["verified"] == (launch["verdict"] == "passed")
        return launch

    async def promote(self) -> dict[str, Any]:
        return await approved(self.client, self.person, "space_repo_promote", task_id=self.task, wait_s=60)

    async def attempt(self, path: str, old: str, new: str, *expected: str) -> None:
        """A change whose candidate must end with this verdict, for this reason, and cannot be promoted."""
        await self.change(path, old, new)
        launch = await self.candidate()
        said = "\n".join(launch["phases"])
        assert launch["verdict"] == expected[0], said
        assert all(text in said for text in expected[1:]), said
        await failed(self.client, "space_repo_promote", "gate_closed", task_id=self.task)
        await self.change(path, new, old)


def test_an_application_edits_itself_up_to_a_release(home: Path, lantern: str) -> None:
    person = Command(home)

    async def session(client: Client) -> None:
        repository = (await approved(client, person, "space_repo_clone", url=lantern))["repository"]
        assert repository["profile"] == "lantern"
        made = await ok(client, "space_repo_create_task", repo_id=repository["id"], prompt="Greet in the evening")
        agent = Agent(client, person, made["task"]["id"])
        releases = home / "releases" / repository["id"]

        await agent.change(LUA, '"hello"', '"good evening"')
        impact = await ok(client, "space_repo_impact", task_id=agent.task)
        assert any("assets/lua/main.lua" in line for line in impact["lines"])
        assert (await agent.candidate())["verdict"] == "passed"
        with launcher(releases):
            first = await agent.promote()
        assert [entry["event"] for entry in first["history"]] == ["promoted", "confirmed"]
        in_use = (releases / "current").readlink()
        assert first["current"] == str(in_use)

        crash = "    show();\n"
        await agent.attempt(CORE, crash, "    std::abort();\n" + crash, "failed", "ready: failed", "exit code 134")
        await agent.attempt(CORE, crash, "    sleep(60);\n" + crash, "timed_out", "not ready within 6 s")
        await agent.attempt(LUA, ANSWER, HUNGRY, "oom_killed", "probe answer: failed")
        await agent.attempt(LUA, ANSWER, "    return 41\n", "failed", "its output does not match")
        assert (releases / "current").readlink() == in_use

        await agent.change(LUA, "200, 120, 40", "40, 120, 200")
        launch = await agent.candidate()
        assert launch["verdict"] == "passed"
        unconfirmed = await agent.promote()
        assert unconfirmed["history"][-1]["event"] == "switched_back"
        assert (unconfirmed["current"], (releases / "current").readlink()) == (str(in_use), in_use)

    before = images_with_packages(person)
    try:
        talk(AgentServer(home, "stdio"), session)
    finally:
        for name in images_with_packages(person) - before:
            person.ok("images", "remove", name)


def images_with_packages(person: Command) -> set[str]:
    """The names of those that are derived for a profile's packages."""
    return {image["name"] for image in person.ok("images", "list")["images"] if image["packages"]}
