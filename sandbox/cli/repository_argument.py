"""Find the repository of a directory that the user names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sandbox.cli.invocation import note
from sandbox.errors import SandboxError
from sandbox.lazy_pattern import lazy_pattern
from sandbox.text import one_line

if TYPE_CHECKING:
    from sandbox.workbench import Workbench

_IS_PATH_OR_OPTION = lazy_pattern(r"[-/~]|\.{1,2}(?:/|\Z)")


def locate_repository(workbench: Workbench, url: str) -> str:
    """Find the URL to use. If `url` is a directory inside a repository, use the repository and print a note."""
    try:
        found = workbench.locate(url)
    except SandboxError:
        if _IS_PATH_OR_OPTION.match(url) or not os.path.isdir(url):  # noqa: PTH112 - never raises
            raise
        found = workbench.locate(f"./{url}")  # no URL, but the name of a directory
        if found == f"./{url}":
            return found
    if found != url:
        note(f"note: {one_line(url)} is inside {one_line(unquote(found.removeprefix('file://')))}")
    return found
