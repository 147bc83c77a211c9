"""A daemon over HTTP, as its clients use it: MCP, the JSON API with its description, events, figures, receivers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from jsonschema import Draft202012Validator
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from prometheus_client.parser import text_string_to_metric_families

from devtools.agent import ok
from devtools.command import Command
from devtools.daemon import RunningDaemon, serving
from sandbox.agent.tools import TOOLS
from tests.unit.daemon.event_receiver import Receiver, serve_receiver

pytestmark = pytest.mark.xdist_group("daemon-http")  # one daemon for most of them

DEADLINE_S = 60.0
API = "/api/v1"


class HttpClient:
    """A program with the token."""

    def __init__(self, daemon: RunningDaemon) -> None:
        self.daemon, self.url, self.home = daemon, daemon.record.url, daemon.home
        self.headers = {"authorization": f"Bearer {(self.home / 'mcp-token').read_text()}"}

    def get(self, path: str) -> httpx2.Response:
        return httpx2.get(self.url + path, headers=self.headers, timeout=DEADLINE_S)

    def call(self, tool: str, **arguments: Any) -> httpx2.Response:
        return httpx2.post(f"{self.url}{API}/{tool}", headers=self.headers, json=arguments, timeout=DEADLINE_S)

    def result(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = self.call(tool, **arguments)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    @contextmanager
    def events(self, **headers: str) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
        """The stream, once the server listens: the id and data of each event."""
        with (
            httpx2.Client(headers={**self.headers, **headers}, timeout=DEADLINE_S) as client,
            client.stream("GET", f"{self.url}{API}/events") as answer,
        ):
            lines = answer.iter_lines()
            assert next(lines) == ": listening"
            yield read_stream(lines)


def read_stream(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        fields[name] = value
        if not line and "data" in fields:
            yield fields["id"], json.loads(fields["data"])
            fields = {}


def clone(remote: Path, home: Path) -> str:
    """A repository of this host, and its id."""
    git = ["git", "-C", str(remote), "-c", "user.name=A", "-c", "user.email=a@example.invalid"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(remote)], check=True)
    (remote / "f").write_bytes(b"one\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
    return str(Command(home).ok("repo", "clone", str(remote))["repository"]["id"])


def create_task(home: Path, repo_id: str) -> str:
    return str(Command(home).ok("task", "create", "--offline", repo_id)["task"]["id"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("http")


@pytest.fixture(scope="module")
def repo_id(place: Path) -> str:
    return clone(place / "up", place / "home")


@pytest.fixture(scope="module")
def client(place: Path, repo_id: str) -> Iterator[HttpClient]:
    with serving(place / "home", "--http", "127.0.0.1:0") as daemon:
        yield HttpClient(daemon)
    close_tasks(place / "home")


def close_tasks(home: Path) -> None:
    for task in Command(home).ok("task", "list")["tasks"]:
        Command(home)("task", "close", task["id"], "--delete", "--discard")


def test_an_mcp_client_works_through_the_daemon(client: HttpClient, repo_id: str) -> None:
    task = create_task(client.home, repo_id)

    async def work() -> None:
        timeout = httpx2.Timeout(DEADLINE_S)
        async with (
            httpx2.AsyncClient(headers=client.headers, timeout=timeout) as http,
            Client(streamable_http_client(f"{client.url}/mcp", http_client=http)) as session,
        ):
            assert {tool.name for tool in (await session.list_tools()).tools} <= set(TOOLS)
            await ok(session, "space_repo_write_file", task_id=task, path="new", content="x\n", expected_sha256=None)
            status = await ok(session, "space_repo_status", task_id=task)
            assert [change["path"] for change in status["changes"]] == ["new"]
            assert client.result("space_repo_status", task_id=task[5:13]) == status, "by the beginning of its id"

    async def within_deadline() -> None:
        with anyio.fail_after(4 * DEADLINE_S):
            await work()

    anyio.run(within_deadline)


def test_who_knocks_at_the_wrong_door_reads_where_the_right_one_is(client: HttpClient) -> None:
    assert re.search(f"at {re.escape(client.url)} - `sandbox --home [^`]+ dashboard`", client.daemon.log.read_text())
    for headers in ({}, {"authorization": "Bearer wrong"}):
        said = httpx2.get(client.url, headers=headers, timeout=DEADLINE_S)
        assert said.status_code == 401
        assert "no token, or a wrong one" in said.text
        assert "`sandbox dashboard`" in said.text
    misspelt = client.call("space_repo_lst")
    assert (misspelt.status_code, misspelt.json()["error"]["code"]) == (404, "not_found")
    assert "space_repo_list" in misspelt.json()["error"]["details"]
    wrong = client.call("space_repo_list", no_such_argument=1)
    assert (wrong.status_code, "openapi.json" in wrong.json()["error"]["hint"]) == (400, True)
    assert client.get(f"{API}/openapi.json").status_code == 200
    taken = Command(client.home)("mcp", "--http", client.url.removeprefix("http://"), "--json")
    assert "Another program listens there" in taken.error["hint"]


def test_an_event_is_delivered_and_a_client_that_comes_again_gets_what_it_missed(
    client: HttpClient, repo_id: str
) -> None:
    """Also from the next program of the daemon."""
    task = create_task(client.home, repo_id)
    with client.events() as events:
        client.result("space_repo_write_file", task_id=task, path="a", content="x\n", expected_sha256=None)
        name, event = next(found for found in events if found[1].get("task_id") == task)
        assert (event["kind"], event["operation"]["operation"]) == ("task", "write")
        assert name == event["id"]
    client.result("space_repo_write_file", task_id=task, path="b", content="x\n", expected_sha256=None)
    client.daemon.replace_program()
    with client.events(**{"last-event-id": name}) as events:
        missed, event = next(found for found in events if found[1].get("task_id") == task)
        assert (missed, event["operation"]["names"]) == (f"{task}/{int(name.rpartition('/')[2]) + 1}", ["b"])
        client.result("space_repo_write_file", task_id=task, path="c", content="x\n", expected_sha256=None)
        assert next(found for found in events if found[1].get("task_id") == task)[1]["operation"]["names"] == ["c"]


def test_a_call_that_a_person_approves_succeeds_unchanged(client: HttpClient, repo_id: str) -> None:
    task = create_task(client.home, repo_id)
    asked = client.call("space_repo_close_task", task_id=task)
    error = asked.json()["error"]
    assert (asked.status_code, error["code"]) == (403, "approval_required")
    assert read_figures(client)["sandbox_approvals_pending"] == 1
    approval = re.search(r"apr-[a-z2-7]+", json.dumps(error))
    assert approval is not None
    assert client.call("space_repo_close_task", task_id=task).status_code == 403, "still open"
    Command(client.home).ok("approvals", "approve", approval[0])
    assert client.result("space_repo_close_task", task_id=task)["task"]["status"] == "closed"
    assert read_figures(client)["sandbox_approvals_pending"] == 0


def read_figures(client: HttpClient) -> dict[str, float]:
    """By name, with the value of its first label."""
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_the_figures_are_those_of_the_home(client: HttpClient, repo_id: str) -> None:
    before = read_figures(client)
    create_task(client.home, repo_id)
    found = read_figures(client)
    assert found["sandbox_tasks working"] == before["sandbox_tasks working"] + 1
    assert found["sandbox_repositories"] == 1
    assert 0 < found["sandbox_home_disk_bytes free"] <= found["sandbox_home_disk_bytes total"]
    assert found["process_resident_memory_bytes"] > 0
    assert len([name for name in found if name.startswith("sandbox_info ")]) == 1


def test_the_description_is_valid_and_answers_are_as_described(client: HttpClient, repo_id: str) -> None:
    """OpenAPI 3.1: schemas are JSON Schema 2020-12; each reference leads somewhere; ids are unique."""
    document = client.get(f"{API}/openapi.json").json()
    assert document["openapi"].startswith("3.1.")
    assert set(document["info"]) >= {"title", "version"}
    assert set(document["paths"]) == {f"{API}/{name}" for name in TOOLS}
    operations = [path["post"] for path in document["paths"].values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert all(answer["description"] for one in operations for answer in one["responses"].values())
    schemes = document["components"]["securitySchemes"]
    assert all(name in schemes for needed in document["security"] for name in needed)
    schemas = document["components"]["schemas"]
    references = re.findall(r'"\$ref": "([^"]*)"', json.dumps(document))
    assert {one.removeprefix("#/components/schemas/") for one in references} <= set(schemas)
    for schema in (*schemas.values(), *(find_schema(one) for one in operations)):
        Draft202012Validator.check_schema(schema)
    create_task(client.home, repo_id)
    for tool in ("space_repo_list", "space_repo_list_tasks"):
        described = {**find_schema(document["paths"][f"{API}/{tool}"]["post"]), "components": document["components"]}
        answer = client.result(tool)
        assert repo_id in json.dumps(answer)
        Draft202012Validator(described).validate(answer)
        assert list(Draft202012Validator(described).iter_errors([])), "the control"


def find_schema(operation: dict[str, Any]) -> dict[str, Any]:
    return dict(operation["responses"]["200"]["content"]["application/json"]["schema"])


def test_a_webhook_and_a_collector_get_what_happened_between_two_daemons(tmp_path: Path) -> None:
    """And while the program of one was replaced."""
    home = tmp_path / "home"
    repo_id = clone(tmp_path / "up", home)
    secret = tmp_path / "secret"
    secret.write_text("k" * 40)
    secret.chmod(0o600)
    with serve_receiver() as receiver:
        url = f"http://127.0.0.1:{receiver.server.server_port}"
        (home / "config.toml").write_text(
            f'[serve]\ndesktop = false\notlp_url = "{url}/otlp"\n'
            f'[[serve.webhook]]\nurl = "{url}/hook"\nsecret_file = "{secret}"\nkinds = ["task"]\n'
        )
        tasks = []
        with serving(home) as daemon:
            wait_for_places(home, 2)
            tasks.append(create_task(home, repo_id))
            assert receive(receiver, "/hook")["x-sandbox-delivery"] == f"{tasks[0]}/1"
            daemon.replace_program()
            tasks.append(create_task(home, repo_id))
            assert receive(receiver, "/hook")["x-sandbox-delivery"] == f"{tasks[1]}/1"
            assert receive(receiver, "/otlp/v1/traces")
        tasks.append(create_task(home, repo_id))
        with serving(home):
            assert receive(receiver, "/hook")["x-sandbox-delivery"] == f"{tasks[2]}/1"
            assert receive(receiver, "/otlp/v1/logs")
    close_tasks(home)


def wait_for_places(home: Path, count: int) -> None:
    """Receivers begin with what happens once they have their places."""

    async def wait() -> None:
        with anyio.fail_after(DEADLINE_S):
            while len(list((home / "serve/receivers").glob("*.json"))) < count:
                await anyio.sleep(0.02)

    anyio.run(wait)


def receive(receiver: Receiver, path: str) -> dict[str, str]:
    """The headers of the next request for this path; the others are dropped."""
    while True:
        found, headers, _ = receiver.received.get(timeout=DEADLINE_S)
        if found == path:
            return headers
