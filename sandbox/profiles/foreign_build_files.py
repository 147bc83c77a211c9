"""Build files of languages that no shipped profile is for. Pure.

Of languages alone: a build tool, such as Bazel, or a solution of Visual Studio, may build what the profile tests.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Mapping

_LANGUAGES: Mapping[str, tuple[str, ...]] = {
    "Ruby": ("Gemfile", "*.gemspec", "Rakefile"),
    "PHP": ("composer.json",),
    ".NET": ("*.csproj", "*.fsproj"),
    "Elixir": ("mix.exs",),
    "Erlang": ("rebar.config",),
    "Scala": ("build.sbt",),
    "Clojure": ("project.clj", "deps.edn"),
    "Dart": ("pubspec.yaml",),
    "Swift": ("Package.swift",),
    "Haskell": ("cabal.project", "*.cabal", "stack.yaml"),
    "OCaml": ("dune-project", "*.opam"),
    "Zig": ("build.zig",),
    "Nim": ("*.nimble",),
    "R": ("DESCRIPTION",),
    "Deno": ("deno.json",),
}


def find_foreign_files(names: Iterable[str], known: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The build files among the names of one folder by language, without languages of which `known`, the files that
    profiles look for, has one.
    """
    listed = sorted(names)
    found = {
        language: tuple(name for name in listed if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))
        for language, patterns in _LANGUAGES.items()
        if not any(fnmatch.fnmatchcase(file, pattern) for file in known for pattern in patterns)
    }
    return {language: files for language, files in found.items() if files}
