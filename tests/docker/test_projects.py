"""Two projects of one repository with images of their own: a run, a task, and the gate."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.guests import remove_guests_of
from sandbox.errors import ErrorCode
from sandbox.files.mount_points import unmount_below
from sandbox.forges.body import compose
from sandbox.gate import DeliveryStep
from sandbox.models import Verdict
from sandbox.workbench import VerifyOptions, Workbench
from sandbox.workbench.checks.gate import require_open_gate
from sandbox.workbench.delivery import description
from tests.unit.conftest import Upstream, initialised, refused

PROFILE = """
label = "x"
image = "{image}"
[[detect.any]]
file = "{name}.project"
[[check]]
id = "test"
label = "x"
argv = ["sh", "-c", "pwd; grep -q good state && {compiler} command -v cc"]
limits = {{ memory_bytes = 134217728, cpus = 1.0, pids = 64 }}
"""


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    upstream = initialised(tmp_path / "upstream")
    for folder, name in (("services/api", "plain"), ("native", "native")):
        upstream.write(f"{folder}/{name}.project", b"")
        upstream.write(f"{folder}/state", b"good\n")
    upstream.commit()
    return upstream


@pytest.fixture
def workbench(tmp_path: Path, base_image: str, build_image: str) -> Iterator[Workbench]:
    home = tmp_path / "home"
    (home / "profiles").mkdir(parents=True)
    for name, image, compiler in (("plain", "base", "!"), ("native", "build", "")):
        text = PROFILE.format(name=name, image=image, compiler=compiler)
        (home / "profiles" / f"{name}.toml").write_text(text)
    with Workbench(home, environ=os.environ, allow_file=True, settings={"gate": {"require": "push"}}) as workbench:
        yield workbench
        remove_guests_of(home)
    unmount_below(home)


def test_each_project_has_its_folder_and_image_in_runs_tasks_and_the_gate(
    workbench: Workbench, upstream: Upstream, base_image: str, build_image: str
) -> None:
    projects = {"api": {"subpath": "services/api"}, "native": {"subpath": "native"}}
    summary = workbench.run(str(upstream.root), options=VerifyOptions(projects=projects))
    assert summary.verified
    ran = {run.check_id: (run.image_digest, run.stdout_tail.strip().splitlines()[0]) for run in summary.runs}
    assert ran == {
        "api.test": (base_image, "/workspace/services/api"),
        "native.test": (build_image, "/workspace/native"),
    }
    own_image = {"api": {"subpath": "services/api", "image": "build"}}
    (run,) = workbench.run(str(upstream.root), options=VerifyOptions(projects=own_image)).runs
    assert (run.image_digest, run.verdict) == (build_image, Verdict.FAILED), "it has a compiler"
    below = workbench.run(str(upstream.root), options=VerifyOptions(subpath="services/api"))
    assert (below.verified, below.subpath) == (True, "services/api")
    assert below.runs[0].stdout_tail.startswith("/workspace/services/api\n")
    repo_id = summary.repository.id
    assert workbench.checks(repo_id) == (), "they were for one run"
    workbench.set_repository(repo_id, {"projects": projects})
    task = workbench.create_task(repo_id, "x")
    in_task = workbench.run_checks(task.id, ["api.test", "native.test"])
    assert [(run.verdict, run.image_digest) for run in in_task] == [
        (Verdict.PASSED, base_image),
        (Verdict.PASSED, build_image),
    ]
    assert task.worktree_path is not None
    (task.worktree_path / "native" / "state").write_text("bad\n")
    workbench.commit(task.id, "breaks one of them")
    found = workbench.verify(task.id, options=VerifyOptions(keep_going=True))
    assert {run.check_id: run.verdict for run in found.runs} == {
        "api.test": Verdict.PASSED,
        "native.test": Verdict.FAILED,
    }
    task = workbench.task(task.id)
    with refused(ErrorCode.GATE_CLOSED) as caught:
        require_open_gate(workbench._services, task, DeliveryStep.PUSH)
    assert "native.test" in caught.value.brief
    assert "api.test" not in caught.value.brief
    body = compose(description.gather_facts(workbench._services, task))
    assert "--project api=services/api:plain --project native=native:native" in body
    assert "image of `native`" in body
    workbench.close_task(task.id, delete_worktree=True, discard=True)
