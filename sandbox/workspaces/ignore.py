"""Ignore rules of the base commit, plus the profile's build output. The live tree's rules are the guest's to write."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from pathspec import GitIgnoreSpec


class IgnoreRules:
    """Which untracked paths are left out. `files`: text of each `.gitignore` by its directory ('' for the root)."""

    def __init__(self, files: Mapping[str, str], artifacts: Iterable[str] = ()) -> None:
        self._specs = {folder: _spec(text.splitlines()) for folder, text in files.items()}
        self._artifacts = _spec(artifacts)

    def ignored(self, path: str, *, directory: bool) -> bool:
        """Whether git would ignore this path; the rules of the nearest directory win."""
        shown = f"{path}/" if directory else path
        if self._artifacts.match_file(shown):
            return True
        folder = posixpath.dirname(path)
        while True:
            spec = self._specs.get(folder)
            if spec is not None:
                verdict = spec.check_file(shown[len(folder) + 1 :] if folder else shown).include
                if verdict is not None:
                    return verdict
            if not folder:
                return False
            folder = posixpath.dirname(folder)


def _spec(lines: Iterable[str]) -> GitIgnoreSpec:
    """A line the library cannot parse is skipped, as git does: one bad pattern must not hide the rest."""
    kept = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue
        kept.append(line)
    return GitIgnoreSpec.from_lines(kept)
