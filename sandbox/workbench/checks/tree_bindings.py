"""What the verdicts of all checks of a profile on a tree are bound to, without running or fetching anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.profiles import Profile, project_of
from sandbox.store.verdicts import Binding
from sandbox.workbench.checks.chains import split_into_chains
from sandbox.workbench.checks.check_order import order_checks
from sandbox.workbench.checks.git_facts import add_git_facts
from sandbox.workbench.checks.guest_setup import GuestSetup, resolve_guest_setup
from sandbox.workbench.checks.layers import TreeOfCommit, add_known_layers
from sandbox.workbench.checks.verdict_keys import build_bindings
from sandbox.workbench.controller.services import Services


@dataclass(frozen=True)
class TreeBindings:
    """`bindings`: by check. `setups`: the image and runtime, by project, '' for the top."""

    bindings: Mapping[str, Binding]
    setups: Mapping[str, GuestSetup]

    @property
    def keys(self) -> tuple[str, ...]:
        """The key of each binding, in the order of the checks."""
        return tuple(binding.key for binding in self.bindings.values())


def bind_tree(services: Services, profile: Profile, source: TreeOfCommit) -> TreeBindings:
    """The bindings of all checks of a profile that has some. Raises: as `resolve_guest_setup`."""
    profile = add_git_facts(profile, source.git, source.commit)
    setups = {
        part.project_name: add_known_layers(services, resolve_guest_setup(services, part), part, source)
        for part in profile.parts
    }
    policy = services.policies.container.container
    chains = split_into_chains(order_checks(profile, [check.id for check in profile.checks], policy))
    bound = [build_bindings(services.policies, setups[project_of(c[0].id)], source.tree, c) for c in chains]
    return TreeBindings({name: binding for bindings in bound for name, binding in bindings.items()}, setups)
