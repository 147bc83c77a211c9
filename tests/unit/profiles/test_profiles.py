"""Which profile a repository has, and which checks that means."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from devtools.host_speed import slowness
from sandbox.capabilities import profile_probes
from sandbox.checks.collected import CollectedResults
from sandbox.checks.line_results import read_line_results
from sandbox.checks.output_results import read_output
from sandbox.checks.parameters import fill_parameters
from sandbox.config import find_resources
from sandbox.errors import ErrorCode
from sandbox.models import Check, ProbeLevel
from sandbox.profiles import MARKER_BYTES, Profile, load_profiles, require_usable
from sandbox.profiles.profile_matches import detect_profile, find_matches
from sandbox.profiles.suggested_checks import add_suggested_file
from sandbox.workspaces.ignore import IgnoreRules
from tests.unit.conftest import refused

WORKSPACE = PurePosixPath("/workspace")
SPACE = {
    "CMakeLists.txt": b"cmake_minimum_required(VERSION 3.20)\nproject(space LANGUAGES CXX)\n",
    "assets/lua/main.fnl": b"",
    "src/lua_runtime.cpp": b"",
    "AGENTS.md": b"",
}


PACKAGE = b"[project]\nname = 'x'\n"
MATURIN = b"[build-system]\nrequires = ['maturin>=1,<2']\nbuild-backend = 'maturin'\n"
GO = b"package x\n"
PROJECT_OF_CMAKE = b"project(x)\n"
TESTED = PROJECT_OF_CMAKE + b"if(T)\n  enable_testing()\nendif()\n"


@pytest.fixture(scope="module")
def shipped() -> dict[str, Profile]:
    return load_profiles([find_resources("policies") / "profiles"], WORKSPACE)


def test_the_shipped_profiles_are_all_there(shipped: dict[str, Profile]) -> None:
    assert {n: p.image for n, p in shipped.items()} == {
        "autotools": "build",
        "cmake": "build",
        "generic": "base",
        "go": "go",
        "gopath": "go",
        "gradle": "gradle",
        "lua": "lua",
        "make": "build",
        "make-check": "build",
        "make-tests": "build",
        "maven": "maven",
        "meson": "build",
        "node": "node",
        "perl": "perl",
        "python": "python",
        "python-rust": "python-rust",
        "rust": "rust",
        "space": "space",
    }


DETECTED: list[tuple[str, dict[str, bytes], str]] = [
    ("nothing", {}, "generic"),
    ("readme", {"README.md": b"test:"}, "generic"),
    ("pyproject", {"pyproject.toml": b""}, "python"),
    ("setup-py", {"setup.py": b""}, "python"),
    ("setup-cfg", {"setup.cfg": b""}, "python"),
    ("nested-pyproject", {"sub/pyproject.toml": b""}, "generic"),
    ("make", {"Makefile": b"all:\n\techo\ntest: all\n\t./t\n"}, "make"),
    ("make-lower", {"makefile": b"test:\n"}, "make"),
    ("make-gnu", {"GNUmakefile": b"test :\n"}, "make"),
    ("make-without-test", {"Makefile": b"all:\n\techo test:\n"}, "generic"),
    ("make-other-target", {"Makefile": b"unittest:\nmytest:\n"}, "generic"),
    ("make-binary", {"Makefile": b"\xff\xfe\0\ntest:\n"}, "make"),
    ("make-far-down", {"Makefile": b"#\n" * MARKER_BYTES + b"test:\n"}, "generic"),
    ("cmake", {"CMakeLists.txt": b"project(x)"}, "cmake"),
    ("cmake-over-make", {"CMakeLists.txt": PROJECT_OF_CMAKE, "Makefile": b"test:\n"}, "cmake"),
    ("cmake-of-a-folder", {"CMakeLists.txt": b"# project(x)\nadd_library(project (x))\n"}, "generic"),
    ("cmake-without-a-name", {"CMakeLists.txt": b"cmake_minimum_required(VERSION 3.5)\nadd_test(a b)\n"}, "cmake"),
    ("cmake-where-it-is-the-top", {"CMakeLists.txt": b"if(NOT TOP)\n  PROJECT\n(x)\nendif()\n"}, "cmake"),
    ("python-over-make", {"pyproject.toml": b"", "Makefile": b"test:\n"}, "python"),
    ("make-several-targets", {"Makefile": b"test check: all\n"}, "make"),
    ("make-targets-of-a-variable", {"Makefile": b"$(PLATS) help test clean: ${LIB}\n"}, "make"),
    ("make-prerequisite-test", {"Makefile": b"$(ALL): test\n"}, "generic"),
    ("make-double-colon", {"Makefile": b"test:: all\n"}, "make"),
    ("make-variable", {"Makefile": b"test := 1\ncheck:=2\n"}, "generic"),
    ("make-check", {"Makefile": b"all:\ncheck: all\n\t./t\n"}, "make-check"),
    ("make-test-and-check", {"Makefile": b"check: test\ntest: all\n"}, "make"),
    ("python-package-over-cmake", {"pyproject.toml": PACKAGE, "CMakeLists.txt": TESTED}, "python"),
    ("python-tools-beside-cmake", {"pyproject.toml": b"[tool.ruff]\n", "CMakeLists.txt": PROJECT_OF_CMAKE}, "cmake"),
    ("python-only-tools", {"pyproject.toml": b"[tool.ruff]\n", "Makefile": b"test:\n"}, "python"),
    ("python-settings-of-tox", {"tox.ini": b"[tox]\n"}, "python"),
    ("bindings-beside-cmake", {"setup.py": b"ext_modules=[x]\n", "CMakeLists.txt": PROJECT_OF_CMAKE}, "cmake"),
    ("cmake-builds-the-extension", {"setup.py": b"from skbuild import setup\n", "CMakeLists.txt": TESTED}, "python"),
    ("cmake-called-by-setup-py", {"setup.py": b"call(['cmake', d])\n", "CMakeLists.txt": TESTED}, "python"),
    ("cmake-in-a-comment", {"setup.py": b"# like 'cmake'\n", "CMakeLists.txt": TESTED}, "cmake"),
    ("django-with-node-tests", {"manage.py": b"", "package.json": b'{"scripts": {"test": "jest"}}'}, "python"),
    ("django-with-a-makefile", {"manage.py": b"", "Makefile": b"test:\n"}, "python"),
    ("application-with-a-makefile", {"requirements.txt": b"# x\nFlask>=2\n", "Makefile": b"test:\n"}, "python"),
    ("documentation-beside-make", {"requirements.txt": b"mkdocs\nflask-x\n", "Makefile": b"test:\n"}, "make"),
    ("application-with-node-tests", {"requirements.txt": b"flask\n", "package.json": b'{"test": "jest"}'}, "node"),
    ("pipfile-with-a-makefile", {"Pipfile": b'[dev-packages]\npytest = "*"\n', "Makefile": b"test:\n"}, "python"),
    ("pipfile-of-tools-beside-make", {"Pipfile": b'[packages]\nconan = "*"\n', "Makefile": b"test:\n"}, "make"),
    ("go", {"go.mod": b"module x\n"}, "go"),
    ("go-with-a-makefile", {"go.mod": b"", "Makefile": b"test:\n\tgo test ./...\n"}, "go"),
    ("go-with-python-tools", {"go.mod": b"", "pyproject.toml": PACKAGE}, "go"),
    ("go-without-go-mod", {"*.go": b"// x\npackage x\n", "*_test.go": GO, "Makefile": b"test:\n"}, "gopath"),
    ("go-without-go-mod-or-tests", {"*.go": GO}, "gopath"),
    ("go-with-go-mod-and-tests", {"*_test.go": GO, "go.mod": b""}, "go"),
    ("go-tests-beside-another-project", {"*_test.go": GO, "pyproject.toml": PACKAGE}, "python"),
    ("guile-is-not-go", {"*.go": b"\x7fELF\n"}, "generic"),
    ("rust", {"Cargo.toml": b"[package]\n"}, "rust"),
    ("rust-workspace", {"Cargo.toml": b"[workspace]\nmembers = []\n", "Makefile": b"test:\n"}, "rust"),
    ("rust-without-a-package", {"Cargo.toml": b"[profile.release]\n"}, "generic"),
    ("rust-for-python", {"Cargo.toml": b"[package]\n", "pyproject.toml": PACKAGE + MATURIN}, "python-rust"),
    ("rust-beside-python", {"pyproject.toml": PACKAGE + b"[dependency-groups]\ndev = ['maturin']\n"}, "python"),
    ("rust-of-setup-py", {"setup.py": b"from x import RustExtension\n", "pyproject.toml": PACKAGE}, "python-rust"),
    ("perl", {"Makefile.PL": b""}, "perl"),
    ("perl-module-build", {"Build.PL": b"", "Makefile": b"test:\n"}, "perl"),
    ("perl-of-dist-zilla", {"dist.ini": b"name = A-B\n[@Basic]\n", "cpanfile": b""}, "perl"),
    ("perl-another-dist-ini", {"dist.ini": b"; none\n", "Makefile": b"test:\n"}, "make"),
    ("perl-application", {"cpanfile": b"requires 'A';\n", "package.json": b"{}"}, "perl"),
    ("perl-application-beside-make", {"cpanfile": b"requires 'A';\n", "Makefile": b"test:\n"}, "make"),
    ("perl-application-with-node-tests", {"cpanfile": b"", "package.json": b'{"scripts": {"test": "tap"}}'}, "node"),
    ("lua", {"*.rockspec": b"", "*.lua": b"", "Makefile": b"test:\n"}, "lua"),
    ("lua-module", {"*.lua": b"local m = {}\nreturn m\n", "package.json": b"{}"}, "lua"),
    ("lua-of-a-build-tool", {"*.lua": b"workspace 'x'\n"}, "generic"),
    ("lua-module-beside-make", {"*.lua": b"return m\n", "Makefile": b"test:\n"}, "make"),
    ("lua-module-beside-make-check", {"*.lua": b"return m\n", "Makefile": b"check:\n"}, "make-check"),
    ("lua-beside-cmake-with-tests", {"*.rockspec": b"", "CMakeLists.txt": TESTED}, "cmake"),
    ("make-tests", {"tests/Makefile": b"all:\ncheck: all\n"}, "make-tests"),
    ("make-tests-in-test", {"test/Makefile": b"all test: x\n"}, "make-tests"),
    ("make-tests-without-a-target", {"tests/Makefile": b"all: certs.pem\n"}, "generic"),
    ("make-tests-below-make", {"test/Makefile": b"test:\n", "Makefile": b"check:\n"}, "make-check"),
    ("make-tests-of-an-application", {"tests/Makefile": b"test:\n", "requirements.txt": b""}, "python"),
    ("make-tests-beside-go", {"tests/Makefile": b"test:\n", "*.go": GO}, "gopath"),
    ("make-tests-beside-node", {"tests/Makefile": b"test:\n", "package.json": b'{"dependencies": {}}'}, "node"),
    ("make-tests-beside-a-name", {"tests/Makefile": b"test:\n", "package.json": b'{"name": "x"}'}, "make-tests"),
    ("make-tests-that-are-run", {"tests/Makefile": b"all: x\nrun_tests: x\n"}, "make-tests"),
    ("make-tests-that-are-run-by-others", {"tests/Makefile": b"all: run_tests\n"}, "generic"),
    ("meson", {"meson.build": b"project('x', 'c')\n"}, "meson"),
    (
        "meson-over-cmake-without-tests",
        {"meson.build": b"project(\n'x')\nsubdir('t')", "CMakeLists.txt": PROJECT_OF_CMAKE},
        "meson",
    ),
    ("meson-for-python", {"meson.build": b"project('x')", "pyproject.toml": PACKAGE}, "python"),
    ("meson-of-a-folder", {"meson.build": b"subdir('x')"}, "generic"),
    ("meson-without-tests", {"meson.build": b"project('x')\n# test('y', z)\n", "configure.ac": b""}, "autotools"),
    (
        "meson-without-tests-beside-cmake",
        {"meson.build": b"project('x')\n", "CMakeLists.txt": PROJECT_OF_CMAKE},
        "cmake",
    ),
    ("meson-with-tests", {"meson.build": b"project('x')\n  test('y', z)\n", "configure.ac": b""}, "meson"),
    ("meson-with-folders", {"meson.build": b"project('x')\nsubdir('t')\n", "configure.ac": b""}, "meson"),
    ("autotools", {"configure.ac": b"AC_INIT\n", "Makefile": b"test:\n"}, "autotools"),
    ("autotools-old-name", {"configure.in": b"AC_INIT\n"}, "autotools"),
    ("autotools-of-its-own-kind", {"configure": b"#!/bin/sh\n", "Makefile": b"test:\n"}, "autotools"),
    ("autotools-over-cmake-without-tests", {"configure.ac": b"", "CMakeLists.txt": b"project(x)"}, "autotools"),
    ("cmake-with-tests-over-autotools", {"configure.ac": b"", "CMakeLists.txt": TESTED}, "cmake"),
    ("cmake-with-ctest", {"configure.ac": b"", "CMakeLists.txt": PROJECT_OF_CMAKE + b"  INCLUDE(CTest)\n"}, "cmake"),
    ("node", {"package.json": b"{}"}, "node"),
    ("node-tools-beside-make", {"package.json": b'{"devDependencies": {}}', "Makefile": b"check:\n"}, "make-check"),
    ("node-tests-over-make", {"package.json": b'{"scripts": {"test": "tap"}}', "Makefile": b"test:\n"}, "node"),
    ("node-tests-beside-python", {"package.json": b'{\n "test": "jest"}', "pyproject.toml": PACKAGE}, "python"),
    ("node-package-over-setup-py", {"package.json": b'{\n  "main": "i.js"\n}', "setup.py": b""}, "node"),
    ("node-package-beside-cmake", {"package.json": b'{"main": "i.js"}', "CMakeLists.txt": TESTED}, "cmake"),
    ("node-native-over-cmake-without-tests", {"binding.gyp": b"{}", "CMakeLists.txt": PROJECT_OF_CMAKE}, "node"),
    ("space", SPACE, "space"),
    ("space-over-all", {**SPACE, "pyproject.toml": b"", "Makefile": b"test:\n"}, "space"),
    ("space-another-project", {**SPACE, "CMakeLists.txt": b"project(other)"}, "cmake"),
    ("space-spaced-out", {**SPACE, "CMakeLists.txt": b"project (space)"}, "cmake"),
]


@pytest.mark.parametrize(("files", "name"), [d[1:] for d in DETECTED], ids=[d[0] for d in DETECTED])
def test_a_repository_has_the_profile_of_its_markers(
    files: dict[str, bytes], name: str, shipped: dict[str, Profile]
) -> None:
    assert detect_profile(shipped, files.get).name == name


def test_what_a_native_module_is_built_to_is_no_change_but_sources_beside_it_are(shipped: dict[str, Profile]) -> None:
    rules = IgnoreRules({}, shipped["node"].artifacts)
    built = [
        "build/Release/a.node",
        "build/Makefile",
        "build/binding.Makefile",
        "build/a.target.mk",
        "build/config.gypi",
    ]
    assert [path for path in built if not rules.is_ignored(path, directory=False)] == []
    assert not any(rules.is_ignored(path, directory=False) for path in ("build/webpack.js", "lib/build/Release/a.js"))


@pytest.mark.parametrize("missing", SPACE)
def test_without_any_one_of_its_markers_it_is_not_space(missing: str, shipped: dict[str, Profile]) -> None:
    files = {name: content for name, content in SPACE.items() if name != missing}
    assert detect_profile(shipped, files.get).name != "space"


def test_the_checks_of_space_are_what_was_asked_for(shipped: dict[str, Profile]) -> None:
    build, test, e2e = shipped["space"].checks
    assert (build.id, build.argv, build.timeout_s, build.env, build.requires) == (
        "build",
        ("make", "build"),
        600,
        {},
        (),
    )
    assert (test.id, test.argv, test.timeout_s, test.requires) == ("test", ("make", "test"), 300, ("build",))
    assert test.env == {
        "SKIP_KEYRING_TESTS": "1",
        "XDG_DATA_HOME": "/tmp/space/tests/xdg-data",
        "SPACE_DISABLE_AUDIO": "1",
        "SPACE_ASSETS_PATH": "/workspace/assets",
    }
    assert (e2e.id, e2e.argv, e2e.timeout_s, e2e.requires) == ("e2e", ("make", "test-e2e"), 600, ("build",))
    assert e2e.env == {"SPACE_DISABLE_AUDIO": "1", "SPACE_ASSETS_PATH": "/workspace/assets"}


def test_the_workspace_of_the_policy_is_filled_in() -> None:
    profiles = load_profiles([find_resources("policies") / "profiles"], PurePosixPath("/elsewhere"))
    assert profiles["space"].checks[1].env["SPACE_ASSETS_PATH"] == "/elsewhere/assets"


@pytest.mark.parametrize(
    ("name", "ids"),
    [("generic", ()), ("python", ("build", "test")), ("make", ("build", "test")), ("cmake", ("build", "test"))],
)
def test_the_other_profiles_have_their_checks(name: str, ids: tuple[str, ...], shipped: dict[str, Profile]) -> None:
    assert tuple(c.id for c in shipped[name].checks) == ids


def test_tests_that_tape_and_mocha_print_are_counted(shipped: dict[str, Profile], tmp_path: Path) -> None:
    """Its tail, with the table of nyc; the words of other runners are no test."""
    (test,) = (check for check in shipped["node"].checks if check.id == "test")
    assert test.results is not None
    assert test.results.output is not None
    log, failed = tmp_path / "stdout", "not ok 2 should be equal\n  ---\n    operator: equal\n  ...\n"
    log.write_text(f"TAP version 13\n# parse\nok 1 should be equal\n{failed}\n1..2\n# tests 2\n# fail  1\n\n100% |\n")
    results = CollectedResults()
    report = read_output([log], test.results.output, ".", results, failed=True)
    assert report is not None
    assert (report.tests, report.failures, results.complete) == (2, 1, True)
    log.write_text("> mocha\n\n  parse\n    \u2713 ok\n\n  1 passing (3ms)\n")
    found = read_output([log], test.results.output, ".", CollectedResults(), failed=False)
    assert found is not None
    assert found.tests == 1


@pytest.mark.parametrize("name", ["python", "python-rust"])
def test_tests_that_a_program_of_unittest_prints_are_counted(
    name: str, shipped: dict[str, Profile], tmp_path: Path
) -> None:
    """A lint that prints `Ran` is none; the profile that extends Python's has its format, too."""
    (test,) = (check for check in shipped[name].checks if check.id == "test")
    assert test.results is not None
    assert test.results.output is not None
    log = tmp_path / "stderr"
    log.write_text(f"Found 2 test(s).\nRan 9 linters\n..\n{'-' * 70}\nRan 2 tests in 0.001s\n\nOK (skipped=1)\n")
    results = CollectedResults()
    report = read_output([log], test.results.output, ".", results, failed=False)
    assert report is not None
    assert (report.tests, report.skipped, results.compared) == (2, 1, False)


def test_tests_that_automake_prints_are_counted(shipped: dict[str, Profile], tmp_path: Path) -> None:
    """As GNU Hello 2.10 prints them; lines of its summary and of make are none."""
    (test,) = (check for check in shipped["autotools"].checks if check.id == "test")
    assert test.results is not None
    lines = ["make[4]: Entering directory '/w'", "PASS: tests/hello-1", "SKIP: tests/greeting-2", "FAIL: tests/last-1"]
    lines += ["XFAIL: a", "XPASS: b", "ERROR: c", "# TOTAL: 6", "# PASS:  1", "PASS:", "  PASS: indented"]
    (tmp_path / "stdout").write_text("\n".join(lines))
    report = read_line_results([tmp_path / "stdout"], test.results, CollectedResults())
    assert report is not None
    assert (report.tests, report.skipped) == (6, 2)
    assert [failed.name for failed in report.failed] == ["tests/last-1", "b", "c"]


def test_evidence_is_named_and_weighed(shipped: dict[str, Profile]) -> None:
    files = {"go.mod": b"", "Makefile": b"all:\ntest: all\n\tgo test\n", "setup.cfg": b"[flake8]\n"}
    assert [(m.profile.name, m.weight, m.why) for m in find_matches(shipped, files.get)] == [
        ("go", 50, ("go.mod",)),
        ("python", 25, ("setup.cfg",)),
        ("make", 20, ("Makefile: test:",)),
    ]


def test_the_strongest_of_several_markers_counts(shipped: dict[str, Profile]) -> None:
    (match,) = find_matches(shipped, {"pyproject.toml": PACKAGE, "tox.ini": b""}.get)
    assert (match.weight, match.why) == (45, ("pyproject.toml: [project]", "tox.ini"))


def test_found_text_is_one_short_line(shipped: dict[str, Profile]) -> None:
    makefile = b" ".join([b"x" * 300, b"test", b"y" * 300]) + b":\n"
    (match,) = find_matches(shipped, {"Makefile": makefile}.get)
    assert match.why == (f"Makefile: {'x' * 80}",)


@pytest.mark.parametrize("line", [b"test " * 50_000, b"t" * MARKER_BYTES, b" " * MARKER_BYTES, b"'cmake " * 30_000])
def test_hostile_files_are_matched_in_linear_time(line: bytes, shipped: dict[str, Profile]) -> None:
    started = time.process_time()
    find_matches(shipped, lambda _: line)
    assert time.process_time() - started < 2 * slowness()


def test_the_page_names_every_profile_with_its_checks_and_images(shipped: dict[str, Profile]) -> None:
    docs = Path(__file__).parents[3] / "docs"
    rows = [line for line in (docs / "profiles.md").read_text().splitlines() if line.startswith("| `")]
    images = (docs / "images.md").read_text()
    for name, profile_ in shipped.items():
        (row,) = [line for line in rows if line.startswith(f"| `{name}` |")]
        assert all(f"`{check.id}`" in row for check in profile_.checks)
        assert f"| `{profile_.image}` |" in images


# --- order


def profile(*checks: tuple[str, tuple[str, ...]]) -> Profile:
    made = tuple(Check(id=name, label=name, argv=("true",), requires=requires) for name, requires in checks)
    return Profile(name="p", label="p", image="i", check=made)


CHAIN = profile(("deploy", ("test",)), ("lint", ()), ("build", ()), ("test", ("build",)), ("doc", ("build",)))


@pytest.mark.parametrize(
    ("wanted", "order"),
    [
        (["build"], ["build"]),
        (["test"], ["build", "test"]),
        (["deploy"], ["build", "test", "deploy"]),
        (["test", "build"], ["build", "test"]),
        (["doc", "lint"], ["lint", "build", "doc"]),
        (["test", "test"], ["build", "test"]),
        ([], []),
    ],
)
def test_required_checks_come_first_and_each_once(wanted: list[str], order: list[str]) -> None:
    assert [c.id for c in CHAIN.order_checks(wanted)] == order


def test_everything_in_order_keeps_each_after_what_it_requires() -> None:
    done: set[str] = set()
    for check in CHAIN.order_checks([c.id for c in CHAIN.checks]):
        assert set(check.requires) <= done
        done.add(check.id)
    assert len(done) == len(CHAIN.checks)


def test_an_unknown_check_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown check 'none'"):
        CHAIN.order_checks(["none"])


@pytest.mark.parametrize(
    "checks",
    [[("a", ("a",))], [("a", ("b",)), ("b", ("a",))], [("a", ("none",))]],
    ids=["itself", "circle", "unknown"],
)
def test_a_profile_whose_checks_have_no_order_does_not_exist(checks: list[tuple[str, tuple[str, ...]]]) -> None:
    with pytest.raises(ValueError, match=r"cycle|unknown check"):
        profile(*checks)


# --- the operator's own


def own(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.toml").write_text(text)
    return folder


def test_a_later_folder_replaces_and_adds(tmp_path: Path, shipped: dict[str, Profile]) -> None:
    folder = own(tmp_path / "mine", "python", 'label = "ours"\nimage = "ours"\n')
    own(folder, "extra", 'label = "x"\nimage = "x"\npriority = 999\n[[detect.any]]\nfile = "x"\n')
    found = load_profiles([find_resources("policies") / "profiles", folder, tmp_path / "none"], WORKSPACE)
    assert set(found) == {*shipped, "extra"}
    assert (found["python"].label, found["python"].checks) == ("ours", ())
    assert detect_profile(found, {**SPACE, "x": b""}.get).name == "extra"


def test_equal_priorities_are_decided_by_name(tmp_path: Path) -> None:
    text = 'label = "x"\nimage = "x"\n[[detect.any]]\nfile = "x"\n'
    for name in ("b", "a", "generic"):
        folder = own(tmp_path / "mine", name, text)
    assert detect_profile(load_profiles([folder], WORKSPACE), {"x": b""}.get).name == "a"


HEAD = 'label = "x"\nimage = "x"\n'
WRONG: dict[str, str] = {
    "no-toml": "label = ",
    "unknown-key": HEAD + "surprise = 1\n",
    "no-image": 'label = "x"\n',
    "no-argv": HEAD + '[[check]]\nid = "a"\nlabel = "a"\nargv = []\n',
    "shell-string": HEAD + '[[check]]\nid = "a"\nlabel = "a"\nargv = "make test"\n',
    "bad-id": HEAD + '[[check]]\nid = "../x"\nlabel = "a"\nargv = ["a"]\n',
    "negative-timeout": HEAD + '[[check]]\nid = "a"\nlabel = "a"\nargv = ["a"]\ntimeout_s = -1\n',
    "circle": HEAD + '[[check]]\nid = "a"\nlabel = "a"\nargv = ["a"]\nrequires = ["a"]\n',
    "priority-of-a-required-marker": HEAD + '[[detect.all]]\nfile = "x"\npriority = 1\n',
    "bad-pattern": HEAD + '[[detect.any]]\nfile = "x"\nmatches = "("\n',
}


CHECK = '[[check]]\nid = "a"\nlabel = "a"\nargv = ["a"]\n'
UNUSABLE = {
    "memory": ("[check.limits]\nmemory_bytes = 1\n", "memory_bytes must be at least 6,291,456"),
    "variable": (f'[check.env]\nA = "{"x" * 200_000}"\n', "'A' cannot be set: it takes 200,002 bytes"),
    "service": (
        '[[service]]\nname = "db"\nimage = "base"\nready = ["true"]\nport = 5432\nlimits.memory_bytes = 1\n',
        "memory_bytes must be at least 6,291,456",
    ),
}


@pytest.mark.parametrize(("text", "named"), UNUSABLE.values(), ids=UNUSABLE)
def test_what_no_guest_starts_with_is_named(text: str, named: str, tmp_path: Path, shipped: dict[str, Profile]) -> None:
    """In a profile, and in the file of a repository."""
    folder = own(tmp_path / "mine", "wrong", HEAD + CHECK + text)
    with refused(ErrorCode.INVALID_INPUT) as caught:
        require_usable(load_profiles([folder], WORKSPACE)["wrong"])
    assert named in caught.value.details
    with refused(ErrorCode.INVALID_INPUT) as caught:
        add_suggested_file(shipped["generic"], (CHECK + text).encode(), WORKSPACE)
    assert named in caught.value.details or "more than 8000 characters" in caught.value.details


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_wrong_profile_is_named_with_its_reason(text: str, tmp_path: Path) -> None:
    folder = own(tmp_path / "mine", "wrong", text)
    with refused(ErrorCode.INVALID_INPUT) as caught:
        require_usable(load_profiles([folder], WORKSPACE)["wrong"])
    assert "wrong.toml" in caught.value.brief
    assert caught.value.details


BROKEN_CHECK = '[[check]]\nid = "a"\nlabel = "a"\nargv = "make"\n'


def load_with(tmp_path: Path, name: str, text: str) -> dict[str, Profile]:
    return load_profiles([find_resources("policies") / "profiles", own(tmp_path / "mine", name, text)], WORKSPACE)


def test_a_wrong_profile_breaks_only_what_it_would_be_used_for(tmp_path: Path) -> None:
    rules = 'priority = 99\n[[detect.all]]\nfile = "service.yaml"\n'
    found = load_with(tmp_path, "service", HEAD + rules + BROKEN_CHECK)
    assert detect_profile(found, {"pyproject.toml": b""}.get).name == "python"
    assert detect_profile(found, lambda _: None).name == "generic"
    with refused(ErrorCode.INVALID_INPUT) as caught:  # not python, with other checks
        detect_profile(found, {"service.yaml": b"", "pyproject.toml": b""}.get)
    assert str(tmp_path / "mine" / "service.toml") in caught.value.brief
    assert "argv of check 1" in caught.value.details


@pytest.mark.parametrize("text", ["label = ", HEAD + BROKEN_CHECK], ids=["no TOML", "no detection"])
def test_a_wrong_profile_that_replaces_a_shipped_one_is_detected_as_that(tmp_path: Path, text: str) -> None:
    found = load_with(tmp_path, "python", text)
    assert detect_profile(found, lambda _: None).name == "generic"
    with refused(ErrorCode.INVALID_INPUT):
        detect_profile(found, {"pyproject.toml": b""}.get)


RULES = 'priority = 99\n[[detect.all]]\nfile = "CMakeLists.txt"\n[[detect.any]]\nfile = "service.yaml"\n'
LATER = '[[check]]\nid = "a"\nlabel = "a"\nargv = ["true"]\n'
BUILT = b"cmake_minimum_required(VERSION 3.25)\nproject(x)\nenable_testing()\n"
BROKEN_TEXTS = {
    "in a check": HEAD + RULES + LATER + "oops =\n",
    "in the first line": "label = \n" + RULES + LATER,
    "a key twice": HEAD + RULES + LATER + LATER.replace("[[check]]\n", "") + "[launch]\nargv = []\n[launch]\n",
    "in the priority": HEAD + RULES.replace("99", "99x") + LATER,
    "in a marker": HEAD + RULES.replace('"service.yaml"', '"service.yaml') + LATER,
    "in the name of a table": HEAD + RULES.replace("[[detect.any]]", "[[detect.any]") + LATER,
    "an open string": HEAD.replace('label = "', 'label = """') + RULES + LATER,
    "rules in one line": HEAD + 'priority = 99\ndetect.any = [{file = "service.yaml"}]\noops =\n' + LATER,
    "a pattern": HEAD + RULES + 'matches = "("\n' + LATER,
    "a repetition without end": HEAD + RULES + 'matches = "a{99999999999}"\n' + LATER + "oops =\n",
    "only a repetition without end": HEAD + RULES + 'matches = "a{99999999999}"\n' + LATER,
    "groups in groups": HEAD + RULES + f'matches = "{"(" * 9_000}{")" * 9_000}"\n' + LATER + "oops =\n",
    "lists in lists": HEAD + RULES + f"x = {'[' * 9_000}\noops =\n" + LATER,
    "a long number": HEAD + RULES + f"x = {'9' * 5_000}\noops =\n" + LATER,
    "a colon": HEAD + RULES.replace('file = "service', 'file: "service') + LATER,
    "no quotes": HEAD + RULES.replace('"service.yaml"', "service.yaml") + LATER,
    "a key in quotes": HEAD + RULES.replace('file = "service.yaml"', '"file" = "service.yaml') + LATER,
    "the type of the priority": HEAD + RULES.replace("99", "[99]") + LATER,
}


@pytest.mark.parametrize("text", BROKEN_TEXTS.values(), ids=BROKEN_TEXTS)
def test_repositories_that_a_broken_file_was_for_are_refused(tmp_path: Path, text: str) -> None:
    """No shipped profile is used instead, with other checks and another image. Control: other repositories work."""
    found = load_with(tmp_path, "service", text)
    with refused(ErrorCode.INVALID_INPUT) as caught:
        detect_profile(found, {"CMakeLists.txt": BUILT, "service.yaml": b""}.get)
    assert str(tmp_path / "mine" / "service.toml") in caught.value.brief
    assert detect_profile(found, {"CMakeLists.txt": BUILT}.get).name == "cmake"
    whole = load_with(tmp_path, "service", HEAD + RULES + LATER)
    assert detect_profile(whole, {"CMakeLists.txt": BUILT, "service.yaml": b""}.get).name == "service", "the control"


@pytest.mark.parametrize(
    "table",
    [
        "[[definition]]\nlanguage = 'Fennel'\nsuffixes = ['.fnl']\npattern",
        "[check.results]\nfailed",
        "[[check.parameter]]\nname = 'tests'\npattern",
        "[launch]\nargv = ['x']\nsoak_s = 1\n[launch.ready]\nline",
    ],
)
def test_a_repetition_without_end_is_a_mistake_of_its_file_alone(tmp_path: Path, table: str) -> None:
    found = load_with(tmp_path, "service", f"{HEAD}{RULES}{LATER}{table} = '(a{{99999999999}})'\n")
    assert "the repetition number is too large" in found["service"].problem
    assert detect_profile(found, {"pyproject.toml": b""}.get).name == "python"


def test_a_comment_in_a_broken_table_is_no_rule(tmp_path: Path) -> None:
    text = HEAD + RULES + '# file = "pyproject.toml"\n  #file = "setup.py"\noops =\n' + LATER
    found = load_with(tmp_path, "service", text)
    assert detect_profile(found, {"CMakeLists.txt": BUILT, "pyproject.toml": b""}.get).name != "service"
    with refused(ErrorCode.INVALID_INPUT):
        detect_profile(found, {"CMakeLists.txt": BUILT, "service.yaml": b""}.get)


def test_bytes_that_are_no_text_hide_no_rules(tmp_path: Path) -> None:
    folder = own(tmp_path / "mine", "service", "")
    (folder / "service.toml").write_bytes(f"{HEAD}{RULES}".encode() + b"[launch]\nlabel = '\xff'\n")
    found = load_profiles([find_resources("policies") / "profiles", folder], WORKSPACE)
    with refused(ErrorCode.INVALID_INPUT):
        detect_profile(found, {"CMakeLists.txt": BUILT, "service.yaml": b""}.get)


def test_a_new_profile_of_which_nothing_can_be_read_is_never_detected(tmp_path: Path) -> None:
    found = load_with(tmp_path, "service", "label = \n")
    assert "line 1" in found["service"].problem
    assert detect_profile(found, {"service.yaml": b"", "pyproject.toml": b""}.get).name == "python"


def test_doctor_names_the_file_and_the_mistake(tmp_path: Path) -> None:
    (probe,) = profile_probes(load_with(tmp_path, "service", "label = \n").values())
    assert probe.level is ProbeLevel.WARN
    assert str(tmp_path / "mine" / "service.toml") in probe.value
    assert "line 1" in probe.value
    assert profile_probes(load_profiles([find_resources("policies") / "profiles"], WORKSPACE).values()) == ()


def test_g17_no_profile_takes_arguments_from_outside(shipped: dict[str, Profile]) -> None:
    fields: Any = Check.model_fields
    assert "args" not in fields
    for each in shipped.values():
        for check in each.checks:
            assert all(isinstance(part, str) for part in check.argv)
            with pytest.raises(ValueError, match="frozen"):
                check.argv = ("id",)  # type: ignore[misc]  # that it cannot be set is the point


@pytest.mark.parametrize(
    ("text", "image", "packages"),
    [
        ('image = "build"\n', "build", ()),
        ('image = "build"\npackages = ["libpng-dev", "g++"]\n', "build", ("libpng-dev", "g++")),
        ('[image]\nname = "build"\n', "build", ()),
        ('[image]\nname = "build"\npackages = ["libpng-dev"]\n', "build", ("libpng-dev",)),
    ],
)
def test_an_image_is_a_name_or_a_table_with_packages(
    tmp_path: Path, text: str, image: str, packages: tuple[str, ...]
) -> None:
    found = load_with(tmp_path, "ours", f'label = "x"\n{text}')["ours"]
    assert (found.problem, found.image, found.packages) == ("", image, packages)


def test_a_profile_that_extends_another_may_add_packages_to_its_image(tmp_path: Path) -> None:
    found = load_with(tmp_path, "ours", 'extends = "cmake"\nlabel = "x"\n[image]\npackages = ["bc"]\n')["ours"]
    assert (found.problem, found.image, found.packages) == ("", "build", ("bc",))


@pytest.mark.parametrize(
    "text",
    [
        '[image]\npackages = ["bc"]\n',
        '[image]\nname = "build"\nsurprise = 1\n',
        'packages = ["bc"]\n[image]\nname = "build"\n',
        'image = "build"\npackages = ["--allow-unauthenticated"]\n',
        'image = "build"\npackages = ["bc-"]\n',
        'image = "build"\npackages = "bc"\n',
        f'image = "build"\npackages = {["bc"] * 201}\n',
    ],
)
def test_a_profile_with_other_words_for_packages_is_broken(tmp_path: Path, text: str) -> None:
    assert load_with(tmp_path, "ours", f'label = "x"\n{text}')["ours"].problem


SERVICE = """[[service]]
name = "db"
image = "postgres"
ready = ["pg_isready"]
port = 5432
"""


def test_a_profile_that_extends_a_shipped_one_runs_what_that_runs(tmp_path: Path) -> None:
    shipped = find_resources("policies") / "profiles"
    (tmp_path / "django.toml").write_text(f'extends = "python"\nlabel = "Django"\n{SERVICE}')
    (tmp_path / "plain.toml").write_text('extends = "python"\n')
    (tmp_path / "python.toml").write_text(f'extends = "python"\n{SERVICE}')
    found = load_profiles([shipped, tmp_path], WORKSPACE)
    python, django = load_profiles([shipped], WORKSPACE)["python"], found["django"]
    assert (django.image, django.checks, django.layers) == (python.image, python.checks, python.layers)
    assert [service.name for service in django.services] == ["db"]
    assert django.markers == ()
    assert found["python"] == python.model_copy(update={"services": django.services})
    assert (found["plain"].label, found["plain"].problem) == (python.label, ""), "docs/dependencies.md has such a file"


@pytest.mark.parametrize(
    ("ecosystems", "is_usable"),
    [("python rust", True), ("go python", True), ("python node", False), ("rust rust", False), ("rust go", False)],
)
def test_two_layers_go_together_if_one_needs_no_place_in_path(tmp_path: Path, ecosystems: str, is_usable: bool) -> None:
    layers = "".join(f'[[layer]]\necosystem = "{name}"\n' for name in ecosystems.split())
    found = load_with(tmp_path, "ours", f'label = "x"\nimage = "build"\n{layers}')["ours"]
    assert (found.problem == "") is is_usable


@pytest.mark.parametrize("origin", ["django", "nothing", "bad"])
def test_a_profile_extends_no_other_than_a_shipped_one(tmp_path: Path, origin: str) -> None:
    (tmp_path / "bad.toml").write_text("image = 1")
    (tmp_path / "django.toml").write_text(f'extends = "{origin}"\nlabel = "Django"\n')
    found = load_profiles([find_resources("policies") / "profiles", tmp_path], WORKSPACE)["django"]
    assert "no usable shipped profile" in found.problem


@pytest.mark.parametrize(
    "more",
    [SERVICE, SERVICE.replace("db", "other"), 'checks = ["nothing"]', "limits = { memory_byte = 1 }"],
    ids=["same name", "same port", "unknown check", "unknown limit"],
)
def test_services_that_cannot_be_are_a_mistake_of_the_file(tmp_path: Path, more: str) -> None:
    (tmp_path / "own.toml").write_text(f'extends = "python"\nlabel = "x"\n{SERVICE}{more}\n')
    assert load_profiles([find_resources("policies") / "profiles", tmp_path], WORKSPACE)["own"].problem


def test_a_repository_suggests_services_for_checks_of_its_profile(shipped: dict[str, Profile]) -> None:
    content = f'{SERVICE}checks = ["test"]\n[service.check_env]\nPGHOST = "127.0.0.1"\n'.encode()
    found = add_suggested_file(shipped["python"], content, WORKSPACE)
    assert found.checks == shipped["python"].checks
    assert [(s.name, s.checks, s.check_env) for s in found.services] == [("db", ("test",), {"PGHOST": "127.0.0.1"})]
    with refused(ErrorCode.INVALID_INPUT):
        add_suggested_file(found, content, WORKSPACE)


@pytest.mark.parametrize(
    ("name", "arguments", "runs"),
    [
        ("autotools", (), "make check"),
        ("autotools", ("a.test", "b"), "make check TESTS=a.test b"),
        ("maven", (), "mvn -B -o verify"),
        ("maven", ("ATest#b",), "mvn -B -o verify -Dtest=ATest#b -Dsurefire.failIfNoSpecifiedTests=false"),
        ("gradle", (), "gradle --offline --no-daemon check"),
        ("gradle", ("a.B",), "gradle --offline --no-daemon test --tests a.B"),
        ("perl", (), "make test"),
        ("perl", ("t/a b.t", "t/c.t"), "prove --blib t/a b.t t/c.t"),
    ],
)
def test_a_part_of_a_shipped_test_check_is_run_by_its_runner(
    shipped: dict[str, Profile], tmp_path: Path, name: str, arguments: tuple[str, ...], runs: str
) -> None:
    for command in ("make", "mvn", "gradle", "prove"):
        (tmp_path / command).write_text('#!/bin/sh\necho "${0##*/} $*"\n')
        (tmp_path / command).chmod(0o755)
    (tmp_path / "Makefile.PL").touch()
    (tmp_path / "configure.ac").touch()
    check = fill_parameters(next(c for c in shipped[name].checks if c.id == "test"), arguments)
    env = {"PATH": f"{tmp_path}:/bin"}
    done = subprocess.run(check.argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == f"{runs}\n"


# --- what the scripts of shipped checks do, with stand-ins for the tools of the images


def run_script(check: Check, folder: Path, files: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script of a check in a folder with these files; those in `bin/` are programs."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin"}
    argv = fill_parameters(check, arguments).argv
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)


def script_of(shipped: dict[str, Profile], name: str, check_id: str) -> Check:
    return next(check for check in shipped[name].checks if check.id == check_id)


PHONY = ".PHONY: test check\n"
BOTH = PHONY + "test:\n\t@echo runs test\ncheck:\n\t@echo runs check\n"


@pytest.mark.parametrize(
    ("files", "runs"),
    [
        ({"Makefile": BOTH}, "runs test\n"),
        ({"Makefile": PHONY + "check:\n\t@echo runs check\n", "test/a.c": ""}, "runs check\n"),
        ({"Makefile": "%st:\n\t@echo runs $@\n"}, "runs test\n"),
        ({"Makefile": "include more.mk\n", "more.mk": "a test:\n\t@echo runs $@\n"}, "runs test\n"),
        ({"Makefile": "all:\n", "test/a.c": "", "check/a.c": ""}, ""),
        ({"Makefile": BOTH, "configure.ac": ""}, "runs check\n"),
        ({"Makefile": "test:\n\t@echo runs test\n", "configure.ac": ""}, "runs test\n"),
        ({"Makefile": "check: missing\n" + "test:\n\t@echo runs test\n", "configure.ac": ""}, ""),
    ],
    ids=["both", "folder", "pattern", "include", "folders-only", "automake", "only-test", "broken-check"],
)
def test_make_says_which_target_runs_the_tests_of_a_configured_project(
    shipped: dict[str, Profile], tmp_path: Path, files: dict[str, str], runs: str
) -> None:
    done = run_script(script_of(shipped, "autotools", "test"), tmp_path, files)
    assert (done.stdout, done.returncode == 0) == (runs, bool(runs))


def test_a_folder_of_tests_is_never_run_by_the_default_of_its_makefile(
    shipped: dict[str, Profile], tmp_path: Path
) -> None:
    check = script_of(shipped, "make-tests", "test")
    done = run_script(check, tmp_path, {"tests/Makefile": "all:\n\t@echo certs\n"})
    assert (done.returncode, done.stdout) == (1, "")
    done = run_script(check, tmp_path, {"test/Makefile": "all:\na check: all\n\t@echo runs check\n"})
    assert (done.returncode, "runs check\n" in done.stdout) == (0, True)


@pytest.mark.parametrize("folders", [(), ("t",), ("t/lib",)], ids=["no t", "empty t", "no test in t"])
def test_perl_without_a_test_fails(shipped: dict[str, Profile], tmp_path: Path, folders: tuple[str, ...]) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    check, prove = script_of(shipped, "perl", "test"), {"bin/prove": '#!/bin/sh\necho "prove $*"\n'}
    done = run_script(check, tmp_path, prove)
    assert (done.returncode, done.stdout) == (1, "")
    assert run_script(check, tmp_path, {"t/deep/a.t": ""}).stdout == "prove --lib --recurse t\n"
    done = run_script(check, tmp_path, {"lib/A.xs": ""})  # Debian's A.so might be found
    assert (done.returncode, "There is XS" in done.stderr) == (1, True)


LUA = {"bin/busted": "#!/bin/sh\necho busted\n", "bin/lua": "#!/bin/sh\necho lua\n", "spec/a_spec.lua": ""}
IN_C = {**LUA, "src/x.c": "int luaopen_x(lua_State *L) { return 1; }\n"}
TELLS = 'test:\n\t@touch src/x.so; echo "$$LUA_CPATH"\n'


@pytest.mark.parametrize(
    ("files", "arguments", "words"),
    [
        (IN_C, (), "There is a module in C (./src/x.c)"),
        ({**IN_C, "Makefile": TELLS}, ("spec",), "There is a module in C"),
        ({**IN_C, "Makefile": TELLS, "makefile": "all:\n"}, (), "There is a module in C"),
        ({**IN_C, "Makefile": "test:\n\t@busted\n"}, (), "make test built none"),
        ({**LUA, "x.cpp": "#include <lua.hpp>\n"}, (), "There is a module in C"),
    ],
    ids=["no make test", "a part", "another makefile", "make test without a build", "c++"],
)
def test_a_lua_module_in_c_that_is_not_built_is_not_tested_with_the_copy_of_the_image(
    shipped: dict[str, Profile], tmp_path: Path, files: dict[str, str], arguments: tuple[str, ...], words: str
) -> None:
    done = run_script(script_of(shipped, "lua", "test"), tmp_path, files, *arguments)
    assert (done.returncode, words in done.stderr) == (1, True)


@pytest.mark.parametrize("makefile", ["Makefile", "makefile", "GNUmakefile"])
def test_a_lua_module_in_c_is_built_by_make_test_and_found_before_that_of_the_image(
    shipped: dict[str, Profile], tmp_path: Path, makefile: str
) -> None:
    done = run_script(script_of(shipped, "lua", "test"), tmp_path, {**IN_C, makefile: TELLS})
    assert done.returncode == 0
    assert done.stdout.startswith(f"{tmp_path}/?.so;{tmp_path}/src/?.so;")
    assert done.stdout.endswith(";;\n")


def test_a_lua_project_without_c_runs_busted(shipped: dict[str, Profile], tmp_path: Path) -> None:
    done = run_script(script_of(shipped, "lua", "test"), tmp_path, {**LUA, "Makefile": TELLS, "x.html": "luaopen_"})
    assert (done.returncode, done.stdout) == (0, "busted\n")


CMAKE = """#!/bin/sh
echo "cmake $*" >> log
case "$*" in
--build*) exec sh -c "$(cat build/compile)" ;;
esac
mkdir -p build
cat cache > build/CMakeCache.txt
touch build/CTestTestfile.cmake
case "$*" in
*TESTS=ON*) echo 'echo compiled with tests; exit ${BROKEN_TESTS:-0}' > build/compile ;;
*) echo 'echo compiled' > build/compile ;;
esac
[ ! -f fails ]
"""
CTEST = """#!/bin/sh
case "$*" in
*-N*) if grep -q LISTED build/compile; then echo '  Test #1: t'; else echo 'Total Tests: 0'; fi ;;
*) echo "ctest $*" ;;
esac
"""
CACHE = "CMAKE_PROJECT_NAME:STATIC=calc\nFETCHCONTENT_BASE_DIR:PATH=build/_deps\n"
TOOLS = {"bin/cmake": CMAKE, "bin/ctest": CTEST}


def configured(folder: Path) -> list[str]:
    return [line for line in (folder / "log").read_text().splitlines() if "--build" not in line]


def test_cmake_switches_on_only_options_of_the_project_that_mean_tests(
    shipped: dict[str, Profile], tmp_path: Path
) -> None:
    names = (
        "FMT_TEST",
        "JSON_BuildTests",
        "NO_TESTS",
        "HIDE_TESTS",
        "calc_BUILD_TESTS",
        "CALC_UNIT_TESTS",
        "FROM_TESTS",
    )
    files = {
        **TOOLS,
        "cache": CACHE + "".join(f"{name}:BOOL=OFF\n" for name in names),
        "third_party/fmt/CMakeLists.txt": 'option(FMT_TEST "x" OFF)\n',
        "lib/External/CMakeLists.txt": 'option(JSON_BuildTests "x" OFF)\n',
        "build/_deps/x/CMakeLists.txt": 'option(FROM_TESTS "x" OFF)\n',
        "CMakeLists.txt": 'option(NO_TESTS "x" OFF) # option(FMT_TEST\noption(HIDE_TESTS "x" OFF)\n'
        'option(\n  ${PROJECT_NAME}_BUILD_TESTS\n  "x" OFF)\n',
        "cmake/options.cmake": 'set(CALC_UNIT_TESTS OFF CACHE BOOL "x")',
    }
    assert run_script(script_of(shipped, "cmake", "build"), tmp_path, files).returncode == 0
    assert configured(tmp_path) == [
        "cmake -S . -B build -G Ninja",
        "cmake -S . -B build -G Ninja -Dcalc_BUILD_TESTS=ON -DCALC_UNIT_TESTS=ON",
    ]


@pytest.mark.parametrize("breaks", [False, True], ids=["builds", "breaks"])
def test_cmake_builds_without_tests_that_it_switched_on_if_they_do_not_compile(
    shipped: dict[str, Profile], tmp_path: Path, breaks: bool
) -> None:
    files = {
        **TOOLS,
        "bin/cmake": CMAKE.replace("BROKEN_TESTS:-0", f"BROKEN_TESTS:-{int(breaks)}"),
        "cache": CACHE + "A_TESTS:BOOL=OFF\n",
        "CMakeLists.txt": "option(A_TESTS x OFF)\n",
    }
    done = run_script(script_of(shipped, "cmake", "build"), tmp_path, files)
    assert done.returncode == 0
    assert done.stdout == "compiled with tests\n" + "compiled\n" * breaks
    assert ("Without A_TESTS: the build with tests failed" in done.stderr) == breaks
    assert configured(tmp_path)[2:] == ["cmake -S . -B build -G Ninja"] * breaks


@pytest.mark.parametrize(
    ("files", "fails"),
    [
        ({"bin/ctest": CTEST.replace("LISTED", "with")}, "the build"),
        ({"bin/ctest": CTEST}, ""),
        ({"bin/cmake": CMAKE + 'case "$*" in *TESTS=ON*) exit 1 ;; esac\n'}, ""),
        (
            {
                "bin/cmake": CMAKE + 'case "$*" in *TESTS=ON*) exit 1 ;; esac\n',
                "t/CMakeLists.txt": "if(A_TESTS)\n  gtest_discover_tests(t)\n",
            },
            "the configuration",
        ),
        (
            {
                "bin/cmake": CMAKE + 'case "$*" in *TESTS=ON*) exit 1 ;; esac\n',
                "t/CMakeLists.txt": "#[=[ ]]\nadd_test(x)\n]=] # add_test(x) #[[\n#[[ add_test( ]]\n",
            },
            "",
        ),
        (
            {
                "bin/cmake": CMAKE + 'case "$*" in *TESTS=ON*) exit 1 ;; esac\n',
                "t/CMakeLists.txt": 'set(A "#[[")\n# x #[[\n#[[ ]] add_test(x)\n# ]]\n',
            },
            "the configuration",
        ),
        (
            {
                "bin/cmake": CMAKE + 'case "$*" in *TESTS=ON*) exit 1 ;; esac\n',
                "vendor/x/CMakeLists.txt": "add_test(x)\n",
            },
            "",
        ),
    ],
    ids=["tests", "no-tests", "no-configured-tests", "configured-tests", "comments", "no-comment", "tests-of-others"],
)
def test_ctest_fails_where_the_project_has_tests_and_its_build_left_them_out(
    shipped: dict[str, Profile], tmp_path: Path, files: dict[str, str], fails: str
) -> None:
    broken = CMAKE.replace("BROKEN_TESTS:-0", "BROKEN_TESTS:-1")
    project = {"cache": CACHE + "A_TESTS:BOOL=OFF\n", "CMakeLists.txt": "option(A_TESTS x OFF)\n"}
    done = run_script(
        script_of(shipped, "cmake", "build"), tmp_path, {**TOOLS, "bin/cmake": broken, **project, **files}
    )
    assert (done.returncode, "Without A_TESTS: the " in done.stderr) == (0, True)
    done = run_script(script_of(shipped, "cmake", "test"), tmp_path, {}, "t")
    if not fails:
        report = "--output-on-failure --output-junit /report/junit.xml --tests-regex t"
        assert (done.returncode, done.stdout) == (0, f"ctest --test-dir build {report}\n")
        return
    said = f"Tests were left out: {fails} with A_TESTS failed, see the output of build\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    mended = {"bin/cmake": CMAKE}
    assert run_script(script_of(shipped, "cmake", "build"), tmp_path, mended).returncode == 0
    assert run_script(script_of(shipped, "cmake", "test"), tmp_path, {}).returncode == 0


def test_cmake_that_cannot_build_fails_whatever_it_switched_on(shipped: dict[str, Profile], tmp_path: Path) -> None:
    files = {
        **TOOLS,
        "bin/cmake": CMAKE.replace("'echo compiled'", "'exit 3'").replace("TESTS:-0", "TESTS:-1"),
        "cache": CACHE + "A_TESTS:BOOL=OFF\n",
        "CMakeLists.txt": "option(A_TESTS x OFF)\n",
    }
    assert run_script(script_of(shipped, "cmake", "build"), tmp_path, files).returncode == 3
    assert run_script(script_of(shipped, "cmake", "build"), tmp_path, {"CMakeLists.txt": ""}).returncode == 3


@pytest.mark.parametrize(
    ("text", "offline"),
    [
        ('project(x HOMEPAGE_URL "https://x.example")\nFetchContent_Declare(a URL ${CMAKE_SOURCE_DIR}/a.tgz)\n', False),
        ("FetchContent_Declare(a\n  URL\n  https://x.example/a.tgz)\n", True),
        ('fetchcontent_declare(a GIT_REPOSITORY "git@x.example:a")\n', True),
        ("FetchContent_Declare(a URL ${A_URL})\n", True),
        ("# FetchContent_Declare(a URL https://x.example/a.tgz)\n", False),
        ("FetchContent_Declare(a URL https://x.example/a.tgz)\nFetchContent_Declare(b URL ./b.tgz)\n", False),
        ("ExternalProject_Add(a URL https://x.example/a.tgz)\n", False),
    ],
    ids=["local", "lines", "git", "variable", "comment", "both", "another-command"],
)
def test_fetchcontent_is_disconnected_only_if_it_would_download(
    shipped: dict[str, Profile], tmp_path: Path, text: str, offline: bool
) -> None:
    before = "FetchContent_Declare(z URL https://x.example/z.tgz)\n"  # of an earlier run
    files = {**TOOLS, "cache": CACHE, "CMakeLists.txt": text, "build/z-src/CMakeLists.txt": before}
    run_script(script_of(shipped, "cmake", "build"), tmp_path, files)
    assert ["FULLY_DISCONNECTED=ON" in line for line in configured(tmp_path)] == [offline]


@pytest.mark.parametrize("fails", [False, True])
def test_what_fetchcontent_cannot_get_is_named_and_is_a_cause_only_where_the_configuration_fails(
    shipped: dict[str, Profile], tmp_path: Path, fails: bool
) -> None:
    sought = {"NOPE": "", "THERE": "", "GOOGLETEST": "/usr/src/googletest"}
    files = {
        **TOOLS,
        **({"fails": ""} if fails else {}),
        "cache": CACHE + "".join(f"FETCHCONTENT_SOURCE_DIR_{name}:PATH={value}\n" for name, value in sought.items()),
        "CMakeLists.txt": "FetchContent_Declare(unused URL https://x.example/a.tgz)\n",
        "build/_deps/there-src/CMakeLists.txt": "",
    }
    done = run_script(script_of(shipped, "cmake", "build"), tmp_path, files)
    words = "FetchContent cannot download here" if fails else "FetchContent has no network here"
    assert (done.returncode, done.stderr.endswith(f"{words}: nope\n")) == (int(fails), True)
    (tmp_path / "cache").write_text(CACHE)
    assert run_script(script_of(shipped, "cmake", "build"), tmp_path, {}).stderr == ""


@pytest.mark.parametrize("has", [False, True])
def test_cmake_names_presets_where_it_cannot_configure(shipped: dict[str, Profile], tmp_path: Path, has: bool) -> None:
    files = {**TOOLS, "fails": "", "cache": CACHE, **({"CMakePresets.json": "{}"} if has else {})}
    done = run_script(script_of(shipped, "cmake", "build"), tmp_path, files)
    assert (done.returncode, done.stderr) == (1, "CMakePresets.json: no preset of the project is used here\n" * has)


MESON = """#!/bin/sh
case "$*" in
*--buildoptions*) echo '[{"name": "tests", "value": false, "section": "user", "type": "boolean"}]' ;;
*introspect*) echo '[]' ;;
setup*--wipe*-Dtests=true*) touch builddir/on ;;
setup*) mkdir -p builddir ;;
compile*) [ ! -f builddir/on ] || exit BROKEN; echo compiled ;;
esac
"""


@pytest.mark.parametrize("name", ["python", "python-rust", "cmake", "meson", "autotools", "make", "rust", "go"])
def test_builds_that_call_compilers_have_the_time_that_the_page_says(shipped: dict[str, Profile], name: str) -> None:
    assert {check.timeout_s for check in shipped[name].checks} == {1800}


def test_tests_of_meson_have_more_time_than_their_authors_gave_them(shipped: dict[str, Profile]) -> None:
    assert " --timeout-multiplier 4 " in script_of(shipped, "meson", "test").argv[2]


@pytest.mark.parametrize("breaks", [False, True], ids=["builds", "breaks"])
def test_meson_builds_without_tests_that_it_switched_on_if_they_do_not_compile(
    shipped: dict[str, Profile], tmp_path: Path, breaks: bool
) -> None:
    meson = {"bin/meson": MESON.replace("BROKEN", "1" if breaks else "0")}
    done = run_script(script_of(shipped, "meson", "build"), tmp_path, meson)
    assert done.returncode == 0
    assert ("Without -Dtests=true: the build with tests failed" in done.stderr) == breaks
    assert done.stdout == "compiled\n" * breaks


@pytest.mark.parametrize("has", [False, True], ids=["no-tests", "tests"])
@pytest.mark.parametrize("what", ["build", "configuration"])
def test_meson_test_fails_where_the_project_has_tests_and_its_build_left_them_out(
    shipped: dict[str, Profile], tmp_path: Path, has: bool, what: str
) -> None:
    listed = """*--tests*) if [ -f builddir/on ]; then echo '"cmd"'; fi ;;\n"""
    meson = MESON.replace("BROKEN", "1").replace("*introspect*", f"{listed if has else ''}*introspect*")
    if what == "configuration":
        meson = meson.replace("touch builddir/on", "exit 1")
    files = {"t/meson.build": "test('t', t)\n" if has else "# test('t', t)\n", "bin/meson": meson}
    done = run_script(script_of(shipped, "meson", "build"), tmp_path, files)
    assert (done.returncode, f"the {what} with tests failed" in done.stderr) == (0, True)
    check = script_of(shipped, "meson", "test")
    done = run_script(check, tmp_path, {"bin/cp": "#!/bin/sh\n", "bin/meson": "#!/bin/sh\necho $1\n"})
    said = f"Tests were left out: the {what} with -Dtests=true failed, see the output of build\n"
    assert (done.returncode, done.stdout, done.stderr) == ((1, "", said) if has else (0, "test\n", ""))


def test_a_file_that_changed_is_loaded_anew(tmp_path: Path) -> None:
    text = 'label = "{0}"\nimage = "base"\npriority = 50\n[[detect.any]]\nfile = "x"\n'
    for label in ("one", "two"):
        assert load_with(tmp_path, "own", text.format(label))["own"].label == label
