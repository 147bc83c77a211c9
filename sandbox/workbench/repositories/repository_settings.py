"""The settings that the operator gave a repository (`sandbox repo set`): read them, apply them to its profile.

They are kept in the repository's record and change checks, so they are part of each verdict's key. They widen no
right: the ceiling of the container policy and its protected variables hold as for a profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.objects import find_tree
from sandbox.git.process import Git
from sandbox.lazy_dataclass import dataclass
from sandbox.lazy_module import LazyModule
from sandbox.models import Check, ChosenProject, ChosenSettings, FileClass, Limits
from sandbox.models.checks import lower_limits
from sandbox.policy.paths import parse_repo_path, path_bytes
from sandbox.profiles import Profile, ReadBaseFile, require_usable
from sandbox.profiles.profile_matches import detect_profile
from sandbox.store.home import Home
from sandbox.store.records import list_repositories, not_found_error
from sandbox.workspaces.base_facts import BaseFacts
from sandbox.workspaces.ignore import exact_rule

if TYPE_CHECKING:
    from sandbox.context import advice
    from sandbox.dependencies import allowed_pythons, go_versions
    from sandbox.workbench.controller.policies_in_force import Policies
    from sandbox.workbench.controller.services import Services
else:  # loaded at first use (docs/adr/0080)
    advice = LazyModule("sandbox.context.advice")
    allowed_pythons = LazyModule("sandbox.dependencies.allowed_pythons")
    go_versions = LazyModule("sandbox.dependencies.go_versions")


def read_settings(home: Home, policies: Policies, repo_id: str, profile: str | None = None) -> ChosenSettings:
    """The settings of a repository, and the projects that the configuration file declares for it; none if it is not
    registered. `profile`: of a task or command, goes first. Raises: `unsafe_path` for a folder in the file.
    """
    recorded = next((r.settings for r in list_repositories(home) if r.id == repo_id), ChosenSettings())
    chosen = add_declared_projects(policies, repo_id, recorded)
    return chosen.model_copy(update={"profile": profile}) if profile else chosen


def add_declared_projects(policies: Policies, repo_id: str, recorded: ChosenSettings) -> ChosenSettings:
    """The settings with the projects of the configuration file. A recorded one of the same name replaces it."""
    declared = list_declared_projects(policies, repo_id)
    return recorded.model_copy(update={"projects": {**declared, **recorded.projects}}) if declared else recorded


def list_declared_projects(policies: Policies, repo_id: str) -> dict[str, ChosenProject]:
    """The projects that the configuration file declares, by name. Raises: `unsafe_path`."""
    return {
        project.name: ChosenProject(
            subpath=parse_folder(project.subpath), **project.model_dump(exclude={"name", "subpath"})
        )
        for project in policies.projects.get(repo_id, ())
    }


@dataclass(frozen=True)
class AddedFiles:
    """What checkouts hold in addition to the files of their tree, as the settings said when a command began. Keys of
    what is made in a room are of this, and the room holds exactly it, also if the settings change meanwhile.

    `submodules`: URLs of the remotes that were chosen; without any, folders of submodules are empty. `lfs`: files of
    Git LFS and not their pointers. `submodules_with_lfs`: URLs of remotes of submodules that have theirs, by their own
    settings.
    """

    submodules: tuple[str, ...] = ()
    lfs: bool = False
    submodules_with_lfs: tuple[str, ...] = ()


def choose_added_files(services: Services, submodules: tuple[str, ...], *, lfs: bool) -> AddedFiles:
    """What checkouts hold in addition to the files of their tree, with these settings of their repository."""
    return AddedFiles(submodules, lfs, _find_remotes_with_lfs(services, submodules))


def _find_remotes_with_lfs(services: Services, urls: Sequence[str]) -> tuple[str, ...]:
    """Those of these remotes that have files of Git LFS laid out, by the settings of their repositories."""
    chosen = {(r.hostname, r.owner, r.name) for r in list_repositories(services.home) if r.settings.lfs} if urls else ()
    if not chosen:
        return ()
    remotes = {url: services.remotes.parse_registered(url) for url in urls}
    return tuple(url for url, remote in remotes.items() if (remote.hostname, remote.owner, remote.name) in chosen)


def parse_folder(text: str) -> str:
    """A folder of a repository; '' for the top. Raises: `unsafe_path`."""
    folder = text.strip("/").removeprefix("./")
    return str(parse_repo_path(folder)) if folder not in {"", "."} else ""


def find_profile(profiles: Mapping[str, Profile], name: str) -> Profile:
    """Raises: `not_found` with near matches, `invalid_input` for a profile with a mistake in its file."""
    if name not in profiles:
        raise not_found_error("profile", name, profiles, "`sandbox profiles list` shows all profiles.")
    return require_usable(profiles[name])


def choose_profile(policies: Policies, facts: BaseFacts, chosen: ChosenSettings) -> Profile:
    """The chosen profile, else the one that the tree or its chosen folder matches, with the settings applied.

    Raises: `not_found`, `invalid_input`: see `find_profile`.
    """
    profile, read = _match_profile(policies, facts, chosen), facts.markers_in(chosen.subpath)
    asks = profile.git_facts or advice.asks_git_for_version(read) or advice.asks_for_commit(facts.markers.values())
    wants = asks if chosen.git_facts == "auto" else chosen.git_facts == "always"
    return choose_version(profile.model_copy(update={"git_facts": wants}), read)


def choose_version(profile: Profile, read: ReadBaseFile) -> Profile:
    """The profile with its first image that has a Python or Go the project allows, or with what none has. Pure."""
    if profile.pythons:
        wanted, allows = allowed_pythons.read_allowed_pythons(read), allowed_pythons.allows_python
    elif profile.gos:
        wanted, allows = go_versions.read_needed_go(read), go_versions.allows_go
    else:
        return profile
    if not wanted or allows(wanted, profile.version_images[0].version):
        return profile
    fitting = (row.image for row in profile.version_images if allows(wanted, row.version))
    return profile.model_copy(update={"image": next(fitting, profile.image), "requires_version": wanted})


def _match_profile(policies: Policies, facts: BaseFacts, chosen: ChosenSettings) -> Profile:
    """As `choose_profile`, without a look at whether its checks get facts of the commit."""
    if chosen.profile:
        return apply_settings(find_profile(policies.profiles, chosen.profile), chosen)
    return apply_settings(detect_profile(policies.profiles, facts.markers_in(chosen.subpath)), chosen)


def require_folders(git: Git, tree: str, chosen: ChosenSettings, where: str) -> None:
    """Raises: `not_found` if a folder of the settings is no directory of the tree. `where`: names it."""
    for folder in chosen.folders:
        if find_tree(git, tree, path_bytes(folder)) is None:
            raise SandboxError(
                ErrorCode.NOT_FOUND,
                f"{where} has no directory '{folder[:100]}'",
                hint="Name a directory from the top of the repository, with / between names.",
            )


def add_projects(policies: Policies, facts: BaseFacts, chosen: ChosenSettings, profile: Profile) -> Profile:
    """The profile with the checks of the repository's projects, named `PROJECT.CHECK`.

    Raises: `invalid_input` for a project without checks: a gate would open without it. Otherwise as `choose_profile`.
    """
    parts = [_build_part(policies, facts, chosen, name) for name in chosen.projects]
    checks = (check for part in parts for check in part.checks)
    classes = (rule for part in parts for rule in part.classes)
    return profile.model_copy(
        update={
            "checks": (*profile.checks, *checks),
            "classes": (*classes, *profile.classes),  # the folder of a project before the patterns of the top
            "project_parts": tuple(parts),
        }
    )


def choose_artifacts(policies: Policies, facts: BaseFacts, chosen: ChosenSettings) -> tuple[str, ...]:
    """The ignore rules for build output of the top and of all projects. Raises: as `choose_profile`."""
    used = (chosen, *(_settings_of(chosen, name) for name in chosen.projects))
    rules = (rule for settings in used for rule in _match_profile(policies, facts, settings).artifacts)
    return tuple(dict.fromkeys(rules))


def _build_part(policies: Policies, facts: BaseFacts, chosen: ChosenSettings, name: str) -> Profile:
    settings = _settings_of(chosen, name)
    part = choose_profile(policies, facts, settings)
    if not part.checks:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The project '{name}' has no checks",
            details=f"No profile with checks fits the folder '{settings.subpath or '.'}' of this commit.",
            hint=f"Name a profile, `--project {name}=FOLDER:PROFILE`, or take it back with `--no-project {name}`: "
            "options of `sandbox repo set`. A project of config.toml is changed there.",
        )
    return _name_checks(part, name)


def _settings_of(chosen: ChosenSettings, name: str) -> ChosenSettings:
    """The settings of one project: its own, and those of the repository where it has none."""
    project = chosen.projects[name]
    return chosen.model_copy(
        update={
            "subpath": project.subpath,
            "profile": project.profile,
            "image": project.image or chosen.image,
            "limits": {**chosen.limits, **project.limits},
            "env": {**chosen.env, **project.env},
            "projects": {},
        }
    )


def _name_checks(part: Profile, name: str) -> Profile:
    """Name the checks of a project, also where they are referred to."""

    def rename(ids: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{name}.{check_id}" for check_id in ids)

    checks = (c.model_copy(update={"id": f"{name}.{c.id}", "requires": rename(c.requires)}) for c in part.checks)
    services = (rule.model_copy(update={"checks": rename(rule.checks)}) for rule in part.services)
    classes = (
        rule.model_copy(update={"name": f"{name}.{rule.name}", "checks": rename(rule.checks)}) for rule in part.classes
    )
    return part.model_copy(
        update={
            "checks": tuple(checks),
            "services": tuple(services),
            "classes": tuple(classes),
            "project_name": name,
        }
    )


def apply_settings(profile: Profile, chosen: ChosenSettings) -> Profile:
    """The profile with the repository's settings. Pure."""
    folder = chosen.subpath
    return profile.model_copy(
        update={
            "checks": tuple(_apply_to_check(check, chosen) for check in profile.checks),
            "layers": tuple(rule.model_copy(update={"folder": folder}) for rule in profile.layers),
            "artifacts": tuple(_move_rule(rule, folder) for rule in profile.artifacts),
            "classes": tuple(_move_class(rule, folder) for rule in profile.classes),
            "repository_image": chosen.image,
            "folder": folder,
            "submodule_urls": chosen.submodules,
            "lfs": chosen.lfs,
        }
    )


def _apply_to_check(check: Check, chosen: ChosenSettings) -> Check:
    update: dict[str, object] = {}
    if chosen.subpath:
        update["cwd"] = str(PurePosixPath(chosen.subpath) / check.cwd)
    if chosen.env:
        update["env"] = {**check.env, **chosen.env}
    if chosen.limits:
        update["limits"] = lower_limits(Limits.model_validate({**dict(check.limits), **chosen.limits}))
    return check.model_copy(update=update)


def _move_class(rule: FileClass, folder: str) -> FileClass:
    """A class with patterns that hold below the folder only."""
    if not folder:
        return rule
    below = (text.lstrip("/") if "/" in text.rstrip("/") else f"**/{text}" for text in rule.paths)
    return rule.model_copy(update={"paths": tuple(f"{exact_rule(folder)}/{text}" for text in below)})


def _move_rule(rule: str, folder: str) -> str:
    """An ignore rule that is bound to the top, bound to the folder instead; others match at any depth."""
    if not folder or "/" not in rule.rstrip("/"):
        return rule
    return f"{exact_rule(folder)}/{rule.lstrip('/')}"
