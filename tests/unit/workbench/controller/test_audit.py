"""Journals are chained, say who and how, and hold what happens outside tasks. Ids: THREATS F, N20, P.

Each attack has a control: the journal is read without complaint, so that only the chain tells.
"""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.client.client import Client

from devtools.command import Command, Ended
from sandbox.agent.agent import Agent
from sandbox.errors import ErrorCode
from sandbox.models import (
    Actor,
    ApprovalScope,
    AttackReport,
    AuditRecord,
    BrokenEntry,
    JournalDamage,
    JournalEntry,
    JournalState,
)
from sandbox.store import journal
from sandbox.store.home import Home
from sandbox.workbench import Workbench
from tests.unit.agent.test_server import GENERATIONS, failed, ok, talk
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk
from tests.unit.store.test_journal import TASK, entry

SECRET = "canary-s3cr3t-77aa"


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def path_of(desk: Desk, name: str) -> Path:
    return desk.home / "repositories" / "journal" / f"{name}.jsonl"


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def state_of(desk: Desk, name: str) -> JournalState:
    (found,) = [state for state in desk.workbench.audit_verify().journals if state.name == name]
    return found


def broken(desk: Desk, name: str) -> BrokenEntry:
    found = state_of(desk, name).broken
    assert found is not None, "nothing was noticed"
    return found


def at_home(desk: Desk) -> list[JournalEntry]:
    return list(journal.read_entries(Home(desk.home), journal.HOME_JOURNAL))


def last(desk: Desk, operation: str) -> JournalEntry:
    return [e for e in at_home(desk) if e.operation == operation][-1]


@pytest.fixture
def worked(desk: Desk) -> Desk:
    """A task with five entries, of which all but the last two are anchored in the home's journal."""
    task = desk.task.id
    desk.workbench.write_file(task, "a", "1", None)
    desk.workbench.snapshot(task, "first")
    desk.workbench.write_file(task, "b", "2", None)
    desk.workbench.write_file(task, "c", "3", None)
    assert desk.workbench.audit_verify().intact, "void"
    return desk


# --- attacks on a chain


def _edit(lines: list[bytes], at: int, **changed: Any) -> list[bytes]:
    document = {**json.loads(lines[at]), **changed}
    return [*lines[:at], json.dumps(document, separators=(",", ":")).encode() + b"\n", *lines[at + 1 :]]


def _unchained(line: bytes) -> bytes:
    document = {k: v for k, v in json.loads(line).items() if k not in {"seq", "prev"}}
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


ATTACKS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], JournalDamage, int | None]] = {
    "edited": (lambda x: _edit(x, 2, result="interrupted"), JournalDamage.EDITED, 3),
    "edited-actor": (lambda x: _edit(x, 3, actor="cli"), JournalDamage.EDITED, 4),
    "removed": (lambda x: [*x[:2], *x[3:]], JournalDamage.REMOVED, 3),
    "removed-first": (lambda x: x[1:], JournalDamage.REMOVED, 1),
    "reordered": (lambda x: [x[0], x[2], x[1], *x[3:]], JournalDamage.REMOVED, 2),
    "repeated": (lambda x: [*x[:2], x[1], *x[2:]], JournalDamage.REORDERED, 2),
    "truncated": (lambda x: x[:2], JournalDamage.TRUNCATED, 3),
    "emptied": (lambda _: [], JournalDamage.MISSING, 3),
    "damaged": (lambda x: [*x[:1], b"not json\n", *x[2:]], JournalDamage.REMOVED, 2),
    "inserted": (lambda x: [*x[:2], _unchained(x[1]), *x[2:]], JournalDamage.INSERTED, None),
    "renumbered": (lambda x: [*x[:2], *_edit(x[3:4], 0, seq=3), *x[4:]], JournalDamage.EDITED, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_n20_a_journal_that_is_not_what_was_written_is_named(worked: Desk, name: str) -> None:
    attack, damage, seq = ATTACKS[name]
    path = path_of(worked, worked.task.id)
    path.write_bytes(b"".join(attack(lines_of(path))))
    worked.workbench.log(worked.task.id)  # the control: reading complains about none of it
    found = broken(worked, worked.task.id)
    assert (found.damage, found.seq) == (damage, seq)
    assert not worked.workbench.audit_verify().intact
    assert state_of(worked, journal.HOME_JOURNAL).broken is None


def test_n20_entries_that_are_removed_with_their_file_are_missed(worked: Desk) -> None:
    path_of(worked, worked.task.id).unlink()
    assert worked.workbench.log(worked.task.id) == (), "the control"
    assert broken(worked, worked.task.id).damage is JournalDamage.MISSING


def test_n20_a_chain_that_is_made_anew_does_not_fit_what_the_home_noted(worked: Desk) -> None:
    """The head of the snapshot is in the home's journal; whoever writes that anew as well is not noticed."""
    home, path = Home(worked.home), path_of(worked, worked.task.id)
    entries = journal.read_entries(home, worked.task.id)
    path.unlink()
    for each in entries:
        journal.append_entry(home, worked.task.id, each.model_copy(update={"duration_s": 9.0}))
    found = broken(worked, worked.task.id)
    assert (found.damage, found.seq) == (JournalDamage.EDITED, 1)


def test_n20_the_homes_own_journal_cannot_be_cut_unseen(worked: Desk) -> None:
    path = path_of(worked, journal.HOME_JOURNAL)
    whole = lines_of(path)
    seq = state_of(worked, journal.HOME_JOURNAL).seq
    path.write_bytes(b"".join(whole[:-3]))
    found = broken(worked, journal.HOME_JOURNAL)
    assert found.damage is JournalDamage.TRUNCATED
    assert found.seq is not None
    assert found.seq <= seq


def test_what_no_anchor_knows_can_be_cut_off_unseen(worked: Desk) -> None:
    """What docs/audit.md says it cannot tell: an edit is not anchored until the next operation that is fsynced."""
    path = path_of(worked, worked.task.id)
    path.write_bytes(b"".join(lines_of(path)[:-1]))
    assert worked.workbench.audit_verify().intact


def test_the_head_file_is_no_more_than_what_is_on_disk(worked: Desk) -> None:
    head = worked.home / "repositories" / "journal" / "home.head"
    assert head.stat().st_size == 88
    head.write_text("nonsense\n")
    assert broken(worked, journal.HOME_JOURNAL).damage is JournalDamage.TRUNCATED
    head.unlink()
    assert worked.workbench.audit_verify().intact, "an older one has none"


# --- what is no attack


def test_p_an_interrupted_write_is_recovered_and_is_no_damage(worked: Desk) -> None:
    path = path_of(worked, worked.task.id)
    with path.open("ab") as stream:
        stream.write(lines_of(path)[-1][:100])
    assert worked.workbench.audit_verify().intact
    worked.workbench.snapshot(worked.task.id, "after")
    state = state_of(worked, worked.task.id)
    assert (state.broken, state.entries, state.unreadable) == (None, 6, 1)
    path.write_bytes(path.read_bytes().replace(b'"prev":', b'"perv":', 1))
    assert broken(worked, worked.task.id), "the control"


@given(cut=st.integers(min_value=0, max_value=700))
def test_p_wherever_a_write_is_cut_the_chain_goes_on(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    home.prepare()
    for name in ("first", "torn"):
        journal.append_entry(home, TASK, entry(name))
    text = home.journal(TASK).read_bytes()
    first = text.index(b"\n") + 1
    home.journal(TASK).write_bytes(text[: min(first + cut, len(text))])
    journal.append_entry(home, TASK, entry("after"))
    with Workbench(home.root, environ={}) as workbench:
        assert workbench.audit_verify().intact


def test_entries_of_older_versions_are_shown_and_cannot_be_changed_afterwards(worked: Desk) -> None:
    path = path_of(worked, worked.task.id)
    path.write_bytes(b"".join(map(_unchained, lines_of(path))))
    path_of(worked, journal.HOME_JOURNAL).unlink()
    (worked.home / "repositories" / "journal" / "home.head").unlink()
    assert [e.seq for e in worked.workbench.log(worked.task.id)] == [None] * 5
    worked.workbench.snapshot(worked.task.id, "chained")
    state = state_of(worked, worked.task.id)
    assert (state.broken, state.entries, state.unchained) == (None, 1, 5)
    path.write_bytes(path.read_bytes().replace(b'"write"', b'"wrote"', 1))
    found = broken(worked, worked.task.id)
    assert (found.damage, found.seq) == (JournalDamage.EDITED, None)


def test_processes_that_write_at_once_make_one_chain(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    code = (
        "import sys; from pathlib import Path; from sandbox.store import journal; from sandbox.store.home import Home;"
        "from tests.unit.long_journal import make_entry\n"
        "home = Home(Path(sys.argv[1]))\n"
        f"for n in range(60): journal.append_entry(home, {TASK!r}, make_entry(n), synced=False)"
    )
    environ = {**os.environ, "PYTHONPATH": os.getcwd()}  # noqa: PTH109 - where the package is
    argv = [sys.executable, "-c", code, str(home.root)]
    with ExitStack() as ends:
        writers = [ends.enter_context(subprocess.Popen(argv, env=environ)) for _ in range(3)]
        for writer in writers:
            ends.callback(writer.kill)  # one that is left would warn in another test
        assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    with Workbench(home.root, environ={}) as workbench:
        (state,) = [s for s in workbench.audit_verify().journals if s.name == TASK]
    assert (state.broken, state.entries, state.seq) == (None, 180, 180)


def test_a_long_entry_is_chained_to(tmp_path: Path) -> None:
    """Longer than what is read of the end at first."""
    home = Home(tmp_path / "home")
    home.prepare()
    facts = {str(n): "x" * 100 for n in range(5000)}
    journal.append_entry(home, TASK, entry("long").model_copy(update={"facts": facts}))
    assert journal.append_entry(home, TASK, entry("next")).seq == 2


def test_n20_words_of_guests_add_no_line(desk: Desk) -> None:
    forged = '\n{"schema_version":1,"operation":"approve","result":"ok"}\n\x1b[2J\u2028'
    task = desk.workbench.create_task(desk.repo_id, forged).id
    with refused(ErrorCode.NOT_FOUND):
        desk.workbench.restore(task, forged)
    with refused(ErrorCode.NOT_FOUND, ErrorCode.INVALID_INPUT):
        desk.workbench.fetch(str(desk.upstream.root), forged)
    assert [e.operation for e in desk.workbench.log(task)] == ["create", "restore"]
    assert all(
        json.loads(line)["operation"] != "approve" for name in (task, "home") for line in lines_of(path_of(desk, name))
    )
    assert desk.workbench.audit_verify().intact


# --- who


def test_every_entry_says_which_user_of_the_system_asked(desk: Desk) -> None:
    by = desk.workbench.log(desk.task.id)[0].by
    assert by is not None
    assert (by.uid, by.user) == (os.getuid(), getpass.getuser())
    assert by.program == sys.argv[0]
    argv = [sys.executable, "-I", "-m", "sandbox", "--home", str(desk.home), "task", "snapshot", desk.task.id]
    subprocess.run(argv, check=True, capture_output=True, timeout=60, env={**os.environ, "SUDO_USER": "alice\n"})
    entry = desk.workbench.log(desk.task.id)[-1]
    assert entry.by is not None
    assert (entry.actor, entry.by.user, entry.by.sudo_user) == (Actor.CLI, by.user, "alice\n")
    assert entry.allowed is None


def agent_of(desk: Desk, **options: Any) -> Agent:
    workbench = Workbench(desk.home, environ={}, allow_file=True, actor=Actor.AGENT)
    return Agent(workbench, desk.home, **options)


@GENERATIONS
def test_an_agents_entry_says_which_client_and_how_it_was_allowed(desk: Desk, mode: str) -> None:
    task = desk.task.id

    async def session(client: Client) -> None:
        await ok(client, "space_repo_snapshot", task_id=task, label="x")
        required = await failed(client, "space_repo_close_task", task_id=task)
        desk.workbench.answer_approval(required["details"], approved=True, by="a person")
        await ok(client, "space_repo_close_task", task_id=task)

    agent = agent_of(desk)
    talk(agent, session, mode)
    created, snapshot, asked, approved, closed = desk.workbench.log(task)
    assert snapshot.by is not None
    assert (snapshot.by.client, snapshot.by.transport) == ("mcp", "stdio")
    assert snapshot.by.client_version
    assert snapshot.by.session == agent.session
    assert snapshot.allowed is not None
    assert (snapshot.allowed.how, snapshot.allowed.approval_id) == ("policy", "")
    assert closed.allowed is not None
    assert (closed.allowed.how, closed.allowed.decided_by) == ("person", "a person")
    assert closed.allowed.approval_id in asked.names
    assert closed.allowed.approval_id in approved.names
    assert [e.allowed for e in (created, approved)] == [None, None]


def test_a_call_that_nobody_was_asked_about_says_so(desk: Desk) -> None:
    async def session(client: Client) -> None:
        await ok(client, "space_repo_close_task", task_id=desk.task.id)

    talk(agent_of(desk, approvals="auto"), session)
    allowed = desk.workbench.log(desk.task.id)[-1].allowed
    assert allowed is not None
    assert (allowed.how, allowed.approval_id) == ("auto", "")


def test_a_standing_approval_is_named_by_every_call_it_lets_through(desk: Desk) -> None:
    task, ids = desk.task.id, []
    (desk.home / "policies").mkdir()
    (desk.home / "policies" / "approvals.toml").write_text('[tools]\nspace_repo_snapshot = "ask"\n')

    async def session(client: Client) -> None:
        required = await failed(client, "space_repo_snapshot", task_id=task, label="x")
        ids.append(required["details"])
        desk.workbench.answer_approval(ids[0], approved=True, by="a person", scope=ApprovalScope.TASK)
        for label in "ab":
            await ok(client, "space_repo_snapshot", task_id=task, label=label)

    talk(agent_of(desk), session)
    taken = [e.allowed for e in desk.workbench.log(task) if e.operation == "snapshot"]
    assert [(a.how, a.approval_id) for a in taken if a] == [("standing", ids[0])] * 2


def test_a_push_that_the_rule_of_its_diff_allows_says_so_and_any_other_is_asked_about(desk: Desk) -> None:
    task, asked = desk.task.id, []
    (desk.home / "policies").mkdir()
    (desk.home / "policies" / "approvals.toml").write_text('[when]\nflags = ["ci"]\nverified = false\n')

    async def session(client: Client) -> None:
        desk.write("f", b"changed\n")
        desk.workbench.commit(task, "ordinary")
        await ok(client, "space_repo_push", task_id=task)
        desk.write(".github/workflows/ci.yml", b"on: push\n")
        desk.workbench.commit(task, "risky")
        asked.append(await failed(client, "space_repo_push", task_id=task))

    talk(agent_of(desk), session)
    assert asked[0]["code"] == "approval_required"
    pushed = [entry.allowed for entry in desk.workbench.log(task) if entry.operation == "push"]
    assert [allowed.how for allowed in pushed if allowed] == ["diff"]


def test_an_approval_says_who_asked_who_decided_and_where(desk: Desk) -> None:
    call = desk.workbench.approval_call("space_repo_close_task", {"task_id": desk.task.id})
    asked = desk.workbench.request_approval(call)
    assert (asked.asked_by, asked.decider, asked.surface) == (desk.workbench.caller, None, "")
    sandbox = Command(desk.home)
    decided = sandbox.ok("approvals", "approve", asked.id)["approval"]
    assert (decided["surface"], decided["decider"]["uid"]) == ("cli", os.getuid())
    assert desk.workbench.use_approval(call)
    shown = sandbox("approvals", "show", asked.id).stdout
    assert f"by {getpass.getuser()} at the command line (uid {os.getuid()})" in shown
    assert f'arguments: {{"task_id":"{desk.task.id}"}}' in shown
    assert "used at 2" in shown
    listed = sandbox("approvals", "list", "--all").stdout
    assert f"{getpass.getuser()} at the command line" in listed


# --- what is sent


def test_a_push_names_remote_branch_commit_and_gate(desk: Desk) -> None:
    task = desk.task.id
    desk.workbench.write_file(task, "a", "1", None)
    commit = desk.workbench.commit(task, "one").commit
    desk.workbench.push(task)
    sent = desk.workbench.log(task)[-1].sent
    assert sent is not None
    assert (sent.remote, sent.branch, sent.commit) == (
        desk.workbench.repository(desk.repo_id).remote_url, desk.workbench.task(task).branch, commit,
    )  # fmt: skip
    assert (sent.gate.require, sent.gate.step, sent.gate.needed) == ("pr-ready", "push", False)
    assert (sent.gate.verified, sent.gate.unknown) == (None, "not_asked")


def test_a_push_that_the_gate_refuses_names_what_would_have_left(desk: Desk) -> None:
    task = desk.task.id
    desk.workbench.write_file(task, "a", "1", None)
    desk.workbench.commit(task, "one")
    with Workbench(desk.home, environ={}, allow_file=True, settings={"gate": {"require": "push"}}) as strict:
        with refused(ErrorCode.GATE_CLOSED):
            strict.push(task)
        found = strict.log(task)[-1]
    assert found.sent is not None
    assert (found.result, found.sent.gate.needed, found.sent.gate.verified) == ("gate_closed", True, False)


# --- outside tasks


def test_what_happens_outside_tasks_is_in_the_homes_journal(desk: Desk) -> None:
    workbench, remote = desk.workbench, str(desk.upstream.root)
    found = last(desk, "clone")
    assert (found.facts["remote"], found.names) == (f"file://{remote}", (desk.repo_id,))
    commit = workbench.fetch(remote).commit_sha
    assert last(desk, "fetch").facts["commit"] == commit
    workbench.distrust(desk.repo_id)
    assert last(desk, "distrust").names == (desk.repo_id,)
    with refused(ErrorCode.NOT_FOUND):
        workbench.trust(desk.repo_id, f"sha256:{'0' * 64}", by="me")
    assert (last(desk, "trust").result, last(desk, "trust").names[-1]) == ("not_found", "me")
    workbench.collect(dry_run=True)
    assert not [e for e in at_home(desk) if e.operation == "gc"]
    (desk.home / "repositories" / "rooms" / "run-dead").mkdir(parents=True, exist_ok=True)
    with refused(ErrorCode.CONFLICT):
        workbench.remove_repository(desk.repo_id)
    assert last(desk, "remove").result == "conflict"
    workbench.close_task(desk.task.id)
    workbench.remove_repository(desk.repo_id, discard=True)
    assert (last(desk, "remove").result, last(desk, "remove").facts["discard"]) == ("ok", "true")
    assert workbench.audit_verify().intact


def test_an_attack_on_this_host_is_written_down(desk: Desk) -> None:
    report = AttackReport(
        results=(), safe=False, held=3, got_through=1, void=0, skipped=0, errors=0, wall_time_s=1.0, engine="",
        runtime="", git="2.39",
    )  # fmt: skip
    desk.workbench.record_attacks(report)
    assert last(desk, "doctor-attack").facts == {"safe": "false", "held": "3", "got_through": "1"}


def test_f_no_secret_is_in_any_entry(desk: Desk) -> None:
    workbench = desk.workbench
    workbench.set_credential("git.example.com", username="u", secret=SECRET)
    with refused(ErrorCode.INVALID_INPUT, ErrorCode.NOT_FOUND):
        workbench.remove_credential(f"https://user:{SECRET}@git.example.com")
    for url in (f"https://user:{SECRET}@git.example.com/a/b", f"https://git.example.com/a/b?token={SECRET}"):
        with refused(ErrorCode.INVALID_INPUT):
            workbench.clone(url)
        with refused(ErrorCode.INVALID_INPUT):
            workbench.run(url)
    workbench.remove_credential("git.example.com")
    assert (last(desk, "credential-set").names, last(desk, "credential-set").facts["kind"]) == (
        ("git.example.com",), "secret",
    )  # fmt: skip
    text = path_of(desk, journal.HOME_JOURNAL).read_text()
    assert SECRET not in text
    assert "git.example.com" in text, "void"
    assert not [e for e in at_home(desk) if e.operation == "clone" and e.result != "ok" and e.facts["remote"]]


def test_a_changed_policy_or_setting_is_written_down_once(desk: Desk) -> None:
    assert [e.operation for e in at_home(desk)][:2] == ["policy-baseline", "clone"]
    (desk.home / "config.toml").write_text("[gate]\nrequire = 'none'\n")
    (desk.home / "policies").mkdir(exist_ok=True)
    (desk.home / "policies" / "paths.toml").write_text("[limits]\ndepth = 9\n")
    for _ in range(2):
        with Workbench(desk.home, environ={"SANDBOX_GATE_REQUIRE": "none"}, allow_file=True) as later:
            later.snapshot(desk.task.id)
    changes = {e.facts["file"]: e.facts for e in at_home(desk) if e.operation == "policy-change"}
    assert list(changes) == ["config.toml", "environment of python", "policies/paths.toml"]
    assert len([e for e in at_home(desk) if e.operation == "policy-change"]) == 3
    assert (changes["config.toml"]["old"], changes["config.toml"]["new"][:7]) == ("", "sha256:")
    (desk.home / "config.toml").unlink()
    with Workbench(desk.home, environ={}, allow_file=True) as later:
        later.snapshot(desk.task.id)
    last_two = at_home(desk)[-3:]
    assert {e.facts.get("file"): e.facts.get("new") for e in last_two if e.operation == "policy-change"} == {
        "config.toml": "", "environment of python": "",
    }  # fmt: skip


# --- verify and export as commands


def command(desk: Desk, *arguments: str) -> Ended:
    return Command(desk.home)("audit", *arguments)


def test_verify_exits_1_and_names_the_entry(worked: Desk) -> None:
    done = command(worked, "verify", "--json")
    assert (done.code, json.loads(done.stdout)["intact"]) == (0, True)
    assert "all journals are intact" in command(worked, "verify").stdout
    path = path_of(worked, worked.task.id)
    path.write_bytes(b"".join(_edit(lines_of(path), 1, result="nonsense")))
    done = command(worked, "verify", "--json")
    report = {j["name"]: j["broken"] for j in json.loads(done.stdout)["journals"]}
    assert (done.code, report[worked.task.id]["damage"], report[worked.task.id]["seq"]) == (1, "edited", 2)
    assert f"{worked.task.id}: line 2: entry 3 in line 3 does not match the bytes" in command(worked, "verify").stdout


def test_export_is_everything_by_time_one_object_a_line(worked: Desk) -> None:
    call = worked.workbench.approval_call("space_repo_close_task", {"task_id": worked.task.id})
    approval = worked.workbench.request_approval(call)
    worked.workbench.answer_approval(approval.id, approved=False, by="me")
    done = command(worked, "export")
    records = [AuditRecord.model_validate_json(line) for line in done.stdout.splitlines()]
    assert [r.at for r in records] == sorted(r.at for r in records)
    assert {r.journal for r in records if r.kind == "entry"} == {"home", worked.task.id}
    assert [r.approval.state for r in records if r.approval] == ["denied"]
    entries = [r for r in records if r.journal == worked.task.id]
    assert [r.entry for r in entries] == list(worked.workbench.log(worked.task.id))
    assert entries[-1].sha256 == state_of(worked, worked.task.id).head
    task_only = [json.loads(x) for x in command(worked, "export", "--task", worked.task.id).stdout.splitlines()]
    assert {r.get("journal", "") for r in task_only} == {worked.task.id, ""}


@pytest.mark.parametrize(("since", "code"), [("1h", 0), ("2020-01-01", 0), ("yesterday", 2), ("9x", 2)])
def test_since_is_a_time_or_an_age(worked: Desk, since: str, code: int) -> None:
    done = command(worked, "export", "--since", since)
    assert (done.code, bool(done.stdout)) == (code, code == 0)


def test_since_leaves_out_what_was_before(worked: Desk) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    assert list(worked.workbench.audit_export(since=later)) == []
    with refused(ErrorCode.NOT_FOUND):
        worked.workbench.audit_export(task_id=TASK)


def test_the_tenant_of_the_settings_is_in_every_entry(upstream: Upstream, tmp_path: Path) -> None:
    """Control: without the setting there is none."""
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench as workbench:
        assert [entry.tenant for entry in workbench.log(desk.task.id)] == [None]
    with Workbench(desk.home, environ={"SANDBOX_CONTAINER_TENANT": "acme"}) as workbench:
        workbench.snapshot(desk.task.id, "x")
        assert workbench.log(desk.task.id)[-1].tenant == "acme"
