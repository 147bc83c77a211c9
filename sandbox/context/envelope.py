"""The orientation envelope: a first overview of a repository, in about 8 KB. From git objects only.

A small repository is listed whole. Of a large one every folder of the first two levels is shown with its number of
files, the largest first, and the files of folders that have few; no name is left out for its first letter.
"""

from __future__ import annotations

import json
import posixpath
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel

from sandbox.context.vendored import VENDOR_FOLDERS
from sandbox.git.entries import SYMLINK, TreeEntry
from sandbox.models import Context, Entrypoint, Readme, Signals
from sandbox.models.context import ContinuousIntegration
from sandbox.policy.paths import show_path
from sandbox.suggestions.suggesting_files import WORKFLOWS

ENVELOPE_BYTES = 8 * 1024
TREE_ENTRIES = 300
README_BYTES = 3 * 1024
_README_READ_BYTES = 1024**2  # a longer one counts as missing: blobs are read whole
_README_SUFFIXES = (".md", ".adoc", ".rst", ".txt", "")
_ENTRYPOINTS = {
    **dict.fromkeys(("makefile", "gnumakefile", "makefile.am"), "make"),
    **dict.fromkeys(("go.mod", "go.work"), "go"),
    **dict.fromkeys(("package.json", "deno.json", "pnpm-workspace.yaml"), "node"),
    **dict.fromkeys(("pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "noxfile.py", "requirements.txt"), "python"),
    "cargo.toml": "rust",
    "pom.xml": "maven",
    **dict.fromkeys(("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"), "gradle"),
    "build.sbt": "sbt",
    "devfile.yaml": "devfile",
    **dict.fromkeys(("dockerfile", "containerfile"), "docker"),
    **dict.fromkeys(("docker-compose.yml", "docker-compose.yaml", "compose.yaml", "compose.yml"), "docker-compose"),
    **dict.fromkeys(("claude.md", "agents.md"), "agents"),
    "contributing.md": "contributing",
    **dict.fromkeys(("cmakelists.txt", "cmakepresets.json"), "cmake"),
    "meson.build": "meson",
    **dict.fromkeys(("configure.ac", "configure"), "autotools"),
    **dict.fromkeys(("build.bazel", "workspace", "module.bazel"), "bazel"),
    **dict.fromkeys(("gemfile", "rakefile"), "ruby"),
    "composer.json": "php",
    "mix.exs": "elixir",
    **dict.fromkeys(("stack.yaml", "cabal.project"), "haskell"),
    "dune-project": "ocaml",
    "package.swift": "swift",
    "build.zig": "zig",
    "sconstruct": "scons",
    "flake.nix": "nix",
    **dict.fromkeys(("justfile", "taskfile.yml"), "tasks"),
    **dict.fromkeys((".gitlab-ci.yml", ".travis.yml", "jenkinsfile", "azure-pipelines.yml", ".cirrus.yml"), "ci"),
}
_ENTRYPOINT_SUFFIXES = {
    ".sln": "dotnet",
    ".csproj": "dotnet",
    ".cabal": "haskell",
    ".gemspec": "ruby",
    ".nimble": "nim",
}
_DOC_SUFFIXES = {".md", ".adoc", ".rst", ".txt", ".org", ".tex", ".html"}
_CODE_SUFFIXES = frozenset(
    {
        *(".c", ".cc", ".clj", ".cpp", ".cs", ".css", ".dart", ".el", ".ex", ".exs", ".fnl", ".go", ".h", ".hpp"),
        *(".hs", ".java", ".jl", ".js", ".jsx", ".kt", ".lua", ".m", ".ml", ".php", ".pl", ".py", ".r", ".rb", ".rs"),
        *(".scala", ".sh", ".sql", ".swift", ".ts", ".tsx", ".vue", ".zig"),
    }
)
_DOC_FOLDERS = ("docs", "doc", "documentation", "content")
_SPARSE_FILES = 2
_FEW_FILES = 12
"""A folder with at most so many files, those below it included, is listed with them."""
_AFTER_SLASH = chr(ord("/") + 1)
_ENTRYPOINTS_SHOWN = 30
_COUNT_BYTES = 8  # of a folder's number
_ENTRYPOINT_BYTES, _HINT_BYTES, _CI_BYTES = 1400, 400, 1400
"""Maximum of each part as JSON, so that no part takes the room of another. The tree gets what is left."""

_ItemT = TypeVar("_ItemT", bound=str | BaseModel)
ReadBlobs = Callable[[Sequence[str]], list[bytes]]


def build_envelope(entries: Sequence[TreeEntry], read: ReadBlobs, ci: ContinuousIntegration | None = None) -> Context:
    """Build the envelope of a tree. `ci`: what its CI files install and run."""
    paths = sorted(show_path(e.path) for e in entries)
    context = Context(
        readme=_fit_readme(_find_readme(entries, read)),
        tree=(),
        tree_total=len(paths),
        tree_truncated=bool(paths),
        folders={},
        entrypoints=_clip(_find_entrypoints(paths), _ENTRYPOINT_BYTES),
        ci=None if ci is None else _fit_ci(ci),
        doc_hints=_clip(_find_doc_hints(paths), _HINT_BYTES),
        signals=_find_signals(paths),
    )
    return _add_tree(context, paths)


def _find_readme(entries: Sequence[TreeEntry], read: ReadBlobs) -> Readme | None:
    by_name: Mapping[str, TreeEntry] = {
        show_path(e.path).lower(): e
        for e in entries
        if b"/" not in e.path and e.mode != SYMLINK and e.size is not None and e.size <= _README_READ_BYTES
    }
    entry = next((by_name[f"readme{s}"] for s in _README_SUFFIXES if f"readme{s}" in by_name), None)
    if entry is None:
        return None
    content = read([entry.oid])[0]
    text = content[:README_BYTES].decode("utf-8", errors="ignore")
    return Readme(path=show_path(entry.path), content=text, truncated=len(content) > README_BYTES)


def _fit_readme(readme: Readme | None) -> Readme | None:
    """As much of it as takes `README_BYTES` and a little as JSON: control characters take six times their size."""
    if readme is None or (size := len(readme.model_dump_json().encode())) <= README_BYTES + 1024:
        return readme
    keep = len(readme.content) * README_BYTES // size
    return readme.model_copy(update={"content": readme.content[:keep], "truncated": True})


def _find_entrypoints(paths: Sequence[str]) -> tuple[Entrypoint, ...]:
    known = [(path, _find_kind(path)) for path in paths]
    found = [Entrypoint(path=p, kind=kind) for p, kind in known if kind]
    return tuple(sorted(found, key=lambda e: (e.path.count("/"), e.path))[:_ENTRYPOINTS_SHOWN])


def _find_kind(path: str) -> str | None:
    if path.startswith(WORKFLOWS) and path.endswith((".yml", ".yaml")) and path.count("/") == 2:
        return "ci"
    folder, _, name = path.rpartition("/")
    if "/" in folder or folder.lower() in VENDOR_FOLDERS:
        return None
    return _ENTRYPOINTS.get(name.lower()) or _ENTRYPOINT_SUFFIXES.get(posixpath.splitext(name)[1].lower())


def _find_doc_hints(paths: Sequence[str]) -> tuple[str, ...]:
    folders = {p.split("/", 1)[0] for p in paths if "/" in p}
    hints = [f"{f}/**" for f in sorted(folders) if f.lower() in _DOC_FOLDERS]
    suffixes = {posixpath.splitext(p)[1].lower() for p in paths if "/" not in p} & {".md", ".adoc", ".rst"}
    return (*hints, *(f"*{s}" for s in sorted(suffixes)))


def _find_signals(paths: Sequence[str]) -> Signals:
    suffixes = [posixpath.splitext(p)[1].lower() for p in paths]
    docs, code = sum(s in _DOC_SUFFIXES for s in suffixes), sum(s in _CODE_SUFFIXES for s in suffixes)
    folders = {p.split("/", 1)[0].lower() for p in paths if "/" in p}
    return Signals(
        has_readme=any("/" not in p and posixpath.splitext(p)[0].lower() == "readme" for p in paths),
        has_docs_dir=bool(folders & set(_DOC_FOLDERS)),
        has_code=code > 0,
        doc_file_count=docs,
        code_file_count=code,
        sparse=len(paths) <= _SPARSE_FILES and code == 0,
    )


def _fit_ci(ci: ContinuousIntegration) -> ContinuousIntegration:
    packages = _clip(ci.packages, _CI_BYTES // 3)
    return ContinuousIntegration(runs=_clip(ci.runs, _CI_BYTES * 2 // 3), packages=packages)


def _add_tree(context: Context, paths: Sequence[str]) -> Context:
    """Add all files if they fit into what is left, else folders and the files of small ones."""
    room = ENVELOPE_BYTES - _size(context)
    if len(paths) <= TREE_ENTRIES and sum(map(_cost, paths)) <= room:
        return context.model_copy(update={"tree": tuple(paths), "tree_truncated": False})
    folders = _choose_folders(paths, room * 2 // 3)
    room -= sum(_cost(path) + _COUNT_BYTES for path in folders)
    tree = _choose_files(paths, room)
    return context.model_copy(update={"tree": tree, "folders": folders})


def _choose_folders(paths: Iterable[str], room: int) -> dict[str, int]:
    """How many files are below each folder of the first two levels. If there are too many folders: the largest ones of
    the first level, then those of the second.
    """
    levels: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for path in paths:
        parts = path.split("/")
        for level, counts in enumerate(levels, 1):
            if len(parts) > level:
                counts["/".join(parts[:level])] += 1
    chosen: dict[str, int] = {}
    for counts in levels:
        for path, count in counts.most_common():
            room -= _cost(path) + _COUNT_BYTES
            if room >= 0:
                chosen[path] = count
    return dict(sorted(chosen.items()))


def _choose_files(paths: Sequence[str], room: int) -> tuple[str, ...]:
    """Files at the top, then those of folders that have few, the highest and smallest folders first. Of files at the
    top that are too many: some, evenly spread over their names.
    """
    top = [path for path in paths if "/" not in path]
    chosen: list[str] = []
    most = min(TREE_ENTRIES, room // (max(map(_cost, top)) if top else 1))
    for path in [top[len(top) * at // most] for at in range(most)] if len(top) > most else top:
        chosen.append(path)
        room -= _cost(path)
    for files in _list_small_folders(paths):
        cost = sum(map(_cost, files))
        if cost <= room and len(chosen) + len(files) <= TREE_ENTRIES:
            chosen += files
            room -= cost
    return tuple(sorted(chosen))


def _list_small_folders(paths: Sequence[str]) -> list[Sequence[str]]:
    """The files of each folder that has few, those below it included, without folders in such a folder. `paths`: in
    order, so that the files of a folder are neighbours. 300,000 paths may have 64 folders each, so a folder is looked
    into only if it has many files.
    """
    small: dict[str, Sequence[str]] = {}
    pending = [(0, len(paths), 0)]  # files of a folder, and where the names in it begin
    while pending:
        at, end, begin = pending.pop()
        while at < end:
            slash = paths[at].find("/", begin)
            folder = paths[at][:slash]
            stop = at + 1 if slash < 0 else bisect_left(paths, f"{folder}{_AFTER_SLASH}", at, end)
            if slash >= 0 and stop - at <= _FEW_FILES:
                small[folder] = paths[at:stop]
            elif slash >= 0:
                pending.append((at, stop, slash + 1))
            at = stop
    return [small[f] for f in sorted(small, key=lambda f: (_is_vendored(f), f.count("/"), len(small[f]), f))]


def _is_vendored(folder: str) -> bool:
    return not VENDOR_FOLDERS.isdisjoint(folder.lower().split("/"))


def _clip(items: Iterable[_ItemT], room: int) -> tuple[_ItemT, ...]:
    """The first items that take at most `room` bytes as JSON; one that is too large is skipped."""
    chosen = []
    for item in items:
        if (cost := _cost(item)) <= room:
            chosen.append(item)
            room -= cost
    return tuple(chosen)


def _cost(item: str | BaseModel) -> int:
    """Bytes of one item of a list as JSON."""
    text = item.model_dump_json() if isinstance(item, BaseModel) else json.dumps(item, ensure_ascii=False)
    return len(text.encode()) + 1


def _size(context: Context) -> int:
    return len(context.model_dump_json().encode())
