"""Which image a profile's checks get, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import ErrorCode
from sandbox.store.quarantine import QuarantineNotes
from sandbox.workbench import Workbench
from sandbox.workbench.checks.guest_setup import resolve_guest_setup
from sandbox.workbench.repositories.repository_settings import choose_version
from tests.unit.conftest import refused
from tests.unit.memory_engine import MemoryEngine


@pytest.fixture
def workbench(tmp_path: Path) -> Workbench:
    made = Workbench(tmp_path / "home")
    vars(made._services)["engine"] = MemoryEngine(QuarantineNotes(made._services.home.quarantine))
    return made


@pytest.mark.parametrize("name", ["maven", "gradle"])
def test_a_java_project_without_an_image_is_told_why_and_what_to_do(workbench: Workbench, name: str) -> None:
    services = workbench._services
    profile = services.policies.profiles[name]
    with refused(ErrorCode.IMAGE_MISSING) as raised:
        resolve_guest_setup(services, profile)
    error = raised.value
    assert "one that you make" in error.brief
    assert "code that decides what to download" in error.details
    assert f"sandbox images build {name}" in error.hint

    other = profile.model_copy(update={"repository_image": "mine:1"})
    with refused(ErrorCode.IMAGE_MISSING) as raised:
        resolve_guest_setup(services, other)
    assert raised.value.brief == "The engine has no image 'mine:1'", "an image that was chosen is another matter"


@pytest.mark.parametrize(
    ("name", "files", "known"),
    [
        ("python", {"setup.cfg": b"[options]\npython_requires = >=3.99\n"}, "3.11.2 (python), 3.13.5 (python3.13)"),
        ("go", {"go.mod": b"module m\n\ngo 1.99.1\n"}, "1.19.8 (go), 1.24.4 (go1.24)"),
    ],
)
def test_a_project_for_a_version_that_no_image_has_is_told_those_there_are(
    name: str, files: dict[str, bytes], known: str, workbench: Workbench
) -> None:
    services = workbench._services
    profile = choose_version(services.policies.profiles[name], files.get)
    with refused(ErrorCode.IMAGE_MISSING) as raised:
        resolve_guest_setup(services, profile)
    error = raised.value
    assert (error.reason, known in error.details) == (f"no_{name}", True)
    assert "sandbox repo set" in error.hint

    other = profile.model_copy(update={"repository_image": "mine:1"})
    with refused(ErrorCode.IMAGE_MISSING) as raised:
        resolve_guest_setup(services, other)
    assert raised.value.brief == "The engine has no image 'mine:1'", "the operator's choice counts"
