from __future__ import annotations

import itertools
import json
import time

import pytest

from devtools.host_speed import slowness
from sandbox.dependencies import requirement_text
from sandbox.dependencies.collection import Collection
from sandbox.dependencies.python_manifest import read_python_manifest, select_requirements
from sandbox.dependencies.python_steps import format_requirement
from sandbox.dependencies.test_environments import read_tox
from sandbox.models.dependencies import RefusalReason, RequirementRole
from tests.unit.dependencies.manifest_trees import names, read, reader

RUNTIME, TEST, DEVELOPMENT, BUILD = RequirementRole

PYPROJECT = """
[build-system]
requires = ["hatchling>=1"]
[project]
name = "My.Project"
requires-python = ">=3.9"
dependencies = ['Rich_Text[html] >= 2, < 3 ; python_version < "3.12"', "anyio"]
[project.optional-dependencies]
test = ["pytest>=8", "my-project[speed]"]
speed = ["fastjson"]
docs = ["sphinx"]
[dependency-groups]
dev = ["ruff", {include-group = "typing"}]
typing = ["mypy"]
"""


def test_pep_621_and_groups_are_read_with_specifiers_extras_and_markers() -> None:
    manifest = read(pyproject__toml=PYPROJECT)
    rich = manifest.requirements[0]
    assert (rich.name, rich.specifier, rich.extras, rich.marker) == (
        "rich-text",
        "<3,>=2",
        ("html",),
        'python_version < "3.12"',
    )
    assert rich.origin == "pyproject.toml: project.dependencies"
    assert (manifest.project, manifest.requires_python) == ("my-project", ">=3.9")
    assert names(manifest, RUNTIME) == ["rich-text", "anyio"]
    assert names(manifest, BUILD) == ["hatchling"]
    assert names(manifest, DEVELOPMENT) == ["ruff", "mypy"]


def test_an_extra_that_names_an_extra_of_its_own_project_is_expanded() -> None:
    assert names(read(pyproject__toml=PYPROJECT), TEST) == ["pytest", "fastjson"]


def test_extras_that_name_each_other_end() -> None:
    circle = '[project]\nname = "a"\n[project.optional-dependencies]\ntest = ["a[dev]"]\ndev = ["a[test]", "x"]\n'
    assert set(names(read(pyproject__toml=circle), TEST)) == {"x"}


@pytest.mark.parametrize(
    ("default", "found"),
    [('["dev", "Docs", "none"]', ["a", "b"]), ('"all"', ["a", "b", "c"]), ("[]", ["a"]), ("3", ["a"])],
)
def test_groups_that_uv_installs_by_default_are_read(default: str, found: list[str]) -> None:
    groups = f'[dependency-groups]\ndev = ["a"]\ndocs = ["b"]\nlint = ["c"]\n[tool.uv]\ndefault-groups = {default}\n'
    assert names(read(pyproject__toml=groups), DEVELOPMENT) == found


def test_lists_for_development_are_selected_without_the_tools_that_no_test_imports() -> None:
    manifest = read(pyproject__toml='[dependency-groups]\ndev = ["ruff", "trustme"]\ntest = ["pytest"]\n')
    assert [found.name for found in select_requirements(manifest).requirements] == ["trustme", "pytest"]


def test_a_list_with_a_test_tool_is_for_tests_if_no_name_of_a_list_says_so() -> None:
    lists = '[project]\nname = "p"\n[project.optional-dependencies]\nall = ["Pytest>=8", "x"]\ndocs = ["sphinx"]\n'
    assert names(read(pyproject__toml=lists), DEVELOPMENT) == ["pytest", "x"]
    assert names(read(pyproject__toml=f'{lists}[dependency-groups]\ndev = ["y"]\n'), DEVELOPMENT) == ["y"]


def test_what_tox_takes_from_other_sections_and_from_variables_that_are_not_set_is_read() -> None:
    core = "[core]\nversion = 2\ndeps =\n  pytest-timeout\n  {[more]deps}\n[more]\ndeps = nbval=={[core]version}\n"
    deps = "deps =\n  {[core]deps}\n  numpy{env:NUMPY:>=2}\n  {env:OTHER:}\n  {[none]deps}\n  {posargs}\n"
    manifest = read(tox__ini=f"{core}[testenv]\n{deps}")
    assert [(found.name, found.specifier) for found in manifest.requirements] == [
        ("pytest-timeout", ""),
        ("nbval", "==2"),
        ("numpy", ">=2"),
    ]
    assert [found.text for found in manifest.refused] == ["{[none]deps}", "{posargs}"]


def test_lines_that_tox_takes_from_a_section_hold_under_the_factor_of_the_line() -> None:
    """And an environment that says nothing has the lines of all. Control: the section's own factors count as well."""
    core = "[docs]\ndeps =\n  sphinx\n  furo\n[core]\ndeps =\n  a\n  docs: b\n  test: c\n"
    deps = "deps =\n  docs: {[docs]deps}\n  test: {[core]deps}\n"
    assert names(read(tox__ini=f"{core}[testenv]\n{deps}"), TEST) == ["a", "c"]
    tests = "[testenv]\ndeps = pytest\n[testenv:x]\n[testenv:tests]\ndeps =\n  {[testenv:x]deps}\n  d\n"
    assert names(read(tox__ini=tests), TEST) == ["pytest", "pytest", "d"]


@pytest.mark.parametrize("key", ["deps", "extras"])
def test_what_lines_of_tox_take_from_a_section_is_little_in_all(key: str) -> None:
    """Control: each of the 400 lines takes 16 KB."""
    text = f"[core]\nx = {','.join('a' * 8000)}\n[testenv]\n{key} =\n" + "  {[core]x}\n" * 400
    collection = Collection(reader({"tox.ini": text}))
    read_tox(collection)
    assert 0 < len(collection.wanted_extras) + len(collection.refused) < 70_000


def test_sections_of_tox_that_take_each_other_end() -> None:
    ring = f"[a]\ndeps ={' {[b]deps}' * 9000}\n[b]\ndeps ={' {[a]deps}' * 9000}\n"
    ring += "[testenv]\ndeps =\n  pytest\n  {[a]deps}\n"
    assert names(read(tox__ini=ring), TEST) == ["pytest"]


def test_sections_of_tox_are_put_into_others_a_few_times_only() -> None:
    """A file of 26 KB took the host 7 s; below the limit of a setting's length, many sections do it."""
    cases = ["".join(letters) for letters in itertools.product("tT", "eE", "sS", "tT")]
    environments = [f"[testenv:{one}-dependencies]\ndeps={{[a]b}}\n" for one in cases]
    few, many = environments[0], "".join(environments)
    for sections, is_whole in ((few, True), (many, False)):
        manifest = read(tox__ini=f"[a]\nb = {'{[c]d}' * 1000} {{[c]e}}\n[c]\nd =\ne = pytest\n{sections}")
        assert (names(manifest, TEST), manifest.refused == ()) == (["pytest"], is_whole)


def test_a_version_with_more_digits_than_python_converts_is_refused() -> None:
    lock = f'[[package]]\nname = "a"\nversion = "{"1" * 5000}"\n'
    manifest = read(pyproject__toml="[project]\nname = 'x'\ndependencies = ['a']\n", poetry__lock=lock)
    assert [entry.reason for entry in manifest.refused] == [RefusalReason.VERSION]
    assert manifest.locked == ()


def test_lines_of_tox_with_factors_of_tests_are_read() -> None:
    tox = "[testenv]\ndeps =\n  unit: pytest\n  unit-!py315: b\n  doctest: c\n  {py37,test}: d\n  py37: e\n"
    manifest = read(
        setup__cfg="[metadata]\nname = p\n[options.extras_require]\nfast = f\n",
        tox__ini=f"{tox}extras = unit: fast\n",
        noxfile__py="def tests(session):\n  session.install('-r', 'needs.txt', '-c', 'g', 'h')\n",
        **{"needs.txt": "i\n"},
    )
    assert names(manifest, TEST) == ["pytest", "b", "d", "i", "h", "f"]


def test_lines_that_each_environment_of_tox_has_from_the_defaults_are_limited() -> None:
    variants = ["".join(letters) for letters in itertools.product(*((one, one.upper()) for one in "unittests"))]
    environments = "".join(f"[testenv:{name}]\n" for name in variants)
    collection = Collection({"tox.ini": f"[DEFAULT]\nextras =\n{' a' * 99}\n{environments}".encode()}.get)
    read_tox(collection)
    assert not collection.refused
    lines = " a\n" * 400
    collection = Collection({"tox.ini": f"[DEFAULT]\nextras =\n{lines}{environments}".encode()}.get)
    read_tox(collection)
    assert [entry.reason for entry in collection.refused] == [RefusalReason.LIMIT]
    assert len(collection.wanted_extras) <= 20_400


def test_each_branch_of_a_session_of_nox_is_not_walked_from_all_before_it() -> None:
    """66 KB took 25 s: an `elif` is within the one before it."""
    branches = "".join(f" elif a:\n  {'x;' * 20}\n" for _ in range(2_000))
    text = f"def tests(session):\n if a:\n  pass\n{branches} session.install('pytest')\n session.chdir('x')\n"
    began = time.process_time()
    manifest = read(noxfile__py=text)
    assert time.process_time() - began < 6 * slowness()
    assert names(manifest, TEST) == ["pytest"]


def test_files_that_a_session_of_nox_installs_are_those_of_its_folder() -> None:
    """By a path from where `session.chdir` has led to; with `with`, until its end. A folder that is computed is taken
    for the root. Control: not those out of the tree.
    """
    lines = (
        "session.install('-r', './one.txt', '-rtwo.txt')",
        "with session.chdir('docs'):",
        "  session.install('--requirement=../three.txt', '-r', 'four.txt')",
        "session.install('-r', 'five.txt')",
        "session.cd('tests')",
        "session.install('-r', 'six.txt', '-r', '../../out.txt', '.')",
        "session.chdir(find())",
        "session.install('-r', 'seven.txt', 'h')",
    )
    paths = (
        "seven.txt",
        "one.txt",
        "two.txt",
        "three.txt",
        "docs/four.txt",
        "five.txt",
        "tests/six.txt",
        "six.txt",
        "four.txt",
    )
    manifest = read(
        noxfile__py="def tests(session):\n" + "".join(f"  {line}\n" for line in lines),
        **{path: f"{path.replace('/', '-').removesuffix('.txt')}\n" for path in paths},
    )
    assert names(manifest, TEST) == ["one", "two", "three", "docs-four", "five", "tests-six", "seven", "h"]
    assert [found.text for found in manifest.refused] == ["../../out.txt", "."]


def test_a_folder_that_a_session_of_nox_may_enter_or_not_is_taken_for_the_root() -> None:
    """And `chdir` of something else is none of the session."""
    lines = (
        "if x: session.chdir('a')",
        "else: session.chdir('b')",
        "session.install('-r', 'one.txt')",
    )
    for first in ("", "  os.chdir('a')\n"):
        code = f"def tests(session):\n{first}" + "".join(f"  {line}\n" for line in lines)
        manifest = read(
            noxfile__py=code, **{path: f"{path[:-4].replace('/', '-')}\n" for path in ("one.txt", "a/b/one.txt")}
        )
        assert (names(manifest, TEST), manifest.refused) == (["one"], ())


def test_a_noxfile_of_any_depth_is_read() -> None:
    deep = f"def tests(session):\n  x = {'+'.join(['a'] * 3000)}\n  session.install('pytest')\n"
    assert names(read(noxfile__py=deep), TEST) in (["pytest"], [])  # no, where Python's own parser refuses it


def test_a_long_line_of_an_ini_file_hides_nothing_of_it() -> None:
    """Control: many spaces in a row, for which its parser takes long, do."""
    long = f"[tox]\nenvlist = {'py313, ' * 100}\n[testenv]\ndeps = pytest\n"
    assert names(read(tox__ini=long), TEST) == ["pytest"]
    assert read(tox__ini=f"{long}commands = a{' ' * 101}b\n").requirements == ()


_TOX_TABLE = 'deps = ["pytest>=8", "-r needs.txt", ".[fast]", {replace = "ref"}]\ndependency_groups = ["ci"]\n'
_TOX_LINES = "[testenv]\ndeps =\n  pytest>=8\n  -r needs.txt\n  .[fast]\n  {x}\ndependency_groups = ci\n"


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"tox.ini": _TOX_LINES}, id="tox.ini"),
        pytest.param({"setup.cfg": f"[metadata]\nname = p\n{_TOX_LINES}"}, id="setup.cfg"),
        pytest.param({"tox.toml": f"[env_run_base]\n{_TOX_TABLE}[env.lint]\ndeps = ['ruff']\n"}, id="tox.toml"),
        pytest.param({"tox.toml": f"[env.test]\n{_TOX_TABLE}"}, id="env of tox.toml"),
        pytest.param({"tool": f"[tool.tox.env_run_base]\n{_TOX_TABLE}"}, id="pyproject.toml"),
        pytest.param({"tool": f'[tool.tox]\nlegacy_tox_ini = """\n{_TOX_LINES}"""\n'}, id="legacy"),
    ],
)
def test_what_tox_installs_for_tests_is_read_wherever_it_keeps_it(files: dict[str, str]) -> None:
    lists = '[project]\nname = "p"\n[project.optional-dependencies]\nfast = ["f"]\n[dependency-groups]\nci = ["g"]\n'
    files = {"needs.txt": "i\n", "pyproject.toml": lists + files.pop("tool", ""), **files}
    manifest = read_python_manifest(reader(files))
    assert sorted(names(manifest, TEST)) == ["f", "g", "i", "pytest"]
    assert len(manifest.refused) == 1


def test_lists_that_setuptools_reads_from_files_are_read_from_there() -> None:
    manifest = read_python_manifest(
        reader(
            {
                "pyproject.toml": '[project]\nname = "p"\ndynamic = ["dependencies", "optional-dependencies"]\n'
                '[tool.setuptools.dynamic]\ndependencies = {file = ["needs/main.in"]}\n'
                'optional-dependencies.test = {file = "needs/test.in"}\noptional-dependencies.docs = {file = "d.in"}\n'
                "optional-dependencies.dev = {file = ['../out.in', 3]}\n",
                "needs/main.in": "a\n",
                "needs/test.in": "b\n",
                "d.in": "c\n",
            }
        )
    )
    assert (names(manifest, RUNTIME), names(manifest, TEST), manifest.computed) == (["a"], ["b"], False)


@pytest.mark.parametrize("call", ["setup(**needs)", "setup(name='p', **needs)"])
def test_words_that_setup_gets_from_elsewhere_are_computed(call: str) -> None:
    """Then the project is asked, as when it computes a list."""
    assert read(setup__py=f"needs = dict(install_requires=['a'])\n{call}\n").computed


def test_packages_of_an_extra_of_poetry_are_read_if_it_is_for_tests() -> None:
    manifest = read(
        pyproject__toml='[tool.poetry.dependencies]\na = {version = "^1", optional = true}\nb = {version = "2", '
        'optional = true}\nc = "3"\n[tool.poetry.extras]\ntest = ["A", "c", "unknown"]\ndocs = ["b"]\n'
    )
    assert [(found.name, found.specifier) for found in manifest.requirements] == [("c", "==3"), ("a", "<2,>=1")]


@pytest.mark.parametrize(
    ("recipe", "found"),
    [
        ("test:\n\tuv sync --group test --all-extras\n", ["msgspec", "pytest"]),
        ("\tuv run {{ if x { '-p' } }} --all-extras pytest\n", ["msgspec", "pytest"]),
        ("\tuv sync --group test\n\techo --all-extras\n", ["pytest"]),
        (f"\tuv {'x' * 200_000} sync --all-extras\n", ["pytest"]),
    ],
    ids=["make", "run", "no install", "long"],
)
@pytest.mark.parametrize("path", ["Makefile", "Justfile"])
def test_all_extras_are_for_tests_if_a_recipe_installs_them(path: str, recipe: str, found: list[str]) -> None:
    lists = '[project]\nname = "p"\n[project.optional-dependencies]\ntest = ["pytest"]\nmsgspec = ["msgspec"]\n'
    files = {"pyproject.toml": f'{lists}docs = ["sphinx"]\nlint = ["ruff"]\n', path: recipe}
    assert sorted(one.name for one in read_python_manifest(reader(files)).requirements) == found


def test_what_uv_takes_from_elsewhere_is_not_asked_for_by_its_name() -> None:
    """A registry may have another package of that name."""
    manifest = read(
        pyproject__toml='[project]\nname = "p"\ndependencies = ["own", "near[x]>=1", "far", "file"]\n'
        '[tool.uv.sources]\nOwn = {workspace = true}\nnear = [{path = "../near", marker = "x"}, {index = "i"}]\n'
        'far = {git = "https://elsewhere.example"}\nfile = {url = "https://elsewhere.example/file.whl"}\n'
    )
    assert names(manifest, RUNTIME) == []
    assert [(found.text, found.reason) for found in manifest.refused] == [
        ("own", RefusalReason.PATH),
        ("near>=1", RefusalReason.PATH),
        ("far", RefusalReason.VERSION_CONTROL),
        ("file", RefusalReason.URL),
    ]


INDEXES = """
[project]
name = "p"
dependencies = ["six>=1", "one", "two", "Three"]
[dependency-groups]
test = ["four"]
[[tool.uv.index]]
name = "acme"
url = "https://elsewhere.example/simple"
explicit = true
[[tool.uv.index]]
name = "usual"
url = "https://pypi.org/simple/"
[tool.uv.sources]
six = {index = "acme"}
one = {index = "usual"}
two = [{index = "unknown", marker = "x"}]
four = {index = "acme"}
[tool.poetry.dependencies]
three = {source = "acme"}
"""


def test_s228_the_public_registry_is_not_asked_for_a_package_of_another_index() -> None:
    """It may have another package of that name. Control: one of the public index, and without the sources."""
    manifest = read(pyproject__toml=INDEXES)
    assert names(manifest, RUNTIME) == ["one"]
    assert [(found.text, found.reason.value) for found in manifest.refused] == [
        (text, "option") for text in ("six>=1", "two", "three", "four", "three = {'source': 'acme'}")
    ]
    lock = "".join(
        f'[[package]]\nname = "{name}"\nversion = "1"\nsource = {{registry = "https://x.example/simple"}}\n'
        for name in ("one", "six", "other")
    )
    locked = read_python_manifest(reader({"pyproject.toml": INDEXES, "uv.lock": f"version = 1\n{lock}"}))
    assert [package.name for package in locked.locked] == ["one", "other"]
    usual = INDEXES.replace('"acme"', '"usual"').replace('"unknown"', '"usual"').partition("[tool.poetry")[0]
    assert sorted(names(read(pyproject__toml=usual), RUNTIME)) == ["one", "six", "three", "two"]


@pytest.mark.parametrize("source", ["PyPI", "pypi", "usual"])
def test_s228_a_source_of_poetry_that_is_the_public_index_is_no_other_place(source: str) -> None:
    """Control: a source of another address, also one that has the name of the public one in it."""
    project = '[project]\nname = "p"\ndependencies = ["six>=1"]\n[tool.poetry.dependencies]\nsix = {source = "%s"}\n'
    indexes = '[[tool.poetry.source]]\nname = "Usual"\nurl = "https://PyPI.org/simple/"\n'
    indexes += '[[tool.poetry.source]]\nname = "pypi-acme"\nurl = "https://elsewhere.example/simple"\n'
    assert names(read(pyproject__toml=project % source + indexes), RUNTIME) == ["six"]
    assert names(read(pyproject__toml=project % "pypi-acme" + indexes), RUNTIME) == []
    renamed = indexes.replace("pypi-acme", "PyPI")
    assert names(read(pyproject__toml=project % "PyPI" + renamed), RUNTIME) == [], "an address of its own counts"


def test_members_that_a_source_distribution_lacks_are_asked_for_as_its_metadata_says() -> None:
    """pydantic's core is one. Control: without the metadata, and what comes from a repository or an address."""
    project = '[project]\nname = "p"\ndependencies = ["own==1", "near", "far", "at"]\n[tool.uv.sources]\n'
    project += 'own = {workspace = true}\nnear = {path = "../near"}\nfar = {git = "https://elsewhere.example"}\n'
    project += "at = {workspace = true}\n"
    info = "Name: p\nRequires-Dist: Own==1\nRequires-Dist: near; extra == 'x'\nRequires-Dist: far\n"
    info += "Requires-Dist: at @ https://elsewhere.example/at.whl\n\nRequires-Dist: at\n"
    assert names(read(pyproject__toml=project), RUNTIME) == []
    manifest = read_python_manifest(reader({"pyproject.toml": project, "PKG-INFO": info}))
    assert names(manifest, RUNTIME) == ["own", "near"]
    assert [found.text for found in manifest.refused] == ["far", "at"]


WORKSPACE: dict[str, str | bytes] = {
    "pyproject.toml": '[project]\nname = "app"\ndependencies = ["one[fast]"]\n[dependency-groups]\ntest = ["pytest"]\n'
    '[tool.uv.workspace]\nmembers = ["libs/**"]\nexclude = ["libs/old", "libs/*/examples"]\n'
    '[tool.uv.sources]\none = {workspace = true}\nby-path = {path = "other/by-path", editable = true}\n',
    "libs/one/pyproject.toml": '[build-system]\nrequires = ["uv-build"]\n[project]\nname = "One"\n'
    'dependencies = ["a", "deep", "far"]\n[project.optional-dependencies]\nfast = ["b", "one[more]"]\nmore = ["c"]\n'
    'slow = ["not"]\n[dependency-groups]\ndev = ["d", {include-group = "lint"}]\nlint = ["e"]\n'
    '[tool.uv.sources]\ndeep = {workspace = true}\nfar = {git = "https://elsewhere.example"}\n',
    "libs/down/deep/pyproject.toml": '[project]\nname = "deep"\ndependencies = ["g"]\n',
    "libs/alone/pyproject.toml": '[project]\nname = "alone"\ndependencies = ["h", "by-path", "app"]\n',
    "libs/old/pyproject.toml": '[project]\nname = "old"\ndependencies = ["not"]\n',
    "libs/one/examples/pyproject.toml": '[project]\nname = "shown"\ndependencies = ["not"]\n',
    "other/by-path/pyproject.toml": '[project]\nname = "by-path"\ndependencies = ["i"]\n',
}


def test_packages_of_a_workspace_of_uv_are_read_and_not_asked_for() -> None:
    """What the project itself does not need is for the tests: without a solution for all, it is dropped."""
    manifest = read_python_manifest(reader(WORKSPACE))
    assert names(manifest, RUNTIME) == ["a", "g", "b", "c"]
    assert sorted(names(manifest, TEST)) == ["h", "i", "pytest"]
    assert names(manifest, DEVELOPMENT) == ["d", "e"]
    assert names(manifest, BUILD) == ["uv-build"]
    assert [(found.text, found.reason, found.origin) for found in manifest.refused] == [
        ("far", RefusalReason.VERSION_CONTROL, "libs/one/pyproject.toml: project.dependencies")
    ]


def test_of_a_workspace_without_a_project_of_its_own_all_packages_are_needed() -> None:
    root = '[tool.uv.workspace]\nmembers = ["libs/*"]\n'
    manifest = read_python_manifest(reader(WORKSPACE | {"pyproject.toml": root}))
    assert names(manifest, RUNTIME) == ["a", "h", "by-path", "app", "not"]
    assert [found.text for found in manifest.refused] == ["deep", "far"]


def test_linters_that_are_plugins_are_left_out_where_pytest_takes_those_that_are_there() -> None:
    """Control: elsewhere its settings may name their options."""
    text = '[project]\nname = "p"\n[dependency-groups]\ntest = ["pytest-ruff", "pytest-mypy", "pytest-cov"{}]\n'
    for more, found in ((', "pytest-enabler"', ["pytest-cov", "pytest-enabler"]), ("", ["pytest-ruff", "pytest-mypy"])):
        manifest = select_requirements(read(pyproject__toml=text.format(more)))
        assert names(manifest, TEST)[:2] == found


def test_packages_that_poetry_takes_by_a_path_of_the_tree_are_read_and_not_asked_for() -> None:
    """Controls: a path out of the tree, an archive, and a git reference are refused."""
    git = '{git = "https://elsewhere.example"}'
    files: dict[str, str | bytes] = {
        "pyproject.toml": '[tool.poetry]\nname = "app"\n[tool.poetry.dependencies]\npython = "^3.11"\n'
        'one = {path = "libs/one", develop = true, extras = ["fast"]}\nout = {path = "../out"}\n'
        f'file = {{path = "libs/file.whl"}}\nfar = {git}\ntwo = [{{version = "^1", python = "<3"}}, {git}]\n'
        '[tool.poetry.group.dev.dependencies]\nhelp = {path = "tests/help"}\n'
        '[tool.poetry.group.docs.dependencies]\npages = {path = "docs"}\n',
        "libs/one/pyproject.toml": '[tool.poetry]\nname = "One"\n[tool.poetry.dependencies]\na = "^1"\n'
        'b = {version = "*", optional = true}\ndeep = {path = "../deep"}\n[tool.poetry.extras]\nfast = ["b"]\n'
        '[build-system]\nrequires = ["poetry-core"]\n',
        "libs/deep/pyproject.toml": '[project]\nname = "deep"\ndependencies = ["c"]\n',
        "tests/help/pyproject.toml": '[tool.poetry]\nname = "help"\n[tool.poetry.dependencies]\nd = "*"\n',
        "docs/pyproject.toml": '[tool.poetry]\nname = "pages"\n',
        "poetry.lock": '[[package]]\nname = "one"\nversion = "0.1.0"\n[package.source]\ntype = "directory"\n',
    }
    manifest = read_python_manifest(reader(files))
    assert (names(manifest, RUNTIME), names(manifest, BUILD)) == (["two", "a", "c", "b"], ["poetry-core"])
    assert names(manifest, TEST) + names(manifest, DEVELOPMENT) == ["d"]
    assert [(found.text.split()[0], found.reason) for found in manifest.refused] == [
        ("out", RefusalReason.PATH),
        ("file", RefusalReason.PATH),
        ("far", RefusalReason.VERSION_CONTROL),
        ("two", RefusalReason.VERSION_CONTROL),
    ]


NAMED_FOLDERS: dict[str, str | bytes] = {
    "pyproject.toml": '[project]\nname = "app"\n',
    "requirements.txt": "-e .\n-e ./libs/one[fast]  # ours\n./libs/old\nplain\nother\n"
    "-e ./libs/none\n-e ../out\n./libs/x.whl\n-e https://elsewhere.example/x\n-e /libs/one\n",
    "requirements/test.txt": "--editable=libs/help\n-r more.in\n",
    "requirements/more.in": "file:near/\n",
    "libs/one/pyproject.toml": '[project]\nname = "One"\ndependencies = ["a", "old"]\n'
    '[project.optional-dependencies]\nfast = ["b"]\nslow = ["not"]\n[tool.uv.sources]\ndeep = {path = "../deep"}\n',
    "libs/deep/pyproject.toml": '[project]\nname = "deep"\ndependencies = ["c"]\n',
    "libs/old/setup.py": 'from setuptools import setup\nsetup(name="old", install_requires=["d[x]>=1", "e @ git+https://e"])\n',
    "libs/help/setup.cfg": "[metadata]\nname = help\n[options]\ninstall_requires =\n    f; python_version > '3'\n",
    "requirements/near/setup.py": 'import near\nsetup(name="other", install_requires=["g"])\n',
}


def test_folders_that_requirements_files_name_are_packages_of_the_tree() -> None:
    """Controls: a folder without a manifest, one outside, an archive and an address are refused, as before."""
    manifest = read_python_manifest(reader(NAMED_FOLDERS))
    assert names(manifest, RUNTIME) == ["plain", "a", "d", "g", "b"]
    assert names(manifest, TEST) == ["f", "c"]
    assert [(found.text, found.reason.value) for found in manifest.refused] == [
        ("-e ./libs/none", "option"),
        ("-e ../out", "option"),
        ("./libs/x.whl", "path"),
        ("-e https://elsewhere.example/x", "option"),
        ("-e /libs/one", "option"),
        ("e @ git+https://e", "version_control"),
    ]


def test_of_a_large_workspace_all_that_is_promised_is_read_and_the_rest_refused_by_name() -> None:
    """With its lock file, and other manifests of the root."""
    member = '[project]\nname = "m{n}"\ndependencies = ["a{n}"]\n'
    tree: dict[str, str | bytes] = {f"{n % 2}/m{n}/pyproject.toml": member.format(n=n) for n in range(58)}
    tree |= {f"by/path{n}/pyproject.toml": f'[project]\nname = "p{n}"\n' for n in range(4)}
    paths = "".join(f'p{n} = {{path = "by/path{n}"}}\n' for n in range(4))
    root = f'[tool.uv.workspace]\nmembers = ["0/*", "1/*"]\n[tool.uv.sources]\n{paths}'
    files = {
        "setup.cfg": "[options]\n",
        "tox.ini": "[tox]\n",
        "requirements-dev.txt": "d\n",
        "uv.lock": LOCKS["uv.lock"],
    }
    manifest = read_python_manifest(reader({"pyproject.toml": root, **tree, **files}))
    assert names(manifest, RUNTIME) == [f"a{n}" for n in (*range(0, 58, 2), *range(1, 58, 2))]
    assert [found.name for found in manifest.locked] == ["rich"]
    assert [(found.text, found.reason) for found in manifest.refused] == [
        ("workspace by/path2", RefusalReason.LIMIT),
        ("workspace by/path3", RefusalReason.LIMIT),
    ]
    assert set(files) < set(manifest.files)


@pytest.mark.parametrize("name", ["requirements/local.txt", "requirements/ci.txt", "requirements.dev.txt"])
def test_lists_of_applications_are_read_with_what_they_include(name: str) -> None:
    """As cookiecutters for Django write them."""
    base = f"{name.rpartition('/')[0]}/base.txt".lstrip("/")
    manifest = read_python_manifest(reader({name: "-r base.txt\npytest-django\n", base: "django\n"}))
    assert {found.name for found in manifest.requirements} == {"django", "pytest-django"}


PIPFILE = """
[[source]]
name = "pypi"
url = "https://pypi.org/simple"
[packages]
Rich = "*"
old = {version = "~=1.0", extras = ["a", "b"], markers = "python_version < '3.12'", sys_platform = "== 'linux'"}
same = {version = ">=1,<2", index = "pypi"}
me = {path = ".", editable = true}
[dev-packages]
pytest = ">=8"
[docs]
sphinx = "*"
[tests]
trustme = "*"
[requires]
python_version = "3.11"
"""


def test_a_pipfile_is_read_with_its_extras_markers_and_categories() -> None:
    manifest = read(Pipfile=PIPFILE)
    assert [format_requirement(found) for found in manifest.requirements if found.role is RUNTIME] == [
        "rich",
        'old[a,b]~=1.0 ; python_version < "3.12" and sys_platform == "linux"',
        "same<2,>=1",
    ]
    assert (names(manifest, DEVELOPMENT), names(manifest, TEST), manifest.refused) == (["pytest"], ["trustme"], ())


@pytest.mark.parametrize(
    ("constraint", "specifier"),
    [
        ('"^1.2.3"', "<2,>=1.2.3"),
        ('"^0.2.3"', "<0.3,>=0.2.3"),
        ('"~1.2"', "<1.3,>=1.2"),
        ('"1.2"', "==1.2"),
        ('">=1,<2"', "<2,>=1"),
        ('"*"', ""),
        ('{version = "^2", extras = ["a"]}', "<3,>=2"),
        ('"^1.20 || ^2.0"', "<3,>=1.20"),
        ('">=22,<24 || >=25"', ">=22"),
        ('"1.2.* || 1.4.5 | ~=1.3.1"', "<=1.4.5,>=1.2"),
        ('"<=2 || !=3.1,^3"', "<4"),
        ('"* || ^2"', ""),
    ],
)
def test_constraints_of_poetry_become_pep_440(constraint: str, specifier: str) -> None:
    manifest = read(pyproject__toml=f'[tool.poetry.dependencies]\npython = "^3.9"\nrich = {constraint}\n')
    assert [(found.name, found.specifier) for found in manifest.requirements] == [("rich", specifier)]


@pytest.mark.parametrize(
    ("entry", "markers"),
    [
        ('{version = "1", python = "<3.9"}', ['python_version < "3.9"']),
        (
            '[{version = "1", python = "~3.9.1"}, {version = "2", python = "3.10.* || >=3.12"}]',
            [
                'python_full_version >= "3.9.1" and python_version < "3.10"',
                'python_version == "3.10" or python_version >= "3.12"',
            ],
        ),
        ('{version = "1", platform = "win32", python = "*"}', ['sys_platform == "win32"']),
        (
            '{version = "1", platform = "!=win32", markers = "os_name == \'a\' or os_name == \'b\'"}',
            ['(os_name == "a" or os_name == "b") and sys_platform != "win32"'],
        ),
    ],
)
def test_pythons_and_platforms_of_poetry_become_markers(entry: str, markers: list[str]) -> None:
    """Else the alternatives of one package contradict each other, and nothing is installed."""
    manifest = read(pyproject__toml=f"[tool.poetry.dependencies]\nrich = {entry}\n")
    assert ([found.marker for found in manifest.requirements], manifest.refused) == (markers, ())


@pytest.mark.parametrize(
    "entry",
    [
        '"^1 || ../x"',
        '{version = "1", python = "x"}',
        '{version = "1", platform = "a b"}',
        "{python = 3}",
        pytest.param(f'"^{"9" * 5000}"', id="digits"),
        pytest.param(f'"1 {" " * 100_000} 2"', id="spaces"),
        pytest.param(f'"{"||".join(["^1"] * 21)}"', id="alternatives"),
    ],
)
def test_what_poetry_would_not_understand_is_refused(entry: str) -> None:
    manifest = read(pyproject__toml=f"[tool.poetry.dependencies]\nrich = {entry}\n")
    assert (manifest.requirements, len(manifest.refused)) == ((), 1)


def test_s188_an_address_in_a_requirement_is_looked_for_once_in_each_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 entries of 1,000 letters took 7 s; one of 200,000 is refused for its length."""
    monkeypatch.setattr(requirement_text, "TEXT_CHARS", 10**6)
    began = time.process_time()
    reasons = [
        requirement_text._find_reason(text) for text in ("a" * 200_000, "a b+1.c:/x", "x" * 99 + " 1+-.a:/", "1:/")
    ]
    assert time.process_time() - began < 5 * slowness()
    assert reasons == [RefusalReason.NAME, RefusalReason.URL, RefusalReason.URL, RefusalReason.PATH]


def test_setup_py_is_read_by_its_literals_and_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROOF", raising=False)
    manifest = read(
        setup__py="""
import os
os.environ["PROOF"] = "ran"
needs = ["attrs>=20"]
setup(name="p", install_requires=needs + ["six"], tests_require=open("x").read(), extras_require={"test": ["nose"]})
"""
    )
    assert "PROOF" not in __import__("os").environ
    assert (names(manifest, RUNTIME), names(manifest, TEST)) == (["attrs", "six"], ["nose"])
    assert [(found.text, found.reason, found.origin) for found in manifest.refused] == [
        ("computed", RefusalReason.SYNTAX, "setup.py: tests_require")
    ]


def test_a_text_of_empty_lines_that_a_list_of_setup_py_repeats_is_not_split_each_time() -> None:
    """Empty lines are no entries, so that the limit of entries does not count them."""
    repeated = "a"
    for _ in range(13):
        repeated = f"({repeated}+{repeated})"
    began = time.process_time()
    manifest = read(setup__py=f"a = '''{chr(10) * 200_000}'''\nsetup(install_requires={repeated})\n")
    assert time.process_time() - began < 5 * slowness()  # 35 s
    assert [found.text for found in manifest.refused] == ["computed"]


def test_what_setup_py_computes_is_taken_from_the_metadata_of_an_sdist() -> None:
    manifest = read(
        setup__py="setup(install_requires=read())",
        **{"PKG-INFO": 'Name: p\nRequires-Dist: a>=1\nRequires-Dist: b; extra == "test"\n\nRequires-Dist: body\n'},
    )
    assert (names(manifest, RUNTIME), names(manifest, TEST)) == (["a"], ["b"])


def test_setup_cfg_and_tox_and_nox_are_read() -> None:
    manifest = read(
        setup__cfg="[metadata]\nname = p\n[options]\ninstall_requires =\n  a>1\n  b  # why\n"
        "[options.extras_require]\ntests = c\n",
        tox__ini="[testenv]\ndeps =\n  d\n  py37: old\n  .[fast]\n[testenv:lint]\ndeps = linter\n",
        noxfile__py="def tests(session):\n  session.install('-e', '.', 'e')\n"
        "def lint(session):\n  session.install('f')\n",
    )
    assert names(manifest, RUNTIME) == ["a", "b"]
    assert names(manifest, TEST) == ["d", "e", "c"]


def test_requirement_files_hold_hashes_continuations_includes_and_comments() -> None:
    digest = "ab" * 32
    tree: dict[str, str | bytes] = {
        "requirements.txt": f"-r requirements/base.txt\na==1 \\\n    --hash=sha256:{digest} # why\n\n# -r other.txt\n",
        "requirements/base.txt": "-r ../requirements.txt\n-c limits.txt\nb\n",
    }
    manifest = read_python_manifest(reader(tree))
    assert [(found.name, found.hashes) for found in manifest.requirements] == [
        ("b", ()),
        ("a", (f"sha256:{digest}",)),
    ]
    assert manifest.refused == ()


LOCKS = {
    "uv.lock": f"""
[[package]]
name = "Rich"
version = "13.0"
source = {{ registry = "https://elsewhere.example/simple" }}
sdist = {{ url = "https://elsewhere.example/rich.tar.gz", hash = "sha256:{"a" * 64}" }}
wheels = [{{ url = "https://elsewhere.example/rich.whl", hash = "sha256:{"b" * 64}" }}]
[[package]]
name = "me"
version = "1"
source = {{ editable = "." }}
""",
    "poetry.lock": f"""
[[package]]
name = "rich"
version = "13.0"
files = [{{file = "a", hash = "sha256:{"a" * 64}"}}, {{file = "b", hash = "sha256:{"b" * 64}"}}]
[package.source]
type = "legacy"
url = "https://elsewhere.example/simple"
""",
    "pdm.lock": f"""
[metadata]
groups = ["default", "test"]
[[package]]
name = "rich"
version = "13.0"
requires_python = ">=3.8"
files = [{{url = "https://elsewhere.example", hash = "sha256:{"a" * 64}"}}, {{hash = "sha256:{"b" * 64}"}}]
""",
    "Pipfile.lock": json.dumps(
        {
            "_meta": {"sources": [{"name": "x", "url": "https://elsewhere.example/simple"}]},
            "default": {
                "me": {"path": ".", "editable": True},
                "rich": {"index": "x", "version": "==13.0", "hashes": [f"sha256:{c * 64}" for c in "ba"]},
            },
            "develop": {"Rich": {"version": "==13.0", "hashes": [f"sha256:{c * 64}" for c in "ab"]}},
        }
    ),
    "pylock.toml": f"""
[[packages]]
name = "rich"
version = "13.0"
index = "https://elsewhere.example/simple"
wheels = [{{url = "https://x", hashes = {{sha256 = "{"b" * 64}"}}}}, {{hashes = {{sha256 = "{"a" * 64}"}}}}]
""",
}


@pytest.mark.parametrize("path", LOCKS)
def test_lock_files_give_names_versions_and_hashes_and_no_address(path: str) -> None:
    manifest = read_python_manifest(reader({path: LOCKS[path]}))
    assert [(found.name, found.version, found.hashes) for found in manifest.locked] == [
        ("rich", "13.0", (f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"))
    ]
    assert "elsewhere" not in manifest.model_dump_json()
    assert manifest.refused == (), "the project itself is no entry of another place"


def test_a_lock_file_with_two_versions_says_where_each_is_meant() -> None:
    entry = '[[package]]\nname = "rich"\nversion = "{}"\nresolution-markers = [{}]\n'
    lock = entry.format("12", "\"python_version < '3.10'\"") + entry.format("13", '"x $(y)"')
    assert [found.marker for found in read(uv__lock=lock).locked] == ['python_version < "3.10"', ""]


def test_what_the_build_computes_is_taken_from_the_entry_of_the_project_in_a_lock_file() -> None:
    """Not if it is said. A member that is needed only by that is none of the tests."""
    entry = (
        '[[package]]\nname = "Me"\nversion = "1"\nsource = {editable = "."}\n'
        "dependencies = [{name = 'a', marker = \"os_name == 'nt'\"}, {name = 'b', extra = ['x']}, "
        "{name = 'm'}, {n = 1}, 'e']\n"
    )
    member = {"m/pyproject.toml": '[project]\nname = "m"\ndependencies = ["c"]\n', "uv.lock": entry}
    workspace = '[tool.uv.workspace]\nmembers = ["m"]\n'
    dynamic = f'[project]\nname = "me"\ndynamic = ["dependencies"]\n{workspace}'
    manifest = read_python_manifest(reader({"pyproject.toml": dynamic, **member}))
    assert [format_requirement(found) for found in manifest.requirements if found.role is RUNTIME] == [
        'a ; os_name == "nt"',
        "b[x]",
        "c",
    ]
    said = f'[project]\nname = "me"\ndependencies = ["d"]\n{workspace}'
    manifest = read_python_manifest(reader({"pyproject.toml": said, **member}))
    assert (names(manifest, RUNTIME), names(manifest, TEST)) == (["d"], ["c"])


def test_a_tree_without_manifests_declares_none() -> None:
    assert read_python_manifest(reader({})).model_dump(exclude_defaults=True) == {}
