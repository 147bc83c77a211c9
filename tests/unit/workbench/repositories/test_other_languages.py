"""A run of one profile says which languages beside it were not tested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.models import RemarkKind
from sandbox.workbench import Workbench
from tests.unit.conftest import Upstream

NODE = b'{"scripts": {"test": "jest"}}'
PACKAGE = b'[project]\nname = "x"\n'


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    environ = {"PATH": "/usr/bin:/bin", "DOCKER_HOST": f"unix://{tmp_path}/no-engine"}
    with Workbench(tmp_path / "home", environ=environ, allow_file=True) as workbench:
        yield workbench


def _seen(bench: Workbench, upstream: Upstream, files: dict[str, bytes]) -> list[str]:
    for name, content in files.items():
        upstream.write(name, content)
    upstream.commit()
    advice = bench.detect_profiles(str(upstream.root)).advice
    return [remark.seen for remark in advice if remark.kind is RemarkKind.UNCHECKED]


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"manage.py": b"", "package.json": NODE}, ["the tests of python", "node (package.json"]),
        ({"Makefile": b"test:\n", "requirements.txt": b"mkdocs\n"}, ["the tests of make", "python (requirements.txt)"]),
        ({"package.json": NODE, "Gemfile": b"", "x.gemspec": b""}, ["of node", "Ruby (Gemfile, x.gemspec)"]),
        ({"package.json": NODE, "composer.json": b"{}"}, ["PHP (composer.json)"]),
        ({"pyproject.toml": PACKAGE, "App.csproj": b""}, [".NET (App.csproj)"]),
        ({"Makefile": b"test:\n", "mix.exs": b""}, ["Elixir (mix.exs)"]),
        ({"setup.py": b"", "CMakeLists.txt": b"project(x)\n"}, ["of cmake", "python (setup.py)"]),
    ],
    ids=["django", "weak", "ruby", "php", "dotnet", "elixir", "bindings"],
)
def test_a_language_that_is_not_tested_is_named(
    files: dict[str, bytes], named: list[str], bench: Workbench, upstream: Upstream
) -> None:
    (seen,) = _seen(bench, upstream, files)
    assert [word for word in named if word not in seen] == []


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": PACKAGE},
        {"go.mod": b"module x\n", "Makefile": b"test:\n\tgo test ./...\n"},
        {"CMakeLists.txt": b"project(x)\n", "Makefile": b"test:\n", "configure.ac": b""},
        {"CMakeLists.txt": b"project(x)\n", "requirements.txt": b"mkdocs\n"},
        {"Cargo.toml": b"[package]\n", "pyproject.toml": PACKAGE + b"[build-system]\nbuild-backend = 'maturin'\n"},
        {"pyproject.toml": PACKAGE, "package.json": b'{"devDependencies": {}}', "docs/Gemfile": b""},
        {"Gemfile": b""},
        {"CMakeLists.txt": b"project(x)\n", "foo.sln": b"", "WORKSPACE": b"", "MODULE.bazel": b""},
        {"pom.xml": b"<project>", "build.xml": b""},
        {"Cargo.toml": b"[package]\n", "pyproject.toml": b"[tool.ruff]\n", "setup.cfg": b"[codespell]\n"},
        {"package.json": NODE, "Makefile": b"test:\n\tnpm test\n"},
    ],
    ids=[
        "one",
        "wrapper",
        "one image",
        "documentation",
        "both are used",
        "tools",
        "no checks",
        "builds",
        "ant",
        "settings",
        "targets",
    ],
)
def test_what_has_no_tests_of_its_own_or_is_used_anyway_is_no_remark(
    files: dict[str, bytes], bench: Workbench, upstream: Upstream
) -> None:
    assert _seen(bench, upstream, files) == []


MEMBERS: dict[str, dict[str, bytes]] = {
    "cargo": {
        "Cargo.toml": b"[workspace]\nmembers = ['crates/*']\n",
        "crates/a/Cargo.toml": b"[package]\n",
        "tools/Cargo.toml": b"[package]\n",
    },
    "uv": {
        "pyproject.toml": PACKAGE + b"[tool.uv.workspace]\nmembers = ['packages/*']\n",
        "packages/a/pyproject.toml": PACKAGE,
        "tools/pyproject.toml": PACKAGE,
    },
    "npm": {
        "package.json": b'{"workspaces": ["packages/*", "!packages/old"]}',
        "packages/a/package.json": NODE,
        "packages/old/package.json": NODE,
        "tools/package.json": NODE,
    },
    "pnpm": {
        "package.json": b'{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}',
        "pnpm-workspace.yaml": b"packages:\n  - 'packages/**'\n",
        "packages/a/package.json": NODE,
        "tools/package.json": NODE,
    },
    "maven": {
        "pom.xml": b"<modules>\n<module>core</module>\n</modules>",
        "core/pom.xml": b"",
        "tools/pom.xml": b"",
    },
    "gradle": {
        "settings.gradle": b"include ':app', 'lib:x'\ninclude(\n  'b')\n",
        "app/build.gradle": b"",
        "lib/x/build.gradle": b"",
        "b/build.gradle": b"",
        "tools/build.gradle": b"",
    },
}


@pytest.mark.parametrize("files", MEMBERS.values(), ids=MEMBERS)
def test_members_of_a_workspace_are_tested_and_no_projects_that_are_not_used(
    files: dict[str, bytes], bench: Workbench, upstream: Upstream
) -> None:
    """Control: a folder that is no member, or one of another kind."""
    others = {"crates/go/go.mod": b"module x\n", "packages/go/go.mod": b"module x\n"}
    for name, content in {**files, **others}.items():
        upstream.write(name, content)
    upstream.commit()
    found = {project.subpath for project in bench.detect_profiles(str(upstream.root)).projects}
    old = {"packages/old"} if "packages/old/package.json" in files else set[str]()
    assert found == {"tools", "crates/go", "packages/go"} | old


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": MEMBERS["uv"]["pyproject.toml"] + b"[tool.pytest.ini_options]\ntestpaths = ['tests']\n"},
        {"pytest.ini": b"[pytest]\ntestpaths = tests\n"},
    ],
    ids=["pyproject", "ini"],
)
def test_members_that_the_tests_of_the_top_leave_out_are_listed(
    files: dict[str, bytes], bench: Workbench, upstream: Upstream
) -> None:
    for name, content in {**MEMBERS["uv"], **files}.items():
        upstream.write(name, content)
    upstream.commit()
    found = {project.subpath for project in bench.detect_profiles(str(upstream.root)).projects}
    assert found == {"tools", "packages/a"}


def test_members_beside_a_script_of_the_root_are_listed(bench: Workbench, upstream: Upstream) -> None:
    for name, content in {**MEMBERS["pnpm"], "package.json": NODE}.items():
        upstream.write(name, content)
    upstream.commit()
    found = {project.subpath for project in bench.detect_profiles(str(upstream.root)).projects}
    assert found == {"tools", "packages/a"}


def test_a_folder_with_the_name_of_a_manifest_is_none(bench: Workbench, upstream: Upstream) -> None:
    """And a comment names no member."""
    files = {"package.json": b'{"scripts": {}}', "pnpm-workspace.yaml/a": b"", "a/package.json": NODE}
    for name, content in files.items():
        upstream.write(name, content)
    upstream.commit()
    found = bench.detect_profiles(str(upstream.root))
    assert [project.subpath for project in found.projects] == ["a"]


def test_a_module_in_a_comment_of_gradle_is_no_member(bench: Workbench, upstream: Upstream) -> None:
    files = {"settings.gradle": b"include ':b'\n// include ':a'\n", "a/build.gradle": b"", "b/build.gradle": b""}
    for name, content in files.items():
        upstream.write(name, content)
    upstream.commit()
    found = bench.detect_profiles(str(upstream.root))
    assert [project.subpath for project in found.projects] == ["a"]


@pytest.mark.parametrize("more", ["", '"main": "index.js", '])
def test_an_application_of_django_with_what_npm_init_wrote_is_python(
    more: str, bench: Workbench, upstream: Upstream
) -> None:
    script = '"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}'
    upstream.write("manage.py", b"")
    upstream.write("package.json", f"{{{more}{script}}}".encode())
    upstream.commit()
    assert bench.detect_profiles(str(upstream.root)).candidates[0].name == "python"


def test_a_choice_of_a_person_ends_the_remark(bench: Workbench, upstream: Upstream) -> None:
    files = {"manage.py": b"", "package.json": NODE, "Gemfile": b""}
    assert len(_seen(bench, upstream, files)) == 1
    (repository,) = bench.repositories()
    bench.set_repository(repository.id, {"profile": "python"})
    assert _seen(bench, upstream, {"a": b""}) == []


def test_a_project_of_the_same_folder_is_no_other(bench: Workbench, upstream: Upstream) -> None:
    assert len(_seen(bench, upstream, {"manage.py": b"", "package.json": NODE})) == 1
    (repository,) = bench.repositories()
    bench.set_repository(repository.id, {"projects": {"js": {"subpath": "", "profile": "node"}}})
    assert _seen(bench, upstream, {"a": b""}) == []
