"""The list of threats, its page, the suite that ships and the tests here name the same things."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devtools import threats
from sandbox.attack import explain, select
from sandbox.models import Threat, ThreatState

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def test_threats_page_and_suite_agree() -> None:
    page = (ROOT / "docs" / "threats.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    written = {
        name
        for path in HERE.glob("test_*.py")
        if path != Path(__file__)
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert named == written
    assert not [path for path in re.findall(r"`(tests/[\w/.]+)`", page) if not (ROOT / path).exists()]


def test_threats_page_is_what_the_list_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert threats.main(["--check"]) == 0, capsys.readouterr().out


def test_every_entry_that_ships_is_explained_with_its_control_and_no_other_has_one() -> None:
    assert {t.id for t in explain() if t.control} == {entry.id for entry in select()}


@pytest.mark.parametrize("threat", explain(), ids=lambda threat: threat.id)
def test_a_threat_says_what_it_is_what_stops_it_and_where_that_is_shown(threat: Threat) -> None:
    assert threat.section in threats.SECTIONS
    assert threat.attack.endswith(".")
    assert threat.stops or threat.state is ThreatState.LATER
    assert threat.tests or threat.state is not ThreatState.TESTED
    assert threat.remark or threat.state is not ThreatState.PARTLY
    assert not (threat.ships and threat.state is ThreatState.LATER)
