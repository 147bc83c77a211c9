"""The runtime of a check: the call's, the profile's or the settings'; one that lacks is an error before all else."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.engine.protocol import ContainerEngine
from sandbox.engine.runtimes import require_runtime
from sandbox.errors import ErrorCode, SandboxError
from sandbox.store.quarantine import QuarantineNotes
from sandbox.workbench.controller.runtimes import choose_runtime
from sandbox.workbench.controller.services import Services, build_services
from tests.unit.memory_engine import MemoryEngine


def engine(*runtimes: str) -> ContainerEngine:
    facts = {"Runtimes": {name: {"path": name} for name in runtimes}}
    return MemoryEngine(QuarantineNotes(Path("/nonexistent")), facts)


PODMAN = {"BuildahVersion": "1.43.1", "Runtimes": {"crun": {"path": "/usr/bin/crun"}}}


@pytest.fixture
def services(tmp_path: Path) -> Services:
    settings = {"profiles": {"make": {"runtime": "runsc"}}}
    made = build_services(tmp_path / "home", {}, settings, allow_file=True)
    made.__dict__["engine"] = engine("runc", "runsc")
    return made


def test_profile_goes_before_the_settings_and_the_call_before_both(services: Services) -> None:
    assert choose_runtime(services) == "runc"
    assert choose_runtime(services, "python") == "runc"
    assert choose_runtime(services, "make") == "runsc"
    assert choose_runtime(services.with_runtime("runc"), "make") == "runc"
    assert choose_runtime(services.with_runtime("runsc"), "python") == "runsc"


def test_a_call_that_asks_for_nothing_changes_nothing(services: Services) -> None:
    assert services.with_runtime(None) is services


def test_a_call_uses_the_same_connection_and_presence(services: Services) -> None:
    twin = services.with_runtime("runsc")
    assert twin.engine is services.engine
    assert twin.presence is services.presence
    services.close()


def test_a_runtime_that_the_policy_does_not_list_is_refused(services: Services) -> None:
    with pytest.raises(SandboxError, match="does not allow the runtime 'kata'") as caught:
        choose_runtime(services.with_runtime("kata"))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_a_runtime_that_the_engine_lacks_is_an_error_with_the_list_of_what_it_has() -> None:
    require_runtime(engine("crun", "runsc"), "runsc")
    with pytest.raises(SandboxError, match="no runtime 'runsc'") as caught:
        require_runtime(engine("runc", "crun"), "runsc")
    assert caught.value.code is ErrorCode.ENGINE_UNAVAILABLE
    assert "crun, runc" in caught.value.details


def test_the_default_is_not_asked_for() -> None:
    require_runtime(engine(), "runc")


def test_a_product_that_chooses_the_runtime_itself_is_asked_for_the_default_too() -> None:
    require_runtime(engine("runc"), "runc", is_given=False)
    with pytest.raises(SandboxError, match="no runtime 'runc'") as caught:
        require_runtime(MemoryEngine(QuarantineNotes(Path("/nonexistent")), PODMAN), "runc", is_given=False)
    assert (caught.value.code, "containers.conf" in caught.value.hint) == (ErrorCode.ENGINE_UNAVAILABLE, True)
