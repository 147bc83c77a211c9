"""axe-core, the checker of accessibility that tests of the dashboard run in a browser; from npm, pinned by hash."""

from __future__ import annotations

from pathlib import Path

from devtools import npminstall

HERE = Path(__file__).parent
FOLDER = npminstall.CACHE / "accessibility"


def read_axe() -> str:
    """Its script, installed at the first call."""
    npminstall.install(HERE, FOLDER)
    return (FOLDER / "node_modules" / "axe-core" / "axe.min.js").read_text()
