"""Collect the files that a check's profile asks for, and give them out. The guest that made them is hostile.

They are read as a commit reads files: through openat2 below the root, regular files only, no link is followed. Names
are data: a path becomes a name on this host only if a person names a file to write to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from posixpath import normpath

from sandbox.checks.coverage import COVERAGE_S, MOST_BYTES, READERS
from sandbox.checks.output_lines import ReadingTime
from sandbox.checks.reader_faults import ReaderFaults
from sandbox.errors import NO_SPACE, ErrorCode, SandboxError
from sandbox.files.names import EntryKind, WalkEntry, WalkLimits
from sandbox.files.tree import WorktreeFiles
from sandbox.models.artifact_lists import Artifact, ArtifactList, Coverage, RefusedArtifact
from sandbox.models.checks import ArtifactRule, Check
from sandbox.models.runs import CheckRun
from sandbox.policy.globs import Pattern, parse_pattern
from sandbox.policy.paths import RepoPath, parse_repo_path, show_path
from sandbox.store import artifact_store as stored
from sandbox.store import runs
from sandbox.store.home import Home

MOST_FILES = 1000
MOST_BYTES_OF_RUN = 512 * 1024**2
_MOST_REFUSED = 50
_LIMITS = WalkLimits(entries=100_000, depth=64)
_log = logging.getLogger(__name__)

Admission = Callable[[int], AbstractContextManager[None]]
"""Lets its body write this many bytes into the home. Raises: `quota_exceeded` if there is no room for them."""


def collect_artifacts(
    home: Home, owner_id: str, run_id: str, check: Check, files: WorktreeFiles, admit: Admission
) -> ArtifactList:
    """Store what the rules of a check match, at most `MOST_FILES` files and `MOST_BYTES_OF_RUN` bytes of a run, and the
    list of it. A file that `admit` has no room for is refused. Raises: OSError if the home cannot be written.
    """
    collection = _ArtifactCollector(home, files, admit, ReaderFaults(run_id))
    for rule in check.artifacts:
        collection.collect(rule, PurePosixPath(normpath(check.cwd)))
    found = ArtifactList(
        run_id=run_id,
        artifacts=tuple(collection.artifacts[path] for path in sorted(collection.artifacts)),
        refused=tuple(RefusedArtifact(path=p, reason=r) for p, r in sorted(collection.refused.items())),
        coverage=collection.coverage,
    )
    stored.save_list(home, owner_id, found)
    return found


@dataclass
class _ArtifactCollector:
    home: Home
    files: WorktreeFiles
    admit: Admission
    faults: ReaderFaults
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    coverage: Coverage | None = None
    kept_bytes: int = 0
    coverage_s: float = field(default_factory=lambda: COVERAGE_S)  # what is left of it

    def collect(self, rule: ArtifactRule, cwd: PurePosixPath) -> None:
        try:
            for entry in _find_entries(self.files, rule, cwd):
                self._add(entry, rule)
        except SandboxError as error:  # too many names: what was found before is kept
            self._refuse(rule.path, error.code.value)

    def _add(self, entry: WalkEntry, rule: ArtifactRule) -> None:
        shown = show_path(entry.path)
        if shown in self.artifacts:
            return
        if entry.kind is not EntryKind.FILE:
            self._refuse(shown, "special")
        elif len(self.artifacts) >= MOST_FILES:
            self._refuse(shown, "too-many")
        elif entry.size > MOST_BYTES_OF_RUN - self.kept_bytes:
            self._refuse(shown, "too-large")
        else:
            self._store(shown, entry, rule)

    def _store(self, shown: str, entry: WalkEntry, rule: ArtifactRule) -> None:
        """No more is stored than the size that was admitted: the guest's file may still grow."""
        try:
            path = parse_repo_path(shown)
            with self.admit(entry.size):
                sha256, size = stored.store_content(self.home, self.files.stream(path, entry.size))
            self.artifacts[shown] = Artifact(path=path, sha256=sha256, size=size, executable=entry.executable)
            self.kept_bytes += size
            if rule.coverage is not None:
                self._add_coverage(path, rule.coverage)
        except SandboxError as error:
            self._refuse(shown, _explain(error))
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            self._refuse(shown, "disk")

    def _refuse(self, shown: str, reason: str) -> None:
        """Keep the first ones: a guest can make names of 64 MB."""
        if len(self.refused) < _MOST_REFUSED or shown in self.refused:
            self.refused[shown] = reason

    def _add_coverage(self, path: RepoPath, kind: str) -> None:
        left = ReadingTime(self.coverage_s)
        counts, reason = None, "unreadable"
        if not left.look():
            content = self.files.read(path, MOST_BYTES)
            with self.faults.note_errors("a coverage file"):
                counts, reason = READERS[kind](content, left), "no-coverage"
        self.coverage_s = left.left_s
        if counts is None:
            self._refuse(str(path), "too-slow" if left.is_over else reason)
            return
        before = self.coverage
        covered, total = (before.lines_covered, before.lines_total) if before else (0, 0)
        self.coverage = Coverage(path=path, lines_covered=covered + counts[0], lines_total=total + counts[1])


def _explain(error: SandboxError) -> str:
    """The reason of a refusal, in one word."""
    if error.reason in {"disk", "storage"}:
        return "disk"
    return {ErrorCode.UNSAFE_PATH: "unsafe-name", ErrorCode.QUOTA_EXCEEDED: "too-large"}.get(error.code, "unreadable")


def _find_entries(files: WorktreeFiles, rule: ArtifactRule, cwd: PurePosixPath) -> Iterator[WalkEntry]:
    """Names that a rule matches; only directories that lead there are listed. Raises: `quota_exceeded`."""
    pattern = parse_pattern(f"/{rule.path}".replace("//", "/"))
    if pattern is None:
        return
    base = [] if str(cwd) == "." else list(cwd.parts)
    fixed = base + _plain_start(pattern)

    def is_beside(path: bytes) -> bool:
        parts = show_path(path).split("/")
        return parts[: len(fixed)] != fixed[: len(parts)]

    for entry in files.walk(is_beside, _LIMITS):
        parts = show_path(entry.path).split("/")
        if parts[: len(base)] == base and len(parts) > len(base) and pattern.covers(parts[len(base) :]):
            yield entry


def _plain_start(pattern: Pattern) -> list[str]:
    """The directories that every match is in."""
    names = list[str]()
    for glob in pattern.globs[:-1]:
        if glob.has_wildcard:
            break
        names.append(glob.text)
    return names


def list_artifacts(home: Home, run_id: str) -> ArtifactList:
    """The artifacts of a run. Raises: `not_found` for an unknown run; `internal` for a damaged list."""
    found = stored.read_list(home, runs.find_owner(home, run_id), run_id)
    return found or ArtifactList(run_id=run_id, artifacts=())


def find_coverage(home: Home, run: CheckRun | None) -> Coverage | None:
    """The coverage that a run says; None if it says none, or its list is not kept or damaged."""
    if run is None:
        return None
    try:
        return list_artifacts(home, run.run_id).coverage
    except SandboxError as error:
        if error.code not in {ErrorCode.NOT_FOUND, ErrorCode.INTERNAL}:
            raise
        return None


def read_artifact(home: Home, run_id: str, path: str) -> Iterator[bytes]:
    """The content of one artifact, in chunks. Raises: `not_found`; `internal` if it was changed."""
    found = list_artifacts(home, run_id)
    for artifact in found.artifacts:
        if artifact.path == path:
            return stored.stream_content(home, artifact)
    raise SandboxError(
        ErrorCode.NOT_FOUND,
        f"{run_id} has no artifact '{path[:200]}'",
        details="\n".join(each.path for each in found.artifacts[:20]),
        hint=f"`sandbox artifacts list {run_id}` shows all.",
    )
