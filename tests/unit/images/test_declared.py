"""What a project under test says about itself is read as data, in the guest."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

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
