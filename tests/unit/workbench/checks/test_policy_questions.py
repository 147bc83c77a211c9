"""What the rules in force say of something is what the operation itself would meet."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import PolicyAnswer, Risk
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

OUTCOMES = {
    "src/a.c": "allowed",
    ".github/workflows/ci.yml": "refused",
    "../escape": "refused",
    ".GIT/config": "refused",
    "a.o": "refused",
    "package-lock.json": "flagged",
}


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def by_subject(found: tuple[PolicyAnswer, ...]) -> dict[str, str]:
    return {answer.subject: answer.outcome for answer in found}


def test_a_path_meets_what_is_said(desk: Desk) -> None:
    """The control writes each: exactly what is refused by a rule of paths cannot be written."""
    found = desk.workbench.check_paths(list(OUTCOMES), desk.repo_id)
    assert by_subject(found) == OUTCOMES
    for answer in found:
        try:
            desk.workbench.write_file(desk.task.id, answer.subject, b"x", None)
            written = True
        except SandboxError as error:
            written = error.code is not ErrorCode.UNSAFE_PATH
        assert written == (answer.rule != "paths"), answer
    with refused(ErrorCode.POLICY_VIOLATION) as caught:
        desk.workbench.commit(desk.task.id, "all")
    assert "a.o" in caught.value.details
    assert "src/a.c" not in caught.value.details


def test_a_diff_is_read_as_git_writes_it(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    up = desk.upstream
    up.write(".github/workflows/ci.yml", b"x\n")
    up.write("new.o", b"x\n")
    up.write("f", b"other\n")
    up.git("mv", "d/e/x", "Makefile")
    up.git("add", "-A")
    patch = up.git("diff", "--cached", "-M")

    assert by_subject(desk.workbench.check_patch(patch)) == {
        ".github/workflows/ci.yml": "refused",
        "new.o": "refused",
        "f": "allowed",
        "d/e/x": "allowed",
        "Makefile": "flagged",
    }
    with refused(ErrorCode.PATCH_REJECTED):
        desk.workbench.check_patch(b"no patch\n")


@pytest.mark.parametrize(
    ("url", "outcome"),
    [
        ("https://github.com/owner/name", "allowed"),
        ("http://github.com/owner/name", "refused"),
        ("ext::sh -c id", "refused"),
        ("--upload-pack=x", "refused"),
    ],
)
def test_a_url_meets_what_is_said(desk: Desk, url: str, outcome: str) -> None:
    assert desk.workbench.check_url(url).outcome == outcome


def test_a_tool_meets_what_the_policy_decides_and_the_rule_is_named(desk: Desk) -> None:
    for tool, risk in (("space_repo_push", Risk.FILESYSTEM_WRITE), ("space_repo_status", Risk.FILESYSTEM_READ)):
        words = {"allow": "allowed", "ask": "asked", "deny": "refused"}
        answer = desk.workbench.check_tool(tool, risk)
        assert answer.outcome == words[desk.workbench.approval_decision(tool, risk).value]
    named = desk.workbench.check_tool("space_repo_push", Risk.FILESYSTEM_WRITE)
    assert (named.rule, named.why) == ("tools.space_repo_push", "the policy names this tool")
    other = desk.workbench.check_tool("unknown", Risk.SHELL)
    assert (other.rule, other.why) == ("risk.shell", "its risk is shell")


def test_a_check_above_the_ceiling_is_named(desk: Desk) -> None:
    (desk.home / "profiles").mkdir()
    check = '[[check]]\nid = "big"\nlabel = "big"\nargv = ["true"]\nlimits = { pids = 100000 }\n'
    (desk.home / "profiles" / "generic.toml").write_text(f'label = "x"\nimage = "base"\n{check}')
    command = Command(desk.home)
    ended = command("policy", "check", "--check", desk.repo_id, "big")
    assert ended.code == 3
    assert "ceiling.pids" in ended.stdout
    assert command("policy", "check", "--path", "src/a.c", "--tool", "space_repo_status").code == 0
    assert command("policy", "check").code == 2


def test_differences_name_each_rule_that_is_not_as_shipped_or_as_elsewhere(desk: Desk, tmp_path: Path) -> None:
    assert desk.workbench.policy_differences() == ()
    (desk.home / "config.toml").write_text('[gate]\nrequire = "push"\n')
    (desk.home / "policies").mkdir()
    (desk.home / "policies" / "container.toml").write_text("[ceiling]\npids = 100\n")
    command = Command(desk.home)

    found = {(each["policy"], each["key"]): each for each in command.ok("policy", "diff")["differences"]}

    assert found["settings", "gate.require"]["before"] == "pr-ready"
    assert found["settings", "gate.require"]["now"] == "push"
    assert found["container", "ceiling.pids"]["source"].endswith("policies/container.toml")
    assert len(found) == 2
    same = tmp_path / "same"
    subprocess.run(["cp", "-r", str(desk.home), str(same)], check=True)
    assert command.ok("policy", "diff", str(same))["differences"] == []
