"""What a build says before it begins: all images that it will make."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.config import ImageSettings
from sandbox.images import ImageBuildContext, build, build_all
from sandbox.images.debian import BOOTSTRAPPED
from sandbox.store.home import Home
from sandbox.store.quarantine import QuarantineNotes
from tests.unit.memory_engine import MemoryEngine


class EndOfBuildError(Exception):
    """The test has seen enough."""


@pytest.fixture
def site(tmp_path: Path) -> ImageBuildContext:
    engine = MemoryEngine(QuarantineNotes(tmp_path / "quarantine"))
    engine.add_image(BOOTSTRAPPED)
    home = Home(tmp_path / "home")
    home.prepare()
    return ImageBuildContext(engine, home, ImageSettings(), {})


def test_the_first_line_names_all_images_that_are_missing(site: ImageBuildContext) -> None:
    lines: list[str] = []
    build_all(site, ["python", "init"], lines.append)
    assert lines[0] == "missing images, which are made now: base, python, build, init"


def test_images_that_are_there_are_not_named(site: ImageBuildContext) -> None:
    build(site, "base", print)
    lines: list[str] = []
    build(site, "python", lines.append)
    assert lines[0] == "missing images, which are made now: python, build, init"
    lines.clear()
    build(site, "python", lines.append)
    assert [line for line in lines if "missing" in line] == []


def test_a_debian_that_is_missing_is_the_first_of_them(site: ImageBuildContext) -> None:
    build(site, "base", print)
    site.engine.untag_image(BOOTSTRAPPED)
    lines: list[str] = []

    def end_at_the_first(line: str) -> None:
        lines.append(line)
        raise EndOfBuildError

    with pytest.raises(EndOfBuildError):
        build(site, "base", end_at_the_first)
    assert lines == ["missing images, which are made now: Debian"]
