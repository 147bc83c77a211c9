"""Images from one engine to another: with the same ids, all or none, and never under a name that is not theirs."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.config import ImageSettings
from sandbox.errors import ErrorCode
from sandbox.images import ImageBuildContext, build, export_images, import_images, list_images
from sandbox.images.catalogue import tag_of
from sandbox.images.debian import BOOTSTRAPPED
from sandbox.images.lookup import NAME_LABEL
from sandbox.models import ImageArchive
from sandbox.store.home import Home
from sandbox.store.quarantine import QuarantineNotes
from tests.unit.conftest import refused
from tests.unit.memory_engine import MemoryEngine

NAMES = ("base", "build", "init", "python")
Change = Callable[[dict[str, bytes]], None]


def quiet(line: str) -> None:
    """A progress callback that forgets."""


def make_site(root: Path, store_name: str = "") -> tuple[ImageBuildContext, MemoryEngine]:
    """A home of its own, with an engine of its own that has no image."""
    home = Home(root)
    home.prepare()
    engine = MemoryEngine(QuarantineNotes(home.quarantine), store_name=store_name)
    return ImageBuildContext(engine, home, ImageSettings(), {}), engine


def digests(site: ImageBuildContext) -> dict[str, str | None]:
    return {image.name: image.digest for image in list_images(site) if image.present}


@pytest.fixture
def here(tmp_path: Path) -> ImageBuildContext:
    site, engine = make_site(tmp_path / "here")
    engine.import_image(io.BytesIO(b"debian"), BOOTSTRAPPED, {NAME_LABEL: "debian"})
    build(site, "python", quiet)
    return site


@pytest.fixture
def archive(here: ImageBuildContext, tmp_path: Path) -> ImageArchive:
    return export_images(here, tmp_path / "images.tar", (), quiet)


def test_a_second_host_has_the_same_images_with_the_same_ids(
    here: ImageBuildContext, archive: ImageArchive, tmp_path: Path
) -> None:
    there, engine = make_site(tmp_path / "there")
    done = import_images(there, archive.path, quiet, expected=archive.digest)
    assert digests(there) == digests(here)
    assert set(digests(there)) == set(NAMES)
    assert all(image.loaded and image.usable for image in done.images)
    before = dict(engine.images)
    again = import_images(there, archive.path, quiet)
    assert not any(image.loaded for image in again.images)
    assert {**engine.images} == before
    lines: list[str] = []
    build(there, "python", lines.append)
    assert not [line for line in lines if line.startswith("building")]


def test_exports_of_the_same_images_have_one_digest(here: ImageBuildContext, archive: ImageArchive) -> None:
    other = export_images(here, archive.path.with_name("other.tar"), NAMES, quiet)
    assert other.digest == archive.digest
    small = export_images(here, archive.path.with_name("small.tar"), ("python",), quiet)
    assert [image.tag.partition(":")[0].rpartition("/")[2] for image in small.images] == [
        "base",
        "debian",
        "init",
        "python",
    ]


def test_a_store_with_other_ids_finds_the_images_current(archive: ImageArchive, tmp_path: Path) -> None:
    """What an image was built on is known by its files there."""
    there, engine = make_site(tmp_path / "there", store_name="other")
    import_images(there, archive.path, quiet)
    assert all(not image.stale for image in list_images(there))
    engine.import_image(io.BytesIO(b"newer debian"), BOOTSTRAPPED, {NAME_LABEL: "debian"})
    stale = {image.name for image in list_images(there) if image.stale}
    assert stale == set(NAMES), "control: another Debian is noticed"


def test_a_name_that_another_image_has_is_taken_only_on_demand(archive: ImageArchive, tmp_path: Path) -> None:
    there, engine = make_site(tmp_path / "there")
    engine.import_image(io.BytesIO(b"another debian"), BOOTSTRAPPED, {NAME_LABEL: "debian"})
    build(there, "base", quiet)
    before = dict(engine.images)
    with refused(ErrorCode.CONFLICT):
        import_images(there, archive.path, quiet)
    assert engine.images == before
    done = import_images(there, archive.path, quiet, replace=True)
    assert {image.digest for image in done.images} >= {*filter(None, digests(there).values())}
    assert not any("-used-" in tag and len(image.tags) == 1 for image in engine.images.values() for tag in image.tags)


def test_a_failure_while_names_move_leaves_everything_as_it_was(archive: ImageArchive, tmp_path: Path) -> None:
    there, engine = make_site(tmp_path / "there")
    engine.refused_tag = tag_of("python")
    with refused(ErrorCode.INTERNAL):
        import_images(there, archive.path, quiet)
    assert engine.images == {}


def test_an_export_never_overwrites_and_leaves_no_part(here: ImageBuildContext, tmp_path: Path) -> None:
    path = tmp_path / "archives" / "images.tar"
    path.parent.mkdir()
    with refused(ErrorCode.IMAGE_MISSING):
        export_images(here, path, ("python", "go"), quiet)
    assert [*path.parent.iterdir()] == []
    path.write_bytes(b"mine")
    with refused(ErrorCode.CONFLICT):
        export_images(here, path, (), quiet)
    assert path.read_bytes() == b"mine"
