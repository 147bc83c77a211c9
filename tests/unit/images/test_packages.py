"""Images with Debian packages: found by base, list and suite; listed, removed and explained."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox.config import ImageSettings
from sandbox.engine.image_types import Image, ImageBuild, Progress
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images import ImageBuildContext, build_derived, list_derived, remove_derived, resolve_derived
from sandbox.images.packages import fingerprint_packages
from sandbox.images.unused import find_unused_images
from sandbox.store.home import Home
from sandbox.store.quarantine import QuarantineNotes
from tests.unit.conftest import refused
from tests.unit.memory_engine import MemoryEngine

BASE = "registry.example/tools:1"


@dataclass
class Engine(MemoryEngine):
    """`output`: what a build prints before it fails."""

    builds: list[ImageBuild] = field(default_factory=list)
    output: tuple[str, ...] = ()

    def build_image(self, request: ImageBuild, progress: Progress) -> Image:
        self.builds.append(request)
        for line in self.output:
            progress(line)
        if self.output:
            raise SandboxError(ErrorCode.INTERNAL, "The image could not be built")
        return super().build_image(request, progress)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = Engine(QuarantineNotes(tmp_path / "quarantine"))
    engine.add_image(BASE)
    return engine


@pytest.fixture
def site(engine: Engine, tmp_path: Path) -> ImageBuildContext:
    home = Home(tmp_path / "home")
    home.prepare()
    return ImageBuildContext(engine, home, ImageSettings(), {})


def digest_of(engine: Engine, reference: str) -> str:
    found = engine.inspect_image(reference)
    assert found is not None
    return found.digest


def test_one_image_is_built_for_each_list_in_any_order(site: ImageBuildContext, engine: Engine) -> None:
    first = build_derived(site, BASE, ["bc", "tree", "bc"], print)
    assert build_derived(site, BASE, ["tree", "bc"], print).digest == first.digest
    assert build_derived(site, BASE, ["bc"], print).digest != first.digest
    assert [build.extra_files["packages"] for build in engine.builds] == [b"bc\ntree\n", b"bc\n"]
    assert resolve_derived(site, digest_of(engine, BASE), ("bc", "tree"), BASE) == first.digest


def test_another_base_is_another_image(site: ImageBuildContext, engine: Engine) -> None:
    build_derived(site, BASE, ["bc"], print)
    other = engine.add_image("registry.example/tools:2").digest
    with refused(ErrorCode.IMAGE_MISSING) as found:
        resolve_derived(site, other, ("bc",), "registry.example/tools:2")
    assert found.value.hint == "Build it: sandbox images derive registry.example/tools:2 bc"


def test_an_image_that_only_has_the_tag_is_not_used(site: ImageBuildContext, engine: Engine) -> None:
    base = digest_of(engine, BASE)
    engine.add_image(f"space-sandbox/packages:{fingerprint_packages(base, ['bc'])[:12]}")
    with refused(ErrorCode.IMAGE_MISSING):
        resolve_derived(site, base, ("bc",), BASE)


def test_they_are_listed_and_removed_by_name(site: ImageBuildContext, engine: Engine) -> None:
    built = build_derived(site, BASE, ["tree", "bc"], print)
    assert list_derived(site) == (built,)
    assert (built.derived_from, built.packages) == (BASE, ("bc", "tree"))
    assert remove_derived(site, built.name) == built
    assert list_derived(site) == ()
    assert engine.inspect_image(BASE) is not None


@pytest.mark.parametrize("name", ["packages:000000000000", BASE, "base", "packages"])
def test_nothing_else_is_removed(site: ImageBuildContext, name: str) -> None:
    with refused(ErrorCode.NOT_FOUND):
        remove_derived(site, name)


def test_one_that_a_container_uses_is_kept(site: ImageBuildContext, engine: Engine) -> None:
    built = build_derived(site, BASE, ["bc"], print)
    engine.image_of[engine.add_container("one", {})] = str(built.digest)
    with refused(ErrorCode.CONFLICT):
        remove_derived(site, built.name)
    assert list_derived(site) == (built,)


def test_gc_takes_it_when_it_was_not_used_for_long(site: ImageBuildContext) -> None:
    built = build_derived(site, BASE, ["bc"], print)
    assert list(find_unused_images(site, (), keep_days=1)) == []
    (found,) = find_unused_images(site, (), keep_days=-1)
    assert found.digest == built.digest


@pytest.mark.parametrize(
    "name", ["", "a", "Bc", "-y", "bc-", "a b", "bc=1", "bc/sid", "bc\n", "../bc", "bc*", "a" * 101]
)
def test_what_is_no_name_of_a_package_reaches_no_build(site: ImageBuildContext, engine: Engine, name: str) -> None:
    with refused(ErrorCode.INVALID_INPUT):
        build_derived(site, BASE, [name], print)
    assert engine.builds == []


def test_a_package_that_does_not_exist_comes_with_near_matches(site: ImageBuildContext, engine: Engine) -> None:
    engine.output = (
        "Step 1/2 : ARG BASE",
        "package-layer release trixie",
        "package-layer missing libpngdev",
        *(f"package-layer similar {name}" for name in ["libpng-dev", "libpoppler-dev", "tree"]),
        "ge-layer sim",
    )
    shown: list[str] = []
    with refused(ErrorCode.INVALID_INPUT) as found:
        build_derived(site, BASE, ["libpngdev"], shown.append)
    assert found.value.brief == "Debian trixie has no package libpngdev", "the release of the image"
    assert found.value.details == "libpngdev: did you mean libpng-dev, libpoppler-dev?"
    assert not [line for line in shown if "layer" in line and not line.startswith(("building ", "not built: "))]


def test_an_image_without_apt_is_named(site: ImageBuildContext, engine: Engine) -> None:
    engine.output = ("package-layer no-apt",)
    with refused(ErrorCode.INVALID_INPUT) as found:
        build_derived(site, BASE, ["bc"], print)
    assert "has no apt" in found.value.brief


def test_another_failure_stays_what_it_is(site: ImageBuildContext, engine: Engine) -> None:
    engine.output = ("E: Unable to fetch",)
    with refused(ErrorCode.INTERNAL):
        build_derived(site, BASE, ["bc"], print)
