"""The lines of `sandbox doctor` on registries: which one each ecosystem uses, who said so, and whether it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from sandbox.egress.destinations import AllowedHost
from sandbox.egress.reachability import ask_registries
from sandbox.egress.registries import find_registries
from sandbox.errors import SandboxError
from sandbox.models import Probe, ProbeLevel
from sandbox.workbench.controller.services import Services

if TYPE_CHECKING:
    from sandbox.models.layers import LayerEcosystem
    from sandbox.profiles import Profile

Ask = Callable[[Sequence[AllowedHost], str], Mapping[str, str]]
"""`ask_registries`: what is wrong with each host, '' if it answers."""

_HINT = (
    "Checks of projects that need packages run without them. Name a registry that this host reaches in [registries], "
    "or set layers.fetch = 'never' (docs/dependencies.md)."
)


def probe_registries(services: Services, ask: Ask = ask_registries) -> tuple[Probe, ...]:
    """A line for each ecosystem that a profile fetches packages of, in parallel; none fails `doctor`. Never raises.

    With `layers.fetch = "never"` no host is asked.
    """
    ecosystems = _list_ecosystems(services.policies.profiles.values())
    if not ecosystems:
        return ()
    if services.settings.layers.fetch == "never":
        return (Probe(name="registries", level=ProbeLevel.OK, value="not asked: layers.fetch is 'never'"),)
    with ThreadPoolExecutor(len(ecosystems)) as pool:
        return tuple(pool.map(lambda name: _probe(services, name, ask), ecosystems))


def _list_ecosystems(profiles: Iterable[Profile]) -> list[LayerEcosystem]:
    return sorted({rule.ecosystem for profile in profiles for rule in profile.layers})


def _probe(services: Services, ecosystem: LayerEcosystem, ask: Ask) -> Probe:
    name = f"registry: {ecosystem}"
    try:
        found = find_registries(ecosystem, services.settings.registries, services.environ)
        answers = ask(found.hosts, found.ca_file or services.settings.images.ca_bundle)
    except SandboxError as error:
        return Probe(name=name, level=ProbeLevel.WARN, value=f"{error.brief}: {error.details}", hint=error.hint)
    except OSError as error:
        value = f"cannot be asked: {error.filename or ''} {error.strerror or error}".replace("  ", " ")
        return Probe(name=name, level=ProbeLevel.WARN, value=value, hint="Set registries.ca_file, or check $TMPDIR.")
    hosts = ", ".join(f"{host} {problem or 'answers'}" for host, problem in answers.items())
    value = f"{' '.join(found.indexes)} ({found.source}): {hosts}"
    if any(answers.values()):
        return Probe(name=name, level=ProbeLevel.WARN, value=value, hint=_HINT)
    return Probe(name=name, level=ProbeLevel.OK, value=value)
