"""Artifacts: files that a check left and its profile asks for. Content of a guest."""

from __future__ import annotations

from pydantic import NonNegativeInt

from sandbox.models.ids import Sha256
from sandbox.models.model import Model


class Artifact(Model):
    """One collected file. `path`: relative to the repository; `sha256`: of its content, by which it is stored."""

    path: str
    sha256: Sha256
    size: NonNegativeInt
    executable: bool = False


class RefusedArtifact(Model):
    """A name that matches and was not collected. `reason`: special, too-large, too-many, unsafe-name, unreadable, or
    disk where the home had no room for it. A coverage file may be kept and not counted: unreadable, no-coverage, or
    too-slow where those of the run took more processor time than they may.
    """

    path: str
    reason: str


class Coverage(Model):
    """The sum of the coverage files of a run, as they say it. `path`: of the last one."""

    path: str
    lines_covered: NonNegativeInt
    lines_total: NonNegativeInt

    @property
    def percent(self) -> float:
        """Of all lines; 0 without any."""
        return 100.0 * self.lines_covered / self.lines_total if self.lines_total else 0.0


class ArtifactList(Model):
    """The artifacts of a run. `refused`: at most 50 of them."""

    run_id: str
    artifacts: tuple[Artifact, ...]
    refused: tuple[RefusedArtifact, ...] = ()
    coverage: Coverage | None = None
