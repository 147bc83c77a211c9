"""Snapshot, restore, fork and log from the command line, with a real server that must never see a snapshot."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from devtools.command import Command
from devtools.gitserver import GitServer

pytestmark = pytest.mark.xdist_group("gitserver")


@pytest.fixture
def project(git_server: GitServer, tmp_path: Path) -> str:
    name = f"states-{uuid.uuid4().hex[:8]}"
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "f").write_text("one\n")
    git_server.seed("acme", name, folder)
    return name


def all_refs(git_server: GitServer, name: str) -> list[str]:
    """What anybody can list there, asked by plain git over https."""
    out = git_server.client().run("ls-remote", git_server.https_url("acme", name))
    return sorted(line.split("\t")[1] for line in out.splitlines())


def test_states_are_kept_restored_forked_and_never_pushed(
    sandbox: Command, git_server: GitServer, project: str
) -> None:
    repository = sandbox.ok("repo", "clone", git_server.https_url("acme", project))["repository"]
    task = sandbox.ok("task", "create", repository["id"])["task"]
    file = Path(task["worktree_path"]) / "f"

    file.write_text("a draft\n")
    taken = sandbox.ok("task", "snapshot", task["id"], "--label", "draft")
    assert (taken["label"], taken["rejected"]) == ("draft", [])
    file.write_text("final\n")
    restored = sandbox.ok("task", "restore", task["id"], taken["id"])
    assert (restored["tree"], restored["dirty"]) == (taken["tree"], True)
    assert file.read_text() == "a draft\n"
    sandbox.ok("task", "restore", task["id"], restored["previous"]["id"])
    assert file.read_text() == "final\n"

    fork = sandbox.ok("task", "fork", task["id"], "--snapshot", taken["id"], "--prompt", "Another way")["task"]
    assert (fork["forked_from"], fork["prompt"]) == (task["id"], "Another way")
    assert (Path(fork["worktree_path"]) / "f").read_text() == "a draft\n"

    words = ("task", "create", repository["id"], "--from-snapshot", taken["id"])
    assert sandbox.ok(*words)["task"]["forked_from"] == task["id"]
    assert sandbox(*words, "--base", "main", "--json").error["code"] == "invalid_input"

    (file.parent / "x.o").write_bytes(b"o")
    refused = sandbox("commit", task["id"], "-m", "Final", "--json")
    assert (refused.code, refused.error["code"]) == (3, "policy_violation")
    assert "x.o" in refused.error["details"]
    (file.parent / "x.o").unlink()
    sandbox.ok("commit", task["id"], "-m", "Final")
    sandbox.ok("push", task["id"])
    sandbox.ok("commit", fork["id"], "-m", "Draft")
    sandbox.ok("push", fork["id"])

    pushed = [f"refs/heads/{branch}" for branch in ("main", task["branch"], fork["branch"])]
    assert all_refs(git_server, project) == sorted(["HEAD", *pushed])
    listed = [s["label"] for s in sandbox.ok("task", "snapshots", task["id"])["snapshots"]]
    assert listed == ["draft", "before a restore"]  # the draft was kept already when the second restore left it
    log = sandbox.ok("task", "log", task["id"])["entries"]
    assert [(e["operation"], e["result"], e["actor"]) for e in log] == [
        ("create", "ok", "cli"), ("snapshot", "ok", "cli"), ("restore", "ok", "cli"), ("restore", "ok", "cli"),
        ("fork", "ok", "cli"), ("commit", "policy_violation", "cli"), ("commit", "ok", "cli"), ("push", "ok", "cli"),
    ]  # fmt: skip


def test_words_for_people(sandbox: Command, git_server: GitServer, project: str) -> None:
    repository = sandbox.ok("repo", "clone", git_server.https_url("acme", project))["repository"]
    task = sandbox.ok("task", "create", repository["id"])["task"]["id"]
    assert "snap-" in sandbox("task", "snapshot", task, "--label", "one\x1b[31m").stdout
    assert "\x1b" not in sandbox("task", "snapshots", task).stdout
    assert "uncommitted" in sandbox("task", "restore", task, "head").stdout
    assert "fork of" in sandbox("task", "fork", task).stdout
    shown = sandbox("task", "log", task).stdout
    assert [line.split()[3] for line in shown.splitlines()[1:]] == ["create", "snapshot", "restore", "fork"]
    unknown = sandbox("task", "restore", task, "snap-nothing", "--json")
    assert (unknown.code, unknown.error["code"]) == (2, "not_found")
