"""Options of an exploration."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_dataclass import dataclass


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
