"""Candidates: what the gate and a promotion ask of one. Real engine, real git."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.models import Verdict
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream, initialised, refused

ABSENT = b"libq.so.6"
PROFILE = """
label = "bench"
image = "base"
priority = 99
[[detect.any]]
file = "program"
[[check]]
id = "build"
label = "build"
argv = ["test", "-x", "program"]
[launch]
argv = ["sh", "-c", 'touch "$1/up"; exec sleep 60', "sh", "<run>"]
requires = ["build"]
soak_s = 0
[launch.ready]
file = "<run>/up"
[launch.stop]
exit_code = 143
[promote]
artifacts = ["program"]
"""


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    """A repository with a program that needs a library which no host has, in the place of the C library."""
    found = initialised(tmp_path / "upstream")
    content = Path(shutil.which("true") or sys.executable).read_bytes()
    assert content.count(b"\0libc.so.6\0") == 1
    found.write("program", content.replace(b"\0libc.so.6\0", b"\0" + ABSENT + b"\0"), executable=True)
    found.commit()
    return found


@pytest.fixture
def workbench(tmp_path: Path, base_image: str) -> Iterator[Workbench]:
    profiles = tmp_path / "home" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "bench.toml").write_text(PROFILE)
    settings = {"gate": {"require": "push", "require_candidate": True}}
    with Workbench(tmp_path / "home", environ=dict(os.environ), settings=settings, allow_file=True) as found:
        yield found
    unmount_below(tmp_path)


def test_the_gate_asks_for_a_candidate_and_a_release_for_libraries_that_the_host_has(
    workbench: Workbench, upstream: Upstream
) -> None:
    repository = workbench.clone(str(upstream.root)).repository
    task = workbench.create_task(repository.id, "x")
    workbench.write_file(task.id, "README", b"x\n", None)
    commit = workbench.commit(task.id, "Describe it").commit
    assert workbench.verify(task.id).verified

    with refused(ErrorCode.GATE_CLOSED) as closed:
        workbench.push(task.id)
    assert (closed.value.hint, "'launch'" in closed.value.brief) == (f"sandbox candidate {task.id}", True)
    with refused(ErrorCode.GATE_CLOSED):
        workbench.promote(task.id)
    workbench.write_file(task.id, "program", b"broken", workbench.read_file(task.id, "program").sha256)
    found = workbench.candidate(task.id)
    assert found.uncommitted == 1, "it is of the last commit"
    assert [run.verdict for run in found.runs] == [Verdict.PASSED] * 2, found.runs[-1].phases
    assert workbench.push(task.id).commit == commit == upstream.oid(task.branch)

    with refused(ErrorCode.POLICY_VIOLATION) as lacking:
        workbench.promote(task.id)
    assert lacking.value.data == {"missing": [ABSENT.decode()]}
    assert workbench.releases(repository.id).current == ""


class Shell:
    """A person at the command line: each command is a process of its own."""

    def __init__(self, home: Path) -> None:
        self.environ = {**os.environ, "PYTHONPATH": str(Path.cwd()), "SANDBOX_HOME": str(home)}

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-I", "-m", "sandbox", *arguments]
        return subprocess.Popen(argv, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *arguments: str) -> Any:
        return json.loads(self.read(*arguments, "--json")[0])

    def read(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """What a person reads: standard output and standard error."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=240)
        assert process.returncode == code, err.decode()
        return out.decode(), err.decode()

    def promote_and_kill(self, repo_id: str, current: Path, confirm_s: float) -> None:
        """`sandbox promote` ends by `kill -9` while it waits; then the deadline passes."""
        with self.start("promote", repo_id) as process:
            wait_until(current.is_symlink)
            until = time.monotonic() + confirm_s
            process.kill()
            assert process.wait(60) == -signal.SIGKILL
        wait_until(lambda: time.monotonic() > until + 0.5)
        assert current.is_symlink(), "the control: nobody switched it back"


def wait_until(reached: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < ends_at
        time.sleep(0.05)


@pytest.fixture
def shell(tmp_path: Path, base_image: str) -> Iterator[Shell]:
    """A home with the profile, in which a script can be promoted."""
    home = tmp_path / "home"
    (home / "profiles").mkdir(parents=True)
    (home / "profiles" / "bench.toml").write_text(f"{PROFILE}confirm_s = 3\n")
    upstream = initialised(tmp_path / "upstream")
    upstream.write("program", b"#!/bin/sh\n", executable=True)
    upstream.commit()
    yield Shell(home)
    unmount_below(tmp_path)


def test_a_killed_promote_is_switched_back_by_gc_and_by_the_next_command(shell: Shell, tmp_path: Path) -> None:
    repo_id = shell.run("repo", "clone", str(tmp_path / "upstream"))["repository"]["id"]
    assert shell.run("candidate", repo_id)["verified"]
    current = tmp_path / "home" / "releases" / repo_id / "current"

    shell.promote_and_kill(repo_id, current, 3)
    leftovers = {left["kind"]: left for left in shell.run("gc")["leftovers"]}
    assert leftovers["release"]["action"] == "restored", leftovers
    assert not current.exists()

    shell.promote_and_kill(repo_id, current, 3)
    shell.run("task", "create", repo_id)
    assert not current.exists()
    events = [entry["event"] for entry in shell.run("promote", "--history", repo_id)["history"]]
    assert events == ["promoted", "switched_back"] * 2


def test_a_candidate_and_a_promotion_say_which_edits_they_leave_out(shell: Shell, tmp_path: Path) -> None:
    """And a candidate is not called verified: its tests did not run."""
    repo_id = shell.run("repo", "clone", str(tmp_path / "upstream"))["repository"]["id"]
    task = shell.run("task", "create", repo_id)["task"]
    task_id, program = task["id"], Path(task["worktree_path"]) / "program"
    out, err = shell.read("candidate", task_id)
    assert ("candidate passed" in out, "uncommitted" in err) == (True, False), "the control"
    program.write_bytes(b"broken")
    out, err = shell.read("candidate", task_id)
    assert "1 uncommitted change(s) of the task are not part of the candidate" in err
    run_id = shell.run("candidate", task_id, "--detach")["run_id"]
    out, err = shell.read("check", "wait", run_id)
    assert "1 uncommitted change(s) of the task are not part of the candidate" in err
    assert ("candidate passed" in out, "verified" in out) == (True, False)
    out, err = shell.read("promote", task_id, "--no-wait")
    assert "1 uncommitted change(s) of the task are not part of the release" in err


def test_an_interrupted_promote_says_that_the_release_stays(shell: Shell, tmp_path: Path) -> None:
    """And a removed repository's releases can be rolled back."""
    repo_id = shell.run("repo", "clone", str(tmp_path / "upstream"))["repository"]["id"]
    assert shell.run("candidate", repo_id)["verified"]
    current = tmp_path / "home" / "releases" / repo_id / "current"
    (tmp_path / "home" / "profiles" / "bench.toml").write_text(f"{PROFILE}confirm_s = 3600\n")
    with shell.start("promote", repo_id) as process:
        wait_until(current.is_symlink)
        assert process.stderr is not None
        assert any(b"confirm until" in line for line in process.stderr), "it waits"
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=60)[1].decode()
    assert "stays in use and is not confirmed" in text
    assert f"sandbox promote --rollback {repo_id}" in text
    assert text.endswith("Interrupted; no process is left running.\n")
    _, err = shell.read("repo", "remove", repo_id)
    assert (f"promote --history {repo_id}" in err, current.exists()) == (True, True)
    assert shell.run("promote", "--rollback", repo_id)["current"] == ""


def test_a_failed_probe_shows_what_it_printed(shell: Shell, tmp_path: Path) -> None:
    """With the candidate, and in the log of its run: the application itself printed none of it."""
    probe = """[[launch.probe]]
id = "ask"
argv = ["sh", "-c", "echo nine; echo because >&2"]
output = "ten"
"""
    profile = PROFILE.replace("[promote]", f"{probe}[promote]")
    (tmp_path / "home" / "profiles" / "bench.toml").write_text(profile)
    repo_id = shell.run("repo", "clone", str(tmp_path / "upstream"))["repository"]["id"]
    out, _ = shell.read("candidate", repo_id, code=1)
    assert ("      | nine\n      | because\n" in out, "exit code" in out) == (True, False), out
    [run_id] = re.findall(r"sandbox check log \S+ (run-\S+)", out)
    _, err = shell.read("check", "log", repo_id, run_id)
    assert "| nine\n| because\n" in err
