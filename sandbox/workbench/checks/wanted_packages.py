"""Say which packages the checks of a commit would fetch, and from where, before anything is fetched or run."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.egress.client_settings import UnusableRegistry
from sandbox.egress.registries import find_registries
from sandbox.git.objects import tree_of
from sandbox.git.process import Git
from sandbox.models.layers import LayerRule
from sandbox.models.profile_candidates import ProfileCandidates, WantedPackages
from sandbox.workbench.checks.manifests import find_description, plan_layer
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import load_profile


def list_wanted_packages(services: Services, found: ProfileCandidates) -> tuple[WantedPackages, ...]:
    """What manifests of the commit ask for, also if a layer has it already; empty if `layers.fetch` is `never`, or if
    the profile cannot be used.

    `found`: what was detected, which fetched all files of the commit into a partial clone. Raises: `not_found` for a
    damaged clone; `timeout`.
    """
    if services.settings.layers.fetch == "never" or found.candidates[0].problem:
        return ()
    _, git = services.repositories.open(found.repo_id)
    profile, tree = load_profile(services, found.repo_id, git, found.commit), tree_of(git, found.commit)
    rules = dict.fromkeys(rule for part in profile.parts for rule in part.layers)
    return tuple(wanted for rule in rules for wanted in _find(services, git, tree, rule))


def _find(services: Services, git: Git, tree: str, rule: LayerRule) -> Iterator[WantedPackages]:
    plan, description = plan_layer(git, tree, rule), find_description(git, tree, rule)
    if plan or description:
        yield WantedPackages(
            ecosystem=rule.ecosystem,
            subpath=rule.folder,
            hosts=_list_hosts(services, rule),
            packages=plan.wanted if plan else (),
            refused=plan.refused if plan else (),
            asks_build=description is not None,
        )


def _list_hosts(services: Services, rule: LayerRule) -> tuple[str, ...]:
    try:
        found = find_registries(rule.ecosystem, services.settings.registries, services.environ)
    except UnusableRegistry:
        return ()
    return tuple(str(host.destination) for host in found.hosts)
