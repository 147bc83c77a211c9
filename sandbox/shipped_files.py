"""Where the files that are shipped beside the code are: policies, profiles, recipes of images, and pages for users."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal


def is_checkout() -> bool:
    """Whether this is a source checkout, where `make` works, and not an installed wheel."""
    return not (Path(__file__).parent / "_resources").is_dir() and (Path(__file__).parent.parent / "Makefile").is_file()


@cache
def find_resources(kind: Literal["docs", "images", "policies"]) -> Path:
    """The shipped folder: inside the wheel, or next to the package in a checkout. A check asks twenty times."""
    package = Path(__file__).parent
    packed = package / "_resources" / kind
    return packed if packed.is_dir() else package.parent / kind
