"""Which new files a commit includes without an explicit option: no build products. Source: `policies/commit.toml`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.document_errors import describe_errors, parse_toml
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.paths import parse_repo_path

EVERYTHING = "."
START_BYTES = 8000  # git searches this many bytes for NUL to detect a binary file
_NAMED = 20
_HEX = re.compile(r"([0-9a-fA-F]{2})+")


@dataclass(frozen=True)
class AddedFile:
    """A new file. `start`: its first `START_BYTES` bytes."""

    path: str
    size: int
    start: bytes


class CommitPolicy(BaseModel):
    """Signs of a build product. Names are compared in lower case; `magic`: the kind of file, and its first bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()
    folders: frozenset[str] = frozenset()
    magic: dict[str, str] = {}

    def find_suspicion(self, file: AddedFile, max_bytes: int) -> str | None:
        """Return why this new file should not be committed without an explicit option, or None. Pure."""
        *folders, name = file.path.lower().split("/")
        if file.size > max_bytes:
            return f"{file.size} bytes, more than commit.max_file_bytes ({max_bytes})"
        if found := next((folder for folder in folders if folder in self.folders), None):
            return f"inside {found}/"
        if name in self.names or name.endswith(self.suffixes):
            return "named like a build product"
        return self._match_magic(file.start)

    def _match_magic(self, first: bytes) -> str | None:
        if b"\0" not in first:
            return None
        return next((what for what, start in self.magic.items() if first.startswith(bytes.fromhex(start))), None)


def load_commit_policy(folder: Path) -> CommitPolicy:
    """Read `commit.toml`. Raises: `policy_violation` when it is invalid."""
    try:
        policy = CommitPolicy.model_validate(parse_toml((folder / "commit.toml").read_text(encoding="utf-8")))
        list(map(bytes.fromhex, policy.magic.values()))
    except (OSError, ValueError, ValidationError) as error:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The commit policy in {folder} cannot be used",
            details=describe_errors(error),
            hint="The file is part of the sandbox: install the sandbox again.",
        ) from error
    return policy


class _Exclusions(BaseModel):
    """Entries of the shipped lists that the operator removes."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()
    folders: frozenset[str] = frozenset()
    magic: tuple[str, ...] = ()


class OperatorCommitPolicy(CommitPolicy):
    """An operator's file: additional entries, and those to remove in `without`."""

    without: _Exclusions = _Exclusions()


def merge_operator_commit_policy(shipped: CommitPolicy, path: Path) -> CommitPolicy:
    """Apply an operator's file to the shipped policy. Raises: `invalid_input` when the file is invalid."""
    own = read_operator_commit_policy(path)
    less = own.without
    for field in ("names", "suffixes", "folders", "magic"):
        known = set(getattr(shipped, field))
        if unknown := sorted(set(getattr(less, field)) - known):
            raise _invalid_policy_error(path, f"without.{field}: the built-in list has no {', '.join(unknown)[:200]}")
    return CommitPolicy(
        names=(shipped.names - less.names) | {name.lower() for name in own.names},
        suffixes=(*(s for s in shipped.suffixes if s not in less.suffixes), *(s.lower() for s in own.suffixes)),
        folders=(shipped.folders - less.folders) | {name.lower() for name in own.folders},
        magic={**{what: start for what, start in shipped.magic.items() if what not in less.magic}, **own.magic},
    )


def read_operator_commit_policy(path: Path) -> OperatorCommitPolicy:
    """Read an operator's file. Raises: as `merge_operator_commit_policy`."""
    try:
        own = OperatorCommitPolicy.model_validate(parse_toml(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise _invalid_policy_error(path, describe_errors(error)) from error
    for what, start in own.magic.items():
        if not _HEX.fullmatch(start):
            raise _invalid_policy_error(path, f"magic.{what[:100]}: should be bytes in hex")
    if "" in own.suffixes:
        raise _invalid_policy_error(path, "suffixes: an empty suffix would match every file")
    return own


def _invalid_policy_error(path: Path, details: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"The commit policy {path} cannot be used",
        details=details,
        hint="docs/configuration.md lists its keys.",
    )


def allow_paths(allow: Sequence[str]) -> Callable[[str], bool]:
    """Whether a path is in `allow`: paths, folders, or `.` for all. Raises: `unsafe_path` for an invalid one."""
    allowed = [path if path == EVERYTHING else parse_repo_path(path.rstrip("/")) for path in allow]
    return lambda path: EVERYTHING in allowed or any(path == one or path.startswith(f"{one}/") for one in allowed)


def require_sources(added: Iterable[AddedFile], allow: Sequence[str], policy: CommitPolicy, max_bytes: int) -> None:
    """Check the files that a commit would add. `allow`: paths, folders, or `.` for all of them.

    Raises: `policy_violation`, with the files that look like build products or are too large, `unsafe_path` for an
    invalid `allow`.
    """
    is_allowed = allow_paths(allow)
    refused = [
        f"{file.path}: {why}"
        for file in added
        if not is_allowed(file.path) and (why := policy.find_suspicion(file, max_bytes)) is not None
    ]
    if refused:
        more = [f"... and {len(refused) - _NAMED} more"] if len(refused) > _NAMED else []
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"{len(refused)} new file(s) look like build products; no commit was made",
            details="\n".join(refused[:_NAMED] + more),
            hint="`sandbox task clean TASK --without PATH` removes one. `allow` (--allow PATH on the command line) "
            "commits one, with `.` all. A .gitignore applies to tasks with a base commit that contains it.",
        )
