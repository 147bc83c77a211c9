"""Take the artifacts of a release out of the room that built them. All of it is hostile data: read, never run.

Only regular files are taken, through directory handles that follow no link. Their modes become 0444 or 0555, so that
set-id bits, owners and write permissions of the guest end here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from sandbox.byte_sizes import format_bytes
from sandbox.checks.elf_needs import BadProgramError, ProgramNeeds, read_needs
from sandbox.checks.output_lines import READING_S, ReadingTime
from sandbox.errors import ErrorCode, SandboxError
from sandbox.files.names import EntryKind, WalkEntry, WalkLimits
from sandbox.files.tree import WorktreeFiles
from sandbox.lazy_dataclass import dataclass
from sandbox.models.checks import ReleaseRule
from sandbox.models.releases import ReleaseFile
from sandbox.policy.paths import parse_repo_path, show_path
from sandbox.store.release_folder import write_release_file

_DEPTH = 32
_NAME_BYTES = 4 * 1024**2
"""Of what the programs of a release need and are called, each name once."""


@dataclass(frozen=True)
class CollectedArtifacts:
    """What was taken, and what its programs need that is not among it."""

    files: tuple[ReleaseFile, ...]
    libraries: tuple[str, ...]
    interpreters: tuple[str, ...]
    machines: tuple[tuple[int, int, int], ...]


def collect_artifacts(room: Path, rule: ReleaseRule, target: Path) -> CollectedArtifacts:
    """Copy the artifacts into the empty directory `target`.

    Raises: `not_found` for one that the build did not make; `unsafe_path` for a link, a device, a socket or a name that
    a release cannot have; `quota_exceeded` past the rule's limits, `_NAME_BYTES` or `READING_S`; `policy_violation` for
    a damaged program.
    """
    files: list[ReleaseFile] = []
    needs = _AllNeeds()
    left = rule.max_bytes
    with WorktreeFiles(room) as worktree:
        for path in _find_files(worktree, rule):
            if len(files) == rule.max_files:
                raise _too_much(f"more than {rule.max_files} files")
            taken = _copy_file(worktree, path, target, left)
            left -= taken.size
            files.append(taken)
            needs.read(target / taken.path)
    own = {Path(file.path).name for file in files} | needs.sonames
    return CollectedArtifacts(
        files=tuple(files),
        libraries=tuple(sorted(needs.needed - own)),
        interpreters=tuple(sorted(needs.interpreters - {""})),
        machines=tuple(sorted(needs.machines)),
    )


class _AllNeeds:
    """What all programs need and are called, each name once: those of thousands of programs would fill the memory."""

    def __init__(self) -> None:
        self.needed, self.sonames, self.interpreters = set[str](), set[str](), set[str]()
        self.machines = set[tuple[int, int, int]]()
        self._left = _NAME_BYTES
        self._left_s = READING_S

    def read(self, path: Path) -> None:
        """Add what one file needs, if it is a program. Raises: `policy_violation` for a damaged one; `quota_exceeded`
        past `_NAME_BYTES`, or if all took more processor time than `READING_S`.
        """
        left = ReadingTime(self._left_s)
        found = _read_needs(path)
        self._left_s = left.left_s
        if left.look():
            raise _too_much(f"programs that take more than {READING_S:g} s to read")
        if found is not None:
            self._add(found)

    def _add(self, found: ProgramNeeds) -> None:
        self.machines.add(found.machine)
        for kept, names in (
            (self.needed, found.needed),
            (self.sonames, (found.soname,)),
            (self.interpreters, (found.interpreter,)),
        ):
            new = set(names) - kept
            self._left -= sum(map(len, new))
            kept |= new
        if self._left < 0:
            raise _too_much(f"programs that need names of more than {format_bytes(_NAME_BYTES)}")


def _find_files(worktree: WorktreeFiles, rule: ReleaseRule) -> Iterator[bytes]:
    """The regular files of the rule, as paths of the room, each once."""
    seen: set[bytes] = set()
    for text in rule.artifacts:
        path = parse_repo_path(text.rstrip("/"))
        kind = worktree.kind(path)
        if kind is None:
            raise SandboxError(ErrorCode.NOT_FOUND, f"The build did not make {text!a}")
        found = [str(path).encode()] if kind is EntryKind.FILE else _walk(worktree, str(path).encode(), kind)
        for one in found:
            if one not in seen:
                seen.add(one)
                yield one


def _walk(worktree: WorktreeFiles, folder: bytes, kind: EntryKind) -> Iterator[bytes]:
    if kind is not EntryKind.DIRECTORY:
        raise _unsafe(folder)
    limits = WalkLimits(depth=_DEPTH)
    for entry in worktree.list_directory(folder, limits):
        if entry.kind is EntryKind.FILE:
            yield entry.path
        else:
            yield from _walk(worktree, entry.path, _require_directory(entry))


def _require_directory(entry: WalkEntry) -> EntryKind:
    if entry.kind is not EntryKind.DIRECTORY:
        raise _unsafe(entry.path)
    return entry.kind


def _copy_file(worktree: WorktreeFiles, raw: bytes, target: Path, left: int) -> ReleaseFile:
    path = parse_repo_path(show_path(raw))
    if str(path).encode() != raw:  # a name in other bytes than ours could be two files of a host
        raise _unsafe(raw)
    digest, size = hashlib.sha256(), 0
    with worktree.open_chunks(path, cap=left) as (info, chunks):

        def measured() -> Iterator[bytes]:
            nonlocal size
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                yield chunk

        executable = bool(info.st_mode & 0o111)
        write_release_file(target, str(path), measured(), executable=executable)
    return ReleaseFile(path=str(path), size=size, sha256=f"sha256:{digest.hexdigest()}", executable=executable)


def _read_needs(path: Path) -> ProgramNeeds | None:
    with path.open("rb") as file:
        try:
            return read_needs(file)
        except BadProgramError as error:
            raise SandboxError(
                ErrorCode.POLICY_VIOLATION, f"{path.name!a} is a damaged program", details=str(error)
            ) from error


def _too_much(what: str) -> SandboxError:
    return SandboxError(
        ErrorCode.QUOTA_EXCEEDED,
        f"The artifacts have {what}",
        hint="[promote] max_bytes and max_files of the profile.",
    )


def _unsafe(path: bytes) -> SandboxError:
    return SandboxError(
        ErrorCode.UNSAFE_PATH,
        f"{show_path(path)!a} is no regular file or directory that a release can have",
        hint="A release has no links and no special files: let the build copy what links lead to.",
    )
