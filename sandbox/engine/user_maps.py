"""Which users of this host the guests of an engine are. Pure, except `require_known_users`, which asks the engine.

An ordinary engine gives guests the ids of this host. An engine with userns-remap shifts them: its directory is named
after the host's uid and gid of the guests' 0, which is how it says where its range begins. An operator then gives
guests ids of that range (`[users] mapped = true`), so that they own their files and, outside of the container, nothing
else. With other ids a check could not write its worktree, and one that ignores errors would pass without any work. So
such an engine is refused before a container starts, and so is a rootless one. See docs/adr/0086.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sandbox.engine.protocol import EngineInformation
from sandbox.errors import ErrorCode, SandboxError
from sandbox.policy.container import UserIds

ROOTLESS_HINT = (
    "Rootless engines are not supported yet: their guests have other uids than this host and cannot write their files. "
    "Point engine.host or DOCKER_HOST at an ordinary engine, or at one with userns-remap."
)
MAX_GUEST_ID = 65535
"""The highest id of a mapping of ordinary size. A guest with an id that is not mapped does not start."""
_SUGGESTED_FIRST, _SUGGESTED_COUNT = 33_000, 32_000
_ROOT_DIRECTORY = re.compile(r"/(\d{1,10})\.(\d{1,10})/?$")


def find_first_id(info: Mapping[str, Any], users: UserIds) -> int:
    """The host's uid and gid of the guests' 0, from `GET /info`: 0 for an engine that maps none.

    Raises: `engine_unavailable` for a rootless engine, for one whose range cannot be used, and for a container policy
    whose ids do not fit the engine.
    """
    if _has(info, "rootless"):
        raise _unusable_error("The engine is rootless", ROOTLESS_HINT)
    if not _has(info, "userns"):
        if users.mapped:
            hint = "Remove `mapped`, `first` and `count` of [users] in policies/container.toml."
            raise _unusable_error("The engine does not map users, and the container policy says that it does", hint)
        return 0
    found = _ROOT_DIRECTORY.search(str(info.get("DockerRootDir") or ""))
    if found is None or found[1] != found[2]:
        hint = "Give the engine one range: the same first id for its user in /etc/subuid and /etc/subgid."
        raise _unusable_error("The engine maps uids and gids to different ranges (userns-remap)", hint)
    first = int(found[1])
    if users.mapped and first < users.first and users.ids[-1] - first <= MAX_GUEST_ID:
        return first
    raise _unusable_error(
        f"The engine maps the users of guests to ids from {first} (userns-remap), and [users] of the policy does not",
        f"Run the controller as root, and write to policies/container.toml of its home: [users] mapped = true, "
        f"first = {first + _SUGGESTED_FIRST}, count = {_SUGGESTED_COUNT}. Create tasks that exist again.",
    )


def require_known_users(engine: EngineInformation, users: UserIds) -> Mapping[str, Any]:
    """Return what the engine says of itself, which is read for this: one request.

    Raises: as `find_first_id`.
    """
    info = engine.info()
    try:
        find_first_id(info, users)
    except SandboxError as error:
        raise SandboxError(error.code, error.brief, details=engine.endpoint.url, hint=error.hint) from None
    return info


def _has(info: Mapping[str, Any], option: str) -> bool:
    return any(f"name={option}" in str(line).split(",") for line in info.get("SecurityOptions") or ())


def _unusable_error(brief: str, hint: str) -> SandboxError:
    return SandboxError(ErrorCode.ENGINE_UNAVAILABLE, brief, hint=hint)
