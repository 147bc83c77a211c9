"""The MCP server with the SDK's own client, in process, over both protocol generations. Ids: THREATS I, N."""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from sandbox.agent import approval, inputs, mcp_tasks, permission, prompt, resources
from sandbox.agent.agent import Agent
from sandbox.agent.resources import MAX_CHARS, MAX_JOURNAL_ENTRIES, _read_journal
from sandbox.agent.results import failure, success
from sandbox.agent.server import _shorten_wait, make_server
from sandbox.agent.tools import MOST_LISTED_CLOSED, TOOLS, Preset
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import sha256_of
from sandbox.models import (
    Actor,
    Approval,
    ApprovalScope,
    ApprovalState,
    FileContent,
    JournalEntry,
    PatchedFile,
    PatchResult,
    SearchHit,
    SearchResult,
    SearchSkipped,
    TaskOptions,
    TaskStatus,
)
from sandbox.models.ids import MAX_BRANCH_CHARS
from sandbox.store.home import Home
from sandbox.store.records import save_run, save_task
from sandbox.workbench import Workbench
from sandbox.workbench.approvals import question
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk
from tests.unit.long_journal import START, make_entry, write_journal
from tests.unit.receipt_samples import made_run

GENERATIONS = pytest.mark.parametrize("mode", ["legacy", "auto"])
NEWEST = pytest.mark.parametrize("mode", [pytest.param("legacy", marks=pytest.mark.thorough), "auto"])
"""Of tools whose answers have nothing of the protocol's generation in them."""
BOOTSTRAP = {"space_repo_clone", "space_repo_fetch", "space_repo_list", "space_agent_request_tool_approval"}
AGREED = BOOTSTRAP | {
    f"space_repo_{name}"
    for name in (
        "map", "create_task", "list_tasks", "close_task", "status", "diff", "read_file", "search", "apply_patch",
        "edit_file", "write_file", "list_checks", "prepare", "run_check", "verify", "read_log", "wait_run", "stop_run",
        "candidate", "promote", "update", "commit", "push", "snapshot", "restore", "fork_task", "clean", "sync",
        "checkout", "open_pr", "pr_status", "list_snapshots", "delete_file", "rename_file", "impact",
        "test_results", "explore",
    )
}  # fmt: skip
"""Section 9 of the design, and the way out of a disk limit."""


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def talk(agent: Agent, session: Callable[[Client], Awaitable[None]], mode: str = "auto", **client: Any) -> None:
    async def run() -> None:
        with anyio.fail_after(60):
            async with Client(make_server(agent), mode=mode, **client) as found:
                await session(found)

    anyio.run(run)


def agent_of(desk: Desk, **options: Any) -> Agent:
    return Agent(desk.workbench, desk.home, **{"approvals": "auto", **options})


async def failed(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert result.is_error
    assert set(result.structured_content) == {"error"}
    found: dict[str, Any] = result.structured_content["error"]
    assert set(found) - {"reason", "data"} == {"code", "brief", "details", "hint"}
    return found


async def ok(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.structured_content
    found: dict[str, Any] = result.structured_content
    return found


# --- what is listed


def test_the_table_is_what_was_agreed() -> None:
    assert set(TOOLS) == AGREED


def test_questions_know_every_tool_that_sends_or_cleans() -> None:
    """By these names they are about the commit: of another tool that sends, the files would be approved."""
    assert {question.CLEANING, question.PREPARING, *question.SENDING} <= TOOLS.keys()
    reaching = {t.name for t in TOOLS.values() if t.open_world and "task_id" in t.input_model.model_fields}
    only_fetching = {"space_repo_pr_status", "space_repo_sync", "space_repo_checkout"}
    assert reaching == question.SENDING | {question.PREPARING, *only_fetching}


@GENERATIONS
def test_only_bootstrap_tools_are_there_without_a_repository(tmp_path: Path, mode: str) -> None:
    async def session(client: Client) -> None:
        assert {t.name for t in (await client.list_tools()).tools} == BOOTSTRAP
        with pytest.raises(MCPError, match="once space_repo_clone has cloned"):
            await client.call_tool("space_repo_list_tasks", {})

    with Workbench(tmp_path / "home", environ={}) as workbench:
        talk(Agent(workbench, tmp_path / "home"), session, mode)


@GENERATIONS
def test_all_tools_appear_with_the_first_repository_without_a_new_session(
    upstream: Upstream, tmp_path: Path, mode: str
) -> None:
    upstream.write("f", b"x\n")
    upstream.commit()
    heard: list[str] = []

    async def listen(message: object) -> None:
        heard.append(type(message).__name__)

    async def session(client: Client) -> None:
        assert len((await client.list_tools()).tools) == len(BOOTSTRAP)
        await ok(client, "space_repo_clone", url=str(upstream.root))
        assert len((await client.list_tools()).tools) == len(TOOLS)
        if mode == "legacy":
            assert "ToolListChangedNotification" in heard

    with Workbench(tmp_path / "home", environ={}, allow_file=True) as workbench:
        talk(Agent(workbench, tmp_path / "home", "auto"), session, mode, message_handler=listen)


@GENERATIONS
def test_a_change_of_the_list_is_told_once_when_the_first_repository_comes_and_when_the_last_goes(
    upstream: Upstream, tmp_path: Path, mode: str
) -> None:
    upstream.write("f", b"x\n")
    upstream.commit()
    url, heard = str(upstream.root), list[object]()

    async def listen(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            heard.append(message)

    async def told(times: int) -> None:
        while len(heard) < times:  # it may come after the answer
            await anyio.sleep(0.01)
        await client_of[0].list_prompts()
        assert len(heard) == times

    async def session(client: Client) -> None:
        client_of.append(client)
        await client.list_tools()
        await ok(client, "space_repo_list")
        await told(0)
        repository = (await ok(client, "space_repo_clone", url=url))["repository"]["id"]
        await told(1)
        for _ in range(3):
            await ok(client, "space_repo_clone", url=url)
            await ok(client, "space_repo_fetch", url=url)
        workbench.remove_repository(repository)  # as another process does
        with pytest.raises(MCPError):
            await client.call_tool("space_repo_list_tasks", {})
        await told(2)
        await ok(client, "space_repo_list")
        workbench.clone(url)
        await ok(client, "space_repo_list")
        await told(3)

    client_of: list[Client] = []
    with Workbench(tmp_path / "home", environ={}, allow_file=True) as workbench:
        agent = Agent(workbench, tmp_path / "home", "auto")
        if mode != "legacy":
            agent.announcer.bus.subscribe(heard.append)
        talk(agent, session, mode, message_handler=listen)


@GENERATIONS
def test_every_tool_has_schemas_and_annotations(desk: Desk, mode: str) -> None:
    async def session(client: Client) -> None:
        for tool in (await client.list_tools()).tools:
            row = TOOLS[tool.name]
            assert tool.output_schema
            assert tool.input_schema["type"] == tool.output_schema["type"] == "object"
            hints = tool.annotations
            assert hints
            assert bool(hints.read_only_hint) is row.read_only  # what is left out has the protocol's default
            assert (hints.destructive_hint is not False and not hints.read_only_hint) is row.destructive
            assert (hints.open_world_hint is not False) is row.open_world
            assert len(tool.description or "") > 20

    talk(agent_of(desk), session, mode)


def test_all_tools_on_demand(tmp_path: Path) -> None:
    async def session(client: Client) -> None:
        assert {t.name for t in (await client.list_tools()).tools} == set(TOOLS)

    with Workbench(tmp_path / "home", environ={}) as workbench:
        talk(Agent(workbench, tmp_path / "home", presets=frozenset(Preset)), session)


def test_only_the_named_presets_are_listed_and_can_be_called(desk: Desk) -> None:
    async def session(client: Client) -> None:
        listed = {t.name for t in (await client.list_tools()).tools}
        assert listed == BOOTSTRAP | {t.name for t in TOOLS.values() if t.preset in {Preset.DISCOVER, Preset.CHECK}}
        assert (await ok(client, "space_repo_status", task_id=desk.task.id))["dirty"] is False
        with pytest.raises(MCPError, match="started without it"):
            await client.call_tool("space_repo_commit", {"task_id": desk.task.id, "message": "m"})
        wish = {"tool": "space_repo_push", "arguments": {"task_id": desk.task.id}}
        assert (await failed(client, "space_agent_request_tool_approval", **wish))["code"] == "not_found"
        near = await failed(client, "space_agent_request_tool_approval", tool="repo_status", arguments={})
        assert near["details"].startswith("Did you mean: space_repo_status")
        assert "push" not in near["details"], "what this server lacks is not offered"

    talk(agent_of(desk, presets=frozenset({Preset.DISCOVER, Preset.CHECK})), session)


def test_n16_nothing_of_a_repository_gets_into_descriptions() -> None:
    assert all(tool.preset in Preset and tool.description.isascii() for tool in TOOLS.values())


# --- calls


@NEWEST
def test_read_edit_and_stale_hash(desk: Desk, mode: str) -> None:
    async def session(client: Client) -> None:
        task = desk.task.id
        read = await ok(client, "space_repo_read_file", task_id=task, path="f")
        edit = {"task_id": task, "path": "f", "old": "one", "new": "1", "expected_sha256": read["sha256"]}
        done = await ok(client, "space_repo_edit_file", **edit)
        assert done["files"][0]["sha256_before"] == read["sha256"]
        assert (await failed(client, "space_repo_edit_file", **edit))["code"] == "stale_hash"
        assert (await ok(client, "space_repo_status", task_id=task))["dirty"]
        assert "+1" in (await ok(client, "space_repo_diff", task_id=task))["text"]
        hits = (await ok(client, "space_repo_search", task_id=task, pattern="two"))["hits"]
        assert hits == [{"path": "f", "line": 2, "text": "two", "cut": False}]
        kept = await ok(client, "space_repo_snapshot", task_id=task, label="here")
        assert (await ok(client, "space_repo_list_snapshots", task_id=task))["snapshots"] == [kept]
        base = await ok(client, "space_repo_read_file", repo_id=desk.repo_id, path="f")
        assert (base["content"], base["sha256"]) == ("one\ntwo\n", read["sha256"])
        assert (await failed(client, "space_repo_read_file", path="f"))["code"] == "invalid_input"
        assert (await ok(client, "space_repo_commit", task_id=task, message="m"))["tree"] == kept["tree"]
        fork = await ok(client, "space_repo_fork_task", task_id=task)
        assert fork["task"]["forked_from"] == task
        assert not (await ok(client, "space_repo_restore", task_id=task, snapshot="head"))["dirty"]
        patch = "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n"
        await ok(client, "space_repo_apply_patch", task_id=task, patch=patch, expected_hashes={"new": None})
        made = await ok(client, "space_repo_write_file", task_id=task, path="more", content="y\n", expected_sha256=None)
        known = {"expected_sha256": made["files"][0]["sha256_after"]}
        moved = await ok(client, "space_repo_rename_file", task_id=task, path="more", new_path="less", **known)
        assert moved["files"][0]["kind"] == "renamed"
        await ok(client, "space_repo_delete_file", task_id=task, path="less", **known)
        built = {"task_id": task, "path": "x.o", "content": "y\n", "expected_sha256": None}
        await ok(client, "space_repo_write_file", **built)
        refused = await failed(client, "space_repo_commit", task_id=task, message="m")
        assert (refused["code"], "`allow`" in refused["hint"]) == ("policy_violation", True)
        await ok(client, "space_repo_commit", task_id=task, message="m", allow=["x.o"])
        again = {"repo_id": desk.repo_id, "prompt": "again", "from_snapshot": kept["id"]}
        assert (await ok(client, "space_repo_create_task", **again))["task"]["forked_from"] == task
        both = await failed(client, "space_repo_create_task", **again, base_branch="main")
        assert both["code"] == "invalid_input"
        assert len((await ok(client, "space_repo_list_tasks"))["tasks"]) == 3
        closed = await ok(client, "space_repo_close_task", task_id=fork["task"]["id"])
        assert closed["task"]["status"] == "closed"

    talk(agent_of(desk), session, mode)


@NEWEST
def test_a_near_miss_is_structured_for_the_agent(desk: Desk, mode: str) -> None:
    async def session(client: Client) -> None:
        edit = {"task_id": desk.task.id, "path": "d/e/x", "new": "", "expected_sha256": sha256_of(b"x\n" * 50)}
        several = await failed(client, "space_repo_edit_file", **edit, old="x\nx")
        assert (several["code"], several["reason"]) == ("patch_rejected", "several_matches")
        assert several["data"]["lines"][:3] == [1, 2, 3]
        edit |= {"path": "f", "expected_sha256": sha256_of(b"one\ntwo\n")}
        missed = await failed(client, "space_repo_edit_file", **edit, old="  one\n  two\n")
        assert (missed["code"], missed["reason"]) == ("patch_rejected", "white_space")
        assert missed["data"]["closest"] == [{"start_line": 1, "end_line": 2, "text": "one\ntwo"}]
        absent = await failed(client, "space_repo_edit_file", **edit | {"path": "x"}, old="one")
        assert (absent["code"], absent["data"]["did_you_mean"]) == ("not_found", ["d/e/x"])

    talk(agent_of(desk), session, mode)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("space_repo_status", {}),
        ("space_repo_status", {"task_id": 3}),
        ("space_repo_status", {"task_id": None}),
        ("space_repo_status", {"task_id": ["task"]}),
        ("space_repo_status", {"task_id": "../task"}),
        ("space_repo_status", {"task_id": "x" * 100_000}),
        ("space_repo_status", {"task_id": "task-00000000-0000-0000-0000-000000000000", "extra": 1}),
        ("space_repo_map", {}),
        ("space_repo_map", {"token_budget": True, "repo_id": "r"}),
        ("space_repo_map", {"token_budget": 10**40, "repo_id": "r"}),
        ("space_repo_map", {"token_budget": 1.5, "repo_id": "r"}),
        ("space_repo_clone", {"url": "\0"}),
        ("space_repo_clone", {"url": "-oProxyCommand=x"}),
        ("space_repo_list", {"x": {"y": [[[[[[]]]]]]}}),
    ],
)
def test_n12_wrong_arguments_are_typed_errors(desk: Desk, tool: str, arguments: dict[str, Any]) -> None:
    async def session(client: Client) -> None:
        found = await failed(client, tool, **arguments)
        assert found["code"] in {"invalid_input", "not_found"}
        assert "Traceback" not in json.dumps(found)

    talk(agent_of(desk), session)


@pytest.mark.parametrize("check", ["build,test", "Test", "", "test ", "a/b", "a\0b", "x" * 4096])
def test_a_name_that_no_check_can_have_is_not_found(desk: Desk, check: str) -> None:
    async def session(client: Client) -> None:
        found = await failed(client, "space_repo_run_check", task_id=desk.task.id, check_id=check)
        usual = await failed(client, "space_repo_run_check", task_id=desk.task.id, check_id="no-such-check")
        assert (found["code"], found["hint"]) == ("not_found", usual["hint"])

    talk(agent_of(desk), session)


def test_n08_foreign_absent_and_malformed_ids_are_told_alike(desk: Desk) -> None:
    async def session(client: Client) -> None:
        absent = "task-00000000-0000-4000-8000-000000000000"
        for tool in ("space_repo_status", "space_repo_diff", "space_repo_push", "space_repo_verify"):
            assert (await failed(client, tool, task_id=absent))["code"] == "not_found"

    talk(agent_of(desk), session)


def test_a_task_starts_from_a_ref_of_any_kind(desk: Desk) -> None:
    async def session(client: Client) -> None:
        new = {"repo_id": desk.repo_id, "prompt": "p", "ref": desk.task.base_commit}
        made = (await ok(client, "space_repo_create_task", **new))["task"]
        assert (made["base_commit"], made["base_branch"]) == (desk.task.base_commit, desk.task.base_commit)
        absent = await failed(client, "space_repo_create_task", **{**new, "ref": "pr/7"})
        assert absent["code"] == "not_found"
        both = await failed(client, "space_repo_create_task", **new, base_branch="main")
        assert (both["code"], both["brief"]) == ("invalid_input", "Give either base_branch or ref")

    talk(agent_of(desk), session)


def test_a_task_is_named_by_the_beginning_of_its_id_and_the_question_has_all_of_it(desk: Desk) -> None:
    short, whole = desk.task.id[5:13], desk.task.id

    async def session(client: Client) -> None:
        for name in (short, f"task-{short}", whole[:-1], whole):
            assert (await ok(client, "space_repo_status", task_id=name))["branch"] == desk.task.branch
        for malformed in (
            "-",
            short[:3],
            whole[5:].upper(),  # the short one may have digits only
            f"{short}x",
            "task-",
            "ffff" if short[:4] != "ffff" else "eeee",
        ):
            assert (await failed(client, "space_repo_status", task_id=malformed))["code"] == "invalid_input"
        asked = await failed(client, "space_repo_close_task", task_id=short)
        arguments = {"task_id": f"task-{short}"}
        again = await ok(client, "space_agent_request_tool_approval", tool="space_repo_close_task", arguments=arguments)
        assert again["id"] == asked["data"]["approval_id"]
        found = desk.workbench.approval(again["id"])
        assert (found.task_id, whole in "\n".join(found.question)) == (whole, True)
        desk.workbench.answer_approval(again["id"], approved=True, by="a person")
        assert (await ok(client, "space_repo_close_task", task_id=whole))["task"]["status"] == "closed"

    talk(agent_of(desk, approvals="policy"), session)


@pytest.mark.parametrize(
    ("tool", "given"),
    [("space_repo_create_task", {"prompt": "p", "profile": "generic"}), ("space_repo_prepare", {})],
    ids=["create_task", "prepare"],
)
def test_a_repository_is_named_without_its_host_and_the_question_has_its_whole_id(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tool: str, given: dict[str, Any]
) -> None:
    name = desk.workbench.repository(desk.repo_id).name
    assert name != desk.repo_id, "void"
    for module in (approval, permission):
        monkeypatch.setattr(module, "find_exemption", lambda *_: None)  # as with packages that were not fetched

    async def session(client: Client) -> None:
        whole = await failed(client, tool, repo_id=desk.repo_id, **given)
        brief = await failed(client, tool, repo_id=name, **given)
        assert (brief["code"], brief["data"]) == ("approval_required", whole["data"])
        found = desk.workbench.approval(brief["data"]["approval_id"])
        assert (found.repo_id, json.loads(found.arguments)["repo_id"]) == (desk.repo_id, desk.repo_id)
        desk.workbench.answer_approval(found.id, approved=False, by="a person")
        ahead = {"tool": tool, "arguments": {"repo_id": name, **given}}
        denied = await failed(client, "space_agent_request_tool_approval", **ahead)
        assert denied["code"] == "approval_denied", "it is the same call"
        other = await failed(client, tool, repo_id="other", **given)
        assert (other["code"], "'other'" in other["brief"]) == ("not_found", True)

    talk(agent_of(desk, approvals="policy"), session)


def test_a_task_is_synced_and_a_conflict_is_answered_with_its_blobs(desk: Desk) -> None:
    desk.write("f", b"ours\n")
    desk.upstream.write("f", b"theirs\n")
    tip = desk.upstream.commit()

    async def session(client: Client) -> None:
        task = desk.task.id
        found = await ok(client, "space_repo_sync", task_id=task)
        (conflict,) = found["conflicts"]
        assert (found["state"], found["onto"], conflict["kind"]) == ("conflicts", tip, "both_modified")
        answer = {"path": "f", "ours": conflict["ours"]["blob"], "theirs": conflict["theirs"]["blob"]}
        stale = [{**answer, "ours": answer["theirs"], "take": "ours"}]
        assert (await failed(client, "space_repo_sync", task_id=task, resolutions=stale))["code"] == "stale_hash"
        done = await ok(client, "space_repo_sync", task_id=task, resolutions=[{**answer, "content": "both\n"}])
        assert (done["state"], done["base_commit"]) == ("synced", tip)
        moved = await ok(client, "space_repo_checkout", task_id=task, ref="HEAD", offline=True)
        assert [change["path"] for change in moved["changes"]] == ["f"]

    talk(agent_of(desk), session)
    assert (desk.root / "f").read_bytes() == b"both\n"


def test_n21_attacks_on_other_git_servers_for_agents_reach_nothing(desk: Desk, tmp_path: Path) -> None:
    """CVE-2025-68143, -68144, -68145 and CVE-2026-27735: any directory, options as words, a path outside."""
    leak, secret = tmp_path / "leak", tmp_path / "secret"
    secret.write_text("secret")
    option, task = f"--output={leak}", desk.task.id
    desk.git("log", "-1", option, desk.task.base_commit)
    assert leak.exists(), "the control: plain git takes the word for an option"
    leak.unlink()
    outside = os.path.relpath(secret, desk.root)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("space_repo_clone", {"url": str(desk.upstream.root)}),
        ("space_repo_clone", {"url": f"file://{tmp_path}"}),
        ("space_repo_create_task", {"repo_id": str(desk.upstream.root), "prompt": "x"}),
        ("space_repo_create_task", {"repo_id": desk.repo_id, "prompt": "x", "base_branch": option}),
        ("space_repo_diff", {"task_id": task, "against": option}),
        ("space_repo_restore", {"task_id": task, "snapshot": option}),
        ("space_repo_read_file", {"task_id": task, "path": outside}),
        ("space_repo_write_file", {"task_id": task, "path": outside, "content": "x", "expected_sha256": None}),
        ("space_repo_clean", {"task_id": task, "without": [outside]}),
    ]

    async def session(client: Client) -> None:
        for name, arguments in calls:
            found = await failed(client, name, **arguments)
            assert found["code"] in {"invalid_input", "not_found", "unsafe_path"}, (name, found)

    with Workbench(desk.home, environ={"PATH": os.environ["PATH"]}) as workbench:
        talk(Agent(workbench, desk.home, "auto"), session)
    assert (leak.exists(), secret.read_text(), desk.workbench.status(task).dirty) == (False, "secret", False)


def test_n15_errors_tell_no_paths_of_this_host(desk: Desk) -> None:
    error = SandboxError(ErrorCode.INTERNAL, f"no {desk.home}/x", details=f"{desk.home}/config.toml\x1b[2J")
    text = failure(error, desk.home).model_dump_json()
    assert str(desk.home) not in text
    assert "$SANDBOX_HOME/config.toml" in text
    assert "u001b" not in text


def test_a_defect_is_told_without_its_trace(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(f"secret of {desk.home}")

    async def session(client: Client) -> None:
        found = await failed(client, "space_repo_list")
        assert (found["code"], found["details"]) == ("internal", "")

    agent = agent_of(desk, presets=frozenset(Preset))
    monkeypatch.setattr(Workbench, "repositories", fail)
    talk(agent, session)


# --- approvals


@GENERATIONS
@pytest.mark.parametrize("answer", ["approve this call", "deny"])
def test_the_clients_user_is_asked(desk: Desk, mode: str, answer: str) -> None:
    asked: list[str] = []

    async def elicit(_context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": answer})

    async def session(client: Client) -> None:
        task = desk.workbench.create_task(desk.repo_id, "t").id
        if answer == "deny":
            found = await failed(client, "space_repo_close_task", task_id=task)
            assert found["code"] == "approval_denied"
            assert (await failed(client, "space_repo_close_task", task_id=task))["code"] == "approval_denied"
        else:
            await ok(client, "space_repo_close_task", task_id=task)
        assert len(asked) == 1
        assert task in asked[0]

    talk(agent_of(desk, approvals="policy"), session, mode, elicitation_callback=elicit)


@GENERATIONS
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_no_answer_is_no_approval(desk: Desk, mode: str, action: Any) -> None:
    async def elicit(_context: object, _params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action=action)

    async def session(client: Client) -> None:
        found = await failed(client, "space_repo_close_task", task_id=desk.task.id)
        assert found["code"] == {"decline": "approval_denied", "cancel": "approval_required"}[action]
        assert desk.workbench.task(desk.task.id).status == "working"

    talk(agent_of(desk, approvals="policy"), session, mode, elicitation_callback=elicit)


@dataclass
class Form:
    """A form of a client that its user does not answer. `on_show`: is called in a thread once it is shown."""

    on_show: Callable[[], object]
    shown: int = 0
    taken_away: int = 0

    async def show(self, _context: object, _params: types.ElicitRequestParams) -> types.ElicitResult:
        self.shown += 1
        await anyio.to_thread.run_sync(self.on_show)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.taken_away += 1
            raise
        raise AssertionError


def open_question(workbench: Workbench) -> Approval:
    (asked,) = (one for one in workbench.approvals() if one.state is ApprovalState.PENDING)
    return asked


ELSEWHERE: dict[str, Callable[[Workbench, Approval], object]] = {
    "approve": lambda bench, asked: bench.answer_approval(asked.id, approved=True, by="a person"),
    "approve for the task": lambda bench, asked: bench.answer_approval(
        asked.id, approved=True, by="a person", scope=ApprovalScope.TASK
    ),
    "deny": lambda bench, asked: bench.answer_approval(asked.id, approved=False, by="a person"),
    "revoke": lambda bench, asked: bench.revoke_approval(asked.id, by="a person"),
}


@pytest.mark.parametrize("how", ELSEWHERE)
def test_a_decision_that_is_made_elsewhere_ends_the_wait_for_the_clients_user(desk: Desk, how: str) -> None:
    """In a shell, while the client shows its form. The session has 60 s, as clients do."""
    form = Form(lambda: ELSEWHERE[how](desk.workbench, open_question(desk.workbench)))

    async def session(client: Client) -> None:
        call = {"task_id": desk.task.id}
        if how.startswith("approve"):
            assert (await ok(client, "space_repo_close_task", **call))["task"]["status"] == "closed"
        else:
            assert (await failed(client, "space_repo_close_task", **call))["code"] == "approval_denied"
            assert desk.workbench.task(desk.task.id).status == "working"
        await client.list_prompts()
        assert (form.shown, form.taken_away) == (1, 1)

    talk(agent_of(desk, approvals="policy"), session, "legacy", elicitation_callback=form.show)


def test_an_approval_of_another_question_ends_the_wait_if_it_covers_the_call(desk: Desk) -> None:
    other = desk.workbench.approval_call("space_repo_close_task", {"task_id": desk.task.id, "discard": True})
    asked = desk.workbench.request_approval(other)
    form = Form(
        lambda: desk.workbench.answer_approval(asked.id, approved=True, by="a person", scope=ApprovalScope.TASK)
    )

    async def session(client: Client) -> None:
        await ok(client, "space_repo_close_task", task_id=desk.task.id)
        assert form.shown == 1

    talk(agent_of(desk, approvals="policy"), session, "legacy", elicitation_callback=form.show)


def test_a_form_that_is_not_answered_ends_before_the_client_gives_up(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent learns the id, and a person may still answer in a shell."""
    assert approval.ANSWER_S <= 45
    monkeypatch.setattr(approval, "ANSWER_S", 0.2)
    form = Form(lambda: None)

    async def session(client: Client) -> None:
        found = await failed(client, "space_repo_close_task", task_id=desk.task.id)
        asked = open_question(desk.workbench)
        assert (found["code"], found["data"]) == ("approval_required", {"approval_id": asked.id})
        await client.list_prompts()
        assert (form.shown, form.taken_away) == (1, 1)
        desk.workbench.answer_approval(asked.id, approved=True, by="a person")
        await ok(client, "space_repo_close_task", task_id=desk.task.id)
        assert form.shown == 1

    talk(agent_of(desk, approvals="policy"), session, "legacy", elicitation_callback=form.show)


def test_a_call_that_waited_for_a_person_waits_less_for_its_run(desk: Desk) -> None:
    arguments = inputs.PrepareInput(task_id=desk.task.id, wait_s=45)
    assert _shorten_wait(arguments, 40.0).wait_s == 5
    assert _shorten_wait(arguments, 50.0).wait_s == 0
    status = inputs.TaskInput(task_id=desk.task.id)
    assert _shorten_wait(status, 40.0) == status


@GENERATIONS
def test_without_elicitation_a_person_answers_out_of_band(desk: Desk, mode: str) -> None:
    async def session(client: Client) -> None:
        arguments = {"task_id": desk.task.id}
        required = await failed(client, "space_repo_close_task", **arguments)
        assert required["code"] == "approval_required"
        asked = await ok(client, "space_agent_request_tool_approval", tool="space_repo_close_task", arguments=arguments)
        assert asked == {"id": required["details"], "state": "pending"}
        assert required["data"] == {"approval_id": asked["id"]}
        desk.workbench.answer_approval(asked["id"], approved=True, by="a person")
        changed = await failed(client, "space_repo_close_task", **arguments, discard=True)
        assert changed["code"] == "approval_required"
        await ok(client, "space_repo_close_task", **arguments)

    talk(agent_of(desk, approvals="policy"), session, mode)


@GENERATIONS
def test_an_approval_is_for_any_time_that_the_call_waits(desk: Desk, mode: str) -> None:
    """Control: the call is not `approval_required`, but refused for what it does."""

    async def session(client: Client) -> None:
        call = {"run_id": "run-none"}
        required = await failed(client, "space_repo_wait_run", **call, wait_s=45)
        assert required["code"] == "approval_required"
        asked = desk.workbench.answer_approval(required["details"], approved=True, by="a person")
        assert "wait_s" not in "\n".join((asked.arguments, *asked.question))
        assert (await failed(client, "space_repo_wait_run", **call, wait_s=5))["code"] == "not_found"

    (desk.home / "policies").mkdir()
    (desk.home / "policies" / "approvals.toml").write_text('[tools]\nspace_repo_wait_run = "ask"\n')
    with Workbench(desk.home, environ={}) as workbench:
        talk(Agent(workbench, desk.home), session, mode)


@GENERATIONS
@pytest.mark.parametrize("scope", ApprovalScope)
def test_what_is_approved_already_is_not_asked_ahead(desk: Desk, mode: str, scope: ApprovalScope) -> None:
    """Nor used up by that. Control: of another task a person is asked."""
    other = desk.workbench.create_task(desk.repo_id, "other")

    async def ahead(client: Client, task_id: str) -> dict[str, Any]:
        wish = {"tool": "space_repo_close_task", "arguments": {"task_id": task_id}}
        return await ok(client, "space_agent_request_tool_approval", **wish)

    async def session(client: Client) -> None:
        asked = await ahead(client, desk.task.id)
        assert asked["state"] == "pending"
        desk.workbench.answer_approval(asked["id"], approved=True, by="a person", scope=scope)
        for _ in range(2):
            assert await ahead(client, desk.task.id) == {**asked, "state": "approved"}
        found = await ahead(client, other.id)
        assert found["state"] == ("approved" if scope is ApprovalScope.REPOSITORY else "pending")
        await ok(client, "space_repo_close_task", task_id=desk.task.id)
        assert (desk.workbench.approval(asked["id"]).state is ApprovalState.USED) == (scope is ApprovalScope.ONCE)

    talk(agent_of(desk, approvals="policy"), session, mode)


def test_an_empty_text_is_left_out_of_a_call_that_is_asked_ahead_as_of_the_call(desk: Desk) -> None:
    """docs/adr/0195. Control: of another call a person is asked again."""
    call = {"task_id": desk.task.id, "onto": ""}

    async def session(client: Client) -> None:
        wish = {"tool": "space_repo_sync", "arguments": call}
        asked = await ok(client, "space_agent_request_tool_approval", **wish)
        desk.workbench.answer_approval(asked["id"], approved=True, by="a person")
        assert (await failed(client, "space_repo_sync", **{**call, "onto": "x"}))["code"] == "approval_required"
        await ok(client, "space_repo_sync", **call)

    (desk.home / "policies").mkdir()
    (desk.home / "policies" / "approvals.toml").write_text('[tools]\nspace_repo_sync = "ask"\n')
    with Workbench(desk.home, environ={"PATH": os.environ["PATH"]}, allow_file=True) as workbench:
        talk(Agent(workbench, desk.home), session)


def test_the_policy_denies_even_for_trusted_automation(desk: Desk) -> None:
    (desk.home / "policies").mkdir()
    (desk.home / "policies" / "approvals.toml").write_text('[tools]\nspace_repo_status = "deny"\n')

    async def session(client: Client) -> None:
        assert (await failed(client, "space_repo_status", task_id=desk.task.id))["code"] == "approval_denied"

    with Workbench(desk.home, environ={}) as workbench:
        talk(Agent(workbench, desk.home, "auto"), session)


POLICIES = {
    "denied": '[risk]\nfilesystem-read = "deny"\n',
    "asked": '[risk]\nfilesystem-read = "ask"\n',
    "allowed": "",
}


@pytest.mark.parametrize("policy", POLICIES)
def test_s195_what_the_policy_does_not_allow_is_no_resource_and_in_no_prompt(desk: Desk, policy: str) -> None:
    """Control: with the shipped policy the same requests succeed."""
    run = keep_log(desk)
    (desk.home / "policies").mkdir()
    (desk.home / "policies" / "approvals.toml").write_text(POLICIES[policy])

    async def session(client: Client) -> None:
        for uri, said in {
            f"sandbox://tasks/{desk.task.id}/runs/{run}/stdout": "what the check printed",
            f"sandbox://tasks/{desk.task.id}/journal": '"create"',
        }.items():
            if policy == "allowed":
                assert said in (await client.read_resource(uri)).contents[0].model_dump()["text"]
                continue
            with pytest.raises(MCPError, match=r"was not approved|has to approve"):
                await client.read_resource(uri)
        await client.read_resource("sandbox://policies/approvals")
        await client.get_prompt("repository-workbench")
        if policy == "allowed":
            await client.get_prompt("repository-workbench", {"owner": desk.task.id})
        else:
            with pytest.raises(MCPError, match=r"was not approved|has to approve"):
                await client.get_prompt("repository-workbench", {"owner": desk.task.id})

    with Workbench(desk.home, environ={}) as workbench:
        talk(Agent(workbench, desk.home, "policy"), session)


@pytest.mark.parametrize("tool", ["space_repo_impact", "space_repo_read_file"])
def test_s195_a_prompt_tells_nothing_of_a_denied_tool(desk: Desk, monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    """Control: without the denial it does."""
    said = {"space_repo_impact": "_describe_impact", "space_repo_read_file": "_name_rules"}[tool]
    monkeypatch.setattr(prompt, said, lambda *_: "told of the task")

    async def ask(client: Client) -> None:
        found = await client.get_prompt("repository-workbench", {"owner": desk.task.id})
        texts.append(found.messages[0].content.model_dump()["text"])

    texts: list[str] = []
    (desk.home / "policies").mkdir()
    for policy in ("", f'[tools]\n{tool} = "deny"\n'):
        (desk.home / "policies" / "approvals.toml").write_text(policy)
        with Workbench(desk.home, environ={}) as workbench:
            talk(Agent(workbench, desk.home, "policy"), ask)
    assert ["told of the task" in text for text in texts] == [True, False]


def test_s195_a_server_has_no_resources_of_tools_that_it_was_started_without(desk: Desk) -> None:
    """Control: with the tools of checks the log is read."""
    run = keep_log(desk)
    uris = [f"sandbox://tasks/{desk.task.id}/runs/{run}/stdout", f"sandbox://tasks/{desk.task.id}/journal"]

    async def read(client: Client) -> None:
        for uri in uris:
            try:
                found.append((await client.read_resource(uri)).contents[0].model_dump()["text"])
            except MCPError as error:
                found.append(str(error))

    found: list[str] = []
    for preset in (Preset.EDIT, Preset.DISCOVER, Preset.CHECK):
        talk(agent_of(desk, presets=frozenset({preset})), read)
    absent = "There is no such resource"
    assert [absent in text for text in found] == [True, True, True, False, False, True]


def test_a_prompt_of_a_server_without_checks_leaves_them_out(desk: Desk) -> None:
    """The argument is listed all the same. Control: with the tools of checks it has them."""

    async def ask(client: Client) -> None:
        found = await client.get_prompt("repository-workbench", {"owner": desk.task.id})
        texts.append(found.messages[0].content.model_dump()["text"])

    texts: list[str] = []
    for preset in (Preset.EDIT, Preset.DISCOVER, Preset.CHECK):
        talk(agent_of(desk, presets=frozenset({preset})), ask)
    assert [f"Checks of {desk.task.id}" in text for text in texts] == [False, False, True]


def keep_log(desk: Desk) -> str:
    """A run of the task with output on stdout."""
    home, run_id = Home(desk.home), f"run-{'a' * 32}"
    home.logs(desk.task.id).mkdir(parents=True, exist_ok=True)
    save_run(home, desk.task.id, made_run("test", run_id=run_id, task_id=desk.task.id))
    (home.logs(desk.task.id) / f"{run_id}.stdout").write_bytes(b"what the check printed\n")
    return run_id


# --- results


def content_of(text: str) -> FileContent:
    return FileContent(
        path="f", sha256="sha256:" + "0" * 64, size=len(text), content=text, encoding="utf-8",
        start_line=1, end_line=1, total_lines=1, truncated=False,
    )  # fmt: skip


def hits_of(count: int) -> SearchResult:
    hits = tuple(SearchHit(path="f", line=n + 1, text="x" * 100) for n in range(count))
    skipped = SearchSkipped(binary=0, too_large=0, ignored=None)
    return SearchResult(hits=hits, files=("f",), truncated=False, stopped_by=None, skipped=skipped)


def size_of(result: types.CallToolResult) -> int:
    return len(json.dumps(result.structured_content, separators=(",", ":")).encode())


@pytest.mark.parametrize("budget", [2_000, 10_000, 50_000])
def test_a_result_keeps_to_its_budget_and_says_how_to_get_the_rest(budget: int) -> None:
    file, search = "space_repo_read_file", "space_repo_search"
    hints = {file: "A search shows text around a match.", search: TOOLS[search].cut_hint}
    for name, found in ((file, content_of("é" * 60_000)), (search, hits_of(900))):
        result = success(TOOLS[name], found, budget)
        assert size_of(result) <= budget
        assert result.structured_content["truncated"]
        assert hints[name] in result.content[-1].model_dump()["text"]


def test_the_result_of_a_patch_keeps_to_its_budget() -> None:
    files = tuple(
        PatchedFile(path=f"new/{'n' * 60}{n}", kind="added", sha256_before=None, sha256_after=f"sha256:{n:064x}")
        for n in range(1500)
    )
    names = tuple(f"{n}: {'x' * 100}" for n in range(900))
    tool = TOOLS["space_repo_apply_patch"]
    result = success(tool, PatchResult(files=files, adjusted=names, ignored=names), 10_000)
    assert size_of(result) <= 10_000
    said = result.content[-1].model_dump()["text"]
    assert all(f"of {name}" in said for name in ("files", "adjusted", "ignored"))
    assert tool.cut_hint in said


def conflict_of(data: dict[str, Any], details: str = "") -> SandboxError:
    return SandboxError(ErrorCode.CONFLICT, "They differ", details, "Commit them.", data=data)


@pytest.mark.parametrize("budget", [4096, 50_000])
@pytest.mark.parametrize(
    ("error", "cut"),
    [
        (conflict_of({"paths": ["p" * 60] * 1500, "id": "x"}), "of paths"),
        (conflict_of({"closest": {"text": "\N{SNOWMAN}" * 60_000, "line": 7}}), "of text"),
        (conflict_of({}, "d" * 60_000), "of details"),
        (conflict_of({"unmet": {f"worker-{n}": ["cpu"] for n in range(9000)}}, "d" * 60_000), "of unmet"),
        (conflict_of({f"name-{n}": n for n in range(9000)}), "of data"),
    ],
    ids=["list", "text below", "details", "table", "numbers"],
)
def test_an_error_keeps_to_the_budget_and_names_what_was_cut(
    tmp_path: Path, error: SandboxError, cut: str, budget: int
) -> None:
    answer = failure(error, tmp_path, budget)
    assert size_of(answer) <= budget
    shown = answer.structured_content["error"]
    assert json.loads(answer.content[0].model_dump()["text"])["error"] == shown
    assert shown["hint"].startswith("Commit them. Left out to keep the answer short: ")
    assert cut in shown["hint"]
    assert (shown["code"], shown["brief"]) == ("conflict", "They differ")


def test_a_short_error_is_whole(tmp_path: Path) -> None:
    shown = failure(conflict_of({"paths": ["a"]}, "d"), tmp_path).structured_content["error"]
    assert (shown["data"], shown["details"], shown["hint"]) == ({"paths": ["a"]}, "d", "Commit them.")


def test_errors_of_a_server_have_the_budget_of_its_results(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workbench, "status", raising(conflict_of({"paths": ["p" * 60] * 1500})))

    async def session(client: Client) -> None:
        answer = await client.call_tool("space_repo_status", {"task_id": desk.task.id})
        assert answer.is_error
        assert size_of(answer) <= 8192

    talk(Agent(desk.workbench, desk.home, "auto", budget_bytes=8192), session)


def raising(error: SandboxError) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(("state", "is_told"), [("running", True), ("ended", False)])
def test_a_task_of_the_protocol_that_could_not_be_stopped_is_an_error(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, state: str, is_told: bool
) -> None:
    """The error that ended a run is none of the request: it asks for its end."""
    timeout = SandboxError(ErrorCode.TIMEOUT, "A process does not stop its checks")
    monkeypatch.setattr(desk.workbench, "stop_run", raising(timeout))
    known = SimpleNamespace(state=state)
    monkeypatch.setattr(desk.workbench, "wait_run", raising(timeout) if state == "ended" else lambda *_: known)
    if not is_told:
        assert mcp_tasks.cancel_task(desk.workbench, "run-1") == {}
        return
    with pytest.raises(MCPError, match="timeout: A process does not stop its checks") as caught:
        mcp_tasks.cancel_task(desk.workbench, "run-1")
    assert caught.value.error.code == types.INTERNAL_ERROR


def test_a_small_result_is_whole() -> None:
    result = success(TOOLS["space_repo_search"], hits_of(3))
    assert len(result.content) == 1
    assert len(result.structured_content["hits"]) == 3


def test_i12_control_sequences_reach_no_terminal() -> None:
    hit = SearchHit(path="f\x1b[31m", line=1, text="a\x1b]0;title\x07b\u202e")
    found = hits_of(0).model_copy(update={"hits": (hit,)})
    text = success(TOOLS["space_repo_search"], found).model_dump_json()
    assert not any(bad in text for bad in ("\\u001b", "\x1b", "\\u0007", "\u202e"))


def test_a_file_with_control_characters_comes_as_base64() -> None:
    document = success(TOOLS["space_repo_read_file"], content_of("a\x1b[2Jb")).structured_content
    assert document["encoding"] == "base64"
    assert base64.b64decode(document["content"]) == b"a\x1b[2Jb"
    plain = success(TOOLS["space_repo_read_file"], content_of("a\tb\r\n\u202e")).structured_content
    assert plain["content"] == "a\tb\r\n\u202e", "an edit needs the exact text"
    assert plain["invisible"] == ["U+202E RIGHT-TO-LEFT OVERRIDE: 1, first in line 2"]


LOOSE = 'label = "loose"\nimage = "generic"\n[[check]]\nid = "test"\nlabel = "x"\nargv = ["true"]\n'


@NEWEST
def test_n09_a_person_is_asked_about_a_profile_that_a_new_task_inherits(desk: Desk, mode: str) -> None:
    """An agent that may create tasks would else multiply the one whose profile a person chose. Control: a task with the
    repository's profile is forked, and continued from a snapshot, without a question.
    """
    (desk.home / "profiles").mkdir()
    (desk.home / "profiles" / "loose.toml").write_text(LOOSE)
    fork, create = "space_repo_fork_task", "space_repo_create_task"
    offered: list[object] = []

    async def elicit(_context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        offered.append(params.requested_schema["properties"]["answer"]["enum"])
        assert any(line.startswith("profile: loose instead of ") for line in params.message.splitlines())
        return types.ElicitResult(action="accept", content={"answer": "approve this call"})

    with Workbench(desk.home, environ={"PATH": os.environ["PATH"]}, allow_file=True) as workbench:
        loose = workbench.create_task(desk.repo_id, options=TaskOptions(profile="loose"))
        kept, plain = (workbench.snapshot(task.id) for task in (loose, desk.task))
        new = {"repo_id": desk.repo_id, "prompt": "p"}
        calls: list[tuple[str, dict[str, object]]] = [
            (fork, {"task_id": loose.id}),
            (fork, {"task_id": loose.id, "snapshot": kept.id}),
            (create, {**new, "from_snapshot": kept.id}),
        ]

        async def refused_calls(client: Client) -> None:
            for tool, arguments in calls:
                assert (await failed(client, tool, **arguments))["code"] == "approval_required"
            await ok(client, fork, task_id=desk.task.id)
            await ok(client, create, **new, from_snapshot=plain.id)

        async def approved_calls(client: Client) -> None:
            for tool, arguments in calls:
                assert (await ok(client, tool, **arguments))["task"]["profile"] == "loose"
            workbench.close_task(loose.id)
            for tool, arguments in calls[1:]:
                await ok(client, tool, **arguments)

        talk(Agent(workbench, desk.home, "auto"), refused_calls, mode)
        talk(Agent(workbench, desk.home, "auto"), approved_calls, mode, elicitation_callback=elicit)
    assert offered == [["approve this call", "deny"]] * 5


# --- prompt and resources


@GENERATIONS
def test_prompt_and_resources(desk: Desk, mode: str) -> None:
    desk.upstream.write("AGENTS.md", b"Run the tests.\n")
    desk.upstream.commit()
    ruled = desk.workbench.create_task(desk.repo_id, "by the rules", fetch=True)

    async def session(client: Client) -> None:
        assert [p.name for p in (await client.list_prompts()).prompts] == ["repository-workbench"]
        found = await client.get_prompt("repository-workbench", {"owner": desk.task.id})
        text = found.messages[0].content.model_dump()["text"]
        assert "Checks of " + desk.task.id in text
        assert "AGENTS.md" not in text.partition("Checks of ")[2]
        found = await client.get_prompt("repository-workbench", {"owner": ruled.id})
        assert "Read AGENTS.md before you edit" in found.messages[0].content.model_dump()["text"]
        named = set(re.findall(r"space_repo_[a-z_]+", text)) - {"space_repo_"}
        assert named <= set(TOOLS)
        uris = [str(r.uri) for r in (await client.list_resources()).resources]
        assert "sandbox://policies/approvals" in uris
        for uri in uris:
            assert "=" in (await client.read_resource(uri)).contents[0].model_dump()["text"]
        journal = await client.read_resource(f"sandbox://tasks/{desk.task.id}/journal")
        assert '"create"' in journal.contents[0].model_dump()["text"]
        for bad in ("sandbox://policies/../config", "sandbox://tasks/../../x/journal", "file:///etc/hostname", "x"):
            with pytest.raises(MCPError):
                await client.read_resource(bad)
        with pytest.raises(MCPError):
            await client.get_prompt("other")

    talk(agent_of(desk), session, mode)


def test_s165_reads_of_agents_take_no_threads_of_persons(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages of persons are made in the default threads. However many reads wait, such as for a worker, these are
    free. Control: a call without a limit of its own takes one.
    """
    release, default = threading.Event(), anyio.to_thread.current_default_thread_limiter
    monkeypatch.setattr(resources, "_read_policy", lambda *_: str(release.wait(60)))
    monkeypatch.setattr(prompt, "_describe_owner", lambda *_: str(release.wait(60)))
    agent = agent_of(desk)

    async def session(client: Client) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(client.read_resource, "sandbox://policies/approvals")
                group.start_soon(client.get_prompt, "repository-workbench", {"owner": desk.task.id})
            while agent.threads.borrowed_tokens < 8:
                await anyio.sleep(0.01)
            assert default().borrowed_tokens == 0
            group.start_soon(anyio.to_thread.run_sync, release.wait, 60)
            while default().borrowed_tokens < 1:
                await anyio.sleep(0.01)
            release.set()

    talk(agent, session)


@pytest.mark.parametrize("has_cluster", [True, False], ids=["cluster", "control"])
def test_reads_that_may_ask_a_worker_take_no_threads_of_local_calls(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_cluster: bool
) -> None:
    """Control: in a home without a cluster all reads are local. Policies always are."""
    home, release = tmp_path / "home", threading.Event()
    if has_cluster:
        home.mkdir()
        (home / "config.toml").write_text('[cluster]\naddress = "127.0.0.1:7233"\n')
    desk = Desk(upstream, home)
    monkeypatch.setattr(resources, "_read_journal", lambda *_: str(release.wait(60)))
    monkeypatch.setattr(prompt, "_describe_owner", lambda *_: str(release.wait(60)))
    agent = agent_of(desk)
    taken = agent.network_threads if has_cluster else agent.threads

    async def session(client: Client) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(client.read_resource, f"sandbox://tasks/{desk.task.id}/journal")
            group.start_soon(client.get_prompt, "repository-workbench", {"owner": desk.task.id})
            with anyio.move_on_after(30):
                while taken.borrowed_tokens < 2:
                    await anyio.sleep(0.01)
            borrowed = agent.threads.borrowed_tokens
            release.set()
        assert borrowed == (0 if has_cluster else 2)

    talk(agent, session)


PROFILE_OF_AN_APPLICATION = r"""
label = "app"
image = "base"
priority = 99
[[detect.any]]
file = "run"
[[check]]
id = "test"
label = "make test"
argv = ["make", "test"]
[check.results]
passed = '^\[PASS\] (.*)'
[launch]
argv = ["build/app", "<run>"]
requires = ["test"]
[launch.ready]
READY
deadline_s = 6
[launch.stop]
exit_code = 3
[[launch.probe]]
id = "answer"
argv = ["build/app", "--ask", "return answer()"]
output = '\A42\n\Z'
no_output = "error"
"""


@pytest.mark.parametrize(
    ("ready", "said"),
    [
        ('file = "<run>/up"', "there is a file <run>/up"),
        ('line = "^up$"', "it prints a line like `^up$`"),
        ("port = 8080", "it listens on 127.0.0.1:8080"),
        ('argv = ["a", "--ping"]', "`a --ping` ends with 0"),
    ],
    ids=["file", "line", "port", "command"],
)
def test_the_prompt_says_how_a_candidate_is_launched_and_what_passes(desk: Desk, ready: str, said: str) -> None:
    profiles = desk.home / "profiles"
    profiles.mkdir()
    (profiles / "app.toml").write_text(PROFILE_OF_AN_APPLICATION.replace("READY", ready))
    texts: list[str] = []

    async def session(client: Client) -> None:
        for owner in (desk.task.id, desk.repo_id):
            found = await client.get_prompt("repository-workbench", {"owner": owner})
            texts.append(found.messages[0].content.model_dump()["text"])

    with Workbench(desk.home, environ={"PATH": os.environ["PATH"]}) as workbench:
        talk(Agent(workbench, desk.home, "auto"), session)
    for text in texts:
        lines = text.splitlines()
        start = lines.index("space_repo_candidate launches `build/app '<run>'` (after test). It passes if")
        assert lines[start + 1 : start + 4] == [
            f"- it is ready within 6 s: {said}",
            "- answer: `build/app --ask 'return answer()'` ends with 0 within 10 s and prints `\\A42\\n\\Z`, "
            "not `error`",
            "- it stays up for 2 s, and after SIGTERM ends within 10 s with exit code 3",
        ]
        assert any(line.endswith(r"for each test that passes it prints a line like `^\[PASS\] (.*)`") for line in lines)


def test_s09_of_a_long_journal_the_newest_whole_entries_are_returned(desk: Desk) -> None:
    path = desk.home / "repositories" / "journal" / f"{desk.task.id}.jsonl"
    write_journal(path, map(make_entry, range(3000)))

    texts: list[str] = []

    async def session(client: Client) -> None:
        found = await client.read_resource(f"sandbox://tasks/{desk.task.id}/journal")
        texts.append(found.contents[0].model_dump()["text"])

    talk(agent_of(desk), session)
    (text,) = texts
    notice, *lines = text.splitlines()
    assert notice == "[earlier entries are left out]"
    numbers = [json.loads(line)["seq"] for line in lines]
    assert numbers == list(range(3001 - len(numbers), 3001))
    assert len(text) <= MAX_CHARS < len(text) + len(lines[0]) + 1


def test_s199_of_a_journal_of_large_entries_few_are_read(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than twice what was returned. Control: of short ones all that may be read are."""
    limits = list[int | None]()
    read = Workbench.log

    def log(bench: Workbench, task_id: str, *, limit: int | None = 10_000) -> tuple[JournalEntry, ...]:
        limits.append(limit)
        return read(bench, task_id, limit=limit)

    monkeypatch.setattr(Workbench, "log", log)
    path = desk.home / "repositories" / "journal" / f"{desk.task.id}.jsonl"
    for length, most in ((20_000, 16), (1, MAX_JOURNAL_ENTRIES)):
        write_journal(path, (make_entry(n).model_copy(update={"result": "x" * length}) for n in range(1500)))
        limits.clear()
        text = _read_journal(desk.workbench, desk.task.id)
        assert text.startswith("[earlier entries are left out]")
        assert limits[-1] == most


def test_the_entries_that_a_resource_reads_always_fill_it() -> None:
    """So a journal of which not all was read always says so."""
    shortest = JournalEntry(
        at=START, actor=Actor.CLI, operation="", arguments=sha256_of(b""), result="ok", duration_s=0
    ).model_dump_json()
    assert len(shortest) * MAX_JOURNAL_ENTRIES > MAX_CHARS


def test_schemas_have_no_format_that_clients_do_not_know() -> None:
    """Of those a value may have, JSON Schema names a few; clients with a strict validator warn of any other."""
    known = {"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "regex"}
    models = [(tool.input_model, "validation") for tool in TOOLS.values()] + [
        (tool.result_model, "serialization") for tool in TOOLS.values()
    ]
    schemas = json.dumps([model.model_json_schema(mode=mode) for model, mode in models])  # type: ignore[arg-type]  # either
    assert set(re.findall(r'"format": "([^"]*)"', schemas)) <= known


@pytest.mark.parametrize("deletes", [False, True], ids=["closes", "deletes"])
def test_a_task_that_is_closed_and_deleted_is_closed_again_without_a_question(desk: Desk, *, deletes: bool) -> None:
    """As over Python. Controls: one that is open needs a person, and so does it to delete the worktree of one that is
    closed; to close that again changes it in no way.
    """
    desk.workbench.close_task(desk.task.id, delete_worktree=True)
    opened = desk.workbench.create_task(desk.repo_id).id
    kept = desk.workbench.create_task(desk.repo_id).id
    desk.workbench.close_task(kept)

    async def session(client: Client) -> None:
        call = {"delete_worktree": deletes}
        again = await ok(client, "space_repo_close_task", task_id=desk.task.id, **call)
        assert (again["task"]["status"], again["task"]["worktree_path"]) == ("closed", None)
        asked = {"tool": "space_repo_close_task", "arguments": {"task_id": desk.task.id, **call}}
        assert (await ok(client, "space_agent_request_tool_approval", **asked))["state"] == "approved"
        for other in (opened, kept) if deletes else (opened,):
            found = await failed(client, "space_repo_close_task", task_id=other, **call)
            assert found["code"] == "approval_required"
        if not deletes:
            assert (await ok(client, "space_repo_close_task", task_id=kept))["task"]["worktree_path"]

    talk(agent_of(desk, approvals="policy"), session)


def test_a_record_with_a_huge_name_of_a_branch_hides_no_other_task(desk: Desk) -> None:
    """As versions before wrote what a forge said."""
    other = desk.workbench.create_task(desk.repo_id).id
    path = Home(desk.home).task(other)
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "pr_base": "x" * 10_000_000}))

    async def session(client: Client) -> None:
        tasks = (await ok(client, "space_repo_list_tasks"))["tasks"]
        assert {one["id"] for one in tasks} == {desk.task.id, other}
        base = next(one["pr_base"] for one in tasks if one["id"] == other)
        assert set(base) == {"x"}
        assert len(base) <= MAX_BRANCH_CHARS

    talk(agent_of(desk), session)


def test_a_list_of_tasks_has_the_open_ones_and_the_newest_closed_ones(desk: Desk) -> None:
    """Control: up to as many closed ones as are listed, it is complete."""
    home, task = Home(desk.home), desk.workbench.task(desk.task.id)
    closed = [f"task-00000000-0000-4000-8000-{number:012}" for number in range(MOST_LISTED_CLOSED + 3)]

    def close(number: int) -> None:
        fields = {"id": closed[number], "status": TaskStatus.CLOSED, "worktree_path": None}
        at = task.created_at + timedelta(seconds=number + 1)
        save_task(home, task.model_copy(update={**fields, "created_at": at}))

    async def listed(client: Client) -> tuple[list[str], bool, int | None]:
        found = await ok(client, "space_repo_list_tasks")
        return [one["id"] for one in found["tasks"]], found["truncated"], found.get("closed_left_out")

    async def session(client: Client) -> None:
        (alone,) = (await ok(client, "space_repo_list_tasks"))["tasks"]
        assert not {None, ""} & {value for value in alone.values() if isinstance(value, str | None)}
        assert alone == {name: value for name, value in json.loads(task.model_dump_json()).items() if value}
        for number in range(MOST_LISTED_CLOSED):
            close(number)
        assert await listed(client) == ([*closed[MOST_LISTED_CLOSED - 1 :: -1], task.id], False, None)
        for number in range(MOST_LISTED_CLOSED, len(closed)):
            close(number)
        assert await listed(client) == ([*closed[:2:-1], task.id], True, 3)

    talk(agent_of(desk), session)
    assert len(desk.workbench.tasks()) == len(closed) + 1


@pytest.mark.parametrize("name", ["space_repo_wait_run", "space_repo_read_log", "space_repo_test_results"])
def test_an_empty_name_of_a_run_is_refused_with_a_code(desk: Desk, name: str) -> None:
    async def session(client: Client) -> None:
        assert (await failed(client, name, run_id=""))["code"] in {"invalid_input", "not_found"}

    talk(agent_of(desk), session)


def test_damaged_state_is_an_error_with_a_code_and_hides_no_tool(desk: Desk) -> None:
    path = desk.home / "repositories" / "registry.json"
    kept = path.read_bytes()

    async def session(client: Client) -> None:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        path.write_bytes(b"{")
        assert {tool.name for tool in (await client.list_tools()).tools} == listed
        for name, arguments in (("space_repo_list", {}), ("space_repo_status", {"task_id": desk.task.id})):
            error = await failed(client, name, **arguments)
            assert (error["code"], "registry.json" in error["brief"]) == ("internal", True)
        path.write_bytes(kept)
        assert await ok(client, "space_repo_status", task_id=desk.task.id)

    talk(agent_of(desk), session)
