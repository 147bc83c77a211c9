"""A runtime that hangs takes one container with it, for one deadline: the rest of the controller's work goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from devtools.privateengine import PrivateEngine
from devtools.requirement import unavailable
from sandbox import Workbench
from sandbox.engine.connection import connect
from sandbox.engine.container import list_containers
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import LeftoverAction, Verdict
from sandbox.store.quarantine import QuarantineNotes
from tests.docker.conftest import make_remote

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("quarantine"), pytest.mark.usefixtures("engine")]

IMAGE = "space-sandbox/init:latest"
PROFILE = f'label = "T"\nimage = "{IMAGE}"\n[[check]]\nid = "true"\nlabel = "true"\nargv = ["/init", "--hand-out"]\n'
HANGS = """#!/bin/sh
# runc, until it is asked to start something
for word in "$@"; do
  if [ "$word" = start ]; then echo $$ >> PIDS; exec sleep 600; fi
done
exec runc "$@"
"""
DEADLINE_S = 120.0
IMPATIENCE_S = 2.0
"""How long the hanging engine is waited for. Only what asks for the runtime that hangs has it."""


@dataclass(frozen=True)
class Hanging:
    """An engine whose `runsc` hangs at every start."""

    engine: PrivateEngine
    pids: Path

    def release(self) -> None:
        """The runtime fails at last."""
        for pid in self.pids.read_text().split() if self.pids.exists() else ():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Hanging]:
    if reason := PrivateEngine.why_not():
        unavailable(reason)
    script, pids = tmp_path / "hangs", tmp_path / "pids"
    script.write_text(HANGS.replace("PIDS", str(pids)))
    script.chmod(0o755)
    with PrivateEngine({"runsc": script}) as engine:
        found = Hanging(engine, pids)
        try:
            engine.load(IMAGE)
            yield found
        finally:
            found.release()
    assert engine.groups() == []  # nor a process in them


@pytest.fixture
def home(tmp_path: Path, hanging: Hanging) -> Path:
    """Its guests are in the engine's own control group: what a failed start leaves of them ends with the engine."""
    (tmp_path / "home" / "profiles").mkdir(parents=True)
    (tmp_path / "home" / "profiles" / "generic.toml").write_text(PROFILE)
    (tmp_path / "home" / "policies").mkdir()
    (tmp_path / "home" / "policies" / "container.toml").write_text(f'group = "{hanging.engine.group}"\n')
    return tmp_path / "home"


@pytest.fixture
def remote(tmp_path: Path) -> str:
    return make_remote(tmp_path / "remote", "README", "text\n")


def controller(hanging: Hanging, home: Path, timeout_s: float) -> Workbench:
    settings = {"engine": {"host": hanging.engine.url, "timeout_s": timeout_s}}
    return Workbench(home, environ={"PATH": os.environ["PATH"]}, settings=settings, allow_file=True)


def actions(workbench: Workbench, name: str) -> list[LeftoverAction]:
    """What `gc` does about a container."""
    return [left.action for left in workbench.collect().leftovers if left.name == name]


def test_a_container_that_cannot_be_ended_is_given_up_and_others_go_on(
    hanging: Hanging, home: Path, remote: str
) -> None:
    held = QuarantineNotes(home / "quarantine").names
    with controller(hanging, home, 60.0) as patient, controller(hanging, home, IMPATIENCE_S) as impatient:
        repository = patient.clone(remote).repository.id
        first, second = patient.create_task(repository).id, patient.create_task(repository).id
        assert patient.run_checks(second, ["true"])[-1].verdict is Verdict.PASSED

        ends_at = time.monotonic() + DEADLINE_S
        while not held() and time.monotonic() < ends_at:  # again when a busy machine answers too late before the start
            with pytest.raises(SandboxError) as caught:
                impatient.run_checks(first, ["true"], runtime="runsc")
            assert caught.value.code is ErrorCode.TIMEOUT
        [(name, container_id)] = held().items()
        assert container_id

        # Whoever has to do with other containers, or with the same task, does not wait for it.
        assert patient.run_checks(second, ["true"])[-1].verdict is Verdict.PASSED
        assert patient.run_checks(first, ["true"])[-1].verdict is Verdict.PASSED
        assert actions(impatient, name) == [LeftoverAction.BUSY]

        hanging.release()
        while actions(patient, name) != [LeftoverAction.REMOVED]:  # the engine has the start's failure to tidy up first
            assert time.monotonic() < ends_at
        assert held() == {}
        for task in (first, second):
            patient.close_task(task, delete_worktree=True, discard=True)
    with closing(connect(hanging.engine.url, {}, 60.0)) as engine:
        assert list_containers(engine, {}) == []
