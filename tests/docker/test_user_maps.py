"""An engine with userns-remap: refused by name, and were its name not known, by the proof that PID 1 gives."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from devtools.privateengine import PrivateEngine
from devtools.requirement import unavailable
from sandbox import Workbench
from sandbox.engine import ownership, supervised
from sandbox.engine.connection import connect
from sandbox.engine.container import list_containers
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import ProbeLevel, Verdict

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("user-maps"), pytest.mark.usefixtures("engine")]

IMAGE = "space-sandbox/init:latest"
PROFILE = f'label = "T"\nimage = "{IMAGE}"\n[[check]]\nid = "blind"\nlabel = "x"\nargv = ["/init", "--hand-out"]\n'
"""A check that looks at no error: it writes nothing and passes."""


@pytest.fixture(scope="module")
def mapping() -> Iterator[PrivateEngine]:
    if reason := PrivateEngine.why_not():
        unavailable(reason)
    with PrivateEngine(maps_users=True) as engine:
        engine.load(IMAGE)
        yield engine
    assert engine.groups() == []


@pytest.fixture
def workbench(mapping: PrivateEngine, tmp_path: Path) -> Iterator[Workbench]:
    home = tmp_path / "home"
    (home / "profiles").mkdir(parents=True)
    (home / "profiles" / "generic.toml").write_text(PROFILE)
    (home / "policies").mkdir()
    (home / "policies" / "container.toml").write_text("[users]\nfirst = 61000\ncount = 1000\n")  # ids that are mapped
    tmp_path.chmod(0o755)  # the engine's own root enters it as somebody else
    settings = {"engine": {"host": mapping.url}, "workspaces": {"worktree": "plain"}}
    with Workbench(home, environ={"PATH": os.environ["PATH"]}, settings=settings, allow_file=True) as found:
        yield found
    with closing(connect(mapping.url, {}, 60.0)) as engine:
        assert list_containers(engine, {}) == []


@pytest.fixture
def remote(tmp_path: Path) -> str:
    folder = tmp_path / "remote"
    folder.mkdir()
    (folder / "README").write_text("text\n")
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    for argv in (["init", "-q", "-b", "main"], ["add", "-A"], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *argv], cwd=folder, check=True, timeout=60)
    return str(folder)


def test_s15_it_is_refused_by_name_and_doctor_says_the_same(workbench: Workbench, remote: str) -> None:
    for act in (
        lambda: workbench.run(remote),
        lambda: workbench.build_image("base", print),
        lambda: workbench.derive_image("base", ["zip"], print),
    ):
        with pytest.raises(SandboxError, match="maps users") as caught:
            act()
        assert (caught.value.code, caught.value.hint) == (ErrorCode.ENGINE_UNAVAILABLE, ownership.USER_MAPPING_HINT)
    (line,) = (probe for probe in workbench.doctor() if probe.name == "userns")
    assert (line.level, line.hint) == (ProbeLevel.FAIL, ownership.USER_MAPPING_HINT)


def test_s15_without_its_name_the_first_process_finds_out(
    workbench: Workbench, remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "require_same_users", lambda engine: engine.info())
    task = workbench.create_task(workbench.clone(remote).repository.id)
    for act in (lambda: workbench.run(remote), lambda: workbench.run_checks(task.id, ["blind"])):
        with pytest.raises(SandboxError, match=r"could not write /workspace .* and /report .*belongs to uid 65534"):
            act()


def test_s15_control_with_neither_a_check_passes_that_has_done_nothing(
    workbench: Workbench, remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "require_same_users", lambda engine: engine.info())
    monkeypatch.setattr(supervised, "require_writable_folders", lambda *_: None)
    (run,) = workbench.run(remote).runs
    assert run.verdict is Verdict.PASSED
