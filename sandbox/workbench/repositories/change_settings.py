"""Use-case: change the settings of a repository (`sandbox repo set`). Agents see them and cannot change them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

from sandbox.document_errors import describe_errors
from sandbox.engine.create_options import require_environment
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.cache_clones import resolve_commit
from sandbox.git.objects import tree_of
from sandbox.models import ChosenSettings, Limits, Repository
from sandbox.policy.paths import parse_repo_path
from sandbox.store.records import find_repository, save_settings
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.clone import fetch_whole_tree
from sandbox.workbench.repositories.commit_facts import load_facts
from sandbox.workbench.repositories.lfs import find_large_files
from sandbox.workbench.repositories.repository_settings import add_projects, choose_profile, require_folders
from sandbox.workbench.repositories.submodules import choose_submodules

if TYPE_CHECKING:
    from sandbox.policy.container import ContainerPolicy


def change_settings(
    services: Services, repo_id: str, values: Mapping[str, object], unset: Collection[str]
) -> Repository:
    """Give a repository these settings, and take back those in `unset`: `profile`, `image`, `subpath`, `submodules`,
    `lfs`, `git_facts`, `limits`, `env`, `projects`, or one name of the last three, as `limits.NAME`. Limits, variables
    and projects are merged by name. `submodules`: True takes the remotes of those that the default branch has, and
    clones them. `lfs`: True fetches the files that the default branch has.

    Raises: `not_found` for the repository, profile or folder; `invalid_input`, also for a project without checks;
    `policy_violation` for a limit above the ceiling and a protected variable; `unsafe_path`.
    """
    with services.home.locked(f"settings-{repo_id}"):
        before = find_repository(services.home, repo_id).settings
        if values.get("submodules") is True:
            values = {**values, "submodules": _choose_submodules(services, repo_id)}
        if values.get("lfs") is True:
            _fetch_large_files(services, repo_id)
        chosen = merge_settings(_take_back(before, unset), values)
        _require_allowed(chosen, services.policies.container.container)
        profile = _find_profile_name(services, repo_id, chosen)
        return save_settings(services.home, repo_id, chosen, profile)


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


def _take_back(before: ChosenSettings, unset: Collection[str]) -> ChosenSettings:
    left = before.model_dump()
    for name in unset:
        table, _, key = name.partition(".")
        if table not in left or (key and (not isinstance(left[table], dict) or key not in left[table])):
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"The repository has no setting '{name[:100]}'",
                hint="Settings are profile, image, subpath, submodules, lfs, git_facts, limits.NAME, env.NAME and "
                "projects.NAME; `sandbox repo show REPO` lists them.",
            )
        if key:
            del left[table][key]
        else:
            del left[table]
    return ChosenSettings.model_validate(left)


def merge_settings(before: ChosenSettings, values: Mapping[str, object]) -> ChosenSettings:
    """The settings with these values; tables are merged by name. Raises: `invalid_input`, `unsafe_path`."""
    merged = before.model_dump()
    for name, value in values.items():
        table = merged.get(name)
        merged[name] = {**table, **value} if isinstance(value, Mapping) and isinstance(table, dict) else value
    try:
        chosen = ChosenSettings.model_validate(merged)
        Limits.model_validate(chosen.limits)
    except ValidationError as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "A setting of the repository cannot be used",
            details=describe_errors(error),
            hint="docs/profiles.md lists the settings and limits.",
        ) from error
    projects = {
        name: project.model_copy(update={"subpath": _parse_folder(project.subpath)})
        for name, project in chosen.projects.items()
    }
    return chosen.model_copy(update={"subpath": _parse_folder(chosen.subpath), "projects": projects})


def _parse_folder(text: str) -> str:
    """'' for the top. Raises: `unsafe_path`."""
    folder = text.strip("/").removeprefix("./")
    return str(parse_repo_path(folder)) if folder not in {"", "."} else ""


def _require_allowed(chosen: ChosenSettings, policy: ContainerPolicy) -> None:
    """Refuse now what a check would refuse later."""
    require_environment(chosen.env)
    for name, value in chosen.limits.items():
        most = getattr(policy.ceiling, name)
        if value > most:
            raise SandboxError(
                ErrorCode.POLICY_VIOLATION,
                f"The limit {name} may be at most {most:,}",
                details=f"asked for {value:,}",
                hint="The operator's container policy sets the ceiling (docs/configuration.md).",
            )


def _find_profile_name(services: Services, repo_id: str, chosen: ChosenSettings) -> str:
    """The profile that the default branch has with these settings. Raises: `not_found`."""
    repository, git = services.repositories.open(repo_id)
    commit = resolve_commit(git, "HEAD", repository.default_branch)
    require_folders(git, tree_of(git, commit), chosen, f"The default branch of {repo_id}")
    facts = load_facts(services.home, services.policies, repo_id, git, commit, chosen.folders)
    profile = choose_profile(services.policies, facts, chosen)
    return add_projects(services.policies, facts, chosen, profile).name
