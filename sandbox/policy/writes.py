"""Which paths an edit may write: limits, and rules for control files. Source: `policies/paths.toml`.

A rule denies or flags. Both are about meaning, not safety: a file that controls git, a forge or an editor is refused
unless the operator allows it, or is at least reported before a push. A rule covers every name that some file system
treats as the same (`.GitHub/Workflows`); an exception covers only the exact name.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from sandbox.document_errors import describe_errors, parse_toml
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.globs import Glob, Pattern, PatternSet, parse_pattern
from sandbox.policy.paths import (
    LOOK_ALIKE,
    MAX_COMPONENT_BYTES,
    RESERVED_PREFIX,
    RepoPath,
    fold_name,
    is_look_alike,
    parse_repo_path,
    path_bytes,
    refuse_look_alike,
    refused_path_error,
)

_SHORT_NAME = re.compile(r"^[^.]{1,6}~[0-9]{1,6}(\.[^.]{0,3})?$")
_NO_NAMES = {"", ".", ".."}
"""No path has such a component. A search takes them, and finds no file; a rule would protect none."""
_HINT = "The operator can allow it for this repository: docs/paths.md."


def _parse_glob(glob: str) -> Pattern:
    pattern = parse_pattern(glob)
    if pattern is None or pattern.is_negated or any(g.cannot_match or g.text in _NO_NAMES for g in pattern.globs):
        raise ValueError(f"'{glob}' is not a glob that can match a path (docs/paths.md)")
    return pattern


def _require_path_glob(text: str) -> str:
    _parse_glob(text)
    return text


def _require_name_glob(text: str) -> str:
    if not text or "/" in text or Glob(text).cannot_match:
        raise ValueError(f"'{text}' is not a glob that can match a repository id")
    return text


PathGlob = Annotated[str, AfterValidator(_require_path_glob)]
NameGlob = Annotated[str, AfterValidator(_require_name_glob)]


class _PathPolicyModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class WriteLimits(_PathPolicyModel):
    """Limits of a written path; reached: `unsafe_path` by rule 'length' or 'depth'. Reads have the kernel's limits."""

    path_bytes: int = Field(default=1024, ge=1, le=4095)
    name_bytes: int = Field(default=MAX_COMPONENT_BYTES, ge=1, le=MAX_COMPONENT_BYTES)
    depth: int = Field(default=64, ge=1, le=127)


class PathRule(_PathPolicyModel):
    """A rule for control files of one kind. `deny`: not written. `flag`: written, but reported before a push."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    action: Literal["deny", "flag"]
    why: str
    paths: tuple[PathGlob, ...]

    def covers(self, path: RepoPath) -> bool:
        """Whether a glob matches the path, or its folded form on some file system."""
        return self._exact.covers(path.split("/")) or self._folded.covers(_fold_components(path))

    @cached_property
    def _exact(self) -> PatternSet:
        return PatternSet(map(_parse_glob, self.paths))

    @cached_property
    def _folded(self) -> PatternSet:
        return PatternSet(_parse_glob(unicodedata.normalize("NFKC", glob).casefold()) for glob in self.paths)


class RepositoryExceptions(_PathPolicyModel):
    """Exceptions for repositories with an id that matches `match`. `deny` overrides `allow`, `allow` the rules."""

    match: tuple[NameGlob, ...] = Field(min_length=1)
    allow: tuple[PathGlob, ...] = ()
    deny: tuple[PathGlob, ...] = ()

    def applies_to(self, repo_id: str) -> bool:
        """Whether these exceptions apply to this repository."""
        return any(Glob(glob).matches(repo_id) for glob in self.match)

    def allows(self, path: RepoPath) -> bool:
        """Whether exactly this path is allowed, independent of the rules."""
        return _any_covers([_parse_glob(glob) for glob in self.allow], path.split("/"))

    @cached_property
    def deny_rule(self) -> PathRule:
        """The denials as a rule."""
        return PathRule(name="repository", action="deny", why="the operator denies it here", paths=self.deny)


class PathPolicy(_PathPolicyModel):
    """The shipped policy, with the operator's file applied."""

    limits: WriteLimits = WriteLimits()
    rules: tuple[PathRule, ...] = Field(default=(), alias="rule")
    repositories: tuple[RepositoryExceptions, ...] = Field(default=(), alias="repository")

    @model_validator(mode="after")
    def _require_unique_names(self) -> PathPolicy:
        names = [rule.name for rule in self.rules]
        if len(set(names)) != len(names):
            raise ValueError("two rules have the same name")
        return self

    def merge_operator_policy(self, own: PathPolicy) -> PathPolicy:
        """Apply another policy: its limits where set, its rules by name, and its exceptions."""
        limits = {**self.limits.model_dump(), **own.limits.model_dump(exclude_unset=True)}
        rules = {rule.name: rule for rule in (*self.rules, *own.rules)}
        return PathPolicy(
            limits=WriteLimits(**limits),
            rule=tuple(rules.values()),
            repository=(*self.repositories, *own.repositories),
        )


def parse_writable_path(text: str, policy: PathPolicy, repo_id: str) -> RepoPath:
    """Validate a path that an edit of this repository wants to create, change or delete.

    Every edit calls this for every path it touches, before it reads or writes any: new, changed and deleted files,
    both sides of a rename. It includes `parse_repo_path`; the policy is `Policies.paths`. It does not check the file
    there (links, hard links, special files): `WorktreeFiles.write` does. Raises: `unsafe_path` with the rule's name.
    """
    path = parse_repo_path(text)
    names = path_bytes(path).split(b"/")
    _require_within_limits(path, names, policy.limits)
    for name in names:
        _require_allowed_name(path, name)
    rule = _find_denying_rule(path, policy, repo_id)
    if rule is not None:
        raise refused_path_error(path, rule.name, rule.why, _HINT)
    return path


def find_flags(path: RepoPath, policy: PathPolicy, repo_id: str) -> tuple[str, ...]:
    """Return the names of all rules that cover a path, allowed or not: a person sees them before a push."""
    own = (r.deny_rule for r in policy.repositories if r.applies_to(repo_id))
    seems_other = any(map(is_look_alike, path_bytes(path).split(b"/")))
    found = tuple(rule.name for rule in (*policy.rules, *own) if rule.covers(path))
    return (*found, LOOK_ALIKE) if seems_other else found


def load_path_policy(shipped: Path, operator_file: Path) -> PathPolicy:
    """Load the shipped `paths.toml`, and apply the operator's if it exists.

    Raises: `policy_violation` when the shipped file is invalid, `invalid_input` for the operator's.
    """
    policy = _load(shipped, ErrorCode.POLICY_VIOLATION)
    return (
        policy.merge_operator_policy(_load(operator_file, ErrorCode.INVALID_INPUT))
        if operator_file.exists()
        else policy
    )


def _load(path: Path, code: ErrorCode) -> PathPolicy:
    try:
        return _parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise SandboxError(
            code,
            f"The path policy {path} cannot be used",
            details=describe_errors(error),
            hint="docs/paths.md lists every key.",
        ) from error


@lru_cache(maxsize=8)
def _parse(text: str) -> PathPolicy:
    """Cached: each workbench of a process loads the same shipped file. Raises: ValueError."""
    return PathPolicy.model_validate(parse_toml(text))


def _require_within_limits(path: RepoPath, names: Sequence[bytes], limits: WriteLimits) -> None:
    if len(path_bytes(path)) > limits.path_bytes:
        raise refused_path_error(path, "length", f"a written path has at most {limits.path_bytes} bytes")
    if any(len(name) > limits.name_bytes for name in names):
        raise refused_path_error(path, "length", f"a written name has at most {limits.name_bytes} bytes")
    if len(names) > limits.depth:
        raise refused_path_error(path, "depth", f"a written path has at most {limits.depth} components")


def _require_allowed_name(path: RepoPath, name: bytes) -> None:
    if name.startswith(RESERVED_PREFIX):
        raise refused_path_error(path, "reserved", "the name is reserved for the sandbox's temporary files")
    if _SHORT_NAME.match(fold_name(name)):
        raise refused_path_error(path, "short-name", "on Windows it may be another file's short name")
    refuse_look_alike(path, name)


def _find_denying_rule(path: RepoPath, policy: PathPolicy, repo_id: str) -> PathRule | None:
    exceptions = [r for r in policy.repositories if r.applies_to(repo_id)]
    for exception in exceptions:
        if exception.deny_rule.covers(path):
            return exception.deny_rule
    if any(exception.allows(path) for exception in exceptions):
        return None
    return next((rule for rule in policy.rules if rule.action == "deny" and rule.covers(path)), None)


def _any_covers(patterns: Sequence[Pattern], parts: Sequence[str]) -> bool:
    return any(pattern.covers(parts) for pattern in patterns)


def _fold_components(path: RepoPath) -> list[str]:
    return [fold_name(name) for name in path_bytes(path).split(b"/")]
