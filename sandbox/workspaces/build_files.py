"""Files of a tree that say how it is built, by name, at its top and in folders. Pure.

For advice and for the detection of projects in folders: a name here promises no profile.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

MAX_MANIFESTS = 40
MAX_FOLDERS = 32
"""Maximum numbers of build files and of folders with a project that are kept."""

FOLDER_LEVELS = 2
"""How deep projects are looked for that are not declared: `web/`, and `services/api/`."""

_NAMES = frozenset(
    {
        *("makefile", "gnumakefile", "cmakelists.txt", "configure.ac", "configure", "meson.build", "build.ninja"),
        *("pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "requirements.txt", "pipfile", "environment.yml"),
        *("noxfile.py", "environment.yaml", "pixi.toml"),
        *("package.json", "deno.json", "bun.lockb", "go.mod", "cargo.toml", "makefile.pl", "build.pl", "cpanfile"),
        *("pom.xml", "build.gradle", "build.gradle.kts", "build.sbt", "build.xml", "project.clj", "deps.edn"),
        *("gemfile", "rakefile", "composer.json", "mix.exs", "rebar.config", "pubspec.yaml", "package.swift"),
        *("stack.yaml", "cabal.project", "dune-project", "build.zig", "sconstruct", "xmake.lua", "premake5.lua"),
        *("project.toml", "shard.yml", "dub.json", "dub.sdl"),
        *("workspace", "workspace.bazel", "module.bazel", "build.bazel"),
        *("flake.nix", "justfile", "taskfile.yml", "dockerfile", "description"),
    }
)
_SUFFIXES = (
    ".sln",
    ".slnx",
    ".csproj",
    ".fsproj",
    ".vbproj",
    ".cabal",
    ".gemspec",
    ".nimble",
    ".rockspec",
    ".opam",
    ".xcodeproj",
)
_NOT_OWN = frozenset(
    {
        *("vendor", "third_party", "third-party", "3rdparty", "thirdparty", "external", "extern", "deps"),
        *("node_modules", "test", "tests", "testing", "t", "examples", "example", "docs", "doc", "samples", "fuzz"),
        *("testdata", "test-data", "test_data", "fixtures", "sample", "demo", "demos", "bench", "benchmarks"),
    }
)


_FOR_ANY_PROJECT = frozenset(
    {
        *("dockerfile", "flake.nix", "justfile", "noxfile.py", "taskfile.yml"),
        *("environment.yaml", "pixi.toml", "project.toml", "build.bazel", "workspace.bazel"),
    }
)
"""Build files that do not describe what is beside them: they often build what is in folders."""


def builds_one_project(path: str) -> bool:
    """Whether a file, by its name, is the build file of a project in its own folder."""
    name = posixpath.basename(path)
    return _is_build_file(name) and name.lower() not in _FOR_ANY_PROJECT


def is_own(folder: str) -> bool:
    """Whether a folder, by its names, holds the repository's own code: not that of others, tests or documentation."""
    return all(_is_own(name) for name in folder.split("/"))


def find_build_files(paths: Iterable[str]) -> tuple[str, ...]:
    """Build files at the top, then those one folder below; where there are none, the repository's own in deeper
    folders. At most `MAX_MANIFESTS`.
    """
    every = [path for path in paths if _is_build_file(posixpath.basename(path))]
    near = [path for path in every if path.count("/") <= 1]
    found = near or [path for path in every if is_own(posixpath.dirname(path))]
    return tuple(sorted(found, key=lambda path: (path.count("/"), path))[:MAX_MANIFESTS])


def find_deep_folder(build_files: Sequence[str]) -> str:
    """The folder of the first one, if all are deeper than projects are looked for; else ''. As `find_build_files`."""
    first = next(iter(build_files), "")
    return posixpath.dirname(first) if first.count("/") > FOLDER_LEVELS else ""


def find_first_fits(paths: Iterable[str], names: Iterable[str]) -> dict[str, str]:
    """By pattern among the names, such as `*_test.go`: the first path by name that fits it, in one folder."""
    patterns = [name for name in names if "*" in name]
    files = sorted(path for path in paths if "/" not in path) if patterns else []
    firsts = {pattern: next(iter(fnmatch.filter(files, pattern)), None) for pattern in patterns}
    return {pattern: path for pattern, path in firsts.items() if path is not None}


def find_folder_markers(
    paths: Iterable[str], names: Collection[str], declared: Collection[str]
) -> Mapping[str, dict[str, str]]:
    """By folder: the path of each of these names below it. Folders: at most `MAX_FOLDERS` of the repository's own, at
    the top or below a folder at the top that has none of the names itself; and the declared ones, at any depth.
    Patterns count in the declared ones only: source files alone make no project of a folder.
    """
    inside: dict[str, list[str]] = {folder: [] for folder in declared}
    seen: dict[str, dict[str, str]] = {}
    for path in paths:
        for folder, rest in _split_at_folders(path):
            if rest in names:
                seen.setdefault(folder, {})[rest] = path
        for folder in declared:
            if path.startswith(f"{folder}/"):
                inside[folder].append(path.removeprefix(f"{folder}/"))
    own = sorted((f for f in seen if f.rpartition("/")[0] not in seen), key=lambda f: (f.count("/"), f))
    return {folder: seen[folder] for folder in own[:MAX_FOLDERS]} | {
        folder: _choose_markers(folder, paths_below, names) for folder, paths_below in inside.items()
    }


def _choose_markers(folder: str, below: Sequence[str], names: Collection[str]) -> dict[str, str]:
    """As `find_folder_markers`, for one folder and all paths below it."""
    found = {path: path for path in below if path in names} | find_first_fits(below, names)
    return {name: f"{folder}/{path}" for name, path in found.items()}


def _split_at_folders(path: str) -> Iterator[tuple[str, str]]:
    """The path as a folder and the rest, for its first folders, as long as they are the repository's own."""
    at = -1
    for _ in range(FOLDER_LEVELS):
        before, at = at + 1, path.find("/", at + 1)
        if at < 0 or not _is_own(path[before:at]):
            return
        yield path[:at], path[at + 1 :]


def _is_build_file(name: str) -> bool:
    return name.lower() in _NAMES or name.lower().endswith(_SUFFIXES)


def _is_own(folder: str) -> bool:
    return folder.lower() not in _NOT_OWN and not folder.startswith(".")
