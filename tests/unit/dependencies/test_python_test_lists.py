"""Lists of a Python project that are for its tests, though their names do not say so, and what its build needs."""

from __future__ import annotations

import pytest

from sandbox.dependencies.python_manifest import select_requirements
from sandbox.models.dependencies import RequirementRole as Role
from tests.unit.dependencies.manifest_trees import names, read

PROJECT = '[project]\nname = "a"\nversion = "1"\n'
LINTERS = '[dependency-groups]\ndev = ["ruff", "pre-commit"]\n'
EXTRA_LINTERS = '[project.optional-dependencies]\ndev = ["ruff", "black>=24"]\n'
UNNAMED = {
    "group": '[dependency-groups]\nunit = ["pytest", "responses"]\n',
    "poetry": '[tool.poetry.group.unit.dependencies]\npytest = "^8"\nresponses = "*"\n',
    "pdm": '[tool.pdm.dev-dependencies]\nunit = ["pytest", "responses"]\n',
    "hatch": '[tool.hatch.envs.unit]\ndependencies = ["pytest"]\nextra-dependencies = ["responses"]\n',
}
OTHERS = {
    "poetry": '[tool.poetry.group.qa.dependencies]\nruff = "*"\n',
    "pdm": '[tool.pdm.dev-dependencies]\nqa = ["ruff"]\n',
    "hatch": '[tool.hatch.envs.qa]\ndependencies = ["ruff"]\n',
}


@pytest.mark.parametrize("text", UNNAMED.values(), ids=UNNAMED)
def test_a_list_that_holds_pytest_counts_whatever_tool_it_is_of(text: str) -> None:
    assert names(read(pyproject__toml=PROJECT + text), Role.DEVELOPMENT) == ["pytest", "responses"]


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_a_list_without_a_test_tool_does_not_count(text: str) -> None:
    assert read(pyproject__toml=PROJECT + text).requirements == ()


@pytest.mark.parametrize("text", UNNAMED.values(), ids=UNNAMED)
def test_a_list_that_holds_pytest_does_not_count_beside_one_for_tests(text: str) -> None:
    named = text + '[project.optional-dependencies]\ntests = ["hypothesis"]\n'
    assert [found.name for found in read(pyproject__toml=PROJECT + named).requirements] == ["hypothesis"]


ELSEWHERE = (
    '[tool.poetry.group.unit.dependencies]\npython = "^3.9"\npytest = "^8"\n'
    'held = { version = "1", source = "private" }\n'
    'tagged = { git = "https://e.test/a/b" }\nbeside = { path = "../x", develop = true }\n'
    'wheel = { url = "https://e.test/x.whl" }\n'
)
UNIT = [text for name, text in UNNAMED.items() if name != "group"]


def test_what_a_list_of_poetry_takes_from_elsewhere_is_refused_by_name() -> None:
    """Its reason was taken for its name, and a registry was asked for a package `url`."""
    found = read(pyproject__toml=PROJECT + ELSEWHERE)
    assert [one.name for one in found.requirements] == ["pytest"]
    assert [(one.text.split()[0], one.reason.value) for one in found.refused] == [
        ("held", "option"),
        ("tagged", "version_control"),
        ("beside", "path"),
        ("wheel", "url"),
    ]


@pytest.mark.parametrize("text", UNIT)
@pytest.mark.parametrize("table", ["poetry.source", "pdm.source", "uv.index"])
def test_a_list_with_any_name_counts_only_where_no_other_index_could_be_meant(text: str, table: str) -> None:
    """Control: the public one, and one for the packages that name it."""
    source = text + f'[[tool.{table}]]\nname = "own"\nurl = "https://e.test/simple"\n'
    assert read(pyproject__toml=PROJECT + source).requirements == ()
    explicit = 'priority = "explicit"\n' if table == "poetry.source" else "explicit = true\n"
    for usual in (source.replace("e.test", "pypi.org"), source + explicit):
        assert names(read(pyproject__toml=PROJECT + usual), Role.DEVELOPMENT) == ["pytest", "responses"]


def test_where_another_index_is_named_a_list_of_linters_counts_and_hatchs_own_file_does_not() -> None:
    index = '[[tool.uv.index]]\nname = "own"\nurl = "https://e.test/simple"\n'
    group = LINTERS + 'unit = ["pytest", "responses"]\n'
    hatch = '[envs.test]\ndependencies = ["pytest"]\n[build.hooks.own]\ndependencies = ["cython"]\n'
    found = read(pyproject__toml=PROJECT + group + index, hatch__toml=hatch)
    assert [one.name for one in found.requirements] == ["ruff", "pre-commit"]


def test_a_list_of_linters_hides_no_list_that_holds_pytest() -> None:
    """None of them is fetched. Control: one that has something else, too, does."""
    group = LINTERS + 'unit = ["pytest", "responses"]\n'
    found = select_requirements(read(pyproject__toml=PROJECT + group))
    assert names(found, Role.DEVELOPMENT) == ["pytest", "responses"]
    found = select_requirements(read(pyproject__toml=PROJECT + EXTRA_LINTERS + 'unit = ["pytest", "responses"]\n'))
    assert names(found, Role.DEVELOPMENT) == ["pytest", "responses"]
    for lists in (group, EXTRA_LINTERS + 'unit = ["pytest"]\n'):
        found = select_requirements(read(pyproject__toml=PROJECT + lists.replace('"ruff"', '"ruff", "attrs"')))
        assert names(found, Role.DEVELOPMENT) == ["attrs"]


def test_a_session_of_nox_that_is_run_is_read() -> None:
    """As images/python/run_tests.py names them."""
    session = 'def {}(session):\n    session.install("httpx")\n'
    for name in ("unit_tests", "unit_test", "unittest", "tests", "testing"):
        assert names(read(noxfile__py=session.format(name)), Role.TEST) == ["httpx"], name
    assert read(noxfile__py=session.format("docs")).requirements == ()


@pytest.mark.parametrize("argument", ["-e.[io]", "--editable=.[io]", "-e", ".[io]"])
def test_extras_of_the_project_that_nox_installs_are_selected(argument: str) -> None:
    words = ["-e", ".[io]"] if argument == "-e" else [argument]
    session = f"def tests(session):\n    session.install({', '.join(map(repr, words))})\n"
    extra = PROJECT + '[project.optional-dependencies]\nio = ["msgspec"]\n'
    assert names(read(pyproject__toml=extra, noxfile__py=session), Role.TEST) == ["msgspec"]


HATCH = (
    '[envs.hatch-test]\nextra-dependencies = ["filelock"]\ndependency-groups = ["more"]\n'
    '[envs.default]\ndependencies = ["pytest-mock"]\n'
    '[build.hooks.jupyter-builder]\ndependencies = ["hatch-jupyter-builder>=0.5"]\n'
    '[build.targets.wheel.hooks.mypyc]\ndependencies = ["hatch-mypyc", "mypy"]\n'
    '[build.targets.sdist.hooks.other]\ndependencies = ["other"]\n'
)


@pytest.mark.parametrize("file", ["hatch.toml", "pyproject.toml"])
def test_environments_and_build_hooks_of_hatch_are_read_from_both_files(file: str) -> None:
    groups = PROJECT + '[dependency-groups]\nmore = ["attrs"]\n'
    files = {"pyproject__toml": groups, "hatch__toml": HATCH}
    if file == "pyproject.toml":
        files = {
            "pyproject__toml": groups + HATCH.replace("\n[", "\n[tool.hatch.").replace("[envs", "[tool.hatch.envs", 1)
        }
    found = read(**files)
    assert names(found, Role.TEST) == ["filelock", "attrs"]
    assert names(found, Role.DEVELOPMENT) == ["pytest-mock"]
    assert names(found, Role.BUILD) == ["hatch-jupyter-builder", "hatch-mypyc", "mypy"]
