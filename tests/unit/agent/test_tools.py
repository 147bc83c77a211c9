"""Each row of the table of tools is complete: a failure names the tool and the forgotten place."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any

import click
import pytest

from sandbox.agent import inputs, prompt, server, tools
from sandbox.agent.tools import REQUEST_APPROVAL, TOOLS, NotApplicable, Tool, ToolCall
from sandbox.cli.app import cli
from sandbox.config import find_resources
from sandbox.models import Status
from sandbox.policy.approvals import TOOL_NAMES, Decision, load_approval_policy
from sandbox.workbench import Workbench
from sandbox.workbench.approvals import question
from sandbox.workbench.checks import background
from sandbox.workbench.controller import journaling

HOME_OPERATIONS = importlib.import_module("sandbox.workbench.home_operations")
"""The module itself: its name in `sandbox.workbench` is a lazy stand-in."""

POLICY = load_approval_policy(find_resources("policies") / "approvals.toml", Path("/nonexistent"))
SPACE_NAME = re.compile(r"\bspace_[a-z_]+[a-z]\b")
WRITERS = (journaling.record_operation, journaling.record_home_operation, background.Question)
JOURNAL_WORD = re.compile(rf'\b(?:{"|".join(writer.__name__ for writer in WRITERS)})\([^)]*?"([a-z-]+)"')
APPROVAL_USE_CASE = {"request_approval"}
"""The server answers REQUEST_APPROVAL itself, through `agent.approval`."""


def find_commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    yield " ".join(path)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from find_commands(found, (*path, name))


COMMANDS = frozenset(find_commands(cli))


def find_names(code: CodeType) -> set[str]:
    """Every name that a row's `call` uses, also in the functions of `tools` that it calls."""
    names = set(code.co_names)
    helpers = [helper for name in names if inspect.isfunction(helper := getattr(tools, name, None))]
    return names.union(*(find_names(helper.__code__) for helper in helpers))


def find_use_cases(tool: Tool) -> set[str]:
    """The methods of `Workbench` that a row calls."""
    if tool.name == REQUEST_APPROVAL:
        return APPROVAL_USE_CASE
    return find_names(tool.call.__code__) & {name for name in vars(Workbench) if not name.startswith("_")}


def find_journal_words(use_cases: Iterable[str]) -> set[str]:
    """The journal words of these use-cases: the first text that they pass to what writes an entry, or starts a run."""
    members = [vars(owner).get(name) for name in use_cases for owner in (Workbench, HOME_OPERATIONS)]
    sources = [inspect.getsource(member) for member in members if inspect.isfunction(member)]
    return {word for source in sources for word in JOURNAL_WORD.findall(source)}


def find_gaps(tool: Tool) -> list[str]:
    """What a row lacks, each with the place to change."""
    use_cases = find_use_cases(tool)
    words = find_journal_words(use_cases)
    fields = {name.partition(".")[0] for name in tool.cut_fields}
    asks = POLICY.decide(tool.name, tool.risk) is Decision.ASK
    checks = {
        "call: it uses no method of Workbench": bool(use_cases),
        f"journal: its use-case writes {sorted(words) or 'no entry'}": tool.journal in words
        or (isinstance(tool.journal, NotApplicable) and bool(tool.journal.reason) and not words),
        "command: the command line has no such command": tool.command in COMMANDS
        or (isinstance(tool.command, NotApplicable) and bool(tool.command.reason)),
        "input_model: it is not in agent/inputs.py": tool.input_model.__module__ == inputs.__name__,
        "cut_fields: its result has no such field": fields <= set(tool.result_model.model_fields),
        "asks: policies/approvals.toml says otherwise": tool.asks is asks,
        "sends: SENDING of workbench/approvals/question.py says otherwise": tool.sends
        is (tool.name in question.SENDING),
        "open_world: what it sends goes over a network": tool.open_world or not tool.sends,
        "read_only: it writes to the journal": not (tool.read_only and words) or tool.name == REQUEST_APPROVAL,
        "starts_run: it has to wait for its run": tool.waits or not tool.starts_run,
    }
    return [f"{tool.name}: {place}" for place, is_so in checks.items() if not is_so]


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS.keys())
def test_a_row_is_complete(tool: Tool) -> None:
    assert find_gaps(tool) == []


def use_no_workbench(_request: ToolCall) -> Any:
    return None


@pytest.mark.parametrize(
    ("name", "changes", "place"),
    [
        ("space_repo_status", {"call": use_no_workbench}, "call"),
        ("space_repo_commit", {"journal": "committed"}, "journal"),
        ("space_repo_commit", {"journal": NotApplicable("changes no state")}, "journal"),
        ("space_repo_status", {"journal": "commit"}, "journal"),
        ("space_repo_status", {"journal": NotApplicable("")}, "journal"),
        ("space_repo_status", {"command": "task states"}, "command"),
        ("space_repo_status", {"command": NotApplicable("")}, "command"),
        ("space_repo_status", {"input_model": Status}, "input_model"),
        ("space_repo_status", {"cut_fields": ("hits",)}, "cut_fields"),
        ("space_repo_push", {"asks": False}, "asks"),
        ("space_repo_status", {"asks": True}, "asks"),
        ("space_repo_push", {"sends": False}, "sends"),
        ("space_repo_push", {"open_world": False}, "open_world"),
        ("space_repo_commit", {"risk": TOOLS["space_repo_status"].risk}, "read_only"),
        ("space_repo_verify", {"waits": False}, "starts_run"),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_what_a_row_lacks_is_named(name: str, changes: dict[str, Any], place: str) -> None:
    (gap,) = find_gaps(replace(TOOLS[name], **changes))
    assert gap.startswith(f"{name}: {place}: ")


def test_the_approval_policy_knows_every_tool() -> None:
    """`sandbox/policy/approvals.py`: a decision about any other name is a mistake in the file."""
    assert {*TOOL_NAMES} == TOOLS.keys()


def test_a_row_without_journal_word_or_command_is_no_row() -> None:
    given = {name: getattr(TOOLS["space_repo_status"], name) for name in Tool.__match_args__}
    with pytest.raises(TypeError, match="'journal' and 'command'"):
        Tool(**given)


def test_no_two_rows_have_the_same_name_or_command() -> None:
    commands = [tool.command for tool in TOOLS.values() if isinstance(tool.command, str)]
    assert len(commands) == len(set(commands))
    assert len(TOOLS) == len(tools._ROWS)


def test_the_policy_and_the_question_name_only_tools() -> None:
    named = {*POLICY.tools, *question.SENDING, question.CLEANING}
    assert named <= set(TOOLS), f"policies/approvals.toml or workbench/approvals/question.py: {named - set(TOOLS)}"
    assert TOOLS[question.CLEANING].destructive


def test_the_texts_for_agents_name_only_tools() -> None:
    texts = [prompt.TEXT, server.INSTRUCTIONS]
    texts += [
        text for t in TOOLS.values() for text in (t.description, t.cut_hint, str(t.input_model.model_json_schema()))
    ]
    named = {name for text in texts for name in SPACE_NAME.findall(text)}
    assert named <= set(TOOLS), f"texts for agents name what is no tool: {named - set(TOOLS)}"


def test_the_prompt_names_the_tools_that_a_person_approves() -> None:
    assert "{asks}" not in prompt.TEXT
    sentence = prompt.TEXT.partition("A person may have to approve ")[2].partition(".")[0]
    assert sentence.split(", ") == [tool.name for tool in TOOLS.values() if tool.asks]


def test_the_page_about_agents_lists_every_tool_in_the_row_of_its_preset() -> None:
    page = (Path(__file__).parents[3] / "docs" / "agents.md").read_text()
    rows = re.findall(r"^\| `(repo-[a-z]+-tools)`[^|]*\| ([^|]*)\|$", page, re.MULTILINE)
    listed = {preset: set(re.findall(r"`(\w+)`", names)) for preset, names in rows}
    offered = {preset.value: {t.name for t in TOOLS.values() if t.preset is preset} for preset in tools.Preset}
    assert listed == offered
