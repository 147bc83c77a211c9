from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import ErrorCode
from sandbox.models import Actor
from sandbox.workbench import Watch, Workbench
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.checks.layers import TreeOfCommit, add_layers
from tests.unit.conftest import refused

SETUP = GuestSetup("sha256:" + "0" * 64, "runc")
TREE: Any = TreeOfCommit(None, "0" * 40, "0" * 40, "local-1")  # type: ignore[arg-type]  # nothing of it is read
LOGIN = {"PIP_INDEX_URL": "https://me:hunter2@registry.test/simple"}


def add(home: Path, fetch: str, actor: Actor = Actor.CLI) -> GuestSetup:
    environ, settings = {"HOME": str(home), **LOGIN}, {"layers": {"fetch": fetch}}
    with Workbench(home / "home", environ=environ, settings=settings, actor=actor) as workbench:
        services = workbench._services
        return add_layers(services, SETUP, services.policies.profiles["python"], TREE, Watch())


def test_a_registry_that_needs_a_password_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with refused(ErrorCode.INVALID_INPUT) as raised:
        add(tmp_path, "auto")
    error = raised.value
    assert "hunter2" not in error.brief + error.details + error.hint
    assert "a mirror of yours" in error.hint


@pytest.mark.parametrize(("fetch", "actor"), [("never", Actor.CLI), ("auto", Actor.AGENT)], ids=["never", "agent"])
def test_it_does_no_harm_where_nothing_is_fetched(tmp_path: Path, fetch: str, actor: Actor) -> None:
    assert add(tmp_path, fetch, actor) == SETUP
