"""What a closed gate says to do opens it, also where `verify` is answered from a cache that other homes share.

The caches, `verify` and the gate are real; guests and rooms are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.gate import DeliveryStep
from sandbox.models import Verdict
from sandbox.store.home import Home
from sandbox.workbench.checks import signed_receipts
from sandbox.workbench.checks.gate import TreeGate
from sandbox.workbench.controller.services import build_services
from tests.unit.conftest import Upstream, refused
from tests.unit.receipt_samples import Signer
from tests.unit.workbench.checks.test_verdict_ways import Ways, open_ways

P, F = Verdict.PASSED, Verdict.FAILED


@pytest.fixture
def ways(upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ways]:
    """A home without verdicts, and a shared cache with one, as another home would have added it."""
    signer = Signer()
    (tmp_path / "private.pem").write_bytes(signer.pem)
    (tmp_path / "public.pem").write_bytes(signer.public_pem)
    (tmp_path / "private.pem").chmod(0o600)
    settings = (
        f'[cache]\nurl = "{tmp_path}/shared"\n'
        f'[receipts]\nsigning_key = "{tmp_path}/private.pem"\ntrusted_keys = ["{tmp_path}/public.pem"]\n'
    )
    with open_ways(upstream, tmp_path / "home", monkeypatch, settings) as made:
        assert made.verify(P) == ("passed", False)
        assert made.verified, "void"
        (verdict,) = Home(tmp_path / "home").verdict("any").parent.glob("*.json")
        verdict.unlink()
        yield made


def hint_of(home: Ways) -> str:
    gate = TreeGate(home.desk.workbench._services, home.desk.task)
    with refused(ErrorCode.GATE_CLOSED) as caught:
        gate.require_open(DeliveryStep.READY_PR)
    return caught.value.hint


def test_a_gate_that_no_shared_verdict_opens_names_a_command_that_does(ways: Ways) -> None:
    task_id = ways.desk.task.id
    for _ in range(2):
        assert ways.verify() == ("passed", True), "void: the shared cache answers"
        assert ways.verified is False
        assert f"`sandbox verify {task_id} --no-cache`" in hint_of(ways)
        with refused(ErrorCode.GATE_CLOSED) as caught:
            signed_receipts.export_task(ways.desk.workbench._services, task_id, None)
        assert f"`sandbox verify {task_id} --no-cache`" in caught.value.hint
    assert ways.verify(P, cache=False) == ("passed", False)
    assert ways.verified


def test_what_failed_here_runs_here_without_more_words(ways: Ways) -> None:
    assert ways.verify(F, cache=False) == ("failed", False)
    assert hint_of(ways) == f"sandbox verify {ways.desk.task.id}"
    assert ways.verify(P) == ("passed", False)
    assert ways.verified


def test_a_comparison_runs_the_checks_here_without_more_words(ways: Ways) -> None:
    """No verdict of the shared cache answers it, as that has no results of tests. Control: the first test."""
    accepts = {"gate": {"accept": "no-new-failures"}}
    services = build_services(ways.desk.home, os.environ, accepts, allow_file=True)
    with refused(ErrorCode.GATE_CLOSED) as caught:
        TreeGate(services, ways.desk.task).require_open(DeliveryStep.READY_PR)
    services.close()
    assert caught.value.hint == f"sandbox verify {ways.desk.task.id} --against base"
