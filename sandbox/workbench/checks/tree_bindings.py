"""What the verdicts of all checks of a profile on a tree are bound to, without running or fetching anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandbox.models.words import LAUNCH
from sandbox.profiles import Profile, project_of
from sandbox.store.verdicts import Binding
from sandbox.workbench.checks.chains import split_into_chains
from sandbox.workbench.checks.check_order import order_checks
from sandbox.workbench.checks.git_facts import add_git_facts
from sandbox.workbench.checks.guest_setup import GuestSetup, resolve_guest_setup
from sandbox.workbench.checks.layers import add_known_layers
from sandbox.workbench.checks.verdict_keys import build_bindings, possible_setups, uses_compiler_cache
from sandbox.workbench.checks.verdict_ways import Bindings
from sandbox.workbench.controller.services import Services
from sandbox.workbench.repositories.commit_facts import TreeSource


@dataclass(frozen=True)
class TreeBindings:
    """`chains`: of each chain its bindings for each way to run it: from scratch, and with a compiler cache if that is
    allowed. `setups`: the image and runtime, by project, '' for the top.
    """

    chains: Sequence[Sequence[Bindings]]
    setups: Mapping[str, GuestSetup]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all bindings, in the order of the checks."""
        return tuple(binding.key for ways in self.chains for way in ways for binding in way.values())


def bind_tree(services: Services, profile: Profile, source: TreeSource) -> TreeBindings:
    """The bindings of all checks of a profile that has some. Raises: as `resolve_guest_setup`."""
    profile = add_git_facts(profile, source.git, source.commit)
    setups = _resolve_setups(services, profile, source)
    return TreeBindings(_bind(services, profile, setups, source, [check.id for check in profile.checks]), setups)


def bind_launch(services: Services, profile: Profile, source: TreeSource) -> Binding:
    """What the verdict of a candidate is bound to. It is built from scratch: there is one way to run it.

    Raises: as `resolve_guest_setup`.
    """
    launched = add_git_facts(profile, source.git, source.commit).with_launch()
    setups = _resolve_setups(services, launched, source)
    chains = _bind(services, launched, setups, source, [LAUNCH])
    return next(way[LAUNCH] for ways in chains for way in ways if LAUNCH in way)


def _resolve_setups(services: Services, profile: Profile, source: TreeSource) -> dict[str, GuestSetup]:
    return {
        part.project_name: add_known_layers(services, resolve_guest_setup(services, part), part, source)
        for part in profile.parts
    }


def _bind(
    services: Services,
    profile: Profile,
    setups: Mapping[str, GuestSetup],
    source: TreeSource,
    check_ids: Sequence[str],
) -> list[list[Bindings]]:
    chains = split_into_chains(order_checks(profile, check_ids, services.policies.container.container))
    return [
        [
            build_bindings(services.policies, setup, source.tree, chain)
            for setup in possible_setups(
                setups[project_of(chain[0].id)],
                source.repo_id if uses_compiler_cache(services.settings, profile, chain) else "",
            )
        ]
        for chain in chains
    ]
