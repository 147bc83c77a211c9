"""Files of a tree that say how it is built, by name, at its top and one folder below. Pure.

For advice and for the detection of projects in folders: a name here promises no profile.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping

MAX_MANIFESTS = 40
MAX_FOLDERS = 32
"""Maximum numbers of build files and of folders with a project that are kept."""

_NAMES = frozenset(
    {
        *("makefile", "gnumakefile", "cmakelists.txt", "configure.ac", "configure", "meson.build", "build.ninja"),
        *("pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "requirements.txt", "pipfile", "environment.yml"),
        *("package.json", "deno.json", "bun.lockb", "go.mod", "cargo.toml", "makefile.pl", "build.pl", "cpanfile"),
        *("pom.xml", "build.gradle", "build.gradle.kts", "build.sbt", "build.xml", "project.clj", "deps.edn"),
        *("gemfile", "rakefile", "composer.json", "mix.exs", "rebar.config", "pubspec.yaml", "package.swift"),
        *("stack.yaml", "cabal.project", "dune-project", "build.zig", "sconstruct", "xmake.lua", "premake5.lua"),
        *("workspace", "module.bazel", "flake.nix", "justfile", "taskfile.yml", "dockerfile", "description"),
    }
)
_SUFFIXES = (".sln", ".csproj", ".cabal", ".gemspec", ".nimble", ".rockspec", ".opam", ".xcodeproj")
_NOT_OWN = frozenset(
    {
        *("vendor", "third_party", "third-party", "3rdparty", "thirdparty", "external", "extern", "deps"),
        *("node_modules", "test", "tests", "testing", "t", "examples", "example", "docs", "doc", "samples", "fuzz"),
    }
)


def find_build_files(paths: Iterable[str]) -> tuple[str, ...]:
    """Build files at the top, then those one folder below, at most `MAX_MANIFESTS`."""
    found = [path for path in paths if path.count("/") <= 1 and _is_build_file(posixpath.basename(path))]
    return tuple(sorted(found, key=lambda path: (path.count("/"), path))[:MAX_MANIFESTS])


def find_folder_markers(
    paths: Iterable[str], names: Collection[str], declared: Collection[str]
) -> Mapping[str, dict[str, str]]:
    """By folder: the path of each of these names below it. Folders: those at the top that are the repository's own,
    and the declared ones, at any depth.
    """
    found: dict[str, dict[str, str]] = {folder: {} for folder in declared}
    for path in paths:
        top, slash, rest = path.partition("/")
        if slash and rest in names and _is_own(top) and (top in found or len(found) < MAX_FOLDERS + len(declared)):
            found.setdefault(top, {})[rest] = path
        for folder in declared:
            if path.startswith(f"{folder}/") and (below := path.removeprefix(f"{folder}/")) in names:
                found[folder][below] = path
    return found


def _is_build_file(name: str) -> bool:
    return name.lower() in _NAMES or name.lower().endswith(_SUFFIXES)


def _is_own(folder: str) -> bool:
    return folder.lower() not in _NOT_OWN and not folder.startswith(".")
