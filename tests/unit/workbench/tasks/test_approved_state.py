"""Approved states, also those that a program or a caller of a cluster made up."""

from __future__ import annotations

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench.tasks.approved_state import Facts, describe_changes, join_state, require_approved_state
from tests.unit.conftest import refused

HEAD = "a" * 40
FACTS: Facts = {"remote": None, "branch": "\u00e4" * 2000, "base_branch": "\U0001f600" * 1000, "verified": True}


def require(approved: str | None, now: Facts = FACTS) -> None:
    require_approved_state("commit", HEAD, approved, lambda _: now)


@pytest.mark.parametrize(
    "text",
    ["{", "null", '["a"]', '"a"', "1", "{}{}", '{"a":1}', '{"a":{"b":"c"}}', '{"a":[]}', '{"a b":"c"}', '{"":""}',
     "[" * 60_000, '{"a":' * 9_000, '{"a":"' + "b" * 65_536 + '"}', "1" * 5_000, "\ud800", '{"' + "n" * 65 + '":null}',
     join_state("", {f"f{i}": None for i in range(33)}).lstrip()],
    ids=range(18),
)  # fmt: skip
def test_n10_a_malformed_state_is_refused_with_a_type(text: str) -> None:
    """Callers catch errors of ours only: a worker of a cluster would lose the operation."""
    with pytest.raises(SandboxError) as caught:
        require(f"{HEAD} {text}")
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert caught.value.hint
    assert len(caught.value.details) < 1000


def test_n10_facts_without_an_id_are_no_state_of_a_task() -> None:
    with pytest.raises(SandboxError) as caught:
        require(join_state("", {"profile_choice": "x"}), {"profile_choice": "x"})
    assert caught.value.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("approved", [None, "", HEAD, f"{HEAD} ", f"{HEAD} {{}}", join_state(HEAD, FACTS)])
def test_n10_a_state_of_ours_and_an_id_alone_are_compared(approved: str | None) -> None:
    require(approved)


def test_n10_a_changed_fact_is_named() -> None:
    with pytest.raises(SandboxError, match="What was approved has changed: verified") as caught:
        require(join_state(HEAD, FACTS), {**FACTS, "verified": False})
    assert caught.value.code is ErrorCode.CONFLICT


@pytest.mark.parametrize("facts", [FACTS, {}], ids=["with facts", "of an earlier version"])
def test_n10_a_digest_of_content_is_compared_where_an_operation_has_one(facts: Facts) -> None:
    """Control: with the same digest the operation acts."""
    approved = join_state(HEAD, facts, "sha256:seen") if facts else f"{HEAD} sha256:seen"
    require_approved_state("commit", HEAD, approved, lambda _: FACTS, lambda: "sha256:seen")
    with pytest.raises(SandboxError, match="content of the paths to delete") as caught:
        require_approved_state("commit", HEAD, approved, lambda _: FACTS, lambda: "sha256:other")
    assert caught.value.code is ErrorCode.CONFLICT
    with pytest.raises(SandboxError) as caught:
        require(approved)
    assert caught.value.code is ErrorCode.INVALID_INPUT


def test_what_differs_between_two_states_is_said_for_each_fact() -> None:
    one, other = join_state(HEAD, FACTS), join_state(HEAD, {**FACTS, "verified": False, "remote": "https://h/r"})
    assert describe_changes(one, one) == ()
    assert describe_changes(one, other) == (
        "remote: asked about none, now 'https://h/r'",
        "verified: asked about True, now False",
    )
    assert describe_changes(one, one.replace(HEAD, "b" * 40)) == (
        f"commit or tree: asked about {HEAD!r}, now {'b' * 40!r}",
    )
    assert describe_changes(f"{HEAD} sha256:a {{}}", f"{HEAD} sha256:b {{}}") == ("content of the paths to delete",)


def test_a_digest_and_what_an_earlier_version_did_not_ask_about_are_said_in_words() -> None:
    """A person cannot read a digest, and None is a word of Python."""
    digests: dict[str, str | bool | None] = {"prompt": "3f" * 32, "comparison": None, "profile_choice": "3f" * 32}
    before, now = join_state(HEAD, {**FACTS, **digests}), {**FACTS, "prompt": "4a" * 32, "comparison": "4a" * 32}
    changes = [
        *describe_changes(before, join_state(HEAD, now)),
        *describe_changes(join_state(HEAD, FACTS), join_state(HEAD, {**FACTS, **digests})),
    ]
    with refused(ErrorCode.CONFLICT) as caught:
        require(before, now)
    text = "\n".join([*changes, caught.value.details])
    assert not [word for word in ("None", "3f3f", "4a4a") if word in text]
    assert "prompt: the text of the task's prompt is not the one that was asked about" in changes
    assert "prompt: not asked about by an earlier version (the text of the task's prompt)" in changes


def test_a_commit_is_said_once_if_it_is_a_fact_too() -> None:
    states = [join_state(commit * 40, {"head_commit": commit * 40}) for commit in "ab"]
    assert [line.split(":")[0] for line in describe_changes(*states)] == ["head_commit"]


@pytest.mark.parametrize("asked", ["", "{", f"{HEAD} {{"], ids=["of an earlier version", "no state", "torn"])
def test_states_that_cannot_be_compared_differ(asked: str) -> None:
    assert describe_changes(asked, join_state(HEAD, FACTS))
