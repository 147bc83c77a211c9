"""What a commit takes in without being told: sources, not build products. Source: `policies/commit.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.document_errors import mistakes
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.paths import check_path

EVERYTHING = "."
_BINARY_BYTES = 8000  # git's own horizon for "binary"
_NAMED = 20
_HEX = re.compile(r"([0-9a-fA-F]{2})+")


class CommitPolicy(BaseModel):
    """What gives a build product away. Names are compared in lower case; `magic`: what it is, and its first bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()
    folders: frozenset[str] = frozenset()
    magic: dict[str, str] = {}

    def suspicion(self, path: str, content: bytes, max_bytes: int) -> str | None:
        """Why this new file should not be committed unasked, or None. Pure."""
        *folders, name = path.lower().split("/")
        if len(content) > max_bytes:
            return f"{len(content)} bytes, more than commit.max_file_bytes ({max_bytes})"
        if found := next((folder for folder in folders if folder in self.folders), None):
            return f"inside {found}/"
        if name in self.names or name.endswith(self.suffixes):
            return "named like a build product"
        return self._product(content)

    def _product(self, content: bytes) -> str | None:
        if b"\0" not in content[:_BINARY_BYTES]:
            return None
        return next((what for what, start in self.magic.items() if content.startswith(bytes.fromhex(start))), None)


def load_commit_policy(folder: Path) -> CommitPolicy:
    """Read `commit.toml`. Raises: `policy_violation` when it cannot be used."""
    try:
        policy = CommitPolicy.model_validate(tomllib.loads((folder / "commit.toml").read_text(encoding="utf-8")))
        list(map(bytes.fromhex, policy.magic.values()))
    except (OSError, ValueError, ValidationError) as error:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The commit policy in {folder} cannot be used",
            details=mistakes(error),
            hint="It is shipped with the sandbox: install that again.",
        ) from error
    return policy


class _Without(BaseModel):
    """Entries of the shipped lists that an operator does not want there."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()
    folders: frozenset[str] = frozenset()
    magic: tuple[str, ...] = ()


class OwnCommitPolicy(CommitPolicy):
    """An operator's file: more of everything, and `without` what."""

    without: _Without = _Without()


def with_own(shipped: CommitPolicy, path: Path) -> CommitPolicy:
    """The shipped policy with an operator's file on top. Raises: `invalid_input` when that cannot be used."""
    own = read_own(path)
    less = own.without
    for field in ("names", "suffixes", "folders", "magic"):
        known = set(getattr(shipped, field))
        if unknown := sorted(set(getattr(less, field)) - known):
            raise _unusable(path, f"without.{field}: the built-in list has no {', '.join(unknown)[:200]}")
    return CommitPolicy(
        names=(shipped.names - less.names) | {name.lower() for name in own.names},
        suffixes=(*(s for s in shipped.suffixes if s not in less.suffixes), *(s.lower() for s in own.suffixes)),
        folders=(shipped.folders - less.folders) | {name.lower() for name in own.folders},
        magic={**{what: start for what, start in shipped.magic.items() if what not in less.magic}, **own.magic},
    )


def read_own(path: Path) -> OwnCommitPolicy:
    """What an operator's file says. Raises: as `with_own`."""
    try:
        own = OwnCommitPolicy.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise _unusable(path, mistakes(error)) from error
    for what, start in own.magic.items():
        if not _HEX.fullmatch(start):
            raise _unusable(path, f"magic.{what[:100]}: should be bytes in hex")
    if "" in own.suffixes:
        raise _unusable(path, "suffixes: an empty one would be every file's")
    return own


def _unusable(path: Path, details: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT,
        f"The commit policy {path} cannot be used",
        details=details,
        hint="docs/configuration.md tells what it may say.",
    )


def require_sources(
    added: Iterable[tuple[str, bytes]], allow: Sequence[str], policy: CommitPolicy, max_bytes: int
) -> None:
    """Look at the files a commit would add. `allow`: paths, folders, or `.` for all of them.

    Raises: `policy_violation` naming those that look built or are too large, `unsafe_path` for a bad `allow`.
    """
    allowed = [path if path == EVERYTHING else check_path(path.rstrip("/")) for path in allow]
    if EVERYTHING in allowed:
        return
    refused = [
        f"{path}: {why}"
        for path, content in added
        if not any(path == entry or path.startswith(f"{entry}/") for entry in allowed)
        and (why := policy.suspicion(path, content, max_bytes)) is not None
    ]
    if refused:
        more = [f"... and {len(refused) - _NAMED} more"] if len(refused) > _NAMED else []
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"{len(refused)} new file(s) look built, not written; nothing was committed",
            details="\n".join(refused[:_NAMED] + more),
            hint="`sandbox task clean TASK --without PATH` removes one. On the command line --allow PATH commits one, "
            "--allow . all. A .gitignore counts for tasks that begin from a commit that has it.",
        )
