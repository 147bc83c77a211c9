"""The gate on real trees: what has no verdict of a clean room does not leave. Real engine, real command."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from devtools.command import Command
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.mount_points import unmount_below
from sandbox.forges.body import compose
from sandbox.gate import DeliveryStep, Require, needs_verification
from sandbox.images.lookup import WHEELHOUSE_LABEL
from sandbox.models import Verdict
from sandbox.workbench import VerifyOptions, Workbench
from sandbox.workbench.checks.gate import require_open_gate
from sandbox.workbench.controller.services import build_services
from sandbox.workbench.delivery import description
from tests.docker.test_verify import CHAIN, CHECK, HEAD, Bench, Scripts
from tests.unit.conftest import refused

PUSH = {"SANDBOX_GATE_REQUIRE": "push"}


@pytest.fixture
def bench(tmp_path: Path, base_image: str) -> Iterator[Bench]:
    found = Bench(tmp_path, CHAIN)
    yield found
    found.workbench.close_task(found.task_id)
    found.close()
    unmount_below(found.home)


@pytest.fixture(autouse=True)
def nothing_runs(bench: Bench, engine: DockerEngine) -> Iterator[None]:
    """After each test: no clean room is there."""
    yield
    assert list((bench.home / "repositories" / "rooms").iterdir()) == []


def closed_cells(bench: Bench) -> set[tuple[Require, DeliveryStep]]:
    """Where the gate refuses the task's last commit."""
    found: set[tuple[Require, DeliveryStep]] = set()
    task = bench.workbench.task(bench.task_id)
    for require in get_args(Require):
        services = build_services(bench.home, os.environ, {"gate": {"require": require}}, allow_file=True)
        for step in DeliveryStep:
            try:
                require_open_gate(services, task, step)
            except SandboxError as error:
                if error.code is not ErrorCode.GATE_CLOSED:
                    raise
                found.add((require, step))
        services.close()
    return found


GUARDED = {
    (require, step) for require in get_args(Require) for step in DeliveryStep if needs_verification(step, require)
}


def test_every_cell_of_the_gate_opens_by_a_clean_room_and_closes_with_the_next_commit(bench: Bench) -> None:
    assert closed_cells(bench) == GUARDED
    assert [run.verdict for run in bench.workbench.run_checks(bench.task_id, ["test"])] == [Verdict.PASSED] * 2
    assert closed_cells(bench) == GUARDED  # what passed in the worktree is no proof
    assert bench.verify().verified
    assert closed_cells(bench) == set()
    bench.commit(b"good\n\n")
    assert closed_cells(bench) == GUARDED
    bench.commit(b"good\n")
    assert closed_cells(bench) == set()  # the tree that was verified, whatever its commit


def test_s23_a_base_that_only_a_task_has_opens_no_gate(bench: Bench) -> None:
    """An agent that begins a task at a commit of its own would choose what is checked. Control: the first task, which
    began at a branch.
    """
    bench.commit(b"good\nown\n")
    assert bench.verify().verified
    first = bench.workbench.task(bench.task_id)
    other = bench.workbench.create_task(bench.repo_id, "other", first.head_commit)
    assert bench.workbench.verify(other.id).verified
    assert closed_cells(bench) == set()
    bench.task_id = other.id
    assert closed_cells(bench) == GUARDED
    with refused(ErrorCode.GATE_CLOSED) as raised:
        services = build_services(bench.home, os.environ, {"gate": {"require": "push"}}, allow_file=True)
        require_open_gate(services, other, DeliveryStep.PUSH)
    assert "the task's base" in raised.value.brief
    assert f"`sandbox task sync {other.id} --onto main`" in raised.value.hint
    services.close()
    moved = bench.workbench.sync_task(other.id, "main")
    assert (moved.base_commit, moved.head_commit) == (first.base_commit, first.head_commit)
    assert closed_cells(bench) == set(), "what the first task did is now among its own changes"
    bench.workbench.close_task(other.id)
    bench.task_id = first.id


def test_s23_a_base_with_other_checks_than_the_branch_has_now_opens_no_gate(bench: Bench) -> None:
    """An agent that begins a task at a commit from before the project's checks would choose what is checked. Control:
    the gate opens once the branch is merged, and with the base's checks at the branch itself.
    """
    easy = HEAD.format(image="base").replace('"bench"', '"easy"').replace("99", "9")
    (bench.home / "profiles" / "easy.toml").write_text(easy + CHECK.format(id="easy", script="true", requires="[]"))
    (bench.upstream.root / "bench").unlink()
    bench.upstream.write("easy")
    before = bench.upstream.commit()
    bench.again(CHAIN)
    bench.workbench.clone(str(bench.upstream.root))
    first, other = bench.task_id, bench.workbench.create_task(bench.repo_id, "other", before)
    bench.task_id = other.id
    bench.commit(b"bad\n")
    assert bench.verify().verified
    assert closed_cells(bench) == set(), "as long as the branch asks no more"
    bench.upstream.write("bench")
    bench.upstream.commit()
    bench.workbench.clone(str(bench.upstream.root))
    assert closed_cells(bench) == GUARDED
    with refused(ErrorCode.GATE_CLOSED) as raised:
        services = build_services(bench.home, os.environ, {"gate": {"require": "push"}}, allow_file=True)
        require_open_gate(services, other, DeliveryStep.PUSH)
    assert "sandbox task sync" in raised.value.hint
    services.close()
    bench.workbench.sync_task(bench.task_id, "main")
    assert not bench.verify().verified, "now it has the checks of the branch"
    bench.commit(b"good\n")
    assert bench.verify().verified
    assert closed_cells(bench) == set()
    bench.workbench.close_task(bench.task_id)
    bench.task_id = first


def test_a_sync_closes_the_gate_and_checks_see_the_newer_base(bench: Bench) -> None:
    bench.commit(b"good\nown\n")
    bench.verify()
    assert closed_cells(bench) == set()
    assert [run.verdict for run in bench.workbench.run_checks(bench.task_id, ["test"])] == [Verdict.PASSED] * 2
    bench.upstream.write("newer", b"of the remote\n")
    bench.upstream.commit()
    assert bench.workbench.sync_task(bench.task_id, fetch=True).ahead == 2
    assert closed_cells(bench) == GUARDED
    bench.again({"build": ("test -e newer && cp source built", []), "test": CHAIN["test"]})
    runs = bench.workbench.run_checks(bench.task_id, ["test"])  # in the task's container from before the sync
    assert [run.verdict for run in runs] == [Verdict.PASSED] * 2
    assert bench.verify().verified
    assert closed_cells(bench) == set()


def test_a_changed_check_a_failure_and_a_later_failure_close_the_gate(bench: Bench) -> None:
    bench.verify()
    assert closed_cells(bench) == set()
    bench.again({**CHAIN, "more": ("test ! -e later", [])})
    assert closed_cells(bench) == GUARDED
    bench.verify()
    assert closed_cells(bench) == set()
    bench.again({**CHAIN, "more": ("exit 3", [])})
    bench.verify()
    assert closed_cells(bench) == GUARDED


def test_a_tag_that_moves_to_another_image_closes_the_gate(
    bench: Bench, engine: DockerEngine, base_image: str, build_image: str
) -> None:
    """Nothing else changes, and nothing runs in the other image: to be another one is enough."""
    name = f"sandbox-test-{uuid.uuid4().hex}:moving"
    engine.api.tag(base_image, name)
    try:
        settings = {"gate": {"require": "push"}, "profiles": {"bench": {"image": name}}}
        with Workbench(bench.home, environ=dict(os.environ), settings=settings, allow_file=True) as workbench:
            assert workbench.verify(bench.task_id).verified
        task = bench.workbench.task(bench.task_id)
        services = build_services(bench.home, os.environ, settings, allow_file=True)
        require_open_gate(services, task, DeliveryStep.PUSH)
        engine.api.tag(build_image, name)
        with refused(ErrorCode.GATE_CLOSED):
            require_open_gate(services, task, DeliveryStep.PUSH)
        services.close()
    finally:
        engine.api.remove_image(name, noprune=True)


def test_without_an_engine_nobody_can_say_that_it_is_open(bench: Bench, tmp_path: Path) -> None:
    bench.commit(b"good\n# one\n")
    bench.verify()
    settings = {"gate": {"require": "push"}, "engine": {"host": f"unix://{tmp_path}/nobody.sock"}}
    with (
        Workbench(bench.home, environ=dict(os.environ), settings=settings, allow_file=True) as workbench,
        refused(ErrorCode.ENGINE_UNAVAILABLE),
    ):
        workbench.push(bench.task_id)


def test_a_push_is_refused_until_verified_and_again_after_the_next_commit(bench: Bench) -> None:
    sandbox, task_id = Command(bench.home, PUSH), bench.task_id
    bench.commit(b"good\n# one\n")

    closed = sandbox("push", task_id, "--json")
    assert (closed.code, closed.error["code"]) == (3, "gate_closed")
    assert "'build', 'test'" in closed.error["brief"]
    assert closed.error["hint"] == f"sandbox --home {sandbox.home} verify {task_id}"
    branch = bench.workbench.task(task_id).branch
    assert branch not in bench.upstream.git("branch", "--list").decode()

    assert sandbox.ok("verify", task_id)["verified"]
    pushed = sandbox.ok("push", task_id)
    assert bench.upstream.oid(branch) == pushed["commit"]

    bench.commit(b"good\n# two\n")
    assert sandbox("push", task_id, "--json").error["code"] == "gate_closed"
    assert bench.upstream.oid(branch) == pushed["commit"]
    assert Command(bench.home).ok("push", task_id)["commit"] != pushed["commit"]  # control: the default lets it go


def test_a_profile_without_checks_cannot_open_the_gate(bench: Bench) -> None:
    bench.commit(b"good\n# one\n")
    bench.again({})

    closed = Command(bench.home, PUSH)("push", bench.task_id, "--json")

    assert (closed.code, closed.error["code"]) == (3, "gate_closed")
    assert "has no checks" in closed.error["brief"]
    assert Command(bench.home)("push", bench.task_id).code == 0


def test_a_reviewer_gets_the_same_verdicts_with_the_command_that_the_pull_request_names(
    bench: Bench, tmp_path: Path
) -> None:
    """With a home of the reviewer's own, which has never seen the task, and the same profile in it."""
    bench.commit(b"good\n# one\n")
    runs = bench.verify().runs
    bench.workbench.push(bench.task_id)
    services = build_services(bench.home, os.environ, allow_file=True)
    body = compose(description.gather_facts(services, bench.workbench.task(bench.task_id)))
    services.close()
    reviewer = Command(tmp_path / "reviewer")
    shutil.copytree(bench.home / "profiles", reviewer.home / "profiles")

    (line,) = re.findall(r"(?m)^`sandbox (run .*)`$", body)
    again = reviewer.ok(*shlex.split(line))

    assert again["verified"]
    assert (again["tree"], again["profile"]) == (runs[0].tree, "bench")
    for run, mine in zip(again["runs"], runs, strict=True):
        assert run["image_digest"] == mine.image_digest
        assert run["run_id"] != mine.run_id
        assert f"`{mine.run_id}`" in body
    assert f"image: `base` `{runs[0].image_digest}`" in body
    part = reviewer(*shlex.split(line), "--check", "build").stdout
    assert "\npassed in " in part, "a part of the checks verifies nothing"
    assert "\nnot run: test; the tree is verified only when all checks passed\n" in part


def test_a_verified_body_names_the_wheel_house_of_its_image(
    bench: Bench, engine: DockerEngine, base_image: str
) -> None:
    name = f"sandbox-test-{uuid.uuid4().hex}:wheels"
    container = engine.api.create_container(base_image, ["true"])
    try:
        engine.api.commit(
            container["Id"],
            repository=name.partition(":")[0],
            tag="wheels",
            changes=f"LABEL {WHEELHOUSE_LABEL}={'a' * 64}",
        )
    finally:
        engine.api.remove_container(container["Id"])
    try:
        services = build_services(bench.home, os.environ, {"profiles": {"bench": {"image": name}}}, allow_file=True)
        body = compose(description.gather_facts(services, bench.workbench.task(bench.task_id)))
        services.close()
    finally:
        engine.api.remove_image(name)
    assert f"wheel-house of the image: `sha256:{'a' * 64}`" in body
    assert f"image: `{name}` `sha256:" in body


def test_a_check_without_a_verdict_does_not_keep_a_compared_tree_closed(bench: Bench) -> None:
    """No verdict is kept of a check after one that failed in its room. Control: not compared, the gate is closed."""
    after_failure: Scripts = {"build": ("true", []), "test": ("exit 1", ["build"]), "xlint": ("true", ["build"])}
    bench.again(after_failure)
    bench.commit(b"good\n# one\n")
    settings = {"gate": {"require": "push", "accept": "no-new-failures"}}
    services = build_services(bench.home, os.environ, settings, allow_file=True)
    task = bench.workbench.task(bench.task_id)
    with refused(ErrorCode.GATE_CLOSED):
        require_open_gate(services, task, DeliveryStep.PUSH)
    found = bench.workbench.verify(bench.task_id, None, VerifyOptions(against="base"))
    assert (found.verified, found.no_new_failures) == (False, True)
    require_open_gate(services, task, DeliveryStep.PUSH)
    services.close()
