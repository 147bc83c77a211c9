"""Images of several recipes of one name, side by side in one engine, and which of them `gc` takes."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from sandbox import Workbench
from sandbox.config import ImageSettings
from sandbox.engine import images as engine_images
from sandbox.engine.connection import DockerEngine
from sandbox.engine.image_types import ImageBuild
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images import (
    ImageBuildContext,
    build,
    find_unused_images,
    list_images,
    remove_unused_image,
    resolve_image,
    tag_of,
)
from sandbox.images.catalogue import fingerprint_recipe, read_recipe
from sandbox.images.lookup import find_recipe_image, format_use_tag
from sandbox.store.home import Home
from sandbox.workbench.reconciling.old_images import find_old_images
from sandbox.workbench.reconciling.reconciler import Reconciler
from tests.docker.conftest import docker_api, remove_tags

KEEP_DAYS = 5
LONG_AGO = datetime.now(UTC).date() - timedelta(days=10)
"""Not so long that a `gc` of another test, with the usual days, would take it."""


def quiet(line: str) -> None:
    """A progress callback that forgets."""


def make_site(engine: DockerEngine, root: Path) -> ImageBuildContext:
    home = Home(root)
    home.prepare()
    return ImageBuildContext(engine, home, ImageSettings(), os.environ)


@pytest.fixture
def sites(engine: DockerEngine, tmp_path: Path) -> tuple[ImageBuildContext, ImageBuildContext]:
    """Two homes of one engine."""
    return make_site(engine, tmp_path / "one"), make_site(engine, tmp_path / "two")


@pytest.fixture
def scratch(engine: DockerEngine) -> Iterator[str]:
    """The name of an image that a test may build; all of them are gone afterwards."""
    name = f"test-scratch-{uuid.uuid4().hex[:8]}"
    yield name
    remove_tags(engine, name)


def write(site: ImageBuildContext, name: str, text: str) -> Path:
    folder = site.home.root / "images" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Dockerfile").write_text(f"ARG BASE\nFROM ${{BASE}}\n{text}\n")
    return folder


def forget_use(site: ImageBuildContext, name: str, day: date = LONG_AGO) -> None:
    """As if no home had used it since `day`."""
    step = find_recipe_image(site, name)
    assert step.image is not None
    site.engine.tag_image(step.image.digest, format_use_tag(step.tag, day))
    site.engine.untag_image(format_use_tag(step.tag, datetime.now(UTC).date()))


def unused_of(site: ImageBuildContext, name: str) -> list[str]:
    """Digests of the images of this name that a home would remove."""
    prefix = f"space-sandbox/{name}:"
    return [found.digest for found in find_unused_images(site, (), KEEP_DAYS) if found.name.startswith(prefix)]


def test_two_recipes_of_one_name_do_not_rebuild_each_others_image(
    sites: tuple[ImageBuildContext, ImageBuildContext], scratch: str
) -> None:
    digests = []
    for number, site in enumerate(sites):
        write(site, scratch, f"LABEL {scratch}={number}")
        digests.append(build(site, scratch, quiet).digest)
    assert digests[0] != digests[1]
    for site, digest in zip(sites, digests, strict=True):
        lines: list[str] = []
        assert resolve_image(site, scratch) == digest
        assert build(site, scratch, lines.append).digest == digest
        assert not [line for line in lines if "building" in line]
        info = next(info for info in list_images(site) if info.name == scratch)
        assert (info.digest, info.stale) == (digest, False)


def test_same_recipe_of_another_home_is_built_once(
    sites: tuple[ImageBuildContext, ImageBuildContext], scratch: str
) -> None:
    write(sites[0], scratch, f"LABEL {scratch}=1")
    digest = build(sites[0], scratch, quiet).digest
    write(sites[1], scratch, f"LABEL {scratch}=1")
    assert resolve_image(sites[1], scratch) == digest


def test_image_of_another_recipe_is_missing_and_the_command_that_is_named_makes_it(
    sites: tuple[ImageBuildContext, ImageBuildContext], scratch: str
) -> None:
    write(sites[0], scratch, f"LABEL {scratch}=1")
    build(sites[0], scratch, quiet)
    write(sites[1], scratch, f"LABEL {scratch}=2")
    with pytest.raises(SandboxError) as raised:
        resolve_image(sites[1], scratch)
    assert raised.value.code is ErrorCode.IMAGE_MISSING
    assert "another version" in raised.value.details
    assert raised.value.hint == f"Build it: sandbox images build {scratch}"
    info = next(info for info in list_images(sites[1]) if info.name == scratch)
    assert (info.present, info.stale) == (False, False)


def test_tag_that_was_moved_to_another_image_is_not_believed(
    sites: tuple[ImageBuildContext, ImageBuildContext], scratch: str
) -> None:
    write(sites[0], scratch, f"LABEL {scratch}=1")
    build(sites[0], scratch, quiet)
    tag = find_recipe_image(sites[0], scratch).tag
    base = resolve_image(sites[0], "base")
    for reference in (tag, tag_of(scratch)):
        sites[0].engine.tag_image(base, reference)
    with pytest.raises(SandboxError) as raised:
        resolve_image(sites[0], scratch)
    assert raised.value.code is ErrorCode.IMAGE_MISSING


def test_image_that_was_loaded_as_latest_alone_is_found_without_its_parent(
    sites: tuple[ImageBuildContext, ImageBuildContext], scratch: str
) -> None:
    site, child = sites[0], f"{scratch}-child"
    write(site, scratch, f"LABEL {scratch}=1")
    (write(site, child, "") / "recipe.toml").write_text(f'parent = "{scratch}"')
    digest = build(site, child, quiet).digest
    try:
        step = find_recipe_image(site, child)
        assert step.image is not None
        for name in (step.tag, format_use_tag(step.tag, datetime.now(UTC).date())):
            site.engine.untag_image(name)
        parent = find_recipe_image(site, scratch)
        for name in (parent.tag, format_use_tag(parent.tag, datetime.now(UTC).date()), tag_of(scratch)):
            site.engine.untag_image(name)
        assert resolve_image(site, child) == digest
    finally:
        for image in docker_api(site.engine).images(f"space-sandbox/{child}"):
            for name in image["RepoTags"]:
                site.engine.untag_image(name)


def make_earlier_image(site: ImageBuildContext, name: str) -> str:
    """The image as versions before docs/adr/0037 built it: named `latest` only, labelled by its parent's image."""
    folder = write(site, name, f"LABEL {name}=1")
    base = resolve_image(site, "base")
    labels = {
        "space.sandbox.recipe": fingerprint_recipe(read_recipe(folder), base),
        "space.sandbox.image": name,
        "space.sandbox.folder": name,
        "space.sandbox.parent": base,
        "space.sandbox.wheelhouse": "",
    }
    wanted = ImageBuild(folder, tag_of(name), {"BASE": base}, labels)
    return site.engine.build_image(wanted, quiet).digest


def test_image_of_an_earlier_version_is_found_and_keeps_its_place(
    sites: tuple[ImageBuildContext, ImageBuildContext], scratch: str
) -> None:
    digest = make_earlier_image(sites[0], scratch)
    assert resolve_image(sites[0], scratch) == digest
    write(sites[1], scratch, f"LABEL {scratch}=2")
    build(sites[1], scratch, quiet)  # takes `latest`
    assert resolve_image(sites[0], scratch) == digest
    write(sites[0], scratch, f"LABEL {scratch}=3")
    with pytest.raises(SandboxError):
        resolve_image(sites[0], scratch)


def test_gc_takes_what_no_home_has_used_for_long(
    sites: tuple[ImageBuildContext, ImageBuildContext], scratch: str
) -> None:
    user, other = sites
    write(user, scratch, f"LABEL {scratch}=1")
    digest = build(user, scratch, quiet).digest
    assert unused_of(other, scratch) == []  # it was built today
    forget_use(user, scratch)
    assert unused_of(other, scratch) == [digest]
    assert unused_of(user, scratch) == []  # its own recipe, whenever it was used
    resolve_image(user, scratch)
    assert unused_of(other, scratch) == []  # used today, by whichever home
    forget_use(user, scratch)
    (found,) = [each for each in find_unused_images(other, (), KEEP_DAYS) if each.digest == digest]
    assert remove_unused_image(other, found)
    assert other.engine.inspect_image(digest or "") is None
    assert not remove_unused_image(other, found)


def test_gc_keeps_what_a_container_a_child_or_another_name_needs(
    sites: tuple[ImageBuildContext, ImageBuildContext], scratch: str
) -> None:
    user, other = sites
    write(user, scratch, f"LABEL {scratch}=1")
    digest = build(user, scratch, quiet).digest or ""
    forget_use(user, scratch)
    container = docker_api(other.engine).create_container(digest, ["true"])["Id"]
    try:
        assert unused_of(other, scratch) == []
    finally:
        docker_api(other.engine).remove_container(container, force=True)
    other.engine.tag_image(digest, f"space-sandbox/{scratch}:mine")
    assert unused_of(other, scratch) == []
    other.engine.untag_image(f"space-sandbox/{scratch}:mine")
    assert unused_of(other, scratch) == [digest]
    assert digest not in {
        found.digest for found in find_unused_images(other, [digest], KEEP_DAYS)
    }  # a profile names it
    child = f"{scratch}-child"
    folder = write(user, child, "")
    (folder / "recipe.toml").write_text(f'parent = "{scratch}"')
    try:
        build(user, child, quiet)
        forget_use(user, scratch)
        assert unused_of(other, scratch) == []  # the child was used today
    finally:
        user.engine.untag_image(format_use_tag(find_recipe_image(user, child).tag, datetime.now(UTC).date()))
        user.engine.untag_image(tag_of(child))
        user.engine.untag_image(find_recipe_image(user, child).tag)


def test_gc_names_and_removes_the_images_of_a_home_that_is_gone(
    engine: DockerEngine, sites: tuple[ImageBuildContext, ImageBuildContext], scratch: str, tmp_path: Path
) -> None:
    write(sites[0], scratch, f"LABEL {scratch}=1")
    digest = build(sites[0], scratch, quiet).digest or ""
    tag = find_recipe_image(sites[0], scratch).tag
    forget_use(sites[0], scratch)
    shutil.rmtree(sites[0].home.root)
    with Workbench(tmp_path / "third", settings={"images": {"keep_days": KEEP_DAYS}}) as workbench:
        services = workbench._services
        services.home.instance_id  # noqa: B018 - a home that has had guests
        named = [left for left in workbench.collect(dry_run=True).leftovers if left.name == tag]
        assert [(left.kind, left.note) for left in named] == [("image", f"no home has used it since {LONG_AGO}")]
        assert engine_images.inspect(engine, digest) is not None
        # Not by `collect`: the engine may hold other images that are as old, and they are not the test's.
        (finding,) = [found for found in find_old_images(Reconciler(services)) if found.name == tag]
        assert finding.remedy is not None
        assert finding.remedy() == ""
        assert engine_images.inspect(engine, digest) is None
        assert finding.remedy() is None


def test_broken_image_folders_are_listed_and_hide_no_other(
    sites: tuple[ImageBuildContext, ImageBuildContext], scratch: str
) -> None:
    site = sites[0]
    for name, recipe in (("no-parent", 'parent = "gone"'), ("damaged", "not toml")):
        (write(site, name, "") / "recipe.toml").write_text(recipe)
    (write(site, "a-link", "") / "linked").symlink_to("/etc/passwd")
    listed = {info.name: info for info in list_images(site)}
    assert {name for name, info in listed.items() if info.problem} == {"no-parent", "damaged", "a-link"}
    assert "'gone', which does not exist" in listed["no-parent"].problem
    assert "recipe.toml" in listed["damaged"].problem
    assert listed["base"].present
    assert resolve_image(site, "base") == listed["base"].digest
