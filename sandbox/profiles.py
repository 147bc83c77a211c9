"""Profiles: what we know of a kind of repository. TOML files under `policies/profiles/` and the operator's own.

Detection looks at files of the base commit only, never at a worktree that a guest may have changed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sandbox.errors import ErrorCode, SandboxError
from sandbox.mistakes import mistakes
from sandbox.models import Check

GENERIC = "generic"
MARKER_BYTES = 256 * 1024
"""How much of a marker file is looked at."""

SUGGESTIONS = ".sandbox/checks.toml"
"""Where a repository suggests checks of its own: read from base commits only, and used only as far as trusted."""

_HINT = "docs/profiles.md lists every key."

ReadBase = Callable[[str], bytes | None]
"""Content of a regular file of the base commit, or None."""


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Marker(_Shape):
    """A file that must exist, and optionally a pattern that one of its lines must match."""

    file: str
    matches: str = ""

    @field_validator("matches")
    @classmethod
    def _is_a_pattern(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(str(error)) from error
        return value


class Detect(_Shape):
    """All of `all`, and at least one of `any` where there are some. Neither: never detected."""

    all: tuple[Marker, ...] = ()
    any: tuple[Marker, ...] = ()


class Profile(_Shape):
    """One kind of repository. `artifacts`: ignore patterns of untracked build output, never taken into a commit."""

    name: str
    label: str
    image: str
    priority: int = 10
    artifacts: tuple[str, ...] = ()
    detect: Detect = Detect()
    checks: tuple[Check, ...] = Field(default=(), alias="check")

    @model_validator(mode="after")
    def _order_exists(self) -> Profile:
        self.in_order([c.id for c in self.checks])
        return self

    @property
    def markers(self) -> tuple[str, ...]:
        """Files that detection looks at."""
        return tuple(dict.fromkeys(m.file for m in (*self.detect.all, *self.detect.any)))

    def in_order(self, wanted: Iterable[str]) -> tuple[Check, ...]:
        """The wanted checks and what they require, required ones first, else in file order.

        Raises: ValueError for an unknown id or a cycle.
        """
        by_id = {c.id: c for c in self.checks}
        graph: dict[str, tuple[str, ...]] = {}
        pending = list(wanted)
        while pending:
            name = pending.pop()
            if name not in by_id:
                raise ValueError(f"unknown check '{name}'")
            if name not in graph:
                graph[name] = by_id[name].requires
                pending += by_id[name].requires
        position = {name: i for i, name in enumerate(by_id)}
        try:
            order = list(
                TopologicalSorter({n: graph[n] for n in sorted(graph, key=position.__getitem__)}).static_order()
            )
        except CycleError as error:
            raise ValueError("checks require each other in a circle") from error
        return tuple(by_id[name] for name in order)


def load_profiles(folders: Iterable[Path], workspace: PurePosixPath) -> dict[str, Profile]:
    """Profiles by name; a later folder replaces a name of an earlier one. `<worktree>` becomes `workspace`.

    Raises: `invalid_input` naming the file.
    """
    profiles: dict[str, Profile] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.toml")):
            profiles[path.stem] = _load(path, workspace)
    return profiles


def _load(path: Path, workspace: PurePosixPath) -> Profile:
    try:
        text = path.read_text(encoding="utf-8").replace("<worktree>", str(workspace))
        return Profile.model_validate({**tomllib.loads(text), "name": path.stem})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT, f"The profile {path} cannot be used", details=mistakes(error), hint=_HINT
        ) from error


class _Suggestions(_Shape):
    checks: tuple[Check, ...] = Field(default=(), alias="check")


def with_suggestions(profile: Profile, content: bytes, workspace: PurePosixPath) -> Profile:
    """The profile and the checks that a repository suggests; these may require the profile's own.

    Raises: `invalid_input` for content that is no such file, or that has a check by a name the profile has.
    """
    try:
        text = content.decode("utf-8").replace("<worktree>", str(workspace))
        added = _Suggestions.model_validate(tomllib.loads(text)).checks
        ids = [c.id for c in (*profile.checks, *added)]
        if taken := sorted({name for name in ids if ids.count(name) > 1}):
            raise ValueError(f"with the profile '{profile.name}' there is {', '.join(taken)} already")
        kept = {name: value for name, value in profile if name != "checks"}
        return Profile.model_validate({**kept, "check": (*profile.checks, *added)})
    except (ValueError, tomllib.TOMLDecodeError) as error:  # ValidationError is a ValueError
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The checks suggested in {SUGGESTIONS} cannot be used",
            details=mistakes(error),
            hint=_HINT,
        ) from error


def detect(profiles: Mapping[str, Profile], read: ReadBase) -> Profile:
    """The matching profile of the highest priority; `generic` when none matches."""
    for profile in sorted(profiles.values(), key=lambda p: (-p.priority, p.name)):
        if _matches(profile.detect, read):
            return profile
    return profiles[GENERIC]


def _matches(rules: Detect, read: ReadBase) -> bool:
    if not rules.all and not rules.any:
        return False
    return all(_holds(m, read) for m in rules.all) and (not rules.any or any(_holds(m, read) for m in rules.any))


def _holds(marker: Marker, read: ReadBase) -> bool:
    content = read(marker.file)
    if content is None:
        return False
    text = content[:MARKER_BYTES].decode("utf-8", errors="replace")
    return not marker.matches or re.search(marker.matches, text, re.MULTILINE) is not None
