"""The keys of cached verdicts: everything that the verdicts of a tree's checks are bound to."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.models import Check
from sandbox.profiles import Profile
from sandbox.store.verdicts import Binding
from sandbox.workbench.checks import run
from sandbox.workbench.controller.runtimes import runtime_of
from sandbox.workbench.controller.services import Parts

PLATFORM = f"{platform.system()}/{platform.machine()}".lower()


@dataclass(frozen=True)
class Made:
    """Image and runtime of a profile's guests."""

    image_digest: str
    runtime: str


def made_of(parts: Parts, profile: Profile) -> Made:
    """Asks the engine each time: a tag can have moved. Raises: `image_missing`, `engine_unavailable`,
    `policy_violation`.
    """
    return Made(run.image_of(parts, profile), runtime_of(parts, profile.name))


def bindings(parts: Parts, made: Made, tree: str, chain: Sequence[Check]) -> dict[str, Binding]:
    """What the verdicts of a chain are bound to, by check. Does no I/O."""
    found: dict[str, Binding] = {}
    policy, after = _policy_digest(parts), ""
    for check in chain:
        found[check.id] = Binding(
            tree=tree,
            image_digest=made.image_digest,
            check=check,
            policy=policy,
            runtime=made.runtime,
            platform=PLATFORM,
            user=parts.guest_user,
            after=after,
        )
        after = found[check.id].key
    return found


def _policy_digest(parts: Parts) -> str:
    text = json.dumps(parts.policy.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
