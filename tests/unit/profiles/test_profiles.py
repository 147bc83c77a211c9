"""Which profile a repository has, and which checks that means."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from devtools.host_speed import slowness
from sandbox.capabilities import profile_probes
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
MATURIN = b"[build-system]\nrequires = ['maturin>=1,<2']\n"
GO = b"package x\n"
TESTED = b"project(x)\nif(T)\n  enable_testing()\nendif()\n"


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
    ("cmake-over-make", {"CMakeLists.txt": b"", "Makefile": b"test:\n"}, "cmake"),
    ("python-over-make", {"pyproject.toml": b"", "Makefile": b"test:\n"}, "python"),
    ("make-several-targets", {"Makefile": b"test check: all\n"}, "make"),
    ("make-double-colon", {"Makefile": b"test:: all\n"}, "make"),
    ("make-variable", {"Makefile": b"test := 1\ncheck:=2\n"}, "generic"),
    ("make-check", {"Makefile": b"all:\ncheck: all\n\t./t\n"}, "make-check"),
    ("make-test-and-check", {"Makefile": b"check: test\ntest: all\n"}, "make"),
    ("python-package-over-cmake", {"pyproject.toml": PACKAGE, "CMakeLists.txt": TESTED}, "python"),
    ("python-tools-beside-cmake", {"pyproject.toml": b"[tool.ruff]\n", "CMakeLists.txt": b""}, "cmake"),
    ("python-only-tools", {"pyproject.toml": b"[tool.ruff]\n", "Makefile": b"test:\n"}, "python"),
    ("python-settings-of-tox", {"tox.ini": b"[tox]\n"}, "python"),
    ("bindings-beside-cmake", {"setup.py": b"ext_modules=[x]\n", "CMakeLists.txt": b""}, "cmake"),
    ("cmake-builds-the-extension", {"setup.py": b"from skbuild import setup\n", "CMakeLists.txt": TESTED}, "python"),
    ("cmake-called-by-setup-py", {"setup.py": b"call(['cmake', d])\n", "CMakeLists.txt": TESTED}, "python"),
    ("cmake-in-a-comment", {"setup.py": b"# like 'cmake'\n", "CMakeLists.txt": TESTED}, "cmake"),
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
    ("rust-for-python", {"Cargo.toml": b"[package]\n", "pyproject.toml": PACKAGE + MATURIN}, "python"),
    ("perl", {"Makefile.PL": b""}, "perl"),
    ("perl-module-build", {"Build.PL": b"", "Makefile": b"test:\n"}, "perl"),
    ("perl-of-dist-zilla", {"dist.ini": b"name = A-B\n[@Basic]\n", "cpanfile": b""}, "perl"),
    ("perl-another-dist-ini", {"dist.ini": b"; none\n", "Makefile": b"test:\n"}, "make"),
    ("perl-application", {"cpanfile": b"requires 'A';\n", "Makefile": b"test:\n"}, "perl"),
    ("lua", {"*.rockspec": b"", "*.lua": b"", "Makefile": b"test:\n"}, "lua"),
    ("lua-module", {"*.lua": b"local m = {}\nreturn m\n", "package.json": b"{}"}, "lua"),
    ("lua-of-a-build-tool", {"*.lua": b"workspace 'x'\n"}, "generic"),
    ("lua-module-beside-make", {"*.lua": b"return m\n", "Makefile": b"test:\n"}, "lua"),
    ("make-tests", {"tests/Makefile": b"all:\n", "package.json": b"{}"}, "make-tests"),
    ("make-tests-below-make", {"test/Makefile": b"all:\n", "Makefile": b"check:\n"}, "make-check"),
    ("meson", {"meson.build": b"project('x', 'c')\n"}, "meson"),
    ("meson-over-cmake-without-tests", {"meson.build": b"project(\n'x')", "CMakeLists.txt": b""}, "meson"),
    ("meson-for-python", {"meson.build": b"project('x')", "pyproject.toml": PACKAGE}, "python"),
    ("meson-of-a-folder", {"meson.build": b"subdir('x')"}, "generic"),
    ("autotools", {"configure.ac": b"AC_INIT\n", "Makefile": b"test:\n"}, "autotools"),
    ("autotools-old-name", {"configure.in": b"AC_INIT\n"}, "autotools"),
    ("autotools-of-its-own-kind", {"configure": b"#!/bin/sh\n", "Makefile": b"test:\n"}, "autotools"),
    ("autotools-over-cmake-without-tests", {"configure.ac": b"", "CMakeLists.txt": b"project(x)"}, "autotools"),
    ("cmake-with-tests-over-autotools", {"configure.ac": b"", "CMakeLists.txt": TESTED}, "cmake"),
    ("cmake-with-ctest", {"configure.ac": b"", "CMakeLists.txt": b"  INCLUDE(CTest)\n"}, "cmake"),
    ("node", {"package.json": b"{}"}, "node"),
    ("node-tools-beside-make", {"package.json": b'{"devDependencies": {}}', "Makefile": b"check:\n"}, "make-check"),
    ("node-tests-over-make", {"package.json": b'{"scripts": {"test": "tap"}}', "Makefile": b"test:\n"}, "node"),
    ("node-tests-beside-python", {"package.json": b'{\n "test": "jest"}', "pyproject.toml": PACKAGE}, "python"),
    ("node-package-over-setup-py", {"package.json": b'{\n  "main": "i.js"\n}', "setup.py": b""}, "node"),
    ("node-package-beside-cmake", {"package.json": b'{"main": "i.js"}', "CMakeLists.txt": TESTED}, "cmake"),
    ("node-native-over-cmake-without-tests", {"binding.gyp": b"{}", "CMakeLists.txt": b""}, "node"),
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
    (tmp_path / "python.toml").write_text(f'extends = "python"\n{SERVICE}')
    found = load_profiles([shipped, tmp_path], WORKSPACE)
    python, django = load_profiles([shipped], WORKSPACE)["python"], found["django"]
    assert (django.image, django.checks, django.layers) == (python.image, python.checks, python.layers)
    assert [service.name for service in django.services] == ["db"]
    assert django.markers == ()
    assert found["python"] == python.model_copy(update={"services": django.services})


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
    check = fill_parameters(next(c for c in shipped[name].checks if c.id == "test"), arguments)
    env = {"PATH": f"{tmp_path}:/bin"}
    done = subprocess.run(check.argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == f"{runs}\n"


def test_a_file_that_changed_is_loaded_anew(tmp_path: Path) -> None:
    text = 'label = "{0}"\nimage = "base"\npriority = 50\n[[detect.any]]\nfile = "x"\n'
    for label in ("one", "two"):
        assert load_with(tmp_path, "own", text.format(label))["own"].label == label
