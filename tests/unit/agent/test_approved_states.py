"""Every tool: what a question shows a person is what they approve, and what the call then acts on.

Each change below alters something that questions show of a task. All tools are walked: a question that reads otherwise
belongs to another call, and a call on a state that has passed is refused. Ids: THREATS N10, S191, S192.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.client import Client

from sandbox.agent.agent import Agent
from sandbox.agent.permission import build_call, permit_out_of_band
from sandbox.agent.server import make_server
from sandbox.agent.tools import TOOLS, Tool, ToolCall
from sandbox.approvals import AgentCall, fingerprint
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Approval, ApprovalScope, Task, TaskOptions, TaskStatus
from sandbox.models.checks import ReleaseRule
from sandbox.models.releases import ReleaseManifest
from sandbox.store.home import Home
from sandbox.store.records import save_repository, save_task
from sandbox.store.release_folder import open_releases, staged_release
from sandbox.workbench import Watch, Workbench
from sandbox.workbench.approvals import chosen_profile, question, requests
from sandbox.workbench.checks import gate, task_checks
from sandbox.workbench.delivery import promote
from sandbox.workbench.repositories.commit_facts import TreeSource
from sandbox.workbench.tasks.approved_state import Facts, add_choice, describe_record, join_state
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk
from tests.unit.store.test_verdicts import made as run_made

HASH = f"sha256:{'0' * 64}"
GIVEN: dict[str, Any] = {
    "allow": ["x"], "arguments": {}, "check_id": "build", "content": "c", "draft": True, "expected_hashes": {},
    "expected_sha256": HASH, "message": "m", "new": "n", "new_path": "g", "offline": True, "old": "o", "patch": "p",
    "patches": {"way": "p"}, "path": "f", "prompt": "p", "ref": "main", "run_id": "run-1", "snapshot": "head",
    "title": "T", "tool": "t", "url": "https://github.com/o/r", "wait_s": 0,
}  # fmt: skip
"""Arguments of all tools by name: those that a tool requires, and two others."""

ONLY_ARGUMENTS = "what it does is in its arguments"
ONE_FILE = "it changes one file, from a content to another one that both are in its arguments"
READS = "it only reads"
UNBOUND = {
    "space_repo_apply_patch": ONE_FILE,
    "space_repo_edit_file": ONE_FILE,
    "space_repo_write_file": ONE_FILE,
    "space_repo_delete_file": ONE_FILE,
    "space_repo_rename_file": ONE_FILE,
    "space_repo_snapshot": "it only adds a saved state",
    "space_repo_create_task": "it acts on no task; a profile that it chooses is bound (a test of its own)",
    "space_repo_pr_status": "it asks the forge about the task's branch, whose name never changes",
    **dict.fromkeys(
        (
            "space_repo_status", "space_repo_diff", "space_repo_impact", "space_repo_map", "space_repo_read_file",
            "space_repo_search", "space_repo_list_checks", "space_repo_list_snapshots", "space_repo_list_tasks",
            "space_repo_wait_run", "space_repo_read_log", "space_repo_test_results", "space_repo_list",
        ),
        READS,
    ),
    **dict.fromkeys(
        (
            "space_repo_clone", "space_repo_fetch", "space_repo_update", "space_repo_stop_run",
            "space_agent_request_tool_approval",
        ),
        ONLY_ARGUMENTS,
    ),
}  # fmt: skip
"""Tools that act on no state that was shown, and why. Each other tool has to refuse another state."""

PROFILE = (
    'label = "app"\nimage = "base"\n[[check]]\nid = "build"\nlabel = "b"\nargv = ["true"]\n'
    '[launch]\nargv = ["./app"]\nrequires = ["build"]\n[launch.ready]\nport = 8080\n'
)


REFUSALS = {ErrorCode.CONFLICT, ErrorCode.STALE_HASH, ErrorCode.NOTHING_TO_COMMIT}
"""The last one: of a commit, when the changes are committed already."""


class Bench(Desk):
    """A desk whose repository is on a forge, with a candidate; its verdicts and the release in use can be changed."""

    verified = True
    run = "run-1"

    def call_of(self, tool: Tool) -> AgentCall:
        return build_call(Agent(self.workbench, self.home), tool, self.arguments_of(tool))

    def arguments_of(self, tool: Tool) -> Any:
        fields = tool.input_model.model_fields
        known = {**GIVEN, "task_id": self.task.id, "repo_id": self.repo_id}
        required = {name for name, field in fields.items() if field.is_required()} | {"offline", "patches"}
        wanted = required | ({"task_id"} if "task_id" in fields else set())
        return tool.input_model(**{name: known[name] for name in wanted & fields.keys()})

    def approve(self, call: AgentCall, scope: ApprovalScope = ApprovalScope.ONCE) -> Approval:
        """Also a call that would be refused without a question."""
        asked = requests.ask(self.workbench._services, call)
        return self.workbench.answer_approval(asked.id, approved=True, by="a person", scope=scope)

    def ask_about(self, call: AgentCall) -> tuple[str, ...]:
        return question.build_question(self.workbench._services, call)

    @property
    def record(self) -> Task:
        return self.workbench.task(self.task.id)

    def change_record(self, **fields: object) -> None:
        save_task(Home(self.home), self.record.model_copy(update=fields))

    def move_remote(self) -> None:
        known = self.workbench.repository(self.repo_id)
        save_repository(Home(self.home), known.model_copy(update={"remote_url": "https://github.com/o/other"}))

    def swap(self) -> None:
        self.write("f", b"swapped\n")
        self.write("g", b"new\n")

    def commit_and_write(self) -> None:
        self.workbench.commit(self.task.id, "more")
        self.write("f", b"again\n")

    def commit_alone(self) -> None:
        """The files of the task are the same after it, so no tree tells."""
        self.workbench.commit(self.task.id, "more")

    def fail(self) -> None:
        self.verified = False

    def launch_again(self) -> None:
        self.run = "run-2"

    def promote_another(self) -> None:
        name = "c" * 40
        home = Home(self.home)
        with staged_release(home, self.repo_id) as staged, open_releases(home, self.repo_id) as releases:
            releases.publish(staged, self.manifest_of(name))
            releases.promote(name, datetime.now(UTC))
            releases.confirm()

    def find_promotable(self, _services: object, _owner: str) -> promote.Promotable:
        head = self.record.head_commit
        return promote.Promotable(head, ReleaseRule(artifacts=("x",)), self.home, self.manifest_of("a" * 40))

    def manifest_of(self, tree: str) -> ReleaseManifest:
        return ReleaseManifest(
            repo_id=self.repo_id, tree=tree, commit=tree, key="k", image_digest="", run_id=self.run,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )  # fmt: skip


CHANGES: dict[str, Callable[[Bench], None]] = {
    "files": Bench.swap,
    "commit": Bench.commit_and_write,
    "commit of the same files": Bench.commit_alone,
    "base branch": lambda bench: bench.change_record(base_branch="production"),
    "base commit": lambda bench: bench.change_record(base_commit=bench.upstream.oid("production")),
    "profile": lambda bench: bench.change_record(profile="app"),
    "remote": Bench.move_remote,
    "verdicts": Bench.fail,
    "candidate": Bench.launch_again,
    "release in use": Bench.promote_another,
}


@pytest.fixture
def bench(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    home = tmp_path / "sandbox-home"
    (home / "profiles").mkdir(parents=True)
    (home / "profiles" / "app.toml").write_text(PROFILE)
    upstream.write("old", b"old\n")
    upstream.commit()
    upstream.git("branch", "production")
    made = Bench(upstream, home)
    monkeypatch.setattr(
        gate, "find_tree_verdicts",
        lambda *_: gate.TreeVerdicts({"build": run_made() if made.verified else None}),
    )  # fmt: skip
    monkeypatch.setattr(promote, "find_promotable", made.find_promotable)
    with made.workbench:
        made.workbench.set_repository(made.repo_id, {"profile": "app"})
        made.workbench.create_task(made.repo_id, "to have its branch", "production")
        made.write("f", b"committed\n")
        made.workbench.commit(made.task.id, "m")
        made.write("f", b"shown\n")
        known = made.workbench.repository(made.repo_id)
        save_repository(Home(home), known.model_copy(update={"remote_url": "https://github.com/o/r"}))
        yield made


def test_each_tool_is_bound_or_says_why_not() -> None:
    bound = TOOLS.keys() - UNBOUND.keys()
    assert UNBOUND.keys() <= TOOLS.keys()
    assert all("task_id" in TOOLS[name].input_model.model_fields for name in bound)
    assert {name for name, tool in TOOLS.items() if tool.asks or tool.destructive or tool.sends} <= bound | {
        "space_repo_clone", "space_repo_fetch",
    }  # fmt: skip


def test_n09_every_argument_of_every_tool_is_asked_about_but_how_long_the_call_waits(bench: Bench) -> None:
    """Control: the tools that wait have that argument."""
    for name, tool in TOOLS.items():
        assert bench.call_of(tool).arguments.keys() == tool.input_model.model_fields.keys() - {"wait_s"}, name
    assert [name for name, tool in TOOLS.items() if "wait_s" in tool.input_model.model_fields]


@pytest.mark.parametrize("change", CHANGES)
def test_n10_another_state_is_another_call_that_no_approval_covers(bench: Bench, change: str) -> None:
    """Each change alters the question of some tool, and what an approval no longer covers says what changed: to the
    person, and to the agent that makes the call again. Controls: what is covered says no change; the test below.
    """
    before = {name: bench.call_of(tool) for name, tool in TOOLS.items()}
    shown = {name: bench.ask_about(call) for name, call in before.items()}
    given = {name: bench.approve(call) for name, call in before.items()}
    CHANGES[change](bench)
    altered, outdated = set(), set()
    for name, tool in TOOLS.items():
        now = bench.call_of(tool)
        if bench.ask_about(now) != shown[name]:
            altered.add(name)
            assert fingerprint(now) != fingerprint(before[name]), (name, bench.ask_about(now), shown[name])
        found, changed = bench.workbench.find_outdated_approval(now), bench.workbench.approval_changes(given[name].id)
        is_same_call = now.arguments == before[name].arguments  # a fork has one more argument if it inherits a profile
        assert found == ((given[name].id, changed) if changed and is_same_call else None), name
        assert bool(changed) == (fingerprint(now) != given[name].fingerprint), name
        outdated |= {name} if changed else set()
    assert altered <= outdated != set()
    assert altered
    _refuse_what_was_approved(bench, before)


def _refuse_what_was_approved(bench: Bench, before: dict[str, AgentCall]) -> None:
    """Where the state of the call is another one by now, the tool itself refuses the one that was approved."""
    refused = set()
    for name in TOOLS.keys() - UNBOUND.keys():
        call = before[name]
        if bench.call_of(TOOLS[name]).state == call.state:
            continue
        refused.add(name)
        request = ToolCall(bench.workbench, bench.arguments_of(TOOLS[name]), Watch(), call.state)
        with pytest.raises(SandboxError) as caught:
            TOOLS[name].call(request)
        assert caught.value.code in REFUSALS, (name, caught.value)
    assert refused


def test_n10_without_a_change_the_call_and_its_question_are_the_same(bench: Bench) -> None:
    calls = [{name: bench.call_of(tool) for name, tool in TOOLS.items()} for _ in range(2)]
    assert calls[0] == calls[1]
    assert [bench.ask_about(call) for call in calls[0].values()] == [
        bench.ask_about(call) for call in calls[1].values()
    ]


def test_an_agent_learns_why_it_is_asked_again(bench: Bench) -> None:
    """A commit was verified between the question and the approval."""
    bench.verified = False
    tool, agent = TOOLS["space_repo_push"], Agent(bench.workbench, bench.home)
    errors = []
    for _ in range(2):
        with pytest.raises(SandboxError) as caught:
            permit_out_of_band(agent, tool, bench.arguments_of(tool))
        errors.append(caught.value)
        bench.workbench.answer_approval(caught.value.details, approved=True, by="a person")
        bench.verified = True
    first, second = errors
    assert first.data == {"approval_id": first.details}
    changed = ["verified: asked about False, now True"]
    outdated = {"approval_id": first.details, "changed": changed}
    assert second.data == {"approval_id": second.details, "outdated": outdated}
    assert second.hint.startswith(f"Since {first.details} was asked for, this changed: {changed[0]}. They run: ")
    assert permit_out_of_band(agent, tool, bench.arguments_of(tool)).permission.approval_id == second.details


def test_an_approval_of_more_than_one_call_is_not_outdated(bench: Bench) -> None:
    """It is for any state. Nor is a request that is over."""
    call = bench.call_of(TOOLS["space_repo_push"])
    standing = bench.approve(call, ApprovalScope.TASK)
    denied = bench.workbench.request_approval(call)
    bench.workbench.answer_approval(denied.id, approved=False, by="a person")
    bench.fail()
    assert bench.workbench.find_outdated_approval(bench.call_of(TOOLS["space_repo_push"])) is None
    assert [bench.workbench.approval_changes(one.id) for one in (standing, denied)] == [(), ()]


def test_n10_a_question_is_not_asked_about_a_state_that_has_passed(bench: Bench) -> None:
    """A change between the look at the state and the question would show one state, and bind another. Control: without
    a change the questions are built.
    """
    before = {name: bench.call_of(tool) for name, tool in TOOLS.items()}
    assert all(bench.ask_about(call) for call in before.values())
    bench.commit_and_write()
    passed = {name: call for name, call in before.items() if bench.call_of(TOOLS[name]).state != call.state}
    assert passed.keys() >= TOOLS.keys() - UNBOUND.keys()
    for call in passed.values():
        with pytest.raises(SandboxError, match="changed while a person was to be asked"):
            bench.ask_about(call)


def test_n10_packages_are_shown_of_the_commit_that_is_approved(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task gets another commit between the look at its state and the look at its manifests."""
    tool = TOOLS["space_repo_prepare"]
    call, read = bench.call_of(tool), []

    def read_and_commit(home: Home, task: Task) -> object:
        facts = describe_record(home, task)
        bench.workbench.commit(bench.task.id, "meanwhile")
        return facts

    def note(_services: object, _part: object, tree: TreeSource) -> tuple[()]:
        read.append(tree.commit)
        return ()

    monkeypatch.setattr(f"{question.__name__}.describe_record", read_and_commit)
    monkeypatch.setattr(question, "find_missing_layers", note)
    bench.ask_about(call)
    assert {*read} == {call.state.partition(" ")[0]}


def test_n10_a_new_task_has_the_profile_that_was_approved(bench: Bench) -> None:
    """Control: of the approved state a task is made."""
    tool = TOOLS["space_repo_create_task"]
    arguments = bench.arguments_of(tool).model_copy(update={"profile": "app"})
    state = bench.workbench.approval_call(tool.name, arguments.model_dump(mode="json")).state
    assert state
    with pytest.raises(SandboxError) as caught:
        tool.call(ToolCall(bench.workbench, arguments, Watch(), f"{'0' * 64}{state[64:]}"))
    assert caught.value.code is ErrorCode.CONFLICT
    tool.call(ToolCall(bench.workbench, arguments, Watch(), state))


def _change_profile_upstream(bench: Bench) -> str:
    """At the commit that is returned the repository's profile is `app`, at its newest it is `other`."""
    profile = (bench.home / "profiles" / "app.toml").read_text()
    for name in ("other", "loose"):
        detect = f'\n[detect]\nall = [{{ file = "{name}.lock" }}]\n'
        (bench.home / "profiles" / f"{name}.toml").write_text(profile.replace('"app"', f'"{name}"', 1) + detect)
    (bench.home / "profiles" / "app.toml").write_text(profile + '\n[detect]\nall = [{ file = "app.lock" }]\n')
    bench.upstream.write("app.lock", b"")
    old = bench.upstream.commit()
    (bench.upstream.root / "app.lock").unlink()
    bench.upstream.write("other.lock", b"")
    bench.upstream.commit()
    known = bench.workbench.repository(bench.repo_id)
    save_repository(Home(bench.home), known.model_copy(update={"remote_url": str(bench.upstream.root)}))
    bench.workbench.set_repository(bench.repo_id, {"profile": ""})
    return old


@pytest.mark.parametrize("by", ["create", "fork", "fork of a snapshot"])
def test_n10_a_profile_is_shown_as_of_the_base_of_what_a_task_continues_from(bench: Bench, by: str) -> None:
    """Control: of a new task it is shown as of the default branch."""
    old = _change_profile_upstream(bench)
    with Workbench(bench.home, environ={}, allow_file=True) as bench.workbench:
        bench.workbench.clone(str(bench.upstream.root))
        task = bench.workbench.create_task(bench.repo_id, "t", old, options=TaskOptions(profile="loose"))
        kept = bench.workbench.snapshot(task.id)
        new = {"repo_id": bench.repo_id, "prompt": "p", "profile": "loose"}
        tool, given = {
            "create": (TOOLS["space_repo_create_task"], {**new, "from_snapshot": kept.id}),
            "fork": (TOOLS["space_repo_fork_task"], {"task_id": task.id}),
            "fork of a snapshot": (TOOLS["space_repo_fork_task"], {"task_id": task.id, "snapshot": kept.id}),
        }[by]
        arguments: Any = tool.input_model(**given)
        call = build_call(Agent(bench.workbench, bench.home), tool, arguments)
        shown = [line for line in bench.ask_about(call) if line.startswith("profile: loose instead of")]
        assert shown == [f"profile: loose instead of app, as of commit {old[:12]}, its base"]
        of_new = bench.workbench.approval_call("space_repo_create_task", new)
        assert any("loose instead of other" in line for line in bench.ask_about(of_new)), "void"

        wrong = of_new.state if by == "create" else add_choice(call.state if by == "fork" else "", of_new.state)
        before = bench.workbench.tasks()
        with pytest.raises(SandboxError) as caught:
            tool.call(ToolCall(bench.workbench, arguments, Watch(), wrong))
        assert caught.value.code is ErrorCode.CONFLICT
        assert [t.status for t in bench.workbench.tasks() if t not in before] == [TaskStatus.CLOSED]
        result: Any = tool.call(ToolCall(bench.workbench, arguments, Watch(), call.state))
        assert (result.task.base_commit, result.task.profile) == (old, "loose")


def test_n10_a_profile_is_shown_as_it_is_approved(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit that it is compared at changes after the look at the state of the call. Control: asked about later, it
    reads otherwise.
    """
    wanted = ("space_repo_create_task", {"repo_id": bench.repo_id, "prompt": "p", "profile": "app"})
    call = bench.workbench.approval_call(*wanted)
    shown = bench.ask_about(call)

    def join_and_change(target: str, facts: Facts) -> str:
        known = bench.workbench.repository(bench.repo_id)
        save_repository(Home(bench.home), known.model_copy(update={"default_branch": "production"}))
        return join_state(target, facts)

    monkeypatch.setattr(f"{chosen_profile.__name__}.join_state", join_and_change)
    assert bench.ask_about(call) == shown
    assert bench.ask_about(bench.workbench.approval_call(*wanted)) != shown


ONCE, WHOLE_TASK, DENY = "approve this call", "approve this tool for this task", "deny"


def _answer(bench: Bench, mode: Any, answer: str, *, is_changed: bool) -> tuple[types.CallToolResult, int]:
    """The result of a snapshot that a person is asked about, and how often they were. `is_changed`: the files change
    while they read the first question.
    """
    asked: list[str] = []
    (bench.home / "policies").mkdir()
    (bench.home / "policies" / "approvals.toml").write_text('[tools]\nspace_repo_snapshot = "ask"\n')

    async def elicit(_context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        if is_changed and len(asked) == 1:
            bench.write("f", b"changed while the person reads\n")
        return types.ElicitResult(action="accept", content={"answer": answer})

    callback: Any = elicit
    results: list[types.CallToolResult] = []

    async def session(workbench: Workbench) -> None:
        with anyio.fail_after(60):
            agent = Agent(workbench, bench.home, "policy")
            async with Client(make_server(agent), mode=mode, elicitation_callback=callback) as client:
                results.append(await client.call_tool("space_repo_snapshot", {"task_id": bench.task.id}))

    with Workbench(bench.home, environ={}, allow_file=True) as workbench:
        anyio.run(session, workbench)
    return results[0], len(asked)


@pytest.mark.parametrize("is_changed", [True, False], ids=["changed", "control"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_n10_an_answer_is_about_the_state_of_the_question(bench: Bench, mode: str, *, is_changed: bool) -> None:
    """A person takes a minute to answer, and the files change meanwhile. A client that repeats the call with its answer
    (`auto`) gets a second question, about the files of now.
    """
    result, asked = _answer(bench, mode, ONCE, is_changed=is_changed)
    repeats = mode == "auto"
    assert result.is_error == (is_changed and not repeats)
    assert asked == (2 if is_changed and repeats else 1)
    assert len(bench.workbench.snapshots(bench.task.id)) == (0 if result.is_error else 1)


def test_n10_a_denial_holds_though_the_files_change(bench: Bench) -> None:
    """`conflict` would tell the agent to make the call again, which a person just denied."""
    result, _ = _answer(bench, "legacy", DENY, is_changed=True)
    assert result.is_error
    assert ErrorCode.APPROVAL_DENIED.value in str(result.content)
    assert not bench.workbench.snapshots(bench.task.id)


def test_n10_an_approval_for_the_whole_task_is_for_any_state_of_it(bench: Bench) -> None:
    result, asked = _answer(bench, "legacy", WHOLE_TASK, is_changed=True)
    assert not result.is_error, result.content
    assert asked == 1
    assert len(bench.workbench.snapshots(bench.task.id)) == 1


def test_n10_a_check_does_not_run_on_files_that_change_before_it_has_the_lock(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its image may be built meanwhile. Control: on the approved files it goes on to its run."""
    state = bench.call_of(TOOLS["space_repo_run_check"]).state
    ran: list[str] = []

    def prepare(*_: object) -> dict[str, object]:
        if not ran:
            bench.write("f", b"swapped\n")
        return {}

    monkeypatch.setattr(task_checks, "prepare_setups", prepare)

    def run(*_: object) -> Iterator[object]:
        ran.append("run")
        return iter(())

    monkeypatch.setattr(task_checks, "_run_in_task", run)
    wanted = task_checks.TaskRun(expected_tree=state)
    with pytest.raises(SandboxError) as caught:
        task_checks.run_checks(bench.workbench._services, bench.task.id, ["build"], Watch(), wanted)
    assert caught.value.code is ErrorCode.CONFLICT
    assert not ran
    bench.write("f", b"shown\n")
    ran.append("control")
    task_checks.run_checks(bench.workbench._services, bench.task.id, ["build"], Watch(), wanted)
    assert ran == ["control", "run"]


def test_n10_a_fork_of_a_task_with_a_chosen_profile_is_bound_to_its_files(bench: Bench) -> None:
    """Its state has one more fact, the digest of what the profile changes. Control: on the same files it succeeds."""
    task = bench.workbench.create_task(bench.repo_id, "t", options=TaskOptions(profile="app"))
    bench.task, bench.root = task, bench.worktree(task)
    tool = TOOLS["space_repo_fork_task"]
    request = ToolCall(bench.workbench, bench.arguments_of(tool), Watch(), bench.call_of(tool).state)
    bench.write("f", b"swapped\n")
    with pytest.raises(SandboxError) as caught:
        tool.call(request)
    assert caught.value.code is ErrorCode.CONFLICT
    with suppress(FileNotFoundError):
        (bench.root / "f").unlink()
    bench.workbench.restore(task.id, "head")
    tool.call(request)
