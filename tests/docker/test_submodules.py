"""A project with a submodule, a generated file and a tag: verified in a clean room, and again in one of a task."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.files.mount_points import unmount_below
from sandbox.models import Check, CheckRun, Verdict
from sandbox.workbench import VerifyOptions, Watch, Workbench
from tests.unit.conftest import Upstream, add_submodule, initialised

MAKEFILE = b"""\
all: generated
\t@test -f lib/lib.c
generated: source
\t@echo "make thinks that a generated file of the repository is old"; exit 1
test: all
\t@echo "seen $$SANDBOX_COMMIT $$SANDBOX_DESCRIBE $$SOURCE_DATE_EPOCH"
\t@test -z "$$(find . -type f -newer Makefile -not -path ./.git)"
"""


@pytest.fixture
def project(tmp_path: Path) -> Upstream:
    lib, project = (initialised(tmp_path / name) for name in ("lib", "project"))
    lib.write("lib.c", b"int lib;\n")
    for name in ("generated", "source"):  # in this order: a checkout in order of writing would make `source` newer
        project.write(name, b"x\n")
    project.write("Makefile", MAKEFILE)
    project.commit()
    project.git("tag", "v1.0")
    add_submodule(project, "lib", "../lib", lib.commit())
    return project


@contextmanager
def unmounted(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        unmount_below(folder)


@pytest.mark.usefixtures("build_image")
def test_checks_see_submodules_and_facts_of_the_commit(project: Upstream, tmp_path: Path) -> None:
    settings = {"remotes": {"allow_file": True}}
    with (
        unmounted(tmp_path),
        Workbench(tmp_path / "home", environ=os.environ, settings=settings, allow_file=True) as workbench,
    ):
        repo_id = workbench.clone(str(project.root)).repository.id
        empty = workbench.run(str(project.root))
        assert not empty.verified  # control: without the submodule the build fails
        workbench.set_repository(repo_id, {"submodules": True})
        first = workbench.run(str(project.root))
        assert first.verified, first.runs
        described, time_s = f"v1.0-1-g{first.commit[:9]}", project.git("show", "-s", "--format=%ct").decode().strip()
        assert f"seen {first.commit} {described} {time_s}" in first.runs[-1].stdout_tail

        task = workbench.create_task(repo_id, "work")
        assert task.worktree_path is not None
        (task.worktree_path / "source").write_bytes(b"edited\n")
        (run,) = workbench.run_checks(task.id, ["build"])
        assert run.verdict is Verdict.FAILED  # an edited file is newer than what was made from it
        workbench.commit(task.id, "edit the source")
        again = workbench.verify(task.id)  # a room over the checkout of the task's base, submodule included
        assert again.verified, again.runs
        assert {r.cached for r in workbench.run(str(project.root)).runs} == {True}


TWO_ROOMS = """
label = "Two rooms"
image = "build"
priority = 90
[[detect.any]]
file = "Makefile"
[[check]]
id = "first"
label = "first"
argv = ["true"]
[[check]]
id = "second"
label = "second"
argv = ["test", "-f", "lib/lib.c"]
"""


@pytest.mark.usefixtures("build_image")
def test_s206_submodules_chosen_during_a_verification_are_in_none_of_its_rooms(
    project: Upstream, tmp_path: Path
) -> None:
    """Else a verdict of a room with them answers where they are not wanted. Controls: the second check passes with
    them, and a verification that begins with them has them in its last room though they are taken back meanwhile.
    """
    (tmp_path / "home" / "profiles").mkdir(parents=True)
    (tmp_path / "home" / "profiles" / "two.toml").write_text(TWO_ROOMS)
    settings, url = {"remotes": {"allow_file": True}}, str(project.root)
    with (
        unmounted(tmp_path),
        Workbench(tmp_path / "home", environ=os.environ, settings=settings, allow_file=True) as workbench,
    ):
        repo_id = workbench.clone(url).repository.id

        def choose(check: Check, run: CheckRun | None) -> None:
            if check.id == "first" and run is not None:
                workbench.set_repository(repo_id, {"submodules": True})

        def take_back(check: Check, run: CheckRun | None) -> None:
            if check.id == "first" and run is not None:
                workbench.set_repository(repo_id, unset=["submodules"])

        without = workbench.run(url, watch=Watch(announce=choose))
        assert [run.verdict for run in without.runs] == [Verdict.PASSED, Verdict.FAILED]
        having = workbench.run(url, watch=Watch(announce=take_back))
        assert [run.verdict for run in having.runs] == [Verdict.PASSED, Verdict.PASSED]
        for options in (VerifyOptions(), VerifyOptions(cache=False)):
            assert not workbench.run(url, options=options).verified
