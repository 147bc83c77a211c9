"""A task's container seen from the workbench: found by any process, reporting check by check, gone with its task."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker.errors
import pytest

from devtools.command import SANDBOX, Command
from devtools.guests import remove_guests_of
from devtools.waiting import wait_until
from sandbox.engine.connection import DockerEngine
from sandbox.engine.container_labels import task_container_name
from sandbox.files.mount_points import unmount_below
from sandbox.models import Verdict
from sandbox.store.home import Home
from sandbox.workbench import Workbench
from tests.unit.conftest import initialised

JUNIT = '<testsuite name=\\"s\\" tests=\\"3\\" failures=\\"0\\"></testsuite>'
CHECKS = {
    "quick": "true",
    "reports": f"echo '{JUNIT}' > /report/r.xml",
    "traps": "cd /report && ln -s /etc link && mkdir -p a/b && touch a/b/f && chmod 000 a . ; true",
    "marks": "touch began",
    "plants": "touch /tmp/planted /dev/shm/planted $HOME/planted",
    "wary": "test ! -e /tmp/planted -a ! -e /dev/shm/planted -a ! -e $HOME/planted",
}
ENDLESS = {"endless": "touch began; sleep 1000"}
DEADLINE_S = 6
"""Of the endless check: long enough to kill its controller before, on whatever machine."""

PROFILE = """
label = "guest"
image = "base"
priority = 99
[[detect.any]]
file = "guest"
"""
CHECK = """
[[check]]
id = "{name}"
label = "{name}"
argv = ["sh", "-c", "{script}"]
timeout_s = {seconds}
limits = {{ memory_bytes = 134217728, cpus = 1.0, pids = 64 }}
"""


class Bench:
    """A home with one task."""

    def __init__(self, root: Path, checks: dict[str, str]) -> None:
        self.home = root / "home"
        (self.home / "profiles").mkdir(parents=True)
        seconds = DEADLINE_S if checks is ENDLESS else 300
        texts = (
            CHECK.format(name=name, script=script.replace('"', '\\"').replace("\\\\", "\\"), seconds=seconds)
            for name, script in checks.items()
        )
        (self.home / "profiles" / "guest.toml").write_text(PROFILE + "".join(texts))
        upstream = initialised(root / "upstream")
        upstream.write("guest", b"\n")
        upstream.commit()
        self.workbench = Workbench(self.home, environ=dict(os.environ), allow_file=True)
        repository = self.workbench.clone(str(upstream.root)).repository
        self.task = self.workbench.create_task(repository.id)

    @property
    def worktree(self) -> Path:
        assert self.task.worktree_path is not None
        return self.task.worktree_path

    @property
    def report(self) -> Path:
        return self.home / "repositories" / "reports" / self.task.id

    def run(self, name: str) -> Verdict:
        return self.workbench.run_checks(self.task.id, [name])[0].verdict

    def container(self, engine: DockerEngine) -> str:
        """Id of the task's container, '' when there is none."""
        try:
            instance = Home(self.home).instance_id
            return str(engine.api.inspect_container(task_container_name(instance, self.task.id))["Id"])
        except docker.errors.NotFound:
            return ""


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path, base_image: str) -> Iterator[Bench]:
    assert base_image
    found = Bench(tmp_path, getattr(request, "param", CHECKS))
    yield found
    found.workbench.__exit__(None, None, None)
    remove_guests_of(found.home)
    unmount_below(found.home)


def test_another_process_finds_the_container(bench: Bench, engine: DockerEngine) -> None:
    assert bench.run("quick") is Verdict.PASSED
    first = bench.container(engine)
    done = Command(bench.home).ok("check", "run", bench.task.id, "quick")
    assert done["verdict"] == "passed"
    assert bench.container(engine) == first != ""


def test_the_proof_that_a_check_can_write_changes_nothing_of_the_task(bench: Bench) -> None:
    before = seen_of(bench)
    assert bench.run("quick") is Verdict.PASSED
    assert bench.run("quick") is Verdict.PASSED
    assert seen_of(bench) == before
    assert not bench.workbench.status(bench.task.id).dirty


def seen_of(bench: Bench) -> dict[str, int]:
    """All that lies beside and below the worktree, an overlay's upper directory included, and when it was changed."""
    folder = bench.worktree.parent
    return {str(path): path.lstat().st_mtime_ns for path in folder.rglob("*") if "work/" not in str(path)}


def test_a_report_is_that_of_its_check_whatever_the_one_before_left(bench: Bench) -> None:
    (first,) = bench.workbench.run_checks(bench.task.id, ["reports"])
    assert first.report is not None
    assert first.report.tests == 3
    (second,) = bench.workbench.run_checks(bench.task.id, ["traps"])
    assert second.report is None
    outside = sorted(Path("/etc").iterdir())
    (third,) = bench.workbench.run_checks(bench.task.id, ["reports"])
    assert third.report == first.report
    own_disk = (bench.home / "repositories" / "layers").glob("*/*/disk/report/*")
    assert [p.name for p in (*bench.report.iterdir(), *own_disk)] == ["r.xml"]
    assert sorted(Path("/etc").iterdir()) == outside


@pytest.mark.parametrize("delete", [True, False], ids=["deleted", "kept"])
def test_closing_a_task_removes_its_container(bench: Bench, engine: DockerEngine, delete: bool) -> None:
    bench.run("traps")
    assert bench.container(engine) != ""
    bench.workbench.close_task(bench.task.id, delete_worktree=delete, discard=True)
    assert bench.container(engine) == ""
    assert not bench.report.exists()


def test_a_task_can_be_closed_without_an_engine_and_gc_removes_its_container(
    bench: Bench, engine: DockerEngine
) -> None:
    bench.run("quick")
    with Workbench(bench.home, environ={**os.environ, "DOCKER_HOST": "unix:///nobody/listens"}) as deaf:
        deaf.close_task(bench.task.id, delete_worktree=True, discard=True)
    assert bench.container(engine) != ""
    bench.workbench.collect()
    assert bench.container(engine) == ""


def test_a_refused_close_leaves_the_container(bench: Bench, engine: DockerEngine) -> None:
    bench.run("quick")
    first = bench.container(engine)
    (bench.worktree / "new").write_bytes(b"x")
    with pytest.raises(Exception, match="uncommitted"):
        bench.workbench.close_task(bench.task.id, delete_worktree=True)
    assert bench.container(engine) == first


def test_a_verification_neither_sees_nor_touches_the_tasks_container(bench: Bench, engine: DockerEngine) -> None:
    """Control: the next check of the task does see what was planted."""
    bench.run("plants")
    first = bench.container(engine)
    assert bench.run("wary") is Verdict.FAILED
    found = bench.workbench.verify(bench.task.id)
    assert {run.check_id: run.verdict for run in found.runs}["wary"] is Verdict.PASSED
    assert bench.container(engine) == first


def test_a_worktree_that_was_mounted_anew_has_a_new_container(bench: Bench, engine: DockerEngine) -> None:
    """The old one still holds the mount that is gone, and would check files that nobody sees any more."""
    bench.run("quick")
    first = bench.container(engine)
    unmount_below(bench.home)
    assert bench.run("marks") is Verdict.PASSED
    assert (bench.worktree / "began").exists(), "the check saw another worktree than we do"
    if (bench.home / "repositories" / "layers").is_dir() and os.path.ismount(bench.worktree):
        assert bench.container(engine) != first


@pytest.mark.parametrize("bench", [ENDLESS], indirect=True, ids=["endless"])
def test_a_deadline_holds_when_the_controller_was_killed_and_the_next_edit_ends_the_guest(
    bench: Bench, engine: DockerEngine
) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [*SANDBOX, "--home", str(bench.home), "check", "run", bench.task.id, "endless"]
    victim = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ)
    wait_until((bench.worktree / "began").exists)
    victim.kill()
    victim.wait()
    guest = bench.container(engine)
    assert guest, "void: there is no guest"

    wait_until(lambda: len(engine.api.top(guest)["Processes"]) == 1)  # nobody but its supervisor saw to that

    bench.workbench.write_file(bench.task.id, "edited", b"x\n", None)
    assert bench.container(engine) == ""
