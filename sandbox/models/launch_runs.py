"""How the phases of a launch went."""

from __future__ import annotations

from enum import StrEnum

from sandbox.models.model import SparseModel


class LaunchPhase(StrEnum):
    """The phases of a launch, in their order."""

    READY = "ready"
    PROBE = "probe"
    SOAK = "soak"
    STOP = "stop"


class PhaseVerdict(StrEnum):
    """How a phase ended."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


class PhaseRun(SparseModel):
    """One phase of a launch. `name`: of a probe. `why`: why it did not pass. `output`: the begin of what a command
    printed, guest text. `artifact`: path of the file that it left, on the host; `artifact_sha256`: of its content.
    """

    phase: LaunchPhase
    name: str = ""
    verdict: PhaseVerdict
    wall_time_s: float
    why: str = ""
    exit_code: int | None = None
    output: str = ""
    artifact: str | None = None
    artifact_sha256: str | None = None

    def describe(self) -> str:
        """One line, for people and agents; `why` may quote guest text."""
        what = f"{self.phase.value} {self.name}".strip()
        why = f": {self.why}" if self.why else ""
        return f"{what}: {self.verdict.value.replace('_', ' ')} in {self.wall_time_s:.1f} s{why}"
