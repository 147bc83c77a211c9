"""gVisor as the runtime of checks, through the use-cases, on the real engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devtools.requirement import unavailable
from sandbox import VerifyOptions, Workbench
from sandbox.engine.connection import DockerEngine
from sandbox.engine.runtimes import list_runtimes, require_runtime
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CheckRun, Verdict
from sandbox.policy.container import UserIds
from tests.docker.conftest import make_remote

GVISOR_VERSION = "Linux version 4.4.0"
"""What gVisor's kernel calls itself in /proc/version; no kernel that Docker 20.10 supports is that old here."""

MAKEFILE = """all:
	cat /proc/version; id -u; echo made > made
test: all
	cat made; cat /proc/net/dev; echo no > /var/tmp/no
"""


@pytest.fixture
def runsc(engine: DockerEngine) -> str:
    if "runsc" not in list_runtimes(engine):
        unavailable("The engine has no runtime 'runsc': run `scripts/setup gvisor`")
    return "runsc"


@pytest.fixture
def remote(tmp_path: Path) -> str:
    return make_remote(tmp_path / "remote", "Makefile", MAKEFILE)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def runs_under(home: Path, remote: str, runtime: str | None) -> tuple[CheckRun, ...]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("SANDBOX_")}
    with Workbench(home, environ=environ, allow_file=True) as workbench:
        return workbench.run(remote, options=VerifyOptions(runtime=runtime)).runs


@pytest.mark.usefixtures("build_image")
def test_a_call_can_ask_for_gvisor(runsc: str, home: Path, remote: str) -> None:
    build, test = runs_under(home, remote, runsc)

    assert (build.runtime, build.verdict) == (runsc, Verdict.PASSED)
    assert GVISOR_VERSION in build.stdout_tail
    if os.geteuid() == 0:
        assert any(f" {uid} " in f" {build.stdout_tail} ".replace("\n", " ") for uid in UserIds().ids)
    assert test.verdict is Verdict.FAILED  # the root file system is read-only here as well
    assert "Read-only file system" in test.stderr_tail
    assert "made" in test.stdout_tail
    assert "eth0" not in test.stdout_tail


@pytest.mark.usefixtures("build_image")
def test_control_without_asking_it_is_the_hosts_kernel(home: Path, remote: str) -> None:
    build = runs_under(home, remote, None)[0]
    assert build.runtime == "runc"
    assert GVISOR_VERSION not in build.stdout_tail


def test_a_runtime_that_the_engine_lacks_is_an_error(engine: DockerEngine) -> None:
    with pytest.raises(SandboxError, match="no runtime 'no-such-runtime'") as caught:
        require_runtime(engine, "no-such-runtime")
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert "runc" in caught.value.details
