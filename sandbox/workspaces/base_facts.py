"""Stored facts about a base tree, so that no operation on a task lists the whole tree again."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.blobs import read_blobs
from sandbox.git.entries import GITLINK, SYMLINK, TreeEntry
from sandbox.git.process import Git
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import Model, ObjectId
from sandbox.policy.paths import path_bytes, show_path
from sandbox.workspaces.build_files import FOLDER_LEVELS, find_build_files
from sandbox.workspaces.ignore import IGNORE_BYTES, IgnoreRules

ReadMarker = Callable[[str], bytes | None]
"""Reads a marker file; None if there is none."""

_LFS = lazy_pattern(rb"^[^#\n]*\bfilter=lfs\b", re.MULTILINE)
_ATTRIBUTES_BYTES = 64 * 1024
_ATTRIBUTES_FILES = 20


class BaseFacts(Model):
    """Facts about the tree of one commit, all paths in text form.

    `ignore`: text of each `.gitignore` by its directory; None if they are too large. `gitlinks`: paths of submodules.
    `markers`: content of the files that profiles look for (bytes as latin-1), None for those that the tree lacks.
    `below`: the same for folders, only files that they have; looked for `folder_levels` deep. `manifests`: build files
    by name, at the top and one folder below. `suggested_folders`: those of `below` that the commit's suggestions name.
    `lfs`: whether .gitattributes gives files to Git LFS.
    """

    tree: ObjectId
    ignore: dict[str, str] | None
    gitlinks: tuple[str, ...]
    markers: dict[str, str | None]
    below: dict[str, dict[str, str]]
    manifests: tuple[str, ...]
    suggested_folders: tuple[str, ...]
    lfs: bool
    folder_levels: int

    def rules(self, artifacts: Iterable[str]) -> IgnoreRules:
        """The ignore rules of the tree, plus the build output of a profile. Raises: `quota_exceeded`."""
        if self.ignore is None:
            raise SandboxError(
                ErrorCode.QUOTA_EXCEEDED,
                f"The repository's .gitignore files are larger than {IGNORE_BYTES} bytes",
                hint="This repository is not supported: the ignored files could not be determined.",
            )
        return IgnoreRules(self.ignore, artifacts)

    def gitlink_paths(self) -> frozenset[bytes]:
        """The paths of submodules."""
        return frozenset(path_bytes(path) for path in self.gitlinks)

    def marker(self, path: str) -> bytes | None:
        """The content of a marker file. Raises: KeyError for a path that was not looked for."""
        text = self.markers[path]
        return None if text is None else text.encode("latin-1")

    def markers_in(self, folder: str) -> ReadMarker:
        """Reads marker files of a folder, '' for the top. A folder that was not looked at has none."""
        if not folder:
            return self.marker
        files = self.below.get(folder, {})
        return lambda path: None if path not in files else files[path].encode("latin-1")


def gather_facts(
    git: Git,
    tree: str,
    entries: Sequence[TreeEntry],
    markers: Mapping[str, bytes | None],
    below: Mapping[str, Mapping[str, bytes]] | None = None,
    suggested_folders: Sequence[str] = (),
) -> BaseFacts:
    """Collect the facts of a tree with these leaves."""
    return BaseFacts(
        tree=tree,
        ignore=_ignore_files(git, entries),
        gitlinks=tuple(show_path(e.path) for e in entries if e.mode == GITLINK),
        markers={path: None if content is None else content.decode("latin-1") for path, content in markers.items()},
        below={
            folder: {name: content.decode("latin-1") for name, content in files.items()}
            for folder, files in (below or {}).items()
        },
        manifests=find_build_files(show_path(e.path) for e in entries if e.mode not in {SYMLINK, GITLINK}),
        suggested_folders=tuple(suggested_folders),
        lfs=_uses_lfs(git, entries),
        folder_levels=FOLDER_LEVELS,
    )


def _uses_lfs(git: Git, entries: Iterable[TreeEntry]) -> bool:
    """Looks into the .gitattributes files, as long as they are small."""
    found = [
        e.oid
        for e in entries
        if posixpath.basename(e.path) == b".gitattributes"
        and e.mode not in {SYMLINK, GITLINK}
        and (e.size or 0) <= _ATTRIBUTES_BYTES
    ][:_ATTRIBUTES_FILES]
    return any(_LFS.search(content) for content in read_blobs(git, found))


def _ignore_files(git: Git, entries: Iterable[TreeEntry]) -> dict[str, str] | None:
    found = [e for e in entries if posixpath.basename(e.path) == b".gitignore" and e.mode not in {SYMLINK, GITLINK}]
    if sum(e.size or 0 for e in found) > IGNORE_BYTES:
        return None
    texts = (content.decode("utf-8", errors="replace") for content in read_blobs(git, [e.oid for e in found]))
    return {show_path(posixpath.dirname(e.path)): text for e, text in zip(found, texts, strict=True)}
