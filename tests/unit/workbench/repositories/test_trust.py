"""Checks that a repository suggests exist only once the operator has trusted exactly their file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.command import Command
from sandbox.errors import ErrorCode
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, refused
from tests.unit.desk import Desk

FILE = ".sandbox/checks.toml"
LINT = b'[[check]]\nid = "lint"\nlabel = "look at it"\nargv = ["sh", "-c", "exit 0"]\ncwd = "."\n'
OTHER = LINT.replace(b"exit 0", b"exit 1")


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    upstream.write(FILE, LINT)
    desk = Desk(upstream, tmp_path / "sandbox-home")
    with desk.workbench:
        yield desk


def ids(desk: Desk, owner: str | None = None) -> list[str]:
    return [c.id for c in desk.workbench.checks(owner or desk.repo_id)]


def trusted(desk: Desk) -> str:
    found = desk.workbench.suggestion(desk.repo_id)
    assert found.sha256 is not None
    desk.workbench.trust(desk.repo_id, found.sha256, by="a person")
    return found.sha256


def test_a_suggestion_is_shown_and_not_used(desk: Desk) -> None:
    found = desk.workbench.suggestion(desk.repo_id)
    assert ([c.id for c in found.checks], found.trusted, found.profile) == (["lint"], False, "generic")
    assert ids(desk) == ids(desk, desk.task.id) == []


def test_what_was_looked_at_is_used_once_trusted(desk: Desk) -> None:
    trusted(desk)
    assert ids(desk) == ids(desk, desk.task.id) == ["lint"]
    with Workbench(desk.home, environ={}) as other:
        assert [c.id for c in other.checks(desk.repo_id)] == ["lint"]


def test_another_file_than_the_one_looked_at_is_not_trusted(desk: Desk) -> None:
    with refused(ErrorCode.STALE_HASH):
        desk.workbench.trust(desk.repo_id, "sha256:" + "0" * 64, by="a person")
    assert ids(desk) == []


def test_the_beginning_of_a_hash_is_answered_with_the_whole(desk: Desk) -> None:
    sha256 = desk.workbench.suggestion(desk.repo_id).sha256
    assert sha256 is not None
    with refused(ErrorCode.INVALID_INPUT) as caught:
        desk.workbench.trust(desk.repo_id, sha256[:20], by="a person")
    assert sha256 in caught.value.hint
    assert ids(desk) == []


def test_a_later_commit_with_another_file_suggests_and_decides_nothing(desk: Desk) -> None:
    trusted(desk)
    desk.upstream.write(FILE, OTHER)
    desk.upstream.commit()
    desk.workbench.clone(str(desk.upstream.root))
    assert not desk.workbench.suggestion(desk.repo_id).trusted
    assert ids(desk) == []
    assert ids(desk, desk.task.id) == ["lint"], "its base commit is the one that was looked at"


def test_what_a_guest_or_an_edit_writes_there_decides_nothing(desk: Desk) -> None:
    trusted(desk)
    desk.write(FILE, OTHER)
    assert [c.argv for c in desk.workbench.checks(desk.task.id)] == [("sh", "-c", "exit 0")]
    desk.workbench.commit(desk.task.id, "mine")
    assert [c.argv for c in desk.workbench.checks(desk.task.id)] == [("sh", "-c", "exit 0")]


def test_trust_is_taken_back(desk: Desk) -> None:
    trusted(desk)
    assert not desk.workbench.distrust(desk.repo_id).trusted
    assert ids(desk) == ids(desk, desk.task.id) == []


def test_trust_that_cannot_be_taken_back_is_no_silence(desk: Desk) -> None:
    """Control: `test_trust_is_taken_back`. A directory is what unlink refuses to root as well."""
    trusted(desk)
    (desk.home / "repositories" / "trust" / desk.repo_id / "stays").mkdir()
    with refused(ErrorCode.INTERNAL) as found:
        desk.workbench.distrust(desk.repo_id)
    assert str(desk.home) in found.value.hint


def test_trust_goes_with_the_repository(desk: Desk) -> None:
    trusted(desk)
    desk.workbench.close_task(desk.task.id, delete_worktree=True)
    desk.workbench.remove_repository(desk.repo_id)
    desk.workbench.clone(str(desk.upstream.root))
    assert ids(desk) == []


@pytest.mark.parametrize(
    "content",
    [b"not toml", b"\xff", b"[[check]]\nid = 'x'\n", b"image = 'mine'\n", LINT + LINT,
     LINT + b"requires = ['absent']\n", LINT.replace(b'"sh", "-c", "exit 0"', b"")],
    ids=["text", "bytes", "incomplete", "more than checks", "twice", "requires", "no command"],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_named(upstream: Upstream, tmp_path: Path, content: bytes) -> None:
    upstream.write(FILE, content)
    upstream.commit()
    with Workbench(tmp_path / "home", environ={}, allow_file=True) as workbench:
        repo_id = workbench.clone(str(upstream.root)).repository.id
        with refused(ErrorCode.INVALID_INPUT) as found:
            workbench.suggestion(repo_id)
        assert FILE in found.value.brief
        assert workbench.checks(repo_id) == ()


def test_a_check_of_the_profile_is_not_replaced(upstream: Upstream, tmp_path: Path) -> None:
    upstream.write("Makefile", b"test:\n\ttrue\n")
    upstream.write(FILE, LINT.replace(b'"lint"', b'"test"'))
    upstream.commit()
    with Workbench(tmp_path / "home", environ={}, allow_file=True) as workbench:
        repo_id = workbench.clone(str(upstream.root)).repository.id
        with refused(ErrorCode.INVALID_INPUT) as found:
            workbench.suggestion(repo_id)
        assert "already has test" in found.value.details


def test_a_link_in_its_place_is_no_suggestion(upstream: Upstream, tmp_path: Path) -> None:
    upstream.write("f", LINT)
    (upstream.root / ".sandbox").mkdir()
    (upstream.root / FILE).symlink_to("../f")
    upstream.commit()
    with Workbench(tmp_path / "home", environ={}, allow_file=True) as workbench:
        assert workbench.suggestion(workbench.clone(str(upstream.root)).repository.id).sha256 is None


def test_an_edit_of_it_is_flagged(desk: Desk) -> None:
    desk.write(FILE, OTHER)
    desk.workbench.commit(desk.task.id, "m")
    call = desk.workbench.approval_call("space_repo_push", {"task_id": desk.task.id})
    assert any("RISK" in line and FILE in line for line in desk.workbench.request_approval(call).question)


@pytest.mark.slow
def test_at_the_command_line(desk: Desk) -> None:
    sandbox = Command(desk.home)
    shown = sandbox("trust", desk.repo_id)
    assert shown.code == 0
    assert "sh -c 'exit 0'" in shown.stdout
    assert "not used" in shown.stdout
    sha256 = sandbox.ok("trust", desk.repo_id)["suggestion"]["sha256"]
    assert sandbox.ok("trust", desk.repo_id, "--hash", sha256)["suggestion"]["trusted"]
    assert [c["id"] for c in sandbox.ok("check", "list", desk.repo_id)["checks"]] == ["lint"]
    assert not sandbox.ok("trust", desk.repo_id, "--revoke")["suggestion"]["trusted"]
    wrong = sandbox("trust", desk.repo_id, "--hash", "sha256:" + "1" * 64, "--json")
    assert (wrong.code, wrong.error["code"]) == (4, "stale_hash")
