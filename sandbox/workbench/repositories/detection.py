"""Say which profiles a commit matches, by which evidence, and what would run. No code of the repository is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sandbox import images
from sandbox.context.advice import choose_projects
from sandbox.dependencies.workspace_members import find_listed
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.blobs import read_blobs
from sandbox.git.entries import EXECUTABLE, REGULAR
from sandbox.git.objects import list_named_entries, tree_of
from sandbox.git.process import Git
from sandbox.models import ChosenSettings, ProfileCandidate, ProfileCandidates, ProjectCandidate
from sandbox.profiles import GENERIC, MARKER_BYTES, Profile, project_of
from sandbox.profiles.profile_matches import ProfileMatch, find_matches
from sandbox.workbench.controller.profile_images import choose_image_reference, choose_packages
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.check_overrides import apply_overrides
from sandbox.workbench.repositories.clone import UpdatedRepository, fetch_commit, update_cache, whole_tree_of
from sandbox.workbench.repositories.commit_facts import load_facts, profile_from_facts
from sandbox.workbench.repositories.commit_settings import complete_settings, match_folders
from sandbox.workbench.repositories.repository_settings import (
    apply_settings,
    choose_version,
    find_profile,
    read_settings,
)
from sandbox.workbench.repositories.seen_facts import advise
from sandbox.workbench.repositories.suggested import read_suggested_parts
from sandbox.workspaces.base_facts import BaseFacts


def detect_profiles(services: Services, url: str, ref: str) -> ProfileCandidates:
    """Clone or update the repository and match the ref's commit with all profiles.

    Raises: as `update_cache` and `fetch_commit`; `invalid_input` for a trusted suggestion that cannot be used.
    """
    updated = update_cache(services, url)
    commit, repo_id = fetch_commit(services, updated, ref), updated.repository.id
    facts = _load_facts(services, updated, commit)
    profiles = services.policies.profiles
    recorded = read_settings(services.home, services.policies, repo_id)
    chosen = complete_settings(services.home, services.policies, repo_id, facts, recorded)
    matches = find_matches(profiles, facts.markers_in(chosen.subpath)) or (ProfileMatch(profiles[GENERIC], 0, ()),)
    if chosen.profile:
        others = tuple(match for match in matches if match.profile.name != chosen.profile)
        match = ProfileMatch(find_profile(profiles, chosen.profile), 0, ("chosen with `sandbox repo set`",))
        matches = (match, *others)
    used = matches[0].profile
    complete = used if used.problem else profile_from_facts(services, repo_id, facts)
    read = facts.markers_in(chosen.subpath)
    changed = (choose_version(apply_settings(match.profile, chosen), read) for match in matches[1:])
    rest = (apply_overrides(services.settings, repo_id, profile, strict=False) for profile in changed)
    candidates = (
        _describe(services, match, profile) for match, profile in zip(matches, (complete, *rest), strict=True)
    )
    suggested = read_suggested_parts(services, repo_id, facts)
    missing_image, image_hint = _find_missing_image(services, complete)
    return ProfileCandidates(
        repo_id=repo_id,
        ref=ref,
        commit=commit,
        candidates=tuple(candidates),
        suggested=suggested.parts,
        notes=suggested.notes,
        advice=advise(services, repo_id, facts, complete),
        projects=tuple(_list_projects(services, facts, chosen, complete, _file_reader(updated.git, commit))),
        missing_image=missing_image,
        missing_image_hint=image_hint,
    )


def _find_missing_image(services: Services, profile: Profile) -> tuple[str, str]:
    """The image of its checks if the engine says that it does not have it, and what to do if no recipe makes it."""
    image = choose_image_reference(services.settings, profile)
    try:
        if profile.checks:
            images.find_usable_image(services.image_build_context, image)
    except SandboxError as error:  # without an engine it is not known
        if error.code is ErrorCode.IMAGE_MISSING:
            said = (profile.image_help if image == profile.image else "") or error.hint
            return image, "" if images.has_recipe(services.home, image) else said
    return "", ""


def _file_reader(git: Git, commit: str) -> Callable[[str], bytes | None]:
    """Reads small files at the top of a commit; None for others."""

    def read(path: str) -> bytes | None:
        entries = list_named_entries(git, tree_of(git, commit), [path.encode()])
        found = [
            entry.oid
            for entry in entries
            if entry.mode in {REGULAR, EXECUTABLE} and 0 <= (entry.size or 0) <= MARKER_BYTES
        ]
        return next(iter(read_blobs(git, found)), None)

    return read


def _list_kinds(profile: Profile) -> set[str]:
    """What kinds of workspaces its checks go through."""
    return {profile.name, *(rule.ecosystem for rule in profile.layers)}


def _find_own_members(
    complete: Profile, others: Mapping[str, Profile], read: Callable[[str], bytes | None]
) -> frozenset[str]:
    """The folders that are tested with the top: members of a workspace of the same kind."""
    used = _list_kinds(complete) if complete.checks and not complete.folder else set[str]()
    kinds = used & {kind for profile in others.values() for kind in _list_kinds(profile)}
    return frozenset(
        folder
        for kind in sorted(kinds)
        for folder in find_listed(read, {kind}, (f for f, profile in others.items() if kind in _list_kinds(profile)))
    )


def _list_projects(
    services: Services,
    facts: BaseFacts,
    chosen: ChosenSettings,
    complete: Profile,
    read: Callable[[str], bytes | None],
) -> Iterator[ProjectCandidate]:
    """Those that are declared, then those that were seen in other folders and are no members of a workspace."""
    for part in complete.parts:
        if part.project_name:
            folder = chosen.projects[part.project_name].subpath
            yield _describe_project(services, part, part.project_name, folder, used=True)
    others = {
        folder: found
        for folder, found in match_folders(services.policies.profiles, facts).items()
        if folder not in chosen.folders
    }
    for folder in _find_own_members(complete, others, read):
        del others[folder]
    names = {folder: name for name, folder in choose_projects(others, taken=chosen.projects).items()}
    for folder, found in others.items():
        yield _describe_project(services, found, names.get(folder, ""), folder, used=False)


def _describe_project(services: Services, part: Profile, name: str, folder: str, *, used: bool) -> ProjectCandidate:
    return ProjectCandidate(
        name=name,
        subpath=folder,
        profile=part.name,
        image=choose_image_reference(services.settings, part),
        checks=part.checks,
        used=used,
    )


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
        packages=choose_packages(services.settings, profile),
        checks=tuple(check for check in profile.checks if not project_of(check.id)),
        services=profile.services,
        problem=profile.problem,
    )
