"""Overview of a repository. All texts are the repository's and untrusted."""

from __future__ import annotations

from sandbox.models.ids import ObjectId
from sandbox.models.model import HostPath, Model


class Readme(Model):
    """The first README of a repository, clipped."""

    path: str
    content: str
    truncated: bool


class Entrypoint(Model):
    """A file that says how to build, run or contribute to a repository."""

    path: str
    kind: str


class Signals(Model):
    """Facts about the content of a repository that are cheap to find."""

    has_readme: bool
    has_docs_dir: bool
    has_code: bool
    doc_file_count: int
    code_file_count: int
    sparse: bool


class Context(Model):
    """Overview of a repository, about 8 KB at most. Repository text: untrusted."""

    tree: tuple[str, ...]
    tree_total: int
    tree_truncated: bool
    readme: Readme | None
    entrypoints: tuple[Entrypoint, ...]
    doc_hints: tuple[str, ...]
    signals: Signals


class FetchResult(Context):
    """The answer of `repo fetch`: an immutable checkout of a commit, or of one directory of it, and its overview."""

    local_path: HostPath
    commit_sha: ObjectId
    files_count: int


class RepoMap(Model):
    """The most important symbols, as text. `tokens_estimated` never exceeds the requested budget."""

    map: str
    tokens_estimated: int
    files_covered: int
    files_total: int
