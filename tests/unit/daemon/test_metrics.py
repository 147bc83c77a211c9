"""`GET /metrics`, on the routes of a home."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import anyio
import httpx2

from sandbox.agent.agent import Agent
from sandbox.daemon.event_stream import EventHub
from sandbox.daemon.routes import make_applications
from sandbox.daemon.served_home import Controllers, HttpOptions
from sandbox.daemon.upgrade import Upgrade
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
