"""Compute the effect of a patch on gated files, without writing.

The gate checks the effect, not the text: the patch is applied in memory, only to files of which the caller gave the
hash; any other file does not exist for it. Its effect is the difference between these files before and after, never
what its headers say (THREATS J). No process is started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sandbox.edits.binary_patches import BinaryContent, too_large_error
from sandbox.edits.hash_gate import ABSENT, Edit, EditOutcome, FileState, HashGate, rejection
from sandbox.edits.hunks import SearchBudget, apply_hunks
from sandbox.edits.patch_paths import SectionKind, SectionTarget, UngatedError, find_target, require_no_overlap
from sandbox.edits.unified_diff import PatchSection, parse_patch
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import READ_CAP
from sandbox.git.entries import EXECUTABLE, REGULAR
from sandbox.git.objects import blob_id
from sandbox.policy.paths import RepoPath

PATCH_BYTES = 10 * 1024**2
RESULT_BYTES = 256 * 1024**2
"""Maximum total size of the files after one patch: a small patch can make large copies."""


def apply_patch(gate: HashGate, patch: bytes, expected: Mapping[str, str | None]) -> EditOutcome:
    """Compute the effect of a unified diff. `expected`: the hash of each file it touches; None: it must not exist.

    Raises: `stale_hash` with the current hash, `not_found`, `patch_rejected`, `unsafe_path`, `invalid_input`,
    `quota_exceeded`.
    """
    if len(patch) > PATCH_BYTES:
        raise SandboxError(
            ErrorCode.QUOTA_EXCEEDED,
            f"A patch may have at most {PATCH_BYTES} bytes",
            hint="Split it into several patches.",
        )
    if not patch.strip():
        raise rejection("The patch is empty")
    before = gate.check_states(expected)
    scratch = _PatchedFiles(before)
    scratch.apply(_find_targets(parse_patch(patch), before))
    edits = tuple(scratch.edits())
    _require_new_files_absent(gate, edits, before)
    _require_effect(edits, scratch, before)
    require_no_overlap({**before, **{e.path: e.after for e in edits}})
    return EditOutcome(edits, tuple(scratch.notes))


def _find_targets(
    sections: Iterable[PatchSection], before: Mapping[RepoPath, FileState]
) -> list[tuple[PatchSection, SectionTarget]]:
    """Find the file of each section. One error lists all files that lack a hash."""
    found, ungated = list[tuple[PatchSection, SectionTarget]](), list[str]()
    for section in sections:
        try:
            found.append((section, find_target(section, before)))
        except UngatedError as error:
            ungated += error.names
    if ungated:
        raise UngatedError([*dict.fromkeys(ungated)])
    return found


def _require_new_files_absent(gate: HashGate, edits: Iterable[Edit], before: Mapping[RepoPath, FileState]) -> None:
    """A new file needs no hash, but its path must be free; that is the same gate (docs/adr/0002)."""
    for edit in edits:
        if edit.path not in before and gate.files.exists(gate.writable(edit.path)):
            raise rejection("The patch creates a file that already exists", edit.path)


def _require_effect(edits: Iterable[Edit], scratch: _PatchedFiles, before: Mapping[RepoPath, FileState]) -> None:
    unused = sorted(before.keys() - {e.path for e in edits} - scratch.sources)
    if unused:
        raise rejection("A hash was given for a file that the patch does not touch", ", ".join(unused))
    if not edits:
        raise rejection("The patch has no effect")


class _PatchedFiles:
    """The gated files in memory. Sections are applied to them in order."""

    def __init__(self, before: Mapping[RepoPath, FileState]) -> None:
        self._before = before
        self._after: dict[RepoPath, FileState] = {}
        self._origins: dict[RepoPath, RepoPath] = {}
        self._removed_later: set[RepoPath] = set()
        self._created: set[RepoPath] = set()
        self._work = SearchBudget()
        self._bytes = 0
        self.notes: list[str] = []

    @property
    def sources(self) -> set[RepoPath]:
        """Origins of renames and copies."""
        return set(self._origins.values())

    def apply(self, steps: list[tuple[PatchSection, SectionTarget]]) -> None:
        """Raises: `patch_rejected`, `quota_exceeded`."""
        self._removed_later = {t.source for _, t in steps if t.kind in {SectionKind.DELETE, SectionKind.RENAME}}
        actions = {SectionKind.CREATE: self._create, SectionKind.DELETE: self._delete, SectionKind.MODIFY: self._modify}
        for section, target in steps:
            actions.get(target.kind, self._move)(section, target)

    def edits(self) -> Iterable[Edit]:
        """The difference, by path."""
        for path, after in sorted(self._after.items()):
            before = self._before.get(path, ABSENT)
            if after != before:
                yield Edit(path, before, after, self._origins.get(path))

    def _current(self, path: RepoPath) -> FileState:
        return self._after.get(path, self._before.get(path, ABSENT))

    def _create(self, section: PatchSection, target: SectionTarget) -> None:
        self._require_free(target.path)
        self._put(target.path, self._apply_section(section, target.path, FileState(b"")))
        self._created.add(target.path)

    def _modify(self, section: PatchSection, target: SectionTarget) -> None:
        path = target.path
        state = self._current(path)
        if state != ABSENT:
            self._put(path, self._apply_section(section, path, state))
        elif section.hunks and not any(hunk.old for hunk in section.hunks):
            self._create(section, target)  # a plain diff may name a new file on both sides
        else:
            raise rejection("The patch changes a file that does not exist", path)

    def _delete(self, section: PatchSection, target: SectionTarget) -> None:
        """Delete a file. A section without hunks may delete too: the hash proves that the caller knows the content."""
        path = target.path
        state = self._current(path)
        if state == ABSENT or path in self._created:
            raise rejection("The patch deletes a file that does not exist", path)
        if (section.hunks or section.binary) and self._apply_section(section, path, state).content:
            raise rejection("The patch deletes a file, but its hunks do not remove all lines", path)
        self._put(path, ABSENT)

    def _move(self, section: PatchSection, target: SectionTarget) -> None:
        """Rename or copy. Both start from the files before the patch, in any order of sections, as in git."""
        source, path = target.source, target.path
        state = self._before[source]
        if state == ABSENT:
            raise rejection("The patch changes a file that does not exist", source)
        self._require_free(path)
        if target.kind is SectionKind.RENAME:
            if source in self._after and source not in self._created:
                raise rejection("The patch changes a file in one section and renames it in another", source)
            if source not in self._created:
                self._put(source, ABSENT)
        self._put(path, self._apply_section(section, path, state))
        self._created.add(path)
        self._origins[path] = source

    def _require_free(self, path: RepoPath) -> None:
        """Require that the path is free, or that another section removes its file."""
        if self._current(path) != ABSENT and (path in self._after or path not in self._removed_later):
            raise rejection("The patch creates a file that already exists", path)

    def _put(self, path: RepoPath, state: FileState) -> None:
        if state.content is not None:
            self._bytes += len(state.content)
            if len(state.content) > READ_CAP:
                raise too_large_error(READ_CAP)
            if self._bytes > RESULT_BYTES:
                raise SandboxError(
                    ErrorCode.QUOTA_EXCEEDED,
                    f"The files after a patch may have at most {RESULT_BYTES} bytes",
                    hint="Split it into several patches.",
                )
        self._after[path] = state

    def _apply_section(self, section: PatchSection, path: RepoPath, state: FileState) -> FileState:
        content = state.content or b""
        if section.binary is not None:
            content = self._apply_binary(section, section.binary, path, content)
        elif section.hunks:
            content, notes = self._apply_hunks(section, path, content)
            self.notes += [f"{path}: {note}" for note in notes]
        return FileState(content, _executable(section, path, default=state.executable))

    def _apply_hunks(self, section: PatchSection, path: RepoPath, content: bytes) -> tuple[bytes, list[str]]:
        try:
            return apply_hunks(content, section.hunks, self._work, crlf=section.crlf)
        except SandboxError as error:
            data = None if error.data is None else {"path": path, **error.data}
            details = f"{path}: {error.details}"
            raise SandboxError(
                error.code, error.brief, details=details, hint=error.hint, reason=error.reason, data=data
            ) from error

    def _apply_binary(self, section: PatchSection, binary: BinaryContent, path: RepoPath, content: bytes) -> bytes:
        self._work.spend(len(content))
        old, new = _blob_ids(section)
        if not old:  # git requires them too: a section without headers could mean another change
            raise rejection("A binary patch needs an index line with full object ids", f"{path}: `git diff --binary`")
        if set(old) != {"0"} and blob_id(content, len(old)) != old:
            raise rejection("The binary patch is for different content", path)
        after = binary.apply(content, READ_CAP, self._work.spend)
        if set(new) != {"0"} and blob_id(after, len(new)) != new:
            raise rejection("The binary patch is damaged", f"{path}: the result differs from its index line")
        return after


def _blob_ids(section: PatchSection) -> tuple[str, str]:
    """The full object ids of an `index` line, or empty strings."""
    ids = section.extended.get("index", b"").partition(b" ")[0].decode("ascii", "replace").split("..")
    return (ids[0], ids[1]) if len(ids) == 2 and {len(i) for i in ids} in ({40}, {64}) else ("", "")


def _executable(section: PatchSection, path: RepoPath, *, default: bool) -> bool:
    """Whether the file is executable after a section. Any mode that is not a regular file's is refused."""
    found = section.extended
    named = [found[k].decode("ascii", "replace") for k in ("new file mode", "new mode", "old mode") if k in found]
    named += [mode.decode("ascii", "replace") for mode in found.get("index", b"").split(b" ")[1:2]]
    if not set(named) <= {REGULAR, EXECUTABLE}:
        raise rejection("A patch may only create regular files", path)
    mode = found.get("new file mode", found.get("new mode"))
    return default if mode is None else mode == EXECUTABLE.encode()
