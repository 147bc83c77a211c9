"""What a tool accepts, and what its answer to wrong arguments says. Its reader is a model: it cannot list the tools."""

from __future__ import annotations

import difflib
from typing import Any
from unittest.mock import MagicMock

import pytest

from sandbox.agent.inputs import MOST_TASKS
from sandbox.agent.schemas import input_schema
from sandbox.agent.tool_arguments import find_beginnings, leave_out_empty, validate_arguments
from sandbox.agent.tools import TOOLS
from sandbox.errors import SandboxError

TASK = "task-00000000-0000-0000-0000-000000000000"
HASH = f"sha256:{'0' * 64}"
LISTS = [
    (tool.name, name)
    for tool in TOOLS.values()
    for name, schema in input_schema(tool.input_model)["properties"].items()
    if schema.get("type") == "array"
]
JARGON = ("Input should", "Extra inputs", "Field required", "tuple", "dictionary", "pattern '^", "tools/list")


def explain(tool: str, **arguments: Any) -> SandboxError:
    with pytest.raises(SandboxError) as caught:
        validate_arguments(TOOLS[tool], arguments)
    said = caught.value.details + caught.value.hint
    assert not [word for word in JARGON if word in said]
    return caught.value


@pytest.mark.parametrize(("tool", "name"), LISTS, ids=[f"{tool}-{name}" for tool, name in LISTS])
def test_a_list_of_json_is_accepted_where_the_schema_says_array(tool: str, name: str) -> None:
    """Strict validation in Python takes no list for a tuple; what is missing beside it is not about the list."""
    with pytest.raises(SandboxError) as caught:
        validate_arguments(TOOLS[tool], {name: [], "other": 1})
    assert name not in [line.partition(":")[0] for line in caught.value.details.splitlines()]


def test_the_lists_were_found() -> None:
    assert ("space_repo_run_check", "arguments") in LISTS
    assert len(LISTS) > 4


@pytest.mark.parametrize(
    ("tool", "arguments", "line"),
    [
        ("space_repo_run_check", {"check_id": ["test"]}, "check_id: should be a string, not a list."),
        ("space_repo_run_check", {"arguments": "-k x"}, "arguments: should be a list, not a string."),
        ("space_repo_run_check", {"arguments": [1]}, "arguments.0: should be a string, not a number."),
        ("space_repo_run_check", {"wait_s": 5000}, "wait_s: should be less than or equal to 3600"),
        ("space_repo_run_check", {}, "check_id: is missing. From space_repo_list_checks."),
        ("space_repo_run_check", {"task_id": "calc"}, "task_id: should be the id of a task, from"),
        ("space_repo_create_task", {"repo_id": "A B"}, "repo_id: should be the id of a repository, from"),
        ("space_repo_read_file", {"start_line": "1"}, "start_line: should be an integer, not a string."),
        ("space_repo_read_file", {"path": None}, "path: should be a string, not null."),
        ("space_repo_edit_file", {"expected_sha256": "0" * 64}, "expected_sha256: should be sha256: and 64 hex digits"),
        ("space_repo_write_file", {}, "expected_sha256: is missing. As read, or"),
        ("space_repo_apply_patch", {"expected_hashes": {"a": "x"}}, "expected_hashes.a: should be sha256: and"),
        ("space_repo_apply_patch", {"expected_hashes": "x"}, "expected_hashes: should be an object, not a string."),
        ("space_repo_close_task", {"discard": "yes"}, "discard: should be true or false, not a string."),
        ("space_repo_diff", {"against": "main"}, "against: should be 'base' or 'head'."),
        ("space_repo_read_log", {"stream": "all"}, "stream: should be stdout, stderr or service-NAME"),
    ],
)
def test_each_wrong_argument_says_what_it_should_be(tool: str, arguments: dict[str, Any], line: str) -> None:
    found = [said for said in explain(tool, **arguments).details.splitlines() if said.startswith(line.split(":")[0])]
    assert len(found) == 1
    assert found[0].startswith(line)


def test_the_hint_lists_what_the_tool_takes() -> None:
    assert explain("space_repo_clone", repo="x").hint == "space_repo_clone takes url."
    hint = explain("space_repo_run_check", check_id="x").hint
    assert hint == "space_repo_run_check takes task_id, check_id; optional: arguments, wait_s."
    assert explain("space_repo_list", x=1).hint == "space_repo_list takes no arguments."


def test_an_unknown_argument_names_the_one_that_may_be_meant() -> None:
    error = explain("space_repo_edit_file", old_text="a", new="b", news="c", zzz=1, sha256=HASH)
    lines = {line.partition(":")[0]: line for line in error.details.splitlines()}
    assert lines["old_text"].endswith("there is no such argument; did you mean old?")
    assert lines["sha256"].endswith("; did you mean expected_sha256?")
    assert "did you mean" not in lines["zzz"] + lines["news"] + lines["path"], "`new` was given"
    assert (
        "old_string: there is no such argument; did you mean old?"
        in explain("space_repo_edit_file", old_string="a", new_string="b").details
    ), "half of the word is the same"


def test_a_long_name_of_an_argument_is_cut_before_it_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compare = MagicMock(return_value=[])
    monkeypatch.setattr(difflib, "get_close_matches", compare)
    error = explain("space_repo_edit_file", **{"x" * 10**6: 1})
    assert [len(call.args[0]) for call in compare.call_args_list] == [100]
    assert f"{'x' * 100}: there is no such argument" in error.details


def test_no_value_is_repeated() -> None:
    error = explain("space_repo_edit_file", task_id="s3cret", old=["s3cret"], expected_sha256="s3cret")
    assert "s3cret" not in error.details + error.brief + error.hint


def test_only_ids_that_the_tool_takes_and_only_few_are_looked_for() -> None:
    """Each that may be a beginning costs a look at names of files; a request sets how many there are."""
    explore, verify = TOOLS["space_repo_explore"], TOOLS["space_repo_verify"]
    ids = [f"{number:04x}" for number in range(MOST_TASKS)]
    assert find_beginnings(explore, {"task_id": "task-abcd", "task_ids": ids}) == {"task-abcd", *ids}
    assert find_beginnings(explore, {"task_ids": [*ids, "ffff"]}) == frozenset()
    assert find_beginnings(verify, {"task_id": "abcd", "task_ids": ids}) == {"abcd"}
    assert find_beginnings(verify, {"against": "task-abcd"}) == {"task-abcd"}
    assert find_beginnings(verify, {"against": "abcd"}) == frozenset(), "it may be a commit"
    assert find_beginnings(None, {"task_id": "abcd"}) == find_beginnings(verify, {"task_id": ["abcd"]}) == frozenset()
    with pytest.raises(SandboxError, match="does not accept"):
        validate_arguments(explore, {"task_id": TASK, "task_ids": [TASK] * (MOST_TASKS + 1)})


@pytest.mark.parametrize(
    ("tool", "name", "is_left_out"),
    [
        ("space_repo_sync", "onto", True),
        ("space_repo_list_checks", "task_id", True),
        ("space_repo_sync", "task_id", False),  # required
        ("space_repo_verify", "against", False),
        ("space_repo_create_task", "ref", False),
        ("space_repo_create_task", "profile", False),
        ("space_repo_fork_task", "prompt", False),
        ("space_repo_open_pr", "body", False),
    ],
)
def test_an_optional_argument_that_a_model_filled_with_an_empty_text_is_left_out(
    tool: str, name: str, is_left_out: bool
) -> None:
    """Not a text that may be empty, nor what chooses what is verified. Control: a value stays."""
    assert leave_out_empty(TOOLS[tool], {name: "", "other": ""}) == {"other": ""} | ({} if is_left_out else {name: ""})
    assert leave_out_empty(TOOLS[tool], {name: "x"}) == {name: "x"}
