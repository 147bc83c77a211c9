"""Which users of this host the guests of an engine are. Pure, except the last two.

An ordinary engine gives guests the ids of this host. Two kinds shift them:

- An engine with userns-remap: its directory is named after the host's uid and gid of the guests' 0. An operator gives
  guests ids of that range (`users.mapped = true`), so that they own their files and, outside of the container,
  no others. See docs/adr/0086.
- A rootless engine: the guests' 0 is the user who runs it, and their other ids are of that user's subordinate range.
  The controller is that user, and may give files to no other, so its guests are 0 there. See docs/adr/0090.

With other ids a check could not write its worktree, and one that ignores errors would pass without any work. So an
engine with a map that cannot be used is refused before a container starts. What the kernel made of the map is read from
/proc of this host: a guest that is 0 inside must not be 0 here, whatever its engine says of itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.engine.products import has_security_option, is_rootless
from sandbox.engine.protocol import EngineInformation
from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_pattern import lazy_pattern
from sandbox.policy.container import UserIds

MAX_GUEST_ID = 65535
"""The highest id of a mapping of ordinary size. A guest with an id that is not mapped does not start."""
_SUGGESTED_FIRST, _SUGGESTED_COUNT = 33_000, 32_000
_ROOT_DIRECTORY = lazy_pattern(r"/(\d{1,10})\.(\d{1,10})/?\Z")
_NEEDED_LIMITS = {"MemoryLimit": "memory", "CpuCfsQuota": "cpu", "PidsLimit": "pids"}
"""Limits of a rootless engine, as `GET /info` names them, and the controllers that must be delegated to its user."""

_UID_AND_GID = 2

IdPair = tuple[int, int]
"""A uid and a gid."""


def find_first_ids(info: Mapping[str, Any], users: UserIds, own: IdPair | None = None) -> IdPair:
    """The host's uid and gid of the guests' 0, from `GET /info`: (0, 0) for an engine that maps none.

    `own`: the controller's uid and gid; None: those of this process. Raises: `engine_unavailable` for an engine with a
    range that cannot be used, for a container policy with ids outside of it, and for a rootless engine of another user
    or without limits.
    """
    if is_rootless(info):
        return _find_rootless(info, users, own or (os.geteuid(), os.getegid()))
    if not has_security_option(info, "userns"):
        if users.mapped:
            raise _unusable_error("The engine does not map users, and the container policy says that it does", _UNMAP)
        return 0, 0
    found = _ROOT_DIRECTORY.search(str(info.get("DockerRootDir") or ""))
    if found is None or found[1] != found[2]:
        hint = "Give the engine one range: the same first id for its user in /etc/subuid and /etc/subgid."
        raise _unusable_error("The engine maps uids and gids to different ranges (userns-remap)", hint)
    first = int(found[1])
    if users.mapped and first < users.first and users.ids[-1] - first <= MAX_GUEST_ID:
        return first, first
    raise _unusable_error(
        f"The engine maps the users of guests to ids from {first} (userns-remap), and [users] of the policy does not",
        "Run the controller as root, and make this the first line of policies/container.toml in its home, in place of "
        f"a table [users]: `users = {{ mapped = true, first = {first + _SUGGESTED_FIRST}, count = {_SUGGESTED_COUNT} "
        "}`. Create tasks that exist again.",
    )


_UNMAP = "Remove `mapped`, `first` and `count` of [users] in policies/container.toml."


def _find_rootless(info: Mapping[str, Any], users: UserIds, own: IdPair) -> IdPair:
    """Raises: `engine_unavailable`."""
    if own[0] == 0:
        raise _unusable_error(
            "The engine is rootless, and this controller is root",
            "Run the controller as the user who runs the engine: guests can write that user's files only.",
        )
    if users.mapped:
        raise _unusable_error("The engine is rootless, and the container policy says that it has userns-remap", _UNMAP)
    if lacking := [name for key, name in _NEEDED_LIMITS.items() if info.get(key) is False]:
        raise _unusable_error(
            f"The engine is rootless and cannot limit guests: it has no control group for {', '.join(lacking)}",
            "Boot with control groups of version 2 (systemd.unified_cgroup_hierarchy=1), start the engine as a service "
            "of your user's systemd, and delegate the controllers (docs/hardening.md).",
        )
    return own


def require_known_users(engine: EngineInformation, users: UserIds) -> Mapping[str, Any]:
    """Return what the engine says of itself, which is read for this: one request.

    Raises: as `find_first_ids`.
    """
    info = engine.info()
    try:
        find_first_ids(info, users)
    except SandboxError as error:
        raise SandboxError(error.code, error.brief, details=engine.endpoint.url, hint=error.hint) from None
    return info


def require_no_host_root(pid: int, options: Mapping[str, Any], proc: Path = Path("/proc")) -> None:
    """`options`: of the guest with this process. Raises: `policy_violation` for a guest that is root of this host. One
    that has ended has no status and is not checked.
    """
    if options["User"] != "0:0":
        return
    try:
        status = (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    ids = [line.split()[1:] for line in status.splitlines() if line.startswith(("Uid:", "Gid:"))]
    if len(ids) != _UID_AND_GID or any("0" in found for found in ids):
        raise SandboxError(
            ErrorCode.POLICY_VIOLATION,
            "The guest is root of this host and was stopped",
            hint="The engine says that it is rootless, but its guests are in no user namespace: use another engine.",
        )


def _unusable_error(brief: str, hint: str) -> SandboxError:
    return SandboxError(ErrorCode.ENGINE_UNAVAILABLE, brief, hint=hint)
