from __future__ import annotations

import subprocess

import pytest

from sandbox.dependencies import python_steps as steps
from sandbox.models.dependencies import LockedPackage
from sandbox.models.layers import LayerPackage
from tests.unit.dependencies.manifest_trees import read

MANIFEST = read(
    pyproject__toml="""
[build-system]
requires = ["hatchling"]
[project]
name = "p"
dependencies = ["a[x]>=1 ; python_version > '3.8'"]
[project.optional-dependencies]
test = ["b"]
""",
)


def test_each_file_of_a_fetch_asks_for_less() -> None:
    files = steps.write_fetch_files(MANIFEST, ["pytest"])
    assert files["all.in"] == b'a[x]>=1 ; python_version > "3.8"\nhatchling\nb\npytest\n'
    assert files["tests.in"] == b'a[x]>=1 ; python_version > "3.8"\nb\npytest\n'
    assert files["runtime.in"] == b'a[x]>=1 ; python_version > "3.8"\npytest\n'
    assert files["locked.txt"] == b""


def test_a_need_of_a_profile_is_held_to_the_same_rules() -> None:
    with pytest.raises(ValueError, match="option"):
        steps.write_fetch_files(MANIFEST, ["--index-url=x"])


def test_a_package_that_is_locked_twice_is_not_constrained() -> None:
    locked = tuple(LockedPackage(name=n, version=v, origin="uv.lock") for n, v in (("a", "1"), ("a", "2"), ("b", "3")))
    assert steps.write_fetch_files(MANIFEST.model_copy(update={"locked": locked}), [])["locked.txt"] == b"b==3\n"


def test_a_project_that_only_needs_its_build_back_end_needs_no_layer() -> None:
    assert steps.needs_layer(MANIFEST)
    assert not steps.needs_layer(read(pyproject__toml='[build-system]\nrequires = ["hatchling"]\n'))


@pytest.mark.parametrize("file", ["a-1.tar.gz", "a.whl", "-1-py3-none-any.whl", "a-x-py3-none-any.whl"])
def test_what_has_no_name_of_a_wheel_is_refused(file: str) -> None:
    with pytest.raises(ValueError, match="not the name of a wheel"):
        steps.describe_wheel(file, "0" * 64)


def test_an_archive_is_compared_with_the_hashes_of_the_lock_file() -> None:
    package = LayerPackage(name="a", version="1", file="a-1-py3-none-any.whl", sha256="b" * 64)

    def locked(*hashes: str) -> list[LockedPackage]:
        return [LockedPackage(name="a", version="1", hashes=hashes, origin="uv.lock")]

    assert steps.find_mismatches([package], locked(f"sha256:{'a' * 64}")) == (package.file,)
    assert steps.find_mismatches([package], locked(f"sha256:{'a' * 64}", f"sha256:{'b' * 64}")) == ()
    assert steps.find_mismatches([package], locked()) == ()


@pytest.mark.parametrize("script", [steps.STEPS.fetch.script, steps.STEPS.install.script])
def test_the_scripts_of_the_steps_can_be_parsed(script: str) -> None:
    subprocess.run(["sh", "-n"], input=script.encode(), check=True)


def test_no_build_of_a_package_can_run_in_a_fetch() -> None:
    commands = [
        line for line in steps.STEPS.fetch.script.split("\n") if "uv pip compile" in line or "pip download" in line
    ]
    assert len(commands) == 2
    assert all("--only-binary :all:" in line for line in commands)
