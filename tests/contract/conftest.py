"""The contract suites use the unit suite's surroundings."""

from tests.unit.conftest import scrubbed, surroundings, upstream

__all__ = ["scrubbed", "surroundings", "upstream"]
