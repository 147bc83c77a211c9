"""`GET /metrics`, on the routes of a home."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import anyio
import httpx2
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sandbox.agent.agent import Agent
from sandbox.daemon.event_stream import EventHub
from sandbox.daemon.metrics import make_registry
from sandbox.daemon.routes import make_applications
from sandbox.daemon.served_home import Controllers, HttpOptions
from sandbox.daemon.upgrade import Upgrade
from sandbox.models import Task, TaskStatus, WorkspaceKind
from sandbox.store.home import Home
from sandbox.store.records import save_task
from sandbox.workbench import Workbench


def test_figures_are_read_while_all_calls_of_agents_wait(tmp_path: Path) -> None:
    """Such as for a remote that is silent."""
    home = tmp_path / "home"

    async def session(agent: Agent, person: Workbench) -> httpx2.Response:
        controllers = Controllers(agent.workbench, lambda: agent, person, cast("Upgrade", None))
        hub = EventHub(agent.workbench)
        app = make_applications(controllers, hub, HttpOptions()).for_our_user
        for limiter in (agent.threads, agent.network_threads, agent.check_threads):
            for _ in range(int(limiter.total_tokens)):
                limiter.acquire_on_behalf_of_nowait(object())
        try:
            with anyio.fail_after(30):
                async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://x") as client:
                    return await client.get("/metrics")
        finally:
            hub.end()

    with Workbench(home, environ={}) as workbench, Workbench(home, environ={}) as person:
        answer = anyio.run(session, Agent(workbench, home), person)
    assert (answer.status_code, "sandbox_repositories 0.0" in answer.text) == (200, True)


def test_spare_tasks_are_counted(tmp_path: Path) -> None:
    spare = Task(
        id="task-00000000-0000-4000-8000-000000000000",
        repo_id="host-o-r",
        prompt="",
        base_branch="main",
        branch="space-agent/x",
        base_commit="a" * 40,
        workspace_kind=WorkspaceKind.WORKTREE,
        worktree_path=Path("/x"),
        status=TaskStatus.SPARE,
        head_commit="a" * 40,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    with Workbench(tmp_path / "home", environ={}) as workbench:
        save_task(Home(tmp_path / "home"), spare)
        text = generate_latest(make_registry(workbench)).decode()
    found = {family.name: family.samples for family in text_string_to_metric_families(text)}
    tasks = {sample.labels["status"]: sample.value for sample in found["sandbox_tasks"]}
    assert (tasks.pop("spare"), set(tasks.values())) == (1, {0})
