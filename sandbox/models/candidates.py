"""Candidates: verified builds of an application that were launched in a guest and probed."""

from __future__ import annotations

from sandbox.models.ids import ObjectId
from sandbox.models.launch_runs import PhaseRun
from sandbox.models.model import Model
from sandbox.models.runs import CheckRun


class CandidateResult(Model):
    """The answer of `candidate`: the runs of the checks before the launch and of the launch itself, and its phases.

    `passed`: every check and every phase did. `key`: what the verdict is bound to, as one digest.
    """

    tree: ObjectId
    runs: tuple[CheckRun, ...]
    phases: tuple[PhaseRun, ...]
    passed: bool
    key: str = ""
