"""The container policy: what every guest gets, whatever its profile asks for. Source: `policies/container.toml`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from sandbox.errors import ErrorCode, SandboxError
from sandbox.mistakes import mistakes
from sandbox.models import Limits


class _Policy(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class GuestUser(_Policy):
    """Who the guest is. With a root controller: a uid that owns nothing on the host; else the controller's own."""

    uid: PositiveInt = 64000
    gid: PositiveInt = 64000


class GuestMount(_Policy):
    """Where the worktree and the report directory appear in the guest. Constants: never taken from a repository."""

    workspace: Literal["/workspace"] = "/workspace"
    report: Literal["/report"] = "/report"
    home: Literal["/home/sandbox"] = "/home/sandbox"


class Ulimits(_Policy):
    """Kernel limits per process that no check may change. (No nproc: it counts per uid, across guests.)"""

    core: NonNegativeInt = 0  # no core dumps, neither files nor handlers
    memlock_bytes: NonNegativeInt = 64 * 1024
    msgqueue_bytes: NonNegativeInt = 0
    rtprio: NonNegativeInt = 0


class ContainerPolicy(_Policy):
    """Hardening of every container. There is no switch for what no guest may ever have."""

    runtimes: tuple[str, ...] = ("runc", "runsc")
    seccomp: str = "seccomp.json"
    tmp_inodes: PositiveInt = 65536
    shm_bytes: PositiveInt = 64 * 1024**2
    cpu_shares: int = Field(default=512, ge=2, le=1024)
    oom_score_adj: int = Field(default=500, ge=0, le=1000)
    user: GuestUser = GuestUser()
    mounts: GuestMount = GuestMount()
    ulimits: Ulimits = Ulimits()
    ceiling: Limits = Limits()
    env: dict[str, str] = Field(default_factory=dict)


class ShippedPolicy(_Policy):
    """A policy with the text of its seccomp profile, which the engine wants inline."""

    container: ContainerPolicy
    seccomp_json: str


def load_container_policy(folder: Path) -> ShippedPolicy:
    """Read `container.toml` and the seccomp profile it names from one folder.

    Raises: `policy_violation` when either cannot be used: there is no default to fall back to.
    """
    path = folder / "container.toml"
    try:
        policy = ContainerPolicy.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        seccomp: Any = json.loads((folder / Path(policy.seccomp).name).read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, ValidationError, json.JSONDecodeError) as error:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The container policy in {folder} cannot be used",
            details=mistakes(error),
            hint="It is shipped with the sandbox, and docs/hardening.md explains it.",
        ) from error
    if not isinstance(seccomp, dict) or seccomp.get("defaultAction") != "SCMP_ACT_ERRNO":
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION, "The seccomp profile must deny by default", details=str(policy.seccomp)
        )
    return ShippedPolicy(container=policy, seccomp_json=json.dumps(seccomp, separators=(",", ":")))
