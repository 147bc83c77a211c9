"""Use-case: change the settings of a repository (`sandbox repo set`). Agents see them and cannot change them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from sandbox.document_errors import describe_errors
from sandbox.engine.create_options import require_environment
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.cache_clones import resolve_commit
from sandbox.git.objects import tree_of
from sandbox.models import ChosenProject, ChosenSettings, Limits, Repository
from sandbox.models.checks import validate_limits
from sandbox.profiles import Profile
from sandbox.store.records import find_repository, save_settings
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import fetch_whole_tree
from sandbox.workbench.repositories.commit_facts import load_facts
from sandbox.workbench.repositories.commit_settings import complete_settings
from sandbox.workbench.repositories.lfs import find_large_files
from sandbox.workbench.repositories.repository_settings import (
    add_declared_projects,
    add_projects,
    choose_profile,
    list_declared_projects,
    parse_folder,
    require_folders,
)
from sandbox.workbench.repositories.submodules import choose_submodules

if TYPE_CHECKING:
    from sandbox.policy.container import ContainerPolicy


def change_settings(
    services: Services, repo_id: str, values: Mapping[str, object], unset: Collection[str]
) -> Repository:
    """Give a repository these settings, and take back those in `unset`: `profile`, `image`, `subpath`, `submodules`,
    `lfs`, `git_facts`, `limits`, `env`, `projects`, or a name below one of the last three, as `limits.NAME` and
    `projects.NAME.image`. Limits, variables and projects are merged by name, also within a project. `submodules`: True
    takes the remotes of those that the default branch has, and clones them. `lfs`: True fetches the files that the
    default branch has.

    Raises: `not_found` for the repository, profile or folder; `invalid_input`, also for a project without checks;
    `policy_violation` for a limit above the ceiling and a protected variable; `unsafe_path`.
    """
    find_repository(services.home, repo_id)  # before its lock: else any text would get a lock file
    with services.home.locked(f"settings-{repo_id}"):
        before = find_repository(services.home, repo_id).settings
        if values.get("submodules") is True:
            values = {**values, "submodules": _choose_submodules(services, repo_id)}
        if values.get("lfs") is True:
            _fetch_large_files(services, repo_id)
        declared = list_declared_projects(services.policies, repo_id)
        chosen = merge_settings(_take_back(before, unset, declared), values, declared)
        _require_allowed(chosen, services.policies.container.container)
        profile = _find_profile(services, repo_id, chosen)
        return save_settings(services.home, repo_id, chosen, profile.name, profile.folder)


def _choose_submodules(services: Services, repo_id: str) -> tuple[str, ...]:
    """The remotes of the submodules of the default branch, cloned."""
    repository, git = services.repositories.open(repo_id)
    commit = resolve_commit(git, "HEAD", repository.default_branch)
    return choose_submodules(services, repository, git, tree_of(git, commit))


def _fetch_large_files(services: Services, repo_id: str) -> None:
    """So that a server that refuses is known now, and not only when a check runs."""
    repository, git = services.repositories.open(repo_id)
    commit = resolve_commit(git, "HEAD", repository.default_branch)
    find_large_files(services, repo_id, git, [fetch_whole_tree(services, repository, git, commit)], wanted=True)


def _take_back(before: ChosenSettings, unset: Collection[str], declared: Mapping[str, ChosenProject]) -> ChosenSettings:
    left = before.model_dump()
    for name in unset:
        *tables, key = name.split(".", maxsplit=1 if name.startswith("env.") else -1)
        place: object = left
        for table in tables:
            place = place.get(table) if isinstance(place, dict) else None
        if not isinstance(place, dict) or key not in place:
            in_file = tables[:1] == ["projects"] and key in declared
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"The repository has no setting '{name[:100]}'",
                hint="config.toml declares this project: change it there."
                if in_file
                else "Settings are profile, image, subpath, submodules, lfs, git_facts, limits.NAME, env.NAME, "
                "projects.NAME and projects.NAME.image; `sandbox repo show REPO` lists them.",
            )
        del place[key]
    return ChosenSettings.model_validate(left)


def merge_settings(
    before: ChosenSettings, values: Mapping[str, object], declared: Mapping[str, ChosenProject] | None = None
) -> ChosenSettings:
    """The settings with these values; tables are merged by name. `declared`: projects of the configuration file, which
    a project of that name begins with. A new project without a `subpath` is in the folder of its name.

    Raises: `invalid_input`, `unsafe_path`.
    """
    merged = before.model_dump()
    named = values.get("projects")
    for name in named if isinstance(named, Mapping) else ():
        known = declared.get(name) if declared else None
        merged["projects"].setdefault(name, known.model_dump() if known else {"subpath": name})
    try:
        chosen = ChosenSettings.model_validate(_merge_tables(merged, values))
        for limits in _find_new_limits(before, chosen):
            _require_known(limits)
            validate_limits(limits)
    except ValueError as error:  # also a ValidationError
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "A setting of the repository cannot be used",
            details=describe_errors(error),
            hint="docs/profiles.md lists the settings and limits.",
        ) from error
    projects = {
        name: project.model_copy(update={"subpath": parse_folder(project.subpath)})
        for name, project in chosen.projects.items()
    }
    return chosen.model_copy(update={"subpath": parse_folder(chosen.subpath), "projects": projects})


def _find_new_limits(before: ChosenSettings, chosen: ChosenSettings) -> Iterator[dict[str, int | float]]:
    """The limits that change. One that an earlier version stored is no reason to refuse another setting."""
    yield _find_changed(before.limits, chosen.limits)
    for name, project in chosen.projects.items():
        known = before.projects.get(name)
        yield _find_changed(known.limits if known else {}, project.limits)


def _find_changed(before: Mapping[str, float], limits: Mapping[str, int | float]) -> dict[str, int | float]:
    return {name: limit for name, limit in limits.items() if before.get(name) != limit}


def _require_known(limits: Mapping[str, object]) -> None:
    """Raises: `invalid_input` with near names."""
    for name in limits.keys() - Limits.model_fields.keys():
        near = difflib.get_close_matches(name, Limits.model_fields, n=3, cutoff=0.5) or sorted(Limits.model_fields)
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"There is no limit '{name[:100]}'",
            details=f"Did you mean: {', '.join(near)}?",
            hint="docs/profiles.md lists the limits.",
        )


def _merge_tables(before: Mapping[str, object], values: Mapping[str, object]) -> dict[str, object]:
    """`values` go first; tables are merged, at any depth."""
    merged = dict(before)
    for name, value in values.items():
        table = merged.get(name)
        both = isinstance(value, Mapping) and isinstance(table, Mapping)
        merged[name] = _merge_tables(table, value) if both else value  # type: ignore[arg-type]  # both are tables
    return merged


def _require_allowed(chosen: ChosenSettings, policy: ContainerPolicy) -> None:
    """Refuse now what a check would refuse later."""
    tables: list[ChosenSettings | ChosenProject] = [chosen, *chosen.projects.values()]
    for table in tables:
        require_environment(table.env)
        _require_below_ceiling(table.limits, policy)


def _require_below_ceiling(limits: Mapping[str, int | float], policy: ContainerPolicy) -> None:
    for name, value in limits.items():
        most = getattr(policy.ceiling, name)
        if value > most:
            raise SandboxError(
                ErrorCode.POLICY_VIOLATION,
                f"The limit {name} may be at most {most:,}",
                details=f"asked for {value:,}",
                hint="The operator's container policy sets the ceiling (docs/configuration.md).",
            )


def _find_profile(services: Services, repo_id: str, chosen: ChosenSettings) -> Profile:
    """The profile that the default branch has with these settings. Raises: `not_found`."""
    chosen = add_declared_projects(services.policies, repo_id, chosen)
    repository, git = services.repositories.open(repo_id)
    commit = resolve_commit(git, "HEAD", repository.default_branch)
    require_folders(git, tree_of(git, commit), chosen, f"The default branch of {repo_id}")
    facts = load_facts(services.home, services.policies, repo_id, git, commit, chosen.folders)
    chosen = complete_settings(services.home, services.policies, repo_id, facts, chosen)
    profile = choose_profile(services.policies, facts, chosen)
    return add_projects(services.policies, facts, chosen, profile)
