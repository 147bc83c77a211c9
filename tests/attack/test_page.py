"""docs/threats.md names every test here, and no other."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_threats_page_and_suite_agree() -> None:
    page = (HERE.parents[1] / "docs" / "threats.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    written = {
        name
        for path in HERE.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert named == written - {"test_threats_page_and_suite_agree"}
