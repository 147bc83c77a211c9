"""Which repository a person means who names a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from sandbox.cli.invocation import note
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.workbench import Workbench


def locate(workbench: Workbench, url: str) -> str:
    """The URL to use: of the repository that a directory lies in, which is then named."""
    found = workbench.locate(url)
    if found != url:
        note(f"note: {one_line(url)} is inside {one_line(unquote(found.removeprefix('file://')))}")
    return found
