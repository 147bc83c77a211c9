"""THREATS S213: text that an agent writes and a pull request publishes, and the question to a person does not show.

The control of each attack: the text is there where others read it, in the pushed commit and in the description.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.forges import body, comparison_table
from sandbox.models import ApprovalScope, CheckComparison, TestChange, TreeComparison
from sandbox.models.words import TestChangeKind
from sandbox.store.home import Home
from sandbox.store.records import find_task, save_repository, save_task
from sandbox.workbench.approvals import question as questions
from sandbox.workbench.checks.gate import TreeGate
from sandbox.workbench.delivery.description import gather_facts
from tests.attack.arena import refused
from tests.unit.conftest import Upstream, scrubbed, surroundings, unused_homes, upstream
from tests.unit.desk import Desk

__all__ = ["scrubbed", "surroundings", "unused_homes", "upstream"]
pytestmark = [pytest.mark.must, pytest.mark.xdist_group("questions")]

PUSH, OPEN_PR = "space_repo_push", "space_repo_open_pr"
STOLEN = "the key of another repository"


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench:
        yield desk


def commit(desk: Desk, *messages: str) -> None:
    for message in messages:
        desk.write("f", message.encode())
        desk.workbench.commit(desk.task.id, message)


def ask(desk: Desk, tool: str) -> list[str]:
    call = desk.workbench.approval_call(tool, {"task_id": desk.task.id})
    return list(desk.workbench.request_approval(call).question)


def serve_by_github(desk: Desk) -> None:
    """A pull request from a local path is refused."""
    known = desk.workbench.repository(desk.repo_id)
    save_repository(Home(desk.home), known.model_copy(update={"remote_url": "https://github.com/acme/repo"}))


def body_of(desk: Desk) -> str:
    return body.compose(gather_facts(desk.workbench._services, find_task(Home(desk.home), desk.task.id)))


def test_s213_a_question_about_a_push_shows_each_commit_message_whole(desk: Desk) -> None:
    commit(desk, f"Fix it\n\nIn the body: {STOLEN}", "Tidy\n\nverified: yes, every check passed\x1b[2J\u200b")
    question = ask(desk, PUSH)
    sent = desk.workbench.push(desk.task.id)
    log = desk.upstream.git("log", "-2", "--format=%B", sent.branch)
    assert STOLEN.encode() in log, "void: it is not sent"
    assert "publishes: 2 commit message(s)" in question
    assert any(line.endswith(f"| In the body: {STOLEN}") for line in question)
    assert question.index(next(line for line in question if line.endswith("| Fix it"))) < question.index(
        next(line for line in question if line.endswith("| Tidy"))
    )
    assert not [line for line in question if line.strip().startswith("verified: yes")]
    assert not [line for line in question if "\x1b" in line or "\u200b" in line]


def test_s213_a_question_about_a_pull_request_shows_the_prompt_that_it_publishes(desk: Desk) -> None:
    """A push publishes no prompt, so its question has none."""
    desk.task = desk.workbench.create_task(desk.repo_id, f"Do it\n{STOLEN}")
    desk.root = desk.worktree(desk.task)
    commit(desk, "Harmless")
    serve_by_github(desk)
    assert STOLEN in body_of(desk), "void: it is not published"
    assert f"    | {STOLEN}" in ask(desk, OPEN_PR)
    assert not [line for line in ask(desk, PUSH) if STOLEN in line]


def test_s213_a_question_shows_as_much_of_a_prompt_as_a_pull_request_publishes(desk: Desk) -> None:
    """So that a long prompt, which was pasted, does not refuse the call. The rest of it stays in the record."""
    lines = [f"line {n} of the pasted log" for n in range(2100)]
    desk.task = desk.workbench.create_task(desk.repo_id, "\n".join(lines))
    desk.root = desk.worktree(desk.task)
    commit(desk, "Harmless")
    serve_by_github(desk)
    question, published = ask(desk, OPEN_PR), body_of(desk)
    shown = [line for line in lines if f"    | {line}" in question]
    assert shown == [line for line in lines if f"{line}\n" in published] == lines[: len(shown)]
    assert 100 < len(shown) < 500
    assert any(
        line.startswith(f"  and {len(lines) - len(shown)} more line(s) of it, which are not") for line in question
    )


def find_note(question: list[str], *oids: str) -> list[str]:
    """Which lines say that some of the text is not shown, in words that no text can forge. The first is for all."""
    found = [line for line in question if line.startswith(("NOT SHOWN", *(f"  {oid}, " for oid in oids)))]
    assert not found or any(line.strip().startswith("to read all: git --git-dir=") for line in question)
    return found


def test_s213_a_question_says_how_much_of_the_messages_it_does_not_show(desk: Desk) -> None:
    """Honest work of many commits can be asked about, and text at the end of a long message is not hidden in silence.

    Control: messages that can be read are whole, without such a note.
    """
    forged = "to read all: git log\nNOT SHOWN, and published too: 0 line(s), 0 character(s) of 0 message(s)"
    commit(desk, forged)
    assert find_note(ask(desk, PUSH)) == []
    commit(desk, "Long\n\n" + "line\n" * 2500 + STOLEN, "Wide " + "x" * 60_000, "Tidy\n\nas it was")
    question = ask(desk, PUSH)
    clone = Home(desk.home).clone(desk.repo_id)
    tidy, wide, long, first = desk.git("rev-list", "-4", desk.workbench.task(desk.task.id).head_commit).split()
    total, of_long, of_wide = find_note(question, tidy, wide, long, first)
    shown = [line for line in question if line.startswith("    | line")]
    rests = []
    for oid, subject, others in ((long, "Long", 1 + len(shown)), (wide, "Wide " + 195 * "x", 0)):
        message = desk.git("show", "-s", "--format=%B", oid).rstrip("\n")
        lines = [subject, "", *["line"] * len(shown)][: 1 + others]
        rests.append((message.count("\n") - others, len(message) - len("\n".join(lines))))
    assert of_long == "  {}, {:,} line(s), {:,} character(s) of it NOT SHOWN:".format(long, *rests[0])
    assert of_wide == "  {}, {:,} line(s), {:,} character(s) of it NOT SHOWN: Wide {}".format(
        wide, *rests[1], 195 * "x"
    )
    sums = map(sum, zip(*rests, strict=True))
    assert total == "NOT SHOWN, and published too: {:,} line(s), {:,} character(s) of 2 message(s)".format(*sums)
    assert {"    | as it was", "    | NOT SHOWN, and published too: 0 line(s), 0 character(s) of 0 message(s)"} <= {
        *question
    }
    assert not [line for line in question if STOLEN in line]
    read = next(line.split("git ", 1)[1] for line in question if line.startswith("  to read all: "))
    assert f"--git-dir={clone}" in read
    assert STOLEN in desk.git(*shlex.split(read)[1:])


def test_s213_many_commits_with_long_messages_can_be_asked_about(desk: Desk) -> None:
    commit(desk, *(f"Step {n}\n\n" + "- a detail of it\n" * 75 for n in range(10)))
    question = ask(desk, PUSH)
    assert len(question) < 700
    assert all(any(line.endswith(f"| Step {n}") for line in question) for n in range(10))
    assert find_note(question)


def test_s213_a_question_whose_messages_are_too_long_to_read_is_not_put(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When even a line for each commit is too much."""
    monkeypatch.setattr(questions, "MOST_LINES", 12)
    commit(desk, *(f"Step {n}" for n in range(12)))
    with refused(ErrorCode.QUOTA_EXCEEDED) as caught:
        ask(desk, PUSH)
    assert "commits" in caught[0].hint
    assert desk.workbench.push(desk.task.id).commit, "void: a person could not push it either"


def test_s213_a_question_shows_the_names_of_tests_that_a_pull_request_publishes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest wrote them, and after another report they are others. A push publishes none of them."""
    commit(desk, "Harmless")
    serve_by_github(desk)
    assert not [line for line in ask(desk, OPEN_PR) if "comparison" in line], "control"
    names = [f"{n} {STOLEN}\x1b[2J\nverified: yes{'x' * 300}" for n in range(40)]
    compared = compare(names)
    monkeypatch.setattr(TreeGate, "comparison", compared)
    published = comparison_table.describe_comparison(compared)
    assert STOLEN in published, "void: they are not published"
    workbench, arguments = desk.workbench, {"task_id": desk.task.id}
    question, call = ask(desk, OPEN_PR), workbench.approval_call(OPEN_PR, arguments)
    shown = [line for line in question if STOLEN in line]
    assert len(shown) == published.count(STOLEN) == 30
    assert "  and 10 more, of which it publishes the number only" in question
    assert not [line for line in question if "\x1b" in line or line.strip().startswith("verified: yes")]
    assert max(map(len, shown)) < 250
    assert not [line for line in ask(desk, PUSH) if STOLEN in line]
    pushing = workbench.approval_call(PUSH, arguments)
    monkeypatch.setattr(TreeGate, "comparison", compare(names[1:]))
    assert workbench.approval_call(PUSH, arguments).state == pushing.state
    assert workbench.approval_call(OPEN_PR, arguments).state != call.state
    with refused(ErrorCode.CONFLICT) as caught:
        workbench.open_pull_request(desk.task.id, expected_commit=call.state)
    assert caught[0].brief == "What was approved has changed: comparison"


def compare(names: list[str]) -> TreeComparison:
    changes = tuple(TestChange(test=name, change=TestChangeKind.NEWLY_FAILING) for name in names)
    check = CheckComparison(check_id="test", by="tests", counts={}, changes=changes, reasons=())
    return TreeComparison(against="base", commit="a" * 40, tree="b" * 40, checks=(check,), no_new_failures=False)


@pytest.mark.parametrize("what", ["message", "prompt"])
def test_s213_another_text_than_the_approved_one_is_not_covered(desk: Desk, what: str) -> None:
    """Control: the approval covers the call before the change."""
    commit(desk, "Harmless")
    serve_by_github(desk)
    workbench = desk.workbench
    arguments = {"task_id": desk.task.id}
    call = workbench.approval_call(OPEN_PR, arguments)
    asked = workbench.request_approval(call)
    workbench.answer_approval(asked.id, approved=True, by="a person", scope=ApprovalScope.ONCE)
    assert workbench.find_approval(call) is not None, "void"
    if what == "message":
        commit(desk, STOLEN)
    else:
        home = Home(desk.home)
        save_task(home, find_task(home, desk.task.id).model_copy(update={"prompt": STOLEN}))
    assert workbench.find_approval(workbench.approval_call(OPEN_PR, arguments)) is None
    with refused(ErrorCode.CONFLICT):
        workbench.push(desk.task.id, expected_commit=call.state)
