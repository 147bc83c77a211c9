"""An image with a Debian package on the real engine: built by the first check, without setuid, then removed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandbox.engine.connection import DockerEngine
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import Verdict
from sandbox.workbench import Workbench
from sandbox.workbench.checks.callbacks import Watch
from tests.docker.conftest import image_digest

PROFILE = """
label = "adds"
priority = 90
[image]
name = "base"
packages = ["sudo", "bc"]
[[detect.all]]
file = "sum"
[[check]]
id = "sum"
label = "bc adds, and no program is setuid"
argv = ["sh", "-c", "test $(bc < sum) = 3 && test -x /usr/bin/sudo && ! find /usr -perm /6000 | grep ."]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "sum").write_text("1 + 2\n")
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for argv in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(root), *argv], check=True, timeout=60)
    return root


def test_a_check_gets_the_packages_of_its_profile(engine: DockerEngine, project: Path, tmp_path: Path) -> None:
    image_digest(engine, "base")
    home = tmp_path / "home"
    (home / "profiles").mkdir(parents=True)
    (home / "profiles" / "adds.toml").write_text(PROFILE)
    lines: list[str] = []
    watch = Watch(lambda check, run: None, building=lines.append)
    with Workbench(home, environ=os.environ, allow_file=True) as workbench:
        before = {image.name for image in workbench.images()}
        try:
            first = workbench.run(str(project), watch=watch)
            assert [run.verdict for run in first.runs] == [Verdict.PASSED]
            assert any(line.startswith("building space-sandbox/packages:") for line in lines)
            built = [image for image in workbench.images() if image.packages == ("bc", "sudo")]
            assert [image.digest for image in built] == [first.runs[0].image_digest]
            lines.clear()
            assert workbench.run(str(project), watch=watch).verified
            assert lines == [], "it is built once"
        finally:
            for image in workbench.images():
                if image.packages and image.name not in before:
                    workbench.remove_image(image.name)
        assert not [image for image in workbench.images() if image.name not in before]


def test_a_package_that_does_not_exist_is_named_with_near_matches(engine: DockerEngine, tmp_path: Path) -> None:
    image_digest(engine, "base")
    with Workbench(tmp_path / "home", environ=os.environ) as workbench, pytest.raises(SandboxError) as caught:
        workbench.derive_image("base", ["libpngdev"], lambda line: None)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert "libpng-dev" in caught.value.details
