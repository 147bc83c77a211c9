"""How PID 1's binary gets from its image to a path of the host, on the real engine."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import uuid
from pathlib import Path

import pytest

from sandbox.config import ImageSettings
from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.images import ImageBuildContext, SupervisorExtractor, build, ensure_supervisor, tag_of
from sandbox.policy.container import EffectiveContainerPolicy, load_container_policy
from sandbox.store.home import Home
from tests.docker.conftest import docker_api

pytestmark = pytest.mark.usefixtures("extracting")
ROOT = Path(__file__).parents[2]


def quiet(line: str) -> None:
    """A progress callback that forgets."""


@pytest.fixture(scope="module")
def policy() -> EffectiveContainerPolicy:
    return load_container_policy(ROOT / "policies")


@pytest.fixture
def site(engine: DockerEngine, tmp_path: Path) -> ImageBuildContext:
    home = Home(tmp_path / "home")
    home.prepare()
    found = ImageBuildContext(engine, home, ImageSettings(), os.environ)
    build(found, "init", quiet)
    return found


def courier() -> SupervisorExtractor:
    user = (64000, 64000) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    return SupervisorExtractor(f"sandbox-init-{uuid.uuid4().hex}", user, "runc", "test")


def nobody() -> SupervisorExtractor:
    """A courier that no engine would start: whoever needs one fails."""
    return SupervisorExtractor("NO SUCH NAME", (0, 0), "none", "")


def test_binary_is_handed_out_once_whole_and_read_only(
    site: ImageBuildContext, policy: EffectiveContainerPolicy
) -> None:
    path = ensure_supervisor(site, policy, courier())
    digest = docker_api(site.engine).inspect_image(tag_of("init"))["Id"].removeprefix("sha256:")
    assert path == site.home.root / "init" / digest / "init"
    assert stat.S_IMODE(path.stat().st_mode) == 0o555
    assert [entry.name for entry in path.parent.iterdir()] == ["init"]
    assert ensure_supervisor(site, policy, nobody()) == path


def test_hand_out_is_the_same_bytes_again(site: ImageBuildContext, policy: EffectiveContainerPolicy) -> None:
    path = ensure_supervisor(site, policy, courier())
    assert subprocess.run([path, "--hand-out"], check=True, capture_output=True, timeout=60).stdout == path.read_bytes()


@pytest.mark.parametrize("damage", ["mode", "empty", "link", "folder gone"])
def test_damaged_binary_is_made_again(site: ImageBuildContext, policy: EffectiveContainerPolicy, damage: str) -> None:
    path = ensure_supervisor(site, policy, courier())
    content = path.read_bytes()
    if damage == "mode":
        path.chmod(0o755)
    elif damage == "empty":
        path.unlink()
        path.touch(0o555)
    elif damage == "link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to("elsewhere")
    else:
        shutil.rmtree(path.parent)
    assert ensure_supervisor(site, policy, courier()).read_bytes() == content
    assert stat.S_IMODE(path.lstat().st_mode) == 0o555


def test_binaries_of_images_long_gone_are_removed(site: ImageBuildContext, policy: EffectiveContainerPolicy) -> None:
    old, recent = (site.home.supervisors / (letter * 64) for letter in "ab")
    for folder in (old, recent):
        folder.mkdir(parents=True)
        (folder / "init").touch()
    os.utime(old, (0, 0))
    path = ensure_supervisor(site, policy, courier())
    assert {entry.name for entry in site.home.supervisors.iterdir()} == {path.parent.name, recent.name}


def impostor(site: ImageBuildContext, dockerfile: str) -> str:
    """An image of another name that hands out something else; the catalogue's own stays as it is."""
    name = f"test-scratch-{uuid.uuid4().hex[:8]}"
    folder = site.home.root / "images" / name
    folder.mkdir(parents=True)
    (folder / "Dockerfile").write_text(f"ARG BASE\nFROM ${{BASE}}\nUSER 0\n{dockerfile}\nUSER 64000:64000\n")
    build(site, name, quiet)
    return name


@pytest.mark.parametrize(
    ("dockerfile", "says"),
    [
        ("RUN cp /bin/false /init", "exit code 1"),
        (r"RUN printf '#!/bin/sh\nexec cat /bin/bash\n' > /init && chmod 755 /init", "not linked statically"),
        (r"RUN printf '#!/bin/sh\nexec cat /dev/zero\n' > /init && chmod 755 /init", "bytes; a supervisor has"),
    ],
)
def test_image_that_hands_out_something_else_is_refused(
    site: ImageBuildContext, policy: EffectiveContainerPolicy, dockerfile: str, says: str
) -> None:
    name = impostor(site, dockerfile)
    try:
        with pytest.raises(SandboxError) as raised:
            ensure_supervisor(site, policy, courier(), name)
    finally:
        for tag in docker_api(site.engine).images(f"space-sandbox/{name}")[0]["RepoTags"]:
            docker_api(site.engine).remove_image(tag, force=True)
    # What else a program must be: tests/unit/images/test_supervisor.py.
    assert raised.value.code is ErrorCode.INTERNAL
    assert says in raised.value.details
    assert list(site.home.supervisors.glob("*/*")) == []


def test_missing_image_names_its_command(site: ImageBuildContext, policy: EffectiveContainerPolicy) -> None:
    name = f"test-scratch-{uuid.uuid4().hex[:8]}"
    (site.home.root / "images" / name).mkdir(parents=True)
    (site.home.root / "images" / name / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    with pytest.raises(SandboxError) as raised:
        ensure_supervisor(site, policy, nobody(), name)
    assert raised.value.code is ErrorCode.IMAGE_MISSING
    assert f"sandbox images build {name}" in raised.value.hint
