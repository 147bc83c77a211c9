"""`space_repo_prepare` through a real client: a fetch that outlasts the call, is stopped, and is asked for twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from mcp.client.client import Client

from devtools.agent import AgentServer, approved, failed, ok, talk
from devtools.command import Command
from devtools.guests import remove_guests_of
from sandbox.attack.harness.package_index import PackageIndex, serve_packages
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CheckRun
from sandbox.workbench import Watch, Workbench
from tests.unit.conftest import initialised

PROFILE = """
label = "packages"
image = "python"
priority = 99
[[detect.any]]
file = "pyproject.toml"
[[layer]]
ecosystem = "python"
[[check]]
id = "use"
label = "Use the package"
argv = ["python", "-c", "import wanted"]
limits = { memory_bytes = 134217728, cpus = 1.0, pids = 64 }
"""
PREPARE, WAIT, STOP = "space_repo_prepare", "space_repo_wait_run", "space_repo_stop_run"
CLIENT_S = 60.0
"""How long the clients that we know wait for one call, at least (sandbox/agent/clients.py)."""


class Bench:
    """A home with an index that is its only registry, and tasks of repositories that ask for one package."""

    def __init__(self, root: Path, index: PackageIndex) -> None:
        self.root, self.home, self.index = root, root / "home", index
        (self.home / "profiles").mkdir(parents=True)
        (self.home / "profiles/packages.toml").write_text(PROFILE)
        (self.home / "config.toml").write_text(f'[registries]\npython = ["{index.url}"]\n')

    def open(self) -> Workbench:
        return Workbench(self.home, allow_file=True)

    def make_task(self, wanted: str = "wanted") -> str:
        """A task of a repository of its own that asks for this package."""
        repository = initialised(self.root / f"project-{len(list(self.root.iterdir()))}")
        text = f'[project]\nname = "p"\nversion = "1"\ndependencies = ["{wanted}"]\n'
        repository.write("pyproject.toml", text.encode())
        repository.commit()
        with self.open() as workbench:
            return workbench.create_task(workbench.clone(str(repository.root)).repository.id).id


@pytest.fixture
def bench(tmp_path: Path, engine: DockerEngine) -> Iterator[Bench]:
    with serve_packages() as index:
        index.add("wanted", "1", {"wanted.py": ""})
        made = Bench(tmp_path, index)
        yield made
        index.release()
        remove_guests_of(made.home)
        assert list((made.home / "repositories/rooms").iterdir()) == []


def test_a_fetch_outlasts_its_call_and_session_and_two_callers_build_it_once(bench: Bench) -> None:
    """The client has its default timeout. A person approves the first call."""
    one, person = bench.make_task(), Command(bench.home)
    with bench.open() as workbench:
        two = workbench.create_task(workbench.task(one).repo_id).id
    started: dict[str, str] = {}

    async def begin(client: Client) -> None:
        shown = {tool.name: tool for tool in (await client.list_tools()).tools}[PREPARE]
        assert shown.input_schema["properties"]["wait_s"]["default"] < CLIENT_S
        for task in (one, two):
            answer = await approved(client, person, PREPARE, task_id=task, wait_s=2)
            assert answer["state"] == "running"
            started[task] = answer["run_id"]

    async def again(client: Client) -> None:
        running = await ok(client, WAIT, run_id=started[one], wait_s=0)
        assert "Fetching" in running["last_lines"][0]
        bench.index.release()
        answers = [await ok(client, WAIT, run_id=started[task], wait_s=CLIENT_S - 10) for task in (one, two)]
        assert [answer["state"] for answer in answers] == ["finished"] * 2
        assert answers[0]["layers"][0]["packages"] == 1
        assert answers[0]["layers"][0]["key"] == answers[1]["layers"][0]["key"]
        known = await ok(client, PREPARE, task_id=one)  # nobody is asked about a layer that is there
        assert (known["state"], known["commit"]) == ("finished", answers[0]["commit"])

    bench.index.hold()
    talk(AgentServer(bench.home, "stdio"), begin, again)
    asked = len(bench.index.asked)
    with bench.open() as workbench:
        workbench.build_layers(one, refresh=True)
    assert len(bench.index.asked) == 2 * asked, "both tasks together asked as often as one build does"
    shown = person.ok("check", "wait", started[one])
    (layer,) = shown["prepared"]["layers"]
    assert [c["purl"] for c in person.ok("layers", "show", layer["key"], "--sbom")["components"]] == [
        "pkg:pypi/wanted@1"
    ]


def test_the_packages_of_a_repository_are_asked_about_and_fetched_without_a_task(bench: Bench) -> None:
    """Control: the first check of a task that is made afterwards has them, and a stopped fetch has left nothing."""
    task = bench.make_task()
    person = Command(bench.home)
    with bench.open() as workbench:
        repo_id, head = workbench.task(task).repo_id, workbench.task(task).base_commit

    async def session(client: Client) -> None:
        for wrong in ({}, {"task_id": task, "repo_id": repo_id}):
            found = await failed(client, PREPARE, "invalid_input", **wrong)
            assert found["details"] == "Give either repo_id or task_id"
        asked = await failed(client, PREPARE, "approval_required", repo_id=repo_id)
        shown = await anyio.to_thread.run_sync(person.ok, "approvals", "show", asked["data"]["approval_id"])
        question = "\n".join(shown["approval"]["question"])
        assert f"commit {head[:12]}" in question
        assert f":{bench.index.port}\nasked for by manifests: 1" in question
        started = await approved(client, person, PREPARE, repo_id=repo_id, wait_s=1)
        assert started["state"] == "running"
        ended = await ok(client, STOP, run_id=started["run_id"])
        assert (ended["state"], ended["verdict"]) == ("finished", "killed")
        bench.index.release()
        done = await approved(client, person, PREPARE, repo_id=repo_id, wait_s=CLIENT_S - 10)
        assert (done["commit"], done["layers"][0]["packages"], "task_id" in done) == (head, 1, False)
        assert (await ok(client, PREPARE, repo_id=repo_id))["layers"][0]["key"] == done["layers"][0]["key"]
        made = await ok(client, "space_repo_create_task", repo_id=repo_id, prompt="p", branch="a-b")
        assert made["task"]["branch"].endswith("-a-b")
        run = await ok(client, "space_repo_run_check", task_id=made["task"]["id"], check_id="use")
        assert run["verdict"] == "passed"
        asked = {"repo_id": repo_id, "prompt": "p", "profile": "generic"}
        await failed(client, "space_repo_create_task", "approval_required", **asked)

    bench.index.hold()
    talk(AgentServer(bench.home, "stdio"), session)
    with bench.open() as workbench:
        builds = [event.operation for event in workbench.events() if event.operation.operation == "layers-build"]
    assert [build.names for build in builds] == [(repo_id,)] * 3
    assert person.ok("layers", "build", repo_id)["commit"] == head

    async def automated(client: Client) -> None:
        asked = {"repo_id": repo_id, "prompt": "p", "profile": "generic"}
        await failed(client, "space_repo_create_task", "approval_required", **asked)
        made = await approved(client, person, "space_repo_create_task", **asked)
        assert made["task"]["profile"] == "generic"

    talk(AgentServer(bench.home, "stdio", ("--approvals", "auto")), automated)


def test_a_stopped_fetch_leaves_nothing_and_can_be_asked_for_again(bench: Bench) -> None:
    task = bench.make_task()
    (bench.home / "policies").mkdir(exist_ok=True)
    (bench.home / "policies/approvals.toml").write_text(f'[tools]\n{PREPARE} = "allow"\n')

    async def session(client: Client) -> None:
        started = await ok(client, PREPARE, task_id=task, wait_s=2)
        same = await ok(client, PREPARE, task_id=task, wait_s=0)
        assert (same["state"], same["run_id"]) == ("running", started["run_id"])
        ended = await ok(client, STOP, run_id=started["run_id"])
        assert (ended["state"], ended["verdict"], "layers" in ended) == ("finished", "killed", False)
        bench.index.release()
        assert (await ok(client, PREPARE, task_id=task))["layers"][0]["packages"] == 1
        await failed(client, PREPARE, "not_found", task_id=task[:-1] + ("0" if task[-1] != "0" else "1"))

    bench.index.hold()
    talk(AgentServer(bench.home, "stdio"), session)


def test_a_failed_fetch_is_not_tried_by_every_command_and_a_refresh_asks_again(bench: Bench) -> None:
    """Control: the first run, and the explicit build, do ask the index."""
    task, lines = bench.make_task("absent"), list[str]()
    watch = Watch(building=lines.append)

    def asks(act: Any) -> bool:
        before = len(bench.index.asked)
        act()
        return len(bench.index.asked) > before

    with bench.open() as workbench:
        runs: list[CheckRun] = []
        assert asks(lambda: runs.extend(workbench.run_checks(task, ["use"], watch)))
        cause = runs[0].cause
        assert cause is not None
        assert "no module 'wanted': the packages that the project asks for could not be fetched" in cause.sentence
        assert not asks(lambda: workbench.run_checks(task, ["use"], watch))
        assert "s ago)" in lines[-1]
        assert "--refresh" in lines[-1]
        with pytest.raises(SandboxError) as raised:
            workbench.build_layers(task)
        assert raised.value.code is ErrorCode.NETWORK_ERROR
        bench.index.add("absent", "1", {"wanted.py": ""})
        assert not asks(lambda: workbench.run_checks(task, ["use"], watch))
        assert asks(lambda: workbench.build_layers(task))
        bench.index.add("absent", "2", {"wanted.py": ""})
        assert not asks(lambda: workbench.build_layers(task)), "the choice is recorded"
        first = workbench.build_layers(task).layers
        refreshed = workbench.build_layers(task, refresh=True).layers
        assert refreshed != first
        assert workbench.layer(refreshed[0].key).layer.packages[0].version == "2"
        assert workbench.run_checks(task, ["use"])[0].layers == (refreshed[0].key,)
        assert {one.key: one.tasks for one in workbench.layers()} == {first[0].key: 0, refreshed[0].key: 1}
        bench.index.wheels.clear()
        with pytest.raises(SandboxError):
            workbench.build_layers(task, refresh=True)
        assert workbench.build_layers(task).layers[0].key == refreshed[0].key, "a failed refresh changes nothing"
