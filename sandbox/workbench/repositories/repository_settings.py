"""The settings that the operator gave a repository (`sandbox repo set`): read them, apply them to its profile.

They are kept in the repository's record and change checks, so they are part of each verdict's key. They widen no
right: the ceiling of the container policy and its protected variables hold as for a profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from sandbox.context.advice import asks_for_commit, asks_git_for_version
from sandbox.models import Check, ChosenSettings, Limits
from sandbox.profiles import Profile, detect_profile, require_usable
from sandbox.store.home import Home
from sandbox.store.records import list_repositories, not_found_error
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.ignore import exact_rule

if TYPE_CHECKING:
    from sandbox.workbench.controller.policies_in_force import Policies


def read_settings(home: Home, repo_id: str, profile: str | None = None) -> ChosenSettings:
    """The settings of a repository; none if it is not registered. `profile`: of a task or command, goes first."""
    chosen = next((r.settings for r in list_repositories(home) if r.id == repo_id), ChosenSettings())
    return chosen.model_copy(update={"profile": profile}) if profile else chosen


def find_profile(profiles: Mapping[str, Profile], name: str) -> Profile:
    """Raises: `not_found` with near matches, `invalid_input` for a profile with a mistake in its file."""
    if name not in profiles:
        raise not_found_error("profile", name, profiles, "`sandbox profiles list` shows all profiles.")
    return require_usable(profiles[name])


def choose_profile(policies: Policies, facts: BaseFacts, chosen: ChosenSettings) -> Profile:
    """The chosen profile, else the one that the tree or its chosen folder matches, with the settings applied.

    Raises: `not_found`, `invalid_input`: see `find_profile`.
    """
    read = facts.markers_in(chosen.subpath)
    profile = (
        find_profile(policies.profiles, chosen.profile) if chosen.profile else detect_profile(policies.profiles, read)
    )
    asks = profile.git_facts or asks_git_for_version(read) or asks_for_commit(facts.markers.values())
    wants = asks if chosen.git_facts == "auto" else chosen.git_facts == "always"
    return apply_settings(profile.model_copy(update={"git_facts": wants}), chosen)


def apply_settings(profile: Profile, chosen: ChosenSettings) -> Profile:
    """The profile with the repository's settings. Pure."""
    folder = chosen.subpath
    return profile.model_copy(
        update={
            "checks": tuple(_apply_to_check(check, chosen) for check in profile.checks),
            "layers": tuple(rule.model_copy(update={"folder": folder}) for rule in profile.layers),
            "artifacts": tuple(_move_rule(rule, folder) for rule in profile.artifacts),
            "repository_image": chosen.image,
            "submodules": bool(chosen.submodules),
        }
    )


def _apply_to_check(check: Check, chosen: ChosenSettings) -> Check:
    update: dict[str, object] = {}
    if chosen.subpath:
        update["cwd"] = str(PurePosixPath(chosen.subpath) / check.cwd)
    if chosen.env:
        update["env"] = {**check.env, **chosen.env}
    if chosen.limits:
        update["limits"] = Limits.model_validate({**dict(check.limits), **chosen.limits})
    return check.model_copy(update=update)


def _move_rule(rule: str, folder: str) -> str:
    """An ignore rule that is bound to the top, bound to the folder instead; others match at any depth."""
    if not folder or "/" not in rule.rstrip("/"):
        return rule
    return f"{exact_rule(folder)}/{rule.lstrip('/')}"
