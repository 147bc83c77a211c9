"""Overview of a repository. All texts are the repository's and untrusted."""

from __future__ import annotations

from pydantic import Field

from sandbox.models.ids import ObjectId, RepoId
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


class ContinuousIntegration(Model):
    """What the CI files of a repository run and install, as they say it. None of it was run here."""

    runs: tuple[str, ...]
    packages: tuple[str, ...]


class Context(Model):
    """Overview of a repository, about 8 KB at most. Repository text: untrusted.

    `tree`: all files, or if that is too much (`tree_truncated`) those at the top and of small folders; then `folders`
    has the number of files below each folder of the first two levels. `ci` is None without CI files.
    """

    readme: Readme | None
    folders: dict[str, int]
    tree: tuple[str, ...]
    tree_total: int
    tree_truncated: bool
    entrypoints: tuple[Entrypoint, ...]
    ci: ContinuousIntegration | None
    doc_hints: tuple[str, ...]
    signals: Signals


class FetchResult(Context):
    """The answer of `repo fetch`: an immutable checkout of a commit, or of one directory of it, and its overview."""

    repo_id: RepoId
    local_path: HostPath
    commit_sha: ObjectId
    files_count: int


class RepoMap(Model):
    """The most important symbols, as text. `tokens_estimated` never exceeds the requested budget.

    `vendored`: folders of code of others, which was left out, with their numbers of files; the largest ones.
    """

    map: str
    tokens_estimated: int
    files_covered: int
    files_total: int
    vendored: dict[str, int] = Field(default_factory=dict)
