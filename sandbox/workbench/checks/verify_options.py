"""How a request for clean rooms is carried out."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.errors import ErrorCode, SandboxError


@dataclass(frozen=True)
class VerifyOptions:
    """`cache`: verdicts that are known may answer; false: everything runs, and what it says replaces them.

    `jobs`: chains of checks at once, each in a room of its own. `keep_going`: after a failure also run what does not
    require it. `runtime`: engine runtime instead of the profile's and the settings'. Raises: `invalid_input`.
    """

    cache: bool = True
    jobs: int = 1
    keep_going: bool = False
    runtime: str | None = None

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise SandboxError(ErrorCode.INVALID_INPUT, f"{self.jobs} jobs would never end", hint="At least 1.")
