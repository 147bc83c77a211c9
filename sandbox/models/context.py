"""Orientation in a repository. All of it is the repository's text: untrusted."""

from __future__ import annotations

from sandbox.models.ids import ObjectId
from sandbox.models.model import HostPath, Model


class Readme(Model):
    """The first README of a repository, clipped."""

    path: str
    content: str
    truncated: bool


class Entrypoint(Model):
    """A file that tells how a repository is built, run or contributed to."""

    path: str
    kind: str


class Signals(Model):
    """Cheap facts about what a repository holds."""

    has_readme: bool
    has_docs_dir: bool
    has_code: bool
    doc_file_count: int
    code_file_count: int
    sparse: bool


class Context(Model):
    """Orientation envelope: about 8 KB at most. Repository text: untrusted."""

    tree: tuple[str, ...]
    tree_total: int
    tree_truncated: bool
    readme: Readme | None
    entrypoints: tuple[Entrypoint, ...]
    doc_hints: tuple[str, ...]
    signals: Signals


class FetchResult(Context):
    """The answer of `repo fetch`: an immutable checkout of the commit, or of one directory of it, and its envelope."""

    local_path: HostPath
    commit_sha: ObjectId
    files_count: int


class RepoMap(Model):
    """The symbols that matter most, as text. `tokens_estimated` never exceeds the budget asked for."""

    map: str
    tokens_estimated: int
    files_covered: int
    files_total: int
