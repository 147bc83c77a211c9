"""`[launch]` and `[promote]` of a profile: how an application is started and what a release of it has; how it went."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, PositiveFloat

from sandbox.models.checks import Check, Limits, WorkspaceAccess
from sandbox.models.ids import CheckId
from sandbox.models.launch_steps import MAX_PROBES, LaunchProbe, LaunchReady, LaunchSteps, LaunchStop
from sandbox.models.model import Model
from sandbox.models.words import LAUNCH

MARGIN_S = 30.0
"""How much longer the launch itself may take than its phases, for what lies between them."""


class Launch(Model):
    """`[launch]`: how the application of a verified tree is started in a guest, and what it must then do.

    `<run>` in `argv`, `env`, `ready.file` and of probes is a fresh directory of this launch, in the guest's memory. The
    repository's files are read-only to the application, unless `workspace` says otherwise.
    """

    argv: tuple[str, ...] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str = "."
    requires: tuple[CheckId, ...] = ()
    limits: Limits = Limits()
    workspace: WorkspaceAccess = "read-only"
    ready: LaunchReady
    soak_s: NonNegativeFloat = Field(default=2.0, le=3600)
    stop: LaunchStop = LaunchStop()
    probes: tuple[LaunchProbe, ...] = Field(default=(), alias="probe", max_length=MAX_PROBES)

    def as_check(self) -> Check:
        """The check that launches the application. Raises: ValueError for probes of one name."""
        steps = LaunchSteps(ready=self.ready, soak_s=self.soak_s, stop=self.stop, probes=self.probes)
        return Check(
            id=LAUNCH,
            label="Launch the application and probe it",
            argv=self.argv,
            cwd=self.cwd,
            env=self.env,
            timeout_s=steps.longest_s + MARGIN_S,
            limits=self.limits,
            requires=self.requires,
            workspace=self.workspace,
            launch=steps,
        )


class ReleaseRule(Model):
    """`[promote]`: what a release has. `artifacts`: files and folders that the build makes, relative to the repository.

    `confirm_s`: how long the promoted release may take to be confirmed; then `current` is switched back.
    """

    artifacts: tuple[str, ...] = Field(min_length=1, max_length=200)
    confirm_s: PositiveFloat = Field(default=120.0, le=86400)
    max_bytes: int = Field(default=1024**3, ge=1, le=16 * 1024**3)
    max_files: int = Field(default=20_000, ge=1, le=200_000)
