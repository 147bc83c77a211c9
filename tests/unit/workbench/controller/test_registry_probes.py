from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sandbox.egress.destinations import AllowedHost
from sandbox.models import Probe, ProbeLevel
from sandbox.workbench import Workbench
from sandbox.workbench.controller.registry_probes import probe_registries

URL = "https://pypi.test:8443/simple"


def probe(home: Path, settings: dict[str, object], problem: str = "") -> Probe:
    def ask(hosts: Sequence[AllowedHost], _ca_file: str) -> Mapping[str, str]:
        return {str(host.destination): problem for host in hosts}

    with Workbench(home, settings=settings) as workbench:
        return next(
            p for p in probe_registries(workbench._services, ask) if p.name in {"registries", "registry: python"}
        )


def test_a_registry_that_answers_is_named_with_who_said_so(tmp_path: Path) -> None:
    found = probe(tmp_path / "home", {"registries": {"python": [URL]}})
    assert (found.level, found.value) == (ProbeLevel.OK, f"{URL} (registries.python): pypi.test:8443 answers")


@pytest.mark.parametrize("problem", ["address_not_allowed", "no answer within 3 s"])
def test_one_that_does_not_is_a_warning_with_a_remedy(tmp_path: Path, problem: str) -> None:
    found = probe(tmp_path / "home", {"registries": {"python": [URL]}}, problem)
    assert (found.level, problem in found.value, "[registries]" in found.hint) == (ProbeLevel.WARN, True, True)


def test_a_setting_that_cannot_be_used_is_a_warning(tmp_path: Path) -> None:
    found = probe(tmp_path / "home", {"registries": {"python": ["https://me:hunter2@pypi.test/simple"]}})
    assert found.level is ProbeLevel.WARN
    assert "hunter2" not in found.value + found.hint


def test_nothing_is_asked_when_nothing_is_ever_fetched(tmp_path: Path) -> None:
    found = probe(tmp_path / "home", {"layers": {"fetch": "never"}}, "asked")
    assert (found.level, found.value) == (ProbeLevel.OK, "not asked: layers.fetch is 'never'")
