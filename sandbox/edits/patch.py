"""Compute the effect of a patch on gated files, without writing.

The gate checks the effect, not the text: the patch is applied in memory, only to files of which the caller gave the
hash; any other file does not exist for it. Its effect is the difference between these files before and after, never
what its headers say (THREATS J). No process is started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sandbox.edits.binary_patches import BinaryContent, too_large
from sandbox.edits.hash_gate import ABSENT, Edit, FileState, Gate, Outcome, rejected
from sandbox.edits.hunks import Work, apply_hunks
from sandbox.edits.patch_paths import Kind, Target, UngatedError, require_no_overlap, target_of
from sandbox.edits.unified_diff import Section, parse_patch
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.tree import READ_CAP
from sandbox.git.entries import EXECUTABLE, REGULAR
from sandbox.git.objects import blob_id
from sandbox.policy.paths import RepoPath

PATCH_BYTES = 10 * 1024**2
RESULT_BYTES = 256 * 1024**2
"""Maximum total size of the files after one patch: a small patch can make large copies."""


def apply_patch(gate: Gate, patch: bytes, expected: Mapping[str, str | None]) -> Outcome:
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
        raise rejected("The patch is empty")
    before = gate.states(expected)
    scratch = _Scratch(before)
    scratch.apply(_targets(parse_patch(patch), before))
    edits = tuple(scratch.edits())
    _require_absent(gate, edits, before)
    _require_use(edits, scratch, before)
    require_no_overlap({**before, **{e.path: e.after for e in edits}})
    return Outcome(edits, tuple(scratch.notes))


def _targets(sections: Iterable[Section], before: Mapping[RepoPath, FileState]) -> list[tuple[Section, Target]]:
    """Find the file of each section. One error lists all files that lack a hash."""
    found, ungated = list[tuple[Section, Target]](), list[str]()
    for section in sections:
        try:
            found.append((section, target_of(section, before)))
        except UngatedError as error:
            ungated += error.names
    if ungated:
        raise UngatedError([*dict.fromkeys(ungated)])
    return found


def _require_absent(gate: Gate, edits: Iterable[Edit], before: Mapping[RepoPath, FileState]) -> None:
    """A new file needs no hash, but its path must be free; that is the same gate (docs/adr/0002)."""
    for edit in edits:
        if edit.path not in before and gate.files.exists(gate.writable(edit.path)):
            raise rejected("The patch creates a file that already exists", edit.path)


def _require_use(edits: Iterable[Edit], scratch: _Scratch, before: Mapping[RepoPath, FileState]) -> None:
    unused = sorted(before.keys() - {e.path for e in edits} - scratch.sources)
    if unused:
        raise rejected("A hash was given for a file that the patch does not touch", ", ".join(unused))
    if not edits:
        raise rejected("The patch has no effect")


class _Scratch:
    """The gated files in memory. Sections are applied to them in order."""

    def __init__(self, before: Mapping[RepoPath, FileState]) -> None:
        self._before = before
        self._after: dict[RepoPath, FileState] = {}
        self._from: dict[RepoPath, RepoPath] = {}
        self._leaving: set[RepoPath] = set()
        self._made: set[RepoPath] = set()
        self._work = Work()
        self._bytes = 0
        self.notes: list[str] = []

    @property
    def sources(self) -> set[RepoPath]:
        """Origins of renames and copies."""
        return set(self._from.values())

    def apply(self, steps: list[tuple[Section, Target]]) -> None:
        """Raises: `patch_rejected`, `quota_exceeded`."""
        self._leaving = {t.source for _, t in steps if t.kind in {Kind.DELETE, Kind.RENAME}}
        actions = {Kind.CREATE: self._create, Kind.DELETE: self._delete, Kind.MODIFY: self._modify}
        for section, target in steps:
            actions.get(target.kind, self._move)(section, target)

    def edits(self) -> Iterable[Edit]:
        """The difference, by path."""
        for path, after in sorted(self._after.items()):
            before = self._before.get(path, ABSENT)
            if after != before:
                yield Edit(path, before, after, self._from.get(path))

    def _now(self, path: RepoPath) -> FileState:
        return self._after.get(path, self._before.get(path, ABSENT))

    def _create(self, section: Section, target: Target) -> None:
        self._require_free(target.path)
        self._put(target.path, self._changed(section, target.path, FileState(b"")))
        self._made.add(target.path)

    def _modify(self, section: Section, target: Target) -> None:
        path = target.path
        state = self._now(path)
        if state != ABSENT:
            self._put(path, self._changed(section, path, state))
        elif section.hunks and not any(hunk.old for hunk in section.hunks):
            self._create(section, target)  # a plain diff may name a new file on both sides
        else:
            raise rejected("The patch changes a file that does not exist", path)

    def _delete(self, section: Section, target: Target) -> None:
        """Delete a file. A section without hunks may delete too: the hash proves that the caller knows the content."""
        path = target.path
        state = self._now(path)
        if state == ABSENT or path in self._made:
            raise rejected("The patch deletes a file that does not exist", path)
        if (section.hunks or section.binary) and self._changed(section, path, state).content:
            raise rejected("The patch deletes a file, but its hunks do not remove all lines", path)
        self._put(path, ABSENT)

    def _move(self, section: Section, target: Target) -> None:
        """Rename or copy. Both start from the files before the patch, in any order of sections, as in git."""
        source, path = target.source, target.path
        state = self._before[source]
        if state == ABSENT:
            raise rejected("The patch changes a file that does not exist", source)
        self._require_free(path)
        if target.kind is Kind.RENAME:
            if source in self._after and source not in self._made:
                raise rejected("The patch changes a file in one section and renames it in another", source)
            if source not in self._made:
                self._put(source, ABSENT)
        self._put(path, self._changed(section, path, state))
        self._made.add(path)
        self._from[path] = source

    def _require_free(self, path: RepoPath) -> None:
        """Require that the path is free, or that another section removes its file."""
        if self._now(path) != ABSENT and (path in self._after or path not in self._leaving):
            raise rejected("The patch creates a file that already exists", path)

    def _put(self, path: RepoPath, state: FileState) -> None:
        if state.content is not None:
            self._bytes += len(state.content)
            if len(state.content) > READ_CAP:
                raise too_large(READ_CAP)
            if self._bytes > RESULT_BYTES:
                raise SandboxError(
                    ErrorCode.QUOTA_EXCEEDED,
                    f"The files after a patch may have at most {RESULT_BYTES} bytes",
                    hint="Split it into several patches.",
                )
        self._after[path] = state

    def _changed(self, section: Section, path: RepoPath, state: FileState) -> FileState:
        content = state.content or b""
        if section.binary is not None:
            content = self._binary(section, section.binary, path, content)
        elif section.hunks:
            content, notes = self._hunks(section, path, content)
            self.notes += [f"{path}: {note}" for note in notes]
        return FileState(content, _executable(section, path, default=state.executable))

    def _hunks(self, section: Section, path: RepoPath, content: bytes) -> tuple[bytes, list[str]]:
        try:
            return apply_hunks(content, section.hunks, self._work, crlf=section.crlf)
        except SandboxError as error:
            data = None if error.data is None else {"path": path, **error.data}
            details = f"{path}: {error.details}"
            raise SandboxError(
                error.code, error.brief, details=details, hint=error.hint, reason=error.reason, data=data
            ) from error

    def _binary(self, section: Section, binary: BinaryContent, path: RepoPath, content: bytes) -> bytes:
        self._work.spend(len(content))
        old, new = _blob_ids(section)
        if not old:  # git requires them too: a section without headers could mean another change
            raise rejected("A binary patch needs an index line with full object ids", f"{path}: `git diff --binary`")
        if set(old) != {"0"} and blob_id(content, len(old)) != old:
            raise rejected("The binary patch is for different content", path)
        after = binary.apply(content, READ_CAP)
        if set(new) != {"0"} and blob_id(after, len(new)) != new:
            raise rejected("The binary patch is damaged", f"{path}: the result differs from its index line")
        return after


def _blob_ids(section: Section) -> tuple[str, str]:
    """The full object ids of an `index` line, or empty strings."""
    ids = section.extended.get("index", b"").partition(b" ")[0].decode("ascii", "replace").split("..")
    return (ids[0], ids[1]) if len(ids) == 2 and {len(i) for i in ids} in ({40}, {64}) else ("", "")


def _executable(section: Section, path: RepoPath, *, default: bool) -> bool:
    """Whether the file is executable after a section. Any mode that is not a regular file's is refused."""
    found = section.extended
    named = [found[k].decode("ascii", "replace") for k in ("new file mode", "new mode", "old mode") if k in found]
    named += [mode.decode("ascii", "replace") for mode in found.get("index", b"").split(b" ")[1:2]]
    if not set(named) <= {REGULAR, EXECUTABLE}:
        raise rejected("A patch may only create regular files", path)
    mode = found.get("new file mode", found.get("new mode"))
    return default if mode is None else mode == EXECUTABLE.encode()
