"""The main job and every step of it: the real command, real git servers, the real engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import docker
import docker.errors
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from devtools.command import Command
from devtools.gitserver import GitServer
from devtools.guests import remove_guests_of
from devtools.home_files import list_home_files
from devtools.host_speed import slowness
from sandbox.store.home import Home

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("gitserver")

MAKEFILE = "all: answer\nanswer: answer.c\n\tcc -o answer answer.c\ntest: answer\n\t./answer | grep -qx 42\n"
ANSWER = '#include <stdio.h>\nint main(void) { printf("%d\\n", 42); return 0; }\n'
WRONG = ANSWER.replace("42", "41")
Url = Callable[[str], str]


def patch_of(before: str, after: str) -> str:
    """A unified diff that turns the middle line of answer.c into another."""
    old, new = before.splitlines()[1], after.splitlines()[1]
    return f"--- a/answer.c\n+++ b/answer.c\n@@ -1,2 +1,2 @@\n #include <stdio.h>\n-{old}\n+{new}\n"


@pytest.fixture
def project(git_server: GitServer, tmp_path: Path) -> str:
    """A C project with a passing test, on the server under a name of its own."""
    name = f"answer-{uuid.uuid4().hex[:8]}"
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "answer.c").write_text(ANSWER)
    (folder / ".gitignore").write_text("/answer\n")
    git_server.seed("acme", name, folder)
    return name


@pytest.fixture(params=["https", "ssh"])
def url(request: pytest.FixtureRequest, git_server: GitServer, project: str) -> str:
    if request.param == "ssh":
        request.getfixturevalue("ssh_client")
        return git_server.ssh_url("acme", project)
    return git_server.https_url("acme", project)


@pytest.fixture(autouse=True)
def nothing_left_behind(tmp_path: Path) -> Iterator[None]:
    """No container of this test's home outlives it but those of its tasks, and no clean room."""
    yield
    home = tmp_path / "home"
    remove_guests_of(home)
    instance = home / "instance"
    if instance.exists():
        engine = docker.from_env()
        label = f"space.sandbox.instance={Home(home).instance_id}"
        assert engine.containers.list(all=True, filters={"label": label}) == []
        engine.close()
    assert list((home / "repositories" / "rooms").glob("*")) == []


def test_run_verifies_a_remote_and_exits_0(sandbox: Command, url: str) -> None:
    summary = sandbox.ok("run", url)

    assert summary["verified"] is True
    assert summary["profile"] == "make"
    assert [(r["check_id"], r["verdict"], r["clean_room"]) for r in summary["runs"]] == [
        ("build", "passed", True),
        ("test", "passed", True),
    ]
    assert all(r["image_digest"].startswith("sha256:") and r["tree"] == summary["tree"] for r in summary["runs"])


def test_run_exits_1_when_a_check_fails_and_shows_why(sandbox: Command, git_server: GitServer, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "Makefile").write_text("test:\n\t@echo the reason >&2; exit 3\n")
    git_server.seed("acme", f"broken-{uuid.uuid4().hex[:8]}", folder)
    name = f"broken-{uuid.uuid4().hex[:8]}"
    git_server.seed("acme", name, folder)

    ended = sandbox("run", git_server.https_url("acme", name), "--check", "test")

    assert ended.code == 1
    assert "failed" in ended.stdout
    assert "the reason" in ended.stdout


# Over ssh: tests/e2e/test_ssh.py, test_push.py
@pytest.mark.parametrize("url", ["https", pytest.param("ssh", marks=pytest.mark.thorough)], indirect=True)
def test_every_step_from_clone_to_pushed_branch(
    sandbox: Command, git_server: GitServer, project: str, url: str
) -> None:
    repository = sandbox.ok("repo", "clone", url)["repository"]
    task = sandbox.ok("task", "create", repository["id"], "--prompt", "Answer something else")["task"]
    first = sandbox.ok("file", "read", task["id"], "answer.c")
    patch = sandbox.home / "edit.patch"

    # An edit that breaks the test is caught by it.
    patch.write_text(patch_of(ANSWER, WRONG))
    edited = sandbox.ok("file", "patch", task["id"], str(patch), "--expect", f"answer.c={first['sha256']}")
    assert edited["files"][0]["sha256_before"] == first["sha256"]
    failing = sandbox("check", "run", task["id"], "test", "--json")
    assert (failing.code, failing.json["verdict"], failing.json["clean_room"]) == (1, "failed", False)

    # The hash from before is stale now; nothing is written.
    stale = sandbox("file", "patch", task["id"], str(patch), "--expect", f"answer.c={first['sha256']}", "--json")
    assert (stale.code, stale.error["code"]) == (4, "stale_hash")
    assert edited["files"][0]["sha256_after"] in stale.error["details"]

    # Repaired differently, it passes, and what changed is exactly that.
    after = edited["files"][0]["sha256_after"]
    patch.write_text(patch_of(WRONG, ANSWER.replace("main(void)", "main()")))
    sandbox.ok("file", "patch", task["id"], str(patch), "--expect", f"answer.c={after}")
    assert sandbox.ok("check", "run", task["id"], "test")["verdict"] == "passed"
    assert [c["path"] for c in sandbox.ok("status", task["id"])["changes"]] == ["answer.c"]
    difference = sandbox.ok("diff", task["id"])
    assert "+int main() {" in difference["text"]
    assert [(f["path"], f["additions"], f["deletions"]) for f in difference["files"]] == [("answer.c", 1, 1)]

    committed = sandbox.ok("commit", task["id"], "-m", "Answer in the old style")
    verified = sandbox.ok("verify", task["id"])
    assert (verified["verified"], verified["tree"]) == (True, committed["tree"])
    pushed = sandbox.ok("push", task["id"])
    assert pushed == {"branch": task["branch"], "commit": committed["commit"], "forced": False, "hooks_not_run": []}
    assert git_server.branches("acme", project)[task["branch"]] == committed["commit"]
    assert b"main()" in git_server.show("acme", project, task["branch"], "answer.c")

    closed = sandbox.ok("task", "close", task["id"], "--delete")["task"]
    assert (closed["status"], closed["worktree_path"]) == ("closed", None)
    assert not Path(task["worktree_path"]).exists()
    assert git_server.branches("acme", project)[task["branch"]] == committed["commit"]


def test_build_output_in_the_worktree_cannot_make_verify_pass(
    sandbox: Command, git_server: GitServer, project: str
) -> None:
    repository = sandbox.ok("repo", "clone", git_server.https_url("acme", project))["repository"]
    task = sandbox.ok("task", "create", repository["id"])["task"]
    before = sandbox.ok("file", "read", task["id"], "answer.c")["sha256"]
    patch = sandbox.home / "edit.patch"
    patch.write_text(patch_of(ANSWER, WRONG))
    sandbox.ok("file", "patch", task["id"], str(patch), "--expect", f"answer.c={before}")
    sandbox.ok("commit", task["id"], "-m", "Break it")
    answer = Path(task["worktree_path"]) / "answer"  # ignored, newer than its source, and right
    answer.write_text("#!/bin/sh\necho 42\n")
    answer.chmod(0o755)

    assert sandbox.ok("check", "run", task["id"], "test")["verdict"] == "passed"  # control: it does fool the worktree
    verified = sandbox("verify", task["id"], "--json")

    assert (verified.code, verified.json["verified"]) == (1, False)


def test_closing_refuses_to_lose_uncommitted_work(sandbox: Command, git_server: GitServer, project: str) -> None:
    repository = sandbox.ok("repo", "clone", git_server.https_url("acme", project))["repository"]
    task = sandbox.ok("task", "create", repository["id"])["task"]
    (Path(task["worktree_path"]) / "notes.txt").write_text("mine\n")

    refused = sandbox("task", "close", task["id"], "--delete", "--json")

    assert (refused.code, refused.error["code"]) == (4, "dirty_workspace")
    assert (Path(task["worktree_path"]) / "notes.txt").exists()
    assert sandbox.ok("task", "close", task["id"], "--delete", "--discard")["task"]["status"] == "closed"


def test_two_processes_on_one_home_both_succeed(sandbox: Command, git_server: GitServer, project: str) -> None:
    url = git_server.https_url("acme", project)
    both = [sandbox.start("run", url, "--json") for _ in range(2)]

    answers = [(*process.communicate(timeout=240), process.returncode) for process in both]

    assert [code for *_, code in answers] == [0, 0], answers
    assert all(json.loads(out)["verified"] for out, _, _ in answers)
    assert len(sandbox.ok("repo", "list")["repositories"]) == 1


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGINT, id="ctrl-c"),
        pytest.param(signal.SIGTERM, id="sigterm", marks=pytest.mark.thorough),
    ],
)
def test_an_interrupt_during_a_check_removes_the_container_and_exits_130(
    sandbox: Command, git_server: GitServer, tmp_path: Path, how: signal.Signals
) -> None:
    folder = tmp_path / "slow"
    folder.mkdir()
    (folder / "Makefile").write_text("all:\n\ntest:\n\t@sleep 300\n")
    name = f"slow-{uuid.uuid4().hex[:8]}"
    git_server.seed("acme", name, folder)
    process = sandbox.start("run", git_server.https_url("acme", name), "--check", "test")
    wait_for_container(sandbox.home, "test")

    process.send_signal(how)
    _, stderr = process.communicate(timeout=240)

    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert sandbox.ok("repo", "list")["repositories"][0]["name"] == name


def wait_for_container(home: Path, check: str) -> None:
    """Until a container of this home runs the check; a deadline, not a guess."""
    engine = docker.from_env()
    deadline = time.monotonic() + 240
    try:
        while time.monotonic() < deadline:
            if (home / "instance").exists():
                labels = [f"space.sandbox.instance={Home(home).instance_id}", f"space.sandbox.check={check}"]
                if engine.containers.list(filters={"label": labels}):
                    return
            time.sleep(0.05)
    finally:
        engine.close()
    pytest.fail("the check never started")


def test_a_check_that_never_ends_is_stopped_at_its_deadline(
    sandbox: Command, git_server: GitServer, project: str
) -> None:
    profiles = sandbox.home / "profiles"
    profiles.mkdir()
    (profiles / "stubborn.toml").write_text(
        'label = "Ignores SIGTERM"\nimage = "base"\n[[check]]\nid = "spin"\nlabel = "spin"\ntimeout_s = 2\n'
        'argv = ["sh", "-c", "trap : TERM INT; while :; do sleep 1; done"]\n'
    )

    ended = sandbox("run", git_server.https_url("acme", project), "--profile", "stubborn", "--json")

    assert ended.code == 1
    assert ended.json["runs"][0]["verdict"] == "timed_out"
    assert ended.json["runs"][0]["wall_time_s"] < 20 * slowness()


def test_a_pull_request_of_a_stranger_is_verified_by_its_number(
    sandbox: Command, git_server: GitServer, project: str, tmp_path: Path
) -> None:
    """Its commit is on no branch of the remote. Control: the main branch passes, the request does not."""
    fork, folder, url = f"{project}-fork", tmp_path / "project", git_server.https_url("acme", project)
    own = sandbox.ok("run", url)["commit"]
    (folder / "answer.c").write_text(WRONG)
    commit = git_server.seed("acme", fork, folder, "Make it 41")
    client = git_server.client()
    client.run("clone", "--quiet", git_server.https_url("acme", fork), str(tmp_path / "fork"))
    client.run("push", "--quiet", url, f"{commit}:refs/pull/7/head", cwd=tmp_path / "fork")
    git_server.move_ref("acme", project, "refs/pull/7/merge", own)

    ended = sandbox("run", url, "--ref", "pr/7", "--json")
    assert (ended.code, ended.json["commit"], ended.json["verified"]) == (1, commit, False)
    request = ended.json["pull_request"]
    assert (request["number"], request["merged"], request["subject"]) == (7, False, "Make it 41")
    assert sandbox.ok("run", url, "--ref", "pr/7/merge")["commit"] == own
    repo_id = ended.json["repository"]["id"]
    task = sandbox.ok("task", "create", repo_id, "--base", "pr/7")["task"]
    assert (task["base_commit"], task["base_branch"]) == (commit, "main")
    missing = sandbox("run", url, "--ref", "pr/8", "--json")
    assert (missing.code, missing.error["code"]) == (2, "not_found")


def test_an_operator_points_a_profile_at_another_image(sandbox: Command, git_server: GitServer, project: str) -> None:
    url = git_server.https_url("acme", project)
    normal = sandbox.ok("run", url)["runs"][0]["image_digest"]
    without_compiler = Command(sandbox.home, {"SANDBOX_PROFILES_MAKE_IMAGE": "base"})("run", url, "--json")

    assert without_compiler.code == 1
    assert without_compiler.json["runs"][0]["image_digest"] != normal


@pytest.mark.parametrize(
    ("image", "hint"),
    [
        ("mine", "images build mine"),
        pytest.param("buidl", "Did you mean build", marks=pytest.mark.thorough),
        pytest.param("nowhere/at:all", "Load or pull it", marks=pytest.mark.thorough),
    ],
)
def test_an_image_that_is_missing_is_named_with_the_way_to_get_it(
    sandbox: Command, git_server: GitServer, project: str, image: str, hint: str
) -> None:
    (sandbox.home / "images" / "mine").mkdir(parents=True)
    (sandbox.home / "images" / "mine" / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")

    elsewhere = Command(sandbox.home, {"SANDBOX_PROFILES_MAKE_IMAGE": image, "SANDBOX_IMAGES_BUILD": "never"})
    ended = elsewhere("run", git_server.https_url("acme", project), "--json")

    assert (ended.code, ended.error["code"]) == (5, "image_missing")
    assert hint in ended.error["hint"]


def test_wrong_credentials_are_auth_failed_and_shown_nowhere(
    sandbox: Command, git_server: GitServer, project: str
) -> None:
    credentials = sandbox.home / "credentials.toml"
    credentials.write_text(credentials.read_text().replace(git_server.password, "Wr0ng-secret"))

    ended = sandbox("run", git_server.https_url("acme", project), "--json")

    assert (ended.code, ended.error["code"]) == (5, "auth_failed")
    assert "Wr0ng-secret" not in ended.stdout + ended.stderr
    kept = [p for p in list_home_files(sandbox.home) if p != credentials]
    assert not [p for p in kept if b"Wr0ng-secret" in p.read_bytes()]


def test_a_repository_that_is_not_there_is_remote_not_found(sandbox: Command, git_server: GitServer) -> None:
    ended = sandbox("repo", "clone", git_server.https_url("acme", "no-such-thing"), "--json")

    assert (ended.code, ended.error["code"]) == (5, "remote_not_found")
    assert sandbox.ok("repo", "list") == {"repositories": []}


PURE = ("policy", "test_config.py", "profiles", "test_remotes.py")
RUNNER = ("pytest", "pytest-randomly", "pytest-timeout", "pytest-xdist", "hypothesis", "hatchling", "editables")


def select_locked(*wanted: str) -> str:
    """The entries of our lock file for these packages and for what they require here."""
    pending, names = list(wanted), set[str]()
    while pending:
        name = canonicalize_name(pending.pop())
        if name not in names:
            names.add(name)
            for line in metadata.requires(name) or ():
                required = Requirement(line)
                if required.marker is None or any(
                    required.marker.evaluate({"extra": extra}) for extra in ("", "crypto", "toml")
                ):
                    pending.append(required.name)
    entries = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text())
    return "\n".join(entry for entry in entries if canonicalize_name(re.split("[=;\\[ ]", entry)[0]) in names)


@pytest.mark.thorough  # of the published projects, which `make test` verifies: this is a large one
def test_the_projects_own_unit_tests_pass_in_the_sandbox(sandbox: Command, tmp_path: Path) -> None:
    """Self-hosting: this repository, committed state, in an image whose wheel-house is of our own lock file.

    Its modules of pure functions, and the packages that they need: the others run beside this one anyway, and one guest
    has one process for them.
    """
    copy = tmp_path / "self"
    tracked = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
    ).stdout
    for name in filter(None, os.fsdecode(tracked).split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    project = copy / "pyproject.toml"
    modules = [f"tests/unit/{name}" for name in PURE]
    assert all((ROOT / module).exists() for module in modules)
    changed = project.read_text().replace('testpaths = ["tests/unit"]', f"testpaths = {json.dumps(modules)}")
    assert changed != project.read_text()
    project.write_text(changed.replace("addopts = [", 'addopts = ["-m", "not slow", '))
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    for line in (["init", "-q", "-b", "main"], ["add", "-A"], [*who, "commit", "-q", "-m", "self"]):
        subprocess.run(["git", *line], cwd=copy, check=True)
    lock = tmp_path / "requirements.lock"
    lock.write_text(select_locked("space-sandbox", *RUNNER))
    sandbox.ok("images", "build", "python", "--wheelhouse", str(lock), "--as", "python-self")

    itself = Command(sandbox.home, {"SANDBOX_PROFILES_PYTHON_IMAGE": "python-self", "SANDBOX_LAYERS_FETCH": "never"})
    summary = itself.ok("run", str(copy))

    run = {r["check_id"]: r for r in summary["runs"]}["test"]
    assert (summary["profile"], run["verdict"]) == ("python", "passed")
    assert run["report"]["tests"] > 100
    assert run["report"]["failures"] == run["report"]["errors"] == 0
