"""The rule that allows a push by its diff: how it is written, and which names a path has."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.config import find_resources
from sandbox.errors import ErrorCode
from sandbox.models import Risk
from sandbox.policy.approvals import ApprovalPolicy, Decision, DiffRule, load_approval_policy
from sandbox.workbench import Workbench
from sandbox.workbench.controller.policies_in_force import Policies
from sandbox.workbench.delivery.diff_rule import list_other_names, resolve_links
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

SHIPPED = find_resources("policies") / "approvals.toml"
PUSH = "space_repo_push"


def test_as_shipped_no_push_is_allowed_by_its_diff() -> None:
    policy = load_approval_policy(SHIPPED, Path("/nonexistent"))
    assert policy.when is None
    assert policy.decide(PUSH, Risk.FILESYSTEM_WRITE) is Decision.ASK


def test_a_policy_without_the_rule_has_the_version_it_had_before_there_was_one() -> None:
    """Else each approval in force would be void after an upgrade."""
    assert '"when"' not in ApprovalPolicy().model_dump_json(exclude_none=True)
    assert ApprovalPolicy(when=DiffRule(flags=("ci",))).version != ApprovalPolicy().version


@pytest.mark.parametrize(
    "text",
    ['flags = ["cl"]', "flags = []", 'flags = ["ci"]\ntools = ["space_repo_clone"]', 'flags = ["ci"]\nverfied = false'],
    ids=["unknown flag", "no flag", "tool that sends nothing", "typo"],
)
def test_a_rule_with_a_mistake_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "approvals.toml").write_text(f"[when]\n{text}\n")
    with refused(ErrorCode.POLICY_VIOLATION):
        Policies(tmp_path).approvals  # noqa: B018 - it is loaded at its first use


def test_a_group_stands_for_its_rules() -> None:
    assert DiffRule(flags=("ci", "policy")).rules == {"ci", "git-control", "review", "agents", "sandbox"}


def test_a_path_has_the_names_that_links_give_it() -> None:
    links = {(".ci",): ("parts",), ("a", "b"): (".ci", "x"), ("self",): ()}
    names = list_other_names(("parts", "x", "y"), links)
    direct = {(".ci", "x", "y"), ("a", "b", "y")}
    assert names == {*direct, *(("self", *name) for name in (*direct, ("parts", "x", "y")))}
    assert list_other_names(("other",), {(".ci",): ("parts",)}) == set()


def test_links_are_followed_before_the_directory_above_is_taken() -> None:
    """`x` leads to deep/f, as for the kernel; by its words alone it would lead to f."""
    links = {
        ("sub",): b"deep/er",
        ("other", "x"): b"../sub/../f",
        ("a", "up"): b"./..//.ci/",
        ("out",): b"a/../../f",
        ("host",): b"/etc",
        ("one",): b"two/f",
        ("two",): b"one/f",
    }
    assert resolve_links(links) == {("sub",): ("deep", "er"), ("other", "x"): ("deep", "f"), ("a", "up"): (".ci",)}
    assert list_other_names(("deep", "f"), resolve_links(links)) == {("other", "x")}


def test_the_policy_without_the_rule_can_be_shown(tmp_path: Path) -> None:
    with Workbench(tmp_path / "home", environ={}) as workbench:
        rules = [rule.key for rule in workbench.policy("approvals")]
    assert "expires_s" in rules
    assert not [key for key in rules if key.startswith("when")]


def test_an_unverified_tree_needs_a_person_unless_the_rule_says_otherwise(upstream: Upstream, tmp_path: Path) -> None:
    own = tmp_path / "home" / "policies" / "approvals.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[when]\nflags = ["ci"]\n')
    desk = Desk(upstream, tmp_path / "home")
    with desk.workbench as workbench:
        desk.write("f", b"changed\n")
        workbench.commit(desk.task.id, "m")
        call = workbench.approval_call(PUSH, {"task_id": desk.task.id})
        assert not workbench.is_allowed_by_diff(call)
        rules = {rule.key: (rule.value, rule.origin) for rule in workbench.policy("approvals")}
        assert rules["when.flags"] == (("ci",), "operator")
    own.write_text('[when]\nflags = ["ci"]\nverified = false\n')
    with Workbench(desk.home, environ={}) as workbench:
        assert workbench.is_allowed_by_diff(workbench.approval_call(PUSH, {"task_id": desk.task.id}))
