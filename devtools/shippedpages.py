"""The pages of an installed package: a hook of the build puts those for users into the wheel.

`sandbox docs NAME` shows them; messages name them as docs/NAME.md. Links in them to other folders lead to the source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FOR_CONTRIBUTORS = frozenset({"architecture", "benchmarks", "development"})
_SHIPPED_OTHERWISE = frozenset({"threats"})
"""`sandbox doctor --attack --explain` prints it, from a file of the package."""


def find_shipped_pages(root: Path) -> list[Path]:
    """The pages for users at the top of docs/."""
    pages = sorted((root / "docs").glob("*.md"))
    return [page for page in pages if page.stem not in _FOR_CONTRIBUTORS | _SHIPPED_OTHERWISE]


class ShippedPages(BuildHookInterface[Any]):
    """Only for a wheel to install: an editable one reads the pages of the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            for page in find_shipped_pages(Path(self.root)):
                build_data["force_include"][str(page)] = f"sandbox/_resources/docs/{page.name}"
