"""Gather what is known of a commit and turn it into advice (sandbox/context/advice.py). Runs no code of it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sandbox.context.advice import SeenFacts, asks_git_for_version, find_advice, reads_no_variable
from sandbox.files.tree import sha256_of
from sandbox.lazy_module import LazyModule
from sandbox.models import Remark
from sandbox.profiles import GENERIC, SUGGESTIONS, Profile
from sandbox.profiles.foreign_build_files import find_foreign_files
from sandbox.profiles.profile_matches import find_matches, find_near_profiles, find_other_matches
from sandbox.store.records import find_repository
from sandbox.store.trust import is_trusted
from sandbox.workbench.controller.profile_images import is_image_overridden
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import load_facts, profile_from_facts
from sandbox.workbench.repositories.commit_settings import find_only_folder, match_folders
from sandbox.workbench.repositories.repository_settings import read_settings
from sandbox.workbench.repositories.suggested import read_suggested_parts
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.build_files import find_deep_folder

if TYPE_CHECKING:
    from sandbox.workbench.repositories import manifest_errors
else:  # loaded if there is no check to run (docs/adr/0003)
    manifest_errors = LazyModule("sandbox.workbench.repositories.manifest_errors")


def advise(
    services: Services,
    repo_id: str,
    facts: BaseFacts,
    profile: Profile,
    local_changes: int = 0,
    *,
    packages: bool = True,
) -> tuple[Remark, ...]:
    """Remarks on a commit. `profile`: the one in use, with its checks. `local_changes`: of the directory given.

    `packages`: read what files such as CI workflows install, which matters only if checks may lack it.
    """
    profiles, suggested = services.policies.profiles, facts.marker(SUGGESTIONS)
    read = facts.markers_in(profile.folder)
    chosen = read_settings(services.home, services.policies, repo_id)
    sha256 = "" if suggested is None else sha256_of(suggested)
    is_detected = not chosen.profile and bool(profile.checks)
    return find_advice(
        SeenFacts(
            repo_id=repo_id,
            profile=profile.name,
            has_checks=bool(profile.checks),
            manifests=facts.manifests,
            deep_folder=find_deep_folder(facts.manifests) if not chosen.subpath else "",
            unreadable={} if profile.checks else _find_syntax_errors(facts),
            near=() if profile.checks or profile.name != GENERIC else find_near_profiles(profiles, read),
            remote_url=find_repository(services.home, repo_id).remote_url,
            below={folder: found.name for folder, found in match_folders(profiles, facts).items()},
            only_folder=_find_used_folder(profiles, facts, profile) if not chosen.subpath else "",
            suggestion="" if not sha256 or is_trusted(services.home, repo_id, sha256) else sha256,
            packages={
                part.path: part.packages
                for part in (read_suggested_parts(services, repo_id, facts).parts if packages else ())
                if part.packages and not part.trusted
            },
            submodules=() if profile.submodule_urls else facts.gitlinks,
            uses_lfs=facts.lfs and not profile.lfs,
            lacks_version=asks_git_for_version(read) and (reads_no_variable(read) or not profile.git_facts),
            no_variable=reads_no_variable(read),
            local_changes=local_changes,
            requires_version="" if is_image_overridden(services.settings, profile) else profile.requires_version,
            image="" if profile.lacks_version else profile.image,
            language=profile.language,
            versions={known.image: known.version for known in profile.version_images},
            folder=profile.folder,
            others=_find_others(profiles, facts, profile) if is_detected else {},
            foreign=_find_foreign(profiles, facts, profile.folder) if is_detected else {},
        )
    )


def _find_others(profiles: Mapping[str, Profile], facts: BaseFacts, profile: Profile) -> dict[str, str]:
    """The other profiles that match where the one in use runs, with their evidence; none if it was chosen for a run."""
    matches = find_matches(profiles, facts.markers_in(profile.folder))
    if not matches or matches[0].profile.name != profile.name:
        return {}
    used = (profile, *(part for part in profile.project_parts if part.folder == profile.folder))
    return {match.profile.name: ", ".join(match.why) for match in find_other_matches(matches, used)}


def _find_foreign(profiles: Mapping[str, Profile], facts: BaseFacts, folder: str) -> dict[str, tuple[str, ...]]:
    """Build files of languages that no profile is for, where the checks run."""
    names = [posixpath.basename(path) for path in facts.manifests if posixpath.dirname(path) == folder]
    return find_foreign_files(names, {file for profile in profiles.values() for file in profile.markers})


def _find_syntax_errors(facts: BaseFacts) -> dict[str, str]:
    """Of the files at the top that profiles look for: the content of others is not known here."""
    return manifest_errors.find_syntax_errors([name for name in facts.manifests if name in facts.markers], facts.marker)


def advise_owner(services: Services, owner_id: str) -> tuple[Remark, ...]:
    """Remarks on the base of a task, or on the default branch of a repository. Raises: `not_found`."""
    found = services.repositories.find_owner_commit(owner_id, allow_closed=True)
    repo_id, name = found.repository.id, found.task.profile if found.task else None
    facts = load_facts(services.home, services.policies, repo_id, found.git, found.base_commit)
    return advise(services, repo_id, facts, profile_from_facts(services, repo_id, facts, name))


def _find_used_folder(profiles: Mapping[str, Profile], facts: BaseFacts, profile: Profile) -> str:
    """The folder of the only project, if checks run there; '' else."""
    return profile.folder if profile.folder and profile.folder == find_only_folder(profiles, facts) else ""
