"""The settings in force at a commit: the operator's, the projects that the commit suggests and the operator trusts, and
the folder of its only project unless something else says what runs (docs/adr/0078). Runs no code of the repository.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sandbox.files.tree import sha256_of
from sandbox.models import ChosenProject, ChosenSettings
from sandbox.profiles import SUGGESTIONS, Profile
from sandbox.profiles.profile_matches import find_matches
from sandbox.profiles.suggested_checks import read_suggested_projects
from sandbox.store.home import Home
from sandbox.store.trust import is_trusted, trusts_anything
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.build_files import builds_one_project, is_own

if TYPE_CHECKING:
    from sandbox.workbench.controller.policies_in_force import Policies


def complete_settings(
    home: Home, policies: Policies, repo_id: str, facts: BaseFacts, chosen: ChosenSettings
) -> ChosenSettings:
    """The settings in force at a commit. `chosen`: those of the repository, which go first.

    Raises: `invalid_input` for a trusted suggestion that cannot be used.
    """
    if suggested := _read_trusted_projects(home, repo_id, facts):
        chosen = chosen.model_copy(update={"projects": {**suggested, **chosen.projects}})
    return add_only_folder(policies, facts, chosen)


def add_only_folder(policies: Policies, facts: BaseFacts, chosen: ChosenSettings) -> ChosenSettings:
    """The settings with the folder of the only project, if they name no other place; also with its profile named."""
    if chosen.subpath or chosen.projects:
        return chosen
    folder = find_only_folder(policies.profiles, facts)
    if not folder or chosen.profile not in {"", match_folders(policies.profiles, facts)[folder].name}:
        return chosen
    return chosen.model_copy(update={"subpath": folder})


def choose_named_folder(policies: Policies, facts: BaseFacts, chosen: ChosenSettings, named: str) -> ChosenSettings:
    """The settings with the folder of the project that a person named, unless something else says what runs. `named`:
    that folder, or one in it. `chosen`: as completed.
    """
    says = chosen.profile or chosen.subpath or chosen.projects or facts.marker(SUGGESTIONS) is not None
    if says or find_matches(policies.profiles, facts.marker):
        return chosen
    around = [folder for folder in match_folders(policies.profiles, facts) if f"{named}/".startswith(f"{folder}/")]
    return chosen.model_copy(update={"subpath": around[0]}) if around else chosen


def find_only_folder(profiles: Mapping[str, Profile], facts: BaseFacts) -> str:
    """The folder that holds the only project of a tree; '' if the top has one or says its checks, or if there is more
    than one that could be meant, also of a kind that no profile knows.
    """
    at_top = [path for path in facts.manifests if "/" not in path]
    if facts.marker(SUGGESTIONS) is not None or any(map(builds_one_project, at_top)):
        return ""
    if find_matches(profiles, facts.marker):
        return ""
    folders = {posixpath.dirname(path) for path in facts.manifests if path.count("/") == 1 and builds_one_project(path)}
    folders |= {folder for folder, files in facts.below.items() if any(map(builds_one_project, files))}
    found = match_folders(profiles, facts)
    others = {folder for folder in folders - found.keys() if is_own(folder)}
    return next(iter(found)) if len(found) == 1 and not others else ""


def match_folders(profiles: Mapping[str, Profile], facts: BaseFacts) -> dict[str, Profile]:
    """The profile with checks that each folder matches by itself."""
    found = {}
    for folder in sorted(facts.below):
        matches = find_matches(profiles, facts.markers_in(folder))
        if matches and matches[0].profile.checks:
            found[folder] = matches[0].profile
    return found


def _read_trusted_projects(home: Home, repo_id: str, facts: BaseFacts) -> dict[str, ChosenProject]:
    """Costs one stat without any trust."""
    if not trusts_anything(home, repo_id):
        return {}
    content = facts.marker(SUGGESTIONS)
    if content is None or not is_trusted(home, repo_id, sha256_of(content)):
        return {}
    return read_suggested_projects(content)
