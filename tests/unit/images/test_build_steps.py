"""What an interrupted build leaves in the engine is known by the ids that were printed, and by no label."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from sandbox.config import ImageSettings
from sandbox.engine.image_types import Image, ImageBuild, Progress
from sandbox.errors import ErrorCode
from sandbox.images.build_steps import StepImage, build_recorded, find_step_images, remove_step_image
from sandbox.images.lookup import ImageBuildContext
from sandbox.store.home import Home
from sandbox.store.quarantine import QuarantineNotes
from sandbox.workbench import Workbench
from tests.unit.conftest import refused
from tests.unit.memory_engine import MemoryEngine

TAG = "space-sandbox/acme:0123456789ab"


class Interrupted(BaseException):
    """As Ctrl-C."""


@dataclass
class Engine(MemoryEngine):
    output: list[str] = field(default_factory=list)

    def build_image(self, request: ImageBuild, progress: Progress) -> Image:
        for line in self.output:
            progress(line)
        raise Interrupted


def add_untagged(engine: Engine, name: str) -> Image:
    image = replace(engine.add_image(name, labels={"space.sandbox.image": "base"}), tags=())
    engine.images[image.digest] = image
    return image


def id_of(image: Image) -> str:
    return image.digest.removeprefix("sha256:")[:12]


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(QuarantineNotes(tmp_path / "quarantine"))


@pytest.fixture
def site(engine: Engine, tmp_path: Path) -> ImageBuildContext:
    home = Home(tmp_path / "home")
    home.prepare()
    return ImageBuildContext(engine, home, ImageSettings(), {})


def interrupt(site: ImageBuildContext, engine: Engine, *output: str) -> None:
    engine.output = [*output]
    with pytest.raises(Interrupted):
        build_recorded(site, ImageBuild(Path("/nowhere"), TAG, {}, {}), lambda _line: None)


def test_the_image_of_a_completed_step_is_found_and_removed(site: ImageBuildContext, engine: Engine) -> None:
    base, step, foreign = (add_untagged(engine, name) for name in ("base", "step", "foreign"))
    interrupt(
        site, engine, "Step 1/3 : FROM base", f" ---> {id_of(base)}", "Step 2/3 : RUN a", f" ---> {id_of(step)}",
        "Step 3/3 : RUN b", f"see {id_of(foreign)}", f" ---> Running in {id_of(foreign)}",
    )  # fmt: skip
    assert [*find_step_images(site)] == [StepImage(step.digest, TAG)]
    assert remove_step_image(site, StepImage(step.digest, TAG))
    assert set(engine.images) == {base.digest, foreign.digest}
    assert [*find_step_images(site)] == []
    assert not remove_step_image(site, StepImage(step.digest, TAG))


def test_an_image_that_got_a_tag_or_a_container_stays(site: ImageBuildContext, engine: Engine) -> None:
    step = add_untagged(engine, "step")
    interrupt(site, engine, "Step 1/1 : RUN a", f" ---> {id_of(step)}")
    engine.containers["one"], engine.image_of["one"] = object(), step.digest  # type: ignore[assignment]  # its id counts
    with refused(ErrorCode.CONFLICT):
        remove_step_image(site, StepImage(step.digest, TAG))
    engine.containers.clear()
    engine.tag_image(step.digest, "mine:1")
    assert [*find_step_images(site)] == []
    assert not remove_step_image(site, StepImage(step.digest, TAG))
    assert step.digest in engine.images


def test_steps_of_an_earlier_build_of_the_image_are_kept_in_mind(site: ImageBuildContext, engine: Engine) -> None:
    steps = [add_untagged(engine, name) for name in ("one", "two")]
    for step in steps:
        interrupt(site, engine, "Step 1/1 : RUN a", f" ---> {id_of(step)}")
    assert {found.digest for found in find_step_images(site)} == {step.digest for step in steps}


def test_gc_removes_them_unless_a_build_runs(tmp_path: Path) -> None:
    with Workbench(tmp_path / "home") as workbench:
        services = workbench._services
        engine = Engine(QuarantineNotes(services.home.quarantine))
        vars(services)["engine"] = engine
        step = add_untagged(engine, "step")
        services.home.prepare()
        interrupt(services.image_build_context, engine, "Step 1/1 : RUN a", f" ---> {id_of(step)}")
        found = [(left.kind, left.action, left.note) for left in workbench.collect(dry_run=True).leftovers]
        assert ("image", "removed", f"left by a build of {TAG}") in found
        with services.home.locked("images"):
            assert ("image", "busy") in [(left.kind, left.action) for left in workbench.collect().leftovers]
        assert step.digest in engine.images
        workbench.collect()
        assert engine.images == {}
