"""Each shipped profile verifies a small project of its kind in its own image, and notices a test that fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from devtools.host_speed import slowness
from devtools.requirement import unavailable
from sandbox.errors import ErrorCode, SandboxError
from sandbox.models import CauseKind, RunSummary, Verdict
from sandbox.workbench import Workbench

EXITS = "int main(void) { return 0; }\n"
CALC = "package Calc;\nour $VERSION = '1.0';\nsub add { $_[0] + $_[1] }\n1;\n"
EXTENSION = """
#include <Python.h>
static PyObject *three(PyObject *self, PyObject *none) { return PyLong_FromLong(3); }
static PyMethodDef methods[] = {{"three", three, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_calc", "", -1, methods};
PyMODINIT_FUNC PyInit__calc(void) { return PyModule_Create(&module); }
"""
LPEG = """
#include <lauxlib.h>
int luaopen_lpeg(lua_State *lua) {{
    lua_newtable(lua); lua_pushboolean(lua, 1); lua_setfield(lua, -2, "{}"); return 1;
}}
"""
BUILD = '[build-system]\nrequires = ["setuptools>=61"]\nbuild-backend = "setuptools.build_meta"\n'
CALC_TEST = "use Test::More tests => 1;\nuse Calc;\nis(Calc::add(1, 2), 3);\n"
MAKEFILE = "all: t\nt: t.c\n\tcc -o t t.c\n{target}: all\n\t./t\n"


@dataclass(frozen=True)
class Project:
    """Files of a project with one test. `broken`: replacements with which the test fails. `report`: has JUnit."""

    profile: str
    files: Mapping[str, str]
    broken: Mapping[str, str]
    report: bool = False


FAILS = {"t.c": "int main(void) { return 1; }\n"}
ALL_IMAGES = bool(os.environ.get("ALL_IMAGES"))
"""Whether images of the next Debian are built and used, too: three with 3 GB, which takes minutes. `make corpus`."""

PROJECTS = {
    "go": Project(
        "go",
        {
            "go.mod": "module example.org/calc\n\ngo 1.19\n",
            "main.go": "package main\n\nfunc add(a, b int) int { return a + b }\n\nfunc main() {}\n",
            "main_test.go": 'package main\n\nimport "testing"\n\nfunc TestAdd(t *testing.T) {\n'
            '\tif add(1, 2) != 3 {\n\t\tt.Fatal("wrong")\n\t}\n}\n',
            "Makefile": "test:\n\tgo test ./...\n",
        },
        {"main.go": "package main\n\nfunc add(a, b int) int { return a - b }\n\nfunc main() {}\n"},
        report=True,
    ),
    "go-newer": Project(  # Go 1.19 stops at both lines of its go.mod
        "go",
        {
            "go.mod": "module example.org/calc\n\ngo 1.22.0\n\ntoolchain go1.22.3\n",
            "calc.go": "package calc\n\nfunc least(a, b int) int { return min(a, b) }\n",
            "calc_test.go": 'package calc\n\nimport "testing"\n\nfunc TestLeast(t *testing.T) {\n'
            "\tfor i := range 3 {\n\t\tif least(i, 7) != i {\n\t\t\tt.Fatal(i)\n\t\t}\n\t}\n}\n",
        },
        {"calc.go": "package calc\n\nfunc least(a, b int) int { return max(a, b) }\n"},
        report=True,
    ),
    "gopath": Project(
        "gopath",
        {
            "calc_test.go": 'package calc_test\n\nimport (\n\t"testing"\n\n\t"example.org/me/calc/inner"\n)\n\n'
            "func TestAdd(t *testing.T) {\n\tif inner.Add(1, 2) != 3 {\n\t\tt.Fatal()\n\t}\n}\n",
            "inner/inner.go": "package inner\n\nfunc Add(a, b int) int { return a + b }\n",
            "Makefile": "test:\n\tgo test ./...\n",
        },
        {"inner/inner.go": "package inner\n\nfunc Add(a, b int) int { return a - b }\n"},
        report=True,
    ),
    "node": Project(
        "node",
        {
            "package.json": '{"name": "calc", "main": "calc.js", "scripts": {"test": "node --test"}}',
            "calc.js": "exports.add = (a, b) => a + b\n",
            "test/calc.test.mjs": "import test from 'node:test'\nimport assert from 'node:assert'\n"
            "import calc from '../calc.js'\ntest('adds', () => assert.equal(calc.add(1, 2), 3))\n",
            "Makefile": "test:\n\tnpm test\n",
        },
        {"calc.js": "exports.add = (a, b) => a - b\n"},
        report=True,
    ),
    "node-yarn-pnpm": Project(  # scripts that call another package manager than npm
        "node",
        {
            "package.json": '{"name": "all", "main": "calc.js", "workspaces": ["packages/*"], "scripts": {'
            '"lint": "node lint.js", "unit": "node --test test/",'
            '"test": "yarn install --frozen-lockfile && yarn lint --fix && pnpm run -s lint -- --fix && pnpm -r unit'
            " && yarn workspace one unit && pnpm --filter one exec node calc.js && yarn workspaces foreach -A run unit"
            ' && pnpm --silent run unit && test -s packages/one/ran && ! yarn absent"}}',
            "calc.js": "exports.add = (a, b) => a + b\n",
            "lint.js": "process.exit(process.argv[2] === '--fix' ? 0 : 9)\n",
            "test/calc.test.js": "require('node:assert').equal(require('../calc.js').add(1, 2), 3)\n",
            "packages/one/package.json": '{"name": "one", "scripts": {"unit": "node calc.js && echo 1 >ran"}}',
            "packages/one/calc.js": "require('node:assert').equal(require('../../calc.js').add(1, 2), 3)\n",
            "packages/two/package.json": '{"name": "two"}',
        },
        {"calc.js": "exports.add = (a, b) => a - b\n"},
    ),
    "python-application": Project(  # as `uv init` begins one; setuptools takes no two packages side by side
        "python",
        {
            "pyproject.toml": '[project]\nname = "shop"\nversion = "0.1.0"\nrequires-python = ">=3.9"\n',
            "shop/__init__.py": "def add(a, b):\n    return a + b\n",
            "migrations/__init__.py": "",
            "tests/test_shop.py": "from shop import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
        },
        {"shop/__init__.py": "def add(a, b):\n    return a - b\n"},
        report=True,
    ),
    "python-extension": Project(  # beside its sources, which pytest finds before what is installed
        "python",
        {
            "pyproject.toml": BUILD,
            "setup.py": "from setuptools import Extension, setup\n"
            "setup(name='calc', packages=['calc'], ext_modules=[Extension('calc._calc', ['calc/_calc.c'])])\n",
            "calc/__init__.py": "from calc._calc import three\n",
            "calc/_calc.c": EXTENSION,
            "tests/__init__.py": "",
            "tests/test_calc.py": "from calc import three\n\n\ndef test_three():\n    assert three() == 3\n",
        },
        {"calc/_calc.c": EXTENSION.replace("(3)", "(4)")},
        report=True,
    ),
    "python-workspace": Project(  # of uv: packages of one tree that need each other
        "python",
        {
            "pyproject.toml": '[project]\nname = "shop"\nversion = "0.1.0"\ndependencies = ["money", "tax"]\n'
            '[tool.uv.workspace]\nmembers = ["libs/*"]\nexclude = ["libs/old"]\n'
            '[tool.uv.sources]\nmoney = {workspace = true}\ntax = {path = "tax"}\n',
            "libs/money/pyproject.toml": f'{BUILD}[project]\nname = "money"\nversion = "1"\ndependencies = ["tax"]\n',
            "libs/money/src/money/__init__.py": "from tax import none\n\n\ndef add(a, b):\n    return a + b + none\n",
            "libs/notes/pyproject.toml": '[project]\nname = "notes"\nversion = "1"\n[tool.uv]\npackage = false\n',
            "libs/old/pyproject.toml": "no TOML",
            "tax/pyproject.toml": f'{BUILD}[project]\nname = "tax"\nversion = "1"\n',
            "tax/src/tax/__init__.py": "none = 0\n",
            "tests/test_shop.py": "from money import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
        },
        {"libs/money/src/money/__init__.py": "def add(a, b):\n    return a - b\n"},
        report=True,
    ),
    "node-workspace": Project(  # scripts of members only; two build before one
        "node",
        {
            "package.json": '{"name": "all"}',
            "pnpm-workspace.yaml": "packages:\n  - 'packages/**'\n  - '!**/old'\n",
            "packages/one/package.json": '{"name": "one", "dependencies": {"two": "workspace:*"}, "scripts": '
            '{"build": "node -p \'require(`two`).add\'", "test": "node --test"}}',
            "packages/one/one.test.js": "const test = require('node:test')\n"
            "test('adds', () => require('node:assert').equal(require('two').add(1, 2), 3))\n",
            "packages/deep/two/package.json": '{"name": "two", "main": "dist/calc.js", "scripts": '
            '{"build": "mkdir -p dist && cp calc.js dist/", "test": "node -e 1"}}',
            "packages/deep/two/calc.js": "exports.add = (a, b) => a + b\n",
            "packages/old/package.json": '{"name": "old", "scripts": {"test": "exit 1"}}',
        },
        {"packages/deep/two/calc.js": "exports.add = (a, b) => a - b\n"},
        report=True,
    ),
    "python-requirements": Project(
        "python",
        {
            "requirements.txt": "# nothing yet\n",
            "shop.py": "def add(a, b):\n    return a + b\n",
            "tests/test_shop.py": "from shop import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
        },
        {"shop.py": "def add(a, b):\n    return a - b\n"},
        report=True,
    ),
    "rust": Project(
        "rust",
        {
            "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n',
            "src/lib.rs": "pub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n\n"
            "#[test]\nfn adds() {\n    assert_eq!(add(1, 2), 3)\n}\n",
        },
        {"src/lib.rs": "#[test]\nfn adds() {\n    assert_eq!(1, 3)\n}\n"},
    ),
    "perl-makemaker": Project(
        "perl",
        {
            "Makefile.PL": "use ExtUtils::MakeMaker;\nWriteMakefile(NAME => 'Calc', VERSION_FROM => 'lib/Calc.pm');\n",
            "lib/Calc.pm": CALC,
            "t/add.t": CALC_TEST,
        },
        {"lib/Calc.pm": CALC.replace("+", "-")},
    ),
    "perl-module-build": Project(
        "perl",
        {
            "Build.PL": "use Module::Build;\nModule::Build->new(module_name => 'Calc', license => 'perl',\n"
            "    dist_abstract => 'adds', dist_author => 'A')->create_build_script;\n",
            "lib/Calc.pm": CALC,
            "t/add.t": CALC_TEST,
        },
        {"lib/Calc.pm": CALC.replace("+", "-")},
    ),
    "perl-dist-zilla": Project(  # no Makefile.PL: its plugins write that of a release
        "perl",
        {"dist.ini": "name = Calc\n[@Basic]\n", "lib/Calc.pm": CALC, "t/deep/add.t": CALC_TEST},
        {"lib/Calc.pm": CALC.replace("+", "-")},
    ),
    "lua": Project(
        "lua",
        {
            "calc-1.0-1.rockspec": "package = 'calc'\n",
            "src/calc.lua": "return {add = function(a, b) return a + b end}\n",
            "spec/calc_spec.lua": "describe('calc', function()\n"
            "  it('adds', function() assert.equal(3, require('calc').add(1, 2)) end)\nend)\n",
        },
        {"src/calc.lua": "return {add = function(a, b) return a - b end}\n"},
        report=True,
    ),
    "lua-in-c": Project(  # the image has a module of this name, too
        "lua",
        {
            "lpeg-1.0-1.rockspec": "package = 'lpeg'\n",
            "lpeg.c": LPEG.format("add"),
            "test.lua": "assert(require('lpeg').add)\n",
            "makefile": "test:\n\tcc -shared -fPIC $$(pkg-config --cflags lua5.3) -o lpeg.so lpeg.c\n\tlua test.lua\n",
        },
        {"lpeg.c": LPEG.format("sub")},
    ),
    "cmake-tests-off": Project(  # its tests are an option, and their framework one that it would download
        "cmake",
        {
            "CMakeLists.txt": "cmake_minimum_required(VERSION 3.14)\nproject(calc CXX)\n"
            "option(CALC_BUILD_TESTS 'tests' OFF)\nif(CALC_BUILD_TESTS)\n  enable_testing()\n  include(FetchContent)\n"
            "  FetchContent_Declare(doctest URL https://example.invalid/doctest.tar.gz)\n"
            "  FetchContent_MakeAvailable(doctest)\n  add_executable(t t.cpp)\n"
            "  target_link_libraries(t doctest::doctest)\n  add_test(NAME t COMMAND t)\nendif()\n",
            "t.cpp": "#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN\n#include <doctest/doctest.h>\n"
            'TEST_CASE("adds") { CHECK(1 + 2 == 3); }\n',
        },
        {
            "t.cpp": "#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN\n#include <doctest/doctest.h>\n"
            'TEST_CASE("adds") { CHECK(1 - 2 == 3); }\n',
        },
        report=True,
    ),
    "make-tests": Project(
        "make-tests",
        {"calc.h": "", "tests/Makefile": MAKEFILE.format(target="check"), "tests/t.c": EXITS},
        {"tests/t.c": FAILS["t.c"]},
    ),
    "meson": Project(
        "meson",
        {"meson.build": "project('t', 'c')\ntest('t', executable('t', 't.c'))\n", "t.c": EXITS},
        FAILS,
        report=True,
    ),
    "meson-tests-off": Project(
        "meson",
        {
            "meson.build": "project('t', 'c')\nif get_option('tests').enabled()\n"
            "  test('t', executable('t', 't.c'))\nendif\n",
            "meson_options.txt": "option('tests', type: 'feature', value: 'disabled')\n",
            "t.c": EXITS,
        },
        FAILS,
        report=True,
    ),
    "configure-of-its-own": Project(
        "autotools",
        {
            "configure": "#!/bin/sh\ncp Makefile.in Makefile\n",
            "Makefile.in": MAKEFILE.format(target="test"),
            "t.c": EXITS,
        },
        FAILS,
    ),
    "autotools": Project(
        "autotools",
        {
            "configure.ac": "AC_INIT([t], [1.0])\nAM_INIT_AUTOMAKE([foreign])\nAC_PROG_CC\n"
            "AC_CONFIG_FILES([Makefile])\nAC_OUTPUT\n",
            "Makefile.am": "check_PROGRAMS = t\nTESTS = t\n",
            "t.c": EXITS,
        },
        FAILS,
    ),
    "make-check": Project("make-check", {"Makefile": MAKEFILE.format(target="check"), "t.c": EXITS}, FAILS),
}


NOT_FETCHED = ": the packages that the project asks for were not fetched (layers.fetch is 'never')"
LACKING = {
    "go": (
        {
            "go.mod": "module x\n\ngo 1.19\n\nrequire github.com/spf13/pflag v1.0.5\n",
            "go.sum": "github.com/spf13/pflag v1.0.5 h1:iy+VFUOCP1a+8yFto/drg2CJ5u0yRoB7fZw3DKv/JXA=\n"
            "github.com/spf13/pflag v1.0.5/go.mod h1:McXfJ1zwxdtk8KYbiqzbHAxvMKjMZIjtcCuCtMDYuBY=\n",
            "main.go": 'package main\n\nimport _ "github.com/spf13/pflag"\n\nfunc main() {}\n',
        },
        "go lacks modules of the project" + NOT_FETCHED,
    ),
    "rust": (
        {
            "Cargo.toml": '[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\nitoa = "1"\n',
            "src/lib.rs": "",
        },
        "cargo lacks crates of the project" + NOT_FETCHED,
    ),
}


def make_repository(folder: Path) -> Path:
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "--initial-branch=main"], cwd=folder, check=True)
    return folder


def commit(folder: Path, files: Mapping[str, str], branch: str) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    for script in folder.glob("configure"):
        script.chmod(0o755)
    for argv in (["checkout", "-q", "-B", branch], ["add", "--all"], ["commit", "-qm", branch]):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *argv], cwd=folder, check=True)


def run_branch(workbench: Workbench, folder: Path, ref: str) -> RunSummary:
    try:
        return workbench.run(str(folder), ref)
    except SandboxError as error:
        if error.code is not ErrorCode.IMAGE_MISSING:
            raise
        unavailable(f"{error.brief}: {error.hint}")


ON_THE_NEXT_DEBIAN = {"go-newer"}
RUN = {name: project for name, project in PROJECTS.items() if ALL_IMAGES or name not in ON_THE_NEXT_DEBIAN}
LIKE_ANOTHER = {
    "cmake-tests-off",
    "gopath",
    "meson-tests-off",
    "node-workspace",
    "node-yarn-pnpm",
    "perl-module-build",
    "python-application",
    "python-requirements",
    "python-workspace",
}
"""Other layouts for tools that another project of the list uses; `make test` has one or two of each tool."""


@pytest.mark.parametrize(
    "project",
    [
        pytest.param(project, id=name, marks=[pytest.mark.thorough] if name in LIKE_ANOTHER else [])
        for name, project in RUN.items()
    ],
)
def test_a_project_is_verified_and_its_failing_test_noticed(project: Project, tmp_path: Path) -> None:
    source = make_repository(tmp_path / "source")
    commit(source, project.files, "main")
    commit(source, project.broken, "broken")
    with Workbench(tmp_path / "home", environ=os.environ, allow_file=True) as workbench:
        good = run_branch(workbench, source, "main")
        bad = run_branch(workbench, source, "broken")
    assert (good.profile, good.verified) == (project.profile, True), good.runs
    assert [run.verdict for run in bad.runs] == [Verdict.PASSED] * (len(bad.runs) - 1) + [Verdict.FAILED]
    if project.report:
        reports = [summary.runs[-1].report for summary in (good, bad)]
        assert [(report.tests, report.failures) for report in reports if report] == [(1, 0), (1, 1)]


def test_a_lua_module_in_c_that_is_not_built_does_not_pass_with_that_of_the_image(tmp_path: Path) -> None:
    source = make_repository(tmp_path / "source")
    tests = {"test.lua": "assert(require('lpeg').match)\n"}  # Debian's LPeg passes
    commit(source, {"x-1-1.rockspec": "package = 'x'\n", "lpeg.c": LPEG.format("match"), **tests}, "main")
    with Workbench(tmp_path / "home", environ=os.environ, allow_file=True) as workbench:
        (run,) = run_branch(workbench, source, "main").runs
    assert (run.verdict, "There is a module in C (./lpeg.c)" in run.stderr_tail) == (Verdict.FAILED, True)


def test_cmake_tests_that_do_not_compile_do_not_pass(tmp_path: Path) -> None:
    project = PROJECTS["cmake-tests-off"]
    source = make_repository(tmp_path / "source")
    commit(source, {**project.files, "t.cpp": "#error no\n"}, "main")
    with Workbench(tmp_path / "home", environ=os.environ, allow_file=True) as workbench:
        build, test = run_branch(workbench, source, "main").runs
    assert (build.verdict, test.verdict) == (Verdict.PASSED, Verdict.FAILED)
    assert "Without CALC_BUILD_TESTS: the build with tests failed" in build.stderr_tail
    assert test.cause is not None
    assert test.cause.kind is CauseKind.CODE


@pytest.mark.parametrize(("files", "sentence"), LACKING.values(), ids=LACKING)
def test_a_dependency_that_would_need_a_network_is_named_at_once(
    files: Mapping[str, str], sentence: str, tmp_path: Path
) -> None:
    """The offline switches of the policy: without them each tool waits for a name that it retries."""
    never = {"layers": {"fetch": "never"}}
    source = make_repository(tmp_path / "source")
    commit(source, files, "main")
    with Workbench(tmp_path / "home", environ=os.environ, settings=never, allow_file=True) as workbench:
        run = run_branch(workbench, source, "main").runs[0]
    assert run.verdict is Verdict.FAILED
    assert run.cause is not None
    assert (run.cause.kind, run.cause.sentence) == (CauseKind.ENVIRONMENT, sentence)
    assert run.wall_time_s < 20 * slowness()
