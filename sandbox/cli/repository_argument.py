"""Find the repository of a directory that the user names."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from sandbox.cli.invocation import note
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.workbench import Workbench


def locate_repository(workbench: Workbench, url: str) -> str:
    """Find the URL to use. If `url` is a directory inside a repository, use the repository and print a note."""
    found = workbench.locate(url)
    if found != url:
        note(f"note: {one_line(url)} is inside {one_line(unquote(found.removeprefix('file://')))}")
    return found
