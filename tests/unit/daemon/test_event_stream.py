"""The follower of events for those who listen over HTTP."""

from __future__ import annotations

import errno
import threading
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, cast

import anyio
import anyio.to_thread
import pytest
from starlette.types import ASGIApp, Message

from sandbox.agent.agent import Agent
from sandbox.daemon import event_stream
from sandbox.daemon.event_stream import EventHub
from sandbox.daemon.guards import RIGHTS
from sandbox.daemon.routes import make_applications
from sandbox.daemon.served_home import Controllers, HttpOptions
from sandbox.models import HomeEvent, HomeEventKind
from sandbox.workbench import Workbench
from tests.unit.daemon.event_receiver import make_event

if TYPE_CHECKING:
    from sandbox.daemon.upgrade import Upgrade

DEADLINE_S = 60
EVENT = make_event(HomeEventKind.PUSH, 1)


class Faulty:
    """Events of a home that has too many open files: at first, and once while it is followed."""

    def __init__(self) -> None:
        self.looks = 0

    def follow_events(self) -> Iterator[HomeEvent | None]:
        self.looks += 1
        if self.looks == 1:
            raise OSError(errno.EMFILE, "at first")
        yield None
        if self.looks == 2:
            raise OSError(errno.EMFILE, "meanwhile")
        while True:
            yield EVENT
            yield None


def test_events_are_followed_again_after_too_many_files_were_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who may have missed some is told so. Control: the thread ends with the first error."""
    monkeypatch.setattr(event_stream, "_RETRY_S", 0.0, raising=False)
    hub, got = EventHub(cast("Workbench", Faulty())), Queue[HomeEvent | None]()
    hub.add(got.put)
    try:
        assert [got.get(timeout=DEADLINE_S), got.get(timeout=DEADLINE_S)] == [None, EVENT]
    finally:
        hub.remove(got.put)
        hub.end()
    assert caplog.text.count("cannot be followed") == 2


class Waiting:
    """A home whose events cannot be followed yet, and whose journals are read for long."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def follow_events(self) -> Iterator[HomeEvent | None]:
        self.release.wait(DEADLINE_S)
        yield None


async def read_first(stream: AsyncGenerator[str, None]) -> None:
    await anext(stream)


def test_s165_listeners_that_wait_take_no_threads_of_persons() -> None:
    """The pages of persons are made in the default threads."""
    home = Waiting()
    hub = EventHub(cast("Workbench", home))
    default = anyio.to_thread.current_default_thread_limiter

    async def listen() -> None:
        with anyio.fail_after(DEADLINE_S):
            streams = [cast("AsyncGenerator[str, None]", event_stream._write(hub, "")) for _ in range(4)]
            async with anyio.create_task_group() as group:
                for stream in streams:
                    group.start_soon(read_first, stream)
                while hub.threads.borrowed_tokens < 4:
                    await anyio.sleep(0.01)
                assert default().borrowed_tokens == 0
                home.release.set()
            for stream in streams:
                await stream.aclose()

    try:
        anyio.run(listen)
    finally:
        hub.end()


POLICIES = {
    "allowed": "",
    "denied": '[risk]\nfilesystem-read = "deny"\n',
    "asked": '[risk]\nfilesystem-read = "ask"\n',
    "no list": '[tools]\nspace_repo_list_tasks = "deny"\n',
    "no journals": '[tools]\nspace_repo_status = "deny"\n',
}


@pytest.mark.parametrize("policy", POLICIES)
def test_s195_an_agent_gets_no_events_of_what_the_policy_does_not_allow(tmp_path: Path, policy: str) -> None:
    """Controls: by the shipped policy it does; a person does in any case."""
    home = tmp_path / "home"
    (home / "policies").mkdir(parents=True)
    (home / "policies" / "approvals.toml").write_text(POLICIES[policy])
    with Workbench(home, environ={}) as workbench:
        agent, hub = Agent(workbench, home, "policy"), EventHub(workbench)
        controllers = Controllers(workbench, lambda: agent, workbench, cast("Upgrade", None))
        app = make_applications(controllers, hub, HttpOptions()).for_network
        try:
            found = {rights: anyio.run(ask_for_events, app, rights) for rights in ("token", "person", "user")}
        finally:
            hub.end()
    assert found == {"token": 200 if policy == "allowed" else 403, "person": 200, "user": 200}


async def ask_for_events(app: ASGIApp, rights: str) -> int:
    """The status of the answer; what comes after it is not awaited."""
    found: list[int] = []

    async def receive() -> Message:
        await anyio.sleep(DEADLINE_S)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        found.extend([message["status"]] if "status" in message else [])
        asked.cancel()

    headers = [(b"last-event-id", b"home/1")]
    scope = {"type": "http", "method": "GET", "path": "/api/v1/events", "headers": headers, RIGHTS: rights}
    with anyio.fail_after(DEADLINE_S), anyio.CancelScope() as asked:
        await app(scope, receive, send)
    return found[0]
