"""Who commits, and what a commit says of its making: real git reads it back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

import sandbox
from devtools.command import Command
from sandbox.errors import ErrorCode
from sandbox.git.trailers import add_trailers
from sandbox.git.user_config import PersonIdentity, find_operator_identity
from sandbox.workbench import Workbench
from tests.unit.agent.test_server import agent_of, ok, talk
from tests.unit.conftest import Upstream, refused, run
from tests.unit.desk import Desk

ALICE, BOB = "Alice Example <alice@example.invalid>", "Bob <bob@example.invalid>"
SANDBOX = "Space Sandbox <sandbox@localhost>"
MADE_WITH = f"Made-with: Space Sandbox {sandbox.__version__}"
CONFIG = "[user]\n\tname = Alice Example\n\temail = alice@example.invalid\n"
BY_CONFIG = {"user.name": "Alice Example", "user.email": "alice@example.invalid"}
NO_SYSTEM = {"GIT_CONFIG_NOSYSTEM": "1"}
BY_ENVIRONMENT = {"GIT_COMMITTER_NAME": "Bob", "GIT_COMMITTER_EMAIL": "bob@example.invalid"}


class Bench:
    """A home with a task that has something to commit."""

    def __init__(self, upstream: Upstream, folder: Path) -> None:
        upstream.write("f", b"one\n")
        upstream.commit()
        self.upstream, self.home = upstream, folder / "home"
        self.gitconfig = folder / "user" / ".gitconfig"
        self.gitconfig.parent.mkdir()

    def commit(
        self, settings: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
    ) -> tuple[str, str, str, str | None]:
        """Author, committer, trailers as `git log` prints them, and the note."""
        surroundings = {**NO_SYSTEM, "PATH": os.environ["PATH"], "HOME": str(self.gitconfig.parent), **(environ or {})}
        with Workbench(self.home, environ=surroundings, settings=settings, allow_file=True) as workbench:
            repo_id = workbench.clone(str(self.upstream.root)).repository.id
            task = workbench.create_task(repo_id)
            workbench.write_file(task.id, "new", b"", None)
            self.snapshot = workbench.snapshot(task.id).commit
            result = workbench.commit(task.id, "A change")
        self.task_id, self.clone = task.id, self.home / "repositories" / "clones" / repo_id
        author, committer, trailers = self.log(result.commit, "%an <%ae>%x00%cn <%ce>%x00%(trailers)").split("\0")
        assert result.author == author
        self.git("fsck", "--strict")
        return author, committer, trailers.strip(), result.note

    def log(self, commit: str, form: str) -> str:
        return self.git("log", "-1", f"--format={form}", commit)

    def git(self, *words: str) -> str:
        return run(["git", f"--git-dir={self.clone}", *words]).decode().strip()


@pytest.fixture
def bench(upstream: Upstream, tmp_path: Path) -> Bench:
    return Bench(upstream, tmp_path)


def test_a_commit_is_by_the_operator_of_the_git_configuration(bench: Bench) -> None:
    bench.gitconfig.write_text(CONFIG)
    assert bench.commit() == (ALICE, ALICE, f"{MADE_WITH}\nSandbox-Task: {bench.task_id}", None)


def test_without_an_identity_the_sandbox_commits_and_says_how_to_have_one(bench: Bench) -> None:
    author, committer, _, note = bench.commit()
    assert (author, committer) == (SANDBOX, SANDBOX)
    assert note is not None
    assert "user.name" in note


def test_half_an_identity_is_none(bench: Bench) -> None:
    bench.gitconfig.write_text("[user]\n\tname = Alice Example\n")
    assert bench.commit()[:2] == (SANDBOX, SANDBOX)


def test_the_repository_does_not_say_who_commits(bench: Bench) -> None:
    """Control: plain git asks it."""
    bench.upstream.git("config", "user.name", "Mallory")
    bench.upstream.git("config", "user.email", "mallory@example.invalid")
    assert b"Mallory" in run(["git", "var", "GIT_AUTHOR_IDENT"], cwd=bench.upstream.root)
    assert bench.commit()[:2] == (SANDBOX, SANDBOX)


def test_the_environment_goes_before_the_configuration(bench: Bench) -> None:
    bench.gitconfig.write_text(CONFIG)
    assert bench.commit(environ=BY_ENVIRONMENT)[:2] == (ALICE, BOB)


AUTHOR = {"name": "Alice Example", "email": "alice@example.invalid"}
PERSON_B = {"name": "Bob", "email": "bob@example.invalid"}
SETTINGS: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "author": ({"author": AUTHOR}, (ALICE, ALICE)),
    "committer": ({"committer": AUTHOR}, (SANDBOX, ALICE)),
    "both": ({"author": AUTHOR, "committer": PERSON_B}, (ALICE, BOB)),
    "a name alone": ({"author": {"name": "Bot"}}, ("Bot <sandbox@localhost>", "Bot <sandbox@localhost>")),
    "headers": (
        {"author": {"name": "h <x>\nauthor evil", "email": "a@b>\ncommitter e <e@v> 0"}},
        ("h xauthor evil <a@bcommitter e e@v 0>", "h xauthor evil <a@bcommitter e e@v 0>"),
    ),
}


@pytest.mark.parametrize(("settings", "expected"), SETTINGS.values(), ids=SETTINGS)
def test_the_settings_say_who_commits(bench: Bench, settings: dict[str, Any], expected: tuple[str, str]) -> None:
    assert bench.commit(settings=settings)[:2] == expected


def test_settings_go_before_the_operator_and_the_author_alone_is_both(bench: Bench) -> None:
    bench.gitconfig.write_text(CONFIG)
    assert bench.commit({"author": PERSON_B}, {"GIT_COMMITTER_NAME": "Carol"})[:2] == (BOB, BOB)
    assert bench.commit(settings={"committer": PERSON_B})[:2] == (ALICE, BOB)


def test_trailers_can_be_left_out(bench: Bench) -> None:
    assert bench.commit(settings={"commit": {"trailer": False}})[2] == ""
    assert bench.log("refs/heads/" + bench.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"), "%B")


def test_a_sign_off_is_the_authors(bench: Bench) -> None:
    """What the DCO's bot compares: https://github.com/dcoapp/app."""
    bench.gitconfig.write_text(CONFIG)
    trailers = bench.commit({"commit": {"sign_off": True}}, BY_ENVIRONMENT)[2]
    assert trailers == f"{MADE_WITH}\nSandbox-Task: {bench.task_id}\nSigned-off-by: {ALICE}"


def test_nobody_signs_off_for_the_sandbox(bench: Bench) -> None:
    with refused(ErrorCode.INVALID_INPUT) as caught:
        bench.commit(settings={"commit": {"sign_off": True}})
    assert "user.name" in caught.value.hint


def test_a_snapshot_names_nobody(bench: Bench) -> None:
    bench.gitconfig.write_text(CONFIG)
    bench.commit()
    assert bench.log(bench.snapshot, "%an <%ae> %cn <%ce> %(trailers)") == (
        f"{SANDBOX} {SANDBOX} Sandbox-Base: {bench.upstream.oid('HEAD')}"
    )


def test_an_agent_commits_as_the_operator(upstream: Upstream, tmp_path: Path) -> None:
    desk = Desk(upstream, tmp_path / "home")
    (Path(os.environ["HOME"]) / ".gitconfig").write_text(CONFIG)
    desk.write("new", b"")

    async def session(client: Client) -> None:
        result = await ok(client, "space_repo_commit", task_id=desk.task.id, message="A change")
        assert result["author"] == ALICE
        log = desk.git("log", "-1", "--format=%an <%ae>|%cn <%ce>|%(trailers)", result["commit"])
        assert log.strip() == f"{ALICE}|{ALICE}|{MADE_WITH}\nSandbox-Task: {desk.task.id}"

    with desk.workbench:
        talk(agent_of(desk), session)


def test_the_command_commits_as_the_operator_and_says_so(upstream: Upstream, tmp_path: Path) -> None:
    desk = Desk(upstream, tmp_path / "home")
    command = Command(desk.home)
    desk.write("new", b"")
    unknown = command("commit", desk.task.id, "-m", "A change")
    (Path(os.environ["HOME"]) / ".gitconfig").write_text(CONFIG)
    desk.write("newer", b"")
    known = command("commit", desk.task.id, "-m", "Another")

    assert (unknown.code, known.code) == (0, 0)
    assert f"by   {SANDBOX}\n" in unknown.stdout
    assert "note: git has no identity" in unknown.stderr
    assert f"by   {ALICE}\n" in known.stdout
    assert "note" not in known.stderr
    assert desk.git("log", "-2", "--format=%an", desk.task.branch).split("\n")[:2] == ["Alice Example", "Space Sandbox"]


@pytest.mark.parametrize(
    ("config", "environ"),
    [
        (BY_CONFIG, {}),
        ({**BY_CONFIG, "author.name": "Other", "committer.email": "c@example.invalid"}, {}),
        (BY_CONFIG, BY_ENVIRONMENT),
        ({"user.name": "Ünï"}, {"EMAIL": "e@example.invalid"}),
        (BY_CONFIG, {"EMAIL": "e@example.invalid", "GIT_AUTHOR_NAME": "Env"}),
    ],
    ids=["user", "roles", "environment", "EMAIL", "a part"],
)
@pytest.mark.parametrize("where", ["home", "xdg", "global"])
def test_the_operator_is_whom_plain_git_names(
    tmp_path: Path, config: dict[str, str], environ: dict[str, str], where: str
) -> None:
    path = tmp_path / {"home": ".gitconfig", "xdg": "git/config", "global": "elsewhere"}[where]
    path.parent.mkdir(exist_ok=True)
    for key, value in config.items():
        run(["git", "config", "--file", str(path), key, value])
    variable = {"home": "HOME", "xdg": "XDG_CONFIG_HOME", "global": "GIT_CONFIG_GLOBAL"}[where]
    surroundings = {**NO_SYSTEM, variable: str(path if where == "global" else tmp_path), **environ}

    found = find_operator_identity(surroundings)

    assert found.author == by_git("AUTHOR", surroundings)
    assert found.committer == by_git("COMMITTER", surroundings)


def by_git(role: str, environ: Mapping[str, str]) -> PersonIdentity:
    argv = ["git", "var", f"GIT_{role}_IDENT"]
    done = subprocess.run(
        argv, env={"PATH": os.environ["PATH"], **environ}, check=True, capture_output=True, timeout=60
    )
    name, _, rest = done.stdout.decode().partition(" <")
    return PersonIdentity(name, rest.partition(">")[0])


def test_a_broken_git_is_no_crash(tmp_path: Path) -> None:
    assert find_operator_identity({}, str(tmp_path / "no-git")).author == PersonIdentity("", "")


MESSAGES = {
    "subject": "A change\n",
    "subject like a trailer": "fix: a change\n",
    "subject and body": "A change\n\nWhy it was made.\n",
    "trailers": "A change\n\nWhy.\n\nReviewed-by: R <r@example.invalid>\n",
    "ours already": "A change\n\nX: 1\n",
    "sign-off among words": "A change\n\nsome words\nSigned-off-by: S <s@example.invalid>\n",
    "a trailer among words": "A change\n\nsome words\nNote: this is one\n",
    "continued": "A change\n\nNote: this is\n  continued\n",
    "only trailers": "Note: one\nOther: two\n",
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_trailers_stand_where_git_would_put_them(message: str) -> None:
    argv = ["git", "-c", "trailer.ifexists=addIfDifferent", "interpret-trailers", "--no-divider"]
    by_plain_git = run([*argv, "--trailer", "X: 1", "--trailer", "Y: 2"], stdin=message.encode()).decode()
    assert add_trailers(message, ["X: 1", "Y: 2"]) == by_plain_git


def test_a_repeated_message_gets_no_second_sign_off() -> None:
    once = add_trailers("A change\n", ["Signed-off-by: A <a@b>"])
    assert add_trailers(once, ["Signed-off-by: A <a@b>"]) == once


@pytest.fixture(autouse=True)
def no_identity_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither git here nor the one of the product looks at the system's configuration."""
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
