"""Options of requests for clean rooms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Literal

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass

MOST_ROUNDS = 100
MOST_SEED = 99_999 - MOST_ROUNDS


@dataclass(frozen=True)
class VerifyOptions:
    """`cache`: use cached verdicts; false: run every check and replace the cached verdicts. An option that a request
    does not take is `invalid_input`.

    `jobs`: number of check chains that run in parallel, each in its own room. `keep_going`: after a failure, also run
    the checks that do not require the failed one. `runtime`: engine runtime, instead of the profile's and the
    settings'. `include_changes`: of `run` on a local directory: verify its files as they are. `refresh`: choose the
    project's packages anew. `lfs`: of `run`: whether checkouts hold the files of Git LFS; None: as the repository's
    settings say. `projects`, `subpath`: of `run`, instead of those in the repository's settings: by name, the fields of
    `ChosenProject`; and the folder of the project. `named_folder`: of `run`: the folder that the caller is in; a
    project that holds it is run unless something else says what runs. `from_scratch`: no compiler cache is read, and no
    verdict of a room that read one is an answer. `against`: of `verify`: compare the checks with
    those on another tree: `base`, a commit or a task; all checks run then, as with `keep_going`. `repeat`: of
    `verify`: run the checks so often, each time in fresh rooms. `shuffle`: of `verify`: a number that the order of
    tests depends on, for checks that know how. `changed_since`: of `run`: only the checks of projects with a file that
    changed since this branch, tag or commit. Raises: `invalid_input`.
    """

    cache: bool = True
    jobs: int = 1
    keep_going: bool = False
    runtime: str | None = None
    include_changes: bool = False
    refresh: bool = False
    lfs: bool | None = None
    projects: Mapping[str, Mapping[str, object]] | None = None
    subpath: str | None = None
    named_folder: str = ""
    from_scratch: bool = False
    against: str | None = None
    repeat: int = 1
    shuffle: int | None = None
    changed_since: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.repeat <= MOST_ROUNDS:
            raise SandboxError(ErrorCode.INVALID_INPUT, f"repeat must be 1 to {MOST_ROUNDS}, not {self.repeat}")
        if self.shuffle is not None and not 0 <= self.shuffle <= MOST_SEED:
            raise SandboxError(ErrorCode.INVALID_INPUT, f"A seed is 0 to {MOST_SEED}, not {self.shuffle}")
        if self.jobs < 1:
            raise SandboxError(ErrorCode.INVALID_INPUT, f"jobs must be at least 1, not {self.jobs}")


RoomRequest = Literal["run", "verify", "candidate", "bisect"]

_ALL = frozenset({"cache", "jobs", "runtime", "refresh", "from_scratch"})
_TAKEN: Mapping[RoomRequest, frozenset[str]] = {
    "run": _ALL | {"keep_going", "include_changes", "lfs", "projects", "subpath", "named_folder", "changed_since"},
    "verify": _ALL | {"keep_going", "against", "repeat", "shuffle"},
    "candidate": _ALL | {"keep_going"},
    "bisect": _ALL,
}
"""The options that each request takes. Another one would be ignored, and the verdict answer another question."""

_HINTS = {
    "include_changes": "`run` on a local directory takes it. Commit the changes of a task first, or run checks in its "
    "own worktree.",
    "projects": "`run` takes it; the settings of the repository hold for its tasks: `set_repository`.",
    "subpath": "`run` takes it; the settings of the repository hold for its tasks: `set_repository`.",
    "lfs": "`run` takes it; the settings of the repository hold for its tasks: `set_repository`.",
}


def choose_options(request: RoomRequest, options: VerifyOptions | None) -> VerifyOptions:
    """The options of a request. Raises: `invalid_input` for one that the request does not take."""
    chosen = options or VerifyOptions()
    defaults = {field.name: field.default for field in fields(VerifyOptions)}
    given = [name for name, default in defaults.items() if getattr(chosen, name) != default]
    for name in given:
        if name not in _TAKEN[request]:
            others = " and ".join(f"`{other}`" for other, taken in _TAKEN.items() if name in taken)
            hint = _HINTS.get(name, f"{others} take{'' if ' and ' in others else 's'} it.")
            raise SandboxError(ErrorCode.INVALID_INPUT, f"`{request}` does not take the option `{name}`", hint=hint)
    return chosen


@dataclass(frozen=True)
class ExploreOptions:
    """`jobs`: how many ways are verified at once. `restore`: give the task the state of the best way.

    `expected_hashes`: of the files that patches change, as the caller read them; None: as they are now. Raises:
    `invalid_input`.
    """

    jobs: int = 2
    restore: bool = True
    expected_hashes: Mapping[str, str | None] | None = None

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise SandboxError(ErrorCode.INVALID_INPUT, f"jobs must be at least 1, not {self.jobs}")
