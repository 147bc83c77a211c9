"""Use-case: change the settings of a repository (`sandbox repo set`). Agents see them and cannot change them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

from sandbox.document_errors import describe_errors
from sandbox.engine.create_options import require_environment
from sandbox.errors import ErrorCode, SandboxError
from sandbox.git.cache_clones import resolve_commit
from sandbox.git.objects import find_tree, tree_of
from sandbox.models import ChosenSettings, Limits, Repository
from sandbox.policy.paths import parse_repo_path, path_bytes
from sandbox.store.records import find_repository, save_settings
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import load_facts
from sandbox.workbench.repositories.repository_settings import choose_profile
from sandbox.workbench.repositories.submodules import choose_submodules

if TYPE_CHECKING:
    from sandbox.policy.container import ContainerPolicy


def change_settings(
    services: Services, repo_id: str, values: Mapping[str, object], unset: Collection[str]
) -> Repository:
    """Give a repository these settings, and take back those in `unset`: `profile`, `image`, `subpath`, `submodules`,
    `git_facts`, `limits`, `env`, `limits.NAME` or `env.NAME`. Limits and variables are merged by name. `submodules`:
    True takes the remotes of those that the default branch has, and clones them.

    Raises: `not_found` for the repository, profile or folder; `invalid_input`; `policy_violation` for a limit above the
    ceiling and a protected variable; `unsafe_path`.
    """
    with services.home.locked(f"settings-{repo_id}"):
        before = find_repository(services.home, repo_id).settings
        if values.get("submodules") is True:
            values = {**values, "submodules": _choose_submodules(services, repo_id)}
        chosen = _merge(_take_back(before, unset), values)
        _require_allowed(chosen, services.policies.container.container)
        profile = _find_profile_name(services, repo_id, chosen)
        return save_settings(services.home, repo_id, chosen, profile)


def _choose_submodules(services: Services, repo_id: str) -> tuple[str, ...]:
    """The remotes of the submodules of the default branch, cloned."""
    repository, git = services.repositories.open(repo_id)
    commit = resolve_commit(git, "HEAD", repository.default_branch)
    return choose_submodules(services, repository, git, tree_of(git, commit))


def _take_back(before: ChosenSettings, unset: Collection[str]) -> ChosenSettings:
    left = before.model_dump()
    for name in unset:
        table, _, key = name.partition(".")
        if table not in left or (key and (not isinstance(left[table], dict) or key not in left[table])):
            raise SandboxError(
                ErrorCode.INVALID_INPUT,
                f"The repository has no setting '{name[:100]}'",
                hint="Settings are profile, image, subpath, submodules, git_facts, limits.NAME and env.NAME; `sandbox "
                "repo show REPO` lists them.",
            )
        if key:
            del left[table][key]
        else:
            del left[table]
    return ChosenSettings.model_validate(left)


def _merge(before: ChosenSettings, values: Mapping[str, object]) -> ChosenSettings:
    merged = before.model_dump()
    for name, value in values.items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, Mapping) else value
    try:
        if merged["subpath"]:
            merged["subpath"] = str(parse_repo_path(merged["subpath"].strip("/")))
        Limits.model_validate(merged["limits"])
        return ChosenSettings.model_validate(merged)
    except (ValidationError, KeyError) as error:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "A setting of the repository cannot be used",
            details=describe_errors(error) if isinstance(error, ValidationError) else str(error),
            hint="docs/profiles.md lists the settings and limits.",
        ) from error


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
    if chosen.subpath and find_tree(git, tree_of(git, commit), path_bytes(chosen.subpath)) is None:
        raise SandboxError(
            ErrorCode.NOT_FOUND,
            f"The default branch of {repo_id} has no directory '{chosen.subpath[:100]}'",
            hint="Name a directory from the top of the repository, with / between names.",
        )
    facts = load_facts(services.home, services.policies, repo_id, git, commit, chosen.subpath)
    return choose_profile(services.policies, facts, chosen).name
