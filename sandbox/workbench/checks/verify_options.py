"""Options of a request for clean rooms."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass


@dataclass(frozen=True)
class VerifyOptions:
    """`cache`: use cached verdicts; false: run every check and replace the cached verdicts.

    `jobs`: number of check chains that run in parallel, each in its own room. `keep_going`: after a failure, also run
    the checks that do not require the failed one. `runtime`: engine runtime, instead of the profile's and the
    settings'. `include_changes`: of `run` on a local directory: verify its files as they are. `refresh`: choose the
    project's packages anew. `lfs`: of `run`: whether checkouts hold the files of Git LFS; None: as the repository's
    settings say. `projects`, `subpath`: of `run`, instead of those in the repository's settings: by name, the fields of
    `ChosenProject`; and the folder of the project. `named_folder`: of `run`: the folder that the caller is in; a
    project that holds it is run unless something else says what runs. `changed_since`: of `run`: only the checks of
    projects with a file that changed since this branch, tag or commit. Raises: `invalid_input`.
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
    changed_since: str | None = None

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise SandboxError(ErrorCode.INVALID_INPUT, f"jobs must be at least 1, not {self.jobs}")
