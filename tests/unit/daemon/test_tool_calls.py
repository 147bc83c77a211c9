"""The JSON API: what is a call, and what is refused before a tool sees it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest
from starlette.applications import Starlette

from sandbox.agent.agent import Agent
from sandbox.daemon.tool_calls import make_api_routes
from sandbox.workbench import Workbench

JSON = "application/json"


class Api:
    """The paths of all tools, without a socket."""

    def __init__(self, agent: Agent) -> None:
        self._app = Starlette(routes=list(make_api_routes(agent)))

    def post(self, tool: str, body: bytes = b"", *, kind: str | None = None) -> httpx2.Response:
        async def ask() -> httpx2.Response:
            async with httpx2.AsyncClient(transport=httpx2.ASGITransport(self._app), base_url="http://x") as client:
                headers = {} if kind is None else {"content-type": kind}
                return await client.post(f"/api/v1/{tool}", content=body, headers=headers)

        return anyio.run(ask)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with Workbench(tmp_path / "home", environ={}) as workbench:
        yield Api(Agent(workbench, tmp_path / "home", "auto"))


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", None],
)
def test_n05_a_call_that_is_not_declared_as_json_is_refused(api: Api, kind: str | None) -> None:
    answer = api.post("space_repo_list", b"{}", kind=kind)
    assert answer.status_code == 415
    assert JSON in answer.text


@pytest.mark.parametrize("kind", [JSON, "Application/JSON; charset=utf-8"])
def test_a_call_as_json_is_answered(api: Api, kind: str) -> None:
    assert api.post("space_repo_list", b"{}", kind=kind).json() == {"repositories": []}


def test_a_call_without_arguments_needs_no_body(api: Api) -> None:
    assert api.post("space_repo_list").json() == {"repositories": []}
    assert api.post("space_repo_list", kind="text/plain").status_code == 415


@pytest.mark.parametrize(
    "body", [b'{"repo_id": "a", "repo_id": "b"}', b'{"repo_id": {"x": 1, "x": 2}}'], ids=["top", "below"]
)
def test_n12_a_call_with_a_name_twice_is_refused(api: Api, body: bytes) -> None:
    """Control: with each name once, it is a call."""
    answer = api.post("space_repo_list_tasks", body, kind=JSON)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "invalid_input"
    assert "twice" in error["details"]
    assert error["hint"]
    assert api.post("space_repo_list_tasks", b'{"repo_id": "b"}', kind=JSON).status_code == 404


def test_an_empty_name_of_a_run_is_refused_with_a_code(api: Api) -> None:
    """What a task lost is looked for also beside an error: no name may make that fail."""
    answer = api.post("space_repo_wait_run", b'{"run_id": ""}', kind=JSON)
    assert answer.json()["error"]["code"] in {"invalid_input", "not_found"}
