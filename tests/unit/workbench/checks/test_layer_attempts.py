from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import ErrorCode, SandboxError
from sandbox.workbench import Watch, Workbench
from sandbox.workbench.checks.layer_attempts import attempt
from tests.unit.conftest import refused

REQUEST = "a" * 64


def test_an_error_that_is_told_again_keeps_its_reason(tmp_path: Path) -> None:
    error = SandboxError(ErrorCode.NETWORK_ERROR, "no", hint="wait", reason="registry_forbidden")
    with Workbench(tmp_path / "home", environ={"HOME": str(tmp_path)}) as workbench:
        home = workbench._services.home
        with refused(ErrorCode.NETWORK_ERROR), attempt(home, REQUEST, Watch(), retry=False):
            raise error
        with refused(ErrorCode.NETWORK_ERROR) as raised, attempt(home, REQUEST, Watch(), retry=False):
            pytest.fail("it is not attempted")
    assert raised.value.reason == error.reason
    assert "s ago)" in raised.value.brief
