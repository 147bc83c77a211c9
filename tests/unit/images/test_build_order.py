"""Builds at the same time: each after its parent, and an error of one ends all."""

from __future__ import annotations

import threading

from sandbox.engine.image_types import Image, Progress
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images.build_order import build_in_order
from tests.unit.conftest import refused

PARENTS = {"base": "", "build": "base", "python": "base", "init": "build"}
DEADLINE_S = 30.0


def make_image(name: str) -> Image:
    return Image(name, (), 1, "", {}, (), "", has_volumes=False)


def test_what_does_not_depend_on_each_other_is_built_at_the_same_time() -> None:
    meeting = threading.Barrier(2)  # two builds that each wait for the other: in turn they would never end
    seen: list[tuple[str, str]] = []
    lines: list[str] = []

    def build(name: str, parent: Image | None, report: Progress) -> Image:
        if name in {"build", "python"}:
            meeting.wait(DEADLINE_S)
        seen.append((name, parent.digest if parent else ""))
        report("a line")
        return make_image(name)

    made = build_in_order(PARENTS, build, lines.append)
    assert {name: image.digest for name, image in made.items()} == {name: name for name in PARENTS}
    assert sorted(seen) == sorted(PARENTS.items())
    assert sorted(lines) == sorted(f"{name} | a line" for name in PARENTS)


def test_an_error_ends_the_other_builds_and_starts_no_child() -> None:
    failed = threading.Event()
    begun: list[str] = []

    def build(name: str, parent: Image | None, report: Progress) -> Image:
        begun.append(name)
        if name == "python":
            failed.set()
            raise SandboxError(ErrorCode.NETWORK_ERROR, "no network")
        if name == "build":
            failed.wait(DEADLINE_S)
            for _ in iter(int, 1):  # it has output for ever
                report("a line")
        return make_image(name)

    with refused(ErrorCode.NETWORK_ERROR):
        build_in_order(PARENTS, build, print)
    assert "init" not in begun
