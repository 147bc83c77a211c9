"""Say which profiles a commit matches, by which evidence, and what would run. No code of the repository is run."""

from __future__ import annotations

from sandbox.models import ProfileCandidate, ProfileCandidates
from sandbox.profiles import GENERIC, Profile, ProfileMatch, find_matches
from sandbox.workbench.controller.profile_images import choose_image_reference
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.check_overrides import apply_overrides
from sandbox.workbench.repositories.clone import UpdatedRepository, fetch_commit, update_cache, whole_tree_of
from sandbox.workbench.repositories.commit_facts import load_facts, profile_from_facts
from sandbox.workspaces.base_facts import BaseFacts


def detect_profiles(services: Services, url: str, ref: str) -> ProfileCandidates:
    """Clone or update the repository and match the ref's commit with all profiles.

    Raises: as `update_cache` and `fetch_commit`; `invalid_input` for a trusted suggestion that cannot be used.
    """
    updated = update_cache(services, url)
    commit, repo_id = fetch_commit(services, updated, ref), updated.repository.id
    facts = _load_facts(services, updated, commit)
    profiles = services.policies.profiles
    matches = find_matches(profiles, facts.marker) or (ProfileMatch(profiles[GENERIC], 0, ()),)
    used = matches[0].profile
    complete = used if used.problem else profile_from_facts(services, repo_id, facts)
    others = (apply_overrides(services.settings, repo_id, match.profile, strict=False) for match in matches[1:])
    candidates = (
        _describe(services, match, profile) for match, profile in zip(matches, (complete, *others), strict=True)
    )
    return ProfileCandidates(repo_id=repo_id, ref=ref, commit=commit, candidates=tuple(candidates))


def _load_facts(services: Services, updated: UpdatedRepository, commit: str) -> BaseFacts:
    if commit == updated.default_head.commit:
        return updated.facts
    whole_tree_of(services, updated, commit)  # a partial clone may lack the files that are read
    return load_facts(services.home, services.policies, updated.repository.id, updated.git, commit)


def _describe(services: Services, match: ProfileMatch, profile: Profile) -> ProfileCandidate:
    return ProfileCandidate(
        name=profile.name,
        label=profile.label,
        image=choose_image_reference(services.settings, profile),
        weight=match.weight,
        why=match.why,
        checks=profile.checks,
        services=profile.services,
        problem=profile.problem,
    )
