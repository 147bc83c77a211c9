"""What a project under test says about itself is read as data, in the guest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from sandbox.dependencies import pipfile, pyproject, requirement_files
from sandbox.dependencies.collection import Collection
from sandbox.dependencies.pipfile import read_pipfile
from sandbox.dependencies.python_manifest import MANIFESTS
from sandbox.dependencies.requirement_files import read_requirement_file
from sandbox.dependencies.test_environments import read_tox
from sandbox.models.dependencies import RequirementRole

BUILT = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'


@pytest.fixture(name="program")
def load_program(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program, as a check starts it."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "images" / "python"))
    yield import_module("declared")
    sys.modules.pop("declared")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[project]\nname = "x"\n', ["pyproject.toml has no [build-system]"]),
        (f"{BUILT}[tool.poetry]\npackage-mode = false\n", ["[tool.poetry] says package-mode = false"]),
        (f"{BUILT}[tool.uv]\npackage = false\n", ["[tool.uv] says package = false"]),
        (f"{BUILT}[tool.pdm]\ndistribution = false\n", ["[tool.pdm] says distribution = false"]),
        (BUILT, []),
        (f"{BUILT}[tool.uv]\npackage = true\n", []),
    ],
)
def test_a_project_that_need_not_be_built_says_why(
    text: str, why: list[str], program: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert program.application(tmp_path / "pyproject.toml") == why


def test_a_project_with_a_setup_py_is_built(program: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup()\n")
    assert program.application(tmp_path / "pyproject.toml") == []


def test_packages_of_a_workspace_are_those_of_its_patterns_and_of_paths_in_the_tree(
    program: ModuleType, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    texts = {
        ".": '[tool.uv.workspace]\nmembers = ["libs/*", "plain", "."]\nexclude = ["libs/old"]\n'
        '[tool.uv.sources]\nout = {path = "../out"}\none = [{workspace = true}, {path = "by/path"}]\n'
        '[tool.poetry.dependencies]\npython = "^3"\nfile = {path = "x.whl"}\n[tool.poetry.group.dev.dependencies]\n'
        'help = {path = "help", develop = true}\n',
        "libs/one": '[tool.uv.sources]\nroot = {path = "../.."}\nmore = {path = "../../more"}\n',
        "libs/old": "", "libs/.hidden": "", "libs/node_modules": "", "plain": "", "by/path": "", "more": "", "help": "",
        "../out": "",
    }  # fmt: skip
    for folder, text in texts.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "pyproject.toml").write_text(text)
    (root / "libs/empty").mkdir()
    assert program.members(root) == ["libs/one", "plain", "by/path", "help", "more"]


def test_folders_that_requirements_files_name_are_those_that_the_host_reads(
    program: ModuleType, tmp_path: Path
) -> None:
    """Controls: a file of another name is not read, and what is outside or no package is no member."""
    names = ("libs/one", "libs/old", "libs/help", "requirements/near", "libs/docs", "../out")
    texts = {
        "requirements.txt": "-e .\n-e ./libs/one[fast]  # ours\nlibs/old/\nplain\n-e ../out\n-e ./libs/none\n",
        "requirements/test.in": "--editable=libs/help\n-r more.txt\n-r ../../out.txt\n",
        "requirements/more.txt": "file:near\n-r test.in\n",
        "requirements-docs.txt": "-e ./libs/docs\n",
        **{f"{name}/{file}": "" for name, file in zip(names, program.MANIFESTS_OF_FOLDERS * 2, strict=True)},
    }
    root = tmp_path / "root"
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text or " ")
    assert program.members(root) == ["libs/one", "libs/old", "libs/help", "requirements/near"]
    collection = Collection(lambda name: (root / name).read_bytes() if (root / name).is_file() else None)
    for name in ("requirements.txt", "requirements/test.in"):
        read_requirement_file(collection, name, RequirementRole.RUNTIME)
    assert [named.folder for named in collection.named_folders] == program.members(root)


@pytest.mark.parametrize("place", ["tox.ini", "setup.cfg", "pyproject.toml", "tox.toml", "tables"])
def test_folders_that_tox_names_are_those_that_the_host_reads(place: str, program: ModuleType, tmp_path: Path) -> None:
    """Also those that it takes from other sections: tables have none."""
    lines = ["-e .", "-e ./libs/one[fast]", "{toxinidir}/libs/two", "-r{toxinidir}/more.txt", "-e ../out", "plain"]
    first, last = (json.dumps(found) for found in (lines[:3], lines[3:]))
    sections = "[core]\ndeps =\n  {}\n[testenv]\ndeps =\n  {}\n  {{[core]deps}}\n".format(
        lines[2], "\n  ".join(lines[:2])
    )
    sections += "[testenv:tests]\ndeps =\n  {}\n[testenv:docs]\ndeps = -e docs\n".format(
        "\n  ".join([*lines[3:], "unit: -e libs/four"])
    )
    tables = '[{0}env_run_base]\ndeps = {1}\n[{0}env.tests]\ndeps = {2}\n[{0}env.docs]\ndeps = ["-e docs"]\n'
    four = f'{last[:-1]}, "-e libs/four"]'
    files = {
        "tox.ini": ("tox.ini", sections),
        "setup.cfg": ("setup.cfg", sections),
        "pyproject.toml": ("pyproject.toml", f"[tool.tox]\nlegacy_tox_ini = {json.dumps(sections)}\n"),
        "tox.toml": ("tox.toml", tables.format("", first, four)),
        "tables": ("pyproject.toml", tables.format("tool.tox.", first, four)),
    }
    root = tmp_path / "root"
    texts = dict([files[place]]) | {"more.txt": "-e libs/three\n"}
    for folder in ("libs/one", "libs/two", "libs/three", "libs/four", "docs", "../out"):
        texts[f"{folder}/pyproject.toml"] = f'[project]\nname = "{Path(folder).name}"\n'
    write(root, texts)
    found = {"libs/one", "libs/two", "libs/three", "libs/four"}
    assert set(program.members(root)) == found
    collection = Collection(lambda name: (root / name).read_bytes() if (root / name).is_file() else None)
    read_tox(collection)
    assert {named.folder for named in collection.named_folders} == found
    assert [entry.text for entry in collection.refused] == ["-e ../out"]
    assert [required.name for required in collection.requirements] == ["plain"]


def test_folders_that_a_pipfile_names_are_those_that_the_host_reads(program: ModuleType, tmp_path: Path) -> None:
    root = tmp_path / "root"
    text = (
        '[packages]\nme = {path = ".", editable = true}\none = {path = "./libs/one", extras = ["fast"]}\n'
        'out = {path = "../out"}\nfile = {path = "x.whl"}\n[dev-packages]\ntwo = {path = "libs/two", editable = true}\n'
        '[docs]\ndocs = {path = "docs"}\n[pipenv]\npath = "docs"\n'
    )
    folders = ("libs/one", "libs/two", "docs", "../out")
    write(root, {"Pipfile": text, **{f"{folder}/setup.cfg": "[metadata]\nname = x\n" for folder in folders}})
    assert program.members(root) == ["libs/one", "libs/two"]
    collection = Collection(lambda name: (root / name).read_bytes() if (root / name).is_file() else None)
    read_pipfile(collection)
    assert [named.folder for named in collection.named_folders] == ["libs/one", "libs/two"]
    assert [named.extras for named in collection.named_folders] == [("fast",), ()]
    assert [entry.text for entry in collection.refused] == ["out", "file"]


@pytest.mark.parametrize(
    "texts",
    [
        {"tox.toml": '[env]\ntest = "x"\nlint = 1\n[env_run_base]\ndeps = 5\n'},
        {"pyproject.toml": "[tool]\ntox = 3\n"},
        {"Pipfile": f'[packages]\nlong = {{path = "{"x" * 300}"}}\nodd = {{path = 3}}\n'},
        {"tox.ini": "deps without a section"},
    ],
    ids=["tables", "no-table", "long", "no-section"],
)
def test_tables_of_another_shape_take_no_other_folder_away(
    texts: Mapping[str, str], program: ModuleType, tmp_path: Path
) -> None:
    write(tmp_path, {"requirements.txt": "./one\n", "one/setup.py": "", **texts})
    assert program.members(tmp_path) == ["one"]


def write(root: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_the_guest_reads_the_requirements_files_that_the_host_reads(program: ModuleType) -> None:
    assert pyproject.TEST_NAMES == program.LISTS_FOR_TESTS
    assert {*pipfile._ROLES, *pyproject.TEST_NAMES, *pyproject.DEVELOPMENT_NAMES} == program.LISTS_OF_PIPFILE
    assert requirement_files.LOCAL == program.LOCAL
    assert requirement_files.MANIFESTS_OF_FOLDERS == program.MANIFESTS_OF_FOLDERS
    read = [name for name in MANIFESTS if name.endswith((".txt", ".in"))]
    assert all(re.fullmatch(program.REQUIREMENTS, name) for name in read), read
    assert not re.fullmatch(program.REQUIREMENTS, "requirements-docs.txt")


def test_extensions_stand_beside_their_sources_and_what_the_project_brings_stays(
    program: ModuleType, tmp_path: Path
) -> None:
    """One that a killed check left is replaced. Nothing is put where the tree has no package, nor what a commit would
    take.
    """
    one, own = "a.cpython-311-x86_64-linux-gnu.so", "own.abi3.so"
    wheel = tmp_path / "p.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (f"p/{one}", f"p/{own}", "p/c.so", "p/code.py", "elsewhere/b.abi3.so", "top.abi3.so"):
            archive.writestr(name, "first")
    (tmp_path / "p").mkdir()
    (tmp_path / f"p/{own}").write_text("own")
    assert list(program.extensions(wheel, tmp_path)) == [f"p/{one}"]
    (tmp_path / f"p/{one}").write_text("left")
    os.utime(tmp_path / f"p/{one}", (program.PLACED_AT, program.PLACED_AT))
    assert list(program.extensions(wheel, tmp_path)) == [f"p/{one}"]
    assert {path.name: path.read_text() for path in (tmp_path / "p").iterdir()} == {one: "first", own: "own"}


@pytest.mark.parametrize(
    ("ignored", "placed"),
    [
        ("# x\nsrc/*/_version.py\n", ["src/p/_version.py"]),
        ("_version.py", ["src/p/_version.py"]),
        ("**/_version.py", ["src/p/_version.py"]),
        ("/src/p/_version.py", ["src/p/_version.py"]),
        ("/_version.py", []),
        ("_version.py\n!src/p/_version.py", []),
        ("*\n!src/\n!src/**\n", []),
        ("other.py", []),
        ("", []),
    ],
    ids=[
        "pattern",
        "name",
        "anywhere",
        "path",
        "only at the top",
        "not that one",
        "not that folder",
        "another",
        "none",
    ],
)
def test_a_module_that_the_build_makes_stands_beside_the_sources_if_no_commit_takes_it(
    ignored: str, placed: list[str], program: ModuleType, tmp_path: Path
) -> None:
    """As after the build of a version tool in the tree. One that the project has stays."""
    wheel, folder = tmp_path / "p.whl", tmp_path / "src/p"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("p/_version.py", "p/code.py", "p-1.dist-info/METADATA", "q/_version.py"):
            archive.writestr(name, "built")
    folder.mkdir(parents=True)
    (folder / "code.py").write_text("own")
    (tmp_path / ".gitignore").write_text(ignored)
    assert list(program.extensions(wheel, tmp_path)) == placed
    assert (folder / "_version.py").exists() is bool(placed)
    assert (folder / "code.py").read_text() == "own"


def test_a_description_that_is_no_toml_is_named_with_the_place(program: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    assert list(program.syntax(path)) == []
    path.write_text("[project]\n")
    assert list(program.syntax(path)) == []
    path.write_text("[project\n")
    (said,) = program.syntax(path)
    assert said.startswith("line 1, column 9: Expected")


def test_an_extension_stands_beside_sources_in_a_folder_of_their_own(program: ModuleType, tmp_path: Path) -> None:
    """Tests inside the package find it there, and so do settings such as `pythonpath = src` of pytest."""
    wheel = tmp_path / "p.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("p/inner/a.abi3.so", "whole")
    (tmp_path / "src/p/inner").mkdir(parents=True)
    assert list(program.extensions(wheel, tmp_path)) == ["src/p/inner/a.abi3.so"]
    assert (tmp_path / "src/p/inner/a.abi3.so").read_text() == "whole"


def test_an_extension_appears_whole_or_not_at_all_and_those_before_it_are_named(
    program: ModuleType, tmp_path: Path
) -> None:
    """As on a full disk: a file may have five bytes."""
    wheel, folder = tmp_path / "p.whl", tmp_path / "p"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("p/a.abi3.so", "whole")
        archive.writestr("p/b.abi3.so", "too long for it")
    folder.mkdir()
    argv = [sys.executable, str(program.__file__), "extensions", str(wheel), str(tmp_path)]
    limited = ["prlimit", f"--fsize={len('whole')}", *argv]
    done = subprocess.run(limited, capture_output=True, text=True, env={"PYTHONDONTWRITEBYTECODE": "1"}, check=False)
    assert (done.returncode, done.stdout) == (1, "p/a.abi3.so\n"), done.stderr
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"a.abi3.so": "whole"}
