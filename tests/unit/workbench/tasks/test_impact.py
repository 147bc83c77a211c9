"""When a task's changes take effect, as its profile says, in every place that says it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.forges.body import compose
from sandbox.models import Verdict
from sandbox.store.home import Home
from sandbox.store.records import find_task, save_run
from sandbox.workbench.controller.services import build_services
from sandbox.workbench.delivery import description
from sandbox.workbench.tasks.impact import advise_check
from sandbox.workbench.tasks.lifecycle import compare_task
from tests.unit.conftest import Upstream
from tests.unit.desk import Desk
from tests.unit.store.test_verdicts import made as run_made

PROFILE = """
label = "an application"
image = "base"
priority = 99
[[detect.any]]
file = "f"
[[check]]
id = "build"
label = "build"
argv = ["make"]
[[check]]
id = "test"
label = "test"
argv = ["make", "test"]
[[class]]
name = "restart"
paths = ["/d/"]
effect = "takes effect after build and restart"
checks = ["build"]
[[class]]
name = "hot-reload"
paths = ["f", "new"]
effect = "takes effect at once"
"""
RESTART = "1 file of class restart (d/y): takes effect after build and restart"
RELOAD = "1 file of class hot-reload (f): takes effect at once"


@pytest.fixture
def desk(upstream: Upstream, tmp_path: Path) -> Iterator[Desk]:
    home = tmp_path / "home"
    (home / "profiles").mkdir(parents=True)
    home.chmod(0o700)
    (home / "profiles" / "own.toml").write_text(PROFILE)
    (home / "config.toml").write_text(f'[engine]\nhost = "unix://{tmp_path}/nobody.sock"\n')
    desk = Desk(upstream, home)
    with desk.workbench:
        yield desk


def test_committed_and_uncommitted_changes_count_until_they_are_taken_back(desk: Desk) -> None:
    assert desk.workbench.impact(desk.task.id).lines == ()
    desk.write("d/y", b"changed\n")
    assert desk.workbench.commit(desk.task.id, "one").impact == (RESTART,)
    desk.write("f", b"changed\n")
    desk.write("README", b"changed\n")
    found = desk.workbench.impact(desk.task.id)
    assert [(one.name, one.files) for one in found.classes] == [("restart", ("d/y",)), ("hot-reload", ("f",))]
    assert found.unclassified == 1
    assert found.lines == (RESTART, RELOAD, "needs build (not run on these files)")
    assert desk.workbench.diff(desk.task.id).impact == (RESTART, RELOAD)
    assert desk.workbench.diff(desk.task.id, "head").impact == (RELOAD,)
    desk.write("f", b"one\ntwo\n")
    assert desk.workbench.diff(desk.task.id).impact == (RESTART,)


def test_a_needed_check_has_passed_only_on_exactly_these_files(desk: Desk) -> None:
    desk.write("d/y", b"changed\n")
    done = desk.workbench.commit(desk.task.id, "one")
    with_id = {"check_id": "build", "task_id": desk.task.id, "tree": done.tree}
    home = Home(desk.home)
    home.logs(desk.task.id).mkdir(parents=True)
    save_run(home, desk.task.id, run_made(Verdict.PASSED, 0, **with_id))
    (needed,) = desk.workbench.impact(desk.task.id).checks
    assert (needed.check_id, needed.passed) == ("build", True)
    desk.write("f", b"changed\n")
    (needed,) = desk.workbench.impact(desk.task.id).checks
    assert needed.passed is None


def test_a_check_says_which_other_must_run_before_it(desk: Desk) -> None:
    desk.write("d/y", b"changed\n")
    services = build_services(desk.home, {}, allow_file=True)
    profile = next(p for p in desk.workbench.profiles() if p.name == "own")
    checks = {check.id: check for check in profile.checks}
    with compare_task(services, find_task(services.home, desk.task.id)) as opened:
        assert advise_check(services, opened, profile, checks["test"]) == (f"{RESTART}; run build first",)
        assert advise_check(services, opened, profile, checks["build"]) == ()
    services.close()


def test_a_pull_request_says_it_too(desk: Desk) -> None:
    desk.write("d/y", b"changed\n")
    desk.workbench.commit(desk.task.id, "one")
    services = build_services(desk.home, {}, allow_file=True)
    facts = description.gather_facts(services, find_task(services.home, desk.task.id))
    assert facts.impact == (RESTART,)
    assert "### When it takes effect" in compose(facts)
    services.close()
