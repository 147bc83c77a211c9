"""Hints for an agent name tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox.agent.shown_results import show_error
from sandbox.agent.tool_hints import _TOOLS as NAMED
from sandbox.agent.tool_hints import replace_commands
from sandbox.agent.tools import TOOLS
from sandbox.edits.patch_paths import UngatedError
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.commit import AddedFile, CommitPolicy, require_sources
from sandbox.store.home import Home
from sandbox.store.records import find_task


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        ("`sandbox repo list` shows all; `sandbox repo clone URL` adds one.",
         "`space_repo_list` shows all; `space_repo_clone` adds one."),
        ("List paths: `sandbox file search task-1 --glob 'src/*'`.", "List paths: `space_repo_search`."),
        ("`sandbox task clean TASK --without PATH` removes one.",
         "`space_repo_clean` (`without`: [PATH]) removes one."),
        ("`sandbox task sync task-1 --onto BRANCH` merges.", "`space_repo_sync` (`onto`: BRANCH) merges."),
        ("`sandbox task close TASK --delete`", "`space_repo_close_task` (`delete_worktree`: true)"),
        ("`sandbox task apply TASK --ref main`", "`sandbox task apply TASK --ref main`"),
        ("`sandbox pr open TASK --ref main`", "`space_repo_open_pr`"),
        ("sandbox pr open task-1", "space_repo_open_pr task-1"),
        ("sandbox verify task-1", "space_repo_verify task-1"),
        ("`sandbox verify task-1 --against base` compares.", "`space_repo_verify` (`against`: base) compares."),
        ("`sandbox verify task-1 --no-cache` runs them here.", "`sandbox verify task-1 --no-cache` runs them here."),
        ("`sandbox task snapshots task-1` shows all", "`space_repo_list_snapshots` shows all"),
        ("`sandbox task clean TASK --discard` loses all", "`sandbox task clean TASK --discard` loses all"),
        ("They run: sandbox approvals approve apr-1.", "They run: sandbox approvals approve apr-1."),
        ("Wait for it, or run `sandbox check stop task-1`.", "Wait for it, or run `sandbox check stop task-1`."),
        ("Or run `sandbox check stop run-1`.", "Or run `space_repo_stop_run`."),
        ("A result names its run; `sandbox check runs TASK` lists all.", "A result names its run."),
        ("`sandbox gc` removes what is left.", "`sandbox gc` removes what is left."),
        ("Commit them, or repeat with --discard.", "Commit them, or repeat with `discard`."),
        ("Close the task with --delete --discard.", "Close the task with `delete_worktree` `discard`."),
        ("Repeat it: sandbox repo remove X --discard", "Repeat it: sandbox repo remove X --discard"),
        ("name another one with --reference", "name another one with --reference"),
    ],
)  # fmt: skip
def test_a_command_that_has_a_tool_is_told_as_the_tool(hint: str, told: str) -> None:
    assert replace_commands(hint) == told


def test_a_hint_about_approvals_has_no_path_of_this_host(tmp_path: Path) -> None:
    home = tmp_path / "home"
    hint = f"They run: sandbox approvals approve apr-1. See {home}/x."
    error = SandboxError(ErrorCode.APPROVAL_REQUIRED, "A person has to approve it", details=f"in {home}", hint=hint)
    shown = json.loads(show_error(error, home))["error"]
    assert shown["hint"] == "They run: sandbox approvals approve apr-1. See $SANDBOX_HOME/x."
    assert shown["details"] == "in $SANDBOX_HOME"


def test_no_hint_to_an_agent_names_an_option_that_its_tool_has_not(tmp_path: Path) -> None:
    with pytest.raises(SandboxError) as caught:
        find_task(Home(tmp_path), "zzz")
    assert "`space_repo_list_tasks` shows tasks, also closed ones" in replace_commands(caught.value.hint)
    assert "A tool takes it in `expected_hashes`" in replace_commands(UngatedError(["f"]).hint)


def test_each_is_a_tool() -> None:
    assert set(NAMED.values()) <= set(TOOLS)


def test_the_refusal_of_what_looks_built_names_the_argument_that_removes_it() -> None:
    with pytest.raises(SandboxError) as caught:
        require_sources([AddedFile("a.o", 1, b"x")], (), CommitPolicy(suffixes=(".o",)), 1000)
    assert "`space_repo_clean` (`without`: [PATH]) removes one." in replace_commands(caught.value.hint)
