"""A scripted agent: a real client, a real server process, a real git server, and nothing but the tools."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError

from devtools.agent import AgentServer, Transport, approved, failed, ok, talk
from devtools.command import Command
from devtools.gitserver import GitServer

pytestmark = pytest.mark.xdist_group("gitserver")

MAKEFILE = """\
build: sum
sum: sum.c
\tcc -O0 -o sum sum.c
test: build
\ttest "$$(./sum 20 22)" = 42
slow:
\tsleep 300
.PHONY: build test slow
"""
BROKEN = """\
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    if (argc != 3) return 2;
    printf("%d\\n", atoi(argv[1]) - atoi(argv[2]));
    return 0;
}
"""


@pytest.fixture
def project(git_server: GitServer, tmp_path: Path) -> str:
    name = f"agent-{uuid.uuid4().hex[:8]}"
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "sum.c").write_text(BROKEN)
    (folder / ".gitignore").write_text("/sum\n")
    git_server.seed("acme", name, folder)
    return git_server.https_url("acme", name)


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, home: Path) -> Iterator[AgentServer]:
    transport: Transport = request.param
    found = AgentServer(home, transport)
    found.start()
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def http_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServer]:
    """One for requests that change nothing."""
    found = AgentServer(tmp_path_factory.mktemp("http") / "home", "http")
    found.start()
    try:
        yield found
    finally:
        found.stop()


def on_one(other: Transport) -> pytest.MarkDecorator:
    """In `make test` a server of one kind: nothing in the test depends on it. `other`: left to `make thorough`."""
    kinds = [pytest.param(one, marks=pytest.mark.thorough) if one == other else one for one in ("stdio", "http")]
    return pytest.mark.parametrize("server", kinds, indirect=True)


async def repair(client: Client, person: Command, project: str) -> str:
    """From clone to an edit that should mend it, across somebody else's edit; the id of the task."""
    repository = (await approved(client, person, "space_repo_clone", url=project))["repository"]["id"]
    made = await ok(client, "space_repo_create_task", repo_id=repository, prompt="Repair sum")
    task: str = made["task"]["id"]
    assert "test" in [c["id"] for c in (await ok(client, "space_repo_list_checks", task_id=task))["checks"]]
    run = await ok(client, "space_repo_run_check", task_id=task, check_id="test")
    assert run["verdict"] == "failed"
    output = await client.read_resource(f"sandbox://tasks/{task}/runs/{run['run_id']}/stdout")
    assert "sum 20 22" in output.contents[0].model_dump()["text"]
    hits = (await ok(client, "space_repo_search", task_id=task, pattern="atoi"))["hits"]
    assert {h["path"] for h in hits} == {"sum.c"}
    read = await ok(client, "space_repo_read_file", task_id=task, path="sum.c")
    other = person.home.parent / "other.c"
    other.write_text("/* sums */\n" + BROKEN)
    words = ("file", "write", task, "sum.c", str(other), "--expect", read["sha256"])
    await anyio.to_thread.run_sync(person.ok, *words)
    edit = {"task_id": task, "path": "sum.c", "old": ") - atoi", "new": ") + atoi"}
    await failed(client, "space_repo_edit_file", "stale_hash", **edit, expected_sha256=read["sha256"])
    read = await ok(client, "space_repo_read_file", task_id=task, path="sum.c")
    assert "sums" in read["content"]
    await ok(client, "space_repo_edit_file", **edit, expected_sha256=read["sha256"])
    return task


async def deliver(client: Client, person: Command, task: str) -> dict[str, Any]:
    """From the edit to a pushed branch, across a person who says no at first; the answer of the push."""
    diff = await ok(client, "space_repo_diff", task_id=task)
    assert "+ atoi" in diff["text"]
    assert [f["path"] for f in diff["files"]] == ["sum.c"]
    assert (await ok(client, "space_repo_run_check", task_id=task, check_id="test"))["verdict"] == "passed"
    await ok(client, "space_repo_commit", task_id=task, message="Add, do not subtract")
    assert (await ok(client, "space_repo_verify", task_id=task))["verified"]
    required = await failed(client, "space_repo_push", "approval_required", task_id=task)
    await anyio.to_thread.run_sync(person.ok, "approvals", "deny", required["details"])
    await failed(client, "space_repo_push", "approval_denied", task_id=task)
    write = {"path": "NEWS", "content": "sum adds\n", "expected_sha256": None}
    await ok(client, "space_repo_write_file", task_id=task, **write)
    await ok(client, "space_repo_commit", task_id=task, message="Tell what changed")
    assert (await ok(client, "space_repo_verify", task_id=task))["verified"]
    return await approved(client, person, "space_repo_push", task_id=task)


def test_an_agent_takes_a_failing_project_to_a_pushed_verified_branch(
    server: AgentServer, home: Path, project: str, git_server: GitServer
) -> None:
    person, results = Command(home), list[Any]()

    async def first(client: Client) -> None:
        results.append(await repair(client, person, project))

    async def second(client: Client) -> None:
        results.append(await deliver(client, person, results[0]))

    talk(server, first)
    if server.transport == "http":  # the state survives the server
        os.kill(server.pid, signal.SIGKILL)
        server.stop()
        server.start()
    talk(server, second)
    (asked,) = (
        a for a in person.ok("approvals", "list", "--all")["approvals"] if a["state"] == "used" and "push" in a["tool"]
    )
    assert "verified: yes, every check passed" in asked["question"]
    pushed = results[1]
    name = project.rsplit("/", 1)[1].removesuffix(".git")
    assert git_server.branches("acme", name)[pushed["branch"]] == pushed["commit"]


# --- long logs


LOUD = """\
build:
\ttrue
test:
\t@echo '<testsuite tests="9" failures="1"><testcase classname="test_sums" name="test_adds">' >/report/junit.xml
\t@echo '<failure message="assert 3 == 4">test_sums.py:7: AssertionError</failure></testcase></testsuite>' \\
\t\t>>/report/junit.xml
\tseq -f 'checking part %.0f of the whole' 1 35000
\t@echo 'FAILED test_sums.py::test_adds - assert 3 == 4'
\t@echo 'E   left: 3'
\tseq -f 'checking another part %.0f of it' 1 35000
\tfalse
.PHONY: build test
"""


@on_one("http")
def test_an_agent_finds_a_failure_in_the_middle_of_a_long_log(
    server: AgentServer, home: Path, git_server: GitServer, tmp_path: Path
) -> None:
    folder = tmp_path / "loud"
    folder.mkdir()
    (folder / "Makefile").write_text(LOUD)
    name = f"loud-{uuid.uuid4().hex[:8]}"
    git_server.seed("acme", name, folder)
    person = Command(home)
    repository = person.ok("repo", "clone", git_server.https_url("acme", name))["repository"]["id"]
    task = person.ok("task", "create", repository)["task"]["id"]

    async def session(client: Client) -> None:
        run = await ok(client, "space_repo_run_check", task_id=task, check_id="test")
        assert run["verdict"] == "failed"
        assert next(iter(run)) == "verdict"
        (failure,) = run["failures"]
        assert (failure["test"], failure["path"], failure["line"]) == ("test_sums::test_adds", "test_sums.py", 7)
        assert "FAILED test_sums" not in json.dumps(run)
        assert run["truncated"]
        assert "stdout_shown_from_byte" not in run, "the tail is cut; where it begins is not known"
        assert 0 < len(run["stdout_tail"]) <= 2000
        assert None not in run.values()
        assert "limits" not in run["usage"]
        passed = await ok(client, "space_repo_run_check", task_id=task, check_id="build")
        assert (passed["verdict"], "stdout_tail" in passed, "failures" in passed) == ("passed", False, False)
        assert run["stdout_bytes"] > 2 * 10**6
        log = {"run_id": run["run_id"]}
        last = await ok(client, "space_repo_read_log", **log)
        assert "another part 35000" in last["content"]
        assert last["truncated"]
        found = await ok(client, "space_repo_read_log", **log, pattern=r"^(FAILED|ERROR)\b")
        (match,) = found["matches"]
        assert match["text"] == "FAILED test_sums.py::test_adds - assert 3 == 4"
        assert not found["truncated"]
        line = match["line"]
        around = await ok(client, "space_repo_read_log", **log, start_line=line - 1, end_line=line + 1)
        assert around["content"] == f"checking part 35000 of the whole\n{match['text']}\nE   left: 3\n"
        assert around["total_lines"] > 70_000
        await failed(client, "space_repo_read_log", "invalid_input", **log, pattern="(")
        await failed(client, "space_repo_read_log", "not_found", run_id="run-" + "0" * 32)

    talk(server, session)


# --- concurrency and abuse


@pytest.fixture
def busy(home: Path, project: str) -> dict[str, str]:
    """A repository and a task on it, made by a person."""
    person = Command(home)
    repository = person.ok("repo", "clone", project)["repository"]["id"]
    return {"repo_id": repository, "task_id": person.ok("task", "create", repository)["task"]["id"]}


def test_fifty_calls_at_once_over_one_session(server: AgentServer, busy: dict[str, str]) -> None:
    task, answers = busy["task_id"], list[dict[str, Any]]()

    async def one(client: Client, number: int) -> None:
        if number % 5 == 0:
            write = {"path": f"new/{number}", "content": f"{number}\n", "expected_sha256": None}
            answers.append(await ok(client, "space_repo_write_file", task_id=task, **write))
        else:
            answers.append(await ok(client, "space_repo_status", task_id=task))

    async def session(client: Client) -> None:
        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(one, client, number)
        assert len(answers) == 50
        assert len((await ok(client, "space_repo_status", task_id=task))["changes"]) == 10

    talk(server, session)


def test_ten_sessions_on_one_home(home: Path, busy: dict[str, str]) -> None:
    server = AgentServer(home, "http")
    server.start()

    async def one(number: int) -> None:
        async with server.client(mode="legacy" if number % 2 else "auto") as client:
            task = (await ok(client, "space_repo_create_task", repo_id=busy["repo_id"], prompt=f"{number}"))["task"][
                "id"
            ]
            write = {"path": "mine", "content": f"{number}\n", "expected_sha256": None}
            await ok(client, "space_repo_write_file", task_id=task, **write)
            assert (await ok(client, "space_repo_read_file", task_id=task, path="mine"))["content"] == f"{number}\n"

    async def run() -> None:
        with anyio.fail_after(240):
            async with anyio.create_task_group() as group:
                for number in range(10):
                    group.start_soon(one, number)

    try:
        anyio.run(run)
    finally:
        server.stop()


@dataclass(frozen=True)
class SlowTask:
    """A task whose check `test` runs until it is let go."""

    id: str
    worktree: Path

    def let_go(self) -> None:
        (self.worktree / "go").touch()


@pytest.fixture
def slow(home: Path, git_server: GitServer, tmp_path: Path) -> SlowTask:
    folder = tmp_path / "slow"
    folder.mkdir()
    recipe = "echo at work; while ! test -e go; do sleep 0.1; done"
    (folder / "Makefile").write_text(f"build:\n\ttrue\ntest:\n\t{recipe}\n.PHONY: build test\n")
    name = f"slow-{uuid.uuid4().hex[:8]}"
    git_server.seed("acme", name, folder)
    person = Command(home)
    repository = person.ok("repo", "clone", git_server.https_url("acme", name))["repository"]["id"]
    task = person.ok("task", "create", repository)["task"]
    return SlowTask(task["id"], Path(task["worktree_path"]))


def give_up(slow: SlowTask) -> Callable[[Client], Awaitable[None]]:
    """A session that cancels its call once the check is at work, as a client does whose deadline has come."""
    running = anyio.Event()

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        if message and "at work" in message:
            running.set()

    async def session(client: Client) -> None:
        async with anyio.create_task_group() as group:
            call = {"task_id": slow.id, "check_id": "test"}
            group.start_soon(lambda: client.call_tool("space_repo_run_check", call, progress_callback=progress))
            await running.wait()
            group.cancel_scope.cancel()

    return session


def ended(home: Path, task_id: str) -> list[str]:
    """Checks and verdicts in the task's journal."""
    return [name for entry in Command(home).ok("task", "log", task_id)["entries"] for name in entry["names"]]


def test_s17_a_check_whose_client_gave_up_goes_on_and_is_found_again(server: AgentServer, slow: SlowTask) -> None:
    async def later(client: Client) -> None:
        found = await ok(client, "space_repo_run_check", task_id=slow.id, check_id="test", wait_s=3)
        assert (found["state"], found["check_id"], found["last_lines"][-1]) == ("running", "test", "at work")
        assert found["elapsed_s"] < found["deadline_s"]
        slow.let_go()
        result = await ok(client, "space_repo_wait_run", run_id=found["run_id"], wait_s=200)
        assert (result["state"], result["verdict"], result["run_id"]) == ("finished", "passed", found["run_id"])

    talk(server, give_up(slow), later)
    assert "test killed" not in ended(server.home, slow.id)


def test_a_client_that_goes_stops_its_check_where_that_is_asked_for(server: AgentServer, slow: SlowTask) -> None:
    server.stop()
    strict = AgentServer(server.home, server.transport, env={"SANDBOX_AGENT_ON_DISCONNECT": "stop"})
    strict.start()
    try:
        talk(strict, give_up(slow))

        async def stopped() -> None:
            with anyio.fail_after(120):
                while "test killed" not in ended(server.home, slow.id):
                    await anyio.sleep(0.2)

        anyio.run(stopped)
    finally:
        strict.stop()
    assert Command(server.home).ok("file", "read", slow.id, "Makefile")["content"].startswith("build:")


@on_one("http")
def test_a_run_is_left_and_ended_by_its_id(server: AgentServer, slow: SlowTask) -> None:
    async def session(client: Client) -> None:
        started = await ok(client, "space_repo_run_check", task_id=slow.id, check_id="test", wait_s=0.5)
        assert started["state"] == "running"
        waited = await ok(client, "space_repo_wait_run", run_id=started["run_id"], wait_s=0.1)
        assert waited["state"] == "running"
        ended = await ok(client, "space_repo_stop_run", run_id=started["run_id"])
        assert (ended["state"], ended["verdict"]) == ("finished", "killed")
        verify = await ok(client, "space_repo_verify", task_id=slow.id, wait_s=0)
        assert (verify["state"], "verified" in verify and verify["verified"] is not None) == ("running", False)
        over = await ok(client, "space_repo_stop_run", run_id=verify["run_id"])
        assert (over["state"], over["verified"]) == ("finished", False)
        await failed(client, "space_repo_wait_run", "not_found", run_id="run-" + "0" * 32)

    talk(server, session)


class Handle(types.Result):
    """What a call of a tool is answered with while its work goes on, by the extension for tasks."""

    result_type: Literal["task"]
    task_id: str
    status: str
    poll_interval_ms: int


class TaskState(types.Result):
    status: str
    result: dict[str, Any] | None = None


class TaskIdParams(types.RequestParams):
    task_id: str


class Tasks(ClientExtension):
    """A client that waits for a task by asking for it, as the extension has it."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, on_handle: Callable[[Handle], None], *, cancels: bool = False) -> None:
        self._on_handle, self._cancels = on_handle, cancels

    def claims(self) -> list[ResultClaim[Handle]]:
        return [ResultClaim(result_type="task", model=Handle, resolve=self._resolve)]

    async def _resolve(self, handle: Handle, context: ClaimContext) -> types.CallToolResult:
        self._on_handle(handle)
        params = TaskIdParams(task_id=handle.task_id)
        if self._cancels:
            await context.session.send_request(
                types.Request[Any, Any](method="tasks/cancel", params=params), types.EmptyResult
            )
        while True:
            request = types.Request[Any, Any](method="tasks/get", params=params)
            found = await context.session.send_request(request, TaskState)
            if found.status != "working":
                assert found.result is not None
                return types.CallToolResult.model_validate(found.result)
            await anyio.sleep(handle.poll_interval_ms / 20_000)


@pytest.mark.parametrize(
    ("server", "cancels", "verdict"),
    [
        pytest.param("stdio", False, "passed", id="stdio-waits"),
        pytest.param("http", True, "killed", id="http-cancels"),
        pytest.param("http", False, "passed", id="http-waits", marks=pytest.mark.thorough),
        pytest.param("stdio", True, "killed", id="stdio-cancels", marks=pytest.mark.thorough),
    ],
    indirect=["server"],
)
def test_a_client_that_knows_tasks_waits_by_itself(
    server: AgentServer, slow: SlowTask, cancels: bool, verdict: str
) -> None:
    handles: list[Handle] = []

    def seen(handle: Handle) -> None:
        handles.append(handle)
        if not cancels:
            slow.let_go()

    async def session(client: Client) -> None:
        found = await ok(client, "space_repo_run_check", task_id=slow.id, check_id="test", wait_s=0.5)
        assert (found["state"], found["verdict"]) == ("finished", verdict)
        assert [handle.task_id for handle in handles] == [found["run_id"]]

    talk(server, session, extensions=[Tasks(seen, cancels=cancels)])


@pytest.mark.parametrize(("word", "said"), [("deny", "was not approved"), ("ask", "has to approve")])
def test_what_the_policy_keeps_from_a_tool_is_kept_from_the_protocol_as_well(
    home: Path, slow: SlowTask, word: str, said: str
) -> None:
    policies = home / "policies"
    policies.mkdir()
    (policies / "approvals.toml").write_text(
        f'[tools]\nspace_repo_wait_run = "{word}"\nspace_repo_stop_run = "{word}"\n'
    )

    async def session(client: Client) -> None:
        started = await ok(client, "space_repo_run_check", task_id=slow.id, check_id="test", wait_s=0)
        for method in ("tasks/get", "tasks/cancel"):
            request = types.Request[Any, Any](method=method, params=TaskIdParams(task_id=started["run_id"]))
            with pytest.raises(MCPError, match=said):
                await client.session.send_request(request, types.EmptyResult)
        slow.let_go()

    talk(AgentServer(home, "stdio"), session)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer x"}, 401),
        ({"authorization": "Basic TOKEN"}, 401),
        ({"authorization": "Bearer TOKEN", "host": "evil.example"}, 421),
        ({"authorization": "Bearer TOKEN", "host": "127.0.0.1.evil.example"}, 421),
        ({"authorization": "Bearer TOKEN", "origin": "http://evil.example"}, 403),
        ({"authorization": "Bearer TOKEN", "origin": "null"}, 403),
    ],
)
def test_n01_n02_strangers_and_rebound_names_are_turned_away(
    http_server: AgentServer, headers: dict[str, str], status: int
) -> None:
    server = http_server
    headers = {name: value.replace("TOKEN", server.token) for name, value in headers.items()}
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    base = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    with httpx2.Client(timeout=60) as http:
        assert http.post(server.url, json=body, headers={**base, **headers}).status_code == status
        if status == 401:
            for path, method in (("/", "GET"), ("/health", "GET"), ("/mcp", "OPTIONS"), ("/mcp", "DELETE")):
                url = server.url.removesuffix("/mcp") + path
                assert http.request(method, url, headers=headers).status_code == 401
        good = {**base, "authorization": f"Bearer {server.token}"}
        assert http.post(server.url, json=body, headers=good).status_code < 500, "the control"


@pytest.mark.parametrize(
    "body",
    [
        b"{" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "\\ud800"}}',
        b"\xff\xfe",
        b"",
        b" " * (17 * 1024**2),
    ],
    ids=["open", "deep", "nan", "surrogate", "bytes", "empty", "large"],
)
def test_n12_bodies_that_are_no_requests_are_refused(http_server: AgentServer, body: bytes) -> None:
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    with httpx2.Client(timeout=60, headers={**headers, "authorization": f"Bearer {http_server.token}"}) as http:
        answer = http.post(http_server.url, content=body)
        assert 400 <= answer.status_code < 500
        assert "Traceback" not in answer.text
        assert http.post(http_server.url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"}).status_code < 500


def test_n06_other_machines_need_a_token_file_of_their_own(home: Path) -> None:
    ended = Command(home)("mcp", "--http", "0.0.0.0:0", "--json")
    assert (ended.code, ended.error["code"]) == (2, "invalid_input")
    assert "--token-file" in ended.error["hint"]
    shared = home.parent / "token"
    shared.write_text("x" * 40)
    shared.chmod(0o644)
    ended = Command(home)("mcp", "--http", "127.0.0.1:0", "--token-file", str(shared), "--json")
    assert (ended.code, ended.error["code"]) == (3, "policy_violation")


def test_every_transport_says_that_its_tools_change(server: AgentServer) -> None:
    async def session(client: Client) -> None:
        tools = client.server_capabilities.tools
        assert tools is not None
        assert tools.list_changed

    talk(server, session, mode="legacy")


def test_the_budget_of_results_is_a_setting(home: Path, busy: dict[str, str]) -> None:
    server = AgentServer(home, "stdio", env={"SANDBOX_AGENT_RESULT_BYTES": "5000"})

    async def session(client: Client) -> None:
        task = busy["task_id"]
        write = {"path": "long", "content": "x\n" * 10_000, "expected_sha256": None}
        await ok(client, "space_repo_write_file", task_id=task, **write)
        result = await client.call_tool("space_repo_read_file", {"task_id": task, "path": "long"})
        assert result.structured_content["truncated"]
        assert len(json.dumps(result.structured_content, separators=(",", ":"))) <= 5000
        assert "start_line" in result.content[-1].model_dump()["text"]

    talk(server, session)
