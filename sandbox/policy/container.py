"""The container policy: applies to every guest, independent of its profile. Source: `policies/container.toml`.

An operator's file restricts it, and relaxes some of it. Rules for every guest on every host cannot be changed: to set
such a key is a `policy_violation`. A repository cannot change either file.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, StringConstraints, ValidationError

from sandbox.document_errors import describe_errors, parse_toml
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_pattern import lazy_pattern
from sandbox.models import Limits

FIXED_KEYS = {
    "user": "a guest's uid must not own files on any host",
    "mounts": "guests, profiles and verdicts depend on these paths",
    "seccomp": "the filter is fixed; `seccomp_deny` removes calls from it",
    "ulimits.core": "dumps of a guest's memory reach the host's handlers",
    "ulimits.msgqueue_bytes": "it is counted by uid, across guests",
    "ulimits.rtprio": "a guest with real-time priority starves the host",
}
"""Keys of the shipped file that an operator's file may not have, and why."""

FORBIDDEN_KEYS = {
    name: "no guest may ever have it"
    for name in (
        "cap_add", "capabilities", "devices", "gpus", "host", "ipc", "network", "pid", "ports", "privileged",
        "seccomp_allow", "userns", "uts", "volumes", "binds",
    )
} | {
    name: "it is set for every guest"
    for name in ("apparmor", "cap_drop", "masked_paths", "no_new_privileges", "read_only", "read_only_root", "readonly")
}  # fmt: skip
"""Keys that no file may have, with any value; other unknown keys are typing errors."""

RuntimeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
GroupName = Annotated[str, StringConstraints(pattern=r"^([a-z][a-z0-9]{0,31}(-[a-z0-9]{1,32}){0,3})?$")]
_ENV_NAME = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")
_MIN_RESERVE_BYTES = 1024**3
_HINT = "docs/configuration.md lists the keys of an operator's container policy."


class _ContainerPolicyModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class SharedUser(_ContainerPolicyModel):
    """With a root controller: the owner of pristine checkouts, which no guest can write."""

    uid: PositiveInt = 64000
    gid: PositiveInt = 64000


class UserIds(_ContainerPolicyModel):
    """With a root controller: the uids, and gids of the same numbers, of guests; each task and clean room has one.

    The default is above the 16-bit ids that distributions give out, below the subordinate ids, and small enough for
    tar archives and 18-bit cpio headers. `mapped`: the ids are of the subordinate range that the engine maps to its
    containers (userns-remap).
    """

    first: int = Field(default=66_000, ge=1000, lt=2**31)
    count: int = Field(default=32_000, ge=16, le=1_000_000)
    mapped: bool = False

    @property
    def ids(self) -> range:
        """All of them."""
        return range(self.first, self.first + self.count)


class GuestPaths(_ContainerPolicyModel):
    """Guest paths of the worktree, the report directory and the home. Constants: never taken from a repository."""

    workspace: Literal["/workspace"] = "/workspace"
    report: Literal["/report"] = "/report"
    home: Literal["/home/sandbox"] = "/home/sandbox"


class Ulimits(_ContainerPolicyModel):
    """Kernel limits per process that a check cannot change. (Without nproc: it counts per uid, across guests.)"""

    core: NonNegativeInt = 0  # no core dumps, neither files nor handlers
    memlock_bytes: NonNegativeInt = 64 * 1024
    msgqueue_bytes: NonNegativeInt = 0
    rtprio: NonNegativeInt = 0


class ContainerPolicy(_ContainerPolicyModel):
    """Hardening of every container. Rights that no guest may ever have are not configurable.

    `group`: the control group of all guests of the host; empty: none. `all_memory_bytes`, `all_pids`: what they may use
    together; 0: what the host has, less a reserve.
    """

    runtimes: tuple[RuntimeName, ...] = Field(default=("runc", "runsc"), min_length=1)
    seccomp: str = "seccomp.json"
    seccomp_deny: tuple[str, ...] = ()
    tmp_inodes: PositiveInt = 65536
    shm_bytes: PositiveInt = 64 * 1024**2
    cpu_shares: int = Field(default=512, ge=2, le=1024)
    oom_score_adj: int = Field(default=500, ge=0, le=1000)
    group: GroupName = "space-sandbox"
    all_memory_bytes: int = Field(default=0, ge=0, lt=1 << 60)
    all_pids: int = Field(default=0, ge=0, lt=1 << 22)
    user: SharedUser = SharedUser()
    users: UserIds = UserIds()
    mounts: GuestPaths = GuestPaths()
    ulimits: Ulimits = Ulimits()
    ceiling: Limits = Limits()
    env: dict[str, str] = Field(default_factory=dict)

    def memory_of_all_guests(self, host_bytes: int) -> int:
        """What all guests together may use: the operator's number, or the memory of the host less a reserve for it, an
        eighth and at least 1 GiB, or half of a small host.
        """
        reserve = min(max(_MIN_RESERVE_BYTES, host_bytes // 8), host_bytes // 2)
        return self.all_memory_bytes or host_bytes - reserve

    def within_ceiling(self, limits: Limits) -> Limits:
        """Lower the limits to the ceiling: for our own tools. Limits of a check are refused instead."""
        most = {name: min(value, getattr(self.ceiling, name)) for name, value in limits.model_dump().items()}
        return limits.model_copy(update=most)


class EffectiveContainerPolicy(_ContainerPolicyModel):
    """The policy in force, with the text of its seccomp profile, which the engine needs inline."""

    container: ContainerPolicy
    seccomp_json: str


def load_container_policy(folder: Path) -> EffectiveContainerPolicy:
    """Read `container.toml` and its seccomp profile from one folder.

    Raises: `policy_violation` when either is invalid: there is no default.
    """
    path = folder / "container.toml"
    try:
        policy = ContainerPolicy.model_validate(parse_toml(path.read_text(encoding="utf-8")))
        seccomp: Any = json.loads((folder / Path(policy.seccomp).name).read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, ValidationError, json.JSONDecodeError) as error:
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            f"The container policy in {folder} cannot be used",
            details=describe_errors(error),
            hint="The files are part of the sandbox: install the sandbox again. docs/hardening.md explains them.",
        ) from error
    if not isinstance(seccomp, dict) or seccomp.get("defaultAction") != "SCMP_ACT_ERRNO":
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION, "The seccomp profile must deny by default", details=str(policy.seccomp)
        )
    return EffectiveContainerPolicy(container=policy, seccomp_json=json.dumps(seccomp, separators=(",", ":")))


def merge_operator_container_policy(
    shipped: EffectiveContainerPolicy, path: Path, is_protected: Callable[[str], bool]
) -> EffectiveContainerPolicy:
    """Apply an operator's file to the shipped policy. `is_protected`: environment variables that it may not set.

    Raises: `invalid_input` for an invalid file, `policy_violation` for one that would change a fixed rule.
    """
    own = read_operator_container_policy(path)
    env = own.get("env")
    for name in env if isinstance(env, dict) else ():
        if not _ENV_NAME.fullmatch(name) or is_protected(name):
            raise _forbidden_key_error(path, f"env.{name}", "only the sandbox may set this variable")
    try:
        merged = ContainerPolicy.model_validate(_merge_tables(shipped.container.model_dump(), own))
    except ValidationError as error:
        raise _invalid_policy_error(path, describe_errors(error)) from error
    profile = _remove_denied_calls(json.loads(shipped.seccomp_json), merged.seccomp_deny, path)
    return EffectiveContainerPolicy(container=merged, seccomp_json=json.dumps(profile, separators=(",", ":")))


def read_operator_container_policy(path: Path) -> dict[str, Any]:
    """Read an operator's file. Raises: as `merge_operator_container_policy`, except for values."""
    try:
        own = parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _invalid_policy_error(path, describe_errors(error)) from error
    for key, value in own.items():
        names = [key, *(f"{key}.{inner}" for inner in (value if isinstance(value, dict) else ()))]
        for name in names:
            why = FIXED_KEYS.get(name) or FORBIDDEN_KEYS.get(name.lower().replace("-", "_"))
            if why is not None:
                raise _forbidden_key_error(path, name, why)
    return own


def _merge_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge by key; tables are merged one level deep."""
    merged = dict(below)
    for key, value in above.items():
        before = merged.get(key)
        merged[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def _remove_denied_calls(profile: dict[str, Any], denied: tuple[str, ...], path: Path) -> dict[str, Any]:
    """Return the seccomp filter without the denied calls."""
    known = {name for rule in profile["syscalls"] for name in rule["names"]}  # also those that are refused by name
    if unknown := sorted(set(denied) - known):
        raise _invalid_policy_error(path, f"seccomp_deny: the filter does not allow {', '.join(unknown)[:200]}")
    rules = []
    for rule in profile["syscalls"]:
        kept = [name for name in rule["names"] if rule["action"] != "SCMP_ACT_ALLOW" or name not in denied]
        if kept:
            rules.append({**rule, "names": kept})
    return {**profile, "syscalls": rules}


def _invalid_policy_error(path: Path, details: str) -> SandboxError:
    return SandboxError(
        ErrorCode.INVALID_INPUT, f"The container policy {path} cannot be used", details=details, hint=_HINT
    )


def _forbidden_key_error(path: Path, key: str, why: str) -> SandboxError:
    return SandboxError(
        ErrorCode.POLICY_VIOLATION,
        f"The container policy {path} may not set '{key}'",
        details=f"{key}: {why}",
        hint=_HINT,
    )
