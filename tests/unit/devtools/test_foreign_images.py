"""Images of another architecture: what the engine wrote wrongly is corrected, and the rest stays as it was."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from devtools.vm.__main__ import list_needed
from devtools.vm.architectures import PLATFORMS
from devtools.vm.foreign_images import EMULATION_NEEDS, correct_architecture, find_tags
from devtools.vm.matrix_rows import Architecture, Machine
from devtools.vm.root_disk import IMAGES, Workshop, is_own, list_packages, save_images
from sandbox.images.catalogue import TAG_PREFIX

LAYER = b"the files of a layer"


def saved_image(path: Path) -> Path:
    """As Docker 20.10 saves an image: a configuration by its hash, a layer, and a manifest that names both."""
    settings = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Labels": {"a": "b"}}}).encode()
    name = f"{hashlib.sha256(settings).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": ["x:1"], "Layers": ["1/layer.tar"]}]).encode()
    with tarfile.open(path, "w") as tar:
        for file, content in ((name, settings), ("1/layer.tar", LAYER), ("manifest.json", manifest)):
            member = tarfile.TarInfo(file)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_an_image_gets_its_architecture_and_keeps_its_labels_names_and_layers(tmp_path: Path) -> None:
    correct_architecture(saved_image(tmp_path / "a"), tmp_path / "b", Architecture.ARM64)
    with tarfile.open(tmp_path / "b") as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    (manifest,) = json.loads(files["manifest.json"])
    settings = files[manifest["Config"]]
    assert manifest == {
        "Config": f"{hashlib.sha256(settings).hexdigest()}.json",
        "RepoTags": ["x:1"],
        "Layers": ["1/layer.tar"],
    }
    assert json.loads(settings) == {"architecture": "arm64", "os": "linux", "config": {"Labels": {"a": "b"}}}
    assert files["1/layer.tar"] == LAYER
    assert len(files) == 3


def test_what_is_no_image_is_an_error(tmp_path: Path) -> None:
    tarfile.open(tmp_path / "a", "w").close()
    with pytest.raises(KeyError):
        correct_architecture(tmp_path / "a", tmp_path / "b", Architecture.ARM64)


def test_images_have_the_tags_that_the_product_looks_for() -> None:
    """By the hash of their recipes: each image has its own."""
    tags = find_tags(IMAGES)
    assert all(re.fullmatch(rf"{re.escape(TAG_PREFIX)}{name}:[0-9a-f]{{12}}", tag) for name, tag in tags.items())
    assert len({tag.rpartition(":")[2] for tag in tags.values()}) == len(IMAGES)


def test_images_of_another_architecture_are_built_once_for_their_recipes(tmp_path: Path) -> None:
    (foreign,) = (architecture for architecture in Architecture if not is_own(architecture))
    wanted = {}
    for name, tag in find_tags(IMAGES).items():
        wanted[name] = tmp_path / f"image-{foreign}-{name}-{tag.rpartition(':')[2]}.tar"
        wanted[name].touch()
    machine = Machine(cpus=1, memory_mib=1, disk_mib=1)
    assert save_images(Workshop(tmp_path, machine, {"PATH": ""}), foreign) == wanted


@pytest.mark.parametrize("architecture", Architecture)
def test_a_system_has_the_kernel_of_its_architecture(architecture: Architecture) -> None:
    packages = list_packages(PLATFORMS[architecture].kernel)
    assert [package for package in packages if package.startswith("linux-image-")] == [
        f"linux-image-cloud-{architecture}"
    ]
    assert not [package for package in packages if "{" in package]


def test_only_machines_of_another_architecture_need_an_emulator_of_programs() -> None:
    own, foreign = [a for a in Architecture if is_own(a)], [a for a in Architecture if not is_own(a)]
    assert not set(EMULATION_NEEDS) & set(list_needed(own))
    assert set(EMULATION_NEEDS) < set(list_needed([*own, *foreign[:1]]))
    assert {PLATFORMS[each].program for each in own} <= set(list_needed(own))
