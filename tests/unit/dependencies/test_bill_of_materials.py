from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from sandbox.dependencies.bill_of_materials import find_package_url, write_bill_of_materials
from sandbox.models.layers import Layer, LayerPackage

ATTRS = LayerPackage(name="Some_Package", version="1.0", file="some_package-1.0-py3-none-any.whl", sha256="1" * 64)
OTHER = LayerPackage(name="other", version="2", file="other-2-py3-none-any.whl", sha256="2" * 64)


def layer_of(*packages: LayerPackage) -> Layer:
    return Layer(
        key="a" * 64, ecosystem="python", packages=packages, image_digest="sha256:" + "3" * 64, platform="linux/amd64",
        runtime="runc", folder="f", bytes=1, files=1, built_at=datetime(2026, 1, 2, tzinfo=UTC), wall_time_s=1.0,
    )  # fmt: skip


@pytest.mark.parametrize("packages", [(), (ATTRS,), (ATTRS, OTHER, ATTRS)], ids=["none", "one", "one twice"])
def test_the_document_is_valid_and_always_the_same(packages: tuple[LayerPackage, ...]) -> None:
    """By the schema that the library brings. Control: a document without its format is not valid."""
    text = write_bill_of_materials(layer_of(*packages))
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"CycloneDX"', '"x"')) is not None
    assert write_bill_of_materials(layer_of(*packages)) == text


def test_each_archive_has_its_identifier_and_hash() -> None:
    found = json.loads(write_bill_of_materials(layer_of(ATTRS, OTHER, ATTRS)))
    assert [(c["purl"], c["hashes"][0]["content"]) for c in found["components"]] == [
        ("pkg:pypi/some-package@1.0", "1" * 64),
        ("pkg:pypi/other@2", "2" * 64),
    ]
    assert found["metadata"]["component"]["version"] == "a" * 64
    assert max(len(entry.get("dependsOn", ())) for entry in found["dependencies"]) == 2


@pytest.mark.parametrize(
    ("ecosystem", "name", "url"),
    [
        ("python", "Zope.Interface", "pkg:pypi/zope-interface@1"),
        ("node", "left-pad", "pkg:npm/left-pad@1"),
        ("node", "@types/node", "pkg:npm/%40types/node@1"),
        ("rust", "serde_json", "pkg:cargo/serde_json@1"),
        ("go", "github.com/spf13/cobra", "pkg:golang/github.com/spf13/cobra@1"),
        ("perl", "HAARG/Moo", "pkg:cpan/HAARG/Moo@1"),
    ],
)
def test_a_package_is_named_as_its_registry_does(ecosystem: str, name: str, url: str) -> None:
    assert find_package_url(ecosystem, name, "1").to_string() == url


def test_a_go_mod_without_its_module_is_no_component() -> None:
    alone = ATTRS.model_copy(update={"version": "v1.0.0/go.mod"})
    assert [c["name"] for c in json.loads(write_bill_of_materials(layer_of(alone, OTHER)))["components"]] == ["other"]


def test_the_library_is_loaded_when_a_document_is_asked_for() -> None:
    code = "import sys, sandbox.workbench.checks.layer_list; print('cyclonedx' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
