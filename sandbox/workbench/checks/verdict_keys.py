"""The keys of cached verdicts: everything that the verdicts of a tree's checks are bound to."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.checks.compiler_cache import CompilerCacheUse
from sandbox.models import Check
from sandbox.store.verdicts import Binding
from sandbox.workbench.checks.guest_setup import GuestSetup
from sandbox.workbench.controller.policies_in_force import Policies

if TYPE_CHECKING:
    from sandbox.config import Settings
    from sandbox.policy.container import EffectiveContainerPolicy
    from sandbox.profiles import Profile

_SOME_CACHE = Path("/")  # a key names the repository of the cache that was read, not its content
PLATFORM = f"{platform.system()}/{platform.machine()}".lower()


def build_bindings(policies: Policies, setup: GuestSetup, tree: str, chain: Sequence[Check]) -> dict[str, Binding]:
    """What the verdicts of a chain are bound to, by check. Does no I/O."""
    found: dict[str, Binding] = {}
    policy, after = _policy_digest(policies.container), ""
    for check in chain:
        found[check.id] = Binding(
            tree=tree,
            image_digest=setup.image_digest,
            check=check,
            policy=policy,
            runtime=setup.runtime,
            platform=PLATFORM,
            layers=tuple(layer.key for layer in setup.layers),
            services=tuple(s for s in setup.services if s.rule.serves(check.id)),
            submodules=bool(setup.added.submodules),
            lfs=setup.added.lfs,
            submodules_with_lfs=setup.added.submodules_with_lfs,
            user=None if policies.pristine_owner else _shared_user(setup),
            after=after,
            compiler_cache=setup.compiler_cache.reads is not None,
            compiler_cache_of=setup.compiler_cache.repo_id,
        )
        after = found[check.id].key
    return found


def _shared_user(setup: GuestSetup) -> tuple[int, int]:
    """The controller's user, as guests see it."""
    return os.geteuid() - setup.first_ids[0], os.getegid() - setup.first_ids[1]


def _policy_digest(policy: EffectiveContainerPolicy) -> str:
    text = json.dumps(policy.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def uses_compiler_cache(settings: Settings, profile: Profile, checks: Sequence[Check]) -> bool:
    """Whether rooms for these checks may fill or read a compiler cache: the profile wants it, the settings allow it.

    What may become a release is built from scratch.
    """
    if any(check.launch is not None for check in checks):
        return False
    return settings.container.compiler_cache == "auto" and profile.uses_compiler_cache(checks)


def possible_setups(setup: GuestSetup, cache_of: str) -> list[GuestSetup]:
    """The setups of verdicts that answer a request: from scratch, and with the compiler cache of the repository
    `cache_of`; '' where none may be read.
    """
    if not cache_of:
        return [setup]
    return [setup, replace(setup, compiler_cache=CompilerCacheUse(_SOME_CACHE, cache_of))]
