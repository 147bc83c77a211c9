"""Engines with a mount table of their own: what doctor says, and what a run says."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devtools.privateengine import PrivateEngine
from devtools.requirement import unavailable
from sandbox import Workbench
from sandbox.engine.connection import DockerEngine
from sandbox.engine.container_types import ProbeContainer
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import ProbeLevel, Verdict

pytestmark = pytest.mark.xdist_group("sight")  # it takes longest to start an engine

PROFILE = """
label = "small"
image = "space-sandbox/init:latest"
priority = 1000
[detect]
all = [{ file = "Makefile" }]
[[check]]
id = "build"
label = "build"
argv = ["/init", "--hand-out"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Makefile").write_text("all:\n\techo built\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-C", str(folder)]
    for argv in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *argv], check=True)
    return folder


def ask(
    engine: PrivateEngine, home: Path, project: Path, worktree: str = "auto"
) -> tuple[ProbeLevel, str, Verdict | SandboxError]:
    """What doctor says of the files, and what became of a run."""
    settings = {"engine": {"host": engine.url}, "workspaces": {"worktree": worktree}}
    with Workbench(home, settings=settings, allow_file=True) as workbench:
        (home / "profiles").mkdir()
        (home / "profiles" / "small.toml").write_text(PROFILE)
        (probe,) = [probe for probe in workbench.doctor() if probe.name == "files"]
        try:
            return probe.level, probe.value, workbench.run(str(project)).runs[0].verdict
        except SandboxError as error:
            return probe.level, probe.value, error


@contextmanager
def started(engine: PrivateEngine) -> Iterator[PrivateEngine]:
    """The engine with the one image that a run needs: a small one."""
    if reason := PrivateEngine.why_not():
        unavailable(reason)
    with engine:
        engine.load("space-sandbox/init:latest")
        yield engine


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def private(hidden: Path) -> Iterator[PrivateEngine]:
    """It sees neither later mounts nor what is in `hidden`."""
    with started(PrivateEngine(propagation="private", hidden=hidden)) as engine:
        yield engine


def test_engine_that_does_not_see_the_home_is_named_by_doctor_and_by_a_run(
    private: PrivateEngine, hidden: Path, project: Path
) -> None:
    level, value, ended = ask(private, hidden / "home", project)
    assert (level, value) == (ProbeLevel.FAIL, "the engine does not see the files of this home")
    assert isinstance(ended, SandboxError)
    assert ended.code is ErrorCode.ENGINE_UNAVAILABLE
    assert ended.brief == "The engine does not see the files of this host"
    assert "sandbox doctor" in ended.hint


@pytest.mark.parametrize(
    ("worktree", "level"), [("overlay", ProbeLevel.FAIL), ("plain", ProbeLevel.OK)], ids=["mounted", "not mounted"]
)
def test_engine_that_does_not_see_later_mounts_is_named_where_there_are_any(
    private: PrivateEngine, tmp_path: Path, project: Path, worktree: str, level: ProbeLevel
) -> None:
    said, value, ended = ask(private, tmp_path / "home", project, worktree)
    assert said is level
    assert ("does not see the mounts" in value) is (level is ProbeLevel.FAIL)
    if worktree == "plain":
        assert ended is Verdict.PASSED
    else:
        assert isinstance(ended, SandboxError)
        assert (ended.code, "plain" in ended.hint) == (ErrorCode.ENGINE_UNAVAILABLE, True), ended.hint


def test_engine_with_the_hosts_mount_table_works(tmp_path: Path, project: Path) -> None:
    """The control: the same home and the same engine, without a mount table of its own."""
    with started(PrivateEngine()) as engine:
        level, value, ended = ask(engine, tmp_path / "home", project)
    assert (level, value) == (ProbeLevel.OK, "the engine sees this home")
    assert ended is Verdict.PASSED


def test_a_directory_that_the_engine_cannot_look_at_is_one_that_it_does_not_see(
    engine: DockerEngine, base_image: str, tmp_path: Path
) -> None:
    """As a snap does for hidden directories, it answers with the error of stat(2). Here a file is in the way."""
    (tmp_path / "file").touch()
    probe = ProbeContainer("sandbox-test-sight", base_image, {})
    assert engine.can_mount(tmp_path, probe), "the control"
    assert not engine.can_mount(tmp_path / "file" / "home", probe)
