"""Builds of images: each runs in the group of all guests, whoever starts it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox.engine.guest_group import GuestGroup
from sandbox.engine.image_types import Image, ImageBuild, Progress
from sandbox.errors import ErrorCode
from sandbox.images.debian import BOOTSTRAPPED
from sandbox.store.quarantine import QuarantineNotes
from sandbox.workbench import Workbench
from sandbox.workbench.checks import shared_images
from sandbox.workbench.checks.guest_setup import resolve_guest_setup
from sandbox.workbench.controller import image_builds
from sandbox.workbench.controller.services import Services
from tests.unit.conftest import refused
from tests.unit.memory_engine import MemoryEngine


@dataclass
class Engine(MemoryEngine):
    builds: list[ImageBuild] = field(default_factory=list)

    def build_image(self, request: ImageBuild, progress: Progress) -> Image:
        self.builds.append(request)
        return super().build_image(request, progress)


def check(workbench: Workbench) -> None:
    """A check whose image is missing has it built."""
    services = workbench._services
    resolve_guest_setup(services, services.policies.profiles["node"], building=print)


BUILDS: dict[str, Callable[[Workbench], object]] = {
    "one": lambda bench: bench.build_image("base", print),
    "several": lambda bench: bench.build_images(["base"], print),
    "derived": lambda bench: bench.derive_image("base", ["bc"], print),
    "check": check,
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_a_build_is_in_the_group_of_guests_and_is_admitted_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Callable[[Workbench], object]
) -> None:
    monkeypatch.setattr(image_builds, "find_guest_group", lambda _services: GuestGroup("/guests"))
    for floor in (1 << 60, 0):
        with Workbench(tmp_path / f"home{floor}", settings={"disk": {"min_free_bytes": floor}}) as workbench:
            engine = Engine(QuarantineNotes(workbench._services.home.quarantine))
            engine.add_image(BOOTSTRAPPED)
            vars(workbench._services)["engine"] = engine
            if floor:
                with refused(ErrorCode.QUOTA_EXCEEDED):
                    build(workbench)
                assert engine.builds == []
            else:
                build(workbench)
                assert {request.cgroup_parent for request in engine.builds} == {"/guests"}


def test_a_check_makes_its_image_and_pid_1_in_one_build_which_it_announces(tmp_path: Path) -> None:
    lines: list[str] = []
    with Workbench(tmp_path / "home", settings={"disk": {"min_free_bytes": 0}}) as workbench:
        services = workbench._services
        engine = Engine(QuarantineNotes(services.home.quarantine))
        engine.add_image(BOOTSTRAPPED)
        vars(services)["engine"] = engine
        resolve_guest_setup(services, services.policies.profiles["python"], building=lines.append)
    assert lines[:2] == [
        "The image 'python' is missing: it is built once, with those that it needs",
        "missing images, which are made now: base, python, build, init",
    ]
    assert [line for line in lines[2:] if "missing" in line] == []


def test_a_shared_pid_1_is_taken_before_an_image_that_nobody_shares_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It brings the parents that both have. One that the engine has is not asked for."""
    asked: list[str] = []
    with Workbench(tmp_path / "home", settings={"disk": {"min_free_bytes": 0}}) as workbench:
        services = workbench._services
        engine = Engine(QuarantineNotes(services.home.quarantine))
        engine.add_image(BOOTSTRAPPED)
        vars(services)["engine"] = engine

        def take(_services: Services, name: str, progress: Progress) -> bool:
            asked.append(name)
            return name == "init" and bool(workbench.build_image(name, progress))

        monkeypatch.setattr(shared_images, "take_image", take)
        for name in ("python", "node"):
            resolve_guest_setup(services, services.policies.profiles[name], building=print)
    assert asked == ["python", "init", "node"]


def test_a_build_that_waits_for_another_process_says_so(tmp_path: Path) -> None:
    lines: list[str] = []
    with Workbench(tmp_path / "home", settings={"disk": {"min_free_bytes": 0}}) as workbench:
        home = workbench._services.home
        engine = Engine(QuarantineNotes(home.quarantine))
        engine.add_image(BOOTSTRAPPED)
        vars(workbench._services)["engine"] = engine
        with ExitStack() as held:
            held.enter_context(home.locked("images"))

            def report(line: str) -> None:
                lines.append(line)
                held.close()

            workbench.build_image("base", report)
        workbench.build_image("base", lines.append)
    assert [line for line in lines if line.startswith("waiting")] == lines[:1]
