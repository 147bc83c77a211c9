"""The contract suites use the unit suite's surroundings, and stand-ins for forges."""

from devtools.forges.fixtures import elsewhere, emulated_github, emulator, forge_packages, github, gitlab
from tests.unit.conftest import scrubbed, surroundings, unused_homes, upstream

__all__ = [
    "elsewhere",
    "emulated_github",
    "emulator",
    "forge_packages",
    "github",
    "gitlab",
    "scrubbed",
    "surroundings",
    "unused_homes",
    "upstream",
]
