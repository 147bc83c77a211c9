"""The orientation envelope: a first overview of a repository, in about 8 KB. From git objects only."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence

from sandbox.git.entries import SYMLINK, TreeEntry
from sandbox.models import Context, Entrypoint, Readme, Signals
from sandbox.policy.paths import show_path

ENVELOPE_BYTES = 8 * 1024
TREE_ENTRIES = 300
README_BYTES = 4 * 1024
_README_READ_BYTES = 1024**2  # a longer one counts as missing: blobs are read whole
_README_SUFFIXES = (".md", ".adoc", ".rst", ".txt", "")
_ENTRYPOINTS = {
    "makefile": "make",
    "go.mod": "go",
    "package.json": "node",
    "pyproject.toml": "python",
    "cargo.toml": "rust",
    "pom.xml": "maven",
    "build.gradle": "gradle",
    "devfile.yaml": "devfile",
    "dockerfile": "docker",
    "docker-compose.yml": "docker-compose",
    "claude.md": "agents",
    "agents.md": "agents",
    "contributing.md": "contributing",
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

ReadBlobs = Callable[[Sequence[str]], list[bytes]]


def build_envelope(entries: Sequence[TreeEntry], read: ReadBlobs) -> Context:
    """Build the envelope of a tree; the README is clipped first, then the list of files."""
    paths = sorted(show_path(e.path) for e in entries)
    context = Context(
        tree=tuple(paths[:TREE_ENTRIES]),
        tree_total=len(paths),
        tree_truncated=len(paths) > TREE_ENTRIES,
        readme=_find_readme(entries, read),
        entrypoints=_find_entrypoints(paths),
        doc_hints=_find_doc_hints(paths),
        signals=_find_signals(paths),
    )
    return _clip(context)


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


def _find_entrypoints(paths: Sequence[str]) -> tuple[Entrypoint, ...]:
    known = [(p, _ENTRYPOINTS.get(posixpath.basename(p).lower())) for p in paths if p.count("/") <= 1]
    found = [Entrypoint(path=p, kind=kind) for p, kind in known if kind]
    return tuple(sorted(found, key=lambda e: (e.path.count("/"), e.path))[:30])


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


def _clip(context: Context) -> Context:
    excess = _size(context) - ENVELOPE_BYTES
    if excess > 0 and context.readme is not None:
        context = context.model_copy(update={"readme": _shorten(context.readme, excess)})
    for name in ("tree", "entrypoints", "doc_hints"):
        while _size(context) > ENVELOPE_BYTES and (items := getattr(context, name)):
            shorter = {name: items[: len(items) * 3 // 4]}
            cut = context.tree_truncated or name == "tree"
            context = context.model_copy(update={**shorter, "tree_truncated": cut})
    return context


def _shorten(readme: Readme, excess: int) -> Readme:
    """Remove `excess` characters, which are at least `excess` bytes of JSON."""
    return readme.model_copy(
        update={"content": readme.content[: max(0, len(readme.content) - excess)], "truncated": True}
    )


def _size(context: Context) -> int:
    return len(context.model_dump_json().encode())
