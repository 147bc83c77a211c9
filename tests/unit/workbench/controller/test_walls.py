"""A line of doctor for each wall: weak for exactly the fact that makes it weak."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.config import RemoteSettings, Settings
from sandbox.models import ProbeLevel
from sandbox.workbench.controller.policies_in_force import Policies
from sandbox.workbench.controller.walls import WallFacts, find_wall_facts, wall_probes

STRONG = WallFacts(
    root=True,
    runtime="runc",
    kernel=(6, 1),
    limits_memory=True,
    fetch_memory_bytes=RemoteSettings().max_fetch_memory_bytes,
    gate="pr-ready",
    plain_hosts=(),
    reserve_bytes=1,
    file_remotes=False,
    unasked=(),
    pressure=True,
    one_heap=True,
)


def weak_lines(facts: WallFacts) -> list[str]:
    probes = wall_probes(facts)
    assert all(probe.hint for probe in probes if probe.level is ProbeLevel.WARN)
    return [probe.name.removeprefix("wall: ") for probe in probes if probe.level is not ProbeLevel.OK]


def test_all_walls_hold_with_every_mechanism_in_force() -> None:
    assert weak_lines(STRONG) == []


@pytest.mark.parametrize(
    ("fact", "weak"),
    [
        ({"root": False}, ["users", "failures"]),
        ({"kernel": (4, 6)}, ["git memory"]),
        ({"limits_memory": False}, ["git memory"]),
        ({"fetch_memory_bytes": 2**30}, ["git memory"]),
        ({"gate": "none"}, ["gate"]),
        ({"pressure": False}, ["failures"]),
        ({"one_heap": False}, ["request memory"]),
        ({"reserve_bytes": 0}, ["disk admission"]),
        ({"unasked": ("space_repo_push",)}, ["approvals"]),
    ],
)
def test_each_missing_mechanism_weakens_exactly_its_walls(fact: dict[str, object], weak: list[str]) -> None:
    assert weak_lines(replace(STRONG, **fact)) == weak  # type: ignore[arg-type]


def test_another_runtime_or_setting_is_named_but_no_weakness() -> None:
    other = wall_probes(replace(STRONG, runtime="runsc", gate="pr", plain_hosts=("a.example",), file_remotes=True))
    changed = {probe.name for probe, usual in zip(other, wall_probes(STRONG), strict=True) if probe != usual}
    assert changed == {"wall: shared memory", "wall: gate", "wall: local remotes"}
    assert all(probe.level is ProbeLevel.OK for probe in other)


def test_facts_are_those_of_the_policies_in_force(tmp_path: Path) -> None:
    assert find_wall_facts(Settings(), Policies(tmp_path)).unasked == ()
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "approvals.toml").write_text('[tools]\nspace_repo_push = "allow"\n')
    found = find_wall_facts(Settings(), Policies(tmp_path))
    assert found.unasked == ("space_repo_push",)
    assert found.limits_memory
    assert found.one_heap
    assert found.gate == "pr-ready"


def test_an_invalid_approval_policy_is_no_error_here(tmp_path: Path) -> None:
    """It has a line of its own, and nothing is allowed by it."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "approvals.toml").write_text("[tools")
    assert find_wall_facts(Settings(), Policies(tmp_path)).unasked == ()


def test_the_page_on_hardening_lists_the_same_walls() -> None:
    page = (Path(__file__).parents[4] / "docs" / "hardening.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `wall: ([a-z ]+)` \|", page, re.MULTILINE)
    assert listed == [probe.name.removeprefix("wall: ") for probe in wall_probes(STRONG)]
